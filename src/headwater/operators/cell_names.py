"""Names of cells by the suffix of their key, for state that is worked on by the thousand keys.

A key is known by its suffix throughout: it names the key's entries in every space, and sorts by key group.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from headwater.model.entries import ALL_GROUPS, space_prefix
from headwater.model.keys import decode_key
from headwater.operators.long_keys import SUFFIX_AT, key_of_entry, remember_long
from headwater.operators.panes import Instants
from headwater.operators.state import OperatorState

_LONG_BYTES: Final = 35  # of a suffix with the hash of a key: group, mark, 32 bytes
_TIME: Final = slice(1, SUFFIX_AT)
_EPOCH: Final = 1 << 63  # names count time from before all times


class FoundCells(NamedTuple):
    """Cells found by time, in order of time and suffix."""

    names: list[bytes]
    values: list[bytes]

    @property
    def times(self) -> Instants:
        """The time of each cell."""
        packed = b"".join([name[_TIME] for name in self.names])
        return (np.frombuffer(packed, dtype=">u8").astype(np.uint64) ^ np.uint64(_EPOCH)).view(np.int64)

    @property
    def owners(self) -> list[bytes]:
        """The suffix of each cell's key."""
        return [name[SUFFIX_AT:] for name in self.names]

    def before(self, instant_us: int) -> "FoundCells":
        """Return those of earlier times."""
        count = bisect_left(self.names, instant_us, key=_time_of)
        return FoundCells(self.names[:count], self.values[:count])

    def key(self, nth: int, state: OperatorState) -> Any:
        """Return the key of a cell."""
        return decode_key(key_of_entry(state, self.names[nth]))


NO_CELLS: Final = FoundCells([], [])


def _time_of(name: bytes) -> int:
    return int.from_bytes(name[_TIME], "big") - _EPOCH


def cells_between(state: OperatorState, space: int, from_us: int, before_us: int) -> FoundCells:
    """Return the cells of a space from one instant up to another: `state.held`, for ten thousands at a time."""
    found = state._merged(space_prefix(space, from_us), space_prefix(space, before_us))
    if state.groups == ALL_GROUPS:
        pairs = list(found)
    else:
        low, high = (group.to_bytes(2, "big") for group in (state.groups.start, state.groups.stop))
        pairs = [pair for pair in found if low <= pair[0][SUFFIX_AT : SUFFIX_AT + 2] < high]
    return FoundCells([name for name, _ in pairs], [value for _, value in pairs])


def cell_name(space: int, time_us: int, suffix: bytes) -> bytes:
    """Return the name of a key's cell in a space at a time."""
    return space_prefix(space, time_us) + suffix


def suffix_of(name: bytes) -> bytes:
    """Return the part of a name that says whose it is."""
    return name[SUFFIX_AT:]


def ranks_of(suffixes: Sequence[bytes]) -> npt.NDArray[np.intp]:
    """Return the place of each suffix in their order: by key group, then by key."""
    place = {suffix: rank for rank, suffix in enumerate(sorted(set(suffixes)))}
    return np.fromiter(map(place.__getitem__, suffixes), np.intp, len(suffixes))


def remember_long_keys(state: OperatorState, suffixes: Sequence[bytes], keys: Sequence[Any]) -> None:
    """Keep the keys that their suffixes do not give back."""
    if max(map(len, suffixes)) >= _LONG_BYTES:
        remember_long(state, [cell_name(0, 0, suffix) for suffix in suffixes], keys)
