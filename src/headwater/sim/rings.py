"""Many peers of a ring in one process, and an oracle of owners and leaf sets."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from random import Random

import msgspec

from headwater.model.peers import NodeId, Peer, nearer
from headwater.model.time import Instant
from headwater.overlay.events import (
    BecomeActive,
    Deliver,
    Effect,
    Event,
    LeavingWanted,
    OverlayConfig,
    PeerPhase,
    Received,
    Send,
    SendingWanted,
    Started,
    Ticked,
)
from headwater.overlay.leafset import LeafSet
from headwater.overlay.messages import AnyMessage
from headwater.overlay.ring import Ring
from headwater.sim.network import Links
from headwater.sim.world import World


class RingWorld(World[Ring]):
    """Peers of a ring, without the layers above it."""

    def __init__(
        self,
        seed: int,
        *,
        zones: int = 3,
        links: Links | None = None,
        config: OverlayConfig | None = None,
        check_each: bool = False,
        on_wire: bool = False,
    ) -> None:
        """Begin without peers; `on_wire` encodes and decodes every message."""
        super().__init__(seed, zones=zones, links=links, check_each=check_each)
        self.config = config or OverlayConfig()
        self.delivered: list[tuple[str, Deliver]] = []
        self.active_at: dict[str, Instant] = {}
        self.on_deliver: Callable[[str, Deliver], None] = lambda address, what: self.delivered.append((address, what))
        self._on_wire = on_wire

    @property
    def rings(self) -> dict[str, Ring]:
        """The peers, by address."""
        return self.machines

    def add(self, contacts: Iterable[str] = (), *, zone: str | None = None) -> str:
        """Start a peer, and return its address."""
        peer = self.born(zone)
        self.start(peer, Started(tuple(contacts)))
        return peer.address

    def leave(self, address: str) -> None:
        """Let a peer leave the ring and tell the others so."""
        self.tell(address, LeavingWanted())
        self.crash(address)

    def send(self, address: str, key: NodeId, payload: bytes) -> None:
        """Let a peer send something to the owner of a key."""
        self.tell(address, SendingWanted(key, payload))

    def _made(self, peer: Peer, rng: Random) -> Ring:
        return Ring(peer, self.config, rng)

    def _received(self, message: AnyMessage) -> Event:
        return Received(message)

    def _ticked(self) -> Event:
        return Ticked()

    def _do(self, address: str, effect: Effect) -> None:
        match effect:
            case Send(to, message):
                self.transmit(address, to, self._as_sent(message))
            case Deliver():
                self.on_deliver(address, effect)
            case BecomeActive():
                self.active_at[address] = self.timeline.now

    def _as_sent(self, message: AnyMessage) -> AnyMessage:
        if not self._on_wire:
            return message
        decoded: AnyMessage = msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=AnyMessage)
        return decoded

    # --- the truth ----------------------------------------------------------------------------------------------------

    def owner(self, key: NodeId) -> str:
        """Return the address of the peer that should own a key."""
        return owner_among((ring.own for ring in self.rings.values()), key).address

    def faults(self) -> list[str]:
        """Return which peers are not active or do not have the truly nearest peers as leaves."""
        return ring_faults(self.rings, self.config.leaf_side)

    def is_whole(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults()


def owner_among(peers: Iterable[Peer], key: NodeId) -> Peer:
    """Return which of these peers should own a key."""
    best: Peer | None = None
    for peer in peers:
        if best is None or nearer(key, peer.id, best.id):
            best = peer
    assert best is not None, "there is nobody"
    return best


def ring_faults(rings: Mapping[str, Ring], leaf_side: int) -> list[str]:
    """Return which of these peers, which are all of a ring, are not active or have wrong leaves."""
    peers = sorted(ring.own for ring in rings.values())
    found = []
    for ring in rings.values():
        if ring.phase is not PeerPhase.ACTIVE:
            found.append(f"{ring.own} is {ring.phase}")
            continue
        wanted = {peer.id for peer in _true_leaves(peers, ring.own, leaf_side)}
        have = {peer.id for peer in ring.known.leaves}
        if have != wanted:
            found.append(f"{ring.own} lacks {len(wanted - have)} leaves and has {len(have - wanted)} wrong ones")
    return found


def _true_leaves(peers: list[Peer], own: Peer, side: int) -> list[Peer]:
    """Return the leaves that a peer should have, of all peers in order."""
    place = bisect_left(peers, own)
    leaves = LeafSet(own.id, side)
    for step in range(1, min(side, len(peers) - 1) + 1):
        leaves.add(peers[(place + step) % len(peers)])
        leaves.add(peers[place - step])
    return list(leaves)
