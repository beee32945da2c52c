"""Names of cells by the suffix of their key, for state that is worked on by the thousand keys.

A key is known by its suffix throughout: it names the key's entries in every space, and sorts by key group.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from headwater.model.entries import Suffixes, space_prefix
from headwater.model.keys import decode_key
from headwater.operators.columns.long_keys import SUFFIX_AT, key_of_entry, remember_long
from headwater.operators.state import OperatorState
from headwater.operators.windows.panes import Instants

_LONG_BYTES: Final = 35  # of a suffix with the hash of a key, at least: group, mark, 32 bytes
_NAMES_MAX: Final = 100_000  # remembered for one time,
_TIMES_MAX: Final = 4  # and for so many
_TIME: Final = slice(1, SUFFIX_AT)
_EPOCH: Final = 1 << 63  # names count time from before all times


class FoundCells:
    """Cells found by time, in order of time and suffix."""

    def __init__(
        self,
        names: list[bytes],
        values: list[bytes],
        times: Instants | None = None,
        ranks: npt.NDArray[np.intp] | None = None,
    ) -> None:
        """Take cells, and the times and ranks of their keys where they are known."""
        self.names, self.values = names, values
        self._times, self._ranks = times, ranks

    @property
    def times(self) -> Instants:
        """The time of each cell."""
        if self._times is None:
            packed = b"".join([name[_TIME] for name in self.names])
            self._times = (np.frombuffer(packed, dtype=">u8").astype(np.uint64) ^ np.uint64(_EPOCH)).view(np.int64)
        return self._times

    @property
    def ranks(self) -> npt.NDArray[np.intp]:
        """The place of each cell's key in the order of their suffixes."""
        if self._ranks is None:
            self._ranks = ranks_of([name[SUFFIX_AT:] for name in self.names])
        return self._ranks

    def before(self, instant_us: int) -> "FoundCells":
        """Return those of earlier times."""
        count = bisect_left(self.names, instant_us, key=_time_of)
        return FoundCells(self.names[:count], self.values[:count])


NO_CELLS: Final = FoundCells([], [])


def _time_of(name: bytes) -> int:
    return int.from_bytes(name[_TIME], "big") - _EPOCH


def cells_between(state: OperatorState, space: int, from_us: int, before_us: int) -> FoundCells:
    """Return the cells of a space from one instant up to another."""
    found = state.gather(space, from_us, before_us)
    return FoundCells([name for name, _ in found], [value for _, value in found])


def cell_name(space: int, time_us: int, suffix: bytes) -> bytes:
    """Return the name of a key's cell in a space at a time."""
    return space_prefix(space, time_us) + suffix


def suffix_of(name: bytes) -> bytes:
    """Return the part of a name that says whose it is."""
    return name[SUFFIX_AT:]


def any_long(names: Sequence[bytes]) -> bool:
    """Whether any of these may be the name of a key that is too long for it."""
    return max(map(len, names)) >= SUFFIX_AT + _LONG_BYTES


def ranks_of(suffixes: Sequence[bytes]) -> npt.NDArray[np.intp]:
    """Return the place of each suffix in their order: by key group, then by key."""
    place = {suffix: rank for rank, suffix in enumerate(sorted(set(suffixes)))}
    return np.fromiter(map(place.__getitem__, suffixes), np.intp, len(suffixes))


class CellNames:
    """The names of keys' cells in a space, and their keys, remembered: the same ones come over and over."""

    def __init__(self, space: int) -> None:
        """Know none."""
        self._space = space
        self._suffixes = Suffixes()
        self._known: dict[int, dict[Any, bytes]] = {}
        self._keys: dict[bytes, Any] = {}  # by suffix
        self._long = False  # whether any key is too long for a name

    def of(self, time_us: int, keys: list[Any], state: OperatorState) -> list[bytes]:
        """Return the names of the cells of keys at a time, to be put: a key that they do not give back is kept."""
        known = self._known.get(time_us)
        if known is None or len(known) > _NAMES_MAX:
            known = self._begin(time_us)
        try:
            names = [known[key] for key in keys]
        except KeyError:
            names = self._learn(time_us, keys, known)
        if self._long:
            remember_long(state, names, keys)
        return names

    def keys_of(self, names: Sequence[bytes], state: OperatorState) -> list[Any]:
        """Return the keys of cells by their names."""
        if len(self._keys) > _NAMES_MAX:
            self._keys.clear()
        known, suffixes = self._keys, [name[SUFFIX_AT:] for name in names]
        try:
            return [known[suffix] for suffix in suffixes]
        except KeyError:
            for name, suffix in zip(names, suffixes, strict=True):
                if suffix not in known:
                    known[suffix] = decode_key(key_of_entry(state, name))
            return [known[suffix] for suffix in suffixes]

    def _begin(self, time_us: int) -> dict[Any, bytes]:
        while len(self._known) >= _TIMES_MAX:
            del self._known[next(iter(self._known))]
        self._known[time_us] = {}
        return self._known[time_us]

    def _learn(self, time_us: int, keys: list[Any], known: dict[Any, bytes]) -> list[bytes]:
        prefix, suffixes = space_prefix(self._space, time_us), self._suffixes.of(keys)
        self._long = self._long or max(map(len, suffixes)) >= _LONG_BYTES
        names = [prefix + suffix for suffix in suffixes]
        known.update(zip(keys, names, strict=True))
        return names
