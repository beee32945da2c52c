"""The scheduler: gives turns to idle workers.

EdgeWise's fixed-size pool (section 4.2) as a state machine: events in, effects out, no clock, no thread, no Spark.
Beyond the paper it packs several short queues into one turn when there are more of them than workers, lets a short turn
follow its rows downstream into queues that were empty, asks for a spare worker when all are busy with long
computations, and finds a row that kills its worker (a poison row) by bisection.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from random import Random
from typing import Final, assert_never

from headwater.engine.events import (
    AppAdded,
    AppHalted,
    AppQuieted,
    AppRemoved,
    Dismiss,
    Effect,
    Event,
    HireSpare,
    InstanceGained,
    InstanceGivenUp,
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
    WakeWanted,
    WorkerDismissed,
    WorkerJoined,
    WorkerLost,
)
from headwater.engine.policies import Consumption, PolicyName, policy_named
from headwater.engine.queues import SMOOTHING, Queue, Queues
from headwater.engine.reports import TurnReport
from headwater.engine.turn import NOT_NOW, STORE_FULL, Assignment
from headwater.model.ids import AppId, InstanceId, WorkerId

PACK_MAX: Final = 50  # queues in one turn; their commit must stay short
PACK_US: Final = 4_000  # expected compute time of a packed turn: long enough to share its cost, short beside a good p99
STALLED_US: Final = 100_000  # a worker busy for longer does not count as one that others can wait for
SPARE_KEPT_US: Final = 10_000_000  # after the last stall; one that leaves and is hired again costs 150 ms each time
SPARE_LOST_US: Final = 5_000_000  # one that was hired and has not come by then will not come
RETRY_US: Final = 500_000  # after a commit that found no room, or a turn for which something is away
DEATHS_TO_DOUBT: Final = 2  # the first death may be anyone's fault
DEATHS_TO_CONDEMN: Final = 3  # of workers that had this one row and nothing else


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """How the pool is used."""

    workers: int = 2
    policy: PolicyName = PolicyName.LONGEST_QUEUE
    consumption: Consumption = field(default_factory=Consumption)
    pack: bool = True  # several short queues into one turn when there are more of them than workers
    follow: bool = True  # let a short turn follow its rows into the empty queues downstream
    spares_max: int = 6  # beyond the pool, while operators that compute for seconds hold its workers
    seed: int = 0


@dataclass(slots=True)
class Worker:
    """One worker as the scheduler sees it."""

    number: WorkerId
    spare: bool
    on_driver: bool = False
    assignments: tuple[Assignment, ...] = ()
    since_us: int = 0
    dismissed: bool = False
    bound_to: InstanceId | None = None  # with one worker per operator

    @property
    def idle(self) -> bool:
        """Whether it waits for a turn."""
        return not self.assignments


class Scheduler:
    """Decides which queues run on which workers."""

    def __init__(self, config: SchedulerConfig) -> None:
        self.config = config
        self.queues = Queues()
        self.workers: dict[WorkerId, Worker] = {}
        self.turns = 0
        self._policy = policy_named(config.policy, Random(config.seed))
        self._dedicated = config.policy is PolicyName.ONE_WORKER_PER_OPERATOR
        self._spares_hired = 0
        self._hired_at_us = 0
        self._stalled_at_us = 0
        self._retry_at: dict[InstanceId, int] = {}
        self._leaving: set[InstanceId] = set()  # given up, and still run by a worker
        self._emptying: dict[InstanceId, tuple[int, int]] = {}  # to be given up once so many rows and marks are taken

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        """Handle one event and give turns."""
        return self.handle_all([event], now_us)

    def handle_all(self, events: Sequence[Event], now_us: int) -> list[Effect]:
        """Handle several events, and give turns only then, so that rows which arrive together run together."""
        effects: list[Effect] = []
        for event in events:
            effects += self._note(event, now_us)
        self._dispatch(now_us, effects)
        return effects

    def deadline(self) -> int | None:
        """Return when `SchedulerTicked` is needed next."""
        busy = [worker.since_us + STALLED_US for worker in self.workers.values() if not worker.idle]
        wanted = busy if self.queues.ready() else []
        wake_us = self.queues.next_wake_us()
        return min([*wanted, *self._retry_at.values(), *([] if wake_us is None else [wake_us])], default=None)

    def workers_wanted(self) -> int:
        """Return the size that the pool should have."""
        if self._dedicated:
            return max(1, sum(_in_pool(queue) for queue in self.queues.all()))
        return self.config.workers

    def status(self) -> dict[str, int]:
        """Return the figures of the status."""
        return {
            "workers": sum(not worker.on_driver for worker in self.workers.values()),
            "idle": sum(worker.idle and not worker.on_driver for worker in self.workers.values()),
            "spares": sum(worker.spare for worker in self.workers.values()),
            "ready": len(self.queues.ready()),
            "turns": self.turns,
        }

    def check(self) -> None:
        """Raise if an instance runs twice, or a queue and a worker disagree."""
        self.queues.check()
        running = [part.instance for worker in self.workers.values() for part in worker.assignments]
        assert len(running) == len(set(running)), "an instance runs on two workers"
        for worker in self.workers.values():
            for part in worker.assignments:
                queue = self.queues.find(part.instance)
                assert queue is None or queue.runs_on == worker.number, (queue, worker)
        for queue in self.queues.all():
            assert queue.runs_on is None or queue.runs_on in self.workers, queue

    def _note(self, event: Event, now_us: int) -> list[Effect]:
        match event:
            case TurnEnded(worker, reports):
                return self._ended(worker, reports, now_us)
            case RowsPut(instance, put_rows, put_bytes, put_marks):
                self.queues.put(instance, put_rows, put_bytes, now_us, put_marks)
                queue = self.queues.find(instance)
                return [RowsPassed((instance,))] if queue is not None and not queue.scheduled else []
            case RowsGone(instance, taken_rows, gone_bytes, taken_marks):
                self.queues.took(instance, taken_rows, gone_bytes, now_us, taken_marks)
                return self._let_go(now_us)
            case WakeWanted(instance, wake_us):
                self.queues.wake_at(instance, wake_us, now_us)
                return []
            case WorkerJoined(worker, spare, on_driver):
                return self._joined(worker, spare, on_driver)
            case WorkerLost(worker, with_pool):
                return self._lost(worker, now_us, with_pool=with_pool)
            case WorkerDismissed(worker):
                return self._dismissed(worker)
            case AppAdded(_, queues):
                for queue in queues:
                    self.queues.add(queue, now_us)
                return []
            case AppRemoved(app):
                for instance in [queue.instance for queue in self.queues.all() if queue.instance.app == app]:
                    self.queues.remove(instance)
                return []
            case AppHalted(app):
                self._halt(app, now_us)
                return []
            case AppQuieted(app, is_quiet):
                for instance in [queue.instance for queue in self.queues.all() if queue.instance.app == app]:
                    self.queues.quieten(instance, is_quiet, now_us)
                return []
            case InstanceGained(instance):
                self._emptying.pop(instance, None)
                self.queues.schedule(instance, True, now_us)
                return []
            case InstanceGivenUp(instance, when_taken):
                return self._give_up(instance, when_taken, now_us)
            case SchedulerTicked():
                return self._ticked(now_us)
        assert_never(event)

    def _joined(self, number: WorkerId, spare: bool, on_driver: bool) -> list[Effect]:
        assert number not in self.workers, number
        self.workers[number] = Worker(number, spare, on_driver)
        if spare:
            self._spares_hired = max(0, self._spares_hired - 1)
        return []

    def _dismissed(self, number: WorkerId) -> list[Effect]:
        worker = self.workers.get(number)
        if worker is None:
            return []
        worker.dismissed = True
        return self._leave(worker) if worker.idle else []

    def _leave(self, worker: Worker) -> list[Effect]:
        del self.workers[worker.number]
        return [Dismiss(worker.number)]

    def _give_up(self, instance: InstanceId, when_taken: bool, now_us: int) -> list[Effect]:
        queue = self.queues.find(instance)
        if queue is None:
            return []
        if when_taken:
            self._emptying[instance] = (queue.put_rows, queue.put_marks)
        else:
            self._emptying.pop(instance, None)
            self._leaving.add(instance)
            self.queues.schedule(instance, False, now_us)
        return self._let_go(now_us)

    def _let_go(self, now_us: int) -> list[Effect]:
        """Return the instances that were given up and that no worker runs any more."""
        if not self._leaving and not self._emptying:
            return []
        for instance, (rows, marks) in list(self._emptying.items()):
            queue = self.queues.find(instance)
            if queue is None or (queue.taken_rows >= rows and queue.taken_marks >= marks):
                del self._emptying[instance]
                self._leaving.add(instance)
                self.queues.schedule(instance, False, now_us)
        free = [one for one in self._leaving if (queue := self.queues.find(one)) is None or queue.runs_on is None]
        self._leaving.difference_update(free)
        return [LetGo(one) for one in sorted(free)]

    def _ended(self, number: WorkerId, reports: Sequence[TurnReport], now_us: int) -> list[Effect]:
        worker = self.workers.get(number)
        effects: list[Effect] = []
        if worker is not None:
            self.turns += 1
            self._release(worker, now_us)
        sinks: list[InstanceId] = []
        for report in reports:
            effects += self._apply(report, sinks, now_us)
        if sinks:
            effects.append(RowsPassed(tuple(sinks)))
        effects += self._let_go(now_us)
        if worker is not None and (worker.dismissed or (worker.spare and self._at_ease(now_us))):
            effects += self._leave(worker)
        return effects

    def _release(self, worker: Worker, now_us: int) -> None:
        for part in worker.assignments:
            queue = self.queues.find(part.instance)
            if queue is not None and queue.runs_on == worker.number:
                self.queues.ended(queue, now_us)
        worker.assignments = ()
        worker.since_us = now_us

    def _apply(self, report: TurnReport, sinks: list[InstanceId], now_us: int) -> list[Effect]:
        app = AppId(report.app)
        instance = InstanceId(app, report.instance)
        queue = self.queues.find(instance)
        if queue is None:
            return []
        self.queues.took(instance, report.taken_rows, report.gone_bytes, now_us, report.taken_marks)
        self.queues.wake_at(instance, report.wake_us, now_us)
        for filled in report.filled:
            target = InstanceId(app, filled.instance)
            self.queues.put(target, filled.put_rows, filled.put_bytes, now_us, filled.put_marks)
            below = self.queues.find(target)
            if below is not None and not below.scheduled:
                sinks.append(target)
        if report.rows:
            _learn(queue, report)
            self.config.consumption.learn(queue, report.rows, report.turn_us)
        if report.trouble is not None:
            self._halt(app, now_us)
            return [ReportTrouble(app, report.trouble)]
        if report.note.startswith((STORE_FULL, NOT_NOW)):
            self._retry_at[instance] = now_us + RETRY_US
            self.queues.block(queue, True, now_us)
            return [ReportStoreFull(app, report.note)] if report.note.startswith(STORE_FULL) else []
        return []

    def _lost(self, number: WorkerId, now_us: int, *, with_pool: bool) -> list[Effect]:
        worker = self.workers.pop(number, None)
        if worker is None:
            return []
        instances = tuple(part.instance for part in worker.assignments)
        for part in worker.assignments if not with_pool else ():
            queue = self.queues.find(part.instance)
            if queue is not None:
                _doubt(queue, part)
        self._release(worker, now_us)
        return [Recount(instances), *self._let_go(now_us)] if instances else []

    def _halt(self, app: AppId, now_us: int) -> None:
        for queue in list(self.queues.all()):
            if queue.instance.app == app and queue.scheduled:
                self._retry_at.pop(queue.instance, None)
                self.queues.stop(queue.instance, now_us)

    def _ticked(self, now_us: int) -> list[Effect]:
        self.queues.wake_due(now_us)
        for instance in [one for one, at in self._retry_at.items() if at <= now_us]:
            del self._retry_at[instance]
            queue = self.queues.find(instance)
            if queue is not None:
                self.queues.block(queue, False, now_us)
        if self._dedicated or not self.queues.ready() or not self.workers:
            return []
        spares = sum(worker.spare for worker in self.workers.values()) + self._spares_hired
        if (
            _held_up([worker for worker in self.workers.values() if not worker.on_driver], now_us)
            and (self._spares_hired == 0 or now_us - self._hired_at_us > SPARE_LOST_US)
            and spares < self.config.spares_max
        ):
            self._spares_hired = 1
            self._hired_at_us = self._stalled_at_us = now_us
            return [HireSpare()]
        return []

    def _at_ease(self, now_us: int) -> bool:
        """Whether the ordinary workers have not been held up for a while, so that a spare can go."""
        own = [worker for worker in self.workers.values() if not worker.spare and not worker.on_driver]
        if _held_up(own, now_us):
            self._stalled_at_us = now_us
        return now_us - self._stalled_at_us > SPARE_KEPT_US

    def _dispatch(self, now_us: int, effects: list[Effect]) -> None:
        if not self.queues.ready() and not self.queues.ready(on_driver=True):
            return
        idle = [worker for worker in self.workers.values() if worker.idle and not worker.dismissed]
        while idle:
            worker = idle[0]
            ready = self.queues.ready(on_driver=worker.on_driver)
            chosen = self._choose(worker, now_us) if ready else []
            taker = self._used_to(chosen[0], worker) if chosen else worker
            idle.remove(taker)
            if chosen:
                effects.append(self._give(taker, chosen, self._followers(chosen), now_us))

    def _used_to(self, queue: Queue, worker: Worker) -> Worker:
        """Return the worker that ran a queue last, if it is as free as this one: it may have the state cached."""
        last = None if queue.ran_on is None else self.workers.get(queue.ran_on)
        alike = last is not None and last.idle and not last.dismissed and last.on_driver == worker.on_driver
        return last if last is not None and alike and not self._dedicated else worker

    def _choose(self, worker: Worker, now_us: int) -> Sequence[Queue]:
        if worker.on_driver:  # the overhead of a Spark job exceeds all that packing saves
            return self._policy.choose(self.queues.ready(on_driver=True), 1, self.queues.find, now_us)
        if self._dedicated:
            return self._own_queue(worker)
        ready = self.queues.ready()
        crowd = max(1, sum(not one.spare and not one.on_driver for one in self.workers.values()))
        share = min(PACK_MAX, -(-len(ready) // crowd)) if self.config.pack else 1
        return _pack(self._policy.choose(ready, share, self.queues.find, now_us), self.config.consumption)

    def _own_queue(self, worker: Worker) -> Sequence[Queue]:
        if worker.bound_to is None or self.queues.find(worker.bound_to) is None:
            bound = {one.bound_to for one in self.workers.values()}
            free = (one.instance for one in self.queues.all() if _in_pool(one) and one.instance not in bound)
            worker.bound_to = min(free, default=None)
        queue = self.queues.ready().get(worker.bound_to) if worker.bound_to is not None else None
        return [queue] if queue is not None else []

    def _followers(self, chosen: Sequence[Queue]) -> list[Queue]:
        """Return the empty queues downstream of short ones, by stage: their rows can run in the same turn."""
        if self._dedicated or not self.config.follow or chosen[0].on_driver:
            return []
        follow: list[Queue] = []
        expected_us = 0.0
        ahead = [(queue, float(self.config.consumption.rows_for(queue))) for queue in chosen if not queue.suspect]
        for queue, rows in ahead:  # the list grows meanwhile: followers may be followed
            expected_us += queue.cost.expected_us(rows) if queue.cost.known else PACK_US
            if expected_us >= PACK_US or len(chosen) + len(follow) >= PACK_MAX:
                break
            for target in queue.downstream:
                below = self.queues.find(target)
                if below is not None and _can_follow(below) and below not in follow:
                    follow.append(below)
                    ahead.append((below, rows * queue.rows_out_per_row))
        return sorted(follow, key=attrgetter("stage"))

    def _give(self, worker: Worker, chosen: Sequence[Queue], follow: Sequence[Queue], now_us: int) -> Effect:
        parts = []
        for queue in chosen:
            rows = self.config.consumption.rows_for(queue)
            parts.append(Assignment(queue.instance, rows, _verdict(queue)))
            self.queues.started(queue, worker.number, rows, now_us)
        for queue in follow:
            rows = self.config.consumption.rows_at_most(queue)
            parts.append(Assignment(queue.instance, rows))
            self.queues.reserve(queue, worker.number, rows, now_us)
        worker.assignments = tuple(parts)
        worker.since_us = now_us
        return RunTurn(worker.number, worker.assignments)


def _held_up(workers: Sequence[Worker], now_us: int) -> bool:
    return all(not worker.idle and now_us - worker.since_us > STALLED_US for worker in workers)


def _in_pool(queue: Queue) -> bool:
    """Whether workers of the pool run it."""
    return queue.scheduled and not queue.on_driver


def _can_follow(queue: Queue) -> bool:
    """Whether an empty queue may be reserved for a turn upstream: it has run before, and has not killed a worker."""
    return queue.free and not queue.on_driver and not queue.has_work and not queue.suspect and queue.cost.known


def _pack(chosen: Sequence[Queue], consumption: Consumption) -> Sequence[Queue]:
    """Keep the first, and as many of the others as stay short together."""
    if len(chosen) == 1 or chosen[0].suspect:
        return chosen[:1]
    packed: list[Queue] = []
    expected_us = 0.0
    for queue in chosen:
        # One that has never run may compute for seconds, and would delay the others of the pack.
        cost = queue.cost.expected_us(consumption.rows_for(queue)) if queue.cost.known else PACK_US
        if packed and (expected_us + cost > PACK_US or queue.suspect):
            break
        packed.append(queue)
        expected_us += cost
    return packed


def _learn(queue: Queue, report: TurnReport) -> None:
    """Update the means of a row's cost and output; a successful turn clears suspicion."""
    queue.cost.learn(report.rows, report.turn_us)
    queue.rows_out_per_row += SMOOTHING * (report.made_rows / report.rows - queue.rows_out_per_row)
    if queue.followed:  # it counted as empty while the turn made and ran its rows
        queue.empty_us -= report.turn_us
    queue.deaths = 0
    if queue.rows_limit is not None:
        queue.rows_limit = queue.rows_limit * 2 if queue.rows_limit < Consumption.ROWS_MAX else None
    totals = queue.totals
    totals.rows_in += report.rows
    totals.rows_out += report.made_rows
    totals.turns += 1
    totals.queue_us += report.queue_us
    totals.schedule_us += report.schedule_us
    totals.compute_us += report.compute_us
    totals.busy_us += report.turn_us


def _doubt(queue: Queue, part: Assignment) -> None:
    """Record that a worker died on these rows: from the second time on it gets half of them (bisection)."""
    alone_before = queue.rows_limit == 1
    queue.deaths += 1
    if queue.deaths >= DEATHS_TO_DOUBT and not alone_before:
        queue.rows_limit = max(1, part.rows_max // 2)
        queue.deaths = DEATHS_TO_DOUBT - 1 if queue.rows_limit > 1 else 0


def _verdict(queue: Queue) -> str:
    if queue.rows_limit == 1 and queue.deaths >= DEATHS_TO_CONDEMN:
        return f"the worker process died {queue.deaths} times in a row on this row alone"
    return ""
