"""Session windows: rows of a key belong together as long as no gap parts them, in whatever order they come."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.operators.functions import Form
from headwater.operators.windows.windows import Aggregate, SessionWindow, WindowApply, WindowTopK
from tests.operators.timed_bench import TimedBench
from tests.operators.window_stories import (
    INPUT,
    SECOND,
    Came,
    Sessions,
    Step,
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

GAPS = st.integers(1, 9)
FIRINGS = st.sampled_from(
    [{}, {}, {"lateness_us": 4}, {"lateness_us": 20}, {"early_rows": 1}, {"early_rows": 3, "lateness_us": 6}]
)


def spans(rows: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """Return the sessions of rows in seconds."""
    return [(micros(one["window"]["start"]) / SECOND, micros(one["window"]["end"]) / SECOND) for one in rows]


@given(GAPS, FIRINGS, stories())
@settings(max_examples=120, deadline=None)
def test_any_story_ends_as_plain_python_says(gap_us: int, firing: Any, story: list[Step]) -> None:
    """Out of order, late, joining what was apart; with allowed lateness and early firing."""
    oracle = Sessions(gap_us, firing.get("lateness_us", 0), firing.get("early_rows"))
    for step in story:
        oracle.tell(step)
    bench = told(counting(SessionWindow("t", gap_us), **firing), story)
    assert shown(bench.out["out"]) == shown(expected_rows(oracle.out, counted, bool(firing)))
    assert shown([one["v"] for one in bench.out["late"]]) == shown([one["v"] for one in oracle.late])
    assert only_shared(bench.kept)


@given(GAPS, FIRINGS, stories(), st.integers(0, 9), st.integers(0, 9), st.integers(0, 1023))
@settings(max_examples=70, deadline=None)
def test_keys_may_part_and_meet_again(
    gap_us: int, firing: Any, story: list[Step], cut: int, stay: int, low: int
) -> None:
    """Cut by key groups in the middle, told on in two places, and merged: every key has the rows it would have had."""
    operator = counting(SessionWindow("t", gap_us), **firing)
    whole, parted = told(operator, story), moved(operator, story, cut, cut + stay, low)
    assert per_key(parted.out["out"]) == per_key(whole.out["out"])
    assert per_key(parted.out["late"]) == per_key(whole.out["late"])
    assert only_shared(parted.kept)


@given(GAPS, stories(), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_how_rows_are_cut_into_batches_makes_no_difference(gap_us: int, story: list[Step], size: int) -> None:
    """What comes out follows from the rows between two watermarks, not from the batches in which they came."""
    pieces: list[Step] = []
    for step in story:
        if isinstance(step, Came):
            pieces += [Came(step.rows[first : first + size]) for first in range(0, len(step.rows), size)]
        else:
            pieces.append(step)
    operator = counting(SessionWindow("t", gap_us))
    assert shown(told(operator, pieces).out) == shown(told(operator, story).out)


@given(GAPS, FIRINGS, stories(), st.integers(0, 8))
@settings(max_examples=40, deadline=None)
def test_a_snapshot_restored_elsewhere_goes_on_as_the_original(
    gap_us: int, firing: Any, story: list[Step], when: int
) -> None:
    """State is all there is."""
    operator = counting(SessionWindow("t", gap_us), **firing)
    whole, bench = told(operator, story), TimedBench(operator)
    for number, step in enumerate(story):
        if number == when:
            before, bench = bench, TimedBench(operator, bench.kept)
            bench.watermark_us, bench.out = before.watermark_us, before.out
        tell(bench, step, number)
    assert shown(bench.out) == shown(whole.out)


@given(GAPS, stories(), st.integers(0, 9), st.integers(0, 1023))
@settings(max_examples=30, deadline=None)
def test_kept_rows_move_with_their_keys(gap_us: int, story: list[Step], cut: int, low: int) -> None:
    """Whole rows and rankings, also where two sessions become one."""
    window = SessionWindow("t", gap_us)
    apply = WindowApply(
        key_columns=("k",), window=window, function=lambda rows: [{"vs": [one["v"] for one in rows]}], form=Form.ROWS
    )
    oracle = Sessions(gap_us)
    for step in story:
        oracle.tell(step)
    whole, parted = told(apply, story), moved(apply, story, cut, cut + 2, low)
    wanted = expected_rows(oracle.out, lambda rows: {"vs": [one["v"] for one in rows]}, says_why=False)
    assert shown(whole.out["out"]) == shown(wanted)
    assert per_key(parted.out["out"]) == per_key(whole.out["out"])
    top = WindowTopK(key_columns=("k",), window=window, k=2, by="v")
    assert per_key(moved(top, story, cut, cut + 2, low).out["out"]) == per_key(told(top, story).out["out"])
    assert only_shared(whole.kept)
    assert only_shared(parted.kept)


def test_rows_just_a_gap_apart_are_one_session_as_in_spark() -> None:
    """Its end is open, and yet the next may begin there (MergingSessionsIterator: start <= end)."""
    bench = TimedBench(counting(SessionWindow("t", 5 * SECOND)))
    bench.rows(batch([row("a", 0, 1.0), row("a", 5, 2.0), row("a", 10.000001, 3.0)]))
    made = bench.end()
    assert spans(made) == [(0, 10), (10.000001, 15.000001)]
    assert [one["vs"] for one in made] == [[1.0, 2.0], [3.0]]


def test_a_row_between_two_sessions_makes_them_one() -> None:
    """The values are in order of arrival, not of time."""
    bench = TimedBench(counting(SessionWindow("t", 5 * SECOND)))
    bench.rows(batch([row("a", 10, 1.0)]))
    bench.rows(batch([row("a", 1, 2.0)]))
    bench.rows(batch([row("a", 6, 3.0)]))
    [one] = bench.end()
    assert (spans([one]), one["vs"]) == ([(1, 15)], [1.0, 2.0, 3.0])


def test_a_session_ends_when_the_watermark_passes_its_gap() -> None:
    """A row whose own session would be over is late, though it would fit into an open one; as in Spark."""
    bench = TimedBench(counting(SessionWindow("t", 5 * SECOND)))
    bench.rows(batch([row("a", 1), row("a", 4)]))
    assert bench.watermark(9 * SECOND - 1) == []
    bench.rows(batch([row("a", 3.999998)]))
    assert len(bench.out["late"]) == 1
    assert spans(bench.watermark(9 * SECOND)) == [(1, 9)]
    bench.rows(batch([row("a", 8)]))
    assert spans(bench.end()) == [(8, 13)]


def test_a_session_that_fired_may_grow_and_fire_at_its_new_end() -> None:
    """With allowed lateness: late if it is still over, on time if the row has moved its end ahead."""
    bench = TimedBench(counting(SessionWindow("t", 5 * SECOND), lateness_us=10 * SECOND))
    bench.rows(batch([row("a", 0, 1.0)]))
    assert [one["firing"] for one in bench.watermark(6 * SECOND)] == ["on-time"]
    assert [(one["firing"], one["vs"]) for one in bench.rows(batch([row("a", 0.5, 2.0)]))] == [("late", [1.0, 2.0])]
    assert bench.rows(batch([row("a", 4, 3.0)])) == []
    [fired] = bench.watermark(9 * SECOND)
    assert (fired["firing"], fired["vs"], spans([fired])) == ("on-time", [1.0, 2.0, 3.0], [(0, 9)])
    assert bench.watermark(18 * SECOND) == []
    assert not only_shared(bench.kept)
    assert bench.watermark(19 * SECOND) == []
    assert only_shared(bench.kept)


def test_sessions_by_the_clock_end_when_nothing_comes_for_a_while() -> None:
    """The operator asks to be woken; woken too early, because rows came meanwhile, it waits on."""
    bench = TimedBench(counting(SessionWindow(None, 5 * SECOND)))
    bench.now_us = SECOND
    bench.rows(batch([row("a", 99, 1.0)]))
    bench.now_us = 4 * SECOND
    bench.rows(batch([row("a", 0, 2.0)]))
    assert bench.clock(6 * SECOND) == []
    assert bench.operator.open().wake_us(bench._moment()) == 9 * SECOND
    [fired] = bench.clock(9 * SECOND)
    assert (spans([fired]), fired["vs"]) == ([(1, 9)], [1.0, 2.0])
    bench.rows(batch([row("a", 0, 3.0)]))
    assert [one["vs"] for one in bench.end()] == [[3.0]]
    assert only_shared(bench.kept)


def test_early_firing_by_the_clock_tells_what_is_new() -> None:
    """Sessions without new rows stay silent."""
    bench = TimedBench(counting(SessionWindow("t", 5 * SECOND), early_us=2 * SECOND))
    bench.now_us = SECOND
    bench.rows(batch([row("a", 1, 1.0), row("b", 1, 2.0)]))
    assert [(one["k"], one["firing"]) for one in bench.clock(2 * SECOND)] == [("b", "early"), ("a", "early")]
    bench.rows(batch([row("a", 2, 3.0)]))
    assert [(one["k"], one["vs"]) for one in bench.clock(4 * SECOND)] == [("a", [1.0, 3.0])]
    assert bench.clock(6 * SECOND) == []
    bench.rows(batch([row("a", 2, 3.0)]))
    assert [(one["k"], one["firing"]) for one in bench.end()] == [("b", "on-time"), ("a", "on-time")]
    assert only_shared(bench.kept)


@pytest.mark.parametrize("name", ["sum", "min", "max", "avg", "var_pop", "first", "last"])
def test_aggregates_of_sessions_that_become_one_are_those_of_all_rows(name: str) -> None:
    """Combined, not computed anew."""
    operator = counting(SessionWindow("t", 5 * SECOND), aggregates=(Aggregate(name, "v", "made"),))
    apart, together = TimedBench(operator), TimedBench(operator)
    rows = [row("a", 12, 1.0), row("a", 0, 4.0), row("a", 4, -2.0), row("a", 8, 7.0)]
    for one in rows:
        apart.rows(batch([one]))
    together.rows(batch(rows))
    [one], [other] = apart.end(), together.end()
    assert one["made"] == pytest.approx(other["made"])
    assert spans([one]) == spans([other]) == [(0, 17)]


def test_an_operator_says_what_it_makes() -> None:
    """The same columns as any window by time."""
    schema = counting(SessionWindow("t", 5)).output_schema([INPUT])
    assert schema is not None
    assert schema.names == ["window", "k", "n", "vs"]
