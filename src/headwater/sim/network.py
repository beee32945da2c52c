"""A simulated network: latency by distance, bandwidth, loss, duplicates, reordering, partitions, slow and dead hosts.

Hosts lie on a plane, those of a zone close together. A host carries one peer or several, each with its own address:
they share its link, and are slow, cut off and partitioned together, but always hear one another. All chance comes from
one seeded generator, drawn in the order of sending, so the same sends in the same order have the same outcome.
"""

import math
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from headwater.model.time import MILLISECOND, SECOND, Duration, Instant

PLANE: Final = 1_000.0  # the width of the world; a message needs `across` from one side to the other


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Latency, bandwidth and faults of the links."""

    across: Duration = Duration(80 * MILLISECOND)  # one way over the whole plane
    floor: Duration = Duration(1 * MILLISECOND)  # one way between neighbours
    jitter: float = 0.1  # of the delay
    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0  # the share of messages that are delayed by up to their latency again
    bytes_per_s: int = 0  # of a host's own link; 0: no limit
    queue_bytes: int = 32 << 20  # the send queue of a host's link; what does not fit is dropped, as on real nodes


@dataclass(slots=True)
class _Host:
    name: str
    x: float
    y: float
    zone: str
    slowness: float = 1.0  # how many times longer everything takes
    urgent_until: Instant = field(default=Instant(0))  # the link is busy with messages that are not bulky
    busy_until: Instant = field(default=Instant(0))  # the link is busy with any message


class Network:
    """All hosts and the links between them."""

    def __init__(self, rng: Random, links: Links | None = None) -> None:
        self.rng = rng
        self.links = links or Links()
        self.sent = self.lost = 0
        self._hosts: dict[str, _Host] = {}  # by the address of each of their peers
        self._zones: dict[str, tuple[float, float]] = {}
        self._side: dict[str, int] = {}  # of the partition, by host; one without a side is on side 0
        self._cut: set[tuple[str, str]] = set()  # single links, in one direction

    def place(self, address: str, zone: str, on: str | None = None) -> None:
        """Put a peer on a host of its own, somewhere in its zone; or on the host of another peer."""
        if on is not None:
            self._hosts[address] = self._hosts[on]
            return
        if zone not in self._zones:
            self._zones[zone] = (self.rng.uniform(0, PLANE), self.rng.uniform(0, PLANE))
        x, y = self._zones[zone]
        spread = PLANE / 20
        self._hosts[address] = _Host(address, self.rng.gauss(x, spread), self.rng.gauss(y, spread), zone)

    def host(self, address: str) -> str:
        """Return the name of the host that carries a peer: the address of the first that it carried."""
        return self._hosts[address].name

    def way_us(self, one: str, other: str) -> float:
        """Return the latency from one host to another, without jitter."""
        here, there = self._hosts[one], self._hosts[other]
        far = math.hypot(here.x - there.x, here.y - there.y) / PLANE
        return (self.links.floor + far * self.links.across) * max(here.slowness, there.slowness)

    @property
    def counts_bytes(self) -> bool:
        """Whether links have a bandwidth, so that the length of messages matters."""
        return self.links.bytes_per_s > 0

    def arrivals(self, one: str, other: str, size_bytes: int, now: Instant, *, bulky: bool = False) -> list[Instant]:
        """Return when a message arrives: once, twice or never; bulky ones let all others overtake them."""
        self.sent += 1
        links, rng = self.links, self.rng
        leaves = None
        if other in self._hosts and self.connected(one, other):
            leaves = self._leaves_at(one, size_bytes, now, bulky=bulky)
        if leaves is None or (links.loss and rng.random() < links.loss):
            self.lost += 1
            return []
        way = self.way_us(one, other)
        times = [leaves + self._shaken(way)]
        if links.duplication and rng.random() < links.duplication:
            times.append(leaves + self._shaken(2 * way))
        return [Instant(int(time)) for time in times]

    def _leaves_at(self, one: str, size_bytes: int, now: Instant, *, bulky: bool) -> Instant | None:
        """Return when the last byte is on the link; None if the send queue is full."""
        links, host = self.links, self._hosts[one]
        if not links.bytes_per_s:
            return now
        waiting = (host.busy_until - now) * links.bytes_per_s // SECOND
        if waiting + size_bytes > links.queue_bytes:
            return None
        sending_us = size_bytes * SECOND // links.bytes_per_s
        host.busy_until = Instant(max(host.busy_until, now) + sending_us)
        if bulky:
            return host.busy_until
        host.urgent_until = Instant(max(host.urgent_until, now) + sending_us)
        return host.urgent_until

    def waits(self, address: str, now: Instant) -> Duration:
        """Return how long it takes until a host's send queue is empty."""
        return Duration(max(0, self._hosts[address].busy_until - now))

    def _shaken(self, way: float) -> float:
        links, rng = self.links, self.rng
        delay = way * (1.0 + links.jitter * rng.random())
        if links.reordering and rng.random() < links.reordering:
            delay += way * rng.random()
        return delay

    # --- misfortune ---------------------------------------------------------------------------------------------------

    def part(self, sides: dict[str, int]) -> None:
        """Partition the network into sides that do not hear one another."""
        self._side = {self.host(address): side for address, side in sides.items()}

    def cut(self, one: str, other: str) -> None:
        """Cut the link between two hosts in one direction."""
        self._cut.add((self.host(one), self.host(other)))

    def mend(self, one: str, other: str) -> None:
        """Let a cut link be whole again."""
        self._cut.discard((self.host(one), self.host(other)))

    def slow(self, address: str, slowness: float) -> None:
        """Let a host be so many times slower; 1.0 makes it quick again."""
        self._hosts[address].slowness = slowness

    def worsen(self, **links: float) -> None:
        """Change the given properties of all links."""
        self.links = replace(self.links, **links)  # type: ignore[arg-type]

    def heal(self) -> None:
        """End all faults of the network."""
        self._side, self._cut = {}, set()
        self.worsen(loss=0.0, duplication=0.0, reordering=0.0)
        for host in self._hosts.values():
            host.slowness = 1.0

    def connected(self, one: str, other: str) -> bool:
        """Whether a message could get from one host to another."""
        if not self._side and not self._cut:
            return True
        here, there = self.host(one), self.host(other)
        return here == there or (self._side.get(here, 0) == self._side.get(there, 0) and (here, there) not in self._cut)

    def touch_is_free(self, one: str, other: str) -> bool:
        """Whether two hosts hear each other freely: no link between them is cut, and neither is slow."""
        is_slow = self._hosts[one].slowness > 1 or self._hosts[other].slowness > 1
        return not is_slow and self.connected(one, other) and self.connected(other, one)
