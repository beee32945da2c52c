"""How a peer gets into the ring: find somebody near, ask through them for our place, and hear from all around it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from headwater.model.peers import Peer
from headwater.overlay import messages as m
from headwater.overlay.events import PeerPhase

if TYPE_CHECKING:
    from headwater.overlay.ring import Ring

LOOK: Final = ("look", b"")
PATIENCE: Final = ("patience", b"")


class Joining:
    """The part of a peer that joins."""

    def __init__(self, ring: "Ring") -> None:
        """Belong to a peer."""
        self._ring = ring
        self._contacts: Sequence[str] = ()
        self._candidates: dict[bytes, Peer] = {}
        self._there: set[bytes] = set()  # candidates that have answered since we began
        self._best: Peer | None = None
        self._rounds_left = 0
        self._told = False

    def start(self, contacts: Sequence[str]) -> None:
        """Join through whoever answers; without contacts be the first peer of a ring.

        An active peer that is told of contacts asks them when it comes to it: they may live in another ring.
        """
        self._contacts = tuple(contacts)
        if self._ring.phase is PeerPhase.ACTIVE:
            return
        if not contacts:
            self._ring.activate()
            return
        self._ring.phase = PeerPhase.JOINING
        self._begin()

    def _begin(self) -> None:
        ring = self._ring
        self._candidates, self._there, self._best, self._told = {}, set(), None, False
        self._rounds_left = ring.config.near_rounds
        ring.timers.cancel(LOOK)
        ring.come_back(PATIENCE, ring.config.join_patience)
        ring.send(ring.rng.choice(self._contacts), m.NearbyAsked(ring.own))

    def due(self, name: str) -> None:
        """Go on after a while."""
        if self._ring.phase is not PeerPhase.JOINING:
            return
        if name == LOOK[0]:
            self._looked()
        elif self._ring.questions.awaits_leaves():  # some that should be near are dead: that takes its time
            self._ring.come_back(PATIENCE, self._ring.config.join_patience)
        else:
            self._begin()

    def told_nearby(self, message: m.NearbyTold) -> None:
        """Measure how near those are that we were told of."""
        ring = self._ring
        if self._told or LOOK in ring.timers:
            return
        told = [peer for peer in (message.sender, *message.peers) if peer.id != ring.own.id]
        for peer in told[: ring.config.near_asked + 1]:
            self._candidates[peer.id] = peer
            ring.send(peer.address, m.Ping(ring.own, ring.now))
        ring.come_back(LOOK, ring.config.answer_min)

    def answered(self, peer: Peer, *, is_active: bool) -> None:
        """Count on a peer that is there, but not on one that is joining itself.

        Some that wait for one another would wait for ever; and one that was near once may be dead by now.
        """
        if is_active:
            self._there.add(peer.id)
        else:
            self._candidates.pop(peer.id, None)

    def _looked(self) -> None:
        """Ask the nearest for others near it while that brings somebody nearer; then ask it for our place."""
        ring = self._ring
        nearest = ring.known.nearest_of(peer for peer in self._candidates.values() if peer.id in self._there)
        if nearest is None:
            return  # nobody has answered; patience will end
        improved = self._best is None or nearest.id != self._best.id
        self._best = nearest
        self._rounds_left -= 1
        if improved and self._rounds_left > 0 and ring.config.proximity:
            ring.send(nearest.address, m.NearbyAsked(ring.own))
            return
        cargo = m.JoinAsked(ring.own)
        ring.send(nearest.address, m.Routed(ring.own, ring.rng.getrandbits(62), ring.own.id, cargo, 1))

    def told_place(self, message: m.JoinTold) -> None:
        """Ask all that are around our place; with the last answer we are in."""
        ring = self._ring
        if ring.phase is not PeerPhase.JOINING or self._told:
            return
        self._told = True
        for peer in message.rows:
            if peer.id != ring.own.id and peer.id not in ring.known.dead:
                ring.known.consider(peer)
        ring.ask_wanted([message.sender, *message.leaves])
        self.maybe_active()

    def maybe_active(self) -> None:
        """Become active once everybody who should be our leaf has answered."""
        ring = self._ring
        if ring.phase is not PeerPhase.JOINING or not self._told or ring.questions.awaits_leaves():
            return
        if len(ring.known.leaves) == 0:
            self._begin()  # all whom we were told of are gone
            return
        ring.timers.cancel(PATIENCE)
        ring.activate()

    def ask_contact(self) -> None:
        """Ask a contact that we do not know whether there is another ring; those we know are in ours."""
        ring = self._ring
        known = {peer.address for peer in (ring.own, *ring.known.everybody())}
        strangers = [contact for contact in self._contacts if contact not in known]
        if strangers:
            ring.send(ring.rng.choice(strangers), m.NearbyAsked(ring.own))
