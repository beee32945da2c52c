"""Each policy puts the ready queues in its own order, and a turn takes as many rows as its rule says."""

from collections.abc import Mapping
from random import Random

import pytest

from headwater.engine.policies import (
    PATIENCE_US,
    PATIENT_SHARE,
    PROFILE_CHOICES,
    ByPriority,
    Consumption,
    LongestQueue,
    Policy,
    PolicyName,
    RandomQueue,
    RoundRobin,
    min_latency,
    min_memory,
    policy_named,
    steepest_descent,
)
from headwater.engine.queues import Queue, TurnCost
from headwater.model.errors import ConfigError
from headwater.model.ids import AppId, InstanceId


def instance(number: int) -> InstanceId:
    """Return an instance of the one app here."""
    return InstanceId(AppId(1), number)


def queue(
    number: int,
    *,
    waiting: int = 1,
    stage: int = 1,
    below: tuple[int, ...] = (),
    cost_us: float | None = None,
    yields: float = 1.0,
    since_us: int = 0,
    scheduled: bool = True,
) -> Queue:
    """Return a queue with what a policy looks at."""
    cost = TurnCost()
    if cost_us is not None:
        cost.learn(1, cost_us)
    return Queue(
        instance(number),
        stage,
        tuple(map(instance, below)),
        scheduled,
        put_rows=waiting,
        cost=cost,
        rows_out_per_row=yields,
        ready_since_us=since_us,
    )


def order(policy: Policy, *queues: Queue, count: int | None = None, now_us: int = 0) -> list[int]:
    """Return the numbers of the queues in the order that a policy gives them."""
    known = {one.instance: one for one in queues}
    ready = {one.instance: one for one in queues if one.ready}
    chosen = policy.choose(ready, len(ready) if count is None else count, known.get, now_us)
    return [one.instance.number for one in chosen]


def test_the_longest_queue_goes_first() -> None:
    """By waiting rows, whatever the stage or the cost."""
    queues = (queue(0, waiting=3, stage=9), queue(1, waiting=8), queue(2, waiting=5, cost_us=0.1))
    assert order(LongestQueue(), *queues) == [1, 2, 0]
    assert order(LongestQueue(), *queues, count=1) == [1]


def test_a_queue_that_waited_too_long_goes_first_now_and_then() -> None:
    """In every fourth choice, once its patience is used up; until then the longest goes."""
    policy = LongestQueue()
    short, long = queue(0, waiting=1), queue(1, waiting=1_000, since_us=PATIENCE_US + 1)
    chosen = [order(policy, short, long, count=1, now_us=PATIENCE_US + 1)[0] for _ in range(2 * PATIENT_SHARE)]
    assert chosen == [1, 1, 1, 0, 1, 1, 1, 0]
    patient = LongestQueue()
    assert {order(patient, short, long, count=1, now_us=PATIENCE_US)[0] for _ in range(8)} == {1}


def test_a_queue_that_waited_too_long_goes_first_also_when_all_are_asked_for() -> None:
    """With one worker all ready queues are candidates for a pack, which is then cut behind the first."""
    policy = LongestQueue()
    short, long = queue(0, waiting=1), queue(1, waiting=1_000, since_us=PATIENCE_US + 1)
    first = [order(policy, short, long, now_us=PATIENCE_US + 1)[0] for _ in range(PATIENT_SHARE)]
    assert first == [1, 1, 1, 0]


def test_round_robin_gives_each_its_turn() -> None:
    """Also when one becomes ready or empty in between."""
    policy = RoundRobin()
    a, b, c = queue(0), queue(1, waiting=99), queue(2)
    assert [order(policy, a, b, c, count=1)[0] for _ in range(4)] == [0, 1, 2, 0]
    assert order(policy, a, c, count=1) == [2]
    assert order(policy, a, b, c, count=2) == [0, 1]


def test_random_reaches_every_queue_and_repeats_with_its_seed() -> None:
    """Chance comes from outside."""
    queues = [queue(number) for number in range(4)]
    policy, same = RandomQueue(Random(7)), RandomQueue(Random(7))
    drawn = [order(policy, *queues, count=1)[0] for _ in range(60)]
    assert set(drawn) == {0, 1, 2, 3}
    assert drawn == [order(same, *queues, count=1)[0] for _ in range(60)]


def test_min_latency_runs_later_stages_first() -> None:
    """Old rows in the middle of a flow before new ones, whatever the length."""
    queues = (queue(0, stage=1, waiting=99), queue(1, stage=3), queue(2, stage=2))
    assert order(ByPriority(min_latency), *queues) == [1, 2, 0]


def test_min_latency_breaks_a_tie_by_the_cheaper_way_to_the_sink() -> None:
    """The way counts, not the operator alone: the second is cheap itself but leads to a dear one."""
    queues = (
        queue(0, stage=1, cost_us=5, below=(3,)),
        queue(1, stage=1, cost_us=1, below=(2,)),
        queue(2, stage=2, cost_us=50, waiting=0),
        queue(3, stage=2, cost_us=1, waiting=0),
    )
    assert order(ByPriority(min_latency), *queues) == [0, 1]


def test_min_latency_weighs_the_way_by_how_many_rows_get_that_far() -> None:
    """A filter that lets one row in a hundred through makes the dear operator behind it cheap."""
    queues = (
        queue(0, stage=1, cost_us=1, yields=0.01, below=(2,)),
        queue(1, stage=1, cost_us=1, below=(3,)),
        queue(2, stage=2, cost_us=50, waiting=0),
        queue(3, stage=2, cost_us=5, waiting=0),
    )
    assert order(ByPriority(min_latency), *queues) == [0, 1]


def test_min_memory_prefers_what_frees_most_in_the_shortest_time() -> None:
    """A fast filter before a slow one before an operator that only passes rows on."""
    behind = queue(9, stage=2, cost_us=1_000, waiting=0)
    queues = (
        queue(0, cost_us=10, yields=1.0, below=(9,)),
        queue(1, cost_us=10, yields=0.1, below=(9,)),
        queue(2, cost_us=100, yields=0.1, below=(9,)),
        behind,
    )
    assert order(ByPriority(min_memory), *queues) == [1, 2, 0]


def test_a_priority_follows_what_is_measured_within_some_choices() -> None:
    """Working it out for every choice would take longer than the choice; an operator that is new has one at once."""
    policy = ByPriority(min_memory)
    first, second, late = queue(0, cost_us=10), queue(1, cost_us=20), queue(2, cost_us=1)
    assert order(policy, first, second) == [0, 1]
    first.cost = TurnCost()
    first.cost.learn(1, 1_000.0)
    assert [order(policy, first, second, late) for _ in range(PROFILE_CHOICES - 1)] == [[2, 0, 1]] * (
        PROFILE_CHOICES - 1
    )
    assert order(policy, first, second, late) == [2, 1, 0]


def test_the_slope_of_chain_is_that_of_the_lowest_point_ahead() -> None:
    """An operator that frees nothing itself is worth as much as the steep filter right behind it.

    From size 1 at time 0: after 10 µs still 1, after 20 µs 0.1; a slope of 0.9 / 20.
    """
    first = queue(0, cost_us=10, yields=1.0, below=(1,))
    second = queue(1, cost_us=10, yields=0.1, below=(2,))
    last = queue(2, cost_us=10_000, yields=1.0, below=(3,))
    sink = queue(3, scheduled=False)
    known: Mapping[InstanceId, Queue] = {one.instance: one for one in (first, second, last, sink)}
    assert steepest_descent(first, known.get) == pytest.approx(0.9 / 20)
    assert steepest_descent(second, known.get) == pytest.approx(0.9 / 10)
    assert steepest_descent(last, known.get) == pytest.approx(1 / 10_000)


def test_an_operator_that_multiplies_rows_is_worth_what_its_way_out_frees() -> None:
    """It makes three of one; all three leave the node behind the next operator, 10 + 3 × 10 µs later."""
    first = queue(0, cost_us=10, yields=3.0, below=(1,))
    second = queue(1, cost_us=10, below=(2,))
    sink = queue(2, scheduled=False)
    known = {one.instance: one for one in (first, second, sink)}
    assert steepest_descent(first, known.get) == pytest.approx(1 / 40)


@pytest.mark.parametrize("name", list(PolicyName))
def test_every_policy_can_be_asked_for_by_name(name: PolicyName) -> None:
    """And chooses from one queue that queue."""
    assert order(policy_named(name, Random(0)), queue(4)) == [4]


def taken(rule: str, one: Queue) -> int:
    """Return how many rows a turn takes of a queue."""
    return Consumption.parse(rule).rows_for(one)


def test_the_three_rules_of_consumption() -> None:
    """All, half rounded up, and at most N (EdgeWise, section 4.2)."""
    seven = queue(0, waiting=7)
    assert [taken(rule, seven) for rule in ("all", "half", "5", "50")] == [7, 4, 5, 7]
    assert taken("half", queue(0, waiting=1)) == 1


def test_adaptive_consumption_grows_while_full_turns_are_short() -> None:
    """It doubles, and stops at its bound."""
    consumption, one = Consumption(), queue(0, waiting=1_000_000)
    first = consumption.rows_for(one)
    consumption.learn(one, first, turn_us=10)
    assert consumption.rows_for(one) == 2 * first
    for _ in range(30):
        consumption.learn(one, consumption.rows_for(one), turn_us=10)
    assert consumption.rows_for(one) == Consumption.ROWS_MAX


def test_adaptive_consumption_is_cut_by_a_turn_that_took_too_long() -> None:
    """To what fits the wanted time; never to nothing."""
    consumption, one = Consumption(), queue(0, waiting=1_000)
    consumption.learn(one, 64, turn_us=64 * 1_000)
    assert consumption.rows_for(one) == Consumption.TURN_US // 1_000
    consumption.learn(one, 5, turn_us=5_000_000)
    assert consumption.rows_for(one) == 1


@pytest.mark.parametrize(("fixed_us", "row_us"), [(15_000, 10), (30_000, 50), (8_000, 1)])
def test_a_turn_that_is_long_whatever_it_takes_is_not_cut_down_to_a_row(fixed_us: int, row_us: int) -> None:
    """Else its queue would never be emptied: thousands of turns that are all fixed cost."""
    consumption = Consumption()
    one = queue(1, waiting=1_000_000)
    one.rows_wanted = 1
    taken = 0
    for _ in range(60):
        rows = consumption.rows_for(one)
        turn_us = fixed_us + row_us * rows
        one.cost.learn(rows, turn_us)
        consumption.learn(one, rows, turn_us)
        taken += rows
    assert taken > 5_000
    assert fixed_us + row_us * one.rows_wanted <= 2 * Consumption.TURN_US_MAX


def test_rows_that_are_dear_one_by_one_still_come_one_by_one() -> None:
    consumption = Consumption()
    one = queue(1, waiting=1_000)
    longest = 0
    for _ in range(100):
        rows = consumption.rows_for(one)
        one.cost.learn(rows, 15_000 * rows)
        consumption.learn(one, rows, 15_000 * rows)
        longest = max(longest, rows)
    assert longest <= 64
    assert one.rows_wanted <= 4


def test_adaptive_consumption_learns_nothing_from_a_turn_that_was_not_full() -> None:
    """Few rows waited; that says nothing about many."""
    consumption, one = Consumption(), queue(0, waiting=1_000)
    before = consumption.rows_for(one)
    consumption.learn(one, 3, turn_us=1)
    assert consumption.rows_for(one) == before


def test_the_search_for_a_poison_row_limits_every_rule() -> None:
    """Also `all`."""
    one = queue(0, waiting=100)
    one.rows_limit = 3
    assert [taken(rule, one) for rule in ("all", "half", "50", "adaptive")] == [3, 3, 3, 3]


@pytest.mark.parametrize(("written", "sentence"), [("most", "'most' is unknown"), ("0", "at most 0 rows")])
def test_a_rule_that_makes_no_sense_is_refused(written: str, sentence: str) -> None:
    """With what would."""
    with pytest.raises(ConfigError, match=sentence):
        Consumption.parse(written)
