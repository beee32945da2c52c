"""Joins of two streams: against all pairs by brute force, and case by case where something is easily got wrong."""

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.model.errors import FlowError
from headwater.model.time import BEGINNING_OF_TIME, END_OF_TIME
from headwater.operators.functions import WrongResult
from headwater.operators.joins.join_chunks import CHUNKS, HEAD_BYTES_MAX
from headwater.operators.joins.joins import IntervalJoin, WindowJoin
from headwater.operators.windows.window_specs import TimeWindow
from tests.operators.join_oracle import (
    Oracle,
    Step,
    at,
    batch_of,
    comparable,
    is_empty,
    play,
    play_in_two,
    recut,
    schemas_of,
)
from tests.operators.timed_bench import Row, TimedBench
from tests.operators.turns import TakingTurns

S = 1_000_000
NAN = float("nan")

Join = WindowJoin | IntervalJoin


def window_join(
    how: Any = "inner", size: int = 10, slide: int | None = None, offset: int = 0, **more: Any
) -> WindowJoin:
    """Return a join within windows of so many seconds."""
    window = TimeWindow("t", size * S, (slide or size) * S, offset * S)
    settings = {"left_key": ("k",), "right_key": ("k",), "left_time": "t", "right_time": "t"} | more
    return WindowJoin(how=how, window=window, **settings)


def interval_join(how: Any = "inner", lower: int = -5, upper: int = 5, **more: Any) -> IntervalJoin:
    """Return a join within so many seconds."""
    settings = {"left_key": ("k",), "right_key": ("k",), "left_time": "t", "right_time": "t"} | more
    return IntervalJoin(how=how, lower_us=lower * S, upper_us=upper * S, **settings)


def left(key: Any, second: float, x: int = 0) -> Row:
    """Return a left row."""
    return {"k": key, "t": at(round(second * S)), "x": x}


def right(key: Any, second: float, y: int = 0) -> Row:
    """Return a right row."""
    return {"k": key, "t": at(round(second * S)), "y": y}


def pairs(rows: Sequence[Row]) -> list[tuple[Any, Any]]:
    """Return which left and right rows came out together."""
    return [(row.get("x"), row.get("y")) for row in rows]


KEYS = st.sampled_from(["a", "b", "ü", "z" * 500, None])
TIMES = st.one_of(st.integers(0, 60).map(lambda second: at(second * S)), st.none())


def rows_of(value: str) -> st.SearchStrategy[list[Row]]:
    return st.lists(st.fixed_dictionaries({"k": KEYS, "t": TIMES, value: st.integers(0, 3)}), max_size=8)


def rising(steps: Sequence[Step]) -> list[Step]:
    """Make the watermarks among the steps rise."""
    highest = BEGINNING_OF_TIME
    made: list[Step] = []
    for step in steps:
        if isinstance(step, int):
            highest = step = max(highest, step)
        made.append(step)
    return made


STEP = st.one_of(
    rows_of("x").map(lambda rows: (0, rows)),
    rows_of("y").map(lambda rows: (1, rows)),
    st.integers(0, 60).map(lambda second: second * S),
)
STEPS = st.lists(STEP, max_size=12).map(rising)
HOW = st.sampled_from(["inner", "left", "full"])
JOINS = st.one_of(
    st.builds(
        lambda how, window: window_join(how, *window, schemas=schemas_of()),
        HOW,
        st.sampled_from([(10, 10, 0), (10, 5, 0), (10, 3, 2), (7, 7, 3)]),
    ),
    st.builds(
        lambda how, interval: interval_join(how, *interval, schemas=schemas_of()),
        HOW,
        st.sampled_from([(-5, 5), (0, 0), (0, 10), (3, 8), (-8, -3), (-10, 0)]),
    ),
)


@settings(max_examples=150, deadline=None)
@given(JOINS, STEPS)
def test_a_join_yields_what_brute_force_finds(join: Join, steps: list[Step]) -> None:
    """All pairs, all rows without partners, and the late ones: in any order of arrival, with null keys and times."""
    steps = [*steps, END_OF_TIME]
    oracle, bench = Oracle(join), TimedBench(join)
    oracle.run(steps)
    play(bench, steps)
    assert Counter(comparable(bench.out["out"])) == Counter(comparable(oracle.out))
    assert comparable(bench.out["late"]) == comparable(oracle.late[0])
    assert comparable(bench.out["late_right"]) == comparable(oracle.late[1])
    assert is_empty(bench), "rows are kept though none can be needed"


@settings(max_examples=40, deadline=None)
@given(JOINS, STEPS, st.integers(1, 5))
def test_how_rows_are_batched_does_not_matter(join: Join, steps: list[Step], size: int) -> None:
    """The same rows in smaller batches come out the same, key by key in the same order."""
    whole, cut = TimedBench(join), TimedBench(join)
    play(whole, [*steps, END_OF_TIME])
    play(cut, [*recut(steps, size), END_OF_TIME])
    for key in ("a", "b", "ü", "z" * 500, None):
        of_key = [[row for row in bench.out["out"] if row["k"] == key] for bench in (whole, cut)]
        assert comparable(of_key[0]) == comparable(of_key[1])


@settings(max_examples=40, deadline=None)
@given(JOINS, STEPS)
def test_it_does_not_matter_which_worker_takes_a_turn(join: Join, steps: list[Step]) -> None:
    """Two workers in turn yield what one without any memory yields."""
    fresh, turns = TimedBench(join), TimedBench(TakingTurns(operator=join))
    for bench in (fresh, turns):
        play(bench, [*steps, END_OF_TIME])
    assert comparable(turns.out["out"]) == comparable(fresh.out["out"])
    assert turns.kept == fresh.kept


@settings(max_examples=40, deadline=None)
@given(JOINS, STEPS, st.integers(0, 12))
def test_a_restored_snapshot_goes_on_as_if_nothing_had_happened(join: Join, steps: list[Step], where: int) -> None:
    """State that was copied in the middle of it all, and restored elsewhere, yields the same rows from there on."""
    first = TimedBench(join)
    play(first, steps[:where])
    second = TimedBench(join, first.kept)
    second.watermark_us = first.watermark_us
    before = len(first.out["out"])
    for bench in (first, second):
        play(bench, [*steps[where:], END_OF_TIME])
    assert comparable(second.out["out"]) == comparable(first.out["out"][before:])


@settings(max_examples=40, deadline=None)
@given(JOINS, STEPS, st.integers(0, 12), st.integers(1, 1023))
def test_keys_can_go_on_in_two_places_and_come_together_again(
    join: Join, steps: list[Step], where: int, at_group: int
) -> None:
    """Cut by key groups in the middle and merged before the end: the same rows come out."""
    alone = TimedBench(join)
    play(alone, [*steps, END_OF_TIME])
    spread = play_in_two(join, steps[:where], steps[where:], at_group)
    assert Counter(comparable(spread)) == Counter(comparable(alone.out["out"]))


def test_pairs_come_at_once_and_rows_alone_when_their_window_has_ended() -> None:
    r"""Left rows 1 and 2 in a window, right row 7 beside 1.

    [0 ...... 10)   watermark
      1  7           -> (1, 7) at once
      2        | 10  -> 2 alone
    """
    bench = TimedBench(window_join("left", schemas=schemas_of()))
    assert bench.rows(batch_of(0, [left("a", 1, 1), left("b", 2, 2)])) == []
    assert pairs(bench.rows(batch_of(1, [right("a", 3, 7)]), 1)) == [(1, 7)]
    assert bench.watermark(10 * S - 1) == []
    assert pairs(bench.watermark(10 * S)) == [(2, None)]
    assert is_empty(bench)


def test_a_row_waits_for_as_long_as_its_interval_reaches() -> None:
    """A left row at 10 may meet a right row up to 15: it is alone as soon as the watermark is above that."""
    bench = TimedBench(interval_join("full", schemas=schemas_of()))
    bench.rows(batch_of(0, [left("a", 10, 1)]))
    bench.rows(batch_of(1, [right("b", 20, 2)]), 1)
    assert bench.watermark(15 * S) == []
    assert pairs(bench.watermark(15 * S + 1)) == [(1, None)]
    assert bench.watermark(25 * S) == []
    assert pairs(bench.watermark(25 * S + 1)) == [(None, 2)]


def test_both_ends_of_an_interval_belong_to_it() -> None:
    """As in BETWEEN: at the bound is in, a microsecond beyond is out."""
    bench = TimedBench(interval_join(lower=-1, upper=2))
    bench.rows(batch_of(0, [left("a", 10, 1)]))
    seconds = [9 - 1e-6, 9, 12, 12 + 1e-6]
    assert pairs(bench.rows(batch_of(1, [right("a", second, nth) for nth, second in enumerate(seconds)]), 1)) == [
        (1, 1),
        (1, 2),
    ]


def test_a_row_in_sliding_windows_meets_its_partner_once_in_each_they_share() -> None:
    """Windows of 10 s every 5 s: rows at 6 and 8 share two, rows at 4 and 8 share one."""
    bench = TimedBench(window_join(slide=5))
    bench.rows(batch_of(0, [left("a", 6, 1), left("a", 4, 2)]))
    made = bench.rows(batch_of(1, [right("a", 8)]), 1)
    found = [(row["window"]["start"], row["x"]) for row in made]
    assert sorted(found) == [(at(0), 1), (at(0), 2), (at(5 * S), 1)]


def test_columns_are_window_key_left_right_and_names_that_clash_get_the_suffix() -> None:
    """The key of the right side is not repeated, whatever it is called."""
    join = window_join(left_key=("id",), right_key=("device",), right_time="time", suffix="_r")
    bench = TimedBench(join)
    here = {"v": 1, "id": "a", "t": at(0), "w": 2}
    there = {"time": at(1), "device": "a", "v": 3, "w": 4, "z": 5}
    bench.rows([here])
    (row,) = bench.rows([there], 1)
    assert list(row) == ["window", "id", "v", "t", "w", "time", "v_r", "w_r", "z"]
    assert row == {
        "window": {"start": at(0), "end": at(10 * S)},
        "id": "a",
        "v": 1,
        "t": at(0),
        "w": 2,
        "time": at(1),
        "v_r": 3,
        "w_r": 4,
        "z": 5,
    }
    schemas = [pa.RecordBatch.from_pylist([one]).schema for one in (here, there)]
    declared = join.output_schema(schemas)
    assert declared is not None
    assert declared.names == list(row)
    assert (join.port_schema("late", schemas), join.port_schema("late_right", schemas)) == tuple(schemas)


def test_a_right_row_alone_has_its_own_key_and_nulls_for_the_left() -> None:
    """A full join fills the key from whichever side there is."""
    bench = TimedBench(interval_join("full", left_key=("id",), right_key=("device",)))
    bench.rows([{"id": 1, "t": at(0), "x": 1}])
    bench.rows([{"device": 2, "t": at(0), "y": 2}], 1)
    made = bench.end()
    assert sorted(made, key=lambda row: row["id"]) == [
        {"id": 1, "t": at(0), "x": 1, "t_right": None, "y": None},
        {"id": 2, "t": None, "x": None, "t_right": at(0), "y": 2},
    ]


@pytest.mark.parametrize("join", [window_join("full"), interval_join("full")])
def test_nan_meets_nan_and_null_meets_nothing(join: Join) -> None:
    """As in Spark; a row without a key is alone at once, since there is nothing to wait for."""
    bench = TimedBench(join)
    lonely = bench.rows(batch_of(0, [left(NAN, 1, 1), left(None, 1, 2), left(-0.0, 1, 3)], pa.float64()))
    assert pairs(lonely) == [(2, None)]
    made = bench.rows(batch_of(1, [right(NAN, 1, 4), right(None, 1, 5), right(0.0, 1, 6)], pa.float64()), 1)
    assert sorted(pairs(made), key=repr) == [(1, 4), (3, 6), (None, 5)]
    assert bench.end() == []


@pytest.mark.parametrize("join", [window_join(), interval_join()])
def test_keys_that_are_equal_in_sql_meet_whatever_their_types(join: Join) -> None:
    """Whole numbers of any width, fractions and decimals, and one instant in two zones."""
    found = []
    for here, there in [
        (pa.array([7], pa.int32()), pa.array([7], pa.int64())),
        (pa.array([7], pa.int64()), pa.array([7.0])),
        (pa.array([7], pa.timestamp("us", "UTC")), pa.array([7], pa.timestamp("us", "Asia/Tokyo"))),
        (pa.array(["a"]).dictionary_encode(), pa.array(["a"])),
        (pa.array([Decimal("7.0")]), pa.array([Decimal("7.00")])),
    ]:
        bench = TimedBench(join)
        times = pa.array([0], pa.timestamp("us"))
        bench.rows(pa.record_batch({"k": here, "t": times}))
        found += bench.rows(pa.record_batch({"k": there, "t": times}), 1)
    assert len(found) == 5


@pytest.mark.parametrize("join", [window_join(), interval_join()])
def test_keys_that_can_never_be_equal_are_refused(join: Join) -> None:
    """A text never equals a number, and a join that yields nothing would not say why."""
    bench = TimedBench(join)
    bench.rows(batch_of(0, [left("7", 1)]))
    with pytest.raises(WrongResult, match="the left key 'k' is string and the right key 'k' is int64"):
        bench.rows(batch_of(1, [right(7, 1)], pa.int64()), 1)


@pytest.mark.parametrize("join", [window_join("full"), interval_join("full")])
def test_a_key_of_several_columns_is_one_key(join: Join) -> None:
    """Rows meet if all parts are equal, and every part comes out."""
    join = type(join)(**(join.__dict__ | {"left_key": ("k", "n"), "right_key": ("k", "m")}))
    bench = TimedBench(join)
    bench.rows([{"k": "a", "n": 1, "t": at(0), "x": 1}, {"k": "a", "n": 2, "t": at(0), "x": 2}])
    made = bench.rows([{"k": "a", "m": 2, "t": at(0), "y": 3}, {"k": "b", "m": 2, "t": at(0), "y": 4}], 1)
    assert [(row["k"], row["n"], row["x"], row["y"]) for row in made] == [("a", 2, 2, 3)]
    assert sorted((row["k"], row["n"]) for row in bench.end()) == [("a", 1), ("b", 2)]


ANY_COLUMN = {
    "text": pa.array(["ünï", None, ""]),
    "large": pa.array(["a", None, "b"], pa.large_string()),
    "bytes": pa.array([b"\0\xff", None, b""]),
    "whole": pa.array([1, None, -(1 << 62)]),
    "small": pa.array([1, None, 3], pa.int8()),
    "real": pa.array([NAN, None, float("inf")]),
    "flag": pa.array([True, None, False]),
    "decimal": pa.array([Decimal("1.50"), None, Decimal("-2")]),
    "day": pa.array([1, None, 2], pa.date32()),
    "span": pa.array([1, None, 2], pa.duration("ns")),
    "list": pa.array([[1, 2], None, []]),
    "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}]),
    "map": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    "coded": pa.array(["a", None, "b"]).dictionary_encode(),
    "nothing": pa.nulls(3),
    "fixed": pa.array([b"abc", None, b"xyz"], pa.binary(3)),
}


@pytest.mark.parametrize("join", [window_join("full"), interval_join("full")])
def test_rows_come_back_from_waiting_as_they_were(join: Join) -> None:
    """Columns of every type, nulls among them, in pairs and alone."""
    rows = pa.record_batch({"k": ["a", "a", "b"], "t": pa.array([0, 1, 2], pa.timestamp("us")), **ANY_COLUMN})
    bench = TimedBench(join)
    bench.rows(rows)
    made = bench.rows(pa.record_batch({"k": ["a"], "t": pa.array([0], pa.timestamp("us"))}), 1) + bench.end()
    assert comparable([{name: row[name] for name in ANY_COLUMN} for row in made]) == comparable(
        rows.select(list(ANY_COLUMN)).to_pylist()
    )


@pytest.mark.parametrize("join", [window_join("full"), interval_join("full")])
def test_columns_may_widen_while_rows_wait(join: Join) -> None:
    """Rows that wait since x was a whole number, since a column did not exist, and since the key was one too."""
    bench = TimedBench(join)
    bench.rows([{"k": 1, "t": at(0), "x": 1}, {"k": 2, "t": at(0), "x": 2}])
    bench.rows([{"k": 1.0, "t": at(1), "x": 1.5, "s": "new"}])
    made = bench.rows([{"k": 1.0, "t": at(2), "y": 5}], 1)
    assert [(row["x"], row["s"], row["y"]) for row in made] == [(1.0, None, 5), (1.5, "new", 5)]
    made = bench.rows([{"k": 2, "t": at(2), "y": None}], 1)
    assert [(row["k"], row["x"], row["y"]) for row in made] == [(2.0, 2.0, None)]
    assert bench.end() == []


def test_rows_that_do_not_fit_those_before_are_refused() -> None:
    """A column that was a number and is a text now."""
    bench = TimedBench(window_join())
    bench.rows([{"k": "a", "t": at(0), "x": [1]}])
    with pytest.raises(WrongResult, match="rows of the left side do not fit those before them"):
        bench.rows([{"k": "a", "t": at(0), "x": "text"}])


def test_before_the_other_side_has_shown_a_row_its_columns_are_not_known() -> None:
    """Unless they are declared: then they are there from the start."""
    for schemas, names in [((None, None), {"k", "t", "x"}), (schemas_of(), {"k", "t", "x", "t_right", "y"})]:
        bench = TimedBench(interval_join("left", schemas=schemas))
        bench.rows(batch_of(0, [left("a", 1)]))
        assert {frozenset(row) for row in bench.end()} == {frozenset(names)}


def test_what_one_key_gathers_in_a_window_is_not_written_anew_with_every_row() -> None:
    """Rows beyond a page are put aside once; partners and rows alone are found there all the same."""
    bench = TimedBench(window_join("full", schemas=schemas_of()))
    many = [left("hot", 1 + nth / 1e6, nth) for nth in range(700)]
    for start in range(0, 700, 70):
        bench.rows(batch_of(0, many[start : start + 70]))
    assert any(entry[0] == CHUNKS for entry in bench.kept)
    assert max(map(len, bench.kept.values())) < 2 * HEAD_BYTES_MAX
    made = bench.rows(batch_of(1, [right("hot", 2, 1)]), 1)
    assert pairs(made) == [(nth, 1) for nth in range(700)]
    bench.rows(batch_of(0, [left("cold", 1, nth) for nth in range(300)]))
    assert pairs(bench.end()) == [(nth, None) for nth in range(300)]
    assert is_empty(bench)


def test_times_of_any_unit_and_zone_meet() -> None:
    """Milliseconds on one side, nanoseconds in another zone on the other; what is cut off does not come back."""
    bench = TimedBench(interval_join("full", lower=0, upper=1))
    bench.rows(pa.record_batch({"k": [1, 2], "t": pa.array([1_000, 5_000], pa.timestamp("ms", "UTC"))}))
    there = pa.array([1_999_999_999, 9_000_000_000], pa.timestamp("ns", "Asia/Tokyo"))
    made = bench.rows(pa.record_batch({"k": [1, 2], "t": there}), 1)
    assert [row["k"] for row in made] == [1]
    assert sorted(row["k"] for row in bench.end()) == [2, 2]


@pytest.mark.parametrize("far", [-62_135_596_800 * S, 253_402_300_799 * S, 1 << 62, -(1 << 62)])
@pytest.mark.parametrize("join", [window_join("full"), interval_join("full")])
def test_times_far_from_today_are_times_like_any_other(join: Join, far: int) -> None:
    """The years 1 and 9999, and beyond what Python can say; together with today in one batch."""
    bench = TimedBench(join)
    moment, times = bench._moment(), pa.array([far, 0], pa.timestamp("us"))
    join.open().rows(pa.record_batch({"k": [1, 1], "t": times, "x": [1, 2]}), 0, moment)
    made, *_ = join.open().rows(pa.record_batch({"k": [1, 1], "t": times, "y": [1, 2]}), 1, moment)
    assert made is not None
    assert (made.column("x").to_pylist(), made.column("y").to_pylist()) == ([1, 2], [1, 2])


def test_a_row_at_the_edge_of_time_is_late_for_every_window() -> None:
    """Its window would begin or end where no instant is."""
    bench = TimedBench(window_join("full"))
    edges = pa.array([BEGINNING_OF_TIME + 1, END_OF_TIME], pa.timestamp("us"))
    out, late, _ = bench.operator.open().rows(pa.record_batch({"k": [1, 1], "t": edges}), 0, bench._moment())
    assert out is None
    assert late is not None
    assert late.num_rows == 2


def test_what_follows_sees_a_watermark_behind_every_row_that_may_still_come_out() -> None:
    """As far as a row may wait, and no further."""
    assert window_join(size=10, slide=5).hold_us == 10 * S
    assert interval_join(lower=-3, upper=7).hold_us == 7 * S
    assert interval_join(lower=-9, upper=7).hold_us == 9 * S
    assert interval_join(lower=3, upper=7).hold_us == 7 * S
    assert interval_join(lower=-9, upper=-3).hold_us == 9 * S


@settings(max_examples=40, deadline=None)
@given(JOINS, STEPS)
def test_no_row_comes_out_behind_the_watermark_held_back(join: Join, steps: list[Step]) -> None:
    """Nothing that comes out is late for what follows."""
    bench = TimedBench(join)
    for step in steps:
        known = len(bench.out["out"])
        held_back_us = bench.watermark_us - join.hold_us if bench.watermark_us > BEGINNING_OF_TIME else None
        play(bench, [step])
        for row in bench.out["out"][known:]:
            times = [time for time in (row["t"], row["t_right"]) if time is not None]
            if held_back_us is not None:
                assert min(times) >= at(held_back_us)


def test_an_inner_join_forgets_a_key_that_never_comes_again() -> None:
    """Nobody waits for its rows, so they go some time after they are of no use."""
    bench = TimedBench(interval_join())
    bench.rows(batch_of(0, [left("a", 1), left("b", 2)]))
    bench.watermark(100 * S)
    assert is_empty(bench)


def test_what_is_no_join_is_refused_when_it_is_built() -> None:
    """Keys that do not pair up, bounds that exclude everything, unknown words."""
    with pytest.raises(FlowError, match="same number of key columns"):
        window_join(left_key=("a", "b"))
    with pytest.raises(FlowError, match="'inner', 'left' or 'full'"):
        window_join("outer")
    with pytest.raises(FlowError, match="lower bound"):
        interval_join(lower=2, upper=1)
    with pytest.raises(FlowError, match="suffix"):
        interval_join(suffix="")
    assert (window_join().needs_watermark, window_join("left").needs_watermark) == (False, True)
