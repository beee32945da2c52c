"""A node's engine in the simulator: the real scheduler, turns, queues and ledger, no Spark, threads or clocks.

A worker's turn takes as long as its rows and its commit do in virtual time, and happens at its end: a node that crashes
before has done nothing of it. Sources are polled when they are due. A sink's rows are in the world a while before the
commit that takes them. What the store holds outlives the node, as a disk does.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Final, assert_never

import msgspec

from headwater.control.messages.events import (
    AppClosed,
    AppOpened,
    AwaitInstance,
    EmptyInstance,
    InstanceClosed,
    InstanceOpened,
    NodeEvent,
    NoteRowsGone,
    NoteRowsPut,
    RowsWaited,
    StartInstance,
    StopInstance,
)
from headwater.dataflow.connectors import Idle, Position, SinkWriter
from headwater.dataflow.graph import Graph
from headwater.engine.channels import ORIGIN_BYTES, make_outbox, make_outboxes
from headwater.engine.cuts import Unsettled, doubts_of, unsettled
from headwater.engine.events import (
    AppAdded,
    AppHalted,
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
    WorkerJoined,
    WorkerLost,
)
from headwater.engine.keyed_state import StateMemory
from headwater.engine.ledger import Ledger, read_ledger
from headwater.engine.moving import all_lots, begin_under
from headwater.engine.plans import ChainPlan, plan_chain, source_outlets
from headwater.engine.positions import read_record
from headwater.engine.pressure import Pressure, PressureConfig, room_left
from headwater.engine.queue_loading import queues_of, wake_us_of
from headwater.engine.queue_records import QueueRecord
from headwater.engine.recount import queues_in_doubt, recounted
from headwater.engine.reports import TurnReport
from headwater.engine.scheduler import Scheduler, SchedulerConfig
from headwater.engine.schemas import Schemas
from headwater.engine.sink_turn import OpenSink, SinkTurn, Written, keep_beginning
from headwater.engine.source_turn import Offer, OpenSource, SourceTurn, tell_stored
from headwater.engine.turn import Assignment, TurnRunner
from headwater.model.errors import StoreFull
from headwater.model.ids import AppId, InstanceId, WorkerId
from headwater.model.peers import NodeId
from headwater.model.store_contract import Store, Transaction
from headwater.model.store_layout import LAST_APP_KEY, NAME_KEY, TERM_KEY, app_prefixes, app_record_key
from headwater.model.terms import Lot
from headwater.model.time import MILLISECOND, SECOND, Instant
from headwater.operators.chain import OpenChain
from headwater.storage.memory_store import MemoryStore

BEGAN_US: Final = 1_767_225_600 * SECOND  # for operators, virtual time begins with the first instant of 2026
ALL: Final = 1 << 40
WORKERS: Final = 2
HIRED_AFTER: Final = SECOND  # Spark starts a task again, and the worker in it has to connect
RETRY: Final = 500 * MILLISECOND  # after a commit of a source or a sink that found no room
TURN_US: Final = 200  # of a turn, however few rows it has
ROW_US: Final = 10
TICK: Final = 5 * MILLISECOND  # between two checks of the scheduler's deadline, as on a real node
POLL_ROWS: Final = 100
# The rate of a source that has no pace of its own grows from slow to fast: a flow of some hundred rows would else be
# through before the first fault strikes, and one of 100,000 still ends after a hundred seconds.
FIRST_ROWS_PER_S: Final = 2.0
DOUBLES_IN: Final = 8 * SECOND
RATE_DOUBLINGS_MAX: Final = 20
POLLS_PER_S: Final = 4
BUSY_ROWS: Final = 5_000  # waiting in an app's queues; above it its sources pause (backpressure)
ROOM_BYTES: Final = 4 << 20  # of an app's rows; above it rows of other nodes are refused


class Fate(Enum):
    """In which step of its turn a worker dies."""

    COMPUTING = "computing"
    COMMITTED = "committed"


@dataclass(slots=True)
class Disk:
    """How long a commit takes, and whether there is room for one."""

    rng: Random
    slow_us: Callable[[], int]  # the most that a slow disk adds
    commit_us: int = 300
    is_full: bool = False

    def takes_us(self) -> int:
        """Draw how long the next commit takes."""
        slow_us = self.slow_us()
        return self.commit_us + (self.rng.randrange(slow_us) if slow_us else 0)


class StoreOfTurns:
    """A store as turns have it: it refuses what they commit while the disk is full."""

    def __init__(self, store: Store, disk: Disk) -> None:
        self._store, self._disk = store, disk
        self.read = store.read

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """Open a transaction, which commits nothing if there is no room for it."""
        with self._store.write() as txn:
            yield txn
            if self._disk.is_full:
                raise StoreFull("the disk is full")


class SimulatedAppRecord(msgspec.Struct, array_like=True, frozen=True):
    """An app's record in the store."""

    name: str
    number: int
    key: bytes
    flow: bytes


@dataclass(slots=True, kw_only=True)
class SimulatedSource(OpenSource):
    """A source at work."""

    due: Instant
    since: Instant
    has_pace: bool = False  # of its own: it has said when to ask again
    in_hand: Offer | None = None  # what it has brought and the store had no room for

    def rows_per_s(self, now: Instant) -> float:
        """Return its rate, if it has no pace of its own."""
        return FIRST_ROWS_PER_S * math.exp2(min((now - self.since) / DOUBLES_IN, RATE_DOUBLINGS_MAX))


@dataclass(slots=True)
class PlantApp:
    """An app that has queues here."""

    id: AppId
    graph: Graph
    plans: dict[InstanceId, tuple[ChainPlan, OpenChain]]
    here: set[int] = field(default_factory=set)
    sources: dict[int, SimulatedSource] = field(default_factory=dict)  # by number among the sources
    sinks: dict[int, OpenSink] = field(default_factory=dict)  # by the number of their queue
    trouble: str | None = None

    def is_sink(self, number: int) -> bool:
        """Whether an instance is the queue of a sink."""
        return any(sink.instance == number for sink in self.graph.sinks)


OpenWriter = Callable[[str, str, Position | None], SinkWriter]


class SimulatedEngine:
    """One node's engine."""

    store: Store

    def __init__(self, store: MemoryStore, disk: Disk, graph_of: Callable[[bytes], Graph], writer: OpenWriter) -> None:
        """Begin on a store, new or not; `writer` opens what an app's sink writes to."""
        self.store, self.disk, self._graph_of, self._open_writer = store, disk, graph_of, writer
        self.schemas = Schemas()
        self.name, self._term = self._own()
        self.apps: dict[str, PlantApp] = {}
        self.offline_until = Instant(0)  # the devices behind the sources are away until then
        self._scheduler = Scheduler(SchedulerConfig(workers=WORKERS, spares_max=1))
        self._memory = StateMemory()
        self._turns: dict[WorkerId, tuple[Instant, tuple[Assignment, ...]]] = {}
        pressure = Pressure(PressureConfig(app_rows=BUSY_ROWS))
        self._turns_store = StoreOfTurns(store, disk)
        self._source_turn = SourceTurn(
            self._turns_store, self._term, lambda: self._now_us, pressure, self._scheduler.queues
        )
        self._sink_turn = SinkTurn(self._turns_store, self._term, lambda: self._now_us)
        self._sinks_due: dict[InstanceId, Instant] = {}
        self._written: dict[InstanceId, tuple[Instant, Written]] = {}  # and when the commit behind it is
        self._news: list[NodeEvent] = []
        self.now = Instant(0)
        self.dooms: list[Fate] = []  # how the workers of the next turns die
        self.workers_lost = 0
        self._bereft: set[InstanceId] = set()  # instances whose last turn was lost with its worker
        self._last_worker = 0
        self._hired: list[tuple[Instant, bool]] = []  # when the next workers join, and whether they are spares
        for _ in range(WORKERS):
            self._join(spare=False)

    def _own(self) -> tuple[bytes, bytes]:
        with self.store.write() as txn:
            name = txn.get(NAME_KEY) or self.disk.rng.randbytes(ORIGIN_BYTES)
            term = (int.from_bytes(txn.get(TERM_KEY) or b"", "big") + 1).to_bytes(8, "big")
            txn.put(NAME_KEY, name)
            txn.put(TERM_KEY, term)
        return name, term

    @property
    def _now_us(self) -> int:
        return BEGAN_US + self.now

    def room_bytes(self, app: AppId) -> int:
        """Return how many bytes an app's queues may still take."""
        _, part = self._app_of(InstanceId(app, 0))
        return room_left(self._scheduler.queues, app, part.here, ROOM_BYTES)

    def plan(self, instance: InstanceId) -> ChainPlan | None:
        """Return the plan of an instance; None if it is a sink's queue."""
        _, app = self._app_of(instance)
        return app.plans[instance][0] if instance in app.plans else None

    def lots(self, app: str) -> dict[int, Lot]:
        """Return the lots of the instances of an app that are here, whether they run or not."""
        with self.store.read() as snapshot:
            return all_lots(snapshot, self.apps[app].id)

    def holds(self, app: str) -> bool:
        """Whether the store has anything of an app."""
        return app in self.apps

    # --- what the node wants ------------------------------------------------------------------------------------------

    def reopen(self, now: Instant) -> list[NodeEvent]:
        """Open the apps that the store has from before a restart; report queues with rows to send on."""
        self.now = now
        with self.store.read() as snapshot:
            records = [msgspec.msgpack.decode(packed, type=SimulatedAppRecord) for _, packed in snapshot.scan(b"A")]
        for record in records:
            self._open(record)
        return self._told()

    def carry_out(
        self,
        effect: StartInstance | AwaitInstance | EmptyInstance | StopInstance | NoteRowsPut | NoteRowsGone,
        now: Instant,
    ) -> list[NodeEvent]:
        """Carry out an effect of the node, and return the events that follow."""
        self.now = now
        match effect:
            case StartInstance(name, instance, _, _, flow, key, lot, _):
                app = self.apps.get(name) or self._register(name, key, flow)
                if instance < 0:
                    self._read(app, -1 - instance)
                else:
                    self._begin(app, instance, lot)
                    self._run(name, app, instance)
            case AwaitInstance(name, _, flow, key):
                if name not in self.apps:
                    self._register(name, key, flow)
            case EmptyInstance(name, instance):
                app = self.apps[name]
                self._run(name, app, instance)
                self._tell(InstanceGivenUp(InstanceId(app.id, instance), when_taken=True))
            case StopInstance(name, instance):
                if name in self.apps:
                    self._stop(name, self.apps[name], instance)
            case NoteRowsPut(identity, record):
                self._tell(RowsPut(identity, record.put_rows, record.put_bytes, record.put_marks))
            case NoteRowsGone(identity, record):
                self._tell(_gone(identity, record))
        return self._told()

    def forget(self, name: str, now: Instant) -> list[NodeEvent]:
        """Remove an app that has ended, and all that is left of it."""
        self.now = now
        app = self.apps.pop(name, None)
        if app is None:
            return []
        self._tell(AppRemoved(app.id))
        self._sinks_due = {one: at for one, at in self._sinks_due.items() if one.app != app.id}
        self._written = {one: written for one, written in self._written.items() if one.app != app.id}
        with self.store.write() as txn:
            txn.delete(app_record_key(name))
            for prefix in app_prefixes(app.id):
                for key in [key for key, _ in txn.scan(prefix)]:
                    txn.delete(key)
        self._news.append(AppClosed(name))
        return self._told()

    def _register(self, name: str, key: NodeId, flow: bytes) -> PlantApp:
        with self.store.write() as txn:
            number = int.from_bytes(txn.get(LAST_APP_KEY) or b"", "big") + 1
            record = SimulatedAppRecord(name, number, key, flow)
            txn.put(LAST_APP_KEY, number.to_bytes(4, "big"))
            txn.put(app_record_key(name), msgspec.msgpack.encode(record))
        return self._open(record)

    def _open(self, record: SimulatedAppRecord) -> PlantApp:
        graph, app_id = self._graph_of(record.flow), AppId(record.number)
        plans = {
            InstanceId(app_id, number): (plan, plan.open())
            for chain in graph.chains
            for plan in [plan_chain(graph, app_id, chain)]
            for number in chain.instances
        }
        app = self.apps[record.name] = PlantApp(app_id, graph, plans)
        with self.store.write() as txn:
            make_outboxes(txn, app_id, range(graph.instance_count), self.schemas)
        with self.store.read() as snapshot:
            queues = queues_of(snapshot, graph, app_id, self._now_us, here=())
        self._tell(AppAdded(app_id, queues))
        self._news.append(AppOpened(record.name, app_id, NodeId(record.key)))
        for queue in queues:
            if queue.has_work:
                self._news.append(RowsWaited(record.name, queue.instance.number))
        return app

    def _begin(self, app: PlantApp, number: int, lot: Lot) -> None:
        """Put an instance under the lot of this placement in the store."""
        instance = InstanceId(app.id, number)
        with self.store.write() as txn:
            begin_under(txn, self.plan(instance), instance, lot, app.here)

    def _run(self, name: str, app: PlantApp, number: int) -> None:
        instance, is_news = InstanceId(app.id, number), number not in app.here
        app.here.add(number)
        if not app.is_sink(number):
            self._tell(InstanceGained(instance))
            with self.store.read() as snapshot:
                self._tell(WakeWanted(instance, wake_us_of(snapshot, app.graph, instance, self._now_us)))
        elif is_news:
            self._open_sink(name, app, instance)
        if is_news:
            self._news.append(InstanceOpened(name, number))

    def _stop(self, name: str, app: PlantApp, number: int) -> None:
        if number < 0:
            source = app.sources.pop(-1 - number, None)
            if source is not None:
                if source.in_hand is not None:
                    self._source_turn.let_go([source.in_hand])
                source.reader.close()
        elif app.is_sink(number):
            self._gave_up(name, app, InstanceId(app.id, number))
        elif number in app.here:
            self._tell(InstanceGivenUp(InstanceId(app.id, number)))

    def _gave_up(self, name: str, app: PlantApp, instance: InstanceId) -> None:
        """Turn the queue of an instance that nobody runs here any more into an outbox."""
        self._written.pop(instance, None)  # not committed: whoever opens the sink again cuts it off
        self._sinks_due.pop(instance, None)
        with self.store.write() as txn:
            make_outbox(txn, instance, self.schemas)
        app.here.discard(instance.number)
        self._news.append(InstanceClosed(name, instance.number))

    def _read(self, app: PlantApp, number: int) -> None:
        if number in app.sources:
            return
        name = list(app.graph.sources)[number]
        declared = [one.name for one in app.graph.declarations].index(name)
        with self.store.read() as snapshot:
            record = read_record(snapshot, app.id, declared)
        spec = app.graph.sources[name]
        app.sources[number] = SimulatedSource(
            app=app.id,
            name=name,
            number=declared,
            reader=spec.open(record.position),
            outlets=source_outlets(app.graph, name),
            record=record,
            can_wait=spec.can_wait,
            due=self.now,
            since=self.now,
        )

    def _open_sink(self, name: str, app: PlantApp, instance: InstanceId) -> None:
        sink = next(sink.name for sink in app.graph.sinks if sink.instance == instance.number)
        declared = [one.name for one in app.graph.declarations].index(sink)
        with self.store.read() as snapshot:
            record = read_record(snapshot, app.id, declared)
        writer = self._open_writer(name, sink, record.position)
        if record.position is None:
            keep_beginning(self.store, app.id, declared, writer)
        app.sinks[instance.number] = OpenSink(app=app.id, name=sink, number=declared, instance=instance, writer=writer)
        self._sinks_due[instance] = Instant(self.now + self.disk.takes_us())

    # --- time ---------------------------------------------------------------------------------------------------------

    def deadline(self) -> Instant | None:
        """Return when the next turn, sink, source or timer is due."""
        return min(self._dues(), default=None)

    def _dues(self) -> Iterator[Instant]:
        yield from (at for at, _ in self._turns.values())
        yield from (at for at, _ in self._hired)
        yield from (at for one, at in self._sinks_due.items() if one not in self._written)
        yield from (at for at, _ in self._written.values())
        for _, source in self._reading():
            yield max(source.due, self.offline_until)
        wake_us = self._scheduler.deadline()
        if wake_us is not None:
            yield Instant(max(self.now + TICK, wake_us - BEGAN_US))

    def _reading(self) -> Iterator[tuple[PlantApp, SimulatedSource]]:
        for app in self.apps.values():
            if app.trouble is None:
                yield from ((app, source) for source in app.sources.values() if not source.ended)

    def advance(self, now: Instant) -> list[NodeEvent]:
        """End the turns, write out the sinks and poll the sources that are due."""
        self.now = now
        for at, spare in [one for one in self._hired if one[0] <= now]:
            self._hired.remove((at, spare))
            self._join(spare=spare)
        for worker, (at, assignments) in list(self._turns.items()):
            if at <= now:
                del self._turns[worker]
                self._end_turn(worker, assignments)
        for instance, (at, _) in list(self._written.items()):
            if at <= now:
                self._commit_written(instance)
        for instance, at in list(self._sinks_due.items()):
            if at <= now and instance not in self._written:
                del self._sinks_due[instance]
                self._write(instance)
        if self.offline_until <= now:
            for _, source in list(self._reading()):
                if source.due <= now:
                    self._poll(source)
        self._tell(SchedulerTicked())
        return self._told()

    def _end_turn(self, worker: WorkerId, assignments: tuple[Assignment, ...]) -> None:
        """Let a worker come to the end of its turn, or die in it: before the commit, or with nobody told of it.

        Not twice in a row on the same instance: a row that is there whenever a worker dies is condemned in the end.
        """
        instances = {one.instance for one in assignments}
        fate = self.dooms.pop(0) if self.dooms and not instances & self._bereft else None
        if fate is None:
            self._bereft -= instances
            self._tell(TurnEnded(worker, self._turn(assignments)))
            return
        if fate is Fate.COMMITTED:
            self._turn(assignments)
        self.workers_lost += 1
        self._bereft |= instances
        self._hired.append((Instant(self.now + HIRED_AFTER), False))
        self._tell(WorkerLost(worker))

    def _join(self, *, spare: bool) -> None:
        self._last_worker += 1
        self._tell(WorkerJoined(WorkerId(self._last_worker), spare))

    def _told(self) -> list[NodeEvent]:
        news, self._news = self._news, []
        return news

    def _turn(self, assignments: tuple[Assignment, ...]) -> list[TurnReport]:
        chains = {identity: opened for app in self.apps.values() for identity, opened in app.plans.items()}
        known = [one for one in assignments if one.instance in chains]
        runner = TurnRunner(self._turns_store, self._term, chains, lambda: self._now_us, self.schemas, self._memory)
        return runner.run(known)

    def _poll(self, source: SimulatedSource) -> None:
        if source.in_hand is not None:
            self._store_offer(source, source.in_hand)
            return
        self._source_turn.measure()
        allowed = self._source_turn.rows_allowed(source)
        if allowed == 0:
            source.due = Instant(self.now + 20 * MILLISECOND)
            return
        rate = source.rows_per_s(self.now)
        rows_max = POLL_ROWS if source.has_pace else min(POLL_ROWS, max(1, round(rate / POLLS_PER_S)))
        answer = self._source_turn.ask(source, min(rows_max, allowed))
        if isinstance(answer, Idle):
            source.has_pace = True
            source.due = Instant(max(self.now + MILLISECOND, answer.until_us - BEGAN_US))
            return
        self._store_offer(source, answer)

    def _store_offer(self, source: SimulatedSource, offer: Offer) -> None:
        """Commit what a source has brought; while there is no room, the rows stay in its hands."""
        try:
            events = self._source_turn.commit([offer])
        except StoreFull:
            source.in_hand, source.due = offer, Instant(self.now + RETRY)
            return
        source.in_hand = None
        self._source_turn.let_go([offer])
        for event in events:
            self._tell(event)
        tell_stored(offer)
        rate, rows = source.rows_per_s(self.now), 0 if offer.rows is None else offer.rows.batch.num_rows
        pause_us = 0 if source.has_pace else round(rows * SECOND / rate)
        source.due = Instant(self.now + max(pause_us, MILLISECOND + self.disk.takes_us()))

    def _write(self, instance: InstanceId) -> None:
        """Let a sink write some of what waits; the commit takes its time, and a crash before it undoes the write."""
        _, app = self._app_of(instance)
        written = self._sink_turn.write(app.sinks[instance.number])
        if written is not None:
            self._written[instance] = (Instant(self.now + self.disk.takes_us()), written)

    def _commit_written(self, instance: InstanceId) -> None:
        """Commit what a sink has written; while there is no room, committing again is safe."""
        _, written = self._written.pop(instance)
        try:
            events = self._sink_turn.commit([written])
        except StoreFull:
            self._written[instance] = (Instant(self.now + RETRY), written)
            return
        for event in events:
            self._tell(event)
        if written.leaves_more:
            self._sinks_due[instance] = self.now

    def _app_of(self, instance: InstanceId) -> tuple[str, PlantApp]:
        return next((name, app) for name, app in self.apps.items() if app.id == instance.app)

    # --- the scheduler ------------------------------------------------------------------------------------------------

    def _tell(self, event: Event) -> None:
        for effect in self._scheduler.handle(event, self._now_us):
            self._do(effect)

    def _do(self, effect: Effect) -> None:
        match effect:
            case RunTurn(worker, assignments):
                rows = sum(min(one.rows_max, self._waiting(one.instance)) for one in assignments)
                takes_us = TURN_US + ROW_US * rows + self.disk.takes_us()
                self._turns[worker] = (Instant(self.now + takes_us), assignments)
            case RowsPassed(instances):
                for instance in instances:
                    self._rows_passed(instance)
            case LetGo(instance):
                name, app = self._app_of(instance)
                self._gave_up(name, app, instance)
            case ReportTrouble(app_id, trouble):
                _, app = self._app_of(InstanceId(app_id, 0))
                app.trouble = f"{trouble.operator}: {trouble.error}"
                self._tell(AppHalted(app_id))
            case Recount(instances):
                self._recount(instances)
            case HireSpare():
                self._hired.append((Instant(self.now + HIRED_AFTER), True))
            case Dismiss() | ReportStoreFull():
                pass  # whoever is dismissed is asked no more, and a full disk is told to nobody here
            case _:
                assert_never(effect)

    def _recount(self, lost: Sequence[InstanceId]) -> None:
        queues = queues_in_doubt(self._scheduler.queues.all(), lost)
        with self.store.read() as snapshot:
            events = recounted(snapshot, queues)
        for event in events:
            self._tell(event)
        for queue in queues:
            if not queue.scheduled:
                self._rows_passed(queue.instance)

    def _waiting(self, instance: InstanceId) -> int:
        queue = self._scheduler.queues.find(instance)
        return 0 if queue is None else queue.waiting

    def _rows_passed(self, instance: InstanceId) -> None:
        name, app = self._app_of(instance)
        if instance.number not in app.here:
            self._news.append(RowsWaited(name, instance.number))
        elif app.is_sink(instance.number):
            self._sinks_due.setdefault(instance, Instant(self.now + self.disk.takes_us()))

    # --- looking in ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise if the scheduler contradicts itself."""
        self._scheduler.check()

    def is_done(self, name: str) -> bool:
        """Whether all sources that are read here have ended, and nothing waits in any queue of an app."""
        app = self.apps[name]
        queues = (queue for queue in self._scheduler.queues.all() if queue.instance.app == app.id)
        busy = any(one.instance.app == app.id for _, turn in self._turns.values() for one in turn)
        with self.store.read() as snapshot:
            in_doubt = any(True for _ in doubts_of(snapshot, app.id))
        is_read = all(source.ended for source in app.sources.values())
        return is_read and not busy and not in_doubt and not any(queue.has_work for queue in queues)

    def ledger(self, name: str) -> Ledger:
        """Add up this node's part of an app's ledger."""
        return ledger_in(self.store, self.apps[name].graph, self.apps[name].id)


def ledger_in(store: Store, graph: Graph, app: AppId) -> Ledger:
    """Add up the ledger of an app in one store."""
    names = [declared.name for declared in graph.declarations]
    with store.read() as snapshot:
        sources = [read_record(snapshot, app, names.index(name)).counts() for name in graph.sources]
        return read_ledger(snapshot, app, graph, sources)


def unsettled_in(store: Store, name: str, graph: Graph) -> Unsettled:
    """Return what of an app in one store a host that was lost may have to answer for."""
    with store.read() as snapshot:
        packed = snapshot.get(app_record_key(name))
        if packed is None:
            return Unsettled()
        number = AppId(msgspec.msgpack.decode(packed, type=SimulatedAppRecord).number)
        return unsettled(snapshot, number, range(graph.instance_count))


def _gone(instance: InstanceId, record: QueueRecord) -> RowsGone:
    return RowsGone(instance, record.taken_rows + record.shed_rows, record.gone_bytes, record.taken_marks)
