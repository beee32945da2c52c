"""Random whole numbers with the time they were made at, like those of Storm's integer spout."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from ..chance import uniform, whole

INTEGER_SCHEMA: Final = pa.schema([("value", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("msgid", pa.int64())])

_BEGAN_US: Final = 1_767_225_600_000_000  # 2026-01-01
_STEP_US: Final = 100_000  # ten a second, as in Storm
_OVERTAKEN: Final = 0.1  # so many of the rows were overtaken on their way
_DELAY_US_MAX: Final = 4_000_000


@dataclass(frozen=True)
class RandomIntegers:
    """A number below 1,000 a row, ten a second; one row in ten arrives up to four seconds after its time."""

    seed: int = 1

    def __call__(self, first: int, count: int) -> pa.RecordBatch:
        """Make rows `first` to `first + count - 1`."""
        numbers = np.arange(first, first + count)
        overtaken = uniform(numbers, self.seed, 2) < _OVERTAKEN
        delay_us = np.where(overtaken, whole(numbers, _DELAY_US_MAX, self.seed, 3), 0)
        at_us = _BEGAN_US + numbers * _STEP_US - delay_us
        columns = [whole(numbers, 1_000, self.seed, 1), at_us, numbers + 1]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, INTEGER_SCHEMA, strict=True)]
        return pa.record_batch(arrays, schema=INTEGER_SCHEMA)
