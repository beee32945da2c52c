"""Where a processor's state lies, and what a call has read and changed of it.

Every entry belongs to a key, so a processor's state can be cut by key. In the place of an entry's time stands what it
is searched by: for timers when they expire; for variables a number made of the variable's name (and of the key, for
maps and for the timers of one key), so that a scan finds one key's entries and nothing else. No register of variables
is needed: a name leads to the same place on every machine, in whatever order variables are declared.

A `CallEntries` is the working copy of one call. It reads the values of all keys of a batch at once, and hands what has
changed to the turn when the call has gone well.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Final
from zlib import crc32

from headwater.model.entries import is_long, space_prefix, split_entry
from headwater.operators.state import OperatorState

TIMERS: Final = 1  # by when they expire, in milliseconds
TIMERS_OF_KEY: Final = 2
EXPIRIES: Final = 3  # what is to be looked at when it has outlived its time to live, by then, in milliseconds
VALUES: Final = 4
LISTS: Final = 5  # where a list begins and ends
ELEMENTS: Final = 6
MAPS: Final = 7
SEEDED: Final = 8  # one for each key group whose initial state has been handled

PRESENT: Final = b"\x01"  # the value of an entry that says all by being there

_HASH: Final = b"\xc4\x20"  # msgpack for 32 bytes: in place of a key too long for a name stands its hash
_HASHED_BYTES: Final = 2 + 2 + 32
_NAME_BITS: Final = 30
_NUMBER: Final = struct.Struct(">Q")
_SIGN: Final = 1 << 63


def part_of(suffix: bytes) -> bytes:
    """Return what names a key within entries: its group and bytes, to which a space may append something of its own."""
    return suffix[:2] + _HASH + suffix[3:] if is_long(suffix[2:]) else suffix


def is_hashed(part: bytes) -> bool:
    """Whether a key is too long for a name, so that its hash stands there."""
    return len(part) == _HASHED_BYTES and part[2:4] == _HASH


def place_of(name: str) -> int:
    """Return the number that stands for a variable where others have a time."""
    return (crc32(name.encode()) & ((1 << _NAME_BITS) - 1)) << 32


def prefix_of(space: int, place: int, part: bytes) -> bytes:
    """Return what the names of all that a key has at a place begin with."""
    return space_prefix(space, place + crc32(part)) + part


def range_of(place: int) -> tuple[int, int]:
    """Return from where to where all entries of a variable lie, of whatever key."""
    return place, place + (1 << 32)


def number_bytes(number: int) -> bytes:
    """Return a number as bytes that sort as numbers do."""
    return _NUMBER.pack(number + _SIGN)


def number_of(encoded: bytes) -> int:
    """Return the number that has these bytes."""
    number: int = _NUMBER.unpack(encoded)[0]
    return number - _SIGN


class CallEntries:
    """What one call has read and changed."""

    def __init__(self, state: OperatorState) -> None:
        """Begin with nothing read."""
        self.state = state
        self._known: dict[bytes, bytes | None] = {}
        self._changed: dict[bytes, None] = {}
        self._under: dict[bytes, set[bytes]] = {}  # prefix -> entries known to begin with it
        self._whole: set[bytes] = set()  # prefixes of which all entries are known

    def fetch(self, entries: Iterable[bytes]) -> None:
        """Read many entries at once: each read of its own costs a look into the store."""
        missing = [entry for entry in entries if entry not in self._known]
        if missing:
            self._known.update(zip(missing, self.state.read_many(missing), strict=True))

    def read(self, entry: bytes) -> bytes | None:
        """Return an entry as this call left it."""
        if entry not in self._known:
            self._known[entry] = self.state.read(entry)
        return self._known[entry]

    def read_many(self, entries: Sequence[bytes]) -> list[bytes | None]:
        """Return many entries as this call left them."""
        self.fetch(entries)
        return [self._known[entry] for entry in entries]

    def put(self, entry: bytes, value: bytes) -> None:
        """Keep an entry."""
        self._known[entry] = value
        self._changed[entry] = None

    def delete(self, entry: bytes) -> None:
        """Forget an entry."""
        self._known[entry] = None
        self._changed[entry] = None

    def put_under(self, prefix: bytes, rest: bytes, value: bytes) -> None:
        """Keep an entry that `under` is to find."""
        self.put(prefix + rest, value)
        self._under.setdefault(prefix, set()).add(prefix + rest)

    def read_under(self, prefix: bytes, rest: bytes) -> bytes | None:
        """Return an entry; if all under its prefix are known, without a look into the store."""
        entry = prefix + rest
        return self._known.get(entry) if prefix in self._whole else self.read(entry)

    def under(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """Return all entries that begin with a prefix of one key, without it, in order."""
        members = self._under.setdefault(prefix, set())
        if prefix not in self._whole:
            place = split_entry(prefix)[0]
            for found in self.state.held(prefix[0], place, place + 1):
                if found.entry.startswith(prefix):  # another key may have the same number
                    members.add(found.entry)
                    self._known.setdefault(found.entry, found.value)
            self._whole.add(prefix)
        cut = len(prefix)
        return [(entry[cut:], value) for entry in sorted(members) if (value := self._known[entry]) is not None]

    def hand_over(self) -> None:
        """Let what has changed be part of the turn."""
        for entry in self._changed:
            value = self._known[entry]
            if value is None:
                self.state.delete(entry)
            else:
                self.state.put(entry, value)
        self._changed.clear()
