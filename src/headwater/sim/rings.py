"""Many peers of a ring in one process, and the truth about who should own what.

Drives the same `Ring` machines that real nodes run, one message at a time.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from random import Random

import msgspec

from headwater.model.peers import NodeId, Peer, id_of, nearer
from headwater.model.time import SECOND, Instant
from headwater.overlay.events import (
    BecomeActive,
    Deliver,
    Effect,
    Event,
    LeavingWanted,
    OverlayConfig,
    Phase,
    Received,
    Send,
    SendingWanted,
    Started,
    Ticked,
)
from headwater.overlay.leafset import LeafSet
from headwater.overlay.messages import AnyMessage
from headwater.overlay.ring import Ring
from headwater.sim.network import Links, Network
from headwater.sim.timeline import Timeline

MESSAGE_BYTES = 200  # of one message, about; those with leaves are larger, which nothing here depends on


class RingWorld:
    """Peers, their network and their time."""

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
        """Begin without peers; `check_each` looks at a machine's invariants after each event, `on_wire` encodes all."""
        self.rng = Random(f"{seed}/world")
        self.timeline = Timeline()
        self.network = Network(Random(f"{seed}/network"), links)
        self.config = config or OverlayConfig()
        self.rings: dict[str, Ring] = {}
        self.delivered: list[tuple[str, Deliver]] = []
        self.active_at: dict[str, Instant] = {}
        self.on_deliver: Callable[[str, Deliver], None] = lambda address, what: self.delivered.append((address, what))
        self._seed, self._zones = seed, zones
        self._check_each, self._on_wire = check_each, on_wire
        self._born = self._starts = 0
        self._wake: dict[str, Instant] = {}

    # --- peers --------------------------------------------------------------------------------------------------------

    def add(self, contacts: Iterable[str] = (), *, zone: str | None = None) -> str:
        """Start a peer, and return its address."""
        self._born += 1
        address = f"n{self._born}"
        where = zone if zone is not None else f"z{self.rng.randrange(self._zones)}"
        self.network.place(address, where)
        self.restart(Peer(id_of(self.rng.getrandbits(128)), address, where), contacts)
        return address

    def restart(self, peer: Peer, contacts: Iterable[str]) -> None:
        """Start a peer that was there before, or a new one at a place that the network has."""
        self._starts += 1
        self.rings[peer.address] = Ring(peer, self.config, Random(f"{self._seed}/{peer.address}/{self._starts}"))
        self._wake.pop(peer.address, None)
        self.tell(peer.address, Started(tuple(contacts)))

    def crash(self, address: str) -> None:
        """Let a peer be gone without a word."""
        del self.rings[address]
        self.active_at.pop(address, None)

    def leave(self, address: str) -> None:
        """Let a peer leave in good order."""
        self.tell(address, LeavingWanted())
        self.crash(address)

    def tell(self, address: str, event: Event) -> None:
        """Let something happen to a peer."""
        ring = self.rings.get(address)
        if ring is None:
            return
        for effect in ring.handle(event, self.timeline.now):
            self._do(address, effect)
        if self._check_each:
            ring.check()
        self._come_back(address, ring)

    def send(self, address: str, key: NodeId, payload: bytes) -> None:
        """Let a peer send something to the owner of a key."""
        self.tell(address, SendingWanted(key, payload))

    def _do(self, address: str, effect: Effect) -> None:
        match effect:
            case Send(to, message):
                for arrival in self.network.arrivals(address, to, MESSAGE_BYTES, self.timeline.now):
                    self.timeline.at(arrival, self._arrive, to, self._as_sent(message))
            case Deliver():
                self.on_deliver(address, effect)
            case BecomeActive():
                self.active_at[address] = self.timeline.now

    def _as_sent(self, message: AnyMessage) -> AnyMessage:
        if not self._on_wire:
            return message
        decoded: AnyMessage = msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=AnyMessage)
        return decoded

    def _arrive(self, address: str, message: AnyMessage) -> None:
        self.tell(address, Received(message))

    def _come_back(self, address: str, ring: Ring) -> None:
        deadline = ring.deadline()
        if deadline is not None and self._wake.get(address, deadline + 1) > deadline:
            self._wake[address] = deadline
            self.timeline.at(deadline, self._tick, address, ring)

    def _tick(self, address: str, ring: Ring) -> None:
        if self.rings.get(address) is ring and self._wake.get(address) == self.timeline.now:
            del self._wake[address]
            self.tell(address, Ticked())

    # --- time ---------------------------------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.timeline.run_for(int(seconds * SECOND))

    def run_until(self, fulfilled: Callable[[], bool], *, at_most: float, step: float = 1.0) -> bool:
        """Let time pass until something is so, but no longer than so many seconds; return whether it is."""
        ends = self.timeline.now + int(at_most * SECOND)
        while not fulfilled() and self.timeline.now < ends:
            self.run(step)
        return fulfilled()

    # --- the truth ----------------------------------------------------------------------------------------------------

    def owner(self, key: NodeId) -> str:
        """Return who should own a key."""
        best = None
        for ring in self.rings.values():
            if best is None or nearer(key, ring.own.id, best.id):
                best = ring.own
        assert best is not None, "there is nobody"
        return best.address

    def faults(self) -> list[str]:
        """Return what is not yet as it should be: everybody active, with the leaves that are truly nearest."""
        peers = sorted(ring.own for ring in self.rings.values())
        found = []
        for ring in self.rings.values():
            if ring.phase is not Phase.ACTIVE:
                found.append(f"{ring.own} is {ring.phase}")
                continue
            wanted = {peer.id for peer in _true_leaves(peers, ring.own, self.config.leaf_side)}
            have = {peer.id for peer in ring.known.leaves}
            if have != wanted:
                found.append(f"{ring.own} lacks {len(wanted - have)} leaves and has {len(have - wanted)} wrong ones")
        return found

    def is_whole(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults()


def _true_leaves(peers: list[Peer], own: Peer, side: int) -> list[Peer]:
    """Return the leaves that a peer should have, of all peers in order."""
    place = bisect_left(peers, own)
    others = min(side, len(peers) - 1)
    leaves = LeafSet(own.id, side)
    for step in range(1, others + 1):
        leaves.add(peers[(place + step) % len(peers)])
        leaves.add(peers[place - step])
    return list(leaves)
