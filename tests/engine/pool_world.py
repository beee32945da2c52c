"""The world around a scheduler: workers, queues and a clock that moves when a test says so.

The scheduler is the real one. A worker is a turn that it was given and has not ended; the store is two numbers per
queue. Every event is followed by the scheduler's own check and by those of this world: no instance runs twice, no
worker is given a turn while it has one, and nobody is idle while there is work.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headwater.engine.events import (
    AppAdded,
    AppHalted,
    AppRemoved,
    Dismiss,
    Effect,
    Event,
    HireSpare,
    LetGo,
    Recount,
    ReportStoreFull,
    ReportTrouble,
    RowsGone,
    RowsPassed,
    RowsPut,
    RunTurn,
    SchedulerTicked,
    TurnEnded,
    WorkerDismissed,
    WorkerJoined,
    WorkerLost,
)
from headwater.engine.policies import PolicyName
from headwater.engine.queues import Queue
from headwater.engine.reports import Filled, RowTrouble, TurnReport
from headwater.engine.scheduler import Scheduler, SchedulerConfig
from headwater.engine.turn import STORE_FULL, Assignment
from headwater.model.ids import AppId, InstanceId, WorkerId

ROW_BYTES = 100


@dataclass
class Stored:
    """What the store knows of one queue."""

    put: int = 0
    taken: int = 0
    downstream: tuple[InstanceId, ...] = ()
    scheduled: bool = True
    cost_us: int = 10  # of one row
    yields: float = 1.0  # rows out for each row in

    @property
    def waiting(self) -> int:
        """Rows that lie in the queue."""
        return self.put - self.taken


@dataclass
class PoolWorld:
    """A scheduler and all that it deals with."""

    config: SchedulerConfig = field(default_factory=SchedulerConfig)
    now_us: int = 0
    stored: dict[InstanceId, Stored] = field(default_factory=dict)
    running: dict[WorkerId, tuple[Assignment, ...]] = field(default_factory=dict)  # () while idle
    dismissed: set[WorkerId] = field(default_factory=set)
    halted: set[AppId] = field(default_factory=set)
    turns: list[RunTurn] = field(default_factory=list)
    spares_hired: int = 0

    def __post_init__(self) -> None:
        """Begin without workers and apps."""
        self.scheduler = Scheduler(self.config)
        self._next_worker = 1

    def handle(self, event: Event) -> list[Effect]:
        """Tell the scheduler what happened, carry out what it wants, and check everything."""
        effects = self.scheduler.handle(event, self.now_us)
        for effect in sorted(effects, key=lambda one: isinstance(one, Recount)):  # a recount is a new event of its own
            self._carry_out(effect)
        self.check()
        return effects

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case RunTurn(worker, assignments):
                assert self.running[worker] == (), f"worker {worker} was given a turn while it has one"
                assert worker not in self.dismissed
                for part in assignments:
                    assert part.instance.app not in self.halted, f"{part.instance} of a halted app was run"
                    assert part.rows_max >= 1
                self.running[worker] = assignments
                self.turns.append(effect)
            case Dismiss(worker):
                assert self.running.pop(worker) == ()
                self.dismissed.discard(worker)
            case Recount(instances):
                self.recount({instance.app for instance in instances})
            case HireSpare():
                self.spares_hired += 1
            case ReportTrouble(app, _):
                self.halted.add(app)
            case ReportStoreFull() | RowsPassed() | LetGo():
                pass

    def check(self) -> None:
        """Raise if an instance runs twice, or a worker is idle while there is work for it."""
        self.scheduler.check()
        held = [part.instance for turn in self.running.values() for part in turn]
        assert len(held) == len(set(held)), "an instance runs on two workers"
        idle = [worker for worker, turn in self.running.items() if not turn and worker not in self.dismissed]
        if self.config.policy is not PolicyName.ONE_WORKER_PER_OPERATOR:
            assert not (idle and self.scheduler.queues.ready()), "a worker is idle while an instance is ready"

    def add_app(self, app: AppId, operators: Sequence[Stored]) -> list[InstanceId]:
        """Start an app whose operators stand in a row, each a stage of its own, with a sink at the end."""
        instances = [InstanceId(app, number) for number in range(len(operators) + 1)]
        for number, stored in enumerate([*operators, Stored(scheduled=False)]):
            stored.downstream = tuple(instances[number + 1 : number + 2])
            self.stored[instances[number]] = stored
        self.handle(AppAdded(app, tuple(self._queue(one, stage) for stage, one in enumerate(instances, 1))))
        return instances

    def _queue(self, instance: InstanceId, stage: int) -> Queue:
        stored = self.stored[instance]
        return Queue(instance, stage, stored.downstream, stored.scheduled, put_rows=stored.put, taken_rows=stored.taken)

    def remove_app(self, app: AppId) -> None:
        """Forget an app."""
        self.handle(AppRemoved(app))
        self.stored = {one: stored for one, stored in self.stored.items() if one.app != app}

    def halt(self, app: AppId) -> None:
        """Let an app go no further."""
        self.halted.add(app)
        self.handle(AppHalted(app))

    def join(self, *, spare: bool = False) -> WorkerId:
        """Let a worker ask for its first turn."""
        worker = WorkerId(self._next_worker)
        self._next_worker += 1
        self.running[worker] = ()
        self.handle(WorkerJoined(worker, spare))
        return worker

    def dismiss(self, worker: WorkerId) -> None:
        """End a worker's epoch."""
        self.dismissed.add(worker)
        self.handle(WorkerDismissed(worker))

    def put(self, instance: InstanceId, rows: int) -> None:
        """Let a source store rows."""
        stored = self.stored[instance]
        stored.put += rows
        self.handle(RowsPut(instance, stored.put, stored.put * ROW_BYTES))

    def write_out(self, sink: InstanceId) -> None:
        """Let a sink take all its rows."""
        stored = self.stored[sink]
        stored.taken = stored.put
        self.handle(RowsGone(sink, stored.taken, stored.taken * ROW_BYTES))

    def tick(self, later_us: int = 0) -> list[Effect]:
        """Let time pass."""
        self.now_us += later_us
        return self.handle(SchedulerTicked())

    def commit(self, worker: WorkerId) -> list[TurnReport]:
        """Let a worker commit its turn; nobody has heard of it yet."""
        return [self.commit_part(part) for part in self.running[worker] if part.instance in self.stored]

    def commit_part(self, part: Assignment) -> TurnReport:
        stored = self.stored[part.instance]
        rows = min(part.rows_max, stored.waiting)
        made = int((stored.taken + rows) * stored.yields) - int(stored.taken * stored.yields)
        stored.taken += rows
        filled = []
        for below in stored.downstream:
            target = self.stored[below]
            target.put += made
            filled.append(Filled(below.number, target.put, target.put * ROW_BYTES))
        return report(part.instance, rows, stored.taken, made=made, filled=filled, turn_us=rows * stored.cost_us)

    def finish(self, worker: WorkerId) -> list[TurnReport]:
        """Let a worker commit its turn and ask for the next."""
        reports = self.commit(worker)
        self.end(worker, reports)
        return reports

    def end(self, worker: WorkerId, reports: Sequence[TurnReport]) -> list[Effect]:
        """Let a worker report, whatever it did."""
        self.running[worker] = ()
        return self.handle(TurnEnded(worker, reports))

    def lose(self, worker: WorkerId) -> None:
        """Let a worker die."""
        del self.running[worker]
        self.dismissed.discard(worker)
        self.handle(WorkerLost(worker))

    def recount(self, apps: set[AppId]) -> None:
        """Tell the scheduler what the store says."""
        for instance, stored in list(self.stored.items()):
            if instance.app in apps:
                self.handle(RowsPut(instance, stored.put, stored.put * ROW_BYTES))
                self.handle(RowsGone(instance, stored.taken, stored.taken * ROW_BYTES))

    def waiting(self) -> dict[InstanceId, int]:
        """Rows that lie in the queues of operators."""
        return {
            one: stored.waiting
            for one, stored in self.stored.items()
            if stored.scheduled and one.app not in self.halted
        }

    def settle(self, until: Callable[[], bool] | None = None, turns_max: int = 10_000) -> None:
        """Let workers finish turn after turn until nothing waits."""
        for _ in range(turns_max):
            busy = [worker for worker, turn in self.running.items() if turn]
            if until() if until is not None else not busy and not any(self.waiting().values()):
                return
            if busy:
                self.finish(busy[0])
            else:
                deadline = self.scheduler.deadline()
                assert deadline is not None, f"nobody works, nothing is due, and this waits: {self.waiting()}"
                self.tick(max(0, deadline - self.now_us))
        raise AssertionError(f"after {turns_max} turns this still waits: {self.waiting()}")


def report(
    instance: InstanceId,
    rows: int,
    taken: int,
    *,
    made: int = 0,
    filled: Sequence[Filled] = (),
    turn_us: int = 0,
    trouble: RowTrouble | None = None,
    note: str = "",
) -> TurnReport:
    """Return what a worker says of a turn."""
    return TurnReport(
        app=instance.app,
        instance=instance.number,
        rows=rows,
        taken_rows=taken,
        gone_bytes=taken * ROW_BYTES,
        filled=list(filled),
        made_rows=made,
        queue_us=0,
        schedule_us=0,
        compute_us=turn_us * rows,
        turn_us=turn_us,
        trouble=trouble,
        note=note,
    )


def in_trouble(instance: InstanceId, taken: int) -> TurnReport:
    """What a worker says whose rows stop the flow."""
    return report(instance, 0, taken, trouble=RowTrouble("op", "ValueError: no", "flow.py:1", "{}"))


def store_full(instance: InstanceId, taken: int) -> TurnReport:
    """What a worker says that found no room for its commit."""
    return report(instance, 0, taken, note=f"{STORE_FULL}: no room")
