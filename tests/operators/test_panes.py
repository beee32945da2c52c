"""The arithmetic of windows: panes cut time so that every window is some of them side by side."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headwater.operators.windows.panes import FAR, Panes, runs, within_reach

INSTANTS = st.integers(-1_000, 1_000)


@st.composite
def windows(draw: Any) -> Panes:
    """Return a strategy for windows, also such whose slide does not divide their size."""
    size = draw(st.integers(1, 40))
    slide = draw(st.integers(1, size))
    return Panes(size, slide, draw(st.integers(-slide + 1, slide - 1)))


def windows_around(panes: Panes, instant: int) -> list[int]:
    """Return where the windows begin that hold an instant, by looking at all of them."""
    near = range(instant - 3 * panes.size, instant + panes.size)
    return [
        start for start in near if (start - panes.offset) % panes.slide == 0 and start <= instant < start + panes.size
    ]


@given(windows(), INSTANTS)
def test_all_instants_of_a_pane_are_in_the_same_windows(panes: Panes, instant: int) -> None:
    """So it does not matter which of them a row has."""
    pane = panes.pane_at(instant)
    assert pane <= instant
    assert windows_around(panes, pane) == windows_around(panes, instant)
    assert panes.pane_of(np.array([instant])).tolist() == [pane]


@given(windows(), INSTANTS)
def test_a_window_is_its_panes_and_nothing_else(panes: Panes, instant: int) -> None:
    """Side by side, at most two in every slide."""
    window = panes.slide_of(instant)
    made = {panes.pane_at(time) for time in range(window, window + panes.size)}
    assert sorted(made) == panes.panes_of(window)
    assert len(made) == panes.per_window <= 2 * -(-panes.size // panes.slide)


@given(windows(), INSTANTS)
def test_the_first_and_last_window_of_a_pane_are_known(panes: Panes, instant: int) -> None:
    """By where they end."""
    ends = [start + panes.size for start in windows_around(panes, instant)]
    pane = panes.pane_at(instant)
    assert (panes.first_end(pane), panes.last_end(pane)) == (ends[0], ends[-1])
    assert panes.last_end(instant) == ends[-1]
    assert panes.end_until(ends[0]) == ends[0]
    assert panes.end_after(ends[0]) == ends[0] + panes.slide
    assert panes.end_until(ends[0] - 1) == ends[0] - panes.slide


@given(windows(), st.lists(INSTANTS, min_size=1, max_size=5), INSTANTS, st.integers(0, 50))
def test_windows_of_panes_are_those_that_end_in_between(
    panes: Panes, instants: list[int], after: int, span: int
) -> None:
    """After the first instant, and until the second."""
    held = np.array([panes.pane_at(instant) for instant in instants])
    index, starts = panes.windows_of(held, after, after + span)
    wanted = [
        (nth, start)
        for nth, pane in enumerate(held.tolist())
        for start in windows_around(panes, pane)
        if after < start + panes.size <= after + span
    ]
    assert list(zip(index.tolist(), starts.tolist(), strict=True)) == wanted


@given(windows(), INSTANTS, INSTANTS)
def test_a_pane_is_done_with_when_its_last_window_has_ended(panes: Panes, instant: int, reached: int) -> None:
    """And not before."""
    pane = panes.pane_at(instant)
    assert (pane < panes.done_before(reached)) == (panes.last_end(pane) <= reached)


def test_the_beginning_and_end_of_time_can_be_reckoned_with() -> None:
    """All windows lie between them."""
    panes = Panes(10, 3, 1)
    _, starts = panes.windows_of(np.array([panes.pane_at(5)]), -(1 << 63), (1 << 63) - 1)
    assert starts.tolist() == windows_around(panes, 5)
    assert within_reach(1 << 63) == FAR
    assert within_reach(5) == 5


def test_runs_begin_where_any_column_changes() -> None:
    """Columns that are sorted together."""
    assert runs(np.array([1, 1, 2, 2]), np.array([5, 5, 5, 6])).tolist() == [0, 2, 3]
    assert runs(np.array([7])).tolist() == [0]
