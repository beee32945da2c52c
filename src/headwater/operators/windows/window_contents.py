"""What a window remembers of its rows, seen from the windows: cells of bytes that can be added to and combined.

A window's logic knows which rows belong together and when they are due; what is made of them is none of its business.
It keeps one cell for every group of rows (a pane of a key, a session, a stretch of a key's rows) and hands cells to its
contents: aggregates, all rows for a user's function, or the best few of them.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.operators.columns.vectors import GroupedRows
from headwater.operators.state import OperatorState
from headwater.operators.windows.panes import Instants

Cells = Sequence[bytes]
Indices = npt.NDArray[np.intp]

PANES: Final = 1  # the spaces of a window operator: cells of time windows,
FRESH: Final = 2  # rows since the last firing, where it matters,
ROWS: Final = 3  # rows kept whole,
SESSIONS: Final = 4  # the open sessions of a key,
TIMERS: Final = 5  # when a key wants to be looked at,
COUNTED: Final = 6  # and the rows of a key by number

_ARRIVED: Final = "arrived"


class Finished(NamedTuple):
    """What came of cells: rows, and of which run each is (None: one row for every run, in order)."""

    rows: pa.RecordBatch
    run: Indices | None = None


class Contents(Protocol):
    """What is made of the rows of a window."""

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The columns that are looked at; None: all, as they are."""
        ...

    @property
    def by_arrival(self) -> bool:
        """Whether the order in which rows arrived has to be known."""
        ...

    @property
    def has_keys(self) -> bool:
        """Whether the rows that come out have the key's columns already."""
        ...

    def fit(self, schema: pa.Schema) -> None:
        """Prepare for rows with these columns."""
        ...

    def add(
        self, cells: Sequence[bytes | None], rows: GroupedRows, names: Sequence[bytes], state: OperatorState
    ) -> list[bytes]:
        """Return the cells with the rows added; a cell is None at first, `names` are those of their entries."""
        ...

    def combine(self, cells: Cells, starts: Indices, state: OperatorState) -> list[bytes]:
        """Return one cell for each run of cells, which begin at `starts`."""
        ...

    def finish(
        self, cells: Cells, names: Sequence[bytes], index: Indices, starts: Indices, state: OperatorState
    ) -> Finished:
        """Return what comes out for runs of `index`, which picks among the cells."""
        ...

    def forget(self, cells: Cells, names: Sequence[bytes], state: OperatorState) -> None:
        """Remove what the cells refer to; they will not be seen again."""
        ...


def arrivals(count: int, wanted: bool, now_us: int, state: OperatorState) -> Instants:
    """Return the places of so many rows in the order of all arrivals; all the same where nobody wants to know.

    They follow the clock where it is ahead of their number, so that they go on rising where state comes together that
    was written by two instances.
    """
    if not wanted:
        return np.zeros(count, dtype=np.int64)
    kept = state.own(_ARRIVED)
    first = max(0 if kept is None else int.from_bytes(kept, "big"), now_us)
    state.keep_own(_ARRIVED, (first + count).to_bytes(8, "big"))
    return np.arange(first, first + count)
