"""Imagined disks: how long it takes until something is safe on a host's disk.

A node says nothing about apps before what it stands on is written. A disk writes all that waits for it at once, and
what comes meanwhile with the next time, so that nothing waits for longer than two of its times.
"""

from headwater.model.time import Duration, Instant


class Disks:
    """The disks of all hosts; they take no time unless they are made slow."""

    def __init__(self) -> None:
        """Begin with disks that are quick."""
        self._sync: dict[str, Duration] = {}  # of slow ones: how long they take for one time of writing
        self._writing_until: dict[str, Instant] = {}

    def slow(self, address: str, sync: Duration) -> None:
        """Let a host's disk take so long to write, or be as quick as it was with 0."""
        if sync:
            self._sync[address] = sync
        else:
            self._sync.pop(address, None)

    def sync_us(self, address: str) -> int:
        """Return how long a host's disk takes to write."""
        return self._sync.get(address, 0)

    def heal(self) -> None:
        """Let all disks be quick."""
        self._sync.clear()

    def written_at(self, address: str, now: Instant) -> Instant:
        """Return when something that is to be written now is safe."""
        until = self._writing_until.get(address, now)
        sync = self._sync.get(address)
        if sync is None:
            return max(until, now)  # not before what was written earlier
        if now < until:
            return Instant(until + sync)
        self._writing_until[address] = Instant(now + sync)
        return Instant(now + sync)
