"""Rate limiting of handshakes, shared fairly among the addresses from which they come.

A handshake costs some CPU time whoever asks for it, so there is one token bucket for all. While it has tokens, every
address is admitted. When a flood has emptied it, an address is still admitted as long as it has had less than its fair
share of late: the rate divided by the number of addresses that came lately. Pure: time comes as an argument.
"""

from typing import Final

from headwater.links.shares import Holder

BURST_S: Final = 2.0  # unused handshakes of this long are saved up
ADDRESSES_MAX: Final = 4_096  # that are remembered; beyond it the one admitted longest ago is forgotten


class Arrivals:
    """How many handshakes each address has had of late."""

    def __init__(self, per_s: float, now: float) -> None:
        """Begin with a full bucket."""
        self._per_s = per_s
        self._left = BURST_S * per_s
        self._at = now
        self._had: dict[Holder, float] = {}

    def admit(self, holder: Holder, now: float) -> bool:
        """Return whether a handshake may begin; if so, count it."""
        self._pass(now)
        had = self._had.get(holder, 0.0)
        if self._left < 1 and had + 1 > self.share(holder):
            return False
        self._left = max(0.0, self._left - 1)
        self._had.pop(holder, None)
        if len(self._had) >= ADDRESSES_MAX:
            del self._had[next(iter(self._had))]
        self._had[holder] = had + 1
        return True

    def share(self, holder: Holder) -> float:
        """Return how many handshakes an address may have had of late and be admitted all the same, one at least."""
        others = len(self._had) - (holder in self._had)
        return max(1.0, self._per_s / (others + 1))

    def _pass(self, now: float) -> None:
        """Let time pass: the bucket fills, and the addresses' counts decay at the same total rate."""
        passed, self._at = max(0.0, now - self._at), max(now, self._at)
        if not passed:
            return
        self._left = min(BURST_S * self._per_s, self._left + passed * self._per_s)
        if self._had:
            forgotten = passed * self._per_s / len(self._had)
            self._had = {holder: had - forgotten for holder, had in self._had.items() if had > forgotten}
