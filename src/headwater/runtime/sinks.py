"""The sink pump: threads that give sinks their turns, and the latency of the sampled rows, which ends here."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from headwater.dataflow.connectors import Interruptible, SinkSpec, resources_of
from headwater.dataflow.graph import UnionPlace
from headwater.engine.events import Event
from headwater.engine.positions import read_record
from headwater.engine.sink_turn import OpenSink, SinkTurn, Written, keep_beginning
from headwater.model.errors import ConnectorError, StoreFull
from headwater.model.histogram import Histogram
from headwater.model.ids import AppId, InstanceId
from headwater.spark.log_context import thread_of
from headwater.storage.lmdb_store import LmdbStore
from headwater.storage.locks import Locks, this_process
from headwater.workers.clock import now_us

log = logging.getLogger(__name__)

COMMIT_SINKS: Final = 25  # in one commit; the rows of the first must not wait for the last of a hundred
RETRY_S: Final = 0.5
STOP_S: Final = 10.0  # then a sink whose writer does not return is left to its thread


@dataclass(slots=True, kw_only=True)
class SinkTask(OpenSink):
    """One sink at work."""

    spec: SinkSpec
    locks: Locks  # on what it writes to, until it is closed
    failed: bool = False
    closed: bool = False
    rows: int = 0
    _all: Histogram = field(default_factory=Histogram)
    _recent: Histogram = field(default_factory=Histogram)
    _before: Histogram = field(default_factory=Histogram)
    _counting: threading.Lock = field(default_factory=threading.Lock)  # other threads read them

    def measured(self, latency_us: int, rows: int) -> None:
        """Count the latency of sampled rows."""
        with self._counting:
            self._all.add(latency_us, rows)
            self._recent.add(latency_us, rows)

    @property
    def latency(self) -> Histogram:
        """All latencies so far."""
        with self._counting:
            return _together(self._all)

    @property
    def recent(self) -> Histogram:
        """The latencies of the last few seconds."""
        with self._counting:
            return _together(self._recent, self._before)

    def forget_old(self) -> None:
        """Begin a new span; the one before the last is no longer recent."""
        with self._counting:
            self._before, self._recent = self._recent, Histogram()


def _together(*parts: Histogram) -> Histogram:
    together = Histogram()
    for part in parts:
        together.merge(part)
    return together


class SinkPump:
    """Serves sinks on one thread: all that never block, or one that may."""

    def __init__(
        self,
        store: LmdbStore,
        term: bytes,
        *,
        post: Callable[[Sequence[Event]], None],
        on_failed: Callable[[SinkTask, Exception], None],
        on_store_full: Callable[[str], None],
        on_crash: Callable[[BaseException], None],
        stop_s: float = STOP_S,
    ) -> None:
        self._turn, self._stop_s = SinkTurn(store, term, now_us), stop_s
        self._post, self._on_failed = post, on_failed
        self._on_store_full = on_store_full
        self._tasks: dict[InstanceId, SinkTask] = {}  # changed with both of these held, in this order
        self._due: dict[InstanceId, None] = {}  # in the order in which rows came
        self._lock = threading.Lock()  # held during a pass, so that `remove` waits for its end
        self._wake = threading.Condition()
        self._stopping = False
        self._thread = thread_of(self._serve, name="sinks", on_death=on_crash)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def add(self, task: SinkTask) -> None:
        """Begin to write a sink, and the rows that wait for it already."""
        with self._lock, self._wake:
            self._tasks[task.instance] = task
        self.rows_for([task.instance])

    def remove(self, app: AppId, number: int | None = None) -> None:
        """Stop writing an app's sinks, or the one whose queue has this number, and close them."""
        with self._lock:
            with self._wake:
                gone = [self._tasks.pop(one) for one in list(self._tasks) if _is_of(one, app, number)]
            for task in gone:
                close_sink(task)

    def rows_for(self, instances: Sequence[InstanceId]) -> None:
        """Note that these sinks have rows."""
        with self._wake:
            self._due.update(dict.fromkeys(instances))
            self._wake.notify()

    def stop(self) -> None:
        """Stop the thread and close all sinks; one that is being written is closed when its write returns."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
            tasks = list(self._tasks.values())  # not with the lock, which a write that does not return holds
        for task in tasks:
            if isinstance(task.writer, Interruptible):
                task.writer.interrupt()
        if self._thread.is_alive():
            self._thread.join(timeout=self._stop_s)
        if self._thread.is_alive():
            names = ", ".join(sorted(task.name for task in tasks))
            log.warning("a sink does not return from writing, and stays open until it does; it is among: %s", names)
        else:
            self._close_all()

    def _close_all(self) -> None:
        with self._lock:
            for task in self._tasks.values():
                close_sink(task)

    def _serve(self) -> None:
        while (due := self._next_due()) is not None:
            for start in range(0, len(due), COMMIT_SINKS):
                with self._lock:
                    some = due[start : start + COMMIT_SINKS]
                    more = self._pass([self._tasks[one] for one in some if one in self._tasks])
                if more:
                    self.rows_for(more)
        self._close_all()

    def _next_due(self) -> list[InstanceId] | None:
        with self._wake:
            while not self._due and not self._stopping:
                self._wake.wait()
            due, self._due = self._due, {}
            return None if self._stopping else list(due)

    def _pass(self, tasks: Sequence[SinkTask]) -> list[InstanceId]:
        """Write what waits for these sinks, commit it together, and return those that have more."""
        written: dict[InstanceId, Written] = {}
        for task in tasks:
            if not task.failed and (one := self._write(task)) is not None:
                written[task.instance] = one
        if not written:
            return []
        events = self._commit(list(written.values()))
        now = now_us()
        for task in tasks:
            if (done := written.get(task.instance)) is not None:
                task.rows += done.taken.rows
                for stamp in done.stamps:
                    task.measured(now - stamp.born_us, stamp.rows)
        self._post(events)
        return [instance for instance, one in written.items() if one.leaves_more]

    def _write(self, task: SinkTask) -> Written | None:
        try:
            return self._turn.write(task)
        except ConnectorError as failure:
            task.failed = True
            self._on_failed(task, failure)
            return None

    def _commit(self, written: Sequence[Written]) -> Sequence[Event]:
        while True:
            try:
                return self._turn.commit(written)
            except StoreFull as full:  # the rows are written; committing again is safe
                self._on_store_full(str(full))
                if self._stopping:
                    return []
                threading.Event().wait(RETRY_S)


class Sinks:
    """All sinks of a node: those that never block share a pump and its commits, each of the others has its own."""

    def __init__(self, make_pump: Callable[[], SinkPump]) -> None:
        """Begin without sinks; `make_pump` makes a pump that has not been started."""
        self._make_pump = make_pump
        self._shared = make_pump()
        self._own: dict[InstanceId, SinkPump] = {}

    def start(self) -> None:
        """Start the shared pump."""
        self._shared.start()

    def add(self, task: SinkTask) -> None:
        """Begin to write a sink."""
        if task.spec.blocking:
            pump = self._own[task.instance] = self._make_pump()
            pump.start()
            pump.add(task)
        else:
            self._shared.add(task)

    def remove(self, app: AppId, number: int | None = None) -> None:
        """Stop writing an app's sinks, or the one whose queue has this number, and close them."""
        self._shared.remove(app, number)
        for instance in [one for one in self._own if _is_of(one, app, number)]:
            self._own.pop(instance).stop()

    def rows_for(self, instances: Sequence[InstanceId]) -> None:
        """Note that these sinks have rows."""
        shared = [one for one in instances if one not in self._own]
        if shared:
            self._shared.rows_for(shared)
        for instance in instances:
            if instance in self._own:
                self._own[instance].rows_for([instance])

    def stop(self) -> None:
        """Stop all pumps."""
        self._shared.stop()
        for pump in list(self._own.values()):
            pump.stop()


def _is_of(instance: InstanceId, app: AppId, number: int | None) -> bool:
    return instance.app == app and number in (None, instance.number)


def open_sink(
    store: LmdbStore,
    app: AppId,
    called: str,
    name: str,
    number: int,
    instance: int,
    spec: SinkSpec,
    unions: Mapping[int, UnionPlace],
) -> SinkTask:
    """Open a sink at its committed position; a new sink's position is committed before any row is written.

    Its target is locked first, since opening cuts off what lies beyond the position; `called` is the app's name.
    """
    with store.read() as snapshot:
        record = read_record(snapshot, app, number)
    with ExitStack() as undo:
        locks = Locks(resources_of(spec, record.position), this_process(f"sink {name!r} of app {called!r}", now_us()))
        undo.callback(locks.release)
        writer = spec.open(record.position)
        undo.callback(writer.close)
        if record.position is None:
            keep_beginning(store, app, number, writer)
        undo.pop_all()
    return SinkTask(
        app=app,
        name=name,
        number=number,
        instance=InstanceId(app, instance),
        unions=unions,
        writer=writer,
        spec=spec,
        locks=locks,
    )


def close_sink(task: SinkTask) -> None:
    """Close a sink, and unlock its target."""
    if task.closed:
        return
    task.closed = True
    try:
        task.writer.close()
    except Exception as failure:  # a user's sink may raise anything
        log.warning("sink %s did not close in order: %s: %s", task.name, type(failure).__name__, failure)
    finally:
        task.locks.release()
