"""State variables of PySpark's stateful processors: what all kinds share, values, and lists.

A variable acts on the key that is being handled (`Here`). What it holds is seen as of the call's processing time: what
has outlived its time to live is not there any more. It is removed a little later, by an index in order of time.
"""

# ruff: noqa: N802, N803 - PySpark's names

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import msgspec

from headwater.model.entries import space_prefix
from headwater.operators.processors.processor_entries import (
    ELEMENTS,
    EXPIRIES,
    LISTS,
    VALUES,
    CallEntries,
    number_bytes,
    number_of,
    place_of,
)
from headwater.operators.processors.spark_names import state_error
from headwater.operators.processors.spark_values import RowCodec

NEVER: Final = 0  # when a value without a time to live expires

_EXPIRES: Final = b"\xc1"  # never the first byte of msgpack: what follows is when the value behind it expires
_EXPIRY_BYTES: Final = 9
_STEPS: Final = 16  # an index entry is good for a sixteenth of the time to live, or each update would move it
_SPAN: Final = msgspec.msgpack.Decoder(tuple[int, int, int])

Stored = bytes | None


@dataclass(slots=True)
class Here:
    """Where a processor is: at the desk of a call, with one key, at a time."""

    desk: CallEntries | None = None
    part: bytes = b""  # what names the key within entries; empty if no key is being handled
    key: bytes = b""  # as `encode_key` makes it
    now_ms: int = 0


def expiry_of(stored: bytes) -> int:
    """Return when a stored value expires."""
    return number_of(stored[1:_EXPIRY_BYTES]) if stored[:1] == _EXPIRES else NEVER


def is_alive(stored: Stored, now_ms: int) -> bool:
    """Whether there is a value, and its time has not come."""
    return stored is not None and (stored[:1] != _EXPIRES or expiry_of(stored) > now_ms)


def with_expiry(encoded: bytes, expiry_ms: int) -> bytes:
    """Return a value as it is stored."""
    return encoded if expiry_ms == NEVER else _EXPIRES + number_bytes(expiry_ms) + encoded


def without_expiry(stored: bytes) -> bytes:
    """Return a stored value without what says when it expires."""
    return stored[_EXPIRY_BYTES:] if stored[:1] == _EXPIRES else stored


class Variable:
    """What the kinds of variables share."""

    kind: ClassVar[str]

    def __init__(self, here: Here, name: str, ttl_ms: int) -> None:
        """Be a variable of this name; a time to live of 0 is for ever."""
        self.name = name
        self.deleted = False
        self._here = here
        self._place = place_of(name)
        self._ttl_ms = ttl_ms
        self._step_ms = max(1, ttl_ms // _STEPS)
        self._tag = self.kind[:1].encode() + number_bytes(self._place)

    def _desk(self, doing: str) -> CallEntries:
        """Return the desk of the call; refuse if the variable or the key is not there."""
        if self.deleted:
            raise state_error(f"Error {doing}: {self.kind} state {self.name} is not initialized.")
        if self._here.desk is None or not self._here.part:
            raise state_error(f"Error {doing}: {self.kind} state {self.name} has no key outside of a key's own call.")
        return self._here.desk

    def _expiry_ms(self) -> int:
        return self._here.now_ms + self._ttl_ms if self._ttl_ms else NEVER

    def _index(self, desk: CallEntries, target: bytes, rest: bytes, old_ms: int, new_ms: int) -> None:
        """Let an entry be looked at when it expires, and no longer when it was to expire before."""
        before, after = self._look_ms(old_ms), self._look_ms(new_ms)
        if before == after:
            return
        tail = self._here.part + self._tag + rest
        if before != NEVER:
            desk.delete(space_prefix(EXPIRIES, before) + tail)
        if after != NEVER:
            desk.put(space_prefix(EXPIRIES, after) + tail, target)

    def _look_ms(self, expiry_ms: int) -> int:
        """Return when to look: not before the value expires, and the same for values that expire close together."""
        return -(-expiry_ms // self._step_ms) * self._step_ms


class ValueState(Variable):
    """A single value for each key."""

    kind: ClassVar[str] = "Value"

    def __init__(self, here: Here, name: str, codec: RowCodec, ttl_ms: int) -> None:
        """Be a variable with values of this kind."""
        super().__init__(here, name, ttl_ms)
        self._codec = codec
        self._head = space_prefix(VALUES, self._place)

    def exists(self) -> bool:
        """Whether the key has a value."""
        return self._alive(self._desk("checking value state exists")) is not None

    def get(self) -> tuple[Any, ...] | None:
        """Return the value of the key, or None."""
        stored = self._alive(self._desk("getting value state"))
        return None if stored is None else self._codec.decode(without_expiry(stored))

    def update(self, newValue: Iterable[Any]) -> None:
        """Keep a value for the key."""
        desk = self._desk("updating value state")
        encoded = self._codec.encode(newValue)
        if self._ttl_ms:
            self._reindex(desk, self._expiry_ms())
        desk.put(self.entry(self._here.part), with_expiry(encoded, self._expiry_ms()))

    def clear(self) -> None:
        """Forget the key's value."""
        desk = self._desk("clearing value state")
        if self._ttl_ms:
            self._reindex(desk, NEVER)
        desk.delete(self.entry(self._here.part))

    def entry(self, part: bytes) -> bytes:
        """Return where a key's value lies."""
        return self._head + part

    def _alive(self, desk: CallEntries) -> Stored:
        stored = desk.read(self.entry(self._here.part))
        return stored if is_alive(stored, self._here.now_ms) else None

    def _reindex(self, desk: CallEntries, expiry_ms: int) -> None:
        entry = self.entry(self._here.part)
        stored = desk.read(entry)
        self._index(desk, entry, b"", NEVER if stored is None else expiry_of(stored), expiry_ms)


class ListState(Variable):
    """A list of values for each key; every value is an entry of its own, so that appending costs the same always."""

    kind: ClassVar[str] = "List"

    def __init__(self, here: Here, name: str, codec: RowCodec, ttl_ms: int) -> None:
        """Be a variable with elements of this kind."""
        super().__init__(here, name, ttl_ms)
        self._codec = codec
        self._head = space_prefix(LISTS, self._place)

    def exists(self) -> bool:
        """Whether the key's list has an element."""
        span = self._span(self._desk("checking value state exists"))
        return span is not None and (span[2] == NEVER or span[2] > self._here.now_ms)

    def get(self) -> Iterator[tuple[Any, ...]]:
        """Return the elements, the oldest first; none if there is no list, even if the variable was deleted."""
        if self.deleted:
            return iter(())
        desk = self._desk("getting list state")
        span = self._span(desk)
        stored = [] if span is None else desk.read_many(elements_of(self.entry(self._here.part), span))
        now_ms = self._here.now_ms
        return iter([self._codec.decode(without_expiry(one)) for one in stored if one and is_alive(one, now_ms)])

    def put(self, newState: Iterable[Iterable[Any]]) -> None:
        """Keep these elements instead of what the list had."""
        desk = self._desk("updating value state")
        encoded = self._encoded(newState)
        span = self._span(desk)
        if span is not None:
            for entry in elements_of(self.entry(self._here.part), span):
                desk.delete(entry)
        self._extend(desk, None, encoded)

    def appendValue(self, newState: Iterable[Any]) -> None:
        """Add an element at the end."""
        desk = self._desk("updating value state")
        self._extend(desk, self._span(desk), [self._codec.encode(newState)])

    def appendList(self, newState: Iterable[Iterable[Any]]) -> None:
        """Add elements at the end."""
        desk = self._desk("updating value state")
        self._extend(desk, self._span(desk), self._encoded(newState))

    def clear(self) -> None:
        """Forget the key's list."""
        desk = self._desk("clearing value state")
        span = self._span(desk)
        if span is not None:
            entry = self.entry(self._here.part)
            for element in elements_of(entry, span):
                desk.delete(element)
            desk.delete(entry)

    def entry(self, part: bytes) -> bytes:
        """Return where it is kept from where to where a key's list goes."""
        return self._head + part

    def _encoded(self, values: Iterable[Iterable[Any]]) -> list[bytes]:
        encoded = [self._codec.encode(value) for value in values]
        if not encoded:
            raise state_error(f"Error updating value state: List state {self.name} was given an empty list.")
        return encoded

    def _span(self, desk: CallEntries) -> tuple[int, int, int] | None:
        stored = desk.read(self.entry(self._here.part))
        return None if stored is None else span_of(stored)

    def _extend(self, desk: CallEntries, span: tuple[int, int, int] | None, encoded: list[bytes]) -> None:
        first, end, latest_ms = span or (0, 0, -1)
        expiry_ms = self._expiry_ms()
        entry = self.entry(self._here.part)
        grown = (first, end + len(encoded), NEVER if NEVER in (latest_ms, expiry_ms) else max(latest_ms, expiry_ms))
        for element, one in zip(elements_of(entry, (end, grown[1], 0)), encoded, strict=True):
            desk.put(element, with_expiry(one, expiry_ms))
        desk.put(entry, span_bytes(grown))
        self._index(desk, entry, b"", NEVER, expiry_ms)


def span_of(stored: bytes) -> tuple[int, int, int]:
    """Return the number of a list's first element, the one behind its last, and when the last of them expires."""
    return _SPAN.decode(stored)


def span_bytes(span: tuple[int, int, int]) -> bytes:
    """Return the bytes of where a list begins and ends."""
    return msgspec.msgpack.encode(span)


def elements_of(entry: bytes, span: tuple[int, int, int]) -> list[bytes]:
    """Return where the elements of a list are kept that is kept here."""
    head = bytes((ELEMENTS,)) + entry[1:]
    return [head + number_bytes(number) for number in range(span[0], span[1])]
