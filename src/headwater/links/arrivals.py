"""Rate limiting of handshakes, shared fairly among the addresses from which they come.

A handshake costs some CPU time whoever asks for it, so there is one token bucket for all. While it has tokens, every
address is admitted. When a flood has emptied it, an address is still admitted as long as it has had less than its fair
share of late: the rate divided by the number of addresses that came lately. Pure: time comes as an argument.

What the addresses have had decays at the rate, in equal parts. One number counts what has decayed for each of them, as
the virtual time of fair queueing does, and a heap finds the address to be forgotten next. So an attempt costs the same
however many addresses are remembered: this runs during floods.
"""

import heapq
import itertools
from typing import Final

from headwater.links.shares import Holder

BURST_S: Final = 2.0  # unused handshakes of this long are saved up
ADDRESSES_MAX: Final = 4_096  # that are remembered; beyond it the one that has had least of late is forgotten


class Arrivals:
    """How many handshakes each address has had of late."""

    def __init__(self, per_s: float, now: float) -> None:
        """Begin with a full bucket."""
        self._per_s = per_s
        self._left = BURST_S * per_s
        self._at = now
        self._decayed = 0.0  # for each address, since there was none
        self._until: dict[Holder, float] = {}  # what must have decayed before an address is forgotten
        self._next: list[
            tuple[float, int, Holder]
        ] = []  # a heap of the same addresses; one admitted since is too early
        self._number = itertools.count()  # of equals, the heap compares these

    def admit(self, holder: Holder, now: float) -> bool:
        """Return whether a handshake may begin; if so, count it."""
        self._pass(now)
        until = self._until.get(holder)
        had = 0.0 if until is None else until - self._decayed
        if self._left < 1 and had + 1 > self.share(holder):
            return False
        self._left = max(0.0, self._left - 1)
        if until is None:
            if len(self._until) >= ADDRESSES_MAX:
                self._forget(self._least())
            heapq.heappush(self._next, (self._decayed + 1, next(self._number), holder))
        self._until[holder] = self._decayed + had + 1
        return True

    def share(self, holder: Holder) -> float:
        """Return how many handshakes an address may have had of late and be admitted all the same, one at least."""
        others = len(self._until) - (holder in self._until)
        return max(1.0, self._per_s / (others + 1))

    def _pass(self, now: float) -> None:
        """Let time pass: the bucket fills, and the addresses' counts decay at the same total rate."""
        passed, self._at = max(0.0, now - self._at), max(now, self._at)
        tokens = passed * self._per_s
        self._left = min(BURST_S * self._per_s, self._left + tokens)
        while tokens and self._until:
            least = self._least()
            needed = (self._until[least] - self._decayed) * len(self._until)
            if tokens < needed:
                self._decayed += tokens / len(self._until)
                return
            tokens -= needed
            self._decayed = self._until[least]
            self._forget(least)
        if not self._until:
            self._decayed = 0.0  # small numbers are exact

    def _least(self) -> Holder:
        """Return the address that has had least; those in front of it in the heap go where they belong by now."""
        while True:
            until, _, holder = self._next[0]
            if until == self._until[holder]:
                return holder
            heapq.heapreplace(self._next, (self._until[holder], next(self._number), holder))

    def _forget(self, least: Holder) -> None:
        heapq.heappop(self._next)
        del self._until[least]
