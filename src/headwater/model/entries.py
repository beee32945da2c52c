"""The store key of an entry of keyed state, below its operator's prefix.

It consists of a space (the kind: a pane, a timer, a row), a time, the group of the row's key, and that key. They sort
in this order, so a scan by time finds what is due and nothing else, and the group is at a fixed place: state can be
split by key, moved and merged by these names alone, whatever the operator.
"""

import struct
from hashlib import blake2b
from typing import Any, Final

from headwater.model.keys import KEY_GROUPS, encode_key, group_of

ALL_GROUPS: Final = range(KEY_GROUPS)
EVERY_GROUP: Final = 0xFFFF  # of an entry that all keys share
SHARED: Final = 0  # the space of entries that all keys share
LONG_KEYS: Final = 255  # the space of keys too long for a name
KEY_BYTES_MAX: Final = 400  # LMDB allows keys of 511 bytes, and a space may append something of its own

_HEAD: Final = struct.Struct(">BQ")
_GROUP: Final = struct.Struct(">H")
_SIGN: Final = 1 << 63  # times before 1970 sort before those after
_LONG: Final = b"\xc1"  # never the first byte of msgpack
_KEY_AT: Final = _HEAD.size + _GROUP.size
_SUFFIXES_MAX: Final = 200_000


def space_prefix(space: int, time_us: int) -> bytes:
    """Return the prefix of the names of a space at a time."""
    return _HEAD.pack(space, time_us + _SIGN)


def key_suffix(key: bytes) -> bytes:
    """Return the end of every name that belongs to a key: its group, and the key or the hash of a long one."""
    kept = key if len(key) <= KEY_BYTES_MAX else _LONG + blake2b(key, digest_size=32).digest()
    return _GROUP.pack(group_of(key)) + kept


def entry_of(space: int, time_us: int, key: bytes) -> bytes:
    """Return the name of a key's entry in a space at a time."""
    return _HEAD.pack(space, time_us + _SIGN) + key_suffix(key)


def split_entry(entry: bytes) -> tuple[int, int, bytes]:
    """Return the time, the group and the key (or the hash of a long one) of a name."""
    _, time = _HEAD.unpack_from(entry)
    return time - _SIGN, _GROUP.unpack_from(entry, _HEAD.size)[0], bytes(entry[_KEY_AT:])


def group_of_entry(entry: bytes) -> int:
    """Return the group of the key that an entry belongs to."""
    group: int = _GROUP.unpack_from(entry, _HEAD.size)[0]
    return group


def is_long(key: bytes) -> bool:
    """Whether this is the hash of a key that was too long for a name."""
    return key[:1] == _LONG


def long_key_entry(key: bytes) -> bytes:
    """Return the name under which a long key is stored."""
    return entry_of(LONG_KEYS, 0, key)


def shared_entry(name: str) -> bytes:
    """Return the name of an entry that all keys share."""
    return _HEAD.pack(SHARED, _SIGN) + _GROUP.pack(EVERY_GROUP) + name.encode()


def own_entry(name: str, groups: range) -> bytes:
    """Return the name of an instance's own entry: in the place of the time it has the first group of the instance."""
    return _HEAD.pack(SHARED, 1 + groups.start + _SIGN) + _GROUP.pack(EVERY_GROUP) + name.encode()


def is_shared(entry: bytes) -> bool:
    """Whether all keys share this entry."""
    return _HEAD.unpack_from(entry) == (SHARED, _SIGN)


def belongs_to(entry: bytes, groups: range) -> bool:
    """Whether an entry is of a key in these groups, or an own entry of the instance with them; no shared one is."""
    group = group_of_entry(entry)
    if group != EVERY_GROUP:
        return group in groups
    return _HEAD.unpack_from(entry) == (SHARED, 1 + groups.start + _SIGN)


def handed_over(entry: bytes, to: range) -> bytes:
    """Return the name under which the instance with these groups finds an own entry of another."""
    space, place = _HEAD.unpack_from(entry)
    if space != SHARED or place == _SIGN:
        return entry
    return _HEAD.pack(SHARED, 1 + to.start + _SIGN) + entry[_HEAD.size :]


class Suffixes:
    """A cache of the suffixes of keys: to encode and hash a key takes ten times as long as to find it."""

    def __init__(self) -> None:
        self._known: dict[Any, bytes] = {}

    def of(self, keys: list[Any]) -> list[bytes]:
        """Return the suffix of every key."""
        if len(self._known) > _SUFFIXES_MAX:
            self._known = {}  # not cleared: another thread may be reading it
        known = self._known
        try:
            return [known[key] for key in keys]
        except KeyError:
            for key in keys:
                if key not in known:
                    known[key] = key_suffix(encode_key(key))
            return [known[key] for key in keys]
