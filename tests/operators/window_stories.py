"""Stories for windows: rows and watermarks in any order, told to an operator on the bench and to plain Python.

The plain Python keeps every row and looks at all of them each time, so it has nothing in common with what it judges.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
from hypothesis import strategies as st

from headwater.model.entries import EVERY_GROUP, group_of_entry, key_suffix
from headwater.model.keys import KEY_GROUPS, encode_key, group_of
from headwater.operators.windows.window_specs import TimeWindow, WindowSpec
from headwater.operators.windows.windows import Aggregate, WindowAggregate, WindowOperator
from tests.operators.timed_bench import TimedBench

SECOND: Final = 1_000_000
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
INPUT: Final = pa.schema(
    [pa.field("k", pa.string()), pa.field("t", pa.timestamp("us", "UTC")), pa.field("v", pa.float64())]
)
END: Final = (1 << 63) - 1

Row = dict[str, Any]
Fired = tuple[int, int, Any, str, list[Row]]  # start, end, key, why, its rows in order of arrival


def at(time_us: int) -> datetime:
    """Return an instant as rows have it."""
    return EPOCH + timedelta(microseconds=time_us)


def micros(instant: datetime) -> int:
    """Return an instant in microseconds."""
    return (instant - EPOCH) // timedelta(microseconds=1)


def row(key: Any, seconds: float | None, value: Any = 0.0) -> Row:
    """Return a row of a key at a time in seconds."""
    return {"k": key, "t": None if seconds is None else at(round(seconds * SECOND)), "v": value}


def batch(rows: Sequence[Row], schema: pa.Schema = INPUT) -> pa.RecordBatch:
    """Return rows as they arrive."""
    return pa.RecordBatch.from_pylist(list(rows), schema=schema)


@dataclass(frozen=True)
class Came:
    """Rows came."""

    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Rose:
    """The watermark rose."""

    to_us: int


Step = Came | Rose
KEYS: Final = ["a", "b", "ключ", "", None, "x" * 500]  # the last is too long for an entry's name
VALUES: Final = st.sampled_from([None, math.nan, -1.0, 0.0, 1.0, 2.0, 3.5, -7.0, 1e6])


def rows_of(keys: Sequence[Any] = KEYS, low_us: int = -6, high_us: int = 30, unit_us: int = 1) -> Any:
    """Return a strategy for rows, out of order, some of them without a time."""
    times = st.one_of(st.none(), st.integers(low_us, high_us), st.integers(low_us, high_us))
    return st.builds(
        lambda key, time, value: {"k": key, "t": None if time is None else at(time * unit_us), "v": value},
        st.sampled_from(keys),
        times,
        VALUES,
    )


@st.composite
def stories(draw: Any, unit_us: int = 1, keys: Sequence[Any] = KEYS) -> list[Step]:
    """Return a strategy for stories that end."""
    steps: list[Step] = []
    reached = -8
    for _ in range(draw(st.integers(1, 8))):
        if draw(st.booleans()) and steps:
            reached += draw(st.integers(0, 12))
            steps.append(Rose(reached * unit_us))
        else:
            came = draw(st.lists(rows_of(keys, unit_us=unit_us), min_size=1, max_size=8))
            steps.append(Came(tuple(came)))
    return [*steps, Rose(END)]


def place(key: Any) -> bytes:
    """Return where a key stands among others of the same window."""
    return key_suffix(encode_key(key))


@dataclass
class Windows:
    """What windows of a fixed size do with a story, in plain Python."""

    window: TimeWindow
    lateness_us: int = 0
    early_rows: int | None = None
    reached_us: int = -(1 << 63)
    arrived: list[Row] = field(default_factory=list)
    fired_ends: set[tuple[int, int, bytes]] = field(default_factory=set)
    fresh: dict[tuple[int, int, bytes], int] = field(default_factory=lambda: defaultdict(int))
    out: list[Fired] = field(default_factory=list)
    late: list[Row] = field(default_factory=list)

    def tell(self, step: Step) -> None:
        """Let one thing happen."""
        if isinstance(step, Came):
            self._come(step.rows)
        else:
            self.reached_us = step.to_us
            due = [one for one in self._windows(self.arrived) if one[1] <= step.to_us]
            for one in self._in_order(due):
                if (name := self._name(one)) not in self.fired_ends:
                    self.fired_ends.add(name)
                    self.out.append((*one[:3], "on-time", one[3]))

    def _come(self, rows: Sequence[Row]) -> None:
        timely = [one for one in rows if one["t"] is not None and self._open_windows(micros(one["t"]))]
        self.late += [one for one in rows if not any(one is kept for kept in timely)]
        self.arrived += [dict(one, number=len(self.arrived) + nth) for nth, one in enumerate(timely)]
        before = len(self.arrived) - len(timely)
        touched = [
            one
            for one in self._windows(self.arrived)
            if self._is_open(one[1]) and any(kept["number"] >= before for kept in one[3])
        ]
        for one in self._in_order(touched):
            self._touch(one, sum(kept["number"] >= before for kept in one[3]))

    def _touch(self, one: tuple[int, int, Any, list[Row]], new: int) -> None:
        name = self._name(one)
        self.fresh[name] += new
        if one[1] <= self.reached_us:
            why = "late"
            self.fired_ends.add(name)
        elif self.early_rows is not None and self.fresh[name] >= self.early_rows:
            why = "early"
        else:
            return
        self.fresh[name] = 0
        self.out.append((*one[:3], why, one[3]))

    def _is_open(self, end_us: int) -> bool:
        return end_us + self.lateness_us > self.reached_us

    def _open_windows(self, time_us: int) -> list[int]:
        return [start for start in self._starts(time_us) if self._is_open(start + self._size)]

    @property
    def _size(self) -> int:
        return self.window.size_us

    def _starts(self, time_us: int) -> list[int]:
        last = time_us - (time_us - self.window.offset_us) % self.window.slide_us
        starts = range(last, last - self.window.size_us, -self.window.slide_us)
        return [start for start in starts if start + self.window.size_us > time_us]

    def _windows(self, rows: Iterable[Row]) -> list[tuple[int, int, Any, list[Row]]]:
        """Return all windows with the rows that were in time for them."""
        held: dict[tuple[int, bytes], list[Row]] = defaultdict(list)
        for one in rows:
            for start in one.setdefault("starts", self._open_windows(micros(one["t"]))):
                held[start, place(one["k"])].append(one)
        return [(start, start + self._size, kept[0]["k"], kept) for (start, _), kept in held.items()]

    @staticmethod
    def _in_order(windows: list[tuple[int, int, Any, list[Row]]]) -> list[tuple[int, int, Any, list[Row]]]:
        return sorted(windows, key=lambda one: (one[1], one[0], place(one[2])))

    @staticmethod
    def _name(one: tuple[int, int, Any, list[Row]]) -> tuple[int, int, bytes]:
        return one[0], one[1], place(one[2])


@dataclass
class Stretch:
    """A session of a key, in plain Python."""

    key: Any
    start_us: int
    end_us: int
    rows: list[Row]
    has_fired: bool = False
    fresh: int = 0
    is_touched: bool = False


@dataclass
class Sessions:
    """What session windows do with a story, in plain Python: every row is a session, and those that meet are one."""

    gap_us: int
    lateness_us: int = 0
    early_rows: int | None = None
    reached_us: int = -(1 << 63)
    arrived: int = 0
    open: list[Stretch] = field(default_factory=list)
    out: list[Fired] = field(default_factory=list)
    late: list[Row] = field(default_factory=list)

    def tell(self, step: Step) -> None:
        """Let one thing happen."""
        if isinstance(step, Came):
            for came in step.rows:
                self._come(came)
            self._fire_touched()
            return
        self.reached_us = step.to_us
        for one in self._in_order(one for one in self.open if one.end_us <= step.to_us and not one.has_fired):
            self._fire(one, "on-time")
            one.has_fired = True
        self.open = [one for one in self.open if one.end_us + self.lateness_us > step.to_us]

    def _come(self, one: Row) -> None:
        if one["t"] is None or micros(one["t"]) + self.gap_us + self.lateness_us <= self.reached_us:
            self.late.append(one)
            return
        self.arrived += 1
        new = Stretch(one["k"], micros(one["t"]), micros(one["t"]) + self.gap_us, [dict(one, number=self.arrived)])
        new.fresh, new.is_touched = 1, True
        for other in [other for other in self.open if other.key == new.key]:
            if other.start_us <= new.end_us and new.start_us <= other.end_us:
                new = self._joined(other, new)
                self.open.remove(other)
        self.open.append(new)

    @staticmethod
    def _joined(one: Stretch, other: Stretch) -> Stretch:
        rows = sorted(one.rows + other.rows, key=lambda kept: kept["number"])
        start_us, end_us = min(one.start_us, other.start_us), max(one.end_us, other.end_us)
        return Stretch(one.key, start_us, end_us, rows, False, one.fresh + other.fresh, True)

    def _fire_touched(self) -> None:
        for one in self._in_order(one for one in self.open if one.is_touched):
            one.is_touched = False
            if one.end_us <= self.reached_us:
                self._fire(one, "late")
                one.has_fired = True
            elif self.early_rows is not None and one.fresh >= self.early_rows:
                self._fire(one, "early")

    def _fire(self, one: Stretch, why: str) -> None:
        one.fresh = 0
        self.out.append((one.start_us, one.end_us, one.key, why, list(one.rows)))

    @staticmethod
    def _in_order(sessions: Iterable[Stretch]) -> list[Stretch]:
        return sorted(sessions, key=lambda one: (one.end_us, one.start_us, place(one.key)))


def told(operator: WindowOperator, story: Sequence[Step]) -> TimedBench:
    """Tell a story to an operator on the bench."""
    bench = TimedBench(operator)
    for number, step in enumerate(story):
        tell(bench, step, number)
    return bench


def tell(bench: TimedBench, step: Step, number: int) -> None:
    """Let one thing happen to the operator; the clock goes on meanwhile."""
    bench.now_us = 1_000 * number
    if isinstance(step, Came):
        bench.rows(batch(step.rows))
    else:
        bench.watermark(max(step.to_us, bench.watermark_us))


def moved(operator: WindowOperator, story: Sequence[Step], cut: int, join: int, low: int) -> TimedBench:
    """Tell a story to an operator whose keys part at one step, on to another instance, and meet again at a later."""
    here, there = TimedBench(operator), None
    groups = range(low, min(KEY_GROUPS, low + KEY_GROUPS // 2))
    for number, step in enumerate(story):
        if number == cut:
            there = here.cut(groups)
            there.out = here.out
        if number == join and there is not None:
            here.merge(there)
            there = None
        for bench, part in _shares(step, here, there):
            tell(bench, part, number)
    assert there is None or only_shared(there.kept)
    return here


def _shares(step: Step, here: TimedBench, there: TimedBench | None) -> list[tuple[TimedBench, Step]]:
    """Return what either instance gets to know of a step."""
    if there is None:
        return [(here, step)]
    if isinstance(step, Rose):
        return [(here, step), (there, step)]
    mine = tuple(one for one in step.rows if group_of(encode_key(one["k"])) not in there.groups)
    others = tuple(one for one in step.rows if group_of(encode_key(one["k"])) in there.groups)
    return [(bench, Came(rows)) for bench, rows in ((here, mine), (there, others)) if rows]


def only_shared(kept: dict[bytes, bytes]) -> bool:
    """Whether nothing is left but what belongs to all keys together."""
    return all(group_of_entry(entry) == EVERY_GROUP for entry in kept)


def per_key(rows: Iterable[Row]) -> dict[str, list[str]]:
    """Return the rows of each key in order, in a form in which NaN equals NaN."""
    found: dict[str, list[str]] = defaultdict(list)
    for one in rows:
        found[repr(one["k"])].append(shown(one))
    return dict(found)


def shown(value: Any) -> str:
    """Return a value as text in which NaN equals NaN, and an instant itself in any time zone."""
    return repr(_plain(value))


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {name: _plain(one) for name, one in value.items()}
        case list() | tuple():
            return [_plain(one) for one in value]
        case datetime() if value.tzinfo is not None:
            return micros(value)
    return value


def counting(window: WindowSpec, **how: Any) -> WindowAggregate:
    """Return windows that collect the values of their rows and count them."""
    aggregates = how.pop("aggregates", (Aggregate("count", None, "n"), Aggregate("collect_list", "v", "vs")))
    return WindowAggregate(key_columns=("k",), window=window, aggregates=aggregates, **how)


def expected_rows(fired: Iterable[Fired], values: Callable[[list[Row]], Row], says_why: bool) -> list[Row]:
    """Return the rows that firings should make, given what is made of the rows of a window."""
    return [
        {
            "window": {"start": at(start), "end": at(end)},
            "k": key,
            **values(rows),
            **({"firing": why} if says_why else {}),
        }
        for start, end, key, why, rows in fired
    ]


def counted(rows: list[Row]) -> Row:
    """Return what `counting` makes of the rows of a window."""
    return {"n": len(rows), "vs": [one["v"] for one in rows if one["v"] is not None]}
