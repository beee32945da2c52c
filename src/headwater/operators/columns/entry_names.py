"""The names of many keys' entries, remembered: to make a name costs five times as much as to find it again."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from headwater.model.entries import ALL_GROUPS, Suffixes, is_long, space_prefix

_NAMES_MAX: Final = 200_000
_KEY_AT: Final = len(space_prefix(0, 0)) + 2  # behind the key's group
_LONG_SIZE: Final = _KEY_AT + 33  # of a mark and a hash


def long_among(names: Sequence[bytes]) -> list[bytes]:
    """Return those that do not give back their keys; they are so rare that nobody may spend time on them."""
    longest = max(map(len, names), default=0)
    return [] if longest < _LONG_SIZE else [name for name in names if is_long(name[_KEY_AT:])]


class EntryNames:
    """The names that keys have in one space, at the time that was asked for last. A cache, and no more."""

    def __init__(self, space: int) -> None:
        """Remember none."""
        self._space = space
        self._suffixes = Suffixes()
        self._time_us = 0
        self._known: dict[Any, bytes] = {}

    def of(self, keys: list[Any], time_us: int = 0) -> list[bytes]:
        """Return the name of every key's entry."""
        if time_us != self._time_us or len(self._known) > _NAMES_MAX:
            self._time_us, self._known = time_us, {}
        known = self._known
        names = list(map(known.get, keys))
        if None in names:
            new = [key for key, name in zip(keys, names, strict=True) if name is None]
            known.update(zip(new, self.at_times(new, [time_us] * len(new)), strict=True))
            names = list(map(known.get, keys))
        return names  # type: ignore[return-value]  # none is lacking now

    def in_windows(self, keys: list[Any], places: Sequence[int], spans: Iterable[tuple[int, int, int]]) -> list[bytes]:
        """Return the names of keys by their places, of which each span, from one to another, is at a time."""
        suffixes = self._suffixes.of(keys)
        names: list[bytes] = []
        for time_us, start, end in spans:
            prefix = space_prefix(self._space, time_us)
            names += [prefix + suffixes[place] for place in places[start:end]]
        return names

    def at_times(self, keys: list[Any], times_us: list[int]) -> list[bytes]:
        """Return the name of every key's entry at a time of its own."""
        prefixes = {time_us: space_prefix(self._space, time_us) for time_us in set(times_us)}
        suffixes = self._suffixes.of(keys)
        return [prefixes[time_us] + suffix for time_us, suffix in zip(times_us, suffixes, strict=True)]


class NamesByGroup:
    """The names that keys have in a space where the key's group stands for the time: some groups can be scanned alone.

    A cache, and no more.
    """

    def __init__(self, space: int) -> None:
        """Remember none."""
        self._prefixes = [space_prefix(space, group) for group in ALL_GROUPS]
        self._suffixes = Suffixes()
        self._known: dict[Any, bytes] = {}

    def of(self, keys: list[Any]) -> list[bytes]:
        """Return the name of every key's entry."""
        try:
            return list(map(self._known.__getitem__, keys))
        except KeyError:
            self._learn(keys)
            return list(map(self._known.__getitem__, keys))

    def _learn(self, keys: list[Any]) -> None:
        if len(self._known) > _NAMES_MAX:
            self._known.clear()
        for key, suffix in zip(keys, self._suffixes.of(keys), strict=True):
            self._known[key] = self._prefixes[int.from_bytes(suffix[:2], "big")] + suffix
