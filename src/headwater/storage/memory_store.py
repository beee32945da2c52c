"""A store in memory with the contract of the LMDB store.

Keys are kept sorted. A snapshot does not change: content with open snapshots is copied before a write (copy-on-write).
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from headwater.model.errors import StoreFull


class _Content:
    """Sorted keys, and their values."""

    def __init__(self, values: dict[bytes, bytes], order: list[bytes]) -> None:
        self.values, self.order = values, order
        self.readers = 0  # open snapshots; while there are any, it does not change

    def copy(self) -> "_Content":
        return _Content(dict(self.values), list(self.order))


class MemorySnapshot:
    """A view that later commits do not change."""

    def __init__(self, held: _Content) -> None:
        self._held = held

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key."""
        return self._held.values.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of these keys."""
        return [self._held.values.get(key) for key in keys]

    def scan(self, prefix: bytes, start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys with this prefix and their values in order, from `start` on if given."""
        order, key = self._held.order, prefix if start is None else start
        at = bisect_left(order, key)
        while at < len(order) and order[at].startswith(prefix):
            key = order[at]
            yield key, self._held.values[key]
            at = at + 1 if at < len(order) and order[at] == key else bisect_left(order, key)


class MemoryTransaction(MemorySnapshot):
    """Changes that can be rolled back."""

    def __init__(self, held: _Content, bytes_max: int | None) -> None:
        """Change this content, up to `bytes_max` of values."""
        super().__init__(held)
        self._bytes_max = bytes_max
        self._before: dict[bytes, bytes | None] = {}

    def put(self, key: bytes, value: bytes) -> None:
        """Set a key; raises StoreFull beyond the limit."""
        values = self._held.values
        self._before.setdefault(key, values.get(key))
        if key not in values:
            insort(self._held.order, key)
        values[key] = bytes(value)
        if self._bytes_max is not None and sum(map(len, values.values())) > self._bytes_max:
            raise StoreFull(f"the store in memory has used up its {self._bytes_max} bytes")

    def put_many(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        for key, value in pairs:
            self.put(key, value)

    def delete(self, key: bytes) -> bool:
        """Remove a key; False if it was not there."""
        values = self._held.values
        if key not in values:
            return False
        self._before.setdefault(key, values[key])
        del values[key]
        del self._held.order[bisect_left(self._held.order, key)]
        return True

    def unchanged(self) -> _Content:
        """Return a copy of the content before the changes."""
        before = MemoryTransaction(self._held.copy(), None)
        before._before = self._before
        before.undo()
        return before._held

    def undo(self) -> None:
        """Roll back all changes."""
        self._bytes_max = None
        for key, value in self._before.copy().items():
            if value is None:
                self.delete(key)
            else:
                self.put(key, value)


class MemoryStore:
    """Keeps sorted keys and commits atomically."""

    def __init__(self, bytes_max: int | None = None) -> None:
        """Begin empty, with room for `bytes_max` bytes of values."""
        self.bytes_max = bytes_max
        self._held = _Content({}, [])
        self._open: MemoryTransaction | None = None

    @contextmanager
    def read(self) -> Iterator[MemorySnapshot]:
        """Open a snapshot; during a transaction, of the content before it."""
        held = self._held if self._open is None else self._open.unchanged()
        held.readers += 1
        try:
            yield MemorySnapshot(held)
        finally:
            held.readers -= 1

    @contextmanager
    def write(self) -> Iterator[MemoryTransaction]:
        """Open a transaction: committed at the end of the block, dropped if the block raises."""
        draft = self._held.copy() if self._held.readers else self._held
        txn = self._open = MemoryTransaction(draft, self.bytes_max)
        try:
            yield txn
        except BaseException:
            txn.undo()
            raise
        finally:
            self._open = None
        self._held = draft
