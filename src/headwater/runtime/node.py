"""One node on this machine: store, scheduler, workers and pumps, with apps that come and go.

    with Node(NodeConfig()) as node:
        app = node.deploy(flow)
        node.wait(app)

The store is the only durable state. Everything here can be lost at any moment; a node started on the same store
resumes.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final

from headwater.dataflow.compile import compile_flow
from headwater.dataflow.graph import Graph
from headwater.dataflow.manifest import manifest_of
from headwater.dataflow.stream import Flow
from headwater.engine.events import AppAdded, AppHalted, AppRemoved, Event
from headwater.engine.ledger import Ledger
from headwater.engine.plans import source_outlets
from headwater.engine.pressure import Pressure
from headwater.engine.queue_loading import queues_of
from headwater.engine.queues import Queue
from headwater.engine.reports import RowTrouble
from headwater.engine.scheduler import Scheduler
from headwater.engine.status import AppState, NodeStatus
from headwater.model.errors import EngineError, FlowError, HeadwaterError, StoreError, StoreTaken, UserCodeError
from headwater.model.ids import AppId, InstanceId
from headwater.runtime.app import NodeApp
from headwater.runtime.mistakes import Mistakes
from headwater.runtime.node_status import node_status
from headwater.runtime.process_tuning import this_process
from headwater.runtime.registry import Registry, Upgrade
from headwater.runtime.sinks import SinkPump, Sinks, SinkTask, close_sink, open_sink
from headwater.runtime.sources import SourcePump, SourceTask, close_source, open_source
from headwater.spark.address import NodeAddress, this_machine
from headwater.spark.log_context import thread_of
from headwater.spark.sql import needs_driver
from headwater.spark.standalone import reach_master
from headwater.storage.lmdb_store import LmdbStore
from headwater.storage.temporary import Temporary
from headwater.workers.clock import now_us
from headwater.workers.config import NodeConfig
from headwater.workers.local.code import pack_graph
from headwater.workers.local.dispatcher import Dispatcher
from headwater.workers.local.pool import Pool
from headwater.workers.local.shared_session import SharedSpark
from headwater.workers.local.workforce import Workforce
from headwater.workers.remote.remote_port import RemotePort

log = logging.getLogger(__name__)

HOUSEKEEPING_S: Final = 0.02  # how soon an ended app is noticed
HOUSE_END_S: Final = 10.0  # what is being closed for an app that has ended may wait for a broker
AGAIN_S: Final = 1.0  # after a duty that was not done
RECENT_US: Final = 5_000_000
NOTES_MAX: Final = 20


class Node:
    """One node, embedded in this process."""

    def __init__(
        self,
        config: NodeConfig | None = None,
        *,
        on_event: Callable[[str], None] | None = None,
        on_rows_passed: Callable[[Sequence[InstanceId]], None] | None = None,
        spark: SharedSpark | None = None,
        mistakes: Mistakes | None = None,
        on_broken: Callable[[], None] = lambda: None,
    ) -> None:
        """Open the store; nothing runs before `start`.

        `on_rows_passed` is told, instead of the sinks, of rows for queues that no worker of ours runs; `spark` is a
        session that other nodes of this process use too. `on_broken` is called, on any thread, when a mistake of ours
        has ended what all apps here need.
        """
        self.config = config if config is not None else NodeConfig()
        self._tell = on_event if on_event is not None else log.info
        self._on_rows_passed, self._spark, self._on_broken = on_rows_passed, spark, on_broken
        self.mistakes = Mistakes() if mistakes is None else mistakes
        self._temporary = Temporary("store") if self.config.store is None else None
        directory = self._temporary.path if self._temporary is not None else Path(self.config.store or ".")
        self.store = LmdbStore(directory, disk_bytes=self.config.pressure.disk_bytes, power_safe=self.config.power_safe)
        self._run = Temporary("run", has_sockets=True)
        self._run_directory = self._run.path
        self.apps: dict[str, NodeApp] = {}
        self.notes: list[str] = []
        self._broken = ""  # why nothing goes on here
        self.pressure = Pressure(self.config.pressure)
        self._deploying = threading.Lock()
        self._ending = threading.Lock()
        self._settling = threading.Lock()
        self._stopping = threading.Event()
        self._stopped = False
        self.given_up: dict[InstanceId, Callable[[], None]] = {}  # called when workers have released an instance
        self._recent_from_us = 0
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
            on_crash=self.broke,
            on_mistake=partial(self.mistakes.note, "the hiring of a spare worker"),
        )
        self.sources = SourcePump(
            self.store,
            self.term,
            self.pressure,
            self.dispatcher.scheduler.queues,
            sample_share=self.config.sample_share,
            post=self.dispatcher.post,
            on_crash=self.broke,
            on_failed=lambda task, failure: self._fail_app(task.app, f"source {task.name!r}", failure),
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
        self.registry = Registry(self.store)
        self.workforce = Workforce(
            self.config,
            self._run_directory,
            self._address,
            self.store,
            self.dispatcher,
            spark=self._spark,
            on_step=self._tell,
            on_note=self._note,
            on_mistake=partial(self.mistakes.note, "something that workers need"),
        )
        self._housekeeper = thread_of(self._keep_house, name="housekeeper", on_death=self.broke)

    @property
    def pool(self) -> Pool:
        """The source of workers."""
        return self.workforce.pool

    def _open_port(self) -> RemotePort | None:
        """Open a port for workers on other machines, if there can be any."""
        master, use = self.config.spark_master, self.config.remote_port
        if use == "never" or (use == "auto" and master is None):
            return None
        host = "127.0.0.1" if master is None else reach_master(master)
        return RemotePort(
            self.store,
            self._run_directory,
            host,
            on_mistake=partial(self.mistakes.note, "a commit of a worker elsewhere"),
        )

    def _sink_pump(self) -> SinkPump:
        return SinkPump(
            self.store,
            self.term,
            post=self._post,
            on_failed=lambda task, failure: self._fail_app(task.app, f"sink {task.name!r}", failure),
            on_store_full=self._on_store_full,
            on_crash=self.broke,
        )

    def _on_let_go(self, instance: InstanceId) -> None:
        self.given_up.pop(instance)()

    def _on_room(self) -> None:
        self.sources.wake_paused()

    def _post(self, events: Sequence[Event]) -> None:
        self.dispatcher.post(events)

    def __enter__(self) -> "Node":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start Spark and the pool, and wait until the workers are there."""
        this_process.engine_starts(self)
        self.dispatcher.start(self._address.socket, self.port)
        try:
            self.workforce.start()
        except HeadwaterError:
            self.stop()
            raise
        this_process.engine_started()
        self.sources.start()
        self.sinks.start()
        self._housekeeper.start()

    def deploy(self, flow: Flow, *, upgrade: Upgrade | None = None, reads: bool = True) -> NodeApp:
        """Compile a flow and run it; a flow in the store resumes.

        With an upgrade it replaces another version of it; with `reads` false it only processes the rows in its queues.
        """
        graph = compile_flow(flow, chaining=self.config.chaining)
        self.check_code(graph)
        with self._deploying:
            known = self.apps.get(graph.name)
            if known is not None and known.state is AppState.RUNNING:
                raise FlowError(
                    f"flow {graph.name!r} is already running on this node; stop it first or give it another name"
                )
            if known is not None:
                self._settle(known)  # to release its locks
            if upgrade is not None and self.registry.differs(graph):
                app_id, codes = self.registry.upgrade(graph, upgrade)
            else:
                app_id, codes = self.registry.register(graph)
            sources, sinks = self._open_connectors(app_id, graph, reads=reads)
            app = NodeApp(app_id, graph, codes, sources, sinks, now_us(), draining=not reads)
            self.apps[graph.name] = app
            self.begin(app)
        self._tell(f"flow {graph.name!r} runs with {graph.instance_count} queues")
        return app

    def _open_connectors(self, app: AppId, graph: Graph, *, reads: bool) -> tuple[list[SourceTask], list[SinkTask]]:
        numbers = {declared.name: number for number, declared in enumerate(graph.declarations)}
        sources: list[SourceTask] = []
        sinks: list[SinkTask] = []
        with contextlib.ExitStack() as undo:
            for name, spec in graph.sources.items() if reads else ():
                outlets = source_outlets(graph, name)
                task = open_source(self.store, app, graph.name, name, numbers[name], spec, outlets)
                undo.callback(close_source, task)
                sources.append(task)
            for sink in graph.sinks:
                number, written = numbers[sink.name], graph.sink(sink.name)
                unions = graph.open_unions(sink.name)
                opened = open_sink(self.store, app, graph.name, sink.name, number, sink.instance, written, unions)
                undo.callback(close_sink, opened)
                sinks.append(opened)
            undo.pop_all()
        return sources, sinks

    def begin(self, app: NodeApp) -> None:
        """Run an app; of a part of one, workers run nothing until instances are opened."""
        queues = self._queues_of(app)
        codes = {
            InstanceId(app.id, instance): number
            for number, chain in zip(app.codes, app.graph.chains, strict=True)
            for instance in chain.instances
        }

        def add() -> None:
            self.dispatcher.code_of.update(codes)
            self.dispatcher.handle(AppAdded(app.id, queues))

        self.dispatcher.ask(add)
        self.workforce.hire_for(app.graph)
        for sink in app.sinks:
            self.sinks.add(sink)
        for source in app.sources:
            self.sources.add(source)

    def check_code(self, graph: Graph) -> None:
        """Refuse what workers could not be sent, what needs Spark on a node without it, or more than a cluster has.

        State that could not be kept is refused, too: where it is registered, nodes of a cluster try again for ever.
        """
        if self._broken:
            raise EngineError(self.broken)
        self.workforce.check(graph, (app.graph for app in self.apps.values() if app.name != graph.name))
        manifest_of(graph)
        pack_graph(graph)  # which is remembered for as long as the graph is

    def _queues_of(self, app: NodeApp) -> tuple[Queue, ...]:
        graph = app.graph
        on_driver = {
            number for chain in graph.chains if needs_driver(graph.named_operators(chain)) for number in chain.instances
        }
        with self.store.read() as snapshot:
            here = () if app.is_part else None
            return queues_of(snapshot, graph, app.id, now_us(), on_driver=on_driver, here=here)

    def wait(self, app: NodeApp, timeout_s: float | None = None) -> bool:
        """Wait until an app has finished or failed."""
        return app.done.wait(timeout_s)

    def drain(self, app: NodeApp, timeout_s: float) -> bool:
        """Stop an app's sources and let its rows reach the sinks; then the app is stopped."""
        app.draining = True
        for source in app.sources:
            source.ended = True
        return self.wait(app, timeout_s)

    def halt(self, app: NodeApp) -> None:
        """Stop an app; its state stays in the store, so it can resume."""
        self._end_app(app, AppState.STOPPED, None)
        self._settle(app)

    def remove(self, name: str) -> None:
        """Stop an app and delete its state; other apps run on."""
        self.registry.delete(self.retire(name))

    def retire(self, name: str) -> NodeApp:
        """Stop an app and remove it from this node; its state stays in the store."""
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
            return app

    def _end_app(self, app: NodeApp, state: AppState, error: HeadwaterError | None) -> None:
        """Stop an app's turns and pumps, from any thread; `_settle` closes what is open."""
        with self._ending:
            if app.state is not AppState.RUNNING:
                return
            app.state, app.error, app.ended_us = state, error, now_us()
        for source in app.sources:
            source.ended = True
        self.dispatcher.post([AppHalted(app.id)])

    def _settle(self, app: NodeApp) -> None:
        """Close the sources and sinks of an app that has ended. Not from a pump's thread: it waits for the pumps."""
        with self._settling:
            if not app.settled:
                self.sources.remove(app.id)
                self.sinks.remove(app.id)
                app.settled = True
                app.done.set()

    def _fail_app(self, app_id: AppId, where: str, failure: Exception) -> None:
        app = next((one for one in self.apps.values() if one.id == app_id), None)
        if app is not None:
            if app.is_part:  # else the caller gets the error, which may hold a row, and rows are not for the log
                log.error("%s has failed at %s; `headwater status` says why", app.kept_as, where)
            error = failure if isinstance(failure, HeadwaterError) else EngineError(str(failure))
            self._end_app(app, AppState.FAILED, error)

    def _on_trouble(self, app_id: AppId, trouble: RowTrouble) -> None:
        app = next((one for one in self.apps.values() if one.id == app_id), None)
        if app is not None:
            error = UserCodeError(app.name, trouble.operator, trouble.error, trouble.line, trouble.row)
            self._fail_app(app_id, f"operator {trouble.operator!r}", error)

    def broke(self, failure: BaseException) -> None:
        """One of our own threads broke: a mistake of ours. Nothing is lost, but nothing goes on here either."""
        if isinstance(failure, StoreTaken):  # no mistake: the fence has held
            self._broken, error = str(failure), EngineError(str(failure))
        else:
            self.mistakes.note("something without which nothing runs on this node", failure)
            mistake = f"{type(failure).__name__}: {failure}"
            self._broken = f"an internal error has stopped this node ({mistake}); start it again and report it"
            error = EngineError(f"internal error, please report it: {mistake}")
        for app in list(self.apps.values()):
            self._end_app(app, AppState.FAILED, error)
        self._on_broken()

    @property
    def broken(self) -> str:
        """Why nothing runs here any more; empty: it does."""
        return self._broken

    @property
    def news(self) -> tuple[str, ...]:
        """What an operator should know: what has happened here, and how things stand."""
        now = (*self.mistakes.notes(), self.broken, self.workforce.waits_for)
        return (*self.notes, *(one for one in now if one))

    def _on_store_full(self, message: str) -> None:
        self._note(message)

    def _note(self, message: str) -> None:
        if message not in self.notes:
            log.warning("%s", message)
            self.notes = [*self.notes, message][-NOTES_MAX:]

    def _keep_house(self) -> None:
        """Notice ended apps, begin new epochs; what fails of that takes nothing else with it, and is tried again."""
        while not self._stopping.wait(HOUSEKEEPING_S):
            duties: list[Callable[[], None]] = [
                self._forget_old_latencies,
                *(partial(self._look_after, app) for app in list(self.apps.values())),
                self.workforce.look,
                self.registry.sweep,
                this_process.look,
            ]
            done = [self._is_done(duty) for duty in duties]
            if not all(done):
                self._stopping.wait(AGAIN_S)

    def _is_done(self, duty: Callable[[], None]) -> bool:
        try:
            duty()
        except StoreError as failure:  # the world's
            self._note(f"the house is not in order: {failure}")
            return False
        except Exception as mistake:
            self.mistakes.note("a duty of the housekeeper", mistake)
            return False
        return True

    def _look_after(self, app: NodeApp) -> None:
        if app.state is AppState.RUNNING and not app.is_part and self._is_finished(app):
            self._end_app(app, AppState.STOPPED if app.draining else AppState.FINISHED, None)
        if app.state is not AppState.RUNNING and not app.settled:
            self._settle(app)

    def _forget_old_latencies(self) -> None:
        if now_us() - self._recent_from_us > RECENT_US:
            self._recent_from_us = now_us()
            for app in list(self.apps.values()):
                for sink in app.sinks:
                    sink.forget_old()

    def _is_finished(self, app: NodeApp) -> bool:
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

    def ledger(self, app: NodeApp) -> Ledger:
        """Add up an app's ledger as of now."""
        return self.registry.ledger(app)

    def status(self, *, ledgers: bool = False) -> NodeStatus:
        """Return the figures of this node and its apps."""
        return node_status(self, ledgers=ledgers)

    def stop(self) -> None:
        """Stop everything; the store stays, unless it is temporary."""
        if self._stopped:
            return
        self._stopped = True
        self._stopping.set()
        if self._housekeeper.is_alive():
            self._housekeeper.join(HOUSE_END_S)
        for app in list(self.apps.values()):
            self.halt(app)
        self.sources.stop()
        self.sinks.stop()
        self.workforce.expect_end()
        self.dispatcher.stop()
        self.workforce.stop()
        self._discard()
        this_process.engine_stopped(self)

    def _discard(self) -> None:
        self.store.close()
        self._run.delete()
        if self._temporary is not None:
            self._temporary.delete()


def _runs_anywhere(scheduler: Scheduler, app: AppId) -> bool:
    return any(part.instance.app == app for worker in scheduler.workers.values() for part in worker.assignments)
