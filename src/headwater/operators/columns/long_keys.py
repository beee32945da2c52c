"""Keys that are too long for the names of their entries: kept while any entry needs them, and no longer."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from headwater.model.entries import LONG_KEYS, is_long, space_prefix
from headwater.model.keys import encode_key
from headwater.operators.state import OperatorState

SUFFIX_AT: Final = len(space_prefix(0, 0))  # where the part of a name begins that belongs to its key
_KEY_AT: Final = SUFFIX_AT + 2  # behind the key's group


def remember_long(state: OperatorState, names: Iterable[bytes], keys: Iterable[Any]) -> None:
    """Keep the keys of new entries that their names do not give back."""
    for name, key in zip(names, keys, strict=True):
        if is_long(name[_KEY_AT:]):
            state.remember_long(encode_key(key))


def forget_long(state: OperatorState, names: Sequence[bytes], space: int) -> None:
    """Forget the keys of entries that were deleted, unless others of that space still need them.

    That takes a look at all of them. It happens only where such keys are, and they are rare.
    """
    gone = {name[SUFFIX_AT:] for name in names if is_long(name[_KEY_AT:])}
    if gone:
        gone -= {one.entry[SUFFIX_AT:] for one in state.held(space)}
        state.delete_many([space_prefix(LONG_KEYS, 0) + suffix for suffix in gone])


def key_of_entry(state: OperatorState, name: bytes) -> bytes:
    """Return the key of an entry by its name."""
    if not is_long(name[_KEY_AT:]):
        return name[_KEY_AT:]
    key = state.read(space_prefix(LONG_KEYS, 0) + name[SUFFIX_AT:])
    assert key is not None, "a key too long for an entry's name was not remembered"
    return key
