"""Rows and values that are seen for the first time.

What was seen is remembered by key, for ever or until the watermark has come to the first row's event time and `within`
more, as in Structured Streaming's dropDuplicatesWithinWatermark. How long a key is remembered stands with it and counts
from the instant on at which that has passed, whether or not the entry is still there. Entries are swept out group by
group, two for every new one: there are never more than twice as many as are needed, each costs one write, and no turn
has to look at all of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

import numpy as np
import pyarrow as pa

from headwater.model.errors import FlowError
from headwater.model.keys import keyed_rows
from headwater.model.time import BEGINNING_OF_TIME, END_OF_TIME
from headwater.operators.base import Moment, Outputs, TimedLogic, TimedOperator
from headwater.operators.bloom import BloomLogic
from headwater.operators.columns.entry_names import EntryNames, NamesByGroup
from headwater.operators.columns.segments import Ints
from headwater.operators.state import OperatorState
from headwater.operators.windows.lateness import punctual

DistinctMethod = Literal["exact", "bloom"]

SEEN: Final = 1  # for ever
SEEN_UNTIL: Final = 3  # by group, each with the instant at which it is forgotten

_KNOWN: Final = b"\1"
_INSTANT: Final = np.dtype("<i8")
_LONG_AGO: Final = np.array(BEGINNING_OF_TIME, _INSTANT).tobytes()
_SWEPT_FOR_NEW: Final = 2
_SWEPT_MIN: Final = 256  # to begin a scan costs as much as to look at some dozen entries


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
    def state_settings(self) -> Mapping[str, object]:
        """What is remembered for ever has no time at which it is forgotten."""
        return {"time": self.time, "within_us": self.within_us}

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
    def state_settings(self) -> Mapping[str, object]:
        """A bloom filter is as large as it was made."""
        bloom = {"capacity": self.capacity, "error": self.error} if self.method == "bloom" else {}
        return {"time": self.time, "within_us": self.within_us, "method": self.method, **bloom}

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


def first_rows(batch: pa.RecordBatch, key: Sequence[str]) -> tuple[list[Any], Ints]:
    """Return the distinct keys of a batch, in any order, and the first row of each."""
    column = batch.column(key[0])
    if len(key) == 1 and column.type == pa.int64() and not column.null_count:  # needs no dictionary
        numbers, first = np.unique(column.to_numpy(), return_index=True)
        return numbers.tolist(), first
    keyed = keyed_rows(batch, key)
    first = np.empty(len(keyed.keys), np.int64)
    first[keyed.codes[::-1]] = np.arange(batch.num_rows - 1, -1, -1)  # backwards: what is written last stays
    return keyed.keys, first


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
        self._names = EntryNames(SEEN) if self._within_us is None else NamesByGroup(SEEN_UNTIL)
        self._sweep = _Sweep()

    def rows(self, batch: pa.RecordBatch, source: int, moment: Moment) -> Outputs:
        """Let the first row of every new key pass."""
        late, times = None, None
        if self._time is not None:
            batch, times, late = punctual(batch, self._time, moment.watermark_us)
        if not batch.num_rows:
            return (None, late)
        keys, first = first_rows(batch, self._key)
        names = self._names.of(keys)
        found = moment.state.read_many(names)
        if self._within_us is None:
            new = np.array([place for place, value in enumerate(found) if value is None], np.int64)
        else:
            new = np.flatnonzero(_instants([value or _LONG_AGO for value in found]) <= moment.watermark_us)
        if not len(new):
            return (None, late)
        first = first[new]
        places = new.tolist()
        fresh = [names[place] for place in places]
        if times is None or self._within_us is None:
            moment.state.put_many(fresh, [_KNOWN] * len(fresh))
        else:
            self._remember(moment.state, fresh, times[first], self._within_us)
            self._sweep.owe(sum(found[place] is None for place in places))
        passed = batch.take(pa.array(np.sort(first)))
        return (passed if self._columns is None else passed.select(list(self._columns)), late)

    def advance(self, moment: Moment) -> Outputs:
        """Sweep out some of the keys whose time has passed."""
        if self._within_us is not None:
            self._sweep.run(moment)
        return (None, None)

    def wake_us(self, moment: Moment) -> int | None:
        """The clock means nothing here."""
        return None

    def _remember(self, state: OperatorState, names: list[bytes], times: Ints, within_us: int) -> None:
        """Note these keys, and until when."""
        until = np.minimum(times, END_OF_TIME - 1 - within_us) + within_us
        joined, size = until.astype(_INSTANT).tobytes(), _INSTANT.itemsize
        state.put_many(names, [joined[at : at + size] for at in range(0, len(joined), size)])
        self._sweep.expect(int(until.max()))


class _Sweep:
    """Takes entries out whose time has passed. What it knows is a matter of pace: forgotten, nothing but time is lost.

    It owes a look at two entries for every new one. Once nothing is left that it has seen coming, it looks at all.
    """

    def __init__(self) -> None:
        self._owed = 0
        self._group = 0  # where it goes on
        self._stride = 1  # groups at a time
        self._last_us = BEGINNING_OF_TIME  # when the last of what it knows of is forgotten; the end of time: of nothing

    def owe(self, new: int) -> None:
        """Note that there are so many more entries than before."""
        self._owed += _SWEPT_FOR_NEW * new

    def expect(self, last_us: int) -> None:
        """Note that some entries were written, and when the last of them is forgotten."""
        self._last_us = last_us if self._last_us == END_OF_TIME else max(self._last_us, last_us)

    def run(self, moment: Moment) -> None:
        """Look at what is owed."""
        groups = moment.state.groups
        if moment.watermark_us >= self._last_us:
            last_us = int(np.max(self._swept(moment, groups), initial=BEGINNING_OF_TIME))
            self._owed, self._last_us = 0, last_us if last_us > moment.watermark_us else END_OF_TIME
        elif self._owed >= _SWEPT_MIN:
            self._go_on(moment, groups)

    def _go_on(self, moment: Moment, groups: range) -> None:
        start = self._group if self._group in groups else groups.start
        stop = min(start + self._stride, groups.stop)
        seen = max(1, len(self._swept(moment, range(start, stop))))
        whole_round = self._stride >= len(groups)
        self._stride = min(max(1, self._stride * self._owed // seen), len(groups))
        self._owed = 0 if whole_round else self._owed - seen
        self._group = stop

    def _swept(self, moment: Moment, groups: range) -> Ints:
        """Take out what has to be forgotten in these groups, and return until when each that was there is kept."""
        found = moment.state.gather(SEEN_UNTIL, groups.start, groups.stop)
        until = _instants([value for _, value in found])
        gone = np.flatnonzero(until <= moment.watermark_us).tolist()
        moment.state.delete_many([found[place][0] for place in gone])
        return until


def _instants(values: list[bytes]) -> Ints:
    return np.frombuffer(b"".join(values), _INSTANT)
