"""Virtual time: a queue of planned actions; those planned for the same instant happen in the order of planning."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from headwater.model.time import Duration, Instant


class Timeline:
    """A clock that jumps to the next planned action."""

    def __init__(self) -> None:
        self.now = Instant(0)
        self.happened = 0
        self._planned: list[tuple[Instant, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0

    def at(self, instant: Instant | int, action: Callable[..., None], *details: Any) -> None:
        """Plan an action; an instant in the past counts as now."""
        self._number += 1
        heappush(self._planned, (Instant(max(instant, self.now)), self._number, action, details))

    def after(self, delay: Duration | int, action: Callable[..., None], *details: Any) -> None:
        """Plan an action after a delay."""
        self.at(self.now + delay, action, *details)

    def run(self, until: Instant | int) -> None:
        """Let everything happen up to and with an instant."""
        planned = self._planned
        while planned and planned[0][0] <= until:
            self.now, _, action, details = heappop(planned)
            self.happened += 1
            action(*details)
        self.now = Instant(max(self.now, until))

    def run_for(self, span: Duration | int) -> None:
        """Let some time pass."""
        self.run(self.now + span)
