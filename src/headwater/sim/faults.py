"""Faults as parts that combine: each strikes now and then, and ends itself what it began.

A fault draws all its chance from the story's generator, in the order of striking, and acts on the world at once or
plans what it does later. Lasting damage, such as a node that is gone for good, changes what the world expects.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final, Protocol

from headwater.model.errors import ConfigError
from headwater.model.time import SECOND, Duration
from headwater.sim.simulated_engine import Fate
from headwater.sim.troubled import TroubledWorld

Range = tuple[float, float]


class Fault(Protocol):
    """A kind of fault, which strikes repeatedly."""

    @property
    def every_s(self) -> float:
        """Seconds between two strikes, on average."""
        ...

    def strike(self, world: TroubledWorld, rng: Random) -> None:
        """Strike once."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashes:
    """Hosts crash, several at once; most come back with their ids and an empty memory."""

    every_s: float = 15.0
    at_once_max: int = 3
    for_good: float = 0.3
    back_after_s: Range = (0.2, 30.0)

    def strike(self, world: TroubledWorld, rng: Random) -> None:
        """Let some hosts crash."""
        for address in _some(world.hosts(), rng, self.at_once_max):
            if world.may_lose(address):
                back_s = None if rng.random() < self.for_good else rng.uniform(*self.back_after_s)
                world.lose(address, back_s=back_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Joins:
    """New hosts join, several at once, with one node or more."""

    every_s: float = 20.0
    at_once_max: int = 3

    def strike(self, world: TroubledWorld, rng: Random) -> None:
        """Let some hosts join."""
        for _ in range(rng.randint(1, self.at_once_max)):
            if world.room():
                world.join(world.room())


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaves:
    """Nodes leave the ring and tell the others so."""

    every_s: float = 30.0

    def strike(self, world: TroubledWorld, rng: Random) -> None:
        """Let one node leave."""
        for address in _some(sorted(world.nodes), rng, 1):
            if world.may_lose_one():
                world.depart(address)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drains:
    """Nodes with instances leave for good; in stories with rows, their instances move to other nodes first."""

    every_s: float = 12.0

    def strike(self, world: TroubledWorld, rng: Random) -> None:
        """Let one node leave that may be drained."""
        busy = [address for address, node in sorted(world.nodes.items()) if node.hosting.hosted]
        able = [address for address in busy if world.may_drain(address)]
        if able and world.may_lose_one():
            world.depart(rng.choice(able))


@dataclass(frozen=True, slots=True, kw_only=True)
class RollingRestarts:
    """All hosts are restarted one after the other, as an upgrade does it."""

    every_s: float = 25.0
    down_s: Range = (0.2, 6.0)
    pause_s: Range = (2.0, 6.0)

    def strike(self, world: TroubledWorld, rng: Random) -> None:
        """Begin to restart all hosts that are up."""
        at_s = 0.0
        for address in world.hosts():
            world.timeline.after(int(at_s * SECOND), self._restart, world, address, rng.uniform(*self.down_s))
            at_s += rng.uniform(*self.pause_s)

    def _restart(self, world: TroubledWorld, address: str, down_s: float) -> None:
        if not world.is_healed and address in world.nodes and world.may_lose(address):
            world.lose(address, back_s=down_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlakyLinks:
    """All links lose, double and reorder messages for a while."""

    every_s: float = 20.0
    loss: Range = (0.01, 0.15)
    lasts_s: Range = (5.0, 30.0)

    def strike(self, world: TroubledWorld, rng: Random) -> None:
        """Let the links be bad."""
        loss = rng.uniform(*self.loss)
        world.note(f"links lose {loss:.0%} of the messages", "flaky links")
        world.network.worsen(loss=loss, duplication=rng.uniform(0, 0.1), reordering=rng.uniform(0, 0.3))
        world.later(rng.uniform(*self.lasts_s), world.network.worsen, loss=0.0, duplication=0.0, reordering=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowHosts:
    """Some hosts take many times as long for everything, for a while."""

    every_s: float = 15.0
    at_once_max: int = 3
    slowness: Range = (3.0, 60.0)
    lasts_s: Range = (3.0, 25.0)

    def strike(self, world: TroubledWorld, rng: Random) -> None:
        """Let some hosts be slow."""
        for address in _some(world.hosts(), rng, self.at_once_max):
            slowness = rng.uniform(*self.slowness)
            world.note(f"{address} is {slowness:.0f} times slower", "slow hosts")
            world.network.slow(address, slowness)
            world.later(rng.uniform(*self.lasts_s), world.network.slow, address, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowDisks:
    """Some disks take long for every write, for a while; messages about apps wait for it, those of the ring do not."""

    every_s: float = 15.0
    at_once_max: int = 3
    sync_s: Range = (0.05, 1.5)
    lasts_s: Range = (3.0, 25.0)

    def strike(self, world: TroubledWorld, rng: Random) -> None:
        """Let some disks be slow."""
        for address in _some(world.hosts(), rng, self.at_once_max):
            sync_s, lasts_s = rng.uniform(*self.sync_s), rng.uniform(*self.lasts_s)
            world.note(f"the disk of {address} takes {sync_s:.2f} s for a write", "slow disks")
            for one in world.mates(address):
                world.disks.slow(one, Duration(int(sync_s * SECOND)))
                world.later(lasts_s, world.disks.slow, one, Duration(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class CutLinks:
    """Single links carry nothing in one direction, for a while."""

    every_s: float = 15.0
    at_once_max: int = 4
    lasts_s: Range = (3.0, 30.0)

    def strike(self, world: TroubledWorld, rng: Random) -> None:
        """Cut some links."""
        hosts = world.hosts()
        for _ in range(rng.randint(1, self.at_once_max) if len(hosts) > 1 else 0):
            one, other = rng.sample(hosts, 2)
            world.note(f"nothing gets from {one} to {other}", "cut links")
            world.network.cut(one, other)
            world.later(rng.uniform(*self.lasts_s), world.network.mend, one, other)


@dataclass(frozen=True, slots=True, kw_only=True)
class LateDevices:
    """The devices behind some nodes are out of reach for a while, and send all later; in stories with rows."""

    every_s: float = 15.0
    at_once_max: int = 3
    away_s: Range = (1.0, 20.0)

    def strike(self, world: TroubledWorld, rng: Random) -> None:
        """Let some devices be away."""
        for address in _some(sorted(world.nodes), rng, self.at_once_max):
            away_s = rng.uniform(*self.away_s)
            world.note(f"the devices of {address} are away for {away_s:.1f} s")
            world.send_devices_away(address, away_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class LostWorkers:
    """Workers die in their turns, before the commit or behind it; where rows flow."""

    every_s: float = 4.0
    at_once_max: int = 3

    def strike(self, world: TroubledWorld, rng: Random) -> None:
        """Let some workers die."""
        for address in _some(sorted(world.nodes), rng, self.at_once_max):
            world.doom_worker(address, rng.choice(list(Fate)))


@dataclass(frozen=True, slots=True, kw_only=True)
class FullDisks:
    """Some nodes have no room for a commit for a while; where rows flow."""

    every_s: float = 10.0
    at_once_max: int = 2
    lasts_s: Range = (0.2, 8.0)

    def strike(self, world: TroubledWorld, rng: Random) -> None:
        """Let some disks be full."""
        for address in _some(sorted(world.nodes), rng, self.at_once_max):
            world.fill_disk(address, rng.uniform(*self.lasts_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitions:
    """The network falls into two or three sides that do not hear one another, for a while."""

    every_s: float = 40.0
    sides_max: int = 3
    lasts_s: Range = (5.0, 60.0)

    def strike(self, world: TroubledWorld, rng: Random) -> None:
        """Partition the network; a host that joins later is on the first side."""
        sides = rng.randint(2, self.sides_max)
        side_of = {address: rng.randrange(sides) for address in world.hosts()}
        parts = [" ".join(one for one in side_of if side_of[one] == side) for side in range(sides)]
        world.note(f"parted: {' | '.join(parts)}", "partitions")
        world.network.part(side_of)
        world.later(rng.uniform(*self.lasts_s), world.network.part, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class AppsComeAndGo:
    """Users submit apps and end others; part of every story."""

    every_s: float = 8.0
    ends: float = 0.35

    def strike(self, world: TroubledWorld, rng: Random) -> None:
        """Let one app be submitted, or one be ended."""
        if rng.random() < self.ends:
            world.end_some_app(rng)
        else:
            world.submit_some_app(rng)


NAMED: Final[Mapping[str, tuple[Fault, ...]]] = {
    "calm": (),
    "flaky-links": (FlakyLinks(), CutLinks()),
    "rolling-restart": (RollingRestarts(),),
    "split-brain": (Partitions(),),
    "slow-hosts": (SlowHosts(),),
    "slow-disk": (SlowDisks(),),
    "late-devices": (LateDevices(),),
    "lost-workers": (LostWorkers(),),
    "full-disks": (FullDisks(),),
    "churn": (Crashes(), Joins(), Leaves()),
    "drains": (Drains(every_s=4.0), Joins(every_s=8.0)),
    "stormy": (
        Crashes(),
        Joins(),
        Leaves(),
        Drains(),
        RollingRestarts(every_s=120.0),
        FlakyLinks(),
        CutLinks(),
        SlowHosts(),
        SlowDisks(),
        LateDevices(),
        Partitions(),
    ),
}


def faults_named(names: str) -> tuple[Fault, ...]:
    """Return the faults of one name, or of several with a plus between them; each fault once."""
    found: dict[Fault, None] = {}
    for name in names.split("+"):
        if name not in NAMED:
            raise ConfigError(f"there are no faults {name!r}; there are: {', '.join(NAMED)}, also as a+b")
        found |= dict.fromkeys(NAMED[name])
    return tuple(found)


def _some(addresses: list[str], rng: Random, at_most: int) -> Iterable[str]:
    return rng.sample(addresses, min(len(addresses), rng.randint(1, at_most)))
