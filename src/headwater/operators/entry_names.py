"""The names of many keys' entries, remembered: to make a name costs five times as much as to find it again."""

from typing import Any, Final

from headwater.model.entries import ALL_GROUPS, Suffixes, space_prefix

_NAMES_MAX: Final = 200_000


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
        known = self._known
        try:
            return [known[key] for key in keys]
        except KeyError:
            self._learn(keys)
            return [known[key] for key in keys]

    def _learn(self, keys: list[Any]) -> None:
        if len(self._known) > _NAMES_MAX:
            self._known.clear()
        for key, suffix in zip(keys, self._suffixes.of(keys), strict=True):
            self._known[key] = self._prefixes[int.from_bytes(suffix[:2], "big")] + suffix
