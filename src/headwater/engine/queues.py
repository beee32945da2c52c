"""The scheduler's view of the queues: what waits where, which worker runs it, and how long each queue was empty.

Counts of rows put and taken only grow and are absolute, so updates are idempotent and may come in any order: the larger
number is the later one.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from headwater.model.ids import InstanceId, WorkerId

SMOOTHING: Final = 0.2  # weight of the newest turn in the running means of cost and output
FEW_ROWS: Final = 32  # rows of a turn: twice as many cost little more, whatever the operator does


@dataclass(slots=True)
class TurnCost:
    """The cost of a turn by its rows: a fixed part and a part per row, fitted to recent turns (least squares).

    Without the fixed part, an operator that gets its rows one by one would seem a hundred times dearer than it is.
    """

    weight: float = 0.0
    rows: float = 0.0
    cost_us: float = 0.0
    rows_squared: float = 0.0
    rows_cost: float = 0.0

    def learn(self, rows: int, cost_us: float) -> None:
        """Add a turn; the weight of older ones decays."""
        kept = 1.0 - SMOOTHING
        self.weight = self.weight * kept + 1.0
        self.rows = self.rows * kept + rows
        self.cost_us = self.cost_us * kept + cost_us
        self.rows_squared = self.rows_squared * kept + rows * rows
        self.rows_cost = self.rows_cost * kept + rows * cost_us

    @property
    def known(self) -> bool:
        """Whether there has been a turn."""
        return self.weight > 0

    @property
    def row_us(self) -> float:
        """The mean cost of a row, with its share of the fixed part; 1 before the first turn."""
        return self.cost_us / self.rows if self.rows else 1.0

    def expected_us(self, rows: float) -> float:
        """Return the expected cost of a turn of so many rows."""
        mean_rows, mean_cost = self.rows / self.weight, self.cost_us / self.weight
        per_row = self._per_row_us()
        if per_row is None:  # the fixed part is unknown, so more rows may cost proportionally more
            per_row = mean_cost / mean_rows if rows > mean_rows else 0.0
        return mean_cost + per_row * (rows - mean_rows)

    @property
    def fixed_us(self) -> float:
        """The cost of a turn without its rows, as far as known; turns of few rows may be all fixed cost."""
        if not self.known or self.rows <= 0:
            return 0.0
        mean_rows, mean_cost = self.rows / self.weight, self.cost_us / self.weight
        per_row = self._per_row_us()
        if per_row is None:
            return mean_cost if mean_rows <= FEW_ROWS else 0.0
        return mean_cost - per_row * mean_rows

    def _per_row_us(self) -> float | None:
        """Return the cost of an additional row; None if all turns had about as many rows."""
        mean_rows, mean_cost = self.rows / self.weight, self.cost_us / self.weight
        spread = self.rows_squared / self.weight - mean_rows * mean_rows
        if spread <= 0.01 * mean_rows * mean_rows:
            return None
        together = self.rows_cost / self.weight - mean_rows * mean_cost
        return min(max(together / spread, 0.0), mean_cost / mean_rows)


@dataclass(slots=True)
class Totals:
    """Sums for an instance since the node began, from which rates and means are computed."""

    rows_in: int = 0
    rows_out: int = 0
    turns: int = 0
    queue_us: int = 0
    schedule_us: int = 0
    compute_us: int = 0
    busy_us: int = 0


@dataclass(slots=True)
class Queue:
    """One instance as the scheduler sees it."""

    instance: InstanceId
    stage: int = 0
    downstream: tuple[InstanceId, ...] = ()
    scheduled: bool = True  # False for the queue of a sink, which a pump empties, and of an instance elsewhere
    on_driver: bool = False  # only a worker beside the Spark session can run it
    put_rows: int = 0
    taken_rows: int = 0
    put_bytes: int = 0
    gone_bytes: int = 0
    put_marks: int = 0
    taken_marks: int = 0
    wake_us: int | None = None  # when it wants a turn, even without new rows
    due: bool = False  # that instant has come
    quiet: bool = False  # its timers are stopped
    runs_on: WorkerId | None = None
    ran_on: WorkerId | None = None  # the worker that ran it last, and may have its state cached
    rows_given: int = 0  # to the worker that runs it
    reserved: bool = False  # the worker has yet to fill it: until then it counts as empty
    followed: bool = False  # its last turn followed rows from upstream
    stopped: bool = False  # its app has ended
    blocked: bool = False  # its last commit found no room; it is retried later
    ready_since_us: int = 0
    cost: TurnCost = field(default_factory=TurnCost)
    rows_out_per_row: float = 1.0
    rows_wanted: int = 64  # per turn, with adaptive consumption
    deaths: int = 0  # workers lost on this instance since its last good turn
    rows_limit: int | None = None  # rows per turn while a poison row is being looked for
    empty_since_us: int | None = 0
    empty_us: int = 0  # total time without any row waiting or running
    totals: Totals = field(default_factory=Totals)

    @property
    def waiting(self) -> int:
        """Rows that wait."""
        return self.put_rows - self.taken_rows

    @property
    def bytes_held(self) -> int:
        """Bytes of entries that are not used up."""
        return self.put_bytes - self.gone_bytes

    @property
    def ready(self) -> bool:
        """Whether a worker could run it now."""
        return self.has_work and self.free

    @property
    def has_work(self) -> bool:
        """Whether there is anything to do: rows, marks, or a timer."""
        return self.put_rows > self.taken_rows or self.put_marks > self.taken_marks or self.due

    @property
    def free(self) -> bool:
        """Whether a worker could run it, if rows waited."""
        return self.runs_on is None and self.scheduled and not self.stopped and not self.blocked

    @property
    def suspect(self) -> bool:
        """Whether it may hold a row that kills workers (a poison row)."""
        return self.deaths > 0 or self.rows_limit is not None

    def empty_total_us(self, now_us: int) -> int:
        """Return for how long the queue has been empty, up to now."""
        running = now_us - self.empty_since_us if self.empty_since_us is not None else 0
        return self.empty_us + max(0, running)


class Queues:
    """All queues of a node."""

    def __init__(self) -> None:
        self._queues: dict[InstanceId, Queue] = {}
        self._ready: dict[InstanceId, Queue] = {}
        self._ready_on_driver: dict[InstanceId, Queue] = {}
        self._wakes: dict[InstanceId, int] = {}
        self.bytes_held = 0  # over all queues; a running sum, since pressure is measured continuously
        self.rows_of_app: dict[int, int] = {}

    def __len__(self) -> int:
        """Return the number of queues."""
        return len(self._queues)

    def add(self, queue: Queue, now_us: int) -> None:
        """Add a queue, in the place of an earlier one."""
        queue.empty_since_us = None if queue.waiting else now_us
        self.remove(queue.instance)
        self._queues[queue.instance] = queue
        self._count(queue, queue.waiting, queue.bytes_held)
        self.wake_at(queue.instance, queue.wake_us, now_us)

    def remove(self, instance: InstanceId) -> None:
        queue = self._queues.pop(instance, None)
        if queue is not None:
            self._count(queue, -queue.waiting, -queue.bytes_held)
        self._ready.pop(instance, None)
        self._ready_on_driver.pop(instance, None)
        self._wakes.pop(instance, None)
        if not any(other.app == instance.app for other in self._queues):
            self.rows_of_app.pop(instance.app, None)

    def find(self, instance: InstanceId) -> Queue | None:
        """Return a queue, or None if its app is gone."""
        return self._queues.get(instance)

    def all(self) -> Iterable[Queue]:
        return self._queues.values()

    def ready(self, *, on_driver: bool = False) -> dict[InstanceId, Queue]:
        """Return the queues that a worker of the pool, or one on the driver, could run now."""
        return self._ready_on_driver if on_driver else self._ready

    def put(self, instance: InstanceId, put_rows: int, put_bytes: int, now_us: int, put_marks: int = 0) -> None:
        """Note how much was ever put."""
        queue = self._queues.get(instance)
        if queue is not None:
            before = queue.waiting, queue.bytes_held
            queue.put_rows = max(queue.put_rows, put_rows)
            queue.put_bytes = max(queue.put_bytes, put_bytes)
            queue.put_marks = max(queue.put_marks, put_marks)
            self._count(queue, queue.waiting - before[0], queue.bytes_held - before[1])
            self._refresh(queue, now_us)

    def took(self, instance: InstanceId, taken_rows: int, gone_bytes: int, now_us: int, taken_marks: int = 0) -> None:
        """Note how much was ever taken."""
        queue = self._queues.get(instance)
        if queue is not None:
            before = queue.waiting, queue.bytes_held
            queue.taken_rows = max(queue.taken_rows, taken_rows)
            queue.gone_bytes = max(queue.gone_bytes, gone_bytes)
            queue.put_rows = max(queue.put_rows, queue.taken_rows)
            queue.put_bytes = max(queue.put_bytes, queue.gone_bytes)
            queue.taken_marks = max(queue.taken_marks, taken_marks)
            queue.put_marks = max(queue.put_marks, queue.taken_marks)
            self._count(queue, queue.waiting - before[0], queue.bytes_held - before[1])
            self._refresh(queue, now_us)

    def wake_at(self, instance: InstanceId, wake_us: int | None, now_us: int) -> None:
        """Set when a queue wants a turn, even without new rows."""
        queue = self._queues.get(instance)
        if queue is not None:
            queue.wake_us = wake_us
            queue.due = wake_us is not None and wake_us <= now_us and not queue.quiet
            if wake_us is None or queue.due or queue.quiet:
                self._wakes.pop(instance, None)
            else:
                self._wakes[instance] = wake_us
            self._refresh(queue, now_us)

    def next_wake_us(self) -> int | None:
        """Return the time of the next timer."""
        return min(self._wakes.values(), default=None)

    def wake_due(self, now_us: int) -> None:
        """Make the queues ready whose instant has come."""
        for instance in [one for one, wake_us in self._wakes.items() if wake_us <= now_us]:
            self.wake_at(instance, self._wakes[instance], now_us)

    def started(self, queue: Queue, worker: WorkerId, rows: int, now_us: int) -> None:
        """Record that a worker runs it: one at most, to keep the order."""
        assert queue.ready, queue
        queue.runs_on = worker
        queue.rows_given = rows
        self._refresh(queue, now_us)

    def reserve(self, queue: Queue, worker: WorkerId, rows: int, now_us: int) -> None:
        """Record that a worker will run it after filling it: rows that others put there wait for that worker."""
        assert queue.free, queue
        assert not queue.has_work, queue
        queue.runs_on = worker
        queue.rows_given = rows
        queue.reserved = True
        self._refresh(queue, now_us)

    def ended(self, queue: Queue, now_us: int) -> None:
        """Record that its worker has finished."""
        queue.ran_on, queue.runs_on = queue.runs_on, None
        queue.rows_given = 0
        queue.followed, queue.reserved = queue.reserved, False
        self._refresh(queue, now_us)

    def stop(self, instance: InstanceId, now_us: int) -> None:
        """Let no worker run it from here on; its rows stay."""
        queue = self._queues.get(instance)
        if queue is not None:
            queue.stopped = True
            self._refresh(queue, now_us)

    def schedule(self, instance: InstanceId, scheduled: bool, now_us: int) -> None:
        """Set whether workers run it: whether its instance is here."""
        queue = self._queues.get(instance)
        if queue is not None:
            queue.scheduled = scheduled
            self._refresh(queue, now_us)

    def quieten(self, instance: InstanceId, quiet: bool, now_us: int) -> None:
        """Stop its timers, or start them again."""
        queue = self._queues.get(instance)
        if queue is not None:
            queue.quiet = quiet
            self.wake_at(instance, queue.wake_us, now_us)

    def block(self, queue: Queue, blocked: bool, now_us: int) -> None:
        """Keep workers from it after a failed commit, or let them run it again."""
        queue.blocked = blocked
        self._refresh(queue, now_us)

    def _count(self, queue: Queue, rows: int, size: int) -> None:
        app = queue.instance.app
        self.rows_of_app[app] = self.rows_of_app.get(app, 0) + rows
        self.bytes_held += size

    def _refresh(self, queue: Queue, now_us: int) -> None:
        waiting = queue.put_rows - queue.taken_rows
        among = self._ready_on_driver if queue.on_driver else self._ready
        if not queue.ready:
            among.pop(queue.instance, None)
        elif queue.instance not in among:
            queue.ready_since_us = now_us
            among[queue.instance] = queue
        empty = waiting == 0 and (queue.runs_on is None or queue.reserved)
        if empty and queue.empty_since_us is None:
            queue.empty_since_us = now_us
        elif not empty and queue.empty_since_us is not None:
            queue.empty_us += max(0, now_us - queue.empty_since_us)
            queue.empty_since_us = None

    def check(self) -> None:
        """Raise if the bookkeeping contradicts itself."""
        for instance, queue in self._queues.items():
            assert queue.instance == instance
            assert queue.put_rows >= queue.taken_rows >= 0, queue
            assert (instance in self.ready(on_driver=queue.on_driver)) == queue.ready, queue
            idle = queue.runs_on is None or queue.reserved
            assert (queue.empty_since_us is not None) == (queue.waiting == 0 and idle), queue
        assert self._ready.keys() <= self._queues.keys()
        assert self.bytes_held == sum(queue.bytes_held for queue in self._queues.values())
        assert sum(self.rows_of_app.values()) == sum(queue.waiting for queue in self._queues.values())
