"""Workers ask, the scheduler gives turns: one worker per instance, nobody idle, nobody starved."""

import pytest

from headwater.engine.events import (
    HireSpare,
    InstanceGained,
    InstanceGivenUp,
    LetGo,
    ReportStoreFull,
    ReportTrouble,
    RowsPassed,
    TurnEnded,
)
from headwater.engine.policies import PATIENCE_US, Consumption, PolicyName
from headwater.engine.scheduler import PACK_MAX, RETRY_US, SPARE_KEPT_US, STALLED_US, SchedulerConfig
from headwater.model.ids import AppId, InstanceId, WorkerId
from tests.engine.pool_world import PoolWorld, Stored, in_trouble, not_now, report, store_full

APP = AppId(1)


def world_with(*operators: Stored, workers: int = 1, **config: object) -> tuple[PoolWorld, list[InstanceId]]:
    """Return a world with one app and so many idle workers."""
    world = PoolWorld(SchedulerConfig(workers=workers, **config))  # type: ignore[arg-type]
    instances = world.add_app(APP, operators)
    for _ in range(workers):
        world.join()
    return world, instances


def given(world: PoolWorld) -> list[list[int]]:
    """Return which instances stood in each turn so far."""
    return [[part.instance.number for part in turn.assignments] for turn in world.turns]


def test_a_worker_gets_the_longest_queue() -> None:
    """The first thing it hears."""
    world = PoolWorld(SchedulerConfig(workers=1))
    world.add_app(APP, [Stored(put=3, cost_us=5_000), Stored(put=8), Stored(put=5)])
    world.join()
    assert given(world)[0][0] == 1


def test_an_idle_worker_is_woken_by_new_rows() -> None:
    """Without work it sleeps; the first row wakes it."""
    world, (first, _) = world_with(Stored())
    assert given(world) == []
    world.put(first, 1)
    assert given(world) == [[0]]


def test_a_second_worker_does_not_get_an_instance_that_runs() -> None:
    """However long its queue."""
    world, (first, *_) = world_with(Stored(), Stored(), workers=2)
    world.put(first, 1_000)
    world.put(first, 1_000)
    assert given(world) == [[0]]


def test_an_instance_is_given_again_when_its_turn_has_ended() -> None:
    """With the rows that are left."""
    world, (first, _) = world_with(Stored(), consumption=Consumption.parse("50"))
    world.put(first, 70)
    (worker,) = world.running
    world.finish(worker)
    assert [turn.assignments[0].rows_max for turn in world.turns] == [50, 20]


def test_many_short_queues_share_one_turn() -> None:
    """A turn has a cost of its own; with more queues than workers it is paid once for several."""
    world = PoolWorld(SchedulerConfig(workers=1))
    for app in range(10):
        world.add_app(AppId(app), [Stored(put=1, cost_us=1)])
    world.join()
    world.settle()
    for app in range(10):
        world.put(InstanceId(AppId(app), 0), 1)
    world.settle()
    sizes = [len(turn) for turn in given(world)]
    assert max(sizes) >= 9
    assert sum(sizes) == 20


def test_a_pack_is_bounded() -> None:
    """Its commit must stay short."""
    world = PoolWorld(SchedulerConfig(workers=1))
    for app in range(3 * PACK_MAX):
        world.add_app(AppId(app), [Stored(cost_us=1)])
    for app in range(3 * PACK_MAX):
        world.put(InstanceId(AppId(app), 0), 1)
    world.join()
    world.settle()
    for app in range(3 * PACK_MAX):
        world.put(InstanceId(AppId(app), 0), 1)
    world.settle()
    assert max(len(turn) for turn in given(world)) <= PACK_MAX


def test_a_long_queue_runs_alone() -> None:
    """Short ones beside it would have to wait for its commit."""
    world, (heavy, light, _) = world_with(Stored(cost_us=1_000), Stored(cost_us=1))
    for one in (heavy, light):
        world.put(one, 1)
        world.settle()
    world.turns.clear()
    (worker,) = world.running
    world.put(light, 1)
    world.put(heavy, 500)
    world.finish(worker)
    assert given(world) == [[1], [0]]


def test_work_is_shared_before_it_is_packed() -> None:
    """Two queues and two idle workers: one each."""
    world = PoolWorld(SchedulerConfig(workers=2))
    world.join()
    world.join()
    world.add_app(APP, [Stored(put=1), Stored(put=1)])
    assert sorted(given(world)) == [[0], [1]]


def test_an_ever_longer_queue_does_not_starve_a_short_one() -> None:
    """One worker, one flood: the single row of the other app is through soon after its patience ends."""
    world = PoolWorld(SchedulerConfig(workers=1))
    (flood, _) = world.add_app(AppId(1), [Stored(put=10_000, cost_us=100)])
    (single, _) = world.add_app(AppId(2), [Stored(cost_us=100)])
    worker = world.join()
    world.finish(worker)
    world.put(single, 1)
    waited_us = 0
    while world.stored[single].waiting:
        world.put(flood, 1_000)
        world.now_us += 5_000
        waited_us += 5_000
        world.finish(worker)
        assert waited_us < PATIENCE_US + 10 * 5_000, "the single row starves"


def test_a_lost_worker_leaves_its_rows_to_another() -> None:
    """Nobody knows whether it committed; the store is asked."""
    world, (first, _) = world_with(Stored(), workers=2)
    world.put(first, 5)
    (lost,) = [worker for worker, turn in world.running.items() if turn]
    world.lose(lost)
    assert given(world) == [[0], [0]]


def test_a_worker_lost_after_its_commit_has_not_lost_its_rows() -> None:
    """The recount finds them behind the operator: nothing is run twice."""
    world, (first, sink) = world_with(Stored(), workers=2)
    world.put(first, 5)
    (lost,) = [worker for worker, turn in world.running.items() if turn]
    world.commit(lost)
    world.lose(lost)
    world.settle()
    assert (world.stored[first].taken, world.stored[sink].put) == (5, 5)


def test_a_dismissed_worker_finishes_its_turn_and_leaves() -> None:
    """An idle one leaves at once; neither gets another turn."""
    world, (first, _) = world_with(Stored(), workers=2)
    world.put(first, 500)
    busy, idle = sorted(world.running, key=lambda worker: not world.running[worker])
    world.dismiss(idle)
    world.dismiss(busy)
    assert list(world.running) == [busy]
    world.finish(busy)
    assert (world.running, len(world.turns)) == ({}, 1)


def test_rows_for_a_sink_are_announced() -> None:
    """So that its pump need not look."""
    world, (first, sink) = world_with(Stored())
    world.put(first, 5)
    (worker,) = world.running
    effects = world.end(worker, world.commit(worker))
    assert RowsPassed((sink,)) in effects


def test_a_late_report_of_a_lost_worker_does_no_harm() -> None:
    """Its numbers are absolute, and smaller than what is known by now."""
    world, (first, second, _) = world_with(Stored(), Stored(), workers=1)
    world.put(first, 5)
    (worker,) = world.running
    reports = world.commit(worker)
    world.lose(worker)
    world.join()
    world.settle()
    before = world.scheduler.queues.find(second)
    assert before is not None
    numbers = (before.put_rows, before.taken_rows)
    for _ in range(2):
        world.handle(TurnEnded(worker, reports))
    assert (before.put_rows, before.taken_rows) == numbers


def test_trouble_halts_its_app_and_no_other() -> None:
    """The rows stay; the trouble is reported once."""
    world = PoolWorld(SchedulerConfig(workers=1))
    (bad, *_) = world.add_app(AppId(1), [Stored(put=9, cost_us=9_999), Stored()])
    (good, *_) = world.add_app(AppId(2), [Stored()])
    worker = world.join()
    (trouble,) = [effect for effect in world.end(worker, [in_trouble(bad, 0)]) if isinstance(effect, ReportTrouble)]
    assert trouble.app == 1
    world.put(bad, 5)
    world.put(good, 5)
    world.settle()
    assert (world.stored[bad].waiting, world.stored[good].waiting) == (14, 0)


def test_a_full_store_is_tried_again_after_a_while() -> None:
    """Not at once, which would only burn the processor; other queues go on."""
    world, (first, second, _) = world_with(Stored(), Stored())
    world.put(first, 5)
    (worker,) = world.running
    effects = world.end(worker, [store_full(first, 0)])
    assert any(isinstance(effect, ReportStoreFull) for effect in effects)
    world.put(second, 1)
    world.finish(worker)
    assert given(world) == [[0], [1]]
    assert world.scheduler.deadline() == RETRY_US
    world.tick(RETRY_US)
    assert given(world)[-1] == [0]


def test_a_turn_for_which_something_is_away_is_tried_again_after_a_while_and_nobody_is_blamed() -> None:
    world, (first, second, _) = world_with(Stored(), Stored())
    world.put(first, 5)
    (worker,) = world.running
    assert not [one for one in world.end(worker, [not_now(first, 0)]) if isinstance(one, ReportTrouble)]
    world.put(second, 1)
    world.finish(worker)
    assert given(world) == [[0], [1]]
    world.tick(RETRY_US)
    assert given(world)[-1] == [0]


def test_a_halted_app_stays_halted_when_its_last_turn_finds_the_store_full() -> None:
    """The turn ran while the app was halted."""
    world, (first, _) = world_with(Stored())
    world.put(first, 5)
    world.halt(APP)
    (worker,) = world.running
    world.end(worker, [store_full(first, 0)])
    world.tick(RETRY_US)
    assert given(world) == [[0]]


def test_a_late_store_full_report_does_not_let_a_second_worker_in() -> None:
    """The worker that said so is lost, another runs the queue when the news arrive and the retry is due."""
    world, (first, _) = world_with(Stored(), workers=2)
    world.put(first, 5)
    (lost,) = [worker for worker, turn in world.running.items() if turn]
    world.lose(lost)
    world.handle(TurnEnded(lost, [store_full(first, 0)]))
    world.tick(RETRY_US)
    assert [turn[0].instance for turn in world.running.values() if turn] == [first]


def hired(world: PoolWorld) -> int:
    """Let time pass until all turns count as stalled and return how many spares were asked for."""
    return sum(isinstance(effect, HireSpare) for effect in world.tick(STALLED_US + 1))


def test_a_spare_is_hired_when_all_workers_are_held_up_and_rows_wait() -> None:
    """Not while one of them is idle, not twice for one stall, and not beyond the limit."""
    world, (first, second, *_) = world_with(Stored(), Stored(), Stored(), workers=2, spares_max=1)
    world.put(first, 1)
    assert hired(world) == 0, "one worker is idle"
    world.put(second, 1)
    assert hired(world) == 0, "nothing waits"
    world.put(InstanceId(APP, 2), 1)
    assert hired(world) == 1
    assert hired(world) == 0, "one is on its way"
    spare = world.join(spare=True)
    assert world.running[spare]
    world.put(first, 1)
    assert hired(world) == 0, "the limit is one"


def test_the_deadline_of_a_stall_is_known_in_advance() -> None:
    """Nobody has to poll for it."""
    world, (first, second, _) = world_with(Stored(), Stored())
    assert world.scheduler.deadline() is None
    world.put(first, 1)
    assert world.scheduler.deadline() is None
    world.put(second, 1)
    assert world.scheduler.deadline() == STALLED_US


def test_a_spare_leaves_when_the_pool_has_not_been_held_up_for_a_while() -> None:
    """It stays through a series of stalls, since hiring costs more than keeping."""
    world, (first, second, _) = world_with(Stored(), Stored())
    world.put(first, 1)
    world.put(second, 1)
    assert hired(world) == 1
    own = next(iter(world.running))
    spare = world.join(spare=True)
    world.finish(spare)
    assert spare in world.running, "the stall has just been"
    world.finish(own)
    world.now_us += SPARE_KEPT_US + 1
    world.put(first, 1)
    for worker in [worker for worker, turn in world.running.items() if turn]:
        world.finish(worker)
    world.put(first, 1)
    world.put(second, 1)
    for worker in [worker for worker, turn in world.running.items() if turn]:
        world.finish(worker)
    assert spare not in world.running
    assert own in world.running


def test_one_worker_per_operator_binds_each_worker_to_one_queue() -> None:
    """The baseline: a worker stays idle while another's queue is full."""
    world, (first, second, _) = world_with(Stored(), Stored(), workers=2, policy=PolicyName.ONE_WORKER_PER_OPERATOR)
    assert world.scheduler.workers_wanted() == 2
    world.put(first, 1_000)
    for _ in range(3):
        (busy,) = [worker for worker, turn in world.running.items() if turn]
        assert world.running[busy][0].instance == first
        world.end(busy, [report(first, 1, 1)])
    world.put(second, 1)
    assert {turn.worker for turn in world.turns if turn.assignments[0].instance == first} == {busy}
    assert len({turn.worker for turn in world.turns}) == 2


def test_a_worker_of_the_baseline_takes_over_from_one_that_died() -> None:
    """The queue of a dead worker is free again."""
    world, (first, _) = world_with(Stored(), policy=PolicyName.ONE_WORKER_PER_OPERATOR)
    world.put(first, 5)
    (lost,) = world.running
    world.lose(lost)
    successor = world.join()
    assert world.running[successor][0].instance == first


def test_workers_of_the_baseline_move_on_when_their_flow_is_gone() -> None:
    """Each gets a queue of the next flow, and none the queue of another."""
    world, (first, second, _) = world_with(Stored(), Stored(), workers=2, policy=PolicyName.ONE_WORKER_PER_OPERATOR)
    world.put(first, 1)
    world.put(second, 1)
    world.settle()
    world.remove_app(first.app)
    world.turns.clear()
    heirs = world.add_app(AppId(2), [Stored(), Stored()])[:2]
    for one in (*heirs, *heirs):
        world.put(one, 1)
        world.settle()
    taken_by = {(turn.assignments[0].instance, turn.worker) for turn in world.turns}
    assert {one for one, _ in taken_by} == set(heirs)
    assert len(taken_by) == len({worker for _, worker in taken_by}) == 2


def test_figures_for_people_add_up() -> None:
    """Workers, idle ones, spares, ready queues, turns."""
    world, (first, *_) = world_with(Stored(), workers=2)
    world.join(spare=True)
    world.put(first, 5)
    assert world.scheduler.status() == {"workers": 3, "idle": 2, "spares": 1, "ready": 0, "turns": 0}


def test_the_running_means_follow_what_turns_cost_and_yield() -> None:
    """A filter that lets a tenth through at 20 µs a row."""
    world, (first, *_) = world_with(Stored(cost_us=20, yields=0.1))
    world.put(first, 2_000)
    world.settle()
    queue = world.scheduler.queues.find(first)
    assert queue is not None
    assert queue.cost.row_us == pytest.approx(20)
    assert queue.rows_out_per_row == pytest.approx(0.1, abs=0.2)
    assert (queue.totals.rows_in, queue.totals.rows_out) == (2_000, 200)


def test_a_worker_that_nobody_knows_changes_nothing_by_leaving() -> None:
    """News may come twice."""
    world, _ = world_with(Stored())
    world.running[WorkerId(77)] = ()
    world.lose(WorkerId(77))
    world.running[WorkerId(78)] = ()
    world.dismiss(WorkerId(78))
    assert world.scheduler.status()["workers"] == 1


def test_an_instance_that_moves_elsewhere_is_let_go_when_what_waited_is_taken() -> None:
    """What comes later is not run: it goes where the instance goes."""
    world, (first, _) = world_with(Stored(), consumption=Consumption.parse("50"))
    world.put(first, 70)
    assert LetGo(first) not in world.handle(InstanceGivenUp(first, when_taken=True))
    world.put(first, 100)
    (worker,) = world.running
    assert LetGo(first) not in world.end(worker, world.commit(worker))
    assert LetGo(first) in world.end(worker, world.commit(worker))
    assert given(world) == [[0], [0]], "a hundred rows taken are enough for the seventy that waited"


def test_an_instance_that_is_to_stay_after_all_goes_on() -> None:
    """Gained again before all was taken, it is not let go."""
    world, (first, _) = world_with(Stored(), consumption=Consumption.parse("50"))
    world.put(first, 120)
    world.handle(InstanceGivenUp(first, when_taken=True))
    world.handle(InstanceGained(first))
    (worker,) = world.running
    effects = [effect for _ in range(3) for effect in world.end(worker, world.commit(worker))]
    assert LetGo(first) not in effects
    assert given(world) == [[0]] * 3


def test_an_instance_without_rows_is_let_go_at_once() -> None:
    """There is nothing to wait for."""
    world, (first, _) = world_with(Stored())
    assert world.handle(InstanceGivenUp(first, when_taken=True)) == [LetGo(first)]
