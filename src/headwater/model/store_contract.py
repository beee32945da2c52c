"""The contract of a store: an ordered map of bytes with snapshots and transactions.

All of a node's durable state is in one such map: queues, keyed state, positions of sources and sinks, counts. Anything
with sorted keys and atomic commits will do: LMDB, a dictionary, a connection to a node that has one.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol


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
    """A view with changes that are committed atomically."""

    def put(self, key: bytes, value: bytes) -> None:
        """Set a key."""
        ...

    def put_many(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        """Set many keys, which is faster than one by one."""
        ...

    def delete(self, key: bytes) -> object:
        """Remove a key, if it is there; whether it was is not returned, as that could cost a round trip."""
        ...


class Store(Protocol):
    """The source of snapshots and transactions."""

    def read(self) -> AbstractContextManager[Snapshot]:
        """Open a snapshot."""
        ...

    def write(self) -> AbstractContextManager[Transaction]:
        """Open a transaction: committed at the end of the block, dropped if the block raises.

        A store with concurrent writers raises `Conflict` there if what was read has changed.
        """
        ...
