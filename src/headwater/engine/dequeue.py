"""Taking rows from the head of a queue: which ones, and what the commit needs to know."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from headwater.engine.pending_entries import Put
from headwater.engine.queue_records import QueueRecord, read_queue
from headwater.engine.schemas import KnownSchema, Schemas
from headwater.model.batch import Mark, Stamp, decode_batch, decode_entry, merge_stamps, share_stamps
from headwater.model.errors import StoreError
from headwater.model.ids import InstanceId
from headwater.model.store_contract import Snapshot, Transaction
from headwater.model.store_layout import entries_prefix, entry_key, entry_sequence, queue_key
from headwater.model.time import BEGINNING_OF_TIME
from headwater.operators.chain import unite

TURN_BYTES_MAX: Final = 16 << 20  # of input; bounds a worker's memory whatever the consumption policy says
READ_AHEAD: Final = 16  # entries that may be read in vain: several microseconds here, a round trip saved elsewhere
WAIT_US_MAX: Final = 86_400_000_000  # per row: a clock set wrong by decades would make sums overflow
ENTRIES_MAX: Final = 4_096  # per turn: reading thousands of one-row entries must not hold a snapshot for long


@dataclass(slots=True)
class Taken:
    """Rows taken from a queue, with what is needed to commit."""

    instance: InstanceId
    record: QueueRecord
    stretches: list["InputStretch"]
    stamps: tuple[Stamp, ...]
    sequences: list[int]  # entries used up
    head_sequence: int  # where the head is after the turn
    head_offset: int
    bytes_gone: int
    rows: int = 0
    marks: int = 0
    queue_us: int = 0
    schedule_us: int = 0
    in_hand: bool = False  # made by the same turn; it never lay in the queue
    shapes: bytes | None = None  # what is kept of the columns that have come to a queue behind a union

    @property
    def parts(self) -> list[tuple[int, pa.RecordBatch]]:
        """The rows as they came, each batch with the input it is for."""
        return [
            (source, part) for stretch in self.stretches for source, parts in stretch.batches.items() for part in parts
        ]

    @property
    def batch(self) -> pa.RecordBatch | None:
        """All rows as one batch, for users with one input that ignore time."""
        batches = [batch for stretch in self.stretches for united in stretch.batches.values() for batch in united]
        return unite(batches) if batches else None


@dataclass(slots=True)
class InputStretch:
    """Rows that may be processed together, by input, and the marks behind them."""

    batches: dict[int, list[pa.RecordBatch]] = field(default_factory=dict)
    marks: list[Mark] = field(default_factory=list)
    exact: bool = False


class _Gathering:
    """Collects entries, in order, into the stretches of what is taken."""

    def __init__(self, taken: Taken, schemas: Schemas) -> None:
        self._taken, self._schemas = taken, schemas
        self._first: dict[int, KnownSchema] = {}
        self._stamps: list[tuple[Stamp, ...]] = []
        self._stretch: InputStretch | None = None

    def fits(self, source: int, known: KnownSchema) -> bool:
        """Whether rows of this schema can be taken together with those before them in the same input."""
        return self._schemas.fit(self._first.setdefault(source, known), known)

    def add(self, source: int, batch: pa.RecordBatch, stamps: tuple[Stamp, ...]) -> None:
        self._open().batches.setdefault(source, []).append(batch)
        self._stamps.append(stamps)

    def pass_mark(self, mark: Mark) -> None:
        """Add the mark of an entry; behind an exact mark another stretch begins."""
        stretch = self._open()
        if mark.watermark_us != BEGINNING_OF_TIME or mark.idle:
            stretch.marks.append(mark)
            if mark.exact:
                stretch.exact, self._stretch = True, None

    def finish(self) -> Taken:
        if self._stamps:
            self._taken.stamps = self._stamps[0] if len(self._stamps) == 1 else merge_stamps(self._stamps)
        return self._taken

    def _open(self) -> InputStretch:
        if self._stretch is None:
            self._stretch = InputStretch()
            self._taken.stretches.append(self._stretch)
        return self._stretch


def take(snapshot: Snapshot, instance: InstanceId, rows_max: int, schemas: Schemas, now_us: int) -> Taken:
    """Read up to `rows_max` waiting rows from the head of a queue, and the marks among and behind them."""
    record = read_queue(snapshot, instance)
    taken = Taken(instance, record, [], (), [], record.head_sequence, record.head_offset, 0)
    gathering = _Gathering(taken, schemas)
    for sequence, encoded in waiting_entries(snapshot, instance, record, rows_max):
        entry = decode_entry(encoded)
        if entry.rows and taken.rows >= rows_max:
            break
        offset = record.head_offset if sequence == record.head_sequence else 0
        wanted = min(entry.rows - offset, rows_max - taken.rows)
        if entry.rows:
            known = schemas.find(snapshot, instance.app, entry.schema_id)
            if not gathering.fits(entry.mark.source, known):
                break
            batch = decode_batch(entry.payload, known.schema, whole=known.whole)
            whole = wanted == entry.rows
            stamps = entry.stamps if whole else share_stamps(entry.stamps, wanted, entry.rows)
            gathering.add(entry.mark.source, batch if whole else batch.slice(offset, wanted), stamps)
            _account(taken, entry.enqueued_us, wanted, record.last_end_us, now_us)
        else:
            taken.marks += 1
        if offset + wanted < entry.rows:
            taken.head_sequence, taken.head_offset = sequence, offset + wanted
            break
        taken.sequences.append(sequence)
        taken.head_sequence, taken.head_offset = sequence + 1, 0
        taken.bytes_gone += len(encoded)
        gathering.pass_mark(entry.mark)
        if taken.bytes_gone >= TURN_BYTES_MAX or len(taken.sequences) >= ENTRIES_MAX:
            break
    return gathering.finish()


def take_in_hand(
    snapshot: Snapshot, instance: InstanceId, puts: Sequence[Put], rows_max: int, schemas: Schemas
) -> Taken | None:
    """Take what the same turn has just made for a queue, before it is stored; None if that is not possible.

    The queue must be empty, since its rows would come first. Rows that others put there meanwhile come by other
    channels, and there is no order between channels.
    """
    record = read_queue(snapshot, instance)
    if record.head_sequence != record.next_sequence or sum(put.rows for put in puts) > rows_max:
        return None
    taken = Taken(instance, record, [], (), [], record.head_sequence, record.head_offset, 0, in_hand=True)
    gathering = _Gathering(taken, schemas)
    for put in puts:
        if put.batch is not None and put.known is not None:
            if not gathering.fits(put.mark.source, put.known):
                return None
            gathering.add(put.mark.source, put.batch, put.stamps)
            taken.rows += put.rows
        else:
            taken.marks += 1
        gathering.pass_mark(put.mark)
    return gathering.finish()


def waiting_entries(
    snapshot: Snapshot, instance: InstanceId, record: QueueRecord, rows_max: int
) -> Iterator[tuple[int, bytes]]:
    """Yield the entries of a queue from its head on. If none was shed the numbers have no gaps, so no cursor is needed.

    The first read is sized for entries that are all alike; further ones grow.
    """
    if record.shed_rows:
        for key, found in snapshot.scan(entries_prefix(instance), entry_key(instance, record.head_sequence)):
            yield entry_sequence(key), found
        return
    sequence, end = record.head_sequence, record.next_sequence
    needed = 1 + rows_max * (end - sequence) // (record.put_rows - record.taken_rows or 1)
    ahead = READ_AHEAD
    while sequence < end:
        count = min(needed, ahead, end - sequence)
        if count == 1:
            entries = [snapshot.get(entry_key(instance, sequence))]
        else:
            entries = snapshot.get_many([entry_key(instance, sequence + place) for place in range(count)])
        for encoded in entries:
            if encoded is None:
                raise StoreError(f"entry {sequence} of queue {instance} is missing from the store")
            yield sequence, encoded
            sequence += 1
        needed, ahead = max(needed - count, READ_AHEAD), 4 * ahead


def _account(taken: Taken, enqueued_us: int, rows: int, last_end_us: int, now_us: int) -> None:
    """Split a wait into time in the queue, behind an earlier turn, and time at its head, to be scheduled."""
    at_head_us = max(enqueued_us, last_end_us)
    taken.rows += rows
    taken.queue_us += rows * min(WAIT_US_MAX, max(0, at_head_us - enqueued_us))
    taken.schedule_us += rows * min(WAIT_US_MAX, max(0, now_us - at_head_us))


def advance(txn: Transaction, taken: Taken, record: QueueRecord, now_us: int) -> QueueRecord:
    """Move the head of a queue behind what was taken and return its new record."""
    for sequence in taken.sequences:
        txn.delete(entry_key(taken.instance, sequence))
    record = QueueRecord(
        record.next_sequence,
        record.put_rows,
        record.put_bytes,
        taken.head_sequence,
        taken.head_offset,
        record.taken_rows + taken.rows,
        record.gone_bytes + taken.bytes_gone,
        record.shed_rows,
        now_us,
        record.turns + 1,
        record.put_marks,
        record.taken_marks + taken.marks,
    )
    txn.put(queue_key(taken.instance), record.pack())
    return record
