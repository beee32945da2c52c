"""All heads of a window join as a worker knows them by heart: a new key is known to be new, and no window is scanned.

It is worked out from the state and goes along with it: taken from the state before it is changed, left with it after
(`OperatorState.take`), and gone wherever that is not certain.
"""

from collections.abc import Sequence
from typing import Final

from headwater.model.entries import split_entry
from headwater.model.time import END_OF_TIME
from headwater.operators.state import OperatorState

HEADS_MAX: Final = 50_000  # known by heart; more are read from the store

Span = tuple[int, int, int]  # a window, and which of a list of heads are in it


class KnownHeads:
    """Every head that there is, by window and by name."""

    def __init__(self, groups: range) -> None:
        """Know that there is none, of keys of these groups."""
        self._groups = groups
        self._windows: dict[int, dict[bytes, bytes]] = {}

    @staticmethod
    def taken(state: OperatorState) -> "KnownHeads | None":
        """Return what is known of a state; whoever takes it leaves it again once both are changed alike."""
        known = state.take()
        return known if isinstance(known, KnownHeads) and known._groups == state.groups else None

    @staticmethod
    def learned(state: OperatorState, space: int, from_us: int) -> "KnownHeads":
        """Read all heads from an instant on, before which there are none."""
        known = KnownHeads(state.groups)
        for name, value in state.gather(space, from_us, END_OF_TIME):
            known._windows.setdefault(split_entry(name)[0], {})[name] = value
        return known

    def leave(self, state: OperatorState) -> None:
        """Leave it with the state, as which it was changed."""
        if sum(map(len, self._windows.values())) <= HEADS_MAX:
            state.leave(self)

    def read(self, spans: Sequence[Span], names: Sequence[bytes]) -> list[bytes | None]:
        """Return the heads of names, by window."""
        heads: list[bytes | None] = []
        for window, start, end in spans:
            held = self._windows.get(window)
            heads += [None] * (end - start) if held is None else map(held.get, names[start:end])
        return heads

    def put(self, spans: Sequence[Span], names: Sequence[bytes], heads: Sequence[bytes]) -> None:
        """Know heads, by window."""
        for window, start, end in spans:
            self._windows.setdefault(window, {}).update(zip(names[start:end], heads[start:end], strict=True))

    def drop(self, before_us: int) -> list[tuple[bytes, bytes]]:
        """Forget the windows that begin earlier, and return their heads in order."""
        ended = [self._windows.pop(window) for window in sorted(self._windows) if window < before_us]
        return [(name, held[name]) for held in ended for name in sorted(held)]
