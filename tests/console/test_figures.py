"""Rates and means are differences of sums, divided by the time between them."""

from dataclasses import replace
from typing import Final

import pytest

from headwater.console.figures import between
from headwater.engine.status import AppState, AppStatus, Latency, NodeStatus, OperatorStatus

SECOND_US: Final = 1_000_000
NO_SAMPLE: Final = Latency(None, None, None)
CHAIN: Final = OperatorStatus("map", "chain", 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0)
SOURCE: Final = OperatorStatus("csv", "source", 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0)


def node(at_us: int, *operators: OperatorStatus, turns: int = 0, ended_us: int | None = None) -> NodeStatus:
    """Return the status of a node with one app that began at 0."""
    state = AppState.RUNNING if ended_us is None else AppState.FINISHED
    rows_in, rows_out = operators[0].rows_in, operators[-1].rows_out
    app = AppStatus("app", state, "", 0, ended_us, rows_in, rows_out, NO_SAMPLE, NO_SAMPLE, operators)
    return NodeStatus(at_us, (app,), 2, 0, 1, turns, "flowing", 0, 1, 1, "longest-queue", 1, 0)


def test_utilisation_is_the_share_of_the_window_in_which_the_queues_were_not_empty() -> None:
    """EdgeWise, equation 11: rho_w = 1 - T_emptyQ / T_w, here over the two instances of a chain."""
    before = node(10 * SECOND_US, replace(CHAIN, empty_us=5 * SECOND_US))
    now = node(12 * SECOND_US, replace(CHAIN, empty_us=6 * SECOND_US))
    [app] = between(before, now).apps
    assert app.operators[0].utilisation == pytest.approx(1 - 1 / (2 * 2))


def test_times_are_means_per_row_of_the_rows_in_the_window() -> None:
    before = node(0, replace(CHAIN, rows_in=100, queue_us=10**9, schedule_us=10**9, compute_us=10**9))
    now = node(
        SECOND_US,
        replace(CHAIN, rows_in=300, queue_us=10**9 + 400_000, schedule_us=10**9 + 200_000, compute_us=10**9 + 20_000),
    )
    [one] = between(before, now).apps[0].operators
    assert (one.queue_ms, one.schedule_ms, one.compute_ms) == pytest.approx((2.0, 1.0, 0.1))


def test_rates_are_those_of_the_window_and_not_of_the_whole_run() -> None:
    before = node(8 * SECOND_US, replace(CHAIN, rows_in=9_000, rows_out=4_000), turns=1_000)
    now = node(10 * SECOND_US, replace(CHAIN, rows_in=10_000, rows_out=4_500), turns=1_050)
    figures = between(before, now)
    [one] = figures.apps[0].operators
    assert (one.in_per_s, one.out_per_s, figures.turns_per_s) == (500, 250, 25)


def test_without_an_earlier_status_rates_are_those_since_the_app_began_up_to_its_end() -> None:
    [app] = between(None, node(10 * SECOND_US, replace(CHAIN, rows_in=800), ended_us=4 * SECOND_US)).apps
    assert (app.seconds, app.in_per_s) == (4, 200)


def test_no_row_in_the_window_leaves_the_times_unknown() -> None:
    [one] = between(node(0, CHAIN), node(SECOND_US, CHAIN)).apps[0].operators
    assert (one.in_per_s, one.queue_ms, one.schedule_ms, one.compute_ms) == (0, None, None, None)


def test_a_source_has_no_queue_and_so_no_utilisation() -> None:
    [one] = between(node(0, SOURCE), node(SECOND_US, replace(SOURCE, rows_in=5))).apps[0].operators
    assert (one.utilisation, one.queue_ms, one.in_per_s) == (None, None, 5)


def test_an_app_that_began_again_under_its_name_is_not_compared_with_its_former_self() -> None:
    before = node(SECOND_US, replace(CHAIN, rows_in=500))
    later = replace(node(3 * SECOND_US, replace(CHAIN, rows_in=10)).apps[0], started_us=2 * SECOND_US)
    [app] = between(before, replace(before, at_us=3 * SECOND_US, apps=(later,))).apps
    assert app.in_per_s == 10
