"""One node on this machine: store, scheduler, pool and pumps put together, with apps that come and go.

    with Node(NodeConfig()) as node:
        app = node.deploy(flow)
        node.wait(app)

The store is the truth. Everything here can be lost at any moment; a node started on the same store goes on from there.
"""

import contextlib
import gc
import itertools
import logging
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final

import msgspec

from headwater.dataflow.compile import compile_flow
from headwater.dataflow.graph import Graph
from headwater.dataflow.stream import Flow
from headwater.engine.events import AppAdded, AppHalted, AppRemoved, Event
from headwater.engine.ledger import Ledger, read_ledger
from headwater.engine.opening import queues_of
from headwater.engine.plans import plan_chain, source_outlets
from headwater.engine.policies import PolicyName
from headwater.engine.positions import read_record
from headwater.engine.pressure import Pressure
from headwater.engine.queues import Queue
from headwater.engine.reports import Trouble
from headwater.engine.scheduler import Scheduler
from headwater.engine.store import app_prefixes, app_record_key, code_key, code_prefix
from headwater.model.errors import EngineError, FlowError, HeadwaterError, UserCodeError
from headwater.model.ids import AppId, InstanceId
from headwater.operators.sql import Transform
from headwater.runtime.address import NodeAddress, this_machine
from headwater.runtime.cluster import reach_master
from headwater.runtime.code import pack_plans
from headwater.runtime.config import NodeConfig, cores_here
from headwater.runtime.dispatcher import Dispatcher
from headwater.runtime.pool import Pool, SparkPool, ThreadPool
from headwater.runtime.remote_port import RemotePort
from headwater.runtime.shared_spark import SharedSpark
from headwater.runtime.sinks import SinkPump, Sinks, SinkTask, open_sink
from headwater.runtime.sources import SourcePump, SourceTask, open_source
from headwater.runtime.sql import needs_driver
from headwater.runtime.status import AppState, NodeStatus
from headwater.runtime.store import LmdbStore
from headwater.runtime.watch import node_status
from headwater.runtime.worker import now_us

log = logging.getLogger(__name__)

START_S: Final = 120.0  # for Spark and the first workers, on a small board that is busy booting
SWITCH_S: Final = 0.0005  # a pump that computes must not keep the scheduler from the interpreter for Python's 5 ms
HOUSEKEEPING_S: Final = 0.02  # how soon an ended app is noticed
RECENT_US: Final = 5_000_000
NOTES_MAX: Final = 20
RESTARTS_MAX: Final = 5  # of a lost JVM in a row before the node gives up


class AppRecord(msgspec.Struct, array_like=True, frozen=True):
    """An app as the store knows it."""

    number: int
    fingerprint: str


@dataclass(slots=True)
class App:
    """An app on this node."""

    id: AppId
    graph: Graph
    codes: tuple[int, ...]  # the number under which the code of each chain is kept
    sources: list[SourceTask]
    sinks: list[SinkTask]
    started_us: int
    state: AppState = AppState.RUNNING
    error: HeadwaterError | None = None
    ended_us: int | None = None
    draining: bool = False  # its sources are asked no more, and what is under way is let through
    settled: bool = False  # its sources and sinks are closed
    is_part: bool = False  # the rest of it is on other nodes, so that its end cannot be seen here
    kept_as: str = ""  # the name under which the store has it, if that is not the flow's
    done: threading.Event = field(default_factory=threading.Event)

    @property
    def name(self) -> str:
        """The flow's name."""
        return self.graph.name


class Node:
    """One node, embedded in this process."""

    def __init__(
        self,
        config: NodeConfig | None = None,
        *,
        on_event: Callable[[str], None] | None = None,
        on_rows_passed: Callable[[Sequence[InstanceId]], None] | None = None,
        spark: SharedSpark | None = None,
    ) -> None:
        """Open the store; nothing runs before `start`.

        `on_rows_passed` is told, instead of the sinks, of rows for queues that no worker of ours runs; `spark` is a
        session that other nodes of this process use too.
        """
        self.config = config if config is not None else NodeConfig()
        self._tell = on_event if on_event is not None else log.info
        self._on_rows_passed, self._spark = on_rows_passed, spark
        self._temporary = Path(tempfile.mkdtemp(prefix="headwater-")) if self.config.store is None else None
        directory = self._temporary if self._temporary is not None else Path(self.config.store or ".")
        self.store = LmdbStore(directory, disk_bytes=self.config.pressure.disk_bytes, power_safe=self.config.power_safe)
        self._run_directory = Path(tempfile.mkdtemp(prefix="headwater-run-"))
        self.apps: dict[str, App] = {}
        self.notes: list[str] = []
        self.pressure = Pressure(self.config.pressure)
        self._code_numbers = itertools.count(1)
        self._deploying = threading.Lock()
        self._ending = threading.Lock()
        self._settling = threading.Lock()
        self._stopping = threading.Event()
        self._stopped = False
        self._restarting = threading.Lock()
        self._restarts = 0
        self.given_up: dict[InstanceId, Callable[[], None]] = {}  # what to do when workers have let go of an instance
        self._recent_from_us = 0
        self._switch_interval_s = sys.getswitchinterval()
        try:
            self._assemble()
        except HeadwaterError:
            self._discard()
            raise

    def _assemble(self) -> None:
        self.term = self.store.own()
        self.sinks = Sinks(self._sink_pump)
        self.dispatcher = Dispatcher(
            Scheduler(self.config.scheduler()),
            self.store,
            self.term,
            on_sink_rows=self._on_rows_passed or self.sinks.rows_for,
            on_trouble=self._on_trouble,
            on_store_full=self._on_store_full,
            on_room=self._on_room,
            on_let_go=self._on_let_go,
            on_crash=self._on_crash,
        )
        self.sources = SourcePump(
            self.store,
            self.term,
            self.pressure,
            self.dispatcher.scheduler.queues,
            sample_share=self.config.sample_share,
            post=self.dispatcher.post,
            on_crash=self._on_crash,
            on_failed=lambda task, failure: self._fail_app(task.app, failure),
            on_store_full=self._on_store_full,
        )
        self.port = self._open_port()
        self._address = NodeAddress(
            machine=this_machine(),
            socket=str(self._run_directory / "workers.sock"),
            store=str(self.store.directory.resolve()),
            disk_bytes=self.store.disk_bytes,
            power_safe=self.config.power_safe,
            door=None if self.port is None else self.port.door,
            door_only=self.config.remote_port == "always",
        )
        self.pool: Pool = (
            SparkPool(
                self._run_directory,
                self._address,
                cores=cores_here(),
                cluster=self.config.cluster(),
                shared=self._spark,
            )
            if self.config.spark
            else ThreadPool(self.store, self._address)
        )
        self._driver_pool: ThreadPool | None = None
        self._housekeeper = threading.Thread(target=self._keep_house, name="housekeeper", daemon=True)

    def _open_port(self) -> RemotePort | None:
        """Open a port for workers on other machines, if there can be any."""
        master, use = self.config.spark_master, self.config.remote_port
        if use == "never" or (use == "auto" and master is None):
            return None
        host = "127.0.0.1" if master is None else reach_master(master)
        return RemotePort(self.store, self._run_directory, host)

    def _sink_pump(self) -> SinkPump:
        return SinkPump(
            self.store,
            self.term,
            post=self._post,
            on_failed=lambda task, failure: self._fail_app(task.app, failure),
            on_store_full=self._on_store_full,
            on_crash=self._on_crash,
        )

    def _on_let_go(self, instance: InstanceId) -> None:
        self.given_up.pop(instance)()

    def _on_room(self) -> None:
        self.sources.wake_paused()

    def _post(self, events: Sequence[Event]) -> None:
        self.dispatcher.post(events)

    def __enter__(self) -> "Node":
        """Start."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()

    def start(self) -> None:
        """Start Spark and the pool, and wait until the workers are there."""
        self._switch_interval_s = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        self.dispatcher.start(self._address.socket, self.port)
        self.dispatcher.use(self.pool)
        try:
            self._tell("starting Spark" if self.config.spark else "starting worker threads")
            self.pool.start(self._on_pool_broken)
            self._begin_epoch()
        except HeadwaterError:
            self.stop()
            raise
        gc.collect()
        gc.freeze()  # what is there now stays; walking it again and again would hold up the scheduler for 30 ms
        self.sources.start()
        self.sinks.start()
        self._housekeeper.start()

    def _begin_epoch(self) -> None:
        wanted = self.dispatcher.ask(self.dispatcher.workers_wanted)
        self.dispatcher.begin_epoch(wanted)
        if not self.dispatcher.wait_for_workers(wanted, START_S):
            raise EngineError(f"no {wanted} workers came up within {START_S:.0f} s; {self._where_to_look()}")

    def _where_to_look(self) -> str:
        if self.config.spark_master is None or self._address.door is None:
            return f"see {self._run_directory / 'spark.log'}"
        door = self._address.door
        return (
            f"the machines of {self.config.spark_master} need Headwater installed for {sys.executable}, and have to "
            f"reach {door.host}:{door.port}; the cluster's own logs tell more"
        )

    def deploy(self, flow: Flow) -> App:
        """Compile a flow and run it; a flow this store knows goes on where it stood."""
        graph = compile_flow(flow, chaining=self.config.chaining)
        self.check_spark(graph)
        with self._deploying:
            known = self.apps.get(graph.name)
            if known is not None and known.state is AppState.RUNNING:
                raise FlowError(
                    f"flow {graph.name!r} is already running on this node; stop it first or give it another name"
                )
            app_id, codes = self.register(graph)
            sources, sinks = self._open_connectors(app_id, graph)
            app = App(app_id, graph, codes, sources, sinks, now_us())
            self.apps[graph.name] = app
            self.begin(app)
        self._tell(f"flow {graph.name!r} runs with {graph.instance_count} queues")
        return app

    def register(self, graph: Graph, kept_as: str = "") -> tuple[AppId, tuple[int, ...]]:
        """Find or make the app's place in the store, and put its code there."""
        app = self._place_of(graph, app_record_key(kept_as or graph.name))
        packed = pack_plans([plan_chain(graph, app, chain) for chain in graph.chains])  # turns go on meanwhile
        codes = tuple(next(self._code_numbers) for _ in packed)
        with self.store.write() as txn:
            for key in [key for key, _ in txn.scan(code_prefix(app))]:
                txn.delete(key)
            for number, code in zip(codes, packed, strict=True):
                txn.put(code_key(app, number), code)
        return app, codes

    def _place_of(self, graph: Graph, place: bytes) -> AppId:
        with self.store.write() as txn:
            stored = txn.get(place)
            if stored is None:
                last = int.from_bytes(txn.get(b"!apps") or b"", "big")
                txn.put(b"!apps", (last + 1).to_bytes(4, "big"))
                record = AppRecord(last + 1, graph.fingerprint)
                txn.put(place, msgspec.msgpack.encode(record))
            else:
                record = msgspec.msgpack.decode(stored, type=AppRecord)
        if record.fingerprint != graph.fingerprint:
            raise FlowError(
                f"the store holds flow {graph.name!r} with another structure, whose rows and state do not fit; "
                "give the flow another name, or use another --store"
            )
        return AppId(record.number)

    def _open_connectors(self, app: AppId, graph: Graph) -> tuple[list[SourceTask], list[SinkTask]]:
        numbers = {declared.name: number for number, declared in enumerate(graph.declarations)}
        sources: list[SourceTask] = []
        sinks: list[SinkTask] = []
        with contextlib.ExitStack() as undo:
            for name, spec in graph.sources.items():
                task = open_source(self.store, app, name, numbers[name], spec, source_outlets(graph, name))
                undo.callback(task.reader.close)
                sources.append(task)
            for sink in graph.sinks:
                opened = open_sink(self.store, app, sink.name, numbers[sink.name], sink.instance, graph.sink(sink.name))
                undo.callback(opened.writer.close)
                sinks.append(opened)
            undo.pop_all()
        return sources, sinks

    def begin(self, app: App) -> None:
        """Let an app run; of one that is a part, workers run nothing before they are told what."""
        queues = self._queues_of(app)
        codes = {
            InstanceId(app.id, instance): number
            for number, chain in zip(app.codes, app.graph.chains, strict=True)
            for instance in chain.instances
        }
        self.dispatcher.ask(lambda: self.dispatcher.code_of.update(codes))
        self.dispatcher.ask(lambda: self.dispatcher.handle(AppAdded(app.id, queues)))
        self._hire_more()
        for sink in app.sinks:
            self.sinks.add(sink)
        for source in app.sources:
            self.sources.add(source)

    def check_spark(self, graph: Graph) -> None:
        """Refuse what needs Spark on a node without it, or more of a cluster than there is."""
        slots = self.pool.slots
        if slots is not None and self.config.policy is PolicyName.ONE_WORKER_PER_OPERATOR:
            graphs = [graph, *(app.graph for app in self.apps.values() if app.name != graph.name)]
            needed = sum(len(chain.instances) for one in graphs for chain in one.chains)
            if needed > slots // 2:
                raise FlowError(
                    f"one worker per operator needs {2 * needed} cores for two epochs, and the cluster has {slots}"
                )
        for declared in graph.declarations:
            if isinstance(declared.part, Transform) and not self.config.spark:
                raise FlowError(
                    f"{declared.part.kind} {declared.name!r} is run by Spark SQL, and this node runs without Spark"
                )
            if isinstance(declared.part, Transform) and slots == 1:
                raise FlowError(
                    f"{declared.part.kind} {declared.name!r} is run by Spark SQL, and the cluster's only core is taken "
                    "by a worker; give the cluster another"
                )

    def _hire_more(self) -> None:
        """With one worker per operator the pool grows with the apps; the first transform wants one on the driver."""
        wants_driver = any(
            needs_driver(app.graph.named_operators(one)) for app in self.apps.values() for one in app.graph.chains
        )
        if self._driver_pool is None and wants_driver:
            self._driver_pool = ThreadPool(self.store, self._address, on_driver=True)
            self._driver_pool.hire(1, self.dispatcher.epoch)
        missing = self.dispatcher.ask(lambda: self.dispatcher.workers_wanted() - len(self.dispatcher.scheduler.workers))
        if missing > 0:
            self.pool.hire(missing, self.dispatcher.epoch)

    def _queues_of(self, app: App) -> tuple[Queue, ...]:
        graph = app.graph
        on_driver = {
            number for chain in graph.chains if needs_driver(graph.named_operators(chain)) for number in chain.instances
        }
        with self.store.read() as snapshot:
            here = () if app.is_part else None
            return queues_of(snapshot, graph, app.id, now_us(), on_driver=on_driver, here=here)

    def wait(self, app: App, timeout_s: float | None = None) -> bool:
        """Wait until an app has finished or failed."""
        return app.done.wait(timeout_s)

    def drain(self, app: App, timeout_s: float) -> bool:
        """Stop an app's sources and let what is under way reach the sinks; then the app is stopped."""
        app.draining = True
        for source in app.sources:
            source.ended = True
        return self.wait(app, timeout_s)

    def halt(self, app: App) -> None:
        """Stop an app and keep what it has in the store, so that it can go on later."""
        self._end_app(app, AppState.STOPPED, None)
        self._settle(app)

    def remove(self, name: str) -> None:
        """Stop an app and delete everything the store has of it; others run on."""
        with self._deploying:
            app = self.apps.pop(name, None)
            if app is None:
                raise FlowError(
                    f"no flow {name!r} runs on this node; there are: {', '.join(sorted(self.apps)) or 'none'}"
                )
            self.halt(app)
            self.dispatcher.ask(lambda: self.dispatcher.handle(AppRemoved(app.id)))
            while self.dispatcher.ask(lambda: _runs_anywhere(self.dispatcher.scheduler, app.id)):
                time.sleep(0.002)
            self._delete(app)

    def _delete(self, app: App) -> None:
        with self.store.write() as txn:
            txn.delete(app_record_key(app.kept_as or app.name))
        for prefix in app_prefixes(app.id):
            while True:
                with self.store.write() as txn:  # in slices, so that no commit is long
                    keys = [key for key, _ in zip((key for key, _ in txn.scan(prefix)), range(1_000), strict=False)]
                    for key in keys:
                        txn.delete(key)
                if len(keys) < 1_000:
                    break

    def _end_app(self, app: App, state: AppState, error: HeadwaterError | None) -> None:
        """Let nothing of the app run any further; from any thread. What is open is closed by `_settle`."""
        with self._ending:
            if app.state is not AppState.RUNNING:
                return
            app.state, app.error, app.ended_us = state, error, now_us()
        for source in app.sources:
            source.ended = True
        self.dispatcher.post([AppHalted(app.id)])

    def _settle(self, app: App) -> None:
        """Close the sources and sinks of an app that has ended. Not from a pump's thread: it waits for the pumps."""
        with self._settling:
            if not app.settled:
                self.sources.remove(app.id)
                self.sinks.remove(app.id)
                app.settled = True
                app.done.set()

    def _fail_app(self, app_id: AppId, failure: Exception) -> None:
        app = next((one for one in self.apps.values() if one.id == app_id), None)
        if app is not None:
            error = failure if isinstance(failure, HeadwaterError) else EngineError(str(failure))
            self._end_app(app, AppState.FAILED, error)

    def _on_trouble(self, app_id: AppId, trouble: Trouble) -> None:
        app = next((one for one in self.apps.values() if one.id == app_id), None)
        if app is not None:
            error = UserCodeError(app.name, trouble.operator, trouble.error, trouble.line, trouble.row)
            self._end_app(app, AppState.FAILED, error)

    def _on_crash(self, failure: BaseException) -> None:
        """One of our own threads broke: a mistake of ours. Nothing is lost, but nothing goes on here either."""
        log.error("internal error", exc_info=failure)
        error = EngineError(f"internal error, please report it: {type(failure).__name__}: {failure}")
        for app in list(self.apps.values()):
            self._end_app(app, AppState.FAILED, error)

    def _on_store_full(self, message: str) -> None:
        self._note(message)

    def _note(self, message: str) -> None:
        if message not in self.notes:
            log.warning("%s", message)
            self.notes = [*self.notes, message][-NOTES_MAX:]

    def _on_pool_broken(self, reason: str) -> None:
        threading.Thread(target=self._restart_pool, args=(reason,), name="restart", daemon=True).start()

    def _restart_pool(self, reason: str) -> None:
        """Bring Spark back; the rows and the state are in the store and wait."""
        if not self._restarting.acquire(blocking=False):
            return
        try:
            self._note(f"Spark was lost and is being started again ({reason})")
            self.dispatcher.drop_workers()
            self._restarts += 1
            if self._restarts > RESTARTS_MAX:
                raise EngineError(f"Spark was lost {self._restarts} times; see {self._run_directory / 'spark.log'}")
            self.pool.restart()
            self._begin_epoch()
        except HeadwaterError as failure:
            for app in list(self.apps.values()):
                self._end_app(app, AppState.FAILED, failure)
        finally:
            self._restarting.release()

    def _keep_house(self) -> None:
        """Notice ended apps, begin new epochs."""
        epoch_ends = time.monotonic() + self.config.epoch_s
        while not self._stopping.wait(HOUSEKEEPING_S):
            self._forget_old_latencies()
            for app in list(self.apps.values()):
                if app.state is AppState.RUNNING and not app.is_part and self._is_finished(app):
                    self._end_app(app, AppState.STOPPED if app.draining else AppState.FINISHED, None)
                if app.state is not AppState.RUNNING and not app.settled:
                    self._settle(app)
            if time.monotonic() >= epoch_ends and not self._restarting.locked():
                epoch_ends = time.monotonic() + self.config.epoch_s
                self._restarts = 0
                self.dispatcher.begin_epoch(self.dispatcher.ask(self.dispatcher.workers_wanted))

    def _forget_old_latencies(self) -> None:
        if now_us() - self._recent_from_us > RECENT_US:
            self._recent_from_us = now_us()
            for app in list(self.apps.values()):
                for sink in app.sinks:
                    sink.forget_old()

    def _is_finished(self, app: App) -> bool:
        if not all(source.ended for source in app.sources):
            return False
        busy = self.dispatcher.ask(
            lambda: any(
                queue.has_work or queue.runs_on is not None
                for queue in self.dispatcher.scheduler.queues.all()
                if queue.instance.app == app.id
            )
        )
        return not busy

    def ledger(self, app: App) -> Ledger:
        """Add up an app's ledger as of now."""
        numbers = {declared.name: number for number, declared in enumerate(app.graph.declarations)}
        with self.store.read() as snapshot:
            counts = [read_record(snapshot, app.id, numbers[name]).counts() for name in app.graph.sources]
            return read_ledger(snapshot, app.id, app.graph, counts)

    def status(self, *, ledgers: bool = False) -> NodeStatus:
        """Return what there is to see."""
        return node_status(self, ledgers=ledgers)

    def stop(self) -> None:
        """Stop everything; what is in the store stays, unless the store was temporary."""
        if self._stopped:
            return
        self._stopped = True
        self._stopping.set()
        for app in list(self.apps.values()):
            self.halt(app)
        self.sources.stop()
        self.sinks.stop()
        pools = [self.pool] if self._driver_pool is None else [self._driver_pool, self.pool]
        for pool in pools:
            pool.expect_end()
        self.dispatcher.stop()
        for pool in pools:
            pool.stop()
        sys.setswitchinterval(self._switch_interval_s)
        gc.unfreeze()
        self._discard()

    def _discard(self) -> None:
        self.store.close()
        shutil.rmtree(self._run_directory, ignore_errors=True)
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)


def _runs_anywhere(scheduler: Scheduler, app: AppId) -> bool:
    return any(part.instance.app == app for worker in scheduler.workers.values() for part in worker.assignments)
