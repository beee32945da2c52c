"""What all windows do with rows that come in: bring them to known columns, and part those that come too late."""

from typing import NamedTuple, Protocol, overload

import numpy as np
import pyarrow as pa

from headwater.model.keys import KeyedRows, keyed_rows
from headwater.model.time import BEGINNING_OF_TIME, END_OF_TIME
from headwater.operators.base import Moment
from headwater.operators.columns.input_columns import InputColumns
from headwater.operators.columns.vectors import Mask, instants_of, out_of_reach
from headwater.operators.state import OperatorState
from headwater.operators.windows.panes import FAR, Instants, within_reach
from headwater.operators.windows.window_contents import Contents


class LastEnd(Protocol):
    """Where the last window ends that a row of an instant is in."""

    @overload
    def __call__(self, instant: int, /) -> int: ...

    @overload
    def __call__(self, instant: Instants, /) -> Instants: ...


class Timely(NamedTuple):
    """The rows of a batch that are in an open window, with their times and the span of these."""

    rows: pa.RecordBatch
    times: Instants
    first_us: int
    last_us: int


class WindowRows:
    """Rows on their way into windows."""

    def __init__(self, key_columns: tuple[str, ...], time: str | None, contents: Contents) -> None:
        """Look at the key, the time and what the contents need."""
        self._key_columns = key_columns
        self._time = time
        self._contents = contents
        times = () if time is None else (time,)
        self._input = InputColumns(None if contents.columns is None else (*key_columns, *times, *contents.columns))

    def settled(self, rows: pa.RecordBatch, state: OperatorState) -> tuple[pa.RecordBatch, pa.Schema]:
        """Return the rows with the columns of the state, and these columns, for which the contents are prepared."""
        settled, schema = self._input.settle(rows, state)
        self._contents.fit(schema)
        return settled, schema

    def recalled(self, state: OperatorState) -> pa.Schema | None:
        """Return the columns of the state, for which the contents are prepared; None before the first row."""
        schema = self._input.recall(state)
        if schema is not None:
            self._contents.fit(schema)
        return schema

    def keyed(self, rows: pa.RecordBatch) -> KeyedRows:
        """Return the keys of rows."""
        return keyed_rows(rows, self._key_columns)

    def timely(
        self, batch: pa.RecordBatch, last_end: LastEnd, closed_us: int, clock_us: int
    ) -> tuple[Timely | None, pa.RecordBatch | None]:
        """Part the rows whose last window ends after `closed_us` from those that are too late, or have no time."""
        if self._time is None:
            return Timely(batch, np.full(batch.num_rows, clock_us), clock_us, clock_us), None
        times, valid = instants_of(self._time, batch.column(self._time))
        first_us, last_us = int(times.min()), int(times.max())
        if first_us < -FAR or last_us > FAR:
            raise out_of_reach(self._time)
        closed_us = within_reach(closed_us)
        if valid is None and last_end(first_us) > closed_us:
            return Timely(batch, times, first_us, last_us), None
        is_open: Mask = last_end(times) > closed_us
        if valid is not None:
            is_open &= valid
        kept = np.flatnonzero(is_open)
        if len(kept) == 0:
            return None, batch
        times = times[kept]
        late = batch.filter(pa.array(~is_open)) if len(kept) < batch.num_rows else None
        rows = batch if late is None else batch.take(pa.array(kept))
        return Timely(rows, times, int(times.min()), int(times.max())), late


def time_reached(time: str | None, moment: Moment) -> int:
    """Return how far time has come: event time, or the clock, which ends with the rows."""
    if time is None and moment.watermark_us != END_OF_TIME:
        return moment.now_us
    return moment.watermark_us


def earlier(instant_us: int, by_us: int) -> int:
    """Return the instant so much earlier, but not before time began."""
    return max(instant_us, BEGINNING_OF_TIME + by_us) - by_us
