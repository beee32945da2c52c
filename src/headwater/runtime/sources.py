"""The source pump: rows from readers into the first queues, in one transaction with the reader's position.

One thread serves all sources that never block; what they have ready at the same time is committed together, since a
hundred small commits cost a hundred times one. A source that may block has a thread of its own. Under pressure
(backpressure) sources that can wait are not polled; those that cannot wait make room by shedding the oldest rows of
their own queues.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from headwater.dataflow.connectors import Acknowledging, Idle, SourceSpec, Watched, resources_of
from headwater.engine.events import Event
from headwater.engine.plans import Outlet
from headwater.engine.positions import read_record
from headwater.engine.pressure import Pressure
from headwater.engine.queues import Queues
from headwater.engine.source_turn import Offer, OpenSource, SourceTurn, tell_stored
from headwater.model.errors import ConnectorError, StoreFull
from headwater.model.ids import AppId
from headwater.runtime.wakeup import Doze
from headwater.spark.log_context import thread_of
from headwater.storage.lmdb_store import LmdbStore
from headwater.storage.locks import Locks, this_process
from headwater.workers.clock import now_us

log = logging.getLogger(__name__)

IDLE_MAX_S: Final = 0.05  # how soon a pause that ended, or an app that was added, is noticed at the latest
MANY_SOURCES: Final = 16  # from so many on their rows are gathered: a commit for each would cost more than the wait
GATHER_S: Final = 0.0001  # for each source; with a hundred of them it takes longer to ask them all anyway
GATHER_S_MAX: Final = 0.01
COMMIT_SOURCES: Final = 25  # in one commit
STORE_FULL_RETRY_S: Final = 0.5
STOP_S: Final = 10.0  # then a source whose reader does not return is left to its thread
CLOSE_S: Final = 5.0  # for a broker's reader: its last poll and commit take milliseconds, its logout up to two seconds


@dataclass(slots=True, kw_only=True)
class SourceTask(OpenSource):
    """One source at work."""

    spec: SourceSpec
    locks: Locks  # on what it needs for itself, until it is closed
    descriptor: int | None = None  # by which its rows come
    idle_until_us: int = 0
    is_closing: bool = False
    closed: threading.Event = field(default_factory=threading.Event)
    paused: bool = False


class SourcePump:
    """Serves all sources of a node."""

    def __init__(
        self,
        store: LmdbStore,
        term: bytes,
        pressure: Pressure,
        queues: Queues,
        *,
        sample_share: float,
        post: Callable[[Sequence[Event]], None],
        on_failed: Callable[[SourceTask, Exception], None],
        on_store_full: Callable[[str], None],
        on_crash: Callable[[BaseException], None],
        stop_s: float = STOP_S,
    ) -> None:
        self._turn = SourceTurn(
            store, term, now_us, pressure, queues, sample_share=sample_share, counting=threading.Lock()
        )
        self._stop_s = stop_s
        self._any_paused = False
        self._post, self._on_failed = post, on_failed
        self._on_store_full, self._on_crash = on_store_full, on_crash
        self._tasks: list[SourceTask] = []
        self._lock = threading.Lock()  # held during a pass, so that `remove` waits for its end
        self._doze = Doze()
        self._gathering = threading.Event()  # set only to stop
        self._stopping = False
        self._thread = thread_of(self._serve_all, name="sources", on_death=on_crash)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def add(self, task: SourceTask) -> None:
        """Begin to read a source."""
        with self._lock:
            self._tasks.append(task)
        if task.spec.blocking:
            thread_of(self._serve_one, task, name=f"source-{task.name}", on_death=self._on_crash).start()
        self._doze.call()

    def remove(self, app: AppId, number: int | None = None) -> None:
        """Stop reading an app's sources, or one of them; when this returns, nothing of it is stored any more."""
        with self._lock:
            gone = [task for task in self._tasks if task.app == app and number in (None, task.number)]
            self._tasks = [task for task in self._tasks if task.app != app or number not in (None, task.number)]
            for task in gone:
                task.ended = True
        for task in gone:
            if not task.spec.blocking:  # else its own thread closes it when its reader returns
                self._close(task)
        _wait_until_closed(gone)

    def wake_paused(self) -> None:
        """Poll again, if a source is paused: queues have room."""
        if self._any_paused:
            self._doze.call()

    def stop(self) -> None:
        """Stop all threads and close all sources; one that is being read is closed when its reader returns."""
        self._stopping = True
        self._gathering.set()
        self._doze.call()
        if self._thread.is_alive():
            self._thread.join(timeout=self._stop_s)
        if self._thread.is_alive():
            log.warning("a source does not return from being read, and stays open until it does")
        else:
            self._close_shared()
            self._doze.close()
        _wait_until_closed(self._tasks)

    def _close_shared(self) -> None:
        """Close the sources of the shared thread; each of the others is closed by its own."""
        with self._lock:
            for task in self._tasks:
                if not task.spec.blocking:
                    self._close(task)

    def _serve_all(self) -> None:
        while not self._stopping:
            with self._lock:
                wait_us = self._pass([one for one in self._tasks if not one.ended and not one.spec.blocking])
            if wait_us > 0:
                self._sleep(min(wait_us / 1e6, IDLE_MAX_S))
            elif len(self._tasks) >= MANY_SOURCES:
                self._gathering.wait(min(GATHER_S_MAX, GATHER_S * len(self._tasks)))
        self._close_shared()

    def _sleep(self, seconds: float) -> None:
        """Sleep until a source may have rows; one whose descriptor is readable is polled at once."""
        heard = self._doze.wait(seconds)
        if heard:
            with self._lock:
                for task in self._tasks:
                    if task.descriptor in heard:
                        task.idle_until_us = 0

    def _serve_one(self, task: SourceTask) -> None:
        """Serve a source that may block; its app's end is seen by its having ended."""
        while not self._stopping and not task.ended:
            offers, wait_us = self._poll([task])
            self._any_paused |= task.paused
            with self._lock:
                self._commit([offer for offer in offers if not offer.source.ended])
            self._turn.let_go(offers)
            if wait_us > 0:
                threading.Event().wait(min(wait_us / 1e6, IDLE_MAX_S))
        self._close(task)

    def _pass(self, tasks: Sequence[SourceTask]) -> int:
        """Serve these sources, `COMMIT_SOURCES` per commit, and return for how long none has more.

        The first ones' rows must not wait until the last of a hundred has been polled.
        """
        waits_us = [int(IDLE_MAX_S * 1e6)]
        self._turn.measure()  # also without sources: what was under way is forgotten when it is counted
        for start in range(0, len(tasks), COMMIT_SOURCES):
            offers, wait_us = self._poll(tasks[start : start + COMMIT_SOURCES])
            self._commit(offers)
            self._turn.let_go(offers)
            waits_us.append(wait_us)
        self._any_paused = any(task.paused for task in tasks)
        return min(waits_us)

    def _poll(self, tasks: Sequence[SourceTask]) -> tuple[list[Offer], int]:
        """Ask every source that may bring rows; return what they have, and for how long nobody has more."""
        offers: list[Offer] = []
        now = now_us()
        wake_at = now + int(IDLE_MAX_S * 1e6)
        self._turn.measure()
        for task in tasks:
            if now < task.idle_until_us:
                wake_at = min(wake_at, task.idle_until_us)
                continue
            rows_max = self._turn.rows_allowed(task)
            task.paused = rows_max == 0
            if task.paused:
                continue
            offer = self._ask(task, rows_max)
            if offer is not None:
                offers.append(offer)
            wake_at = min(wake_at, task.idle_until_us)
        return offers, 0 if offers else wake_at - now_us()

    def _ask(self, task: SourceTask, rows_max: int) -> Offer | None:
        """Return what a source has; whatever goes wrong with it, or with its rows, is no concern of any other."""
        try:
            answer = self._turn.ask(task, rows_max)
        except ConnectorError as failure:
            self._fail(task, failure)
            return None
        if isinstance(answer, Idle):
            task.idle_until_us = answer.until_us
            if task.descriptor is not None:
                self._doze.watch(task.descriptor)
            return None
        if answer.rows is None:
            self._close(task)
        return answer

    def _fail(self, task: SourceTask, failure: ConnectorError) -> None:
        """Tell it first: an app whose sources have all ended has finished, and nobody would hear of the failure."""
        self._on_failed(task, failure)
        task.ended = True
        self._close(task)

    def _close(self, task: SourceTask) -> None:
        if task.is_closing:
            return
        task.is_closing = True
        if task.descriptor is not None:
            self._doze.forget(task.descriptor)
        close_source(task)

    def _commit(self, offers: Sequence[Offer]) -> None:
        while offers and not self._stopping:
            try:
                self._post(self._turn.commit(offers))
                for offer in offers:
                    tell_stored(offer)
                return
            except StoreFull as full:  # nothing was stored, and the rows are kept here
                self._on_store_full(str(full))
                threading.Event().wait(STORE_FULL_RETRY_S)


def open_source(
    store: LmdbStore, app: AppId, called: str, name: str, number: int, spec: SourceSpec, outlets: tuple[Outlet, ...]
) -> SourceTask:
    """Open a source at its committed position; `called` is the app's name."""
    with store.read() as snapshot:
        record = read_record(snapshot, app, number)
    locks = Locks(resources_of(spec, record.position), this_process(f"source {name!r} of app {called!r}", now_us()))
    try:
        reader = spec.open(record.position)
    except BaseException:
        locks.release()
        raise
    on_stored = reader.stored if isinstance(reader, Acknowledging) else None
    descriptor = reader.fileno() if isinstance(reader, Watched) and not spec.blocking else None
    return SourceTask(
        app=app,
        name=name,
        number=number,
        reader=reader,
        outlets=outlets,
        record=record,
        can_wait=spec.can_wait,
        on_stored=on_stored,
        spec=spec,
        locks=locks,
        descriptor=descriptor,
    )


def close_source(task: SourceTask) -> None:
    """Close a source, and release its locks."""
    try:
        task.reader.close()
    except Exception as failure:  # a user's source may raise anything
        log.warning("source %s did not close in order: %s: %s", task.name, type(failure).__name__, failure)
    finally:
        task.locks.release()
        task.closed.set()


def _wait_until_closed(tasks: Iterable[SourceTask]) -> None:
    """Wait for blocking sources that hold locks, as the app's next version may need these."""
    for task in tasks:
        if task.spec.blocking and task.locks:
            task.closed.wait(CLOSE_S)
