"""The store as the engine sees it: an ordered map of bytes with snapshots and transactions, and its keys.

All of a node's durable truth lies in one such map: queues, keyed state, positions of sources and sinks, counts. The
runtime gives it to us as LMDB; anything that keeps keys in order and commits all or nothing will do.

Keys begin with a letter that says what lies there, then the app's number, so that an app is a few contiguous ranges
and can be removed as such.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from headwater.model.batch import entry_rows
from headwater.model.errors import StoreError
from headwater.model.ids import AppId, InstanceId

FORMAT: Final = 3  # raised when the meaning of any key or record changes; another format is refused, not guessed at


class Snapshot(Protocol):
    """A consistent view of the store."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key."""
        ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of these keys; one round trip where the store is elsewhere."""
        ...

    def scan(self, prefix: bytes, start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys with this prefix and their values in order, from `start` on if given."""
        ...


class Transaction(Snapshot, Protocol):
    """A view with changes that become true together, or not at all."""

    def put(self, key: bytes, value: bytes) -> None:
        """Set a key."""
        ...

    def put_many(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        """Set many keys, which is faster than one by one."""
        ...

    def delete(self, key: bytes) -> object:
        """Remove a key, if it is there; whether it was need not be known, which would cost a round trip elsewhere."""
        ...


class Store(Protocol):
    """Where transactions come from."""

    def read(self) -> AbstractContextManager[Snapshot]:
        """Open a snapshot."""
        ...

    def write(self) -> AbstractContextManager[Transaction]:
        """Open a transaction: committed at the end of the block, dropped if the block raises.

        A store that does not keep others from writing meanwhile raises `Conflict` there if what was read has changed.
        """
        ...


_APP: Final = struct.Struct(">cI")
_INSTANCE: Final = struct.Struct(">cII")
_ENTRY: Final = struct.Struct(">cIIQ")

FORMAT_KEY: Final = b"!format"
TERM_KEY: Final = b"!term"


def app_record_key(name: str) -> bytes:
    """Where the app of this name is registered."""
    return b"A" + name.encode()


def queue_key(instance: InstanceId) -> bytes:
    """Where the record of a queue lies."""
    return _INSTANCE.pack(b"M", instance.app, instance.number)


def entries_prefix(instance: InstanceId) -> bytes:
    """Where the entries of a queue lie."""
    return _INSTANCE.pack(b"Q", instance.app, instance.number)


def entry_key(instance: InstanceId, sequence: int) -> bytes:
    """Where one entry of a queue lies."""
    return _ENTRY.pack(b"Q", instance.app, instance.number, sequence)


def entry_sequence(key: bytes) -> int:
    """Return the number of the entry that lies at this key."""
    return int(_ENTRY.unpack(key)[3])


def counts_key(instance: InstanceId) -> bytes:
    """Where the row counts of an instance lie."""
    return _INSTANCE.pack(b"C", instance.app, instance.number)


def position_key(app: AppId, number: int) -> bytes:
    """Where the position of a source or sink lies, by its place among the declarations."""
    return _INSTANCE.pack(b"P", app, number)


def code_prefix(app: AppId) -> bytes:
    """Where the code of an app lies."""
    return _APP.pack(b"G", app)


def code_key(app: AppId, number: int) -> bytes:
    """Where one piece of code lies; a node never uses a number twice, so that code can be remembered by it."""
    return _INSTANCE.pack(b"G", app, number)


def schemas_prefix(app: AppId) -> bytes:
    """Where the schemas of an app's rows lie: they go with the app."""
    return _APP.pack(b"D", app)


def schema_key(app: AppId, identity: int) -> bytes:
    """Where one schema of an app's rows lies."""
    return schemas_prefix(app) + identity.to_bytes(8, "big")


def state_prefix(app: AppId, operator: int) -> bytes:
    """Where the keyed state of an operator lies."""
    return _INSTANCE.pack(b"S", app, operator)


def times_key(instance: InstanceId) -> bytes:
    """Where it lies how far event time has come for an instance."""
    return _INSTANCE.pack(b"T", instance.app, instance.number)


def received_prefix(instance: InstanceId) -> bytes:
    """Where it lies what other nodes have sent to an instance."""
    return _INSTANCE.pack(b"I", instance.app, instance.number)


def received_key(instance: InstanceId, origin: bytes) -> bytes:
    """Where it lies what one other store has sent to an instance."""
    return received_prefix(instance) + origin


def handed_on_key(instance: InstanceId) -> bytes:
    """Where it lies how many rows of an instance have gone to other nodes."""
    return _INSTANCE.pack(b"O", instance.app, instance.number)


def numbered_key(app: AppId) -> bytes:
    """Where it lies under which number of an app the entries of its queues began to be numbered, if another's."""
    return _APP.pack(b"B", app)


def lot_key(instance: InstanceId) -> bytes:
    """Where it lies under which lot an instance runs here, or did last."""
    return _INSTANCE.pack(b"L", instance.app, instance.number)


def given_key(instance: InstanceId) -> bytes:
    """Where it lies to whom an instance was given that ran here."""
    return _INSTANCE.pack(b"N", instance.app, instance.number)


def cut_key(instance: InstanceId) -> bytes:
    """Where it lies since which loss of a host rows for an instance are sent from here, or taken."""
    return _INSTANCE.pack(b"K", instance.app, instance.number)


def doubt_key(instance: InstanceId) -> bytes:
    """Where it lies whom rows in doubt wait for, which have a queue of their own."""
    return _INSTANCE.pack(b"W", instance.app, instance.number)


def doubts_prefix(app: AppId) -> bytes:
    """Where it lies whom the rows in doubt of an app wait for."""
    return _APP.pack(b"W", app)


def key_number(key: bytes) -> int:
    """Return the number of the instance of which something lies at this key."""
    return int(_INSTANCE.unpack(key)[2])


def lots_prefix(app: AppId) -> bytes:
    """Where it lies under which lots instances of an app run here."""
    return _APP.pack(b"L", app)


def shapes_key(instance: InstanceId) -> bytes:
    """Where it lies what columns have come to a queue behind a union."""
    return _INSTANCE.pack(b"U", instance.app, instance.number)


def app_prefixes(app: AppId) -> tuple[bytes, ...]:
    """Every range in which something of an app may lie."""
    return tuple(
        _APP.pack(letter, app)
        for letter in (b"M", b"Q", b"C", b"P", b"G", b"S", b"T", b"I", b"O", b"L", b"N", b"B", b"D", b"U", b"K", b"W")
    )


_QUEUE: Final = struct.Struct("<12q")


class QueueRecord(NamedTuple):
    """How far a queue was filled and emptied. Counts only ever grow, so a later record can always be told.

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
    last_end_us: int = 0  # when the last turn ended; what arrived before waited in the queue, not at its head
    turns: int = 0
    put_marks: int = 0  # entries without rows
    taken_marks: int = 0

    @property
    def waiting_rows(self) -> int:
        """Rows that are in the queue."""
        return self.put_rows - self.taken_rows - self.shed_rows

    def pack(self) -> bytes:
        """Return the record's bytes."""
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
    for key, _ in snapshot.scan(_APP.pack(b"M", app)):
        yield read_queue(snapshot, InstanceId(app, _INSTANCE.unpack(key)[2]))


def append(txn: Transaction, instance: InstanceId, entries: list[tuple[int, bytes]]) -> QueueRecord:
    """Put entries (rows, bytes) at the end of a queue and return its new record; one without rows is a mark."""
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
    """Count rows and marks as put that are taken in the same transaction, and so never lie in the queue."""
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
    """Drop the oldest entries of a queue, except its head and the rows that a worker has in its hands.

    A turn that finds one of its entries gone is superseded. Were those shed that a running turn holds, a queue under
    constant pressure would supersede every turn and never get on.
    """
    record = read_queue(txn, instance)
    doomed: list[bytes] = []
    held = -record.head_offset
    freed = rows = 0
    for key, encoded in txn.scan(entries_prefix(instance), entry_key(instance, record.head_sequence)):
        if freed >= bytes_wanted:
            break
        count = entry_rows(encoded)
        if count == 0:  # a mark takes no room, and what waits for it would wait for ever
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
