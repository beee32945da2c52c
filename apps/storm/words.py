"""Words and sentences like those of Storm's test spouts, each a function of its number."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from ..chance import whole

NAMES: Final = ("nathan", "mike", "jackson", "golda", "bertels")


@dataclass(frozen=True)
class RandomWords:
    """One of five names a row."""

    seed: int = 1

    def __call__(self, first: int, count: int) -> pa.RecordBatch:
        """Make rows `first` to `first + count - 1`."""
        picked = whole(np.arange(first, first + count), len(NAMES), self.seed)
        return pa.record_batch({"line": pa.array(NAMES).take(pa.array(picked))})
