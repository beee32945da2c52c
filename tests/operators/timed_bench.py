"""Running a timed operator without an engine: rows, watermark and clock by hand, with a dict for its state.

Every call opens the operator anew, since the next turn may be another worker's: logic that remembers something
outside its state fails here at once. Invented misfortune for free: `cut` and `merged` move state as a migration would.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from headwater.model.entries import ALL_GROUPS, EVERY_GROUP, group_of_entry, handed_over
from headwater.model.time import BEGINNING_OF_TIME, END_OF_TIME
from headwater.operators.base import Moment, Outputs, TimedOperator
from headwater.operators.state import OperatorState

Row = dict[str, Any]


class DictStore:
    """A dict as an operator's committed state."""

    def __init__(self, kept: dict[bytes, bytes]) -> None:
        """Hold these entries."""
        self.kept = kept

    def read_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of these entries."""
        return [self.kept.get(key) for key in keys]

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries from `start` up to but without `stop`, in order."""
        return iter(self.gather(start, stop))

    def gather(self, start: bytes, stop: bytes) -> list[tuple[bytes, bytes]]:
        """Return those entries at once."""
        return [(key, self.kept[key]) for key in sorted(self.kept) if start <= key < stop]


class TimedBench:
    """One instance of a timed operator on the bench."""

    def __init__(
        self, operator: TimedOperator, kept: dict[bytes, bytes] | None = None, groups: range = ALL_GROUPS
    ) -> None:
        """Begin with this state."""
        self.operator = operator
        self.kept = dict(kept or {})
        self.groups = groups
        self.watermark_us = BEGINNING_OF_TIME
        self.now_us = 0
        self.out: dict[str, list[Row]] = {port: [] for port in operator.ports}

    def rows(self, rows: Sequence[Row] | pa.RecordBatch, source: int = 0) -> list[Row]:
        """Hand in rows and return what comes out of the first port at once."""
        batch = rows if isinstance(rows, pa.RecordBatch) else pa.RecordBatch.from_pylist(list(rows))
        moment = self._moment()
        return self._commit(moment, self.operator.open().rows(batch, source, moment))

    def watermark(self, time_us: int) -> list[Row]:
        """Let event time come so far, and return what comes out of the first port."""
        assert time_us >= self.watermark_us, "a watermark never falls"
        self.watermark_us = time_us
        return self._advance()

    def clock(self, now_us: int) -> list[Row]:
        """Let the clock come so far, as the engine does: `advance` is called when the operator asked for it."""
        self.now_us = now_us
        wanted = self.operator.open().wake_us(self._moment())
        return self._advance() if wanted is not None and wanted <= now_us else []

    def end(self) -> list[Row]:
        """Say that no row will follow."""
        return self.watermark(END_OF_TIME)

    def cut(self, groups: range) -> "TimedBench":
        """Take the keys of these groups away, with what belongs to all keys, to an instance of their own."""
        kept = {
            handed_over(entry, groups): value
            for entry, value in self.kept.items()
            if group_of_entry(entry) in groups or group_of_entry(entry) == EVERY_GROUP
        }
        self.kept = {entry: value for entry, value in self.kept.items() if group_of_entry(entry) not in groups}
        other = TimedBench(self.operator, kept, groups)
        other.watermark_us, other.now_us = self.watermark_us, self.now_us
        return other

    def merge(self, other: "TimedBench") -> None:
        """Take over another instance's keys."""
        self.kept |= other.kept

    def _advance(self) -> list[Row]:
        moment = self._moment()
        return self._commit(moment, self.operator.open().advance(moment))

    def _moment(self) -> Moment:
        return Moment(OperatorState(DictStore(self.kept), self.groups), self.watermark_us, self.now_us)

    def _commit(self, moment: Moment, outputs: Outputs) -> list[Row]:
        for entry, value in moment.state.changes.items():
            if value is None:
                self.kept.pop(entry, None)
            else:
                self.kept[entry] = value
        made: list[list[Row]] = [[] if batch is None else batch.to_pylist() for batch in outputs]
        for port, rows in zip(self.operator.ports, made, strict=True):
            self.out[port] += rows
        return made[0]
