"""The store on LMDB: one memory-mapped file shared by the node and all its workers.

Commits are atomic, even if the process is killed in the middle: LMDB writes to unreferenced pages (copy-on-write) and
switches one root page at the end. A writer that dies releases the lock. Without `power_safe` a commit is passed to the
kernel without waiting for the disk: it survives the death of every process here, but not a power cut.
"""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import lmdb

from headwater.model.errors import StoreError, StoreFull
from headwater.model.store_layout import FORMAT, FORMAT_KEY, TERM_KEY
from headwater.storage.locks import FileLock, Holder, LockHeld, holder_in, this_process, told

READERS_MAX: Final = 1_024  # processes and threads that read at the same time
ROOM_FOR_STATE: Final = 4 << 30  # of address space beyond the budget for rows; costs nothing until it is used
_FILE: Final = "data.mdb"
OWNER_LOCK: Final = "owner.lock"  # a file that the owner keeps locked
# How strerror words ENOSPC, EFBIG and EDQUOT; and EIO, which LMDB reports for a partial write.
_NO_ROOM: Final = ("No space left", "File too large", "quota exceeded", "Input/output error")


class _Snapshot:
    """A read transaction."""

    def __init__(self, txn: Any) -> None:
        self._txn = txn
        self.get = txn.get  # the hottest call of all: no wrapper around it

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        get = self.get
        return [get(key) for key in keys]

    def scan(self, prefix: bytes, start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        cursor = self._txn.cursor()
        if cursor.set_range(start if start is not None else prefix):
            for key, value in cursor:
                if not key.startswith(prefix):
                    return
                yield key, value


class _Transaction(_Snapshot):
    """A write transaction."""

    def __init__(self, txn: Any) -> None:
        super().__init__(txn)
        self.put = txn.put
        self.put_many = txn.cursor().putmulti
        self.delete = txn.delete


class _Reading:
    """A snapshot's span. A class, since a generator would cost a turn several microseconds."""

    __slots__ = ("_store", "_txn")

    def __init__(self, env: Any, store: "LmdbStore") -> None:
        self._store = store
        try:
            self._txn = env.begin()
        except lmdb.Error as refusal:  # too many read at the same time, for one
            raise store.unreadable(refusal) from refusal

    def __enter__(self) -> _Snapshot:
        return _Snapshot(self._txn)

    def __exit__(self, kind: object, value: object, trace: object) -> None:
        self._txn.abort()
        if isinstance(value, lmdb.Error):
            raise self._store.unreadable(value) from value


class _Writing:
    """A transaction's context manager: commits at the end, aborts if the block raises."""

    __slots__ = ("_store", "_txn")

    def __init__(self, env: Any, store: "LmdbStore") -> None:
        self._store = store
        try:
            self._txn = env.begin(write=True)
        except lmdb.Error as refusal:
            raise store.explained(refusal) from refusal

    def __enter__(self) -> _Transaction:
        return _Transaction(self._txn)

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: object) -> None:
        if value is None:
            try:
                self._txn.commit()
            except lmdb.Error as refusal:
                raise self._store.explained(refusal) from refusal
            return
        self._txn.abort()
        if isinstance(value, lmdb.Error):
            raise self._store.explained(value) from value


def _in_use(directory: Path, holder: Holder | None) -> StoreError:
    return StoreError(f"the store in {directory} is in use by {told(holder)}; stop it or give another directory")


class LmdbStore:
    """One node's store, open in this process."""

    def __init__(self, directory: Path, *, disk_bytes: int, power_safe: bool = False) -> None:
        """Open the store in the directory, or make an empty one."""
        self.directory = directory
        self.disk_bytes = disk_bytes
        self._lock: FileLock | None = None
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._env = lmdb.open(
                str(directory),
                map_size=disk_bytes * 3 // 2 + ROOM_FOR_STATE,
                max_readers=READERS_MAX,
                sync=power_safe,
                metasync=power_safe,
                readahead=False,
                max_spare_txns=8,
                mode=0o600,  # of its files: the directory may exist already, readable by others
            )
        except (lmdb.InvalidError, lmdb.CorruptedError, lmdb.VersionMismatchError) as damage:
            raise StoreError(
                f"{directory} holds no store that can be read ({damage}); give another directory"
            ) from damage
        except lmdb.Error as refusal:
            if "already open" in str(refusal):
                raise _in_use(directory, holder_in(directory / OWNER_LOCK)) from refusal
            raise StoreError(f"the store in {directory} cannot be opened: {refusal}") from refusal
        except OSError as refusal:
            raise StoreError(f"the store in {directory} cannot be opened: {refusal}") from refusal

    def own(self) -> bytes:
        """Make this process the store's only owner and return its term, a fencing token that names this ownership.

        It shuts out the workers of earlier owners, and separates what a worker has cached of different stores.
        """
        owner = this_process("another node", time.time_ns() // 1_000)  # as the next one sees it
        try:
            self._lock = FileLock(self.directory / OWNER_LOCK, owner, stays=True, mode=0o600)
        except LockHeld as refusal:
            raise _in_use(self.directory, refusal.holder) from None
        except OSError as failure:
            raise StoreError(
                f"the store in {self.directory} cannot be locked ({failure.strerror}), and two nodes would damage it; "
                "give a directory on a disk of this machine"
            ) from failure
        with self.write() as txn:
            self._check_format(txn)
            term = os.urandom(16)
            txn.put(TERM_KEY, term)
        return term

    def _check_format(self, txn: _Transaction) -> None:
        mine = f"headwater store {FORMAT}".encode()
        found = txn.get(FORMAT_KEY)
        if found is None and next(txn.scan(b""), None) is None:
            txn.put(FORMAT_KEY, mine)
        elif found != mine:
            written = (
                "something else than Headwater"
                if found is None
                else f"another version ({bytes(found).decode(errors='replace')!r})"
            )
            raise StoreError(
                f"the store in {self.directory} was written by {written}, this one reads {mine.decode()!r}; "
                "use the version that wrote it, or an empty directory"
            )

    def read(self) -> "_Reading":
        """Open a snapshot; raises StoreError if too many are open."""
        return _Reading(self._env, self)

    def write(self) -> "_Writing":
        """Open a transaction; a full disk or budget raises StoreFull and changes nothing."""
        return _Writing(self._env, self)

    def unreadable(self, refusal: Exception) -> StoreError:
        """Return the error of a read that LMDB refuses, in words for a user."""
        return StoreError(f"the store in {self.directory} cannot be read: {refusal}")

    def explained(self, refusal: Exception) -> StoreError:
        """Return the error of a write that LMDB refuses, in words for a user."""
        if isinstance(refusal, lmdb.MapFullError):
            return StoreFull(f"the store in {self.directory} has used up its {self.disk_bytes >> 20} MiB budget")
        if isinstance(refusal, lmdb.DiskError) or any(words in str(refusal) for words in _NO_ROOM):
            return StoreFull(
                f"no space is left on the disk of {self.directory}, or it fails ({refusal}); "
                "nothing is lost, and it goes on as soon as there is room"
            )
        return StoreError(f"the store in {self.directory} cannot be written: {refusal}")

    def forget_dead_readers(self) -> int:
        """Free the reader slots of killed processes, which would keep old pages from being reused."""
        return int(self._env.reader_check())

    def bytes_used(self) -> int:
        """Return the size of the file on disk."""
        return (self.directory / _FILE).stat().st_blocks * 512

    def close(self) -> None:
        """Close the store and release its lock."""
        self._env.close()
        if self._lock is not None:
            self._lock.release()
