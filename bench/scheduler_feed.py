"""The paper's workload generator: every 100 ms a tenth of a second's rows at once, at a rate that can be turned.

EdgeWise loads its trace into memory and lets a timer feed a batch of it (section 7.1), so the source costs little and
rows come in bursts. A row is due at its burst, whether or not the engine has time for it, and its latency counts from
there. Turning the rate of a flow that runs saves starting it again for every rate.
"""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from bench.workload import Batch
from headwater.connectors.application import App
from headwater.dataflow.connectors import Idle, Poll, Position, Rows

BURST_US: Final = 100_000
TRACE_ROWS: Final = 10_000  # made beforehand and looped over


@dataclass(slots=True)
class Dial:
    """The rate of a source that runs, in rows per second; at 0 it rests."""

    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class BurstSource:
    """Rows of an application's own generator, in bursts."""

    app: App
    dial: Dial
    batch_rows: int  # a burst comes in batches, which go to the instances of the first operator in turn
    kind: str = "bursts"
    can_wait: bool = False  # sensors do not
    blocking: bool = False
    guarantee: str = "exactly-once"

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self.app.schema

    def open(self, position: Position | None) -> "BurstReader":
        """Go on behind the position."""
        trace = self.app.made()(0, TRACE_ROWS)
        return BurstReader(trace, self.dial, self.batch_rows, 0 if position is None else int(position["row"]))


class BurstReader:
    """Sends a burst at every tenth of a second of the clock."""

    def __init__(self, trace: Batch, dial: Dial, batch_rows: int, row: int) -> None:
        """Begin at this row of the trace."""
        self._trace, self._dial, self._batch_rows, self._row = trace, dial, batch_rows, row
        self._due_us = 0  # of the burst that is being sent, or of the next one
        self._left = 0  # of that burst
        self._owed = 0.0  # part of a row that a burst could not send

    def poll(self, rows_max: int, now: int) -> Poll:
        """Return rows of the burst that is due; a large burst takes several polls."""
        if self._left == 0 and not self._begin(now):
            return Idle(max(self._due_us, now + 1))
        start = self._row % self._trace.num_rows
        part = self._trace.slice(start, min(self._left, rows_max, self._batch_rows, self._trace.num_rows - start))
        due_us = self._due_us
        self._row += part.num_rows
        self._left -= part.num_rows
        if self._left == 0:
            self._due_us += BURST_US
        return Rows(part, {"row": self._row}, due_us)

    def _begin(self, now: int) -> bool:
        """Begin the next burst, if it is due and has rows."""
        if self._dial.rate == 0:
            self._due_us, self._owed = (now // BURST_US + 1) * BURST_US, 0.0
            return False
        while self._due_us <= now and self._left == 0:
            self._owed += self._dial.rate * BURST_US / 1e6
            self._left = int(self._owed)
            self._owed -= self._left
            if self._left == 0:
                self._due_us += BURST_US
        return self._left > 0

    def close(self) -> None:
        """Nothing is open."""
