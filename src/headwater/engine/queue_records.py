"""Queues in the store: how far each was filled and emptied, and its entries."""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from headwater.model.batch import entry_rows
from headwater.model.errors import StoreError
from headwater.model.ids import AppId, InstanceId
from headwater.model.store_contract import Snapshot, Transaction
from headwater.model.store_layout import INSTANCE_KEY, entries_prefix, entry_key, queue_key, queues_prefix

_QUEUE: Final = struct.Struct("<12q")


class QueueRecord(NamedTuple):
    """How far a queue was filled and emptied. Counts only grow, so of two records the later one is evident.

    A tuple, since several are made in every turn.
    """

    next_sequence: int = 0
    put_rows: int = 0
    put_bytes: int = 0
    head_sequence: int = 0
    head_offset: int = 0  # rows of the head entry that are taken already
    taken_rows: int = 0
    gone_bytes: int = 0
    shed_rows: int = 0
    last_end_us: int = 0  # when the last turn ended; rows that came before have waited in the queue, not at its head
    turns: int = 0
    put_marks: int = 0  # entries without rows
    taken_marks: int = 0

    @property
    def waiting_rows(self) -> int:
        """Rows that are in the queue."""
        return self.put_rows - self.taken_rows - self.shed_rows

    def pack(self) -> bytes:
        return _QUEUE.pack(*self)


def read_queue(snapshot: Snapshot, instance: InstanceId) -> QueueRecord:
    """Return the record of a queue; one never used is empty."""
    packed = snapshot.get(queue_key(instance))
    if packed is None:
        return QueueRecord()
    try:
        return QueueRecord._make(_QUEUE.unpack(packed))
    except struct.error as damage:
        raise StoreError(f"the record of queue {instance} is damaged: {damage}") from damage


def all_queues(snapshot: Snapshot, app: AppId) -> Iterator[QueueRecord]:
    """Go through the records of all queues of an app."""
    for key, _ in snapshot.scan(queues_prefix(app)):
        yield read_queue(snapshot, InstanceId(app, INSTANCE_KEY.unpack(key)[2]))


def append(txn: Transaction, instance: InstanceId, entries: list[tuple[int, bytes]]) -> QueueRecord:
    """Append entries (rows, bytes) to a queue and return its new record; one without rows is a mark."""
    record = read_queue(txn, instance)
    sequence = record.next_sequence
    for _, encoded in entries:
        txn.put(entry_key(instance, sequence), encoded)
        sequence += 1
    record = QueueRecord(
        sequence,
        record.put_rows + sum(rows for rows, _ in entries),
        record.put_bytes + sum(len(encoded) for _, encoded in entries),
        record.head_sequence,
        record.head_offset,
        record.taken_rows,
        record.gone_bytes,
        record.shed_rows,
        record.last_end_us,
        record.turns,
        record.put_marks + sum(rows == 0 for rows, _ in entries),
        record.taken_marks,
    )
    txn.put(queue_key(instance), record.pack())
    return record


def begin_queue(
    txn: Transaction, instance: InstanceId, since: int, until: int, entries: Iterable[tuple[int, bytes]]
) -> QueueRecord:
    """Begin a queue that has these entries, under the numbers that they have, and no others before `until`."""
    rows = size = marks = 0
    for sequence, encoded in entries:
        txn.put(entry_key(instance, sequence), encoded)
        count = entry_rows(encoded)
        rows, size, marks = rows + count, size + len(encoded), marks + (count == 0)
    record = QueueRecord(next_sequence=until, head_sequence=since, put_rows=rows, put_bytes=size, put_marks=marks)
    txn.put(queue_key(instance), record.pack())
    return record


def pass_by(txn: Transaction, instance: InstanceId, rows: int, marks: int) -> QueueRecord:
    """Count rows and marks as put that the same transaction takes, and so never stores."""
    record = read_queue(txn, instance)
    record = record._replace(put_rows=record.put_rows + rows, put_marks=record.put_marks + marks)
    txn.put(queue_key(instance), record.pack())
    return record


@dataclass(frozen=True, slots=True)
class Shed:
    """What was shed from a queue, and its record afterwards."""

    rows: int
    freed: int
    record: QueueRecord


def shed_oldest(txn: Transaction, instance: InstanceId, bytes_wanted: int, *, behind_rows: int) -> Shed:
    """Drop the oldest entries of a queue, except its head and the rows that were given to a worker.

    A turn is superseded if one of its entries is gone. Were entries of running turns shed, a queue under constant
    pressure would supersede every turn and make no progress.
    """
    record = read_queue(txn, instance)
    doomed: list[bytes] = []
    held = -record.head_offset
    freed = rows = 0
    for key, encoded in txn.scan(entries_prefix(instance), entry_key(instance, record.head_sequence)):
        if freed >= bytes_wanted:
            break
        count = entry_rows(encoded)
        if count == 0:  # a mark takes no room, and operators downstream wait for it
            continue
        if held < max(1, behind_rows):
            held += count
            continue
        doomed.append(key)
        freed += len(encoded)
        rows += count
    for key in doomed:
        txn.delete(key)
    record = record._replace(shed_rows=record.shed_rows + rows, gone_bytes=record.gone_bytes + freed)
    txn.put(queue_key(instance), record.pack())
    return Shed(rows, freed, record)
