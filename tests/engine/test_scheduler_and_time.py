"""The scheduler gives turns for marks and for the clock too, keeps transforms on the driver, and workers to queues."""

from headwater.engine.events import (
    AppAdded,
    AppQuieted,
    Effect,
    RowsPassed,
    RowsPut,
    RunTurn,
    SchedulerTicked,
    TurnEnded,
    WakeWanted,
    WorkerJoined,
)
from headwater.engine.queues import Queue
from headwater.engine.reports import TurnReport
from headwater.engine.scheduler import Scheduler, SchedulerConfig
from headwater.model.ids import AppId, InstanceId, WorkerId
from tests.engine.pool_world import report

APP = AppId(1)
ONE, TWO = InstanceId(APP, 0), InstanceId(APP, 1)


def scheduler_with(*queues: Queue, workers: int = 1) -> Scheduler:
    """Return a scheduler that knows these queues and so many workers."""
    scheduler = Scheduler(SchedulerConfig(workers=workers))
    scheduler.handle(AppAdded(APP, queues), 0)
    for number in range(workers):
        scheduler.handle(WorkerJoined(WorkerId(number)), 0)
    return scheduler


def turns(effects: list[Effect]) -> list[tuple[int, list[InstanceId]]]:
    """Return which worker was given which instances."""
    return [(one.worker, [part.instance for part in one.assignments]) for one in effects if isinstance(one, RunTurn)]


def done(instance: InstanceId, taken: int = 0, *, wake_us: int | None = None, taken_marks: int = 0) -> TurnReport:
    """Return the report of a turn."""
    told = report(instance, 0, taken)
    return TurnReport(
        **{name: getattr(told, name) for name in told.__struct_fields__}
        | {"wake_us": wake_us, "taken_marks": taken_marks}
    )


def test_a_mark_alone_is_worth_a_turn() -> None:
    """It carries no row, but somebody downstream may be waiting for it; once taken, it is worth none."""
    scheduler = scheduler_with(Queue(ONE))
    assert turns(scheduler.handle(RowsPut(ONE, 0, 0, put_marks=1), 5)) == [(0, [ONE])]
    assert turns(scheduler.handle(TurnEnded(WorkerId(0), [done(ONE, taken_marks=1)]), 6)) == []
    scheduler.check()


def test_a_turn_is_given_when_the_clock_has_come_to_what_was_asked_for() -> None:
    """Not before; the deadline says when; and only once."""
    scheduler = scheduler_with(Queue(ONE))
    scheduler.handle(WakeWanted(ONE, 500), 0)
    assert scheduler.deadline() == 500
    assert turns(scheduler.handle(SchedulerTicked(), 499)) == []
    assert turns(scheduler.handle(SchedulerTicked(), 500)) == [(0, [ONE])]
    assert turns(scheduler.handle(TurnEnded(WorkerId(0), [done(ONE)]), 501)) == []
    assert scheduler.deadline() is None
    scheduler.check()


def test_a_report_says_when_to_come_again() -> None:
    """A wish that has already come true is granted at once."""
    scheduler = scheduler_with(Queue(ONE, put_rows=1))
    ended = scheduler.handle(TurnEnded(WorkerId(0), [done(ONE, 1, wake_us=900)]), 100)
    assert (turns(ended), scheduler.deadline()) == ([], 900)
    again = scheduler.handle(WakeWanted(ONE, 50), 101)
    assert turns(again) == [(0, [ONE])]


def test_an_app_that_is_known_to_want_the_clock_gets_it_from_the_start() -> None:
    """A node that comes back finds the wish in the store."""
    scheduler = scheduler_with(Queue(ONE, wake_us=70))
    assert scheduler.deadline() == 70


def test_a_queue_for_the_driver_waits_for_a_worker_there() -> None:
    """Workers of the pool leave it alone, and the one on the driver leaves theirs."""
    scheduler = scheduler_with(Queue(ONE, on_driver=True), Queue(TWO))
    assert turns(scheduler.handle(RowsPut(ONE, 5, 50), 1)) == []
    assert turns(scheduler.handle(WorkerJoined(WorkerId(7), on_driver=True), 2)) == [(7, [ONE])]
    assert turns(scheduler.handle(RowsPut(TWO, 5, 50), 3)) == [(0, [TWO])]
    assert (scheduler.status()["workers"], scheduler.workers_wanted()) == (1, 1)
    scheduler.check()


def test_a_worker_gets_the_queue_that_it_ran_before() -> None:
    """It may remember the state of its keys; but nobody waits for it."""
    scheduler = scheduler_with(Queue(ONE), Queue(TWO), workers=2)
    assert turns(scheduler.handle(RowsPut(ONE, 1, 10), 1)) == [(0, [ONE])]
    assert turns(scheduler.handle(RowsPut(TWO, 1, 10), 1)) == [(1, [TWO])]
    scheduler.handle(TurnEnded(WorkerId(0), [done(ONE, 1)]), 2)
    scheduler.handle(TurnEnded(WorkerId(1), [done(TWO, 1)]), 2)
    assert turns(scheduler.handle(RowsPut(TWO, 2, 20), 3)) == [(1, [TWO])]
    assert turns(scheduler.handle(RowsPut(ONE, 2, 20), 3)) == [(0, [ONE])]


def test_rows_that_a_source_puts_straight_into_a_sink_are_told_to_it() -> None:
    """No turn does."""
    scheduler = scheduler_with(Queue(ONE, scheduled=False))
    assert scheduler.handle(RowsPut(ONE, 1, 10), 1) == [RowsPassed((ONE,))]


def test_the_clock_gives_a_quiet_app_no_turn_but_its_rows_do_and_what_is_due_is_not_forgotten() -> None:
    """So that an app comes to rest once its rows are through; when it is quiet no more, the clock has its say."""
    scheduler = scheduler_with(Queue(ONE))
    scheduler.handle(WakeWanted(ONE, 500), 0)
    scheduler.handle(AppQuieted(APP, True), 10)
    assert turns(scheduler.handle(SchedulerTicked(), 600)) == []
    assert turns(scheduler.handle(RowsPut(ONE, 1, 10), 601)) == [(0, [ONE])]
    assert turns(scheduler.handle(TurnEnded(WorkerId(0), [done(ONE, 1, wake_us=700)]), 602)) == []
    assert turns(scheduler.handle(SchedulerTicked(), 800)) == []
    assert turns(scheduler.handle(AppQuieted(APP, False), 801)) == [(0, [ONE])]
    scheduler.check()
