"""Starts that failed because of the world outside: retried with exponential backoff.

A file may appear, a broker be reached, a package be installed. Rows wait meanwhile, and the app's status says what is
missing, and where.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from headwater.model.time import SECOND

FIRST_US: Final = SECOND  # until the first retry; doubled with each further one
LONGEST_US: Final = 60 * SECOND
TROUBLES_MAX: Final = 10_000  # beyond it the oldest is dropped; its steward asks again
TROUBLES_BYTES_MAX: Final = 128 << 20  # of what is to be started, likewise: each has its flow, of a megabyte at most

Wanted = TypeVar("Wanted")
Place = tuple[str, int | None]  # an app's id, and an instance or (negative) a source; None: the app itself


@dataclass(slots=True)
class StartTrouble(Generic[Wanted]):
    """Something that could not be started."""

    wanted: Wanted
    why: str
    tries: int
    again_us: int | None  # None: a retry is in progress


class Troubles(Generic[Wanted]):
    """All that could not be started on a node."""

    def __init__(self, size_bytes: Callable[[Wanted], int]) -> None:
        """Begin empty; the size is counted because peers determine what is to be started."""
        self._size_bytes = size_bytes
        self._bytes_held = 0
        self._troubles: dict[Place, StartTrouble[Wanted]] = {}

    def failed(self, place: Place, wanted: Wanted, why: str, now_us: int) -> bool:
        """Record a failed start; return whether its reason is new."""
        known = self._troubles.get(place)
        tries = 1 if known is None else known.tries + 1
        pause_us = min(LONGEST_US, FIRST_US << min(tries - 1, 16))
        self._bytes_held += self._size_bytes(wanted) - (0 if known is None else self._size_bytes(known.wanted))
        self._troubles[place] = StartTrouble(wanted, why, tries, now_us + pause_us)
        while len(self._troubles) > TROUBLES_MAX or self._bytes_held > TROUBLES_BYTES_MAX:
            self.mended(next(iter(self._troubles)))
        return known is None or known.why != why

    def mended(self, place: Place) -> bool:
        """Record that something has started, or need not start any more; return whether it had failed before."""
        known = self._troubles.pop(place, None)
        if known is None:
            return False
        self._bytes_held -= self._size_bytes(known.wanted)
        return True

    def forget(self, app: str) -> None:
        """Drop everything of an app."""
        for place in [place for place in self._troubles if place[0] == app]:
            self.mended(place)

    def due(self, now_us: int) -> list[Wanted]:
        """Return what to retry now; each must succeed or fail before it can be due again."""
        found = [one for one in self._troubles.values() if one.again_us is not None and one.again_us <= now_us]
        for one in found:
            one.again_us = None
        return [one.wanted for one in found]

    def of(self, app: str, now_us: int) -> list[str]:
        """Describe an app's failed starts."""
        return [_told(one, now_us) for (name, _), one in self._troubles.items() if name == app]

    def apps(self) -> dict[str, Wanted]:
        """Return the apps with failed starts, each with one of these."""
        return {app: one.wanted for (app, _), one in self._troubles.items()}


def _told(trouble: StartTrouble[Wanted], now_us: int) -> str:
    times = "once" if trouble.tries == 1 else f"{trouble.tries} times"
    wait = "now" if trouble.again_us is None else f"in {max(0, trouble.again_us - now_us) / SECOND:.0f} s"
    return f"{trouble.why} (tried {times}, again {wait})"
