"""Windows over time: every story ends as plain Python says, wherever and however the operator runs."""

import datetime as dt
import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.model.errors import FlowError
from headwater.model.time import END_OF_TIME
from headwater.operators.functions import Form, WrongResult
from headwater.operators.windows.windows import (
    Aggregate,
    CountWindow,
    SessionWindow,
    TimeWindow,
    WindowAggregate,
    WindowApply,
    WindowTopK,
)
from tests.operators.timed_bench import TimedBench
from tests.operators.window_stories import (
    END,
    INPUT,
    SECOND,
    Came,
    Rose,
    Step,
    Windows,
    at,
    batch,
    counted,
    counting,
    expected_rows,
    micros,
    moved,
    only_shared,
    per_key,
    row,
    shown,
    stories,
    tell,
    told,
)

COUNT = (Aggregate("count", None, "n"), Aggregate("sum", "v", "total"))
WINDOWS = st.sampled_from(
    [
        TimeWindow("t", 10, 10),
        TimeWindow("t", 10, 10, 3),
        TimeWindow("t", 10, 5),
        TimeWindow("t", 10, 4),  # the slide does not divide the size
        TimeWindow("t", 7, 3, -1),
        TimeWindow("t", 5, 1),
    ]
)
MANY_PANES = TimeWindow("t", 70, 1)  # more than are read one by one
FIRINGS = st.sampled_from(
    [
        {},
        {},
        {"lateness_us": 4},
        {"lateness_us": 20},
        {"early_rows": 1},
        {"early_rows": 3},
        {"early_rows": 2, "lateness_us": 7},
    ]
)


def spans(rows: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """Return the windows of rows in seconds."""
    return [
        ((one["window"]["start"] - at(0)).total_seconds(), (one["window"]["end"] - at(0)).total_seconds())
        for one in rows
    ]


@given(WINDOWS | st.just(MANY_PANES), FIRINGS, stories())
@settings(max_examples=120, deadline=None)
def test_any_story_ends_as_plain_python_says(window: TimeWindow, firing: Any, story: list[Step]) -> None:
    """Out of order, late, without a time; with allowed lateness and early firing: the same rows in the same order."""
    oracle = Windows(window, firing.get("lateness_us", 0), firing.get("early_rows"))
    for step in story:
        oracle.tell(step)
    bench = told(counting(window, **firing), story)
    assert shown(bench.out["out"]) == shown(expected_rows(oracle.out, counted, bool(firing)))
    assert shown([one["v"] for one in bench.out["late"]]) == shown([one["v"] for one in oracle.late])
    assert only_shared(bench.kept)


@given(WINDOWS, FIRINGS, stories(), st.integers(0, 9), st.integers(0, 9), st.integers(0, 1023))
@settings(max_examples=80, deadline=None)
def test_keys_may_part_and_meet_again(
    window: TimeWindow, firing: Any, story: list[Step], cut: int, stay: int, low: int
) -> None:
    """Cut by key groups in the middle, told on in two places, and merged: every key has the rows it would have had."""
    operator = counting(window, **firing)
    whole, parted = told(operator, story), moved(operator, story, cut, cut + stay, low)
    assert per_key(parted.out["out"]) == per_key(whole.out["out"])
    assert per_key(parted.out["late"]) == per_key(whole.out["late"])
    assert only_shared(parted.kept)


@given(WINDOWS, stories(), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_how_rows_are_cut_into_batches_makes_no_difference(window: TimeWindow, story: list[Step], size: int) -> None:
    """What comes out follows from the rows between two watermarks, not from the batches in which they came."""
    pieces: list[Step] = []
    for step in story:
        if isinstance(step, Came):
            pieces += [Came(step.rows[first : first + size]) for first in range(0, len(step.rows), size)]
        else:
            pieces.append(step)
    operator = counting(window)
    assert shown(told(operator, pieces).out) == shown(told(operator, story).out)


@given(WINDOWS, FIRINGS, stories(), st.integers(0, 8))
@settings(max_examples=30, deadline=None)
def test_a_snapshot_restored_elsewhere_goes_on_as_the_original(
    window: TimeWindow, firing: Any, story: list[Step], when: int
) -> None:
    """State is all there is."""
    operator = counting(window, **firing)
    whole, bench = told(operator, story), TimedBench(operator)
    for number, step in enumerate(story):
        if number == when:
            before, bench = bench, TimedBench(operator, bench.kept)
            bench.watermark_us, bench.out = before.watermark_us, before.out
        tell(bench, step, number)
    assert shown(bench.out) == shown(whole.out)


def test_a_window_fires_when_the_watermark_reaches_its_end() -> None:
    """Not a microsecond before, and only once."""
    bench = TimedBench(
        WindowAggregate(key_columns=("k",), window=TimeWindow("t", 10 * SECOND, 10 * SECOND), aggregates=COUNT)
    )
    assert bench.rows(batch([row("a", 1, 2.0), row("a", 9.999999, 3.0), row("a", 10, 5.0)])) == []
    assert bench.watermark(10 * SECOND - 1) == []
    [fired] = bench.watermark(10 * SECOND)
    assert (fired["k"], fired["n"], fired["total"]) == ("a", 2, 5.0)
    assert fired["window"] == {"start": at(0), "end": at(10 * SECOND)}
    assert bench.watermark(19 * SECOND) == []
    assert [(one["n"], one["total"]) for one in bench.end()] == [(1, 5.0)]


def test_a_row_is_late_if_all_its_windows_are_over() -> None:
    """Sliding windows: late for one of its windows, a row still counts in the other."""
    bench = TimedBench(counting(TimeWindow("t", 10 * SECOND, 5 * SECOND)))
    bench.watermark(10 * SECOND)
    bench.rows(batch([row("a", 7, 1.0), row("a", 4.9, 2.0), row("a", None, 3.0)]))
    assert [one["v"] for one in bench.out["late"]] == [2.0, 3.0]
    assert [(span, one["vs"]) for one, span in zip(bench.end(), spans(bench.out["out"]), strict=True)] == [
        ((5, 15), [1.0])
    ]


def test_late_rows_leave_as_they_came() -> None:
    """All their columns, also those that the window does not look at."""
    bench = TimedBench(counting(TimeWindow("t", SECOND, SECOND)))
    bench.watermark(100 * SECOND)
    late = batch([row("a", 1)]).append_column("more", pa.array(["kept"]))
    assert bench.rows(late) == []
    assert bench.out["late"] == late.to_pylist()
    assert not bench.kept


def test_a_late_row_within_the_allowed_lateness_fires_its_window_again() -> None:
    """With all rows so far; once the lateness has passed too, it is late for good."""
    bench = TimedBench(counting(TimeWindow("t", 10 * SECOND, 10 * SECOND), lateness_us=5 * SECOND))
    bench.rows(batch([row("a", 1, 1.0), row("b", 2, 2.0)]))
    assert [(one["k"], one["firing"]) for one in bench.watermark(10 * SECOND)] == [("b", "on-time"), ("a", "on-time")]
    [again] = bench.rows(batch([row("a", 3, 3.0)]))
    assert (again["firing"], again["vs"]) == ("late", [1.0, 3.0])
    assert bench.watermark(15 * SECOND) == []
    assert only_shared(bench.kept)
    assert bench.rows(batch([row("a", 4, 4.0)])) == []
    assert [one["v"] for one in bench.out["late"]] == [4.0]


def test_early_firing_by_the_clock_tells_what_is_new_at_round_times() -> None:
    """Windows without new rows stay silent; the last word is said at the end."""
    bench = TimedBench(counting(TimeWindow("t", 10 * SECOND, 10 * SECOND), early_us=2 * SECOND))
    bench.now_us = 3 * SECOND
    bench.rows(batch([row("a", 1, 1.0), row("b", 1, 2.0)]))
    assert bench.operator.open().wake_us(bench._moment()) == 4 * SECOND
    assert bench.clock(4 * SECOND - 1) == []
    assert [(one["k"], one["firing"], one["n"]) for one in bench.clock(4 * SECOND)] == [
        ("b", "early", 1),
        ("a", "early", 1),
    ]
    bench.rows(batch([row("a", 2, 3.0)]))
    assert [(one["k"], one["n"]) for one in bench.clock(7 * SECOND)] == [("a", 2)]
    assert bench.operator.open().wake_us(bench._moment()) is None
    assert [(one["k"], one["firing"], one["n"]) for one in bench.end()] == [("b", "on-time", 1), ("a", "on-time", 2)]
    assert only_shared(bench.kept)


def test_windows_by_the_clock_take_rows_as_they_arrive() -> None:
    """A row is in the window of the moment, whatever its own time says; the operator asks to be woken at the end."""
    bench = TimedBench(counting(TimeWindow(None, 10 * SECOND, 10 * SECOND)))
    bench.now_us = 12 * SECOND
    bench.rows(batch([row("a", 99, 1.0), row("a", None, 2.0)]))
    assert bench.operator.open().wake_us(bench._moment()) == 20 * SECOND
    assert bench.clock(20 * SECOND - 1) == []
    [fired] = bench.clock(20 * SECOND)
    assert (spans([fired]), fired["vs"]) == ([(10, 20)], [1.0, 2.0])
    assert bench.operator.open().wake_us(bench._moment()) is None
    bench.rows(batch([row("a", 0, 3.0)]))
    assert [one["vs"] for one in bench.end()] == [[3.0]]
    assert only_shared(bench.kept)


def test_sliding_windows_by_the_clock_fire_one_after_the_other() -> None:
    """Also if the clock jumps, or steps back."""
    bench = TimedBench(counting(TimeWindow(None, 4 * SECOND, 2 * SECOND)))
    bench.now_us = SECOND
    bench.rows(batch([row("a", 0, 1.0)]))
    assert spans(bench.clock(2 * SECOND)) == [(-2, 2)]
    bench.now_us = 0  # someone set the clock
    bench.rows(batch([row("a", 0, 2.0)]))
    bench.now_us = 3 * SECOND
    bench.rows(batch([row("a", 0, 3.0)]))
    made = bench.clock(9 * SECOND)
    assert [(one["vs"], span) for one, span in zip(made, spans(made), strict=True)] == [
        ([1.0, 2.0, 3.0], (0, 4)),
        ([2.0, 3.0], (2, 6)),
    ]
    assert only_shared(bench.kept)


def test_windows_of_all_rows_together_have_no_key() -> None:
    """The empty key is a key like any other."""
    operator = WindowAggregate(key_columns=(), window=TimeWindow("t", 10 * SECOND, 10 * SECOND), aggregates=COUNT)
    bench = TimedBench(operator)
    bench.rows(batch([row("a", 1, 1.0), row("b", 2, 2.0)]))
    assert [(one["n"], one["total"], "k" in one) for one in bench.end()] == [(2, 3.0, False)]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int32(), [3, None, -1]),
        (pa.float64(), [1.0, float("nan"), None, 0.5]),
        (pa.decimal128(10, 2), [1, 2, None]),
        (pa.date32(), [at(0).date(), at(9 * 86_400 * SECOND).date()]),
        (pa.timestamp("ms", "Europe/Zurich"), [at(0), at(86_400 * SECOND), None]),
        (pa.bool_(), [True, False, None]),
        (pa.binary(), [b"\xff", b"", None]),
        (pa.dictionary(pa.int32(), pa.string()), ["x", "y", None]),
    ],
)
def test_keys_of_any_type_come_back_as_they_were(kind: pa.DataType, values: list[Any]) -> None:
    """Alone and in company: keys are bytes in between."""
    rows = pa.record_batch(
        {
            "k": pa.array(values, type=kind)
            if not pa.types.is_dictionary(kind)
            else pa.array(values).dictionary_encode(),
            "other": pa.array(["z"] * len(values)),
            "t": pa.array([at(0)] * len(values), pa.timestamp("us", "UTC")),
        }
    )
    for columns in (("k",), ("k", "other")):
        operator = WindowAggregate(
            key_columns=columns, window=TimeWindow("t", 5, 5), aggregates=(Aggregate("count", None, "n"),)
        )
        bench = TimedBench(operator)
        bench.rows(rows)
        found = [shown(one["k"]) for one in bench.end()]
        assert sorted(found) == sorted(shown(value) for value in rows.column("k").to_pylist())
        schema = operator.output_schema([rows.schema])
        assert schema is not None
        assert schema.names == ["window", *columns, "n"]


@pytest.mark.parametrize("year", [1, 1582, 1969, 9999])
def test_windows_reach_as_far_as_dates_do(year: int) -> None:
    """Before 1970 as after, to the ends of the calendar."""
    bench = TimedBench(counting(TimeWindow("t", 3 * SECOND, SECOND)))
    instant = at(0).replace(year=year, month=6)
    bench.rows(batch([{"k": "a", "t": instant, "v": 1.0}]))
    starts = [one["window"]["start"] for one in bench.end()]
    assert [(start - instant).total_seconds() for start in starts] == [-2, -1, 0]


def test_a_time_beyond_reckoning_is_refused_in_a_sentence() -> None:
    """Rather than wrapped around."""
    times = pa.array([1 << 62], pa.int64()).view(pa.timestamp("us", "UTC"))
    bench = TimedBench(counting(TimeWindow("t", SECOND, SECOND)))
    with pytest.raises(WrongResult, match="70,000 years"):
        bench.rows(pa.record_batch([pa.array(["a"]), times, pa.array([1.0])], names=["k", "t", "v"]))
    with pytest.raises(WrongResult, match="column 't' is a int64 and cannot be the time of a window"):
        bench.rows([{"k": "a", "t": 5, "v": 1.0}])


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Zurich", "America/New_York"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_windows_keep_the_zone_of_their_time_and_are_in_microseconds(zone: str | None, unit: str) -> None:
    """The hour that is there twice in autumn is two hours of windows."""
    operator = counting(TimeWindow("t", 3_600 * SECOND, 3_600 * SECOND))
    times = (
        pa.array([1_698_537_600, 1_698_541_200], pa.int64())
        .view(pa.timestamp("s", zone))
        .cast(pa.timestamp(unit, zone))
    )
    rows = pa.record_batch([pa.array(["a", "a"]), times, pa.array([1.0, 2.0])], names=["k", "t", "v"])
    bench = TimedBench(operator)
    bench.rows(rows)
    assert [one["vs"] for one in bench.end()] == [[1.0], [2.0]]
    schema = operator.output_schema([rows.schema])
    assert schema is not None
    assert schema.field("window").type.field("start").type == pa.timestamp("us", zone)


def test_types_may_become_wider_as_rows_come() -> None:
    """Nulls turn into whole numbers, whole numbers into fractions; what was kept is read as if it had been so."""
    aggregates = tuple(Aggregate(name, "v", name) for name in ("count", "sum", "avg", "min", "max", "last", "var_pop"))
    bench = TimedBench(WindowAggregate(key_columns=("k",), window=TimeWindow("t", 10, 5), aggregates=aggregates))
    time = pa.array([at(1)], pa.timestamp("us", "UTC"))
    for values in (pa.nulls(1), pa.array([4], pa.int32()), pa.array([1.5]), pa.array([None], pa.int64())):
        bench.rows(pa.record_batch([pa.array(["a"]), time, values], names=["k", "t", "v"]))
    [first, _] = bench.end()
    assert {name: first[name] for name in ("count", "sum", "avg", "min", "max", "last")} == {
        "count": 2,
        "sum": 5.5,
        "avg": 2.75,
        "min": 1.5,
        "max": 4.0,
        "last": None,
    }
    assert first["var_pop"] == pytest.approx(1.5625)


def test_a_type_that_becomes_another_is_refused() -> None:
    """With the column and what to do."""
    bench = TimedBench(counting(TimeWindow("t", 10, 5)))
    bench.rows(batch([row("a", 0)]))
    with pytest.raises(WrongResult, match=r"column 'v' was double before .*; declare a schema"):
        bench.rows([{"k": "a", "t": at(0), "v": "text"}])


def test_state_of_different_ages_can_come_together() -> None:
    """One instance has seen fractions, the other whole numbers only: all cells are read for what they are."""
    operator = WindowAggregate(key_columns=("k",), window=TimeWindow("t", 10, 10), aggregates=COUNT)
    whole = TimedBench(operator)
    whole.rows([{"k": key, "t": at(1), "v": 1} for key in "abcdefgh"])
    other = whole.cut(range(512, 1024))
    groups = {one["k"] for one in TimedBench(operator, other.kept).end()}
    key = next(iter(groups))
    other.rows([{"k": key, "t": at(1), "v": 0.5}])
    whole.merge(other)
    assert {one["k"]: one["total"] for one in whole.end()} == {one: 1.5 if one == key else 1.0 for one in "abcdefgh"}


def test_a_window_apply_sees_all_rows_of_its_window_as_they_arrived() -> None:
    """In each form; the columns of window and key are added to what it returns."""
    rows = batch([row("a", 3, 1.0), row("b", 1, 5.0), row("a", 9, 2.0), row("a", 11, 4.0), row("a", 1, 3.0)])
    forms = {
        Form.ARROW: lambda window: {"seen": [window.column("v").to_pylist()], "names": [window.schema.names]},
        Form.PANDAS: lambda window: [{"seen": window["v"].tolist(), "names": list(window.columns)}],
        Form.ROWS: lambda window: [{"seen": [one["v"] for one in window], "names": list(window[0])}],
    }
    for form, function in forms.items():
        operator = WindowApply(
            key_columns=("k",), window=TimeWindow("t", 10 * SECOND, 5 * SECOND), function=function, form=form
        )
        bench = TimedBench(operator)
        bench.rows(rows.slice(0, 2))
        bench.rows(rows.slice(2))
        made = bench.end()
        assert list(made[0]) == ["window", "k", "seen", "names"]
        assert made[0]["names"] == ["k", "t", "v"]
        seen = [(one["k"], span, one["seen"]) for one, span in zip(made, spans(made), strict=True)]
        assert seen == [
            ("b", (-5, 5), [5.0]),
            ("a", (-5, 5), [1.0, 3.0]),
            ("b", (0, 10), [5.0]),
            ("a", (0, 10), [1.0, 2.0, 3.0]),
            ("a", (5, 15), [2.0, 4.0]),
            ("a", (10, 20), [4.0]),
        ]
        assert only_shared(bench.kept)


def test_a_window_apply_may_return_any_number_of_rows() -> None:
    """None of a window is fine; a column that the window adds itself is refused."""
    operator = WindowApply(
        key_columns=("k",),
        window=TimeWindow("t", SECOND, SECOND),
        function=lambda window: window.select(["v"]).filter(pa.compute.field("v") > 1),
        form=Form.ARROW,
        schema=pa.schema([pa.field("v", pa.float64())]),
    )
    bench = TimedBench(operator)
    bench.rows(batch([row("a", 0, 1.0), row("b", 0, 2.0), row("b", 0.5, 3.0)]))
    assert [(one["k"], one["v"]) for one in bench.end()] == [("b", 2.0), ("b", 3.0)]
    schema = operator.output_schema([INPUT])
    assert schema is not None
    assert schema.names == ["window", "k", "v"]
    echoing = TimedBench(
        WindowApply(key_columns=("k",), window=TimeWindow("t", 1, 1), function=lambda window: window, form=Form.ARROW)
    )
    echoing.rows(batch([row("a", 0)]))
    with pytest.raises(WrongResult, match="has column 'k', which a window adds itself"):
        echoing.end()


FIRED_ELSEWHERE = [  # the first row has no time, so the instance whose keys stay has seen none when windows fire
    Came(({"k": "a", "t": None, "v": None},)),
    Came(({"k": "a", "t": dt.datetime(1970, 1, 1, tzinfo=dt.UTC) - dt.timedelta(microseconds=3), "v": None},)),
    Rose(-2),
    Rose(-2),
    Rose(END_OF_TIME),
]


@given(WINDOWS, stories(), st.integers(0, 9), st.integers(0, 1023))
@example(TimeWindow("t", 10, 4), FIRED_ELSEWHERE, 1, 1)
@settings(max_examples=40, deadline=None)
def test_kept_rows_move_with_their_keys(window: TimeWindow, story: list[Step], cut: int, low: int) -> None:
    """Whole rows and rankings, cut in the middle: the same rows, and nothing left behind."""
    apply = WindowApply(
        key_columns=("k",),
        window=window,
        function=lambda rows: [{"vs": [one["v"] for one in rows]}],
        form=Form.ROWS,
        lateness_us=3,
    )
    top = WindowTopK(key_columns=("k",), window=window, k=2, by="v")
    for operator in (apply, top):
        whole, parted = told(operator, story), moved(operator, story, cut, cut + 2, low)
        assert per_key(parted.out["out"]) == per_key(whole.out["out"])
        assert only_shared(whole.kept)
        assert only_shared(parted.kept)


@given(WINDOWS, stories(), st.integers(1, 3), st.booleans())
@settings(max_examples=40, deadline=None)
def test_top_k_of_a_window_is_what_sorting_all_of_it_gives(
    window: TimeWindow, story: list[Step], k: int, largest: bool
) -> None:
    """Largest or smallest first, NaN above all numbers, nulls last, and of equals those that came first."""
    oracle = Windows(window)
    for step in story:
        oracle.tell(step)
    expected = [
        (start, key, rank, shown(one["v"]))
        for start, _, key, _, rows in oracle.out
        for rank, one in enumerate(sorted(rows, key=lambda one: _merit(one["v"], largest))[:k], start=1)
    ]
    bench = told(WindowTopK(key_columns=("k",), window=window, k=k, by="v", largest=largest), story)
    found = [(micros(one["window"]["start"]), one["k"], one["rank"], shown(one["v"])) for one in bench.out["out"]]
    assert found == expected


def _merit(value: float | None, largest: bool) -> tuple[bool, float]:
    if value is None:
        return True, 0.0
    number = float("inf") if value != value else value
    return False, -number if largest else number


def test_rows_are_kept_whatever_their_columns_are() -> None:
    """Nested, and dictionaries, which come out as what they stand for; what has no order cannot be ranked by."""
    rows = pa.record_batch(
        {
            "k": pa.array(["a", "b", "a"]).dictionary_encode(),
            "t": pa.array([at(0), at(1), at(2)], pa.timestamp("ns", "UTC")),
            "v": pa.array([{"x": [1]}, None, {"x": []}]),
            "n": pa.array([1, 2, 3]).dictionary_encode(),
        }
    )
    operator = WindowTopK(key_columns=("k",), window=TimeWindow("t", 9, 3), k=5, by="n")
    bench = TimedBench(operator)
    bench.rows(rows)
    bench.rows(rows)
    found = [(one["k"], one["v"], one["n"], one["rank"]) for one in bench.end() if one["window"]["start"] == at(0)]
    whole, empty = {"x": [1]}, {"x": list[int]()}
    assert found == [("b", None, 2, 1), ("b", None, 2, 2)] + [
        ("a", value, n, rank) for rank, (value, n) in enumerate([(empty, 3), (empty, 3), (whole, 1), (whole, 1)], 1)
    ]
    schema = operator.output_schema([rows.schema])
    assert schema is not None
    assert (schema.field("k").type, schema.field("t").type) == (pa.string(), pa.timestamp("ns", "UTC"))
    with pytest.raises(WrongResult, match="rows cannot be ranked by column 'v', a struct"):
        TimedBench(WindowTopK(key_columns=("k",), window=TimeWindow("t", 9, 3), k=5, by="v")).rows(rows)


def test_a_window_travels() -> None:
    """It is plain data until it is opened."""
    operator = counting(TimeWindow("t", 10, 5), lateness_us=3)
    assert pickle.loads(pickle.dumps(operator)) == operator


def test_what_cannot_be_a_window_is_refused_when_it_is_built() -> None:
    """In one sentence."""
    tumbling = TimeWindow("t", 10, 10)
    with pytest.raises(FlowError, match="neither early nor late"):
        counting(CountWindow(3, 3), early_rows=1)
    with pytest.raises(FlowError, match="no row is late by the clock"):
        counting(TimeWindow(None, 10, 10), lateness_us=5)
    with pytest.raises(FlowError, match="no row is late by the clock"):
        counting(SessionWindow(None, 10), lateness_us=5)
    with pytest.raises(FlowError, match="less than zero"):
        counting(tumbling, lateness_us=-1)
    with pytest.raises(FlowError, match="above zero"):
        counting(tumbling, early_rows=0)
    with pytest.raises(FlowError, match="two columns named 'k'"):
        counting(tumbling, aggregates=(Aggregate("count", None, "k"),))
    with pytest.raises(FlowError, match="at least one row"):
        WindowTopK(key_columns=("k",), window=tumbling, k=0, by="v")
    top = WindowTopK(key_columns=("k",), window=tumbling, k=1, by="v")
    with pytest.raises(FlowError, match="rows have a column 'rank' already"):
        top.output_schema([INPUT.append(pa.field("rank", pa.int64()))])
    with pytest.raises(FlowError, match="rows have a column 'window' already"):
        top.output_schema([INPUT.append(pa.field("window", pa.int64()))])
    with pytest.raises(FlowError, match="sum cannot be computed over column 'k', a string"):
        counting(tumbling, aggregates=(Aggregate("sum", "k", "n"),)).output_schema([INPUT])


def test_an_operator_says_what_it_needs_and_makes() -> None:
    """Its columns, whether time has to be told, and how far its rows lag behind."""
    operator = counting(TimeWindow("t", 10, 5), lateness_us=3)
    assert (operator.columns_needed, operator.key, operator.ports) == (("k", "t", "v"), ("k",), ("out", "late"))
    assert (operator.needs_watermark, operator.hold_us) == (True, 3)
    assert not counting(TimeWindow(None, 10, 5)).needs_watermark
    assert operator.output_schema([None]) is None
    assert operator.port_schema("late", [INPUT]) == INPUT
    top = WindowTopK(key_columns=("k",), window=TimeWindow("t", 10, 5), k=1, by="v")
    schema = top.output_schema([INPUT])
    assert schema is not None
    assert (schema.names, top.hold_us) == (["window", "k", "t", "v", "rank"], 10)


@given(stories())
@settings(max_examples=30, deadline=None)
def test_the_columns_that_come_out_are_those_that_were_announced(story: list[Step]) -> None:
    """So that what follows can be checked before anything runs."""
    operator = counting(TimeWindow("t", 10, 5), lateness_us=3)
    logic, bench = operator.open(), TimedBench(operator)
    for number, step in enumerate(story):
        bench.now_us = number
        if isinstance(step, Came):
            outputs = logic.rows(batch(step.rows), 0, moment := bench._moment())
        else:
            bench.watermark_us = max(bench.watermark_us, step.to_us)
            outputs = logic.advance(moment := bench._moment())
        bench._commit(moment, outputs)
        if outputs[0] is not None:
            assert outputs[0].schema == operator.output_schema([INPUT])


def test_rose_before_any_row_makes_no_windows() -> None:
    """Nothing comes out, and nothing is kept of any key; only how far time has come."""
    bench = TimedBench(counting(TimeWindow("t", 10, 5)))
    tell(bench, Rose(100), 1)
    tell(bench, Rose(END), 2)
    assert only_shared(bench.kept)
    assert not any(bench.out.values())
