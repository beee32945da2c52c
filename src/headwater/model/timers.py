"""The timers of a state machine.

A state machine has no clock: it returns its next deadline, and is told the time.
"""

from collections.abc import Hashable, Iterator
from heapq import heappop, heappush
from typing import Generic, TypeVar

from headwater.model.time import Instant

Name = TypeVar("Name", bound=Hashable)


class Timers(Generic[Name]):
    """Instants by name; setting a name again moves it."""

    def __init__(self) -> None:
        self._heap: list[tuple[Instant, int, Name]] = []
        self._current: dict[Name, int] = {}  # the number of the entry that counts; others are passed over
        self._number = 0

    def set(self, name: Name, at: Instant) -> None:
        """Set or move the timer of this name."""
        self._number += 1
        self._current[name] = self._number
        heappush(self._heap, (at, self._number, name))

    def cancel(self, name: Name) -> None:
        """Cancel the timer of this name."""
        self._current.pop(name, None)

    def __contains__(self, name: object) -> bool:
        """Whether a name is set."""
        return name in self._current

    def first(self) -> Instant | None:
        """Return the earliest instant."""
        heap = self._heap
        while heap and self._current.get(heap[0][2]) != heap[0][1]:
            heappop(heap)
        return heap[0][0] if heap else None

    def due(self, now: Instant) -> Iterator[Name]:
        """Yield the names of expired timers, in order of their instants; including any that are set meanwhile."""
        while (first := self.first()) is not None and first <= now:
            name = heappop(self._heap)[2]
            del self._current[name]
            yield name
