"""Event times of a batch, and which of its rows are late: those behind the watermark, and those without a time."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.operators.columns.segments import Ints
from headwater.operators.watermarks import micros_of


def event_times(batch: pa.RecordBatch, column: str) -> tuple[Ints, npt.NDArray[np.bool_] | None]:
    """Return the event times of a batch in microseconds, and which of them are known; None: all are."""
    values = batch.column(column)
    if pa.types.is_timestamp(values.type) and values.type.unit == "us" and not values.null_count:
        return values.view(pa.int64()).to_numpy(), None
    return micros_of(batch, column)


class Punctual(NamedTuple):
    """The rows of a batch that are not late, with their times, and those that are, if any."""

    rows: pa.RecordBatch
    times: Ints
    late: pa.RecordBatch | None


def punctual(batch: pa.RecordBatch, column: str, watermark_us: int) -> Punctual:
    """Tell the rows that are late from those that are not."""
    times, known = event_times(batch, column)
    late = times < watermark_us if known is None else (times < watermark_us) | ~known
    if not late.any():
        return Punctual(batch, times, None)
    return Punctual(batch.filter(pa.array(~late)), times[~late], batch.filter(pa.array(late)))
