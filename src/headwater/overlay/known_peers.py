"""The peers that one peer knows: leaves, table, neighbourhood, dead ones (tombstones), and how near each is."""

from collections.abc import Iterable, Iterator, Set
from random import Random

from headwater.model.peers import NodeId, Peer
from headwater.model.time import Instant
from headwater.overlay.events import OverlayConfig
from headwater.overlay.leafset import LeafSet
from headwater.overlay.table import UNKNOWN_US, Nearness, RoutingTable, closer_of

_NEVER_MEASURED = Nearness()


class KnownPeers:
    """All peers that one peer knows."""

    def __init__(self, own: Peer, config: OverlayConfig) -> None:
        self.own, self._config = own, config
        self.leaves = LeafSet(own.id, config.leaf_side)
        self.table = RoutingTable(own.id)
        self.near: dict[NodeId, Peer] = {}  # Pastry's neighbourhood set: the nearest by cost
        self.mates: dict[NodeId, Peer] = {}  # some of our zone, the latest last: `near` may have none
        self.dead: dict[NodeId, tuple[Peer, Instant]] = {}  # found dead by ourselves, the latest last
        self._nearness: dict[NodeId, Nearness] = {}
        self._is_checked = False  # the sets above have not changed since the last check

    def everybody(self) -> Iterator[Peer]:
        """Go through all peers not found dead; some come more than once."""
        yield from self.leaves
        yield from self.table
        yield from self.near.values()
        yield from self.mates.values()

    def nearness(self, identity: NodeId) -> Nearness:
        """Return how near a peer is."""
        return self._nearness.get(identity, _NEVER_MEASURED)

    def rtt_us(self, identity: NodeId) -> int | None:
        """Return the round trip to a peer, if it was ever measured."""
        rtt = self.nearness(identity).rtt_us
        return None if rtt == UNKNOWN_US else rtt

    def measured(self, peer: Peer, rtt_us: int, congestion: float) -> None:
        """Smooth a peer's round trip: a new measurement counts an eighth, as in TCP, and the first one whole."""
        before = self.rtt_us(peer.id)
        smooth = rtt_us if before is None else before + (rtt_us - before) // 8
        hops = 0 if peer.zone == self.own.zone else 1
        self._nearness[peer.id] = Nearness(smooth, hops, congestion)
        self._into_neighbourhood(peer)
        if hops == 0:
            self._among_mates(peer)
        self.consider(peer)

    def _into_neighbourhood(self, peer: Peer) -> None:
        near = self.near
        self._is_checked = False
        near[peer.id] = peer
        if len(near) > self._config.near_max:
            del near[max(near, key=lambda identity: self.nearness(identity).cost)]

    def _among_mates(self, peer: Peer) -> None:
        self._is_checked = False
        self.mates.pop(peer.id, None)
        self.mates[peer.id] = peer
        if len(self.mates) > self._config.mates_max:
            del self.mates[next(iter(self.mates))]

    def consider(self, peer: Peer) -> None:
        """Give a peer its place in the table unless a peer at least as near has it."""
        if peer.id == self.own.id:
            return
        holder = self.table.holder(peer.id)
        if holder is None or holder.id == peer.id or self._is_nearer(peer, holder):
            self.table.put(peer)

    def _is_nearer(self, one: Peer, other: Peer) -> bool:
        return self._config.proximity and self.nearness(one.id).cost < self.nearness(other.id).cost

    def worth_measuring(self, peer: Peer) -> bool:
        """Whether a peer might take another's place in the table: it was never measured, or measured as nearer.

        It may have become nearer since the holder's round trip or congestion grew. Of our own zone we measure any peer
        until we know `mates_max`.
        """
        if peer.id == self.own.id or peer.id in self.dead:
            return False
        if peer.zone == self.own.zone and peer.id not in self.mates and len(self.mates) < self._config.mates_max:
            return True
        if not self._config.proximity:
            return False
        holder = self.table.holder(peer.id)
        if holder is None or holder.id == peer.id:
            return False
        return peer.id not in self._nearness or self._is_nearer(peer, holder)

    def bury(self, peer: Peer, now: Instant) -> bool:
        """Drop a dead peer from all sets and keep a tombstone; True if it was a leaf."""
        was_leaf = self.leaves.remove(peer.id)
        self.table.remove(peer.id)
        self.near.pop(peer.id, None)
        self.mates.pop(peer.id, None)
        self._nearness.pop(peer.id, None)
        self._is_checked = False
        self.dead.pop(peer.id, None)
        self.dead[peer.id] = (peer, now)
        if len(self.dead) > self._config.buried_max:
            del self.dead[next(iter(self.dead))]
        return was_leaf

    def is_buried(self, identity: NodeId, now: Instant) -> bool:
        """Whether a peer was found dead within `burial`, so that hearsay of it is ignored."""
        found = self.dead.get(identity)
        return found is not None and now - found[1] < self._config.burial

    def lately_dead(self, now: Instant) -> tuple[NodeId, ...]:
        """Return the peers that we found dead within `burial`, to tell others."""
        return tuple(identity for identity, (_, at) in self.dead.items() if now - at < self._config.burial)

    def nearest_of(self, peers: Iterable[Peer]) -> Peer | None:
        """Return the nearest in the network of those that were measured."""
        found = [peer for peer in peers if peer.id in self._nearness]
        return min(found, key=lambda peer: (self.nearness(peer.id).cost, peer.id)) if found else None

    def sample(self, count: int, rng: Random) -> list[Peer]:
        """Return some peers at random."""
        return _some({peer.id: peer for peer in self.everybody()}, count, rng)

    def mates_of(self, asker: Peer, count: int, rng: Random) -> list[Peer]:
        """Return some peers of another's zone, whom it may not know."""
        return _some(
            {peer.id: peer for peer in self.everybody() if peer.zone == asker.zone and peer.id != asker.id}, count, rng
        )

    def next_hop(self, key: NodeId, besides: Set[NodeId]) -> Peer | None:
        """Return the peer to send a message for this key to; None if no known peer is nearer than we are."""
        if self.leaves.covers(key):
            return self.leaves.nearest(key, besides)
        hop = self.table.next_hop(key)
        if hop is not None and hop.id not in besides:
            return hop
        if hop is not None:  # it is excluded; the rest of the table may be dead too, while leaves were heard lately
            leaf = closer_of(self.own.id, key, iter(self.leaves), besides)
            if leaf is not None:
                return leaf
        return closer_of(self.own.id, key, self.everybody(), besides)

    def check(self) -> None:
        """Raise if the parts do not fit one another; parts unchanged since the last check are skipped."""
        if self._is_checked and self.leaves.is_checked and self.table.is_checked:
            return
        self.leaves.check()
        self.table.check()
        for alive in (self.leaves.ids(), self.table.ids(), self.near.keys(), self.mates.keys()):
            assert self.own.id not in alive, "we know ourselves"
            assert alive.isdisjoint(self.dead), f"dead and alive: {[one.hex() for one in alive & self.dead.keys()]}"
        assert len(self.near) <= self._config.near_max
        assert len(self.mates) <= self._config.mates_max
        assert {peer.zone for peer in self.mates.values()} <= {self.own.zone}
        self._is_checked = True


def _some(peers: dict[NodeId, Peer], count: int, rng: Random) -> list[Peer]:
    return rng.sample(sorted(peers.values()), min(count, len(peers)))
