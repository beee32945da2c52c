"""Map state of PySpark's stateful processors: every pair is an entry of its own."""

# ruff: noqa: N802 - PySpark's names

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, ClassVar, Final

from headwater.operators.processors.processor_entries import MAPS, CallEntries, prefix_of
from headwater.operators.processors.processor_variables import (
    NEVER,
    Here,
    Variable,
    expiry_of,
    is_alive,
    with_expiry,
    without_expiry,
)
from headwater.operators.processors.spark_values import RowCodec

_HASHED: Final = b"\xc1"  # never the first byte of msgpack: what follows is the hash of a key too long for a name
_KEY_BYTES_MAX: Final = 64


class MapState(Variable):
    """A map for each key of the stream."""

    kind: ClassVar[str] = "Map"

    def __init__(self, here: Here, name: str, keys: RowCodec, values: RowCodec, ttl_ms: int) -> None:
        """Be a variable with keys and values of this kind."""
        super().__init__(here, name, ttl_ms)
        self._keys = keys
        self._values = values

    def exists(self) -> bool:
        """Whether the map has a pair."""
        return bool(self._pairs(self._desk("checking map state exists")))

    def getValue(self, key: Iterable[Any]) -> Any:
        """Return the value of a key of the map as a row, or None."""
        pair = self._alive(self._desk("getting value"), key)
        return None if pair is None else self._values.decode_row(_split_pair(*pair)[1])

    def containsKey(self, key: Iterable[Any]) -> bool:
        """Whether the map has this key."""
        return self._alive(self._desk("checking if map state contains key"), key) is not None

    def updateValue(self, key: Iterable[Any], value: Iterable[Any]) -> None:
        """Keep a value for a key of the map."""
        desk = self._desk("updating map state value")
        encoded_key, encoded = self._keys.encode(key), self._values.encode(value)
        rest = _rest_of(encoded_key)
        if self._ttl_ms:
            self._reindex(desk, rest, self._expiry_ms())
        pair = encoded if rest == encoded_key else len(encoded_key).to_bytes(4, "big") + encoded_key + encoded
        desk.put_under(self._prefix(), rest, with_expiry(pair, self._expiry_ms()))

    def iterator(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """Return the pairs of the map."""
        pairs = [] if self.deleted else self._pairs(self._desk("getting map state"))
        return iter([(self._keys.decode(key), self._values.decode(value)) for key, value in pairs])

    def keys(self) -> Iterator[tuple[Any, ...]]:
        """Return the keys of the map."""
        pairs = [] if self.deleted else self._pairs(self._desk("getting map state"))
        return iter([self._keys.decode(key) for key, _ in pairs])

    def values(self) -> Iterator[tuple[Any, ...]]:
        """Return the values of the map, in the order of its keys."""
        pairs = [] if self.deleted else self._pairs(self._desk("getting map state"))
        return iter([self._values.decode(value) for _, value in pairs])

    def removeKey(self, key: Iterable[Any]) -> None:
        """Forget a key of the map."""
        desk = self._desk("removing key from map state")
        rest = _rest_of(self._keys.encode(key))
        if self._ttl_ms:
            self._reindex(desk, rest, NEVER)
        desk.delete(self._prefix() + rest)

    def clear(self) -> None:
        """Forget the whole map."""
        desk = self._desk("clearing map state")
        prefix = self._prefix()
        for rest, _ in desk.under(prefix):
            if self._ttl_ms:
                self._reindex(desk, rest, NEVER)
            desk.delete(prefix + rest)

    def _prefix(self) -> bytes:
        return prefix_of(MAPS, self._place, self._here.part)

    def _alive(self, desk: CallEntries, key: Iterable[Any]) -> tuple[bytes, bytes] | None:
        rest = _rest_of(self._keys.encode(key))
        stored = desk.read_under(self._prefix(), rest)
        return (rest, stored) if stored is not None and is_alive(stored, self._here.now_ms) else None

    def _pairs(self, desk: CallEntries) -> list[tuple[bytes, bytes]]:
        found = desk.under(self._prefix())
        return [_split_pair(rest, stored) for rest, stored in found if is_alive(stored, self._here.now_ms)]

    def _reindex(self, desk: CallEntries, rest: bytes, expiry_ms: int) -> None:
        prefix = self._prefix()
        stored = desk.read_under(prefix, rest)
        self._index(desk, prefix + rest, rest, NEVER if stored is None else expiry_of(stored), expiry_ms)


def _rest_of(encoded_key: bytes) -> bytes:
    """Return what names a map's key within an entry."""
    if len(encoded_key) <= _KEY_BYTES_MAX:
        return encoded_key
    return _HASHED + blake2b(encoded_key, digest_size=32).digest()


def _split_pair(rest: bytes, stored: bytes) -> tuple[bytes, bytes]:
    """Return the bytes of a map's key and of its value; a key too long for the name is kept with the value."""
    kept = without_expiry(stored)
    if rest[:1] != _HASHED:
        return rest, kept
    end = 4 + int.from_bytes(kept[:4], "big")
    return kept[4:end], kept[end:]
