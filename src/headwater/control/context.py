"""What all parts of a node share: the time, the ring, and the way out."""

from collections.abc import Iterable, Set
from dataclasses import dataclass
from random import Random
from typing import Any

from headwater.control.messages.app_messages import AnyNodeMessage
from headwater.control.messages.events import MachineConfig, NodeEffect, SendMessage
from headwater.model.peers import NodeId, Peer, distance
from headwater.model.time import Duration, Instant
from headwater.model.timers import Timers
from headwater.overlay.mistakes import Apart, NoteMistake
from headwater.overlay.ring import Ring


@dataclass(frozen=True, slots=True)
class KnownSteward:
    """A steward of our zone, as it was when it was last heard of."""

    peer: Peer
    apps: int
    at: Instant


class NodeContext:
    """What the parts of a node stand on."""

    def __init__(self, own: Peer, config: MachineConfig, rng: Random) -> None:
        """Stand outside the ring, at the first instant."""
        self.own, self.config, self.rng = own, config, rng
        self.ring = Ring(own, config.overlay, rng)
        self.now = Instant(0)
        self.is_draining = False  # this node is to leave for good
        self.timers: Timers[tuple[str, Any]] = Timers()
        self.out: list[NodeEffect] = []
        self.mistakes = 0  # things that were not done because of one

    def send(self, to: Peer, message: AnyNodeMessage) -> None:
        """Send a message to another node, or hear it ourselves in a moment."""
        self.out.append(SendMessage(to.address, message))

    def emit(self, effect: NodeEffect) -> None:
        """Want something done."""
        self.out.append(effect)

    def apart(self, where: str) -> Apart:
        """Do something apart from all else, which a mistake of ours is not to keep from being done."""
        return Apart(where, self.mistaken)

    def mistaken(self, mistake: NoteMistake) -> None:
        """Take note that something was not done because of a mistake of ours."""
        self.mistakes += 1
        self.emit(mistake)

    def come_back(self, name: tuple[str, Any], after: Duration | int) -> None:
        """Come back to something."""
        self.timers.set(name, Instant(self.now + after))

    def nearest_of_zone(self, place: NodeId, besides: Set[NodeId] = frozenset()) -> Peer:
        """Return whom of our zone, ourselves among them, we know nearest to a place and have no doubt about."""
        never = self.ring.questions.doubtful() | besides
        known = [self.own, *self.of_our_zone(self.ring.known.everybody())]
        able = [peer for peer in known if peer.id not in never] or [self.own]
        return min(able, key=lambda peer: (distance(peer.id, place), peer.id))

    def of_our_zone(self, peers: Iterable[Peer]) -> list[Peer]:
        """Return those of our zone, each once, in an order that does not depend on chance."""
        return sorted({peer for peer in peers if peer.zone == self.own.zone and peer.id != self.own.id})
