"""Where a window join finds the heads of its rows: by heart, or in the state.

What a worker knows by heart is worked out from the state and goes along with it: taken from the state before it is
changed, left with it after (`OperatorState.take`), and gone wherever that is not certain. Then a new key is known to be
new, no window is scanned, and the heads of a thousand keys are found at once: in a table that has a row for every
window and a column for every key.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.model.entries import KEY_BYTES_MAX, space_prefix, split_entry
from headwater.model.keys import encode_key, keyed_rows
from headwater.model.time import END_OF_TIME
from headwater.operators.columns.entry_names import EntryNames, long_among
from headwater.operators.columns.long_keys import SUFFIX_AT
from headwater.operators.columns.segments import Ints
from headwater.operators.joins.join_layouts import JoinLayout
from headwater.operators.joins.join_state import Heads, JoinState
from headwater.operators.joins.key_numbers import KeyNumbers
from headwater.operators.state import OperatorState

HEADS_MAX: Final = 50_000  # known by heart; more are read from the store
_PLACES_MAX: Final = 4 * HEADS_MAX  # of the table, also for keys that a window does not have

Codes = npt.NDArray[np.signedinteger[Any]]


class Wanted(NamedTuple):
    """Heads by window and key: the windows, and for every head the place of its window there and its key's code."""

    windows: list[int]
    window_of: Ints
    codes: Ints


class FoundHeads(NamedTuple):
    """Heads and their names, and where they are known to be."""

    names: list[bytes]
    heads: Heads
    places: Ints | None = None


class StoredHeads:
    """Heads that are read from the state as they are needed. A key's code is its place among those of the batch."""

    def __init__(self, join: JoinState, layout: JoinLayout, names: EntryNames) -> None:
        """Look for heads under these names."""
        self._join, self._layout, self._names = join, layout, names
        self._keys: list[Any] = []

    def codes(self, batch: pa.RecordBatch, key: Sequence[str], source: int) -> tuple[Codes, int]:
        """Return the code of every row's key, and how many codes there are."""
        keyed = keyed_rows(batch, key)
        self._keys = keyed.keys
        return keyed.codes, len(keyed.keys)

    def find(self, state: OperatorState, wanted: Wanted) -> FoundHeads:
        """Return heads, which have no rows where there are none."""
        ends = np.searchsorted(wanted.window_of, np.arange(len(wanted.windows) + 1)).tolist()
        spans = zip(wanted.windows, ends, ends[1:], strict=False)
        names = self._names.in_windows(self._keys, wanted.codes.tolist(), spans)
        return FoundHeads(names, self._join.parsed(state, self._layout, names, state.read_many(names)))

    def long_keys(self, wanted: Wanted, found: FoundHeads) -> list[bytes]:
        """Return the keys that are too long for the names of their heads."""
        if not long_among(found.names):
            return []
        keys = [encode_key(self._keys[code]) for code in set(wanted.codes.tolist())]
        return [key for key in keys if len(key) > KEY_BYTES_MAX]

    def keep(self, state: OperatorState, found: FoundHeads, grown: Heads) -> None:
        """Keep nothing in mind."""


class _Table(NamedTuple):
    """What is known of heads: a row for every window, one behind the other, each with a place for every key."""

    rows: int
    width: int
    there: npt.NDArray[np.bool_]
    names: npt.NDArray[np.object_]
    heads: npt.NDArray[np.object_]
    sizes: Ints
    own: Ints

    @classmethod
    def of_size(cls, rows: int, width: int) -> "_Table":
        size = rows * width
        names, heads = np.empty(size, np.object_), np.empty(size, np.object_)
        return cls(
            rows, width, np.zeros(size, np.bool_), names, heads, np.zeros(size, np.int64), np.zeros(size, np.int64)
        )

    def holding(self, rows: int, keys: int) -> "_Table":
        """Return a table with the same in it and room for so many; if it has to be larger, then for twice as many."""
        if rows <= self.rows and keys <= self.width:
            return self
        wider = _Table.of_size(max(self.rows, 2 * rows), max(self.width, 2 * keys))
        for old, new in zip(self[2:], wider[2:], strict=True):
            new.reshape(wider.rows, -1)[: self.rows, : self.width] = old.reshape(self.rows, -1)
        return wider


class KnownHeads:
    """Every head that there is, all of one layout, by heart. A key's code is its rank in the order of the store."""

    def __init__(self, space: int, groups: range, layout: JoinLayout) -> None:
        """Know that there is none, of keys of these groups."""
        self._space, self._groups, self._layout = space, groups, layout
        self._keys = KeyNumbers()
        self._rows: dict[int, int] = {}  # of the table, by the beginning of the window
        self._table = _Table.of_size(1, 1)
        self.entries = 0  # how many heads there are

    @staticmethod
    def taken(state: OperatorState, layout: JoinLayout) -> "KnownHeads | None":
        """Return what is known of a state; whoever takes it leaves it again once both are changed alike."""
        known = state.take()
        if isinstance(known, KnownHeads) and known._groups == state.groups:
            return known if known._layout.identity == layout.identity else None
        return None

    @staticmethod
    def learned(state: OperatorState, space: int, from_us: int, layout: JoinLayout) -> "KnownHeads | None":
        """Read all heads from an instant on, before which there are none; None if some are of another layout."""
        known = KnownHeads(space, state.groups, layout)
        found = state.gather(space, from_us, END_OF_TIME)
        heads = Heads(layout, [head for _, head in found])
        if (heads.layouts != layout.identity).any():
            return None
        numbers = np.array([known._keys.of_suffix(name[SUFFIX_AT:]) for name, _ in found], np.int64)
        windows, window_of = np.unique([split_entry(name)[0] for name, _ in found], return_inverse=True)
        places = known._places(windows.tolist(), window_of, numbers)
        known._add(places, [name for name, _ in found])
        known._put(places, heads)
        return known

    def leave(self, state: OperatorState) -> None:
        """Leave it with the state, as which it was changed."""
        if self.entries <= HEADS_MAX and len(self._table.there) <= _PLACES_MAX:
            state.leave(self)

    def codes(self, batch: pa.RecordBatch, key: Sequence[str], source: int) -> tuple[Codes, int]:
        """Return the code of every row's key, and how many codes there are."""
        numbers = self._keys.of_rows(batch, key, source)
        return self._keys.ranks[numbers], len(self._keys)

    def find(self, state: OperatorState, wanted: Wanted) -> FoundHeads:
        """Return heads, which have no rows where there are none; what they become is kept next."""
        numbers = self._keys.in_order[wanted.codes]
        places = self._places(wanted.windows, wanted.window_of, numbers)
        new = np.flatnonzero(~self._table.there[places])
        if len(new):
            prefixes = np.array([space_prefix(self._space, start_us) for start_us in wanted.windows], np.object_)
            self._add(places[new], prefixes[wanted.window_of[new]] + self._keys.suffixes[numbers[new]])
        return self._found(places)

    def long_keys(self, wanted: Wanted, found: FoundHeads) -> list[bytes]:
        """Return the keys that are too long for the names of their heads."""
        return self._keys.long_among(self._keys.in_order[wanted.codes])

    def keep(self, state: OperatorState, found: FoundHeads, grown: Heads) -> None:
        """Know what heads have become."""
        assert found.places is not None, "these heads were not found here"
        self._put(found.places, grown)
        self.leave(state)

    def drop(self, before_us: int) -> FoundHeads:
        """Forget the windows that begin earlier, and return their heads."""
        rows = [self._rows.pop(start_us) for start_us in sorted(self._rows) if start_us < before_us]
        table, width = self._table, self._table.width
        there = [row * width + np.flatnonzero(table.there[row * width : (row + 1) * width]) for row in rows]
        places = np.concatenate((np.empty(0, np.int64), *there))
        found = self._found(places)
        table.there[places], table.names[places], table.heads[places] = False, None, None
        self.entries -= len(places)
        return found

    def all(self) -> FoundHeads:
        """Return every head."""
        return self._found(np.flatnonzero(self._table.there))

    def _places(self, windows: Sequence[int], window_of: Ints, numbers: Ints) -> Ints:
        """Return where in the table heads are: in the row of their window, at the number of their key."""
        for start_us in windows:
            if start_us not in self._rows:
                self._rows[start_us] = min({*range(len(self._rows) + 1)} - {*self._rows.values()})
        self._table = self._table.holding(1 + max(self._rows.values(), default=0), len(self._keys))
        rows = np.array([self._rows[start_us] for start_us in windows], np.int64)
        places: Ints = rows[window_of] * self._table.width + numbers
        return places

    def _add(self, places: Ints, names: Any) -> None:
        """Know of new heads, which have no rows."""
        table, no_rows = self._table, self._layout.no_rows
        table.there[places], table.names[places] = True, names
        table.heads[places], table.sizes[places], table.own[places] = no_rows, len(no_rows), 0
        self.entries += len(places)

    def _found(self, places: Ints) -> FoundHeads:
        table = self._table
        heads = Heads(self._layout, table.heads[places].tolist(), table.sizes[places], table.own[places])
        return FoundHeads(table.names[places].tolist(), heads, places)

    def _put(self, places: Ints, heads: Heads) -> None:
        table = self._table
        table.heads[places], table.sizes[places], table.own[places] = heads.values, heads.sizes, heads.own
