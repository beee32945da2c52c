"""Worlds for the overlay benchmark: grown through the nodes' own join protocol, looked into, and copied.

A copy is a fork of this process: what is tried in it leaves the grown world as it was, and costs no time to make.
"""

import multiprocessing
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from gc import collect, disable, enable
from multiprocessing.connection import Connection
from random import Random
from typing import Final, Protocol, TypeVar

from headwater.model.peers import NodeId, Peer, distance, id_of
from headwater.overlay.ring import Ring
from headwater.sim.network import Network
from headwater.sim.nodes import NodeWorld
from headwater.sim.rings import RingWorld

Result = TypeVar("Result")

WAVE_MAX: Final = 400  # nodes that begin to join within one virtual second
SETTLING_S: Final = 120.0  # within which a ring that has grown has to be whole


class Plane(Protocol):
    """What growing and walking need of a world."""

    network: Network
    rng: Random

    def add(self, contacts: tuple[str, ...] = ()) -> str:
        """Start a node."""
        ...

    def run(self, seconds: float) -> None:
        """Let time pass."""
        ...

    def run_until(self, fulfilled: Callable[[], bool], *, at_most: float, step: float = 1.0) -> bool:
        """Let time pass until something is so."""
        ...

    def is_whole(self) -> bool:
        """Whether nothing is wrong."""
        ...

    def faults(self) -> list[str]:
        """Return what is wrong."""
        ...


def grow(world: Plane, nodes: int) -> None:
    """Let a ring grow in overlapping waves, each half as large as the ring, until everybody has its true leaves."""
    there = [world.add()]
    while len(there) < nodes:
        wave = min(nodes - len(there), max(1, len(there) // 2), WAVE_MAX)
        there += [world.add((world.rng.choice(there),)) for _ in range(wave)]
        world.run(1.0)
    assert world.run_until(world.is_whole, at_most=SETTLING_S), world.faults()[:5]


def rings_of(world: NodeWorld | RingWorld) -> dict[str, Ring]:
    """Return the rings of all nodes, by address."""
    if isinstance(world, RingWorld):
        return world.rings
    return {address: node.ring for address, node in world.nodes.items()}


@contextmanager
def without_collection() -> Iterator[None]:
    """Leave the garbage collector out: millions of objects live for long, and it would look at all again and again."""
    disable()
    try:
        yield
    finally:
        enable()
        collect()


# --- routes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Walk:
    """One message's way over the ring: how many hops, how long, and how long it would have been directly."""

    hops: int
    way_us: float
    direct_us: float


def walk(rings: Mapping[str, Ring], network: Network, origin: str, key: NodeId) -> Walk:
    """Follow what each peer itself names as the next hop towards a key."""
    here, hops, way_us = origin, 0, 0.0
    while (hop := rings[here].next_hop(key)) is not None:
        way_us += network.way_us(here, hop.address)
        here = hop.address
        hops += 1
    return Walk(hops, way_us, network.way_us(origin, here) if here != origin else 0.0)


def walks(world: NodeWorld | RingWorld, count: int, seed: int) -> list[Walk]:
    """Follow so many messages from random peers to random keys; every one has to end at the key's true owner."""
    rng, rings = Random(seed), rings_of(world)
    addresses, peers = sorted(rings), sorted(ring.own for ring in rings.values())
    found = []
    for _ in range(count):
        origin, key = rng.choice(addresses), id_of(rng.getrandbits(128))
        found.append(walk(rings, world.network, origin, key))
        assert rings[owner_of(peers, key).address].next_hop(key) is None, "the owner does not know that it is"
    return found


def owner_of(peers: list[Peer], key: NodeId) -> Peer:
    """Return who of these peers, which are in order, is nearest to a key."""
    place = bisect_left(peers, (key,))
    beside = (peers[place - 1], peers[place % len(peers)])
    return min(beside, key=lambda peer: (distance(peer.id, key), peer.id))


def stretch(found: list[Walk]) -> float:
    """Return how much longer the routed ways are than the direct ones, all together."""
    return sum(one.way_us for one in found) / max(1.0, sum(one.direct_us for one in found))


# --- copies -----------------------------------------------------------------------------------------------------------


def in_a_copy(measure: Callable[[], Result]) -> Result:
    """Return what is measured in a copy of this process, in which the world may be changed."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    copy = context.Process(target=_measure_and_tell, args=(measure, theirs))
    copy.start()
    theirs.close()
    try:
        result: Result = ours.recv()
    except EOFError as failure:
        raise RuntimeError("a copy of the world ended before it had measured anything") from failure
    finally:
        copy.join()
    return result


def _measure_and_tell(measure: Callable[[], object], there: Connection) -> None:
    there.send(measure())
    there.close()


def percentile(values: list[float], share: float) -> float:
    """Return the value that this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * len(ordered) * 1_000) // 1_000) - 1))]
