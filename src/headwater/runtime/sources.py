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

import pyarrow as pa

from headwater.dataflow.connectors import (
    Acknowledging,
    Ended,
    Idle,
    Position,
    Rows,
    SourceReader,
    SourceSpec,
    Watched,
    resources_of,
)
from headwater.engine.entry_split import ROW_BYTES_MAX
from headwater.engine.events import Event, RowsGone, RowsPut
from headwater.engine.plans import Outlet
from headwater.engine.positions import ConnectorRecord, read_record
from headwater.engine.pressure import Pressure
from headwater.engine.queue_records import read_queue, shed_oldest
from headwater.engine.queues import Queues
from headwater.engine.schemas import Schemas
from headwater.engine.source_commit import keep_position, lay_out, lay_out_end, put_all, without_giants
from headwater.model.batch import Stamp
from headwater.model.errors import ConnectorError, StoreFull
from headwater.model.ids import AppId, InstanceId
from headwater.model.keys import WrongKey
from headwater.model.quoting import listed, quoted
from headwater.model.store_contract import Transaction
from headwater.model.store_layout import TERM_KEY
from headwater.runtime.wakeup import Doze
from headwater.storage.lmdb_store import LmdbStore
from headwater.storage.locks import Locks, this_process
from headwater.workers.clock import now_us
from headwater.workers.log_context import thread_of

log = logging.getLogger(__name__)

POLL_ROWS_MAX: Final = 5_000  # one entry of the first queue; a turn may take a part
IDLE_MAX_S: Final = 0.05  # the longest until the end of a pause, or a new app, is noticed
MANY_SOURCES: Final = 16  # with so many, rows are gathered: one commit for each would cost more than the wait
GATHER_S: Final = 0.0001  # per source; with a hundred, polling takes longer anyway
GATHER_S_MAX: Final = 0.01
COMMIT_SOURCES: Final = 25  # in one commit
STORE_FULL_RETRY_S: Final = 0.5
STOP_S: Final = 10.0  # then a source whose reader does not return is left to its thread
CLOSE_S: Final = 5.0  # for a broker's reader: its last poll and commit take milliseconds, its logout up to two seconds


@dataclass(slots=True)
class SourceTask:
    """One open source."""

    app: AppId
    name: str
    number: int  # among the flow's declarations; the key of its position
    spec: SourceSpec
    reader: SourceReader
    outlets: tuple[Outlet, ...]
    record: ConnectorRecord
    locks: Locks  # on its resources, until it is closed
    on_stored: Callable[[Position], None] | None = None  # called after every commit, if the source acknowledges
    descriptor: int | None = None  # readable when it has rows
    idle_until_us: int = 0
    ended: bool = False
    is_exhausted: bool = False  # it ended by itself, not with its app
    is_closing: bool = False
    closed: threading.Event = field(default_factory=threading.Event)
    paused: bool = False
    has_giants: bool = False  # it has brought rows that are too large, which was logged
    batches: int = 0
    rows: int = 0  # stored since it was opened
    backlog: int = 0  # rows in the queues it fills, as of its last commit
    _sampled: float = 0.0

    def stamps(self, rows: int, born_us: int, share: float) -> tuple[Stamp, ...]:
        """Return the stamp of a batch, for the rows of it in the sample; samples are spread evenly."""
        self._sampled += rows * share
        count = int(self._sampled)
        self._sampled -= count
        return (Stamp(born_us, count),) if count else ()


@dataclass(slots=True)
class _Offer:
    """Rows of a source, encoded for the commit."""

    task: SourceTask
    rows: Rows | None  # None: the source has ended
    puts: list[tuple[int, int, bytes]] = field(default_factory=list)  # instance, rows, entry


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
        self._store, self._term, self._pressure, self._queues = store, term, pressure, queues
        self._stop_s = stop_s
        self._rows_max = max(1, min(POLL_ROWS_MAX, pressure.config.app_rows // 4))
        self._any_paused = False
        self._sample_share = sample_share
        self._post, self._on_failed = post, on_failed
        self._on_store_full, self._on_crash = on_store_full, on_crash
        self._schemas = Schemas()
        self._tasks: list[SourceTask] = []
        self._lock = threading.Lock()  # held during a pass, so that `remove` waits for its end
        self._doze = Doze()
        self._gathering = threading.Event()  # set only to stop
        self._stopping = False
        self._thread = thread_of(self._serve_all, name="sources")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def add(self, task: SourceTask) -> None:
        """Begin to read a source."""
        with self._lock:
            self._tasks.append(task)
        if task.spec.blocking:
            thread_of(self._serve_one, task, name=f"source-{task.name}").start()
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
        try:
            while not self._stopping:
                with self._lock:
                    wait_us = self._pass([one for one in self._tasks if not one.ended and not one.spec.blocking])
                if wait_us > 0:
                    self._sleep(min(wait_us / 1e6, IDLE_MAX_S))
                elif len(self._tasks) >= MANY_SOURCES:
                    self._gathering.wait(min(GATHER_S_MAX, GATHER_S * len(self._tasks)))
            self._close_shared()
        except Exception as failure:  # our mistake: it must be reported, not lost with the thread
            self._on_crash(failure)

    def _sleep(self, seconds: float) -> None:
        """Sleep until a source may have rows; one whose descriptor is readable is polled at once."""
        heard = self._doze.wait(seconds)
        if heard:
            with self._lock:
                for task in self._tasks:
                    if task.descriptor in heard:
                        task.idle_until_us = 0

    def _serve_one(self, task: SourceTask) -> None:
        """Serve a source that may block, until it has ended, as it has when its app has."""
        try:
            while not self._stopping and not task.ended:
                offers, wait_us = self._poll([task])
                self._any_paused |= task.paused
                with self._lock:
                    self._commit([offer for offer in offers if not offer.task.ended])
                if wait_us > 0:
                    threading.Event().wait(min(wait_us / 1e6, IDLE_MAX_S))
            self._close(task)
        except Exception as failure:
            self._on_crash(failure)

    def _pass(self, tasks: Sequence[SourceTask]) -> int:
        """Serve these sources, `COMMIT_SOURCES` per commit, and return for how long none has more.

        The first ones' rows must not wait until the last of a hundred has been polled.
        """
        waits_us = [int(IDLE_MAX_S * 1e6)]
        for start in range(0, len(tasks), COMMIT_SOURCES):
            offers, wait_us = self._poll(tasks[start : start + COMMIT_SOURCES])
            self._commit(offers)
            waits_us.append(wait_us)
        self._any_paused = any(task.paused for task in tasks)
        return min(waits_us)

    def _poll(self, tasks: Sequence[SourceTask]) -> tuple[list[_Offer], int]:
        """Poll every source that is due; return what they have, and for how long none has more."""
        offers: list[_Offer] = []
        now = now_us()
        wake_at = now + int(IDLE_MAX_S * 1e6)
        self._measure(tasks)
        for task in tasks:
            if now < task.idle_until_us:
                wake_at = min(wake_at, task.idle_until_us)
                continue
            task.paused = not self._pressure.may_read(task.app, task.spec.can_wait)
            if task.paused:
                task.backlog = 0  # by the next poll the scheduler knows the rows
            else:
                offer = self._ask(task, now)
                if offer is not None:
                    offers.append(offer)
                wake_at = min(wake_at, task.idle_until_us)
        return offers, 0 if offers else wake_at - now_us()

    def _measure(self, tasks: Sequence[SourceTask]) -> None:
        """Measure the pressure: the rows that the scheduler knows, or just stored ones that it may not know yet."""
        rows = dict(self._queues.rows_of_app)
        for task in tasks:
            rows[task.app] = max(rows.get(task.app, 0), task.backlog)
        self._pressure.measure(self._queues.bytes_held, rows)

    def _ask(self, task: SourceTask, now: int) -> _Offer | None:
        """Poll one source; its failure, or that of its rows, does not affect the others."""
        try:
            return self._offer_of(task, now)
        except BaseException as failure:  # a user's iterable may raise anything, SystemExit too
            self._fail(task, failure)
            return None

    def _offer_of(self, task: SourceTask, now: int) -> _Offer | None:
        match task.reader.poll(self._rows_max, now):
            case Rows() as brought:
                answer = self._without_giants(task, brought)
                missing = _missing_key(task.outlets, answer.batch)
                if missing is None:
                    return self._lay_out(task, answer)
                names = listed(answer.batch.schema.names)
                raise ConnectorError(f"source {task.name!r} has no column {quoted(missing)} to key by, only: {names}")
            case Idle(until_us):
                task.idle_until_us = until_us
                if task.descriptor is not None:
                    self._doze.watch(task.descriptor)
            case Ended():
                self._close(task)
                return self._lay_out_end(task)
        return None

    def _without_giants(self, task: SourceTask, rows: Rows) -> Rows:
        sieved = without_giants(rows)
        if sieved.too_large and not task.has_giants:
            task.has_giants = True
            what = "source %s brings rows of more than %d bytes, which no queue takes: they are left out and counted"
            log.warning(what, task.name, ROW_BYTES_MAX)
        return sieved

    def _fail(self, task: SourceTask, failure: BaseException) -> None:
        """Report a failure before the source ends: an app whose sources have all ended counts as finished."""
        self._on_failed(task, failure if isinstance(failure, ConnectorError) else _wrapped(task, failure))
        task.ended = True
        self._close(task)

    def _close(self, task: SourceTask) -> None:
        if task.is_closing:
            return
        task.is_closing = True
        if task.descriptor is not None:
            self._doze.forget(task.descriptor)
        close_source(task)

    def _lay_out(self, task: SourceTask, rows: Rows) -> _Offer:
        """Encode outside the transaction, to keep that short."""
        offer = _Offer(task, rows)
        batch = rows.batch
        if batch.num_rows == 0:
            return offer
        now = now_us()
        stamps = task.stamps(batch.num_rows, rows.due_us if rows.due_us is not None else now, self._sample_share)
        offer.puts = lay_out(
            rows, task.outlets, task.number, self._schemas, batches=task.batches, stamps=stamps, now_us=now
        )
        task.batches += 1
        return offer

    def _lay_out_end(self, task: SourceTask) -> _Offer:
        """Encode the final watermark: no row will follow."""
        return _Offer(task, None, lay_out_end(task.outlets, task.number, now_us()))

    def _commit(self, offers: Sequence[_Offer]) -> None:
        while offers and not self._stopping:
            try:
                self._post(self._commit_once(offers))
                for offer in offers:
                    _tell_stored(offer)
                return
            except StoreFull as full:  # nothing was stored, and the rows are kept here
                self._on_store_full(str(full))
                threading.Event().wait(STORE_FULL_RETRY_S)

    def _commit_once(self, offers: Sequence[_Offer]) -> list[Event]:
        events: list[Event] = []
        records: list[ConnectorRecord] = []
        with self._store.write() as txn:
            if txn.get(TERM_KEY) != self._term:
                raise StoreFull("the store belongs to another node now")
            for offer in offers:
                events += self._make_room(txn, offer)
                records.append(self._store_offer(txn, offer, events))
        for offer, record in zip(offers, records, strict=True):
            offer.task.record = record
            offer.task.rows += 0 if offer.rows is None else offer.rows.batch.num_rows
        return events

    def _store_offer(self, txn: Transaction, offer: _Offer, events: list[Event]) -> ConnectorRecord:
        task, rows = offer.task, offer.rows
        if rows is not None and offer.puts:
            self._schemas.ensure(txn, task.app, self._schemas.known(rows.batch.schema))
        task.backlog = 0
        for instance, record in put_all(txn, task.app, offer.puts):
            task.backlog += record.waiting_rows
            events.append(RowsPut(instance, record.put_rows, record.put_bytes, record.put_marks))
        before = task.record
        if rows is None:
            return before
        return keep_position(txn, task.app, task.number, before, rows, len(task.outlets))

    def _make_room(self, txn: Transaction, offer: _Offer) -> list[Event]:
        """Shed the oldest rows of a source that cannot wait when the disk budget is used up."""
        coming = sum(len(encoded) for _, _, encoded in offer.puts)
        if offer.task.spec.can_wait or self._pressure.to_shed(coming) == 0:
            return []
        self._pressure.correct(self._bytes_held(txn))
        excess = self._pressure.to_shed(coming)
        if excess == 0:
            return []
        events: list[Event] = []
        for target in sorted({target for target, _, _ in offer.puts}):
            instance = InstanceId(offer.task.app, target)
            queue = self._queues.find(instance)
            shed = shed_oldest(txn, instance, excess, behind_rows=0 if queue is None else queue.rows_given)
            excess -= shed.freed
            events.append(RowsGone(instance, shed.record.taken_rows + shed.record.shed_rows, shed.record.gone_bytes))
            if self._pressure.shed(shed.freed):
                log.warning("the disk budget is used up: the oldest rows of queue %s are shed, and counted", instance)
        return events

    def _bytes_held(self, txn: Transaction) -> int:
        """Return the bytes in the store's queues; the scheduler learns too late what was shed already."""
        records = [read_queue(txn, queue.instance) for queue in list(self._queues.all())]
        return sum(record.put_bytes - record.gone_bytes for record in records)


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
    return SourceTask(app, name, number, spec, reader, outlets, record, locks, on_stored, descriptor)


def close_source(task: SourceTask) -> None:
    """Close a source, and release its locks."""
    try:
        task.reader.close()
    except OSError as failure:
        log.warning("source %s did not close in order: %s", task.name, failure)
    finally:
        task.locks.release()
        task.closed.set()


def _wait_until_closed(tasks: Iterable[SourceTask]) -> None:
    """Wait for blocking sources that hold locks, as the app's next version may need these."""
    for task in tasks:
        if task.spec.blocking and task.locks:
            task.closed.wait(CLOSE_S)


def _tell_stored(offer: _Offer) -> None:
    if offer.rows is None:  # after the commit: an app whose sources have ended and whose queues are empty is finished
        offer.task.ended = offer.task.is_exhausted = True
    elif offer.task.on_stored is not None:
        offer.task.on_stored(offer.rows.position)


def _missing_key(outlets: Sequence[Outlet], batch: pa.RecordBatch) -> str | None:
    """Return a key column that the rows lack, if there is one."""
    if batch.num_rows == 0:  # only a position, or lines that were left out before any column was known
        return None
    wanted = (column for outlet in outlets if len(outlet.targets) > 1 for column in outlet.key)
    return next((column for column in wanted if column not in batch.schema.names), None)


def _wrapped(task: SourceTask, failure: BaseException) -> ConnectorError:
    told = isinstance(failure, pa.ArrowException | WrongKey)
    what = str(failure) if told else f"{type(failure).__name__}: {failure}"
    return ConnectorError(f"source {task.name!r} cannot go on: {what}")
