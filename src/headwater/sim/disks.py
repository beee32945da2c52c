"""Simulated disks: how long it takes until a write is durable on a host.

A node sends no message about apps before the state behind it is durable (write-ahead). A disk writes in group commits,
one after the other: what comes during one goes with the next, so that nothing waits for longer than two of them, and no
write is durable before an earlier one.
"""

from typing import NamedTuple

from headwater.model.time import Duration, Instant


class _GroupCommits(NamedTuple):
    """When the group commit that runs is durable, and the last one: the next, or the same if none waits."""

    running: Instant
    last: Instant


class Disks:
    """The disks of all hosts; they take no time unless they are made slow."""

    def __init__(self) -> None:
        self._sync: dict[str, Duration] = {}  # of slow disks: how long one sync takes
        self._commits: dict[str, _GroupCommits] = {}

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
        sync = self.sync_us(address)
        running, last = self._commits.get(address, (now, now))
        if running <= now:  # the one that waited, if any, has begun
            running = last
        if running <= now:  # and is done: this write begins another
            running = last = Instant(now + sync)
        elif last == running:  # none waits yet: this write begins the next
            last = Instant(running + sync)
        self._commits[address] = _GroupCommits(running, last)
        return last
