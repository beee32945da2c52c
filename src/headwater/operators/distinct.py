"""Rows and values that are seen for the first time.

What was seen is remembered by key, for ever or until the watermark has come to the first row's event time and `within`
more, as in Structured Streaming's dropDuplicatesWithinWatermark. What is to be forgotten also stands in order of time,
so that it is found without looking at all that is remembered.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

import numpy as np
import pyarrow as pa

from headwater.model.entries import space_prefix
from headwater.model.errors import FlowError
from headwater.model.keys import keyed_rows
from headwater.model.time import BEGINNING_OF_TIME, END_OF_TIME
from headwater.operators.base import Moment, Outputs, TimedLogic, TimedOperator
from headwater.operators.bloom import BloomLogic
from headwater.operators.entry_names import EntryNames
from headwater.operators.lateness import punctual
from headwater.operators.long_keys import SUFFIX_AT, forget_long, remember_long
from headwater.operators.ragged import Ints
from headwater.operators.state import OperatorState

DistinctMethod = Literal["exact", "bloom"]

SEEN: Final = 1
EXPIRY: Final = 2

_KNOWN: Final = b"\1"


@dataclass(frozen=True, kw_only=True)
class Dedup(TimedOperator):
    """Lets the first row of every key pass and drops those that follow, until the first is forgotten.

    Null is a key like any other. A row behind the watermark is late, whether its key was seen or not.
    """

    kind: ClassVar[str] = "dedup"
    key_columns: tuple[str, ...]
    time: str | None = None
    within_us: int | None = None  # None: for ever

    def __post_init__(self) -> None:
        """Refuse a horizon without a time."""
        refuse_horizon_without_time(self.kind, self.time, self.within_us)

    def open(self) -> TimedLogic:
        """Return the logic."""
        return DedupLogic(self.key_columns, self.time, self.within_us)

    @property
    def ports(self) -> tuple[str, ...]:
        """The rows that pass, and those that came too late to be told apart."""
        return ("out", "late")

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that make the key."""
        return self.key_columns

    @property
    def columns_needed(self) -> tuple[str, ...]:
        """The key, and the event time if it matters."""
        return needed(self.key_columns, self.time)

    @property
    def needs_watermark(self) -> bool:
        """Without a watermark nothing is ever forgotten."""
        return self.within_us is not None

    def output_schema(self, inputs: Sequence[pa.Schema | None]) -> pa.Schema | None:
        """Rows pass as they are."""
        return inputs[0]


@dataclass(frozen=True, kw_only=True)
class Distinct(TimedOperator):
    """The distinct values of some columns, each when it is seen first.

    The bloom method takes memory for `capacity` values, whatever they are, and holds a new value for one it has seen
    with the probability `error` once it has seen that many. It forgets a value between one and two `within` later.
    """

    kind: ClassVar[str] = "distinct"
    columns: tuple[str, ...]
    time: str | None = None
    within_us: int | None = None
    method: DistinctMethod = "exact"
    capacity: int = 1_000_000
    error: float = 0.01

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        refuse_horizon_without_time(self.kind, self.time, self.within_us)
        if self.method not in ("exact", "bloom"):
            raise FlowError(f"method={self.method!r} is unknown; distinct is 'exact' or by 'bloom' filter")
        if self.capacity < 1 or not 0 < self.error < 1:
            raise FlowError("a bloom filter needs a capacity of at least one value and an error between 0 and 1")

    def open(self) -> TimedLogic:
        """Return the logic."""
        if self.method == "bloom":
            return BloomLogic(self.columns, self.time, self.within_us, self.capacity, self.error)
        return DedupLogic(self.columns, self.time, self.within_us, self.columns)

    @property
    def ports(self) -> tuple[str, ...]:
        """The values, and the rows that came too late."""
        return ("out", "late")

    @property
    def key(self) -> tuple[str, ...]:
        """The columns whose values are told apart."""
        return self.columns

    @property
    def columns_needed(self) -> tuple[str, ...]:
        """The columns, and the event time if it matters."""
        return needed(self.columns, self.time)

    @property
    def needs_watermark(self) -> bool:
        """Without a watermark nothing is ever forgotten."""
        return self.within_us is not None

    def output_schema(self, inputs: Sequence[pa.Schema | None]) -> pa.Schema | None:
        """Only the columns that are told apart come out."""
        known = inputs[0]
        return None if known is None else pa.schema([known.field(name) for name in self.columns])

    def port_schema(self, port: str, inputs: Sequence[pa.Schema | None]) -> pa.Schema | None:
        """Late rows leave as they came."""
        return inputs[0] if port == "late" else self.output_schema(inputs)


def refuse_horizon_without_time(kind: str, time: str | None, within_us: int | None) -> None:
    """Raise if there is a horizon and nothing to measure it by."""
    if within_us is not None and (time is None or within_us <= 0):
        raise FlowError(f"{kind} needs the column of event time to forget after some time, and a time that is positive")


def needed(columns: Sequence[str], time: str | None) -> tuple[str, ...]:
    """Return the columns that have to be there."""
    return tuple(dict.fromkeys((*columns, *([] if time is None else [time]))))


class DedupLogic:
    """Remembers every key exactly."""

    def __init__(
        self,
        key: Sequence[str],
        time: str | None,
        within_us: int | None,
        columns: Sequence[str] | None = None,
    ) -> None:
        """Let rows pass whole, or only some of their columns."""
        self._key, self._time, self._columns = key, time, columns
        # A key that has the event time in it cannot come again, other than late, once the watermark is behind it.
        self._within_us = 0 if within_us is None and time in key else within_us
        self._names = EntryNames(SEEN)

    def rows(self, batch: pa.RecordBatch, source: int, moment: Moment) -> Outputs:
        """Let the first row of every new key pass."""
        late, times = None, None
        if self._time is not None:
            batch, times, late = punctual(batch, self._time, moment.watermark_us)
        if not batch.num_rows:
            return (None, late)
        keyed = keyed_rows(batch, self._key)
        names = self._names.of(keyed.keys)
        new = [place for place, found in enumerate(moment.state.read_many(names)) if found is None]
        if not new:
            return (None, late)
        first = np.flatnonzero(np.diff(np.maximum.accumulate(keyed.codes), prepend=-1))[
            new
        ]  # codes rise as keys appear
        fresh = [names[place] for place in new]
        moment.state.put_many(fresh, [_KNOWN] * len(new))
        if self._within_us is not None:
            assert times is not None
            self._note(moment.state, fresh, [keyed.keys[place] for place in new], times[first])
        passed = batch.take(pa.array(first))
        return (passed if self._columns is None else passed.select(list(self._columns)), late)

    def advance(self, moment: Moment) -> Outputs:
        """Forget the keys whose time has passed."""
        if self._within_us is None:
            return (None, None)
        state = moment.state
        before_us = END_OF_TIME if moment.watermark_us == END_OF_TIME else moment.watermark_us + 1
        due = [one.entry for one in state.held(EXPIRY, BEGINNING_OF_TIME, before_us)]
        if due:
            state.delete_many(due)
            state.delete_many([space_prefix(SEEN, 0) + entry[SUFFIX_AT:] for entry in due])
            forget_long(state, due, EXPIRY)
        return (None, None)

    def wake_us(self, moment: Moment) -> int | None:
        """The clock means nothing here."""
        return None

    def _note(self, state: OperatorState, names: list[bytes], keys: list[Any], times: Ints) -> None:
        """Note when these keys are to be forgotten."""
        assert self._within_us is not None
        expiry = np.minimum(times, END_OF_TIME - 1 - self._within_us) + self._within_us
        due = [space_prefix(EXPIRY, at) + name[SUFFIX_AT:] for at, name in zip(expiry.tolist(), names, strict=True)]
        state.put_many(due, [b""] * len(due))
        remember_long(state, names, keys)
