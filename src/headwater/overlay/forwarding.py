"""Route messages to the owners of keys, hop by hop: each hop acknowledges, else another hop is tried.

Every peer drops duplicates by the message's number. Delivery is best effort: a peer gives a message up after sending
it `forwards_max` times without an acknowledgement, to one next hop or to several, and does not tell the origin.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.model.peers import NodeId, Peer
from headwater.overlay import messages as m
from headwater.overlay.events import Deliver, PeerPhase

if TYPE_CHECKING:
    from headwater.overlay.ring import Ring


@dataclass(slots=True)
class _Forward:
    """A message that we route, until a next hop acknowledges it or it is given up."""

    message: m.Routed
    hop: Peer | None = None  # that is to acknowledge it
    tries: int = 0  # times that no acknowledgement came; kept while it waits, so that no message is tried for ever
    tried: set[NodeId] = field(default_factory=set)  # hops that did not acknowledge it, and are passed over
    refused: set[NodeId] = field(default_factory=set)  # hops that refused it because they are still joining


class Forwarding:
    """The part of a peer that routes messages to the owners of keys."""

    def __init__(self, ring: "Ring") -> None:
        self._ring = ring
        self.held: list[m.Routed] = []  # until we are active
        self.undelivered = 0
        self._waiting: dict[NodeId, list[_Forward]] = {}  # by the peer in doubt that owns the key if it is alive
        self._forwards: dict[int, _Forward] = {}
        self._seen: dict[int, None] = {}  # the latest last

    def send(self, key: NodeId, payload: bytes) -> None:
        """Route a payload of our own."""
        ring = self._ring
        number = ring.rng.getrandbits(62)
        self._route(_Forward(m.Routed(ring.own, number, key, m.Carried(ring.own, payload))))

    def take(self, message: m.Routed) -> None:
        """Acknowledge a message and route it, dropping duplicates."""
        if self._ring.phase is not PeerPhase.ACTIVE and isinstance(message.cargo, m.JoinAsked):
            # Two neighbours that join at once would each hold the other's JoinAsked until active itself: a deadlock.
            self._ring.send(message.sender.address, m.RoutedTaken(self._ring.own, message.number, taken=False))
            return
        self._ring.send(message.sender.address, m.RoutedTaken(self._ring.own, message.number))
        if message.number in self._seen:
            return
        self._seen[message.number] = None
        if len(self._seen) > self._ring.config.seen_max:
            del self._seen[next(iter(self._seen))]
        self._route(_Forward(message))

    def taken(self, message: m.RoutedTaken) -> None:
        """Take the next hop's acknowledgement; if it refused, since it is still joining, route around it."""
        forward = self._forwards.get(message.number)
        if forward is not None and forward.hop is not None and forward.hop.id == message.sender.id:
            del self._forwards[message.number]
            self._ring.timers.cancel(("forward", message.number))
            if not message.taken:
                forward.refused.add(forward.hop.id)
                self._route(forward)

    def not_taken(self, number: int) -> None:
        """Try another hop after a timeout, and probe the silent one."""
        forward = self._forwards.pop(number, None)
        if forward is None:
            return
        assert forward.hop is not None
        forward.tries += 1
        forward.tried.add(forward.hop.id)
        self._ring.ask(forward.hop, for_leaves=forward.hop.id in self._ring.known.leaves)
        if forward.tries >= self._ring.config.forwards_max:
            self.undelivered += 1
            return
        self._route(forward)

    def resolved(self, identity: NodeId) -> None:
        """Route the messages that waited until a peer in doubt answered or was found dead."""
        for forward in self._waiting.pop(identity, ()):
            self._route(forward)

    def let_go(self) -> None:
        """Route the messages that were held until we became active."""
        held, self.held = self.held, []
        for message in held:
            self._route(_Forward(message))

    def _route(self, forward: _Forward) -> None:
        ring, message = self._ring, forward.message
        if ring.phase is not PeerPhase.ACTIVE:
            self._hold(message)
            return
        if message.hops >= m.HOPS_MAX or _payload_bytes(message) > m.PAYLOAD_BYTES_MAX:
            self.undelivered += 1
            return
        cargo = message.cargo
        never = forward.refused | {cargo.joiner.id} if isinstance(cargo, m.JoinAsked) else forward.refused
        hop = ring.known.next_hop(message.key, ring.questions.doubtful() | never | forward.tried)
        if hop is not None:
            self._forward(forward, hop)
            return
        owner = ring.known.next_hop(message.key, never)
        if owner is None:
            self._arrived(message)
        elif owner.id in ring.questions:
            self._wait(owner.id, forward)
        else:  # it did not acknowledge, but has answered our probe since: perhaps only its acknowledgement was lost
            self._forward(forward, owner)

    def _hold(self, message: m.Routed) -> None:
        if len(self.held) >= self._ring.config.held_max:
            self.undelivered += 1
        else:
            self.held.append(message)

    def _wait(self, owner: NodeId, forward: _Forward) -> None:
        if sum(map(len, self._waiting.values())) >= self._ring.config.held_max:
            self.undelivered += 1
        else:
            self._waiting.setdefault(owner, []).append(forward)

    def _forward(self, forward: _Forward, hop: Peer) -> None:
        ring, message, cargo = self._ring, forward.message, forward.message.cargo
        if len(self._forwards) >= ring.config.held_max:
            self.undelivered += 1
            return
        if isinstance(cargo, m.JoinAsked):
            rows = {peer.id: peer for peer in (*cargo.rows, *ring.row_for(cargo.joiner))}
            cargo = m.JoinAsked(cargo.joiner, tuple(rows.values())[: m.PEERS_MAX])
        ring.send(hop.address, m.Routed(ring.own, message.number, message.key, cargo, message.hops + 1))
        forward.hop = hop
        self._forwards[message.number] = forward
        ring.come_back(("forward", message.number), ring.questions.patience(ring.known.rtt_us(hop.id)))

    def _arrived(self, message: m.Routed) -> None:
        ring = self._ring
        around = (*ring.known.leaves.told(), ring.own)
        match message.cargo:
            case m.Carried(origin, payload):
                ring.emit(Deliver(message.key, origin, payload, message.hops))
            case m.JoinAsked(joiner, rows):
                told = {peer.id: peer for peer in (*rows, *ring.row_for(joiner))}
                ring.send(joiner.address, m.JoinTold(ring.own, tuple(told.values())[: m.PEERS_MAX], around))
            case m.PlaceAsked(asker):
                if asker.id != ring.own.id:
                    ring.send(asker.address, m.PlaceTold(ring.own, around))


def _payload_bytes(message: m.Routed) -> int:
    return len(message.cargo.payload) if isinstance(message.cargo, m.Carried) else 0
