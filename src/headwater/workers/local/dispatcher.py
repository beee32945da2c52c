"""The scheduler with its connections: worker messages in, turns out, on one event loop thread.

Only that thread uses the `Scheduler`: whatever happens is passed to it as an event, from other threads with `post`.
"""

import asyncio
import functools
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, assert_never

import uvloop

from headwater.engine.events import (
    Dismiss,
    Effect,
    Event,
    HireSpare,
    LetGo,
    Recount,
    ReportStoreFull,
    ReportTrouble,
    RowsPassed,
    RunTurn,
    SchedulerTicked,
    TurnEnded,
    WorkerDismissed,
    WorkerJoined,
    WorkerLost,
)
from headwater.engine.recount import queues_in_doubt, recounted
from headwater.engine.reports import RowTrouble
from headwater.engine.scheduler import Scheduler
from headwater.model.decoding import UNDECODABLE
from headwater.model.errors import EngineError
from headwater.model.frames import BrokenFrame
from headwater.model.ids import AppId, InstanceId, WorkerId
from headwater.spark.log_context import thread_of
from headwater.storage.lmdb_store import LmdbStore
from headwater.workers.clock import now_us
from headwater.workers.local.pool import Pool
from headwater.workers.local.wire import (
    HEARTBEAT_S,
    Done,
    Goodbye,
    Hello,
    NodeAlive,
    Turn,
    TurnPart,
    cut_frames,
    frame,
    from_worker,
)

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0  # how soon who asks the scheduler notices that its thread has ended
TICK_S: Final = 0.025  # how soon a stall or an ended app is noticed


class Port(Protocol):
    """Another way for workers to connect."""

    async def listen(self, dispatcher: "Dispatcher") -> None:
        """Accept workers, on the running loop."""
        ...

    def close(self) -> None:
        """Accept no more workers."""
        ...


class Connection(asyncio.Protocol):
    """The node's end of one worker's connection."""

    def __init__(self, dispatcher: "Dispatcher", number: WorkerId) -> None:
        """Begin before the worker's hello."""
        self._dispatcher = dispatcher
        self.number = number
        self.hello: Hello | None = None
        self.transport: Any = None
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Split the data into messages and pass them on."""
        self._buffer += data
        try:
            for encoded in cut_frames(self._buffer):
                self._dispatcher.heard(self, from_worker.decode(encoded))
        except (BrokenFrame, *UNDECODABLE) as damage:
            log.error("worker %s sent what is no message, and is dropped: %s", self.number, damage)
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report that the worker is lost."""
        self._dispatcher.hung_up(self)

    def send(self, message: Turn | NodeAlive | Goodbye) -> None:
        self.transport.write(frame(message))


class Dispatcher:
    """Runs the scheduler on its thread."""

    def __init__(
        self,
        scheduler: Scheduler,
        store: LmdbStore,
        term: bytes,
        *,
        on_sink_rows: Callable[[Sequence[InstanceId]], None],
        on_trouble: Callable[[AppId, RowTrouble], None],
        on_store_full: Callable[[str], None],
        on_room: Callable[[], None],
        on_let_go: Callable[[InstanceId], None],
        on_crash: Callable[[BaseException], None],
        on_mistake: Callable[[BaseException], None],
    ) -> None:
        """Begin without workers; the callbacks carry out the scheduler's effects."""
        self.scheduler = scheduler
        self.epoch = 0
        self.workers_lost = 0
        self.code_of: dict[InstanceId, int] = {}
        self._store, self._term = store, term
        self._on_sink_rows, self._on_trouble = on_sink_rows, on_trouble
        self._on_store_full, self._on_room, self._on_crash = on_store_full, on_room, on_crash
        self._on_let_go, self._on_mistake = on_let_go, on_mistake
        self._connections: dict[WorkerId, Connection] = {}
        self._next_worker = 0
        self._pool: Pool | None = None
        self._posted: deque[Event] = deque()
        self._post_pending = False
        self._joined = threading.Condition()
        self._loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._thread = thread_of(self._run, name="scheduler", on_death=on_crash)
        self._server: asyncio.Server | None = None
        self._port: Port | None = None
        self._closing = False

    def start(self, address: str, port: Port | None = None) -> None:
        """Listen for workers of this machine, and on `port` for those of others."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(address, port), self._loop).result()

    def use(self, pool: Pool) -> None:
        """Hire from this pool."""
        self._pool = pool

    def post(self, events: Sequence[Event]) -> None:
        """Pass events to the scheduler, from any thread."""
        self._posted.extend(events)
        if not self._post_pending:
            self._post_pending = True
            self._call(self._take_posted)

    def ask(self, question: Callable[[], Any]) -> Any:
        """Call a function on the scheduler's thread and return its result."""
        if threading.current_thread() is self._thread:
            return question()
        asked = asyncio.run_coroutine_threadsafe(_as_coroutine(question), self._loop)
        while True:
            try:
                return asked.result(LOOK_S)
            except TimeoutError:
                if asked.done():  # the question itself has raised it
                    raise
                if not self._thread.is_alive():
                    raise EngineError("the scheduler of this node has ended, and answers nothing any more") from None

    def begin_epoch(self, count: int) -> None:
        """Hire the workers of the next epoch; the old ones are dismissed once these have joined."""
        assert self._pool is not None
        self.epoch += 1
        self.ask(lambda: self._make_room(count))
        self._pool.hire(count, self.epoch)

    def workers_wanted(self) -> int:
        """Return the number of workers to have; with a limit on slots, half of these are left for the next epoch."""
        wanted = self.scheduler.workers_wanted()
        slots = self._pool.slots if self._pool is not None else None
        return wanted if slots is None else max(1, min(wanted, slots // 2))

    def wait_for_workers(self, count: int, timeout_s: float, is_in_vain: Callable[[], bool] = lambda: False) -> bool:
        """Wait until so many workers of the current epoch have joined, or that is in vain (`look_again`)."""
        with self._joined:
            self._joined.wait_for(lambda: self._count_of_epoch() >= count or is_in_vain(), timeout_s)
            return self._count_of_epoch() >= count

    def look_again(self) -> None:
        """Have those who wait for workers look whether that is in vain."""
        with self._joined:
            self._joined.notify_all()

    def drop_workers(self) -> None:
        """Close the connections of the pool's workers: the pool is lost; who works beside Spark is still there."""
        self.ask(lambda: [connection.transport.abort() for connection in self._in_slots()])

    def worker_pids(self) -> list[int]:
        """Return the process ids of the workers."""
        pids: list[int] = self.ask(
            lambda: [
                one.hello.pid for one in self._connections.values() if one.hello is not None and not one.hello.on_driver
            ]
        )
        return pids

    def stop(self) -> None:
        """Dismiss all workers and end the thread."""
        self._closing = True
        self._call(self._close)
        self._thread.join(timeout=10)

    def heard(self, connection: Connection, message: Hello | Done) -> None:
        """Act on a worker's message."""
        match message:
            case Done(reports):
                self.handle(TurnEnded(connection.number, reports))
                self._on_room()
            case Hello(_, epoch, spare, on_driver):
                connection.hello = message
                self._connections[connection.number] = connection
                self.handle(WorkerJoined(connection.number, spare, on_driver))
                if epoch < self.epoch and not spare and not on_driver:
                    self.handle(WorkerDismissed(connection.number))
                self._retire_old_epoch()

    def hung_up(self, connection: Connection) -> None:
        """Handle the loss of a connection."""
        known = self._connections.pop(connection.number, None)
        if known is not None and connection.number in self.scheduler.workers:
            self.workers_lost += 1
            assert connection.hello is not None
            pool_is_up = connection.hello.on_driver or self._pool is None or self._pool.is_up
            self.handle(WorkerLost(connection.number, with_pool=not pool_is_up))
            self._store.forget_dead_readers()

    def handle(self, event: Event) -> None:
        """Give the scheduler an event and carry out its effects."""
        for effect in self.scheduler.handle(event, now_us()):
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case RunTurn(worker, assignments):
                parts = [
                    TurnPart(
                        one.instance.app, one.instance.number, self.code_of[one.instance], one.rows_max, one.condemn
                    )
                    for one in assignments
                ]
                self._connections[worker].send(Turn(self._term, parts))
            case RowsPassed(instances):
                self._on_sink_rows(instances)
            case Dismiss(worker):
                self._connections[worker].send(Goodbye())
            case Recount(instances):
                self._recount(instances)
            case HireSpare():
                assert self._pool is not None
                if self._pool.slots is not None and len(self._in_slots()) + 1 >= self._pool.slots:
                    return  # the last slot is for the jobs of transforms
                hire = functools.partial(self._pool.hire, 1, self.epoch, spare=True)
                thread_of(hire, name="spare", on_death=self._on_mistake).start()
            case ReportTrouble(app, trouble):
                self._on_trouble(app, trouble)
            case ReportStoreFull(_, message):
                self._on_store_full(message)
            case LetGo(instance):
                self._on_let_go(instance)
            case _:
                assert_never(effect)

    def _recount(self, instances: Sequence[InstanceId]) -> None:
        """Read what the store says of the apps whose turn was lost; the sinks may have got rows too."""
        queues = queues_in_doubt(self.scheduler.queues.all(), instances)
        with self._store.read() as snapshot:
            events = recounted(snapshot, queues)
        for event in events:
            self.handle(event)
        self._on_sink_rows([queue.instance for queue in queues if not queue.scheduled])

    def _retire_old_epoch(self) -> None:
        with self._joined:
            self._joined.notify_all()
        if self._count_of_epoch() >= self.workers_wanted():
            for connection in list(self._connections.values()):
                hello = connection.hello
                if hello is not None and not hello.spare and not hello.on_driver and hello.epoch < self.epoch:
                    self.handle(WorkerDismissed(connection.number))

    def _make_room(self, count: int) -> None:
        """Dismiss workers, spares first, so that the next epoch's tasks find slots; else they would wait for ever."""
        assert self._pool is not None
        if self._pool.slots is None:
            return
        workers = sorted(self._in_slots(), key=lambda one: one.hello is None or not one.hello.spare)
        for connection in workers[: max(0, len(workers) + count - self._pool.slots)]:
            self.handle(WorkerDismissed(connection.number))

    def _in_slots(self) -> list[Connection]:
        return [one for one in self._connections.values() if one.hello is not None and not one.hello.on_driver]

    def _count_of_epoch(self) -> int:
        hellos = [one.hello for one in list(self._connections.values())]
        return sum(
            hello is not None and hello.epoch == self.epoch and not hello.spare and not hello.on_driver
            for hello in hellos
        )

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(self._crashed)
        self._loop.call_later(TICK_S, self._tick)
        self._loop.call_later(HEARTBEAT_S, self._beat)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def _crashed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._on_crash(context.get("exception") or RuntimeError(str(context.get("message"))))

    async def _listen(self, address: str, port: Port | None) -> None:
        self._server = await self._loop.create_unix_server(lambda: Connection(self, self.next_worker()), address)
        self._port = port
        if port is not None:
            await port.listen(self)

    def next_worker(self) -> WorkerId:
        """Return a number for a new connection."""
        self._next_worker += 1
        return WorkerId(self._next_worker)

    def _take_posted(self) -> None:
        self._post_pending = False
        events = [self._posted.popleft() for _ in range(len(self._posted))]
        for effect in self.scheduler.handle_all(events, now_us()):
            self._carry_out(effect)
        self._on_room()

    def _tick(self) -> None:
        deadline = self.scheduler.deadline()
        if deadline is not None and deadline <= now_us():
            self.handle(SchedulerTicked())
        self._loop.call_later(TICK_S, self._tick)

    def _beat(self) -> None:
        for connection in self._connections.values():
            connection.send(NodeAlive())
        self._loop.call_later(HEARTBEAT_S, self._beat)

    def _close(self) -> None:
        for connection in list(self._connections.values()):
            connection.send(Goodbye())
            connection.transport.close()
        if self._server is not None:
            self._server.close()
        if self._port is not None:
            self._port.close()
        self._loop.call_later(0.05, self._loop.stop)  # after the goodbyes have been sent

    def _call(self, function: Callable[[], object]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function)


async def _as_coroutine(question: Callable[[], Any]) -> Any:
    return question()
