"""What all parts of a node share: time, configuration, the ring, timers, and the list of effects."""

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
    """A steward of our zone, as it last described itself."""

    peer: Peer
    apps: int
    at: Instant


class NodeContext:
    """The shared context of the parts of a node."""

    def __init__(self, own: Peer, config: MachineConfig, rng: Random) -> None:
        self.own, self.config, self.rng = own, config, rng
        self.ring = Ring(own, config.overlay, rng)
        self.now = Instant(0)
        self.is_draining = False  # this node is to leave for good, and takes no new instances
        self.timers: Timers[tuple[str, Any]] = Timers()
        self.out: list[NodeEffect] = []
        self.mistakes = 0  # exceptions that were contained

    def send(self, to: Peer, message: AnyNodeMessage) -> None:
        """Send a message to another node, or to ourselves."""
        self.out.append(SendMessage(to.address, message))

    def emit(self, effect: NodeEffect) -> None:
        """Return this effect from the current `handle`."""
        self.out.append(effect)

    def apart(self, where: str) -> Apart:
        """Contain an exception of the block, so that a bug of ours does not stop the rest."""
        return Apart(where, self.mistaken)

    def mistaken(self, mistake: NoteMistake) -> None:
        """Count and report a contained exception."""
        self.mistakes += 1
        self.emit(mistake)

    def come_back(self, name: tuple[str, Any], after: Duration | int) -> None:
        """Set a timer."""
        self.timers.set(name, Instant(self.now + after))

    def nearest_of_zone(self, place: NodeId, besides: Set[NodeId] = frozenset()) -> Peer:
        """Return the peer of our zone, or ourselves, that is nearest to a place on the ring and not in doubt."""
        never = self.ring.questions.doubtful() | besides
        known = [self.own, *self.of_our_zone(self.ring.known.everybody())]
        able = [peer for peer in known if peer.id not in never] or [self.own]
        return min(able, key=lambda peer: (distance(peer.id, place), peer.id))

    def of_our_zone(self, peers: Iterable[Peer]) -> list[Peer]:
        """Return the other peers of our zone, each once, in a deterministic order."""
        return sorted({peer for peer in peers if peer.zone == self.own.zone and peer.id != self.own.id})
