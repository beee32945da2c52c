"""A source's turn: ask its reader for rows, lay them out, commit them with the reader's position.

The sibling of a chain's turn (`turn.py`), with the same fence: a node whose term is no longer the store's commits
nothing. A full store refuses the commit as a whole; the rows are still in the caller's hands, who may commit them
again. What several sources have ready at the same time is committed together, since a hundred small commits cost a
hundred times one. Knows nothing of threads: a pump or the simulator says when which source has its turn.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from headwater.dataflow.connectors import Ended, Idle, Position, Rows, SourceReader
from headwater.engine.entry_split import ROW_BYTES_MAX
from headwater.engine.events import Event, RowsGone, RowsPut
from headwater.engine.plans import Outlet
from headwater.engine.positions import ConnectorRecord
from headwater.engine.pressure import Pressure, Underway
from headwater.engine.queue_records import read_queue, shed_oldest
from headwater.engine.queues import Queues
from headwater.engine.schemas import Schemas
from headwater.engine.source_commit import Put, keep_position, lay_out, lay_out_end, put_all, without_giants
from headwater.model.batch import Stamp
from headwater.model.errors import ConnectorError, StoreTaken
from headwater.model.ids import AppId, InstanceId
from headwater.model.keys import WrongKey
from headwater.model.quoting import listed, quoted
from headwater.model.store_contract import Store, Transaction
from headwater.model.store_layout import TERM_KEY

log = logging.getLogger(__name__)

POLL_ROWS_MAX: Final = 5_000  # an entry of the first queue; a turn takes parts of it
ROW_BYTES_GUESSED: Final = 1_000.0  # of a source that has brought none: what it may bring is bounded in bytes


@dataclass(slots=True, kw_only=True)
class OpenSource:
    """A source that is read here: its reader, where its rows go, and how far it has come."""

    app: AppId
    name: str
    number: int  # among the flow's declarations: names its position
    reader: SourceReader
    outlets: tuple[Outlet, ...]
    record: ConnectorRecord
    can_wait: bool = True
    on_stored: Callable[[Position], None] | None = None  # told of every commit, if the source acknowledges
    ended: bool = False
    is_exhausted: bool = False  # it has ended by itself, and was not stopped with its app
    has_giants: bool = False  # it has brought rows that are too large, which was said
    batches: int = 0
    rows: int = 0  # stored since it was opened
    row_bytes: float = ROW_BYTES_GUESSED  # that its latest rows took in the queues, each
    _sampled: float = 0.0

    def stamps(self, rows: int, born_us: int, share: float) -> tuple[Stamp, ...]:
        """Return the stamp of this batch: its part of the latency sample, evenly over time."""
        self._sampled += rows * share
        count = int(self._sampled)
        self._sampled -= count
        return (Stamp(born_us, count),) if count else ()


@dataclass(slots=True)
class Offer:
    """What a source has ready, laid out for the commit."""

    source: OpenSource
    rows: Rows | None  # None says that the source has ended
    puts: list[Put] = field(default_factory=list)

    @property
    def put_bytes(self) -> int:
        """How many bytes it adds to queues."""
        return sum(len(encoded) for _, _, encoded in self.puts)


class SourceTurn:
    """Gives turns to the sources of a node."""

    def __init__(
        self,
        store: Store,
        term: bytes,
        clock: Callable[[], int],
        pressure: Pressure,
        queues: Queues,
        *,
        sample_share: float = 0.0,
        counting: AbstractContextManager[object] | None = None,
    ) -> None:
        """`counting` is a lock around the pressure and what is under way, where several threads read sources."""
        self._store, self._term, self._clock = store, term, clock
        self._pressure, self._queues, self._sample_share = pressure, queues, sample_share
        self._schemas = Schemas()
        self._underway = Underway()
        self._counting = nullcontext() if counting is None else counting
        self._rows_max = max(1, min(POLL_ROWS_MAX, pressure.config.app_rows // 4))

    def measure(self) -> None:
        """Tell the pressure what waits: what the scheduler knows, and what is on its way there."""
        with self._counting:
            held = self._queues.bytes_held + self._underway.uncounted(self._queues)
            self._pressure.measure(held, self._underway.rows_of_app(self._queues), self._underway.in_hand())

    def rows_allowed(self, source: OpenSource) -> int:
        """Return how many rows a source may bring now: as many as there is room for, or none if it is to pause."""
        with self._counting:
            if not self._pressure.may_read(source.app, source.can_wait):
                return 0
            if not source.can_wait:
                return self._rows_max
            return max(1, min(self._rows_max, int(self._pressure.room() / source.row_bytes)))

    def let_go(self, offers: Sequence[Offer]) -> None:
        """Count what these sources had in hand no more: it is stored, or not wanted."""
        with self._counting:
            for offer in offers:
                self._underway.let_go(id(offer.source))

    def ask(self, source: OpenSource, rows_max: int) -> Offer | Idle:
        """Return what a source has, or until when it has nothing; raises ConnectorError, whatever went wrong."""
        try:
            return self._ask(source, rows_max)
        except ConnectorError:
            raise
        except BaseException as failure:  # a user's iterable or generator may raise anything, SystemExit too
            raise _wrapped(source, failure) from failure

    def _ask(self, source: OpenSource, rows_max: int) -> Offer | Idle:
        match source.reader.poll(rows_max, self._clock()):
            case Rows() as brought:
                offer = self._lay_out(source, self._without_giants(source, brought))
                self._bring(offer)
                return offer
            case Ended():
                return Offer(source, None, lay_out_end(source.outlets, source.number, self._clock()))
            case Idle() as idle:
                return idle

    def _bring(self, offer: Offer) -> None:
        """Count what a source has brought, from now until the scheduler does."""
        source, rows, size = offer.source, sum(rows for _, rows, _ in offer.puts), offer.put_bytes
        if rows and offer.rows is not None:
            source.row_bytes = size / offer.rows.batch.num_rows
        with self._counting:
            self._underway.brought(id(source), source.app, rows, size)
            self._pressure.brought(source.app, rows, size)

    def _without_giants(self, source: OpenSource, rows: Rows) -> Rows:
        sieved = without_giants(rows)
        if sieved.too_large and not source.has_giants:
            source.has_giants = True
            what = "source %s brings rows of more than %d bytes, which no queue takes: they are left out and counted"
            log.warning(what, source.name, ROW_BYTES_MAX)
        return sieved

    def _lay_out(self, source: OpenSource, rows: Rows) -> Offer:
        """Encode outside the transaction, so that the commit is short."""
        offer, batch = Offer(source, rows), rows.batch
        if batch.num_rows == 0:  # only a position, or lines that were left out before any column was known
            return offer
        missing = _missing_key(source.outlets, batch)
        if missing is not None:
            names = listed(batch.schema.names)
            raise ConnectorError(f"source {source.name!r} has no column {quoted(missing)} to key by, only: {names}")
        if (why := self._schemas.known(batch.schema).why_refused()) is not None:
            raise ConnectorError(f"source {source.name!r} cannot go on: {why}")
        now = self._clock()
        born_us = rows.due_us if rows.due_us is not None else now
        stamps = source.stamps(batch.num_rows, born_us, self._sample_share)
        offer.puts = lay_out(
            rows, source.outlets, source.number, self._schemas, batches=source.batches, stamps=stamps, now_us=now
        )
        source.batches += 1
        return offer

    def commit(self, offers: Sequence[Offer]) -> list[Event]:
        """Store the rows and positions together, and return what the scheduler is to know.

        Raises StoreFull or StoreTaken; then nothing was changed.
        """
        events: list[Event] = []
        records: list[ConnectorRecord] = []
        with self._store.write() as txn:
            if txn.get(TERM_KEY) != self._term:
                raise StoreTaken
            for offer in offers:
                events += self._make_room(txn, offer)
                records.append(self._store_offer(txn, offer, events))
        with self._counting:
            for event in events:
                if isinstance(event, RowsPut):
                    self._underway.stored(event)
        for offer, record in zip(offers, records, strict=True):
            offer.source.record = record
            offer.source.rows += 0 if offer.rows is None else offer.rows.batch.num_rows
        return events

    def _store_offer(self, txn: Transaction, offer: Offer, events: list[Event]) -> ConnectorRecord:
        source, rows = offer.source, offer.rows
        if rows is not None and offer.puts:
            self._schemas.ensure(txn, source.app, self._schemas.known(rows.batch.schema))
        for instance, record in put_all(txn, source.app, offer.puts):
            events.append(RowsPut(instance, record.put_rows, record.put_bytes, record.put_marks))
        before = source.record
        if rows is None:
            return before
        return keep_position(txn, source.app, source.number, before, rows, len(source.outlets))

    def _make_room(self, txn: Transaction, offer: Offer) -> list[Event]:
        """Shed the oldest rows behind a source that cannot wait when the disk budget is used up."""
        if offer.source.can_wait or self._pressure.to_shed(offer.put_bytes) == 0:
            return []
        self._pressure.correct(self._bytes_held(txn))
        excess = self._pressure.to_shed(offer.put_bytes)
        if excess == 0:
            return []
        events: list[Event] = []
        for target in sorted({target for target, _, _ in offer.puts}):
            instance = InstanceId(offer.source.app, target)
            queue = self._queues.find(instance)
            shed = shed_oldest(txn, instance, excess, behind_rows=0 if queue is None else queue.rows_given)
            excess -= shed.freed
            events.append(RowsGone(instance, shed.record.taken_rows + shed.record.shed_rows, shed.record.gone_bytes))
            if self._pressure.shed(shed.freed):
                log.warning("the disk budget is used up: the oldest rows of queue %s are shed, and counted", instance)
        return events

    def _bytes_held(self, txn: Transaction) -> int:
        """Return what waits in the store: the scheduler hears later of what was shed, and it would be shed again."""
        records = [read_queue(txn, queue.instance) for queue in list(self._queues.all())]
        return sum(record.put_bytes - record.gone_bytes for record in records)


def tell_stored(offer: Offer) -> None:
    """Let a source know that its rows, or its end, are stored; once the scheduler has been told of the rows.

    An app whose sources have ended and whose queues are empty is done.
    """
    source, rows = offer.source, offer.rows
    if rows is None:
        source.ended = source.is_exhausted = True
    elif source.on_stored is not None:
        source.on_stored(rows.position)


def _missing_key(outlets: Sequence[Outlet], batch: pa.RecordBatch) -> str | None:
    """Return a column by which rows are to be spread and which they do not have."""
    wanted = (column for outlet in outlets if len(outlet.targets) > 1 for column in outlet.key)
    return next((column for column in wanted if column not in batch.schema.names), None)


def _wrapped(source: OpenSource, failure: BaseException) -> ConnectorError:
    told = isinstance(failure, pa.ArrowException | WrongKey)
    what = str(failure) if told else f"{type(failure).__name__}: {failure}"
    return ConnectorError(f"source {source.name!r} cannot go on: {what}")
