"""The first rows of a stream, and no others: how many have passed is all that is kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import pyarrow as pa

from headwater.model.entries import entry_of
from headwater.model.keys import encode_key
from headwater.operators.base import Effect, Moment, Outputs, TimedLogic, TimedOperator

PASSED: Final = 1
_BYTES: Final = 8


@dataclass(frozen=True, kw_only=True)
class Limit(TimedOperator):
    """Lets so many rows pass, in order of arrival, and drops all that follow."""

    kind: ClassVar[str] = "limit"
    effect: ClassVar[Effect] = Effect.FILTERS
    rows: int

    def open(self) -> TimedLogic:
        """Return the logic."""
        return LimitLogic(self.rows)

    @property
    def state_settings(self) -> Mapping[str, object]:
        """What has passed is known whatever the limit is: a higher one lets more rows pass."""
        return {}

    def output_schema(self, inputs: Sequence[pa.Schema | None]) -> pa.Schema | None:
        """Rows pass as they are."""
        return inputs[0]


class LimitLogic:
    """Runs a limit."""

    def __init__(self, rows: int) -> None:
        """Remember where the count is kept: all rows have one key."""
        self._limit = rows
        self._entry = entry_of(PASSED, 0, encode_key(()))

    def rows(self, batch: pa.RecordBatch, source: int, moment: Moment) -> Outputs:
        """Let rows pass as long as there is room."""
        kept = moment.state.read(self._entry)
        passed = 0 if kept is None else int.from_bytes(kept, "big")
        passing = min(batch.num_rows, max(0, self._limit - passed))
        if passing:
            moment.state.put(self._entry, (passed + passing).to_bytes(_BYTES, "big"))
        return (batch.slice(0, passing),)

    def advance(self, moment: Moment) -> Outputs:
        """Time brings nothing forth."""
        return (None,)

    def wake_us(self, moment: Moment) -> int | None:
        """Time is of no matter."""
        return None
