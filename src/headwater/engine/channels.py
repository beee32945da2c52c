"""Rows on their way to another node: a durable send log, acknowledged cumulatively and received exactly once.

A node has one queue for every instance it deals with. Where the instance runs, workers take the rows; anywhere else
the same queue is an **outbox**: its entries go to the node that runs the instance, under their numbers in this queue,
and are deleted when that node acknowledges that they are durable there. The receiver records, for every sender, up to
which number it has them, in the transaction that puts the rows. So a retransmitted entry is refused (idempotent), and
a row is in one place or the other, whichever node fails in between.

A sender is named by its store and the app's place in it, not by its node: a node that has lost its disk numbers its
entries anew, and so does one that deleted an app and has it again.
"""

import struct
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from headwater.engine.queue_records import QueueRecord, append, read_queue
from headwater.engine.schemas import Schemas
from headwater.model.batch import decode_batch, decode_entry, encode_entry, entry_rows, share_stamps
from headwater.model.errors import StoreError
from headwater.model.ids import INSTANCES_MAX, AppId, InstanceId
from headwater.model.store_contract import Snapshot, Transaction
from headwater.model.store_layout import (
    entries_prefix,
    entry_key,
    entry_sequence,
    handed_on_key,
    numbered_key,
    queue_key,
    received_key,
    received_prefix,
)

ORIGIN_BYTES: Final = 16  # the name of an app's queues in a store
ORIGINS_MAX: Final = 2 * INSTANCES_MAX  # stores that send to one instance: an app's instances and sources are fewer

_RECEIVED: Final = struct.Struct("<qq")
_HANDED_ON: Final = struct.Struct("<q")
_NUMBERED: Final = struct.Struct(">I")


class ChannelReceived(NamedTuple):
    """What has been received for an instance from one store."""

    until: int = 0  # the next number expected
    rows: int = 0


NOTHING: Final = ChannelReceived()


class OutboxStretch(NamedTuple):
    """The entries of an outbox with numbers in a half-open range."""

    since: int
    until: int
    entries: tuple[tuple[int, bytes], ...]  # fewer than the numbers, where rows were shed

    @property
    def size_bytes(self) -> int:
        """The bytes of its entries."""
        return sum(len(encoded) for _, encoded in self.entries)


def origin_of(snapshot: Snapshot, store_name: bytes, app: AppId) -> bytes:
    """Return the name of an app's queues in a store; another name whenever their entries are numbered anew.

    A store never reuses the number of an app.
    """
    numbered = snapshot.get(numbered_key(app)) or _NUMBERED.pack(app)
    return blake2b(store_name + numbered, digest_size=ORIGIN_BYTES).digest()


def number_on(txn: Transaction, before: AppId, after: AppId) -> None:
    """Let queues that were copied to another number of the app keep their name."""
    txn.put(numbered_key(after), txn.get(numbered_key(before)) or _NUMBERED.pack(before))


def read_stretch(snapshot: Snapshot, instance: InstanceId, since: int, bytes_max: int) -> OutboxStretch:
    """Return the entries of an outbox from a number on: at most `bytes_max`, but one entry at least."""
    end = read_queue(snapshot, instance).next_sequence
    entries: list[tuple[int, bytes]] = []
    size = 0
    for key, encoded in snapshot.scan(entries_prefix(instance), entry_key(instance, since)):
        sequence = entry_sequence(key)
        if entries and size + len(encoded) > bytes_max:
            return OutboxStretch(since, sequence, tuple(entries))
        entries.append((sequence, bytes(encoded)))
        size += len(encoded)
    return OutboxStretch(since, end, tuple(entries))


def hand_on(txn: Transaction, instance: InstanceId, until: int) -> QueueRecord:
    """Delete acknowledged entries, all before a number. Return the queue's record."""
    record = read_queue(txn, instance)
    if until <= record.head_sequence:
        return record
    if until > record.next_sequence:
        raise StoreError(f"queue {instance} has nothing before {until}: its next number is {record.next_sequence}")
    assert record.head_offset == 0, "an outbox that somebody has begun to take from"
    rows = size = marks = 0
    gone: list[bytes] = []  # deleted behind the scan, which must not be disturbed
    for key, encoded in txn.scan(entries_prefix(instance), entry_key(instance, record.head_sequence)):
        if entry_sequence(key) >= until:
            break
        count = entry_rows(encoded)
        rows, size, marks = rows + count, size + len(encoded), marks + (count == 0)
        gone.append(key)
    for key in gone:
        txn.delete(key)
    record = record._replace(
        head_sequence=until,
        taken_rows=record.taken_rows + rows,
        gone_bytes=record.gone_bytes + size,
        taken_marks=record.taken_marks + marks,
    )
    txn.put(queue_key(instance), record.pack())
    txn.put(handed_on_key(instance), _HANDED_ON.pack(rows_handed_on(txn, instance) + rows))
    return record


def make_outbox(txn: Transaction, instance: InstanceId, schemas: Schemas) -> None:
    """Turn the queue of an instance that ran here into an outbox, whose first entry is whole: drop the taken rows.

    All waiting entries get new numbers then: the first entry may have been sent whole before the instance came here,
    and that copy, still under way, must not be taken for the rest of it.
    """
    record = read_queue(txn, instance)
    if record.head_offset == 0:
        return
    waiting = [
        (entry_sequence(key), bytes(encoded))
        for key, encoded in txn.scan(entries_prefix(instance), entry_key(instance, record.head_sequence))
    ]
    if not waiting or waiting[0][0] != record.head_sequence:
        raise StoreError(f"entry {record.head_sequence} of queue {instance} is missing from the store")
    (head, whole), *others = waiting
    left = _without_first(txn, instance.app, whole, record.head_offset, schemas)
    further = record.next_sequence - record.head_sequence
    for sequence, encoded in ((head, left), *others):
        txn.delete(entry_key(instance, sequence))
        txn.put(entry_key(instance, sequence + further), encoded)
    record = record._replace(
        head_sequence=record.next_sequence,
        next_sequence=record.next_sequence + further,
        head_offset=0,
        gone_bytes=record.gone_bytes + max(0, len(whole) - len(left)),
    )
    txn.put(queue_key(instance), record.pack())


def make_outboxes(txn: Transaction, app: AppId, instances: Iterable[int], schemas: Schemas) -> None:
    """Let all queues that nobody runs here begin with whole entries: a node may have been stopped in midst of some."""
    for number in instances:
        make_outbox(txn, InstanceId(app, number), schemas)


def _without_first(snapshot: Snapshot, app: AppId, encoded: bytes, rows: int, schemas: Schemas) -> bytes:
    """Return an entry without its first rows."""
    entry = decode_entry(encoded)
    known = schemas.find(snapshot, app, entry.schema_id)
    rest = decode_batch(entry.payload, known.schema, whole=known.whole).slice(rows)
    stamps = share_stamps(entry.stamps, rest.num_rows, entry.rows)
    return encode_entry(known.identity, entry.enqueued_us, rest.num_rows, stamps, known.encode(rest), entry.mark)


class Expected(NamedTuple):
    """What was received from one store, and the next number expected, which may be later."""

    known: ChannelReceived
    number: int

    def takes(self, stretch: OutboxStretch) -> bool:
        """Whether a stretch has new entries and leaves no gap."""
        return stretch.since <= self.number < stretch.until


def expected_from(snapshot: Snapshot, instance: InstanceId, origin: bytes, base: int) -> Expected:
    """Return what is expected next from another store.

    `base` is the first number in the sender's outbox: all before it has been taken, here or where the instance ran
    before. Raises StoreError for more stores than an app can have.
    """
    known = read_received(snapshot, instance, origin)
    if known == NOTHING and sum(1 for _ in snapshot.scan(received_prefix(instance))) >= ORIGINS_MAX:
        raise StoreError(f"rows of more than {ORIGINS_MAX} stores have come for instance {instance}")
    return Expected(known, max(known.until, base))


def receive(
    txn: Transaction, instance: InstanceId, origin: bytes, base: int, stretch: OutboxStretch
) -> tuple[ChannelReceived, QueueRecord | None]:
    """Put the new entries of a stretch; return what has been received, and the queue's record if it grew.

    A stretch behind a gap is refused: the missing entries will be retransmitted, and it with them.
    """
    known, expected = before = expected_from(txn, instance, origin, base)
    if not before.takes(stretch):
        return known, None
    fresh = [(entry_rows(encoded), encoded) for sequence, encoded in stretch.entries if sequence >= expected]
    received = ChannelReceived(stretch.until, known.rows + sum(rows for rows, _ in fresh))
    txn.put(received_key(instance, origin), _RECEIVED.pack(*received))
    return received, append(txn, instance, fresh)


def keep_received(txn: Transaction, instance: InstanceId, origin: bytes, until: int) -> None:
    """Expect nothing before a number from a store: the instance has taken all of it where it ran before."""
    check_origin(origin)
    if until < 0:
        raise StoreError(f"no queue numbers its entries from {until}")
    known = read_received(txn, instance, origin)
    txn.put(received_key(instance, origin), _RECEIVED.pack(max(known.until, until), known.rows))


def keep_received_rows(txn: Transaction, instance: InstanceId, origin: bytes, received: ChannelReceived) -> None:
    """Remember what has come for an instance from one store."""
    txn.put(received_key(instance, origin), _RECEIVED.pack(*received))


def read_received(snapshot: Snapshot, instance: InstanceId, origin: bytes) -> ChannelReceived:
    """Return what was received for an instance from one store."""
    packed = snapshot.get(received_key(instance, origin))
    return ChannelReceived() if packed is None else _unpacked(packed)


def all_received(snapshot: Snapshot, instance: InstanceId) -> dict[bytes, ChannelReceived]:
    """Return what was received for an instance, by store."""
    prefix = received_prefix(instance)
    return {bytes(key[len(prefix) :]): _unpacked(packed) for key, packed in snapshot.scan(prefix)}


def _unpacked(packed: bytes) -> ChannelReceived:
    try:
        return ChannelReceived._make(_RECEIVED.unpack(packed))
    except struct.error as damage:
        raise StoreError(f"the record of a channel is damaged: {damage}") from damage


def rows_handed_on(snapshot: Snapshot, instance: InstanceId) -> int:
    """Return how many rows of an outbox have been acknowledged."""
    packed = snapshot.get(handed_on_key(instance))
    return 0 if packed is None else int(_HANDED_ON.unpack(packed)[0])


def check_origin(origin: bytes) -> None:
    """Raise StoreError unless this can be the name of queues."""
    if len(origin) != ORIGIN_BYTES:
        raise StoreError(f"no queues are named {origin[:ORIGIN_BYTES].hex()} ({len(origin)} bytes)")


def check_entries(entries: Sequence[tuple[int, bytes]], since: int, until: int) -> None:
    """Raise StoreError unless these entries are a stretch of a queue."""
    last = since - 1
    for sequence, encoded in entries:
        if not last < sequence < until:
            raise StoreError(f"entry {sequence} does not belong between {last} and {until}")
        last = sequence
        decode_entry(encoded)
