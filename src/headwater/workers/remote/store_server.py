"""The node's answers to a remote worker's requests to the store, one server per worker.

Reads are answered from snapshots that stay open until the worker closes them or is lost. A commit is validated and made
in one transaction: every value and every scan that the worker read must be unchanged.
"""

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final

import lmdb

from headwater.engine.dequeue import waiting_entries
from headwater.engine.queue_records import read_queue
from headwater.model.batch import entry_rows
from headwater.model.errors import StoreError, StoreFull
from headwater.model.frames import BrokenFrame
from headwater.model.ids import AppId, InstanceId
from headwater.model.store_contract import Snapshot, Transaction
from headwater.model.store_layout import times_key
from headwater.storage.lmdb_store import LmdbStore
from headwater.workers.local.wire import TurnPart
from headwater.workers.remote.store_wire import (
    ANSWER_BYTES,
    KEYS_MAX,
    Along,
    Answer,
    CloseSnapshot,
    Commit,
    Committed,
    Conflicted,
    Fetch,
    OpenSnapshot,
    Page,
    Reading,
    StoreRefused,
    Values,
    Walk,
    Walked,
    digest,
    digest_all,
)

SNAPSHOTS_MAX: Final = 64  # per worker; an operator that scans its state has two or three open


class StoreServer:
    """The open snapshots of one worker, and the answers from them."""

    def __init__(self, store: LmdbStore) -> None:
        self._store = store
        self._open: dict[int, tuple[AbstractContextManager[Snapshot], Snapshot]] = {}

    def answer(self, question: Reading) -> Answer | None:
        """Return the answer, or None if the question has none; raises BrokenFrame if the question is invalid."""
        try:
            match question:
                case OpenSnapshot(number):
                    self._look(number)
                    return None
                case CloseSnapshot(number):
                    self._close(number)
                    return None
                case Fetch(number, keys):
                    if len(keys) > KEYS_MAX:
                        raise BrokenFrame(f"{len(keys)} keys in one question")
                    return _fetch(self._snapshot(number), list(keys))
                case Walk(number, prefix, start, bytes_max):
                    return _walk(self._snapshot(number), prefix, start, min(bytes_max, ANSWER_BYTES))
        except StoreError as refusal:  # of a snapshot that cannot be opened
            return refused(refusal)
        except lmdb.Error as refusal:  # of a read from one that is open
            return refused(self._store.unreadable(refusal))

    def along(self, parts: Sequence[TurnPart]) -> Along:
        """Return the keys and values that a turn will read: for each part all of them, or none if too many."""
        values: dict[bytes, bytes | None] = {}
        room = ANSWER_BYTES
        with self._store.read() as snapshot:
            for part in parts:
                looked = _Onlooker(snapshot, room)
                with contextlib.suppress(StoreError):  # of damaged entries, which the worker will report
                    if _take(looked, InstanceId(AppId(part.app), part.instance), part.rows_max):
                        values |= looked.seen
                        room = looked.room
        return Along(list(values.items()))

    def close(self) -> None:
        """Close all snapshots: old readers keep pages from being reused."""
        for number in list(self._open):
            self._close(number)

    def _look(self, number: int) -> None:
        if number in self._open or len(self._open) >= SNAPSHOTS_MAX:
            raise BrokenFrame(f"snapshot {number} is open already, or too many others are")
        span = self._store.read()
        self._open[number] = (span, span.__enter__())

    def _close(self, number: int) -> None:
        self._snapshot(number)
        span, _ = self._open.pop(number)
        span.__exit__(None, None, None)

    def _snapshot(self, number: int) -> Snapshot:
        if number not in self._open:
            raise BrokenFrame(f"snapshot {number} is not open")
        return self._open[number][1]


class _Onlooker:
    """A snapshot that records what was read from it."""

    def __init__(self, snapshot: Snapshot, room: int) -> None:
        self.seen: dict[bytes, bytes | None] = {}
        self.room = room  # bytes that may still be recorded
        self._snapshot = snapshot

    def get(self, key: bytes) -> bytes | None:
        value = self.seen[key] = self._snapshot.get(key)
        self.room -= len(key) + len(value or b"")
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def scan(self, prefix: bytes, start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        return self._snapshot.scan(prefix, start)


def _take(snapshot: _Onlooker, instance: InstanceId, rows_max: int) -> bool:
    """Read what a turn of so many rows would read; False if that is too much, or needs a scan."""
    record = read_queue(snapshot, instance)
    snapshot.get(times_key(instance))
    if record.shed_rows:
        return False
    rows = -record.head_offset
    for _, encoded in waiting_entries(snapshot, instance, record, rows_max):
        count = entry_rows(encoded)
        if rows >= rows_max and count:
            break
        rows += count
        if snapshot.room < 0:
            return False
    return snapshot.room >= 0


def _fetch(snapshot: Snapshot, keys: list[bytes]) -> Values:
    values: list[bytes | None] = []
    size = 0
    for key in keys:
        value = snapshot.get(key)
        values.append(value)
        size += 8 if value is None else 8 + len(value)
        if size >= ANSWER_BYTES:
            break
    return Values(values)


def _walk(snapshot: Snapshot, prefix: bytes, start: bytes, bytes_max: int) -> Page:
    entries: list[tuple[bytes, bytes]] = []
    size = 0
    for key, value in snapshot.scan(prefix, start):
        if size >= bytes_max and entries:
            return Page(entries, more=True)
        entries.append((key, value))
        size += len(key) + len(value)
    return Page(entries, more=False)


def commit(store: LmdbStore, wanted: Commit) -> Answer:
    """Commit if all reads are unchanged; raises StoreError if the store cannot write."""
    with store.write() as txn:
        return make(txn, wanted)


def make(txn: Transaction, wanted: Commit) -> Answer:
    """Apply all writes to a transaction, or none if a read has changed."""
    if not _holds(txn, wanted):
        return Conflicted()
    for key, value in wanted.writes:
        if value is None:
            txn.delete(key)
        else:
            txn.put(key, value)
    return Committed()


def _holds(txn: Transaction, wanted: Commit) -> bool:
    for key, expected in wanted.reads:
        value = txn.get(key)
        if (None if value is None else digest(value)) != expected:
            return False
    return all(digest_all(_walked(txn, walk)) == walk.digest for walk in wanted.walks)


def _walked(txn: Transaction, walk: Walked) -> Iterator[tuple[bytes, bytes]]:
    for key, value in txn.scan(walk.prefix, walk.start):
        if walk.last is not None and key > walk.last:
            return
        yield key, value


def refused(reason: StoreError) -> StoreRefused:
    """Return a refusal as it travels."""
    return StoreRefused(isinstance(reason, StoreFull), str(reason))
