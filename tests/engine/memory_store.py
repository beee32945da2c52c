"""A store in memory: what the engine needs of LMDB, in a dict that is copied when it is written."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from headwater.model.errors import StoreFull


class MemorySnapshot:
    """A view that later commits do not change."""

    def __init__(self, held: dict[bytes, bytes]) -> None:
        """Look at what is there now."""
        self._held = held

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key."""
        return self._held.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of these keys."""
        return [self._held.get(key) for key in keys]

    def scan(self, prefix: bytes, start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys with this prefix and their values in order, from `start` on if given."""
        first = prefix if start is None else start
        for key in sorted(key for key in self._held if key >= first and key.startswith(prefix)):
            yield key, self._held[key]


class MemoryTransaction(MemorySnapshot):
    """A draft that becomes the store's content, or nothing."""

    def __init__(self, draft: dict[bytes, bytes], bytes_max: int | None) -> None:
        """Change this draft, within so many bytes."""
        super().__init__(draft)
        self._bytes_max = bytes_max

    def put(self, key: bytes, value: bytes) -> None:
        """Set a key; a store without room refuses."""
        self._held[key] = value
        if self._bytes_max is not None and sum(map(len, self._held.values())) > self._bytes_max:
            raise StoreFull(f"the store in memory has used up its {self._bytes_max} bytes")

    def put_many(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        """Set many keys."""
        for key, value in pairs:
            self.put(key, value)

    def delete(self, key: bytes) -> bool:
        """Remove a key; False if it was not there."""
        return self._held.pop(key, None) is not None


class MemoryStore:
    """Keeps keys in order and commits all or nothing."""

    def __init__(self, bytes_max: int | None = None) -> None:
        """Begin empty, with room for so many bytes of values."""
        self.bytes_max = bytes_max
        self._held: dict[bytes, bytes] = {}

    @contextmanager
    def read(self) -> Iterator[MemorySnapshot]:
        """Open a snapshot."""
        yield MemorySnapshot(self._held)

    @contextmanager
    def write(self) -> Iterator[MemoryTransaction]:
        """Open a transaction: committed at the end of the block, dropped if the block raises."""
        draft = dict(self._held)
        yield MemoryTransaction(draft, self.bytes_max)
        self._held = draft
