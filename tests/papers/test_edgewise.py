"""EdgeWise (Fu et al., USENIX ATC 2019): one test for each claim that we rely on, its section cited.

Where we depart from the paper, a test says so and why: several short queues share one turn, a queue that waited for
too long goes first now and then, the rows of a turn adapt to what they cost, and a pool whose workers are all held up
gets a spare.
"""

import pytest

from headwater.engine.events import HireSpare
from headwater.engine.policies import PATIENCE_US, PATIENT_SHARE, Consumption, PolicyName
from headwater.engine.scheduler import STALLED_US, SchedulerConfig
from headwater.model.errors import ConfigError
from headwater.model.ids import AppId, InstanceId
from headwater.workers.config import NodeConfig
from tests.engine.flows import numbered, relay
from tests.engine.pool_world import PoolWorld, Stored
from tests.engine.small_node import SmallNode
from tests.papers.one_core import Step, at_load, backpressure_point

APP = AppId(1)
RIVALS = (PolicyName.ROUND_ROBIN, PolicyName.RANDOM)

# Four topologies: unequal costs; a row made many, with cheap and with dear operators behind; and one like PRED
# (figure 6), where parsing makes two rows of one, a later operator three, and an average one of five again.
TOPOLOGIES = {
    "unequal": (Step(60), Step(240), Step(90), Step(60)),
    "fan-out": (Step(60, 5), Step(60), Step(120, 0.2), Step(100)),
    "dear-fan-out": (Step(100, 5), Step(100), Step(300, 0.2), Step(100)),
    "pred": (Step(100, 2), Step(80), Step(80, 3), Step(60, 0.2), Step(150)),
}
ON_EACH_TOPOLOGY = pytest.mark.parametrize("steps", TOPOLOGIES.values(), ids=TOPOLOGIES)
Steps = tuple[Step, ...]


def pool(*waiting: int, workers: int = 1, consumption: str = "50", policy: PolicyName | None = None) -> PoolWorld:
    """Return operators in a row with so many rows waiting at each, and a pool of workers; a row takes 3 ms."""
    config = SchedulerConfig(
        workers=workers, consumption=Consumption.parse(consumption), policy=policy or PolicyName.LONGEST_QUEUE
    )
    world = PoolWorld(config)
    world.add_app(APP, [Stored(cost_us=3_000) for _ in waiting])
    for queue in world.scheduler.queues.all():
        queue.cost.learn(1, 3_000.0)
    for number, rows in enumerate(waiting):
        if rows:
            world.put(InstanceId(APP, number), rows)
    for _ in range(workers):
        world.join()
    return world


def chosen(world: PoolWorld) -> list[int]:
    """Return the operators that were given, in order."""
    return [part.instance.number for turn in world.turns for part in turn.assignments]


def test_a_ready_worker_goes_to_the_operation_with_the_most_pending_data() -> None:
    """Section 4.1: balance queue sizes by assigning a ready thread to the longest queue; no profiling."""
    assert chosen(pool(3, 40, 25))[0] == 1


def test_figure_4_the_full_queue_is_emptied_before_it_overflows() -> None:
    """Figure 4: two operations on one core, queues of two; Q1 has one tuple, Q2 is full, and a fourth tuple comes."""
    world = pool(1, 2, consumption="1")
    (worker,) = world.running
    lengths = []
    for arriving in (1, 0, 0, 0):
        world.finish(worker)
        world.put(InstanceId(APP, 0), arriving)
        lengths.append([world.stored[InstanceId(APP, number)].waiting for number in (0, 1)])
    assert chosen(world)[0] == 1
    assert max(max(pair) for pair in lengths) <= 2


def test_figure_4_the_other_choice_overflows_the_full_queue() -> None:
    """Figure 4(a): a blind scheduler lets operation 1 go first, and Q2 holds three: backpressure."""
    world = pool(1, 2, consumption="1", policy=PolicyName.ROUND_ROBIN)
    (worker,) = world.running
    assert chosen(world) == [0]
    world.finish(worker)
    assert world.stored[InstanceId(APP, 1)].waiting == 3


def test_at_most_one_worker_runs_an_operation_instance() -> None:
    """Section 4.2: for FIFO guarantees; the other worker takes another operation or sleeps."""
    world = pool(500, 0, workers=2)
    assert chosen(world) == [0]
    world.put(InstanceId(APP, 0), 500)
    assert chosen(world) == [0]


def test_different_operations_run_in_parallel() -> None:
    """Section 4.2: operations 2 and N of figure 3."""
    assert chosen(pool(1, 9, 5, workers=2)) == [1, 2]


def test_the_worker_pool_has_a_fixed_size_whatever_the_topology() -> None:
    """Section 4.2: a fixed set of workers moves from operation to operation; OWPOA has one for each (section 2.2)."""
    assert pool(*[1] * 20, workers=2).scheduler.workers_wanted() == 2
    dedicated = pool(*[1] * 20, policy=PolicyName.ONE_WORKER_PER_OPERATOR)
    assert dedicated.scheduler.workers_wanted() == 20


def test_a_worker_without_work_sleeps_and_is_woken_by_data() -> None:
    """Section 4.2."""
    world = pool(0)
    assert chosen(world) == []
    world.put(InstanceId(APP, 0), 1)
    assert chosen(world) == [0]


def test_a_turn_is_not_preempted() -> None:
    """Section 4.2: a worker completes the operation, however long another queue grows meanwhile."""
    world = pool(5, 0)
    turn = dict(world.running)
    world.put(InstanceId(APP, 1), 10_000)
    assert world.running == turn


@pytest.mark.parametrize(("rule", "rows"), [("all", 400), ("half", 200), ("50", 50)])
def test_the_three_consumption_policies(rule: str, rows: int) -> None:
    """Section 4.2: All, Half and At-most-N."""
    assert pool(400, consumption=rule).turns[0].assignments[0].rows_max == rows


def test_small_turns_make_more_decisions() -> None:
    """Section 4.2: a small constant number makes the scheduler decide more often in a saturated system."""
    decisions = {}
    for rule in ("all", "half", "50"):
        world = pool(1_000, consumption=rule)
        world.settle()
        decisions[rule] = len(world.turns)
    assert decisions["50"] > decisions["half"] > decisions["all"] == 1


def test_utilisation_is_the_share_of_time_with_a_row_in_the_queue() -> None:
    """Section 5.3: by equation (11), 1 - T_emptyQ / T_w, which here equals equation (8), T_E · N / T_w.

    Ten rows, each alone, each 30 µs of work, in a window of 1,000 µs: 0.3 either way.
    """
    world = pool(0)
    first, (worker,) = InstanceId(APP, 0), world.running
    for arrival in range(10):
        world.now_us = arrival * 100
        world.put(first, 1)
        world.now_us += 30
        world.finish(worker)
    queue = world.scheduler.queues.find(first)
    assert queue is not None
    by_equation_11 = 1 - queue.empty_total_us(1_000) / 1_000
    by_equation_8 = 30 * queue.totals.rows_in / 1_000
    assert by_equation_11 == pytest.approx(by_equation_8) == pytest.approx(0.3)


def test_time_waiting_to_be_scheduled_counts_as_utilised() -> None:
    """Section 5.3: T_S is amortised over the tuples, so a queue that is not chosen is not idle.

    The rows wait 400 µs for their turn and take 100 µs: half of the window of 1,000 µs.
    """
    world = pool(0, workers=0)
    world.put(InstanceId(APP, 0), 1)
    world.now_us = 400
    worker = world.join()
    world.now_us = 500
    world.finish(worker)
    queue = world.scheduler.queues.find(InstanceId(APP, 0))
    assert queue is not None
    assert 1 - queue.empty_total_us(1_000) / 1_000 == pytest.approx(0.5)


def test_latency_is_time_in_the_queue_at_its_head_and_in_computation() -> None:
    """Section 5.2, equation (6) and figure 5(b): L = T_Q + T_S + T_C, told apart without overlap or gap."""
    node = SmallNode(relay())
    node.now_us = 100
    node.feed(numbered(0))
    running = node.prepared("pass")
    node.now_us = 120
    node.feed(numbered(1, 2))
    node.now_us = 150
    node.commit(running)
    node.now_us = 190
    report = node.turn("pass")
    waited_us = 2 * (190 - 120)
    assert (report.queue_us, report.schedule_us) == (2 * (150 - 120), 2 * (190 - 150))
    assert report.queue_us + report.schedule_us + report.compute_us == waited_us


@ON_EACH_TOPOLOGY
@pytest.mark.parametrize("load", [1.05, 1.3])
def test_past_saturation_the_longest_queue_first_balances_utilisation(steps: Steps, load: float) -> None:
    """Sections 5.1 and 7.3.1, figure 8: a lower coefficient of variation than round robin, or chance on any seed."""
    ours = at_load(steps, load, PolicyName.LONGEST_QUEUE).variation
    theirs = [at_load(steps, load, PolicyName.RANDOM, seed).variation for seed in range(5)]
    assert ours < min(at_load(steps, load, PolicyName.ROUND_ROBIN).variation, *theirs)


def test_at_half_the_load_chance_may_be_the_more_balanced() -> None:
    """Section 3.3: below saturation most queues are empty, and there is little to choose; we claim nothing there."""
    steps = TOPOLOGIES["unequal"]
    theirs = [at_load(steps, 0.5, PolicyName.RANDOM, seed).variation for seed in range(5)]
    assert max(theirs) < at_load(steps, 0.5, PolicyName.LONGEST_QUEUE).variation


@ON_EACH_TOPOLOGY
def test_utilisation_becomes_more_balanced_as_the_input_rate_grows(steps: Steps) -> None:
    """Section 7.3.1, figure 8: in EdgeWise the variation falls with the rate, and the lowest utilisation rises."""
    outcomes = [at_load(steps, load, PolicyName.LONGEST_QUEUE) for load in (0.5, 0.9, 1.05, 1.3)]
    variations = [outcome.variation for outcome in outcomes]
    assert variations == sorted(variations, reverse=True)
    lowest = [min(outcome.utilisation) for outcome in outcomes]
    assert lowest == sorted(lowest)


LOADS = [share / 20 for share in range(4, 21)]  # up to 1: past it nothing is stable (section 5.1, equation 2)
BOUNDS = range(100, 601, 50)  # of the queues, in rows


def gains(steps: Steps, rival: PolicyName) -> list[float]:
    """Return by how much later backpressure comes than under a rival, for every bound of the queues."""
    return [
        backpressure_point(steps, PolicyName.LONGEST_QUEUE, bound, LOADS)
        - backpressure_point(steps, rival, bound, LOADS)
        for bound in BOUNDS
    ]


@ON_EACH_TOPOLOGY
@pytest.mark.parametrize("rival", RIVALS)
def test_the_longest_queue_first_never_brings_backpressure_earlier(steps: Steps, rival: PolicyName) -> None:
    """Sections 4 and 7.2: at no bound of the queues."""
    assert min(gains(steps, rival)) >= 0


@pytest.mark.parametrize("name", ["fan-out", "pred"])
@pytest.mark.parametrize("rival", RIVALS)
def test_where_rows_multiply_it_pushes_backpressure_to_a_higher_input_rate(name: str, rival: PolicyName) -> None:
    """Sections 4 and 7.2: at some bounds of the queues; at others the batch that arrives fills a queue by itself."""
    assert max(gains(TOPOLOGIES[name], rival)) > 0


@pytest.mark.parametrize("name", ["unequal", "dear-fan-out"])
@pytest.mark.parametrize("rival", RIVALS)
def test_where_the_arriving_batch_is_the_longest_queue_no_policy_is_ahead(name: str, rival: PolicyName) -> None:
    """Departure: on one core At-most-50 gives every queue equal rows, not the OS's equal time, so rivals do as well.

    The paper's gain in section 7.2 is over Storm, whose threads this simulation does not have.
    """
    assert max(gains(TOPOLOGIES[name], rival)) == 0


@ON_EACH_TOPOLOGY
def test_heavier_operations_get_proportionally_more_of_the_core(steps: Steps) -> None:
    """Section 5.1, equation (4): the weight w_i of an operation is proportional to q_i / r_i, once saturated."""
    rows, needs = 1.0, []
    for step in steps:
        needs.append(rows * step.cost_us)
        rows *= step.yields
    wanted = [need / sum(needs) for need in needs]
    assert at_load(steps, 1.05, PolicyName.LONGEST_QUEUE).time_shares == pytest.approx(wanted, abs=0.02)


def test_min_latency_prefers_later_operations() -> None:
    """Section 3.4 (Carney et al.): old tuples in the middle of a topology before newly arrived ones."""
    assert chosen(pool(500, 1, 1, policy=PolicyName.MIN_LATENCY))[0] == 2


def test_min_memory_prefers_fast_filters() -> None:
    """Section 3.4 (Babcock et al., Chain): higher input-output reduction and shorter execution time first."""
    world = PoolWorld(SchedulerConfig(workers=1, policy=PolicyName.MIN_MEMORY))
    steps = [Stored(cost_us=5_000), Stored(cost_us=4_000, yields=0.01), Stored(cost_us=90_000)]
    instances = world.add_app(APP, steps)
    worker = world.join()
    for one in instances[:3]:  # every operator has shown what it does
        for _ in range(12):
            world.put(one, 100)
            world.settle()
    world.put(instances[2], 1)
    for one in instances[:3]:
        world.put(one, 500)
    world.turns.clear()
    world.finish(worker)
    assert chosen(world)[0] == 1


def test_departure_short_queues_are_packed_into_one_turn() -> None:
    """Section 4.2 gives one operation a turn; with hundreds of apps the cost of a turn would outweigh its rows."""
    world = PoolWorld(SchedulerConfig(workers=1))
    for app in range(20):
        world.add_app(AppId(app), [Stored(put=1, cost_us=1)])
    world.join()
    world.settle()
    world.turns.clear()
    (worker,) = world.running
    world.put(InstanceId(AppId(0), 0), 1)
    for app in range(1, 20):
        world.put(InstanceId(AppId(app), 0), 1)
    world.finish(worker)
    assert len(world.turns[-1].assignments) == 19


def test_departure_a_queue_that_waits_for_too_long_goes_first_now_and_then() -> None:
    """Section 4.1 always takes the longest, which starves a short queue beside one that only grows."""
    world = pool(1_000, 0)
    (worker,) = world.running
    world.put(InstanceId(APP, 1), 1)
    world.stored[InstanceId(APP, 0)].downstream = ()
    world.now_us = PATIENCE_US + 1
    for _ in range(PATIENT_SHARE):
        world.put(InstanceId(APP, 0), 1_000)
        world.finish(worker)
    assert 1 in chosen(world)


def test_departure_the_rows_of_a_turn_adapt_to_what_they_cost() -> None:
    """Section 7.4 found At-most-50 best; measured here, cheap rows need far more at saturation, dear ones fewer."""
    sizes = {}
    for cost_us in (1, 2_000):
        world = PoolWorld(SchedulerConfig(workers=1))
        (first, _) = world.add_app(APP, [Stored(put=10_000_000, cost_us=cost_us)])
        worker = world.join()
        for _ in range(20):
            world.finish(worker)
        sizes[cost_us] = world.running[worker][0].rows_max
        assert first.number == 0
    assert sizes[1] > 1_000
    assert sizes[2_000] < 50


def test_departure_a_spare_is_hired_when_all_workers_are_held_up() -> None:
    """Section 4.2 leaves the pool's size to its users where operations block; we add a worker while they do."""
    world = pool(5, 5)
    assert any(isinstance(effect, HireSpare) for effect in world.tick(STALLED_US + 1))
    assert world.scheduler.workers_wanted() == 1


def test_without_spares_the_pool_stays_as_it_is() -> None:
    """Section 4.2: so that a policy can be seen by itself."""
    world = PoolWorld(NodeConfig(workers=1, spares_max=0).scheduler())
    world.add_app(APP, [Stored(put=5), Stored(put=5)])
    world.join()
    assert not any(isinstance(effect, HireSpare) for effect in world.tick(STALLED_US + 1))
    with pytest.raises(ConfigError, match="-1 spare workers"):
        NodeConfig(spares_max=-1)
