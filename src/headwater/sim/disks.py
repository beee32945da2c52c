"""Simulated disks: how long it takes until a write is durable on a host.

A node sends no message about apps before the state behind it is durable (write-ahead). A disk writes in group commits:
what comes during one goes with the next, so that nothing waits for longer than two of them.
"""

from headwater.model.time import Duration, Instant


class Disks:
    """The disks of all hosts; they take no time unless they are made slow."""

    def __init__(self) -> None:
        self._sync: dict[str, Duration] = {}  # of slow disks: how long one sync takes
        self._writing_until: dict[str, Instant] = {}

    def slow(self, address: str, sync: Duration) -> None:
        """Let a host's disk take so long for a sync; 0 makes it quick again."""
        if sync:
            self._sync[address] = sync
        else:
            self._sync.pop(address, None)

    def sync_us(self, address: str) -> int:
        """Return how long a host's disk takes for a sync."""
        return self._sync.get(address, 0)

    def heal(self) -> None:
        """Let all disks be quick."""
        self._sync.clear()

    def written_at(self, address: str, now: Instant) -> Instant:
        """Return when something that is written now is durable."""
        until = self._writing_until.get(address, now)
        sync = self._sync.get(address)
        if sync is None:
            return max(until, now)  # not before what was written earlier
        if now < until:
            return Instant(until + sync)
        self._writing_until[address] = Instant(now + sync)
        return Instant(now + sync)
