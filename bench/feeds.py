"""Sources and sinks made for measuring: rows that know when they were due, and sinks that only look at the clock.

A paced source plays a sensor: a row is due at its instant whether or not anyone has time for it, and its latency counts
from there. An endless source has rows at any moment and may be paused, so the engine runs as fast as it can.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import numpy as np
import pyarrow as pa

from bench.arrivals import Arrivals, Microseconds, join
from bench.workload import AVERAGED, LINES, READINGS_MAX, Batch, Readings, lines_batch
from headwater.dataflow.connectors import Ended, Idle, Poll, Position, Rows
from headwater.workers.clock import now_us

POOL_ROWS: Final = 20_000  # lines made beforehand by the endless source; a multiple of what repeats in them
GUARANTEE: Final = "exactly-once"


class Shape(StrEnum):
    """What a paced source sends."""

    LINES = "lines"
    READINGS = "readings"


@dataclass(frozen=True, slots=True)
class PacedSource:
    """So many rows a second, evenly, until `rows` of them are sent."""

    rate: float
    shape: Shape = Shape.READINGS
    rows: int | None = None
    kind: str = "paced"
    can_wait: bool = False
    blocking: bool = False
    guarantee: str = GUARANTEE

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return LINES if self.shape is Shape.LINES else AVERAGED

    def open(self, position: Position | None) -> "PacedReader":
        """Go on behind the position; the pace begins anew."""
        return PacedReader(self, 0 if position is None else int(position["row"]))


class PacedReader:
    """Sends every row at its instant."""

    def __init__(self, spec: PacedSource, row: int) -> None:
        """Begin at this row; the clock starts with the first poll."""
        self._spec, self._row, self._first = spec, row, row
        self._began_us: int | None = None
        self._make = lines_batch if spec.shape is Shape.LINES else Readings().batch

    def poll(self, rows_max: int, now: int) -> Poll:
        """Return the rows that are due."""
        if self._began_us is None:
            self._began_us = now
        last = self._first + int((now - self._began_us) * self._spec.rate / 1e6) + 1
        if self._spec.rows is not None:
            if self._row >= self._spec.rows:
                return Ended()
            last = min(last, self._spec.rows)
        last = min(last, self._row + min(rows_max, READINGS_MAX))
        if last <= self._row:
            return Idle(self._due_us(self._row))
        rows = range(self._row, last)
        due_us = [self._due_us(row) for row in rows]
        self._row = last
        return Rows(self._make(rows, due_us), {"row": last}, due_us[0])

    def _due_us(self, row: int) -> int:
        assert self._began_us is not None
        return self._began_us + -int(-(row - self._first) * 1e6 // self._spec.rate)

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True, slots=True)
class EndlessSource:
    """JSON lines made beforehand, over and over, as fast as they are taken."""

    kind: str = "endless"
    can_wait: bool = True
    blocking: bool = False
    guarantee: str = GUARANTEE

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return LINES

    def open(self, position: Position | None) -> "EndlessReader":
        """Go on behind the position."""
        return EndlessReader(0 if position is None else int(position["row"]))


class EndlessReader:
    """Cuts batches out of a pool of lines."""

    def __init__(self, row: int) -> None:
        """Make the pool."""
        self._row = row
        self._pool = line_pool()

    def poll(self, rows_max: int, now: int) -> Poll:
        """Return as many rows as are asked for, up to the end of the pool."""
        start = self._row % POOL_ROWS
        batch = self._pool.slice(start, min(rows_max, POOL_ROWS - start))
        self._row += batch.num_rows
        return Rows(batch, {"row": self._row})

    def close(self) -> None:
        """Nothing is open."""


def line_pool() -> Batch:
    """Return lines that were all created just now."""
    return lines_batch(range(POOL_ROWS), [now_us()] * POOL_ROWS)


@dataclass(slots=True)
class MeasuringSink:
    """Notes when each row was due and when it came; its own writer, as it lives in the process that measures."""

    kind: str = "measure"
    guarantee: str = GUARANTEE
    blocking: bool = False
    rows: int = 0
    latest_us: int = 0  # the youngest row that came: everything before it is here, since a flow keeps order
    _parts: list[tuple[Microseconds, int]] = field(default_factory=list)

    def open(self, position: Position | None) -> "MeasuringSink":
        """Return the writer."""
        return self

    def write(self, batches: list[Batch]) -> Position:
        """Look at the clock."""
        for batch in batches:
            created = batch.column("created_us").to_numpy().copy()  # the batch lies in the store's memory
            self._parts.append((created, now_us()))
            self.rows += len(created)
            self.latest_us = int(created[-1]) if len(created) else self.latest_us
        return {"rows": self.rows}

    def close(self) -> None:
        """Nothing is open."""

    def arrivals(self) -> Arrivals:
        """Return everything that came so far."""
        return join([Arrivals(created, np.full(len(created), arrived)) for created, arrived in list(self._parts)])


@dataclass(slots=True)
class CountingSink:
    """Counts rows and looks at nothing."""

    kind: str = "count"
    guarantee: str = GUARANTEE
    blocking: bool = False
    rows: int = 0

    def open(self, position: Position | None) -> "CountingSink":
        """Return the writer."""
        return self

    def write(self, batches: Sequence[Batch]) -> Position:
        """Count."""
        self.rows += sum(batch.num_rows for batch in batches)
        return {"rows": self.rows}

    def close(self) -> None:
        """Nothing is open."""
