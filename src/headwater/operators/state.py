"""Keyed state as an operator sees it during a turn.

Three layers, each of which can be thrown away. The store below holds what is committed. `OperatorState` collects the
changes of one turn and reads through to the store. `KeyedState` is what a user's function holds for one batch: if the
function raises, it is dropped, and the turn's changes are as if it had never been called.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.model.entries import (
    ALL_GROUPS,
    LONG_KEYS,
    Suffixes,
    entry_of,
    group_of_entry,
    is_long,
    long_key_entry,
    own_entry,
    shared_entry,
    space_prefix,
    split_entry,
)
from headwater.model.keys import KeyedRows, WrongKey, encode_key
from headwater.model.time import BEGINNING_OF_TIME, END_OF_TIME
from headwater.operators.state_values import WrongState, decode_value, encode_value

VALUES: Final = 1  # the space of the one value that a stateful function keeps for each key

_ABSENT: Final = object()


class StateStore(Protocol):
    """The committed state of one operator."""

    def read_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of these entries."""
        ...

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries from `start` up to but without `stop`, in order."""
        ...

    def gather(self, start: bytes, stop: bytes) -> list[tuple[bytes, bytes]]:
        """Return those entries at once, which is several times as fast where all of them are wanted."""
        ...


class EntryByTime(NamedTuple):
    """An entry found by time."""

    time_us: int
    key: bytes  # as `encode_key` makes it
    value: bytes
    entry: bytes  # its name, to put or delete it


class WorkedOut(Protocol):
    """What an operator worked out from its state."""

    @property
    def entries(self) -> int:
        """How many entries of the state it knows by heart."""
        ...


class Keepsake:
    """What an operator worked out from its state, kept where it is certain that the state is still the same.

    It is taken before the state is changed and left again after, so of changes that fail it does not remain.
    """

    __slots__ = ("_left", "_settled")

    def __init__(self) -> None:
        """Keep nothing."""
        self._settled: WorkedOut | None = None
        self._left: WorkedOut | None = None  # by a turn that is not committed yet

    @property
    def entries(self) -> int:
        """How many entries need not be remembered besides it."""
        return max((kept.entries for kept in (self._settled, self._left) if kept is not None), default=0)

    @property
    def is_new(self) -> bool:
        """Whether it was left by the turn that is not committed yet."""
        return self._left is not None

    def take(self) -> WorkedOut | None:
        """Return it, and keep it no more."""
        found = self._settled if self._left is None else self._left
        self._settled = self._left = None
        return found

    def leave(self, worked_out: WorkedOut) -> None:
        """Keep it, if the turn is committed."""
        self._settled, self._left = None, worked_out

    def settle(self) -> None:
        """Take note that the turn was committed."""
        if self._left is not None:
            self._settled, self._left = self._left, None

    def revert(self) -> None:
        """Drop what was left by a turn that was not committed."""
        self._left = None


class OperatorState:
    """The state of one operator of one instance during one turn: changes over what the store holds.

    Every entry belongs to a key and lies in a space (one for each thing the operator remembers) at a time (0 where
    there is none): `entry_of(space, time_us, key)` names it. Entries are in order of space, time and key group, so what
    is due is found by a scan of just that, and what belongs to a key is known without asking the operator.
    """

    def __init__(self, store: StateStore, groups: range = ALL_GROUPS) -> None:
        """Start without changes over what the store holds for these key groups."""
        self._store = store
        self.groups = groups
        self.changes: dict[bytes, bytes | None] = {}
        self._keepsake: Keepsake | None = getattr(store, "keepsake", None)  # few stores have one
        self._left: WorkedOut | None = None

    def read_many(self, entries: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each entry as this turn would see it."""
        changes = self.changes
        if not changes:
            return self._store.read_many(entries)
        missing = [entry for entry in entries if entry not in changes]
        if len(missing) == len(entries):
            return self._store.read_many(entries)
        stored = dict(zip(missing, self._store.read_many(missing), strict=True)) if missing else {}
        return [changes[entry] if entry in changes else stored[entry] for entry in entries]

    def read(self, entry: bytes) -> bytes | None:
        """Return the value of one entry."""
        return self.read_many((entry,))[0]

    def put(self, entry: bytes, value: bytes) -> None:
        """Keep an entry."""
        self.changes[entry] = value

    def put_many(self, entries: Iterable[bytes], values: Iterable[bytes]) -> None:
        """Keep many entries."""
        self.changes.update(zip(entries, values, strict=True))

    def delete(self, entry: bytes) -> None:
        """Forget an entry."""
        self.changes[entry] = None

    def delete_many(self, entries: Iterable[bytes]) -> None:
        """Forget many entries."""
        self.changes.update(dict.fromkeys(entries))

    def held(self, space: int, from_us: int = BEGINNING_OF_TIME, before_us: int = END_OF_TIME) -> Iterator[EntryByTime]:
        """Yield the entries of a space in order of time, from the first instant up to but without the second.

        `before_us` at the end of time means all. Only entries of this instance's key groups are found. What is put
        or deleted while it runs may or may not be seen: gather first, then change.
        """
        start = space_prefix(space, from_us)
        stop = (
            space_prefix(space + 1, BEGINNING_OF_TIME) if before_us == END_OF_TIME else space_prefix(space, before_us)
        )
        for entry, value in self._merged(start, stop):
            time_us, group, key = split_entry(entry)
            if group in self.groups:
                yield EntryByTime(time_us, self._whole_key(group, key), value, entry)

    def gather(self, space: int, from_us: int, before_us: int) -> list[tuple[bytes, bytes]]:
        """Return the names and values of all entries between two instants: `held`, for ten thousands at a time."""
        found = self._gathered(space_prefix(space, from_us), space_prefix(space, before_us))
        if self.groups == ALL_GROUPS:
            return found
        return [one for one in found if group_of_entry(one[0]) in self.groups]

    def _gathered(self, start: bytes, stop: bytes) -> list[tuple[bytes, bytes]]:
        stored = self._store.gather(start, stop)
        changed = {entry: value for entry, value in self.changes.items() if entry < stop and entry >= start}
        if not changed:
            return stored
        merged: dict[bytes, bytes | None] = dict(stored)
        merged.update(changed)
        in_order = merged.items() if len(merged) == len(stored) else sorted(merged.items())  # unless some are new
        return [(entry, value) for entry, value in in_order if value is not None]

    def first_us(self, space: int) -> int | None:
        """Return the time of the earliest entry of a space."""
        return next((found.time_us for found in self.held(space)), None)

    def shared(self, name: str) -> bytes | None:
        """Return what the operator keeps for all of its keys together under a name, such as a schema."""
        return self.read(shared_entry(name))

    def share(self, name: str, value: bytes) -> None:
        """Keep something for all keys together; it goes along wherever any of the keys goes."""
        if self.shared(name) != value:
            self.put(shared_entry(name), value)

    def own(self, name: str) -> bytes | None:
        """Return what this instance keeps for itself under a name, such as how far it has come.

        Other instances of the operator are at other places in time, and must not meet in one entry.
        """
        return self.read(own_entry(name, self.groups))

    def keep_own(self, name: str, value: bytes | None) -> None:
        """Keep something for this instance alone, or forget it; an instance that takes over its keys gets a copy."""
        entry = own_entry(name, self.groups)
        if value is None:
            self.delete(entry)
        elif self.read(entry) != value:
            self.put(entry, value)

    def remember_long(self, key: bytes) -> None:
        """Keep a key whose bytes are too long for an entry's name, so that `held` can give it back."""
        self.put(long_key_entry(key), key)

    def _whole_key(self, group: int, key: bytes) -> bytes:
        if not is_long(key):
            return key
        kept = self.read(space_prefix(LONG_KEYS, 0) + group.to_bytes(2, "big") + key)
        assert kept is not None, "a key too long for an entry's name was not remembered"
        return kept

    def _merged(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        stored = self._store.scan(start, stop)
        changed = sorted(entry for entry in self.changes if start <= entry < stop)
        if not changed:
            return stored
        return _overlaid(stored, [(entry, self.changes[entry]) for entry in changed])

    @property
    def remembers(self) -> bool:
        """Whether what is left with the state may be there to be taken later."""
        return self._keepsake is not None

    def take(self) -> WorkedOut | None:
        """Return what was left with the state when it was as it is now, and keep it no more."""
        found, self._left = self._left, None
        if found is None and self._keepsake is not None:
            found = self._keepsake.take()
        return found

    def leave(self, worked_out: WorkedOut) -> None:
        """Keep something that was worked out from the state as it is now: whoever changes the state takes it first."""
        self._left = worked_out

    def attempt(self) -> "OperatorState":
        """Return a state for one call: its changes count once they are kept, and are forgotten if the call raises."""
        return OperatorState(_Below(self), self.groups)

    def keep(self, attempt: "OperatorState") -> None:
        """Make the changes of a call that went well ours."""
        if self.changes:
            self.changes |= attempt.changes
        else:
            self.changes = attempt.changes
        if attempt._left is not None and self._keepsake is not None:
            self._keepsake.leave(attempt._left)


def _overlaid(
    stored: Iterator[tuple[bytes, bytes]], changed: Sequence[tuple[bytes, bytes | None]]
) -> Iterator[tuple[bytes, bytes]]:
    """Yield both in order, without reading further ahead than asked; where both have an entry, the change counts."""
    place = 0
    for entry, value in stored:
        while place < len(changed) and changed[place][0] < entry:
            name, new = changed[place]
            place += 1
            if new is not None:
                yield name, new
        if place < len(changed) and changed[place][0] == entry:
            continue
        yield entry, value
    for name, new in changed[place:]:
        if new is not None:
            yield name, new


class _Below:
    """A turn's state so far, as the store of a call within it."""

    def __init__(self, state: OperatorState) -> None:
        self._state = state
        self.keepsake = state._keepsake

    def read_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._state.read_many(keys)

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._state._merged(start, stop)

    def gather(self, start: bytes, stop: bytes) -> list[tuple[bytes, bytes]]:
        return self._state._gathered(start, stop)


class KeyedState:
    """The state of the keys in one batch, as a user's function sees it.

    `keys` are the distinct keys of the batch in order of first appearance and `codes[i]` is the index of row i's key,
    which makes it easy to work on all keys at once. A value is kept only when it is put. Numbers that are kept for
    every key in the same shape are fastest as arrays: they are read and put all at once, without a Python object each.
    """

    def __init__(self, rows: KeyedRows, below: OperatorState) -> None:
        """Read the values of all keys of the batch at once."""
        self.keys: list[Any] = rows.keys
        self.codes: npt.NDArray[np.int32] = rows.codes
        self._below = below
        self._entries = [_VALUES_HEAD + suffix for suffix in _suffixes_of(rows)]
        self._stored = below.read_many(self._entries)
        self._decoded: list[Any] | None = None  # of `_stored`, once somebody asks for values
        self._changed: set[int] = set()  # the decoded values that were put
        self._arrays_put = False  # whether all of `_stored` was put as arrays
        self._index: dict[Any, int] | None = None

    @property
    def _values(self) -> list[Any]:
        if self._decoded is None:
            self._decoded = [_ABSENT if value is None else decode_value(value) for value in self._stored]
        return self._decoded

    def values(self, default: Any = None) -> list[Any]:
        """Return the value of every key, in the order of `keys`."""
        return [default if value is _ABSENT else value for value in self._values]

    def put_values(self, values: Sequence[Any] | npt.NDArray[Any]) -> None:
        """Keep a new value for every key, in the order of `keys`; None forgets the key."""
        if len(values) != len(self.keys):
            raise ValueError(f"{len(values)} values were put for {len(self.keys)} keys")
        self._decoded = [_ABSENT if value is None else value for value in values]
        self._changed = set(range(len(values)))

    def arrays(
        self, shape: int | tuple[int, ...], dtype: npt.DTypeLike = np.float64, default: npt.ArrayLike = 0
    ) -> npt.NDArray[Any]:
        """Return the array that is kept for every key as one array, its first axis in the order of `keys`."""
        whole = (len(self.keys), *(shape if isinstance(shape, tuple) else (shape,)))
        if self._changed:
            return _stacked(self._values, whole, np.dtype(dtype), default)
        return _unpacked(self._stored, whole, np.dtype(dtype), default)

    def put_arrays(self, arrays: npt.NDArray[Any]) -> None:
        """Keep a new array for every key: `arrays[i]` for `keys[i]`."""
        if len(arrays) != len(self.keys):
            raise ValueError(f"{len(arrays)} arrays were put for {len(self.keys)} keys")
        self._stored = list(_packed(np.ascontiguousarray(arrays)))
        self._decoded, self._changed, self._arrays_put = None, set(), True

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key of this batch."""
        value = self._values[self._position(key)]
        return default if value is _ABSENT else value

    def put(self, key: Any, value: Any) -> None:
        """Keep a value for a key of this batch; None forgets the key."""
        position = self._position(key)
        self._values[position] = _ABSENT if value is None else value
        self._changed.add(position)

    def delete(self, key: Any) -> None:
        """Forget a key of this batch."""
        self.put(key, None)

    def rows_of_keys(self) -> Iterator[tuple[Any, npt.NDArray[np.intp]]]:
        """Yield each key with the positions of its rows, in order."""
        order = np.argsort(self.codes, kind="stable")
        ends = np.cumsum(np.bincount(self.codes, minlength=len(self.keys)))
        start = 0
        for key, end in zip(self.keys, ends, strict=True):
            yield key, order[start:end]
            start = int(end)

    def keep(self) -> None:
        """Hand the changes to the turn. The engine calls it once the function has returned."""
        changes: dict[bytes, bytes | None] = {}
        if self._arrays_put:
            changes.update(zip(self._entries, self._stored, strict=True))
        for position in sorted(self._changed):
            value = self._values[position]
            changes[self._entries[position]] = None if value is _ABSENT else encode_value(value)
        self._below.changes |= changes  # at once: a value that is refused must leave no trace of those before it

    def _position(self, key: Any) -> int:
        if self._index is None:
            self._index = {known: position for position, known in enumerate(self.keys)}
        position = self._index.get(key)
        return self._position_by_bytes(key) if position is None else position

    def _position_by_bytes(self, key: Any) -> int:
        """Find a key that equals one of the batch only as a key: NaN is not equal to itself."""
        try:
            return self._entries.index(entry_of(VALUES, 0, encode_key(key)))
        except (ValueError, WrongKey):
            raise KeyError(f"{key!r} is not a key of this batch; a function sees the keys of its rows only") from None


_VALUES_HEAD: Final = space_prefix(VALUES, 0)
_SUFFIXES: Final[dict[tuple[pa.DataType, ...], Suffixes]] = {}


def _suffixes_of(rows: KeyedRows) -> list[bytes]:
    suffixes = _SUFFIXES.get(rows.kinds)
    if suffixes is None:
        suffixes = _SUFFIXES[rows.kinds] = Suffixes()
    return suffixes.of(rows.keys)


def _unpacked(
    stored: Sequence[bytes | None], whole: tuple[int, ...], dtype: np.dtype[Any], default: npt.ArrayLike
) -> npt.NDArray[Any]:
    """Read arrays of one shape; where all that is there was put that way, without looking at each."""
    empty = encode_value(np.ascontiguousarray(np.broadcast_to(np.asarray(default, dtype), whole[1:])))
    joined = b"".join([empty if value is None else value for value in stored])
    head = len(empty) - dtype.itemsize * math.prod(whole[1:])
    if len(joined) == len(empty) * whole[0]:
        table = np.frombuffer(joined, np.uint8).reshape(whole[0], len(empty))
        if (table[:, :head] == np.frombuffer(empty[:head], np.uint8)).all():
            return table[:, head:].copy().view(dtype).reshape(whole)  # a copy also where one row is contiguous already
    values = [_ABSENT if value is None else decode_value(value) for value in stored]
    return _stacked(values, whole, dtype, default)


def _stacked(
    values: Sequence[Any], whole: tuple[int, ...], dtype: np.dtype[Any], default: npt.ArrayLike
) -> npt.NDArray[Any]:
    """Put values side by side, or say which of them has no place there."""
    made = np.empty(whole, dtype)
    for place, value in enumerate(values):
        if value is _ABSENT:
            made[place] = default
        elif isinstance(value, np.ndarray) and (value.dtype, value.shape) == (dtype, whole[1:]):
            made[place] = value
        else:
            kept = f"{value.dtype} of shape {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
            raise WrongState(f"a key's value is kept as {kept}, not as {dtype} of shape {whole[1:]}")
    return made


def _packed(arrays: npt.NDArray[Any]) -> Iterator[bytes]:
    """Yield the bytes that `encode_value` makes of each array."""
    if len(arrays) == 0:
        return
    first = encode_value(np.ascontiguousarray(arrays[0]))
    size = arrays[0].nbytes
    head, raw = first[: len(first) - size], arrays.tobytes()
    for start in range(0, len(raw), size):
        yield head + raw[start : start + size]
