"""When a source's rows are due: at once, at a rate, or as they were recorded.

A pacer gets the time as an argument. The schedule starts with the first poll after each opening, so after a restart
the time away is not made up for. A source that falls behind sends everything that is due; one that has run dry (a
followed file) resumes the pace from the moment it has rows again.
"""

from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.errors import FlowError, SchemaMismatch
from headwater.model.quoting import brief, cause, listed, quoted

Times = npt.NDArray[np.int64]

SECOND_US: Final = 1_000_000
# A bare number is an epoch time in the unit by which it is between 1973 and 5138.
_EPOCH_UNITS: Final = ((1e11, 1_000_000.0), (1e14, 1_000.0), (1e17, 1.0))
_EPOCH_NANOSECONDS: Final = 0.001


class Pacer(Protocol):
    """Decides how many of the present rows are due."""

    def begin(self, batch: pa.RecordBatch, turn: int, now_us: int) -> None:
        """Take the next rows; `turn` counts how often the source has started over."""
        ...

    def rows_due(self, at: int, now_us: int) -> int:
        """Return how many rows of the batch, from row `at` on, are due."""
        ...

    def due_us(self, at: int) -> int | None:
        """Return when a row of the batch is due; None if at once."""
        ...

    def sent(self, rows: int) -> None:
        """Count rows that were sent."""
        ...

    def ran_dry(self, now_us: int) -> None:
        """Record that the source has nothing to send."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast a source is replayed: `rate` rows a second, or by `time_column` at `speed` times its own pace."""

    rate: float | None = None
    time_column: str | None = None
    speed: float = 1.0

    def __post_init__(self) -> None:
        if self.rate is not None and not self.rate > 0:
            raise FlowError(f"rate={self.rate} is not a rate; give rows per second above 0, or None for full speed")
        if not self.speed > 0:
            raise FlowError(
                f"speed={self.speed} is not a speed; give a factor above 0, such as 10 for ten times as fast"
            )
        if self.rate is not None and self.time_column is not None:
            raise FlowError("rate and time_column are two paces; give one of them")

    def start(self, where: str) -> Pacer:
        """Return the pacer for one opening of the source."""
        if self.rate is not None:
            return _AtRate(self.rate)
        if self.time_column is not None:
            return _AsRecorded(self.time_column, self.speed, where)
        return _AtOnce()


class _AtOnce:
    def __init__(self) -> None:
        self._rows = 0

    def begin(self, batch: pa.RecordBatch, turn: int, now_us: int) -> None:
        self._rows = batch.num_rows

    def rows_due(self, at: int, now_us: int) -> int:
        return self._rows - at

    def due_us(self, at: int) -> int | None:
        return None

    def sent(self, rows: int) -> None:
        pass

    def ran_dry(self, now_us: int) -> None:
        pass


class _AtRate:
    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._start_us: int | None = None
        self._sent = 0
        self._rows = 0

    def begin(self, batch: pa.RecordBatch, turn: int, now_us: int) -> None:
        if self._start_us is None:
            self._start_us = now_us
        self._rows = batch.num_rows

    def rows_due(self, at: int, now_us: int) -> int:
        assert self._start_us is not None
        due = int((now_us - self._start_us) * self._rate / SECOND_US) + 1
        while self._instant(due - 1) > now_us:  # the division may round across an instant, by one row
            due -= 1
        while self._instant(due) <= now_us:
            due += 1
        return min(max(due - self._sent, 0), self._rows - at)

    def due_us(self, at: int) -> int | None:
        return self._instant(self._sent)

    def sent(self, rows: int) -> None:
        self._sent += rows

    def ran_dry(self, now_us: int) -> None:
        if self._start_us is None or self._instant(self._sent) < now_us:
            self._start_us, self._sent = now_us, 0

    def _instant(self, row: int) -> int:
        assert self._start_us is not None
        return self._start_us + int(row * SECOND_US / self._rate)


class _AsRecorded:
    """Keeps the intervals between recorded times; a time that goes backwards is due with the row before it."""

    def __init__(self, column: str, speed: float, where: str) -> None:
        self._column, self._speed, self._where = column, speed, where
        self._turn = -1
        self._start_us = 0  # due time of the first row of this turn
        self._recorded_us: int | None = None  # its recorded time
        self._last_due_us: int | None = None
        self._unit: float | None = None
        self._due: Times = np.empty(0, np.int64)

    def begin(self, batch: pa.RecordBatch, turn: int, now_us: int) -> None:
        recorded, is_known = self._recorded(batch)
        if turn != self._turn:
            self._turn, self._recorded_us = turn, None
            self._start_us = now_us if self._last_due_us is None else self._last_due_us
        if self._recorded_us is None and is_known.any():
            self._recorded_us = int(recorded[is_known.argmax()])
        floor = self._start_us if self._last_due_us is None else self._last_due_us
        passed = (recorded - (self._recorded_us or 0)) / self._speed
        due = np.where(is_known, self._start_us + passed.astype(np.int64), floor)
        self._due = np.maximum(np.maximum.accumulate(due), floor) if len(due) else due
        if len(due):
            self._last_due_us = int(self._due[-1])

    def rows_due(self, at: int, now_us: int) -> int:
        return max(int(np.searchsorted(self._due, now_us, side="right")) - at, 0)

    def due_us(self, at: int) -> int | None:
        return int(self._due[at])

    def sent(self, rows: int) -> None:
        pass

    def ran_dry(self, now_us: int) -> None:
        pass

    def _recorded(self, batch: pa.RecordBatch) -> tuple[Times, npt.NDArray[np.bool_]]:
        if self._column not in batch.schema.names:
            raise SchemaMismatch(
                f"{self._where}: there is no time column {quoted(self._column)}, only: {listed(batch.schema.names)}; "
                "correct time_column"
            )
        column = batch.column(self._column)
        is_known = column.is_valid().to_numpy(zero_copy_only=False)
        instants = self._instants(column)
        return pc.fill_null(instants, 0).to_numpy(zero_copy_only=False), is_known

    def _instants(self, column: pa.Array) -> pa.Array:
        kind = column.type
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return self._epoch(column)
        try:
            if pa.types.is_string(kind) or pa.types.is_large_string(kind):
                return _parsed(column).cast(pa.int64())
            if pa.types.is_temporal(kind):
                return column.cast(pa.timestamp("us", getattr(kind, "tz", None)), safe=False).cast(pa.int64())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as failure:
            raise SchemaMismatch(
                f"{self._where}: time column {quoted(self._column)} holds something that is not a time: "
                f"{cause(failure)}; give another time_column"
            ) from failure
        raise SchemaMismatch(
            f"{self._where}: time column {quoted(self._column)} is {brief(kind)}, which is not a time; "
            "give another time_column"
        )

    def _epoch(self, column: pa.Array) -> pa.Array:
        known: Any = column.drop_null()
        if self._unit is None and len(known):
            size = abs(known[0].as_py())
            self._unit = next((unit for below, unit in _EPOCH_UNITS if size < below), _EPOCH_NANOSECONDS)
        scaled = pc.multiply(column.cast(pa.float64(), safe=False), self._unit or 1.0)
        return pc.round(scaled).cast(pa.int64(), safe=False)


def _parsed(column: pa.Array) -> pa.Array:
    """Read ISO 8601 texts, with a zone or without."""
    try:
        return column.cast(pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid:
        return column.cast(pa.timestamp("us"))
