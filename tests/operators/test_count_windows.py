"""Windows by number: the last so many rows of a key, after every so many."""

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.operators.functions import Form
from headwater.operators.windows.windows import Aggregate, CountWindow, WindowApply, WindowOperator, WindowTopK
from tests.operators.timed_bench import TimedBench
from tests.operators.window_stories import (
    INPUT,
    Came,
    Step,
    batch,
    counting,
    moved,
    only_shared,
    per_key,
    row,
    shown,
    stories,
    tell,
    told,
)

WINDOWS = st.integers(1, 5).flatmap(lambda size: st.builds(CountWindow, st.just(size), st.integers(1, size)))


def windows_of(story: list[Step], window: CountWindow) -> list[tuple[Any, list[Any]]]:
    """Return the windows that a story completes, each a key and the values of its rows, in plain Python."""
    had: dict[Any, list[Any]] = defaultdict(list)
    made = []
    for step in story:
        for one in step.rows if isinstance(step, Came) else ():
            had[one["k"]].append(one["v"])
            if len(had[one["k"]]) % window.slide == 0:
                made.append((one["k"], had[one["k"]][-window.size :]))
    return made


def collecting(window: CountWindow) -> WindowOperator:
    """Return a window that returns the values of its rows, nulls included."""
    return WindowApply(
        key_columns=("k",), window=window, function=lambda rows: [{"vs": [one["v"] for one in rows]}], form=Form.ROWS
    )


@given(WINDOWS, stories())
@settings(max_examples=80, deadline=None)
def test_any_story_ends_as_plain_python_says(window: CountWindow, story: list[Step]) -> None:
    """In the order in which windows are completed; incomplete ones never come out."""
    for operator in (counting(window), collecting(window)):
        bench = told(operator, story)
        found = [(one["k"], [value for value in one["vs"] if value is not None]) for one in bench.out["out"]]
        wanted = [(key, [value for value in values if value is not None]) for key, values in windows_of(story, window)]
        assert shown(found) == shown(wanted)
        assert only_shared(bench.kept)
        assert bench.out["late"] == []


@given(WINDOWS, stories(), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_how_rows_are_cut_into_batches_makes_no_difference(window: CountWindow, story: list[Step], size: int) -> None:
    """Rows count, batches do not."""
    pieces: list[Step] = []
    for step in story:
        if isinstance(step, Came):
            pieces += [Came(step.rows[first : first + size]) for first in range(0, len(step.rows), size)]
        else:
            pieces.append(step)
    assert shown(told(counting(window), pieces).out) == shown(told(counting(window), story).out)


@given(WINDOWS, stories(), st.integers(0, 9), st.integers(0, 9), st.integers(0, 1023))
@settings(max_examples=80, deadline=None)
def test_keys_may_part_and_meet_again(window: CountWindow, story: list[Step], cut: int, stay: int, low: int) -> None:
    """Cut by key groups in the middle, told on in two places, and merged: every key has the rows it would have had."""
    for operator in (counting(window), collecting(window)):
        whole, parted = told(operator, story), moved(operator, story, cut, cut + stay, low)
        assert per_key(parted.out["out"]) == per_key(whole.out["out"])
        assert only_shared(parted.kept)


@given(WINDOWS, stories(), st.integers(0, 8))
@settings(max_examples=40, deadline=None)
def test_a_snapshot_restored_elsewhere_goes_on_as_the_original(
    window: CountWindow, story: list[Step], when: int
) -> None:
    """State is all there is."""
    whole, bench = told(counting(window), story), TimedBench(counting(window))
    for number, step in enumerate(story):
        if number == when:
            before, bench = bench, TimedBench(bench.operator, bench.kept)
            bench.watermark_us, bench.out = before.watermark_us, before.out
        tell(bench, step, number)
    assert shown(bench.out) == shown(whole.out)


def test_a_tumbling_window_is_complete_with_its_last_row() -> None:
    """The block average of RIoTBench: nothing is left of a key whose rows all came out."""
    operator = counting(CountWindow(2, 2), aggregates=(Aggregate("avg", "v", "mean"),))
    bench = TimedBench(operator)
    assert bench.rows(batch([row("a", 0, 1.0), row("b", 0, 5.0)])) == []
    assert bench.rows(batch([row("a", 0, 3.0)])) == [{"k": "a", "mean": 2.0}]
    assert bench.rows(batch([row("b", 0, 7.0)])) == [{"k": "b", "mean": 6.0}]
    assert only_shared(bench.kept)


def test_a_sliding_window_fires_from_its_first_slide_on() -> None:
    """Over the rows that there are, as Flink's countWindow(size, slide) does."""
    bench = TimedBench(counting(CountWindow(4, 2)))
    assert [one["vs"] for one in bench.rows(batch([row("a", 0, float(n)) for n in range(7)]))] == [
        [0.0, 1.0],
        [0.0, 1.0, 2.0, 3.0],
        [2.0, 3.0, 4.0, 5.0],
    ]
    assert bench.end() == []


def test_the_rows_of_a_count_window_need_no_time() -> None:
    """There is no window column, no watermark is needed, and a row without a time counts."""
    operator = counting(CountWindow(1, 1))
    assert (operator.needs_watermark, operator.columns_needed) == (False, ("k", "v"))
    schema = operator.output_schema([INPUT])
    assert schema is not None
    assert schema.names == ["k", "n", "vs"]
    assert TimedBench(operator).rows(batch([row("a", None, 1.0)])) == [{"k": "a", "n": 1, "vs": [1.0]}]


@pytest.mark.parametrize("window", [CountWindow(3, 3), CountWindow(3, 1)])
def test_top_k_of_the_last_rows(window: CountWindow) -> None:
    """Ranks begin at 1 in each window."""
    bench = TimedBench(WindowTopK(key_columns=("k",), window=window, k=1, by="v"))
    made = bench.rows(batch([row("a", n, value) for n, value in enumerate([5.0, 1.0, 2.0, 4.0])]))
    assert [(one["v"], one["rank"]) for one in made] == (
        [(5.0, 1)] if window.slide == 3 else [(5.0, 1)] * 3 + [(4.0, 1)]
    )
