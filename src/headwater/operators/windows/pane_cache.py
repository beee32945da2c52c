"""All panes of an instance as a worker knows them by heart, so that a window fires without reading them again.

It is worked out from the state and goes along with it: taken from the state before it is changed, left with it after
(`OperatorState.take`), and gone wherever that is not certain. Cells are found by pane, and what firing needs of a pane
(its cells in order of key, and the number of each one's key) is worked out once, until the pane changes.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from headwater.model.time import BEGINNING_OF_TIME, END_OF_TIME
from headwater.operators.columns.cell_names import NO_CELLS, FoundCells, cells_between
from headwater.operators.columns.long_keys import SUFFIX_AT
from headwater.operators.state import OperatorState
from headwater.operators.windows.panes import runs

_CELLS_MAX: Final = 50_000  # known by heart; more are read from the store whenever they are due
_CODES_SPARE: Final = 1_000  # keys that have a number besides two for each cell

Span = tuple[int, int, int]  # a pane, and which of a list of cells are in it


class _Laid(NamedTuple):
    """The cells of a pane in order of their keys' suffixes."""

    names: list[bytes]
    values: list[bytes]
    codes: npt.NDArray[np.intp]  # the number of each cell's key


class KnownPanes:
    """Every pane that there is."""

    def __init__(self, groups: range) -> None:
        """Know that there is none, of keys of these groups."""
        self._groups = groups
        self._panes: dict[int, dict[bytes, bytes]] = {}  # by name
        self._laid: dict[int, _Laid] = {}
        self._count = 0
        self._codes: dict[bytes, int] = {}  # by suffix
        self._ranks: npt.NDArray[np.intp] = np.empty(0, dtype=np.intp)  # by code

    @staticmethod
    def taken(state: OperatorState) -> "KnownPanes | None":
        """Return what is known of a state; whoever takes it leaves it again once both are changed alike."""
        known = state.take()
        return known if isinstance(known, KnownPanes) and known._groups == state.groups else None

    @staticmethod
    def learned(state: OperatorState, space: int) -> "KnownPanes | None":
        """Read all panes of a state, if that is worth it and they are not too many."""
        if not state.remembers:
            return None
        found = cells_between(state, space, BEGINNING_OF_TIME, END_OF_TIME)
        if len(found.names) > _CELLS_MAX:
            return None
        known = KnownPanes(state.groups)
        if found.names:
            starts = runs(found.times).tolist()
            spans = zip(found.times[starts].tolist(), starts, [*starts[1:], len(found.names)], strict=True)
            known.put(list(spans), found.names, found.values)
        return known

    @property
    def entries(self) -> int:
        """How many cells there are."""
        return self._count

    def leave(self, state: OperatorState) -> None:
        """Leave it with the state, as which it was changed."""
        if self._count <= _CELLS_MAX:
            state.leave(self)

    def read(self, spans: Sequence[Span], names: Sequence[bytes]) -> list[bytes | None]:
        """Return the cells of names, by pane."""
        cells: list[bytes | None] = []
        for pane, start, end in spans:
            held = self._panes.get(pane)
            cells += [None] * (end - start) if held is None else map(held.get, names[start:end])
        return cells

    def put(self, spans: Sequence[Span], names: Sequence[bytes], cells: Sequence[bytes]) -> None:
        """Know cells, by pane."""
        for pane, start, end in spans:
            held = self._panes.setdefault(pane, {})
            self._count -= len(held)
            held.update(zip(names[start:end], cells[start:end], strict=True))
            self._count += len(held)
            self._laid.pop(pane, None)

    def before(self, instant_us: int) -> FoundCells:
        """Return the cells of earlier panes."""
        due = sorted(pane for pane in self._panes if pane < instant_us)
        if not due:
            return NO_CELLS
        self._forget_gone_keys()  # before any pane is laid: all that are laid together have to agree on the numbers
        laid = [self._laid.get(pane) or self._lay(pane) for pane in due]
        return FoundCells(
            list(chain.from_iterable(one.names for one in laid)),
            list(chain.from_iterable(one.values for one in laid)),
            np.repeat(np.array(due), [len(one.names) for one in laid]),
            self._ranked(np.concatenate([one.codes for one in laid])),
        )

    def drop(self, instant_us: int) -> FoundCells:
        """Forget the earlier panes, and return their cells."""
        dropped = [pane for pane in self._panes if pane < instant_us]
        cells = self.before(instant_us) if dropped else NO_CELLS
        for pane in dropped:
            self._count -= len(self._panes.pop(pane))
            self._laid.pop(pane, None)
        return cells

    def _lay(self, pane: int) -> _Laid:
        held = self._panes[pane]
        names = sorted(held)
        owners = [name[SUFFIX_AT:] for name in names]
        codes = self._codes
        if not all(map(codes.__contains__, owners)):
            for owner in owners:
                codes.setdefault(owner, len(codes))
        numbers = np.fromiter(map(codes.__getitem__, owners), np.intp, len(owners))
        made = self._laid[pane] = _Laid(names, list(map(held.__getitem__, names)), numbers)
        return made

    def _forget_gone_keys(self) -> None:
        """Number keys anew where most of those with a number have no cell any more, which would only make it slow."""
        if len(self._codes) > 2 * self._count + _CODES_SPARE:
            self._codes.clear()
            self._laid.clear()
            self._ranks = np.empty(0, dtype=np.intp)

    def _ranked(self, codes: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """Return the place of each code's suffix in the order of all."""
        known = self._codes
        if len(self._ranks) != len(known):
            self._ranks = np.empty(len(known), dtype=np.intp)
            self._ranks[[known[suffix] for suffix in sorted(known)]] = np.arange(len(known))
        return self._ranks[codes]
