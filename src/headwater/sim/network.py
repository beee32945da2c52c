"""An imagined network: latency by distance, bandwidth, loss, duplicates, reordering, partitions, slow and dead hosts.

Hosts lie on a plane, those of a zone close together. All chance comes from one seeded generator, drawn in the order of
sending, so the same sends in the same order meet the same fate.
"""

import math
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from headwater.model.time import MILLISECOND, Duration, Instant

PLANE: Final = 1_000.0  # the width of the world; light needs `across` from one side to the other


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """How the links are."""

    across: Duration = Duration(80 * MILLISECOND)  # one way over the whole plane
    floor: Duration = Duration(1 * MILLISECOND)  # one way between neighbours
    jitter: float = 0.1  # of the delay
    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0  # of messages that are held up for as long again as their way takes
    bytes_per_s: int = 0  # of a host's own link; 0: no limit


@dataclass(slots=True)
class _Place:
    x: float
    y: float
    zone: str
    slowness: float = 1.0  # how many times longer everything takes
    busy_until: Instant = field(default=Instant(0))


class Network:
    """All hosts and what is between them."""

    def __init__(self, rng: Random, links: Links | None = None) -> None:
        """Begin without hosts."""
        self.rng = rng
        self.links = links or Links()
        self.sent = self.lost = 0
        self._places: dict[str, _Place] = {}
        self._zones: dict[str, tuple[float, float]] = {}
        self._side: dict[str, int] = {}  # of the partition; a host without a side is on side 0
        self._cut: set[tuple[str, str]] = set()  # single links, in one direction

    def place(self, address: str, zone: str) -> None:
        """Put a host somewhere in its zone."""
        if zone not in self._zones:
            self._zones[zone] = (self.rng.uniform(0, PLANE), self.rng.uniform(0, PLANE))
        x, y = self._zones[zone]
        spread = PLANE / 20
        self._places[address] = _Place(self.rng.gauss(x, spread), self.rng.gauss(y, spread), zone)

    def way_us(self, one: str, other: str) -> float:
        """Return how long a message takes from one host to another, without chance."""
        here, there = self._places[one], self._places[other]
        far = math.hypot(here.x - there.x, here.y - there.y) / PLANE
        return (self.links.floor + far * self.links.across) * max(here.slowness, there.slowness)

    def arrivals(self, one: str, other: str, size_bytes: int, now: Instant) -> list[Instant]:
        """Return when a message arrives: once, twice or never."""
        self.sent += 1
        if other not in self._places or not self.connected(one, other):
            self.lost += 1
            return []
        links, rng = self.links, self.rng
        if links.loss and rng.random() < links.loss:
            self.lost += 1
            return []
        leaves = self._leaves_at(one, size_bytes, now)
        way = self.way_us(one, other)
        times = [leaves + self._shaken(way)]
        if links.duplication and rng.random() < links.duplication:
            times.append(leaves + self._shaken(2 * way))
        return [Instant(int(time)) for time in times]

    def _leaves_at(self, one: str, size_bytes: int, now: Instant) -> Instant:
        if not self.links.bytes_per_s:
            return now
        place = self._places[one]
        sending_us = size_bytes * 1_000_000 // self.links.bytes_per_s
        place.busy_until = Instant(max(place.busy_until, now) + sending_us)
        return place.busy_until

    def _shaken(self, way: float) -> float:
        links, rng = self.links, self.rng
        delay = way * (1.0 + links.jitter * rng.random())
        if links.reordering and rng.random() < links.reordering:
            delay += way * rng.random()
        return delay

    # --- misfortune ---------------------------------------------------------------------------------------------------

    def part(self, sides: dict[str, int]) -> None:
        """Cut the network into sides that do not hear one another."""
        self._side = dict(sides)

    def cut(self, one: str, other: str) -> None:
        """Cut one link in one direction."""
        self._cut.add((one, other))

    def mend(self, one: str, other: str) -> None:
        """Let a cut link be whole again."""
        self._cut.discard((one, other))

    def slow(self, address: str, slowness: float) -> None:
        """Let a host be slow, or as quick as it was with 1.0."""
        self._places[address].slowness = slowness

    def worsen(self, **links: float) -> None:
        """Change how the links are."""
        self.links = replace(self.links, **links)  # type: ignore[arg-type]

    def heal(self) -> None:
        """Let every message arrive again."""
        self._side, self._cut = {}, set()
        self.worsen(loss=0.0, duplication=0.0, reordering=0.0)
        for place in self._places.values():
            place.slowness = 1.0

    def connected(self, one: str, other: str) -> bool:
        """Whether a message could get from one host to another."""
        if not self._side and not self._cut:
            return True
        return self._side.get(one, 0) == self._side.get(other, 0) and (one, other) not in self._cut

    def touch_is_free(self, one: str, other: str) -> bool:
        """Whether two hosts hear each other without hindrance: nothing is cut, and neither is slow."""
        is_slow = self._places[one].slowness > 1 or self._places[other].slowness > 1
        return not is_slow and self.connected(one, other) and self.connected(other, one)
