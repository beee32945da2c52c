"""How a peer joins the ring: find a near peer, route a JoinAsked through it, and hear from all leaves at our place.

A near peer to join through gives a table of near peers (Pastry, section 2.4). An attempt that is not done within
`join_patience` begins anew, through a random contact.
"""

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
        self._ring = ring
        self._contacts: Sequence[str] = ()
        self._candidates: dict[bytes, Peer] = {}
        self._there: set[bytes] = set()  # candidates that have answered since we began
        self._best: Peer | None = None
        self._rounds_left = 0
        self._told = False

    def start(self, contacts: Sequence[str]) -> None:
        """Join through one of the contacts; without contacts be the first peer of a ring.

        A peer that is active keeps them for `ask_contact`: they may be in another ring.
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
        """Go on when one of the two timers is due."""
        if self._ring.phase is not PeerPhase.JOINING:
            return
        if name == LOOK[0]:
            self._looked()
        elif self._ring.questions.awaits_leaves():  # it takes `questions_max` timeouts to find a told leaf dead
            self._ring.come_back(PATIENCE, self._ring.config.join_patience)
        else:
            self._begin()

    def told_nearby(self, message: m.NearbyTold) -> None:
        """Measure the round trips to the peers that we were told of."""
        ring = self._ring
        if self._told or LOOK in ring.timers:
            return
        told = [peer for peer in (message.sender, *message.peers) if peer.id != ring.own.id]
        for peer in told[: ring.config.near_asked + 1]:
            self._candidates[peer.id] = peer
            ring.send(peer.address, m.Ping(ring.own, ring.now))
        ring.come_back(LOOK, ring.config.answer_min)

    def answered(self, peer: Peer, *, is_active: bool) -> None:
        """Take a peer that answered as a candidate to join through, unless it is joining itself.

        Peers that join through one another would wait for ever.
        """
        if is_active:
            self._there.add(peer.id)
        else:
            self._candidates.pop(peer.id, None)

    def _looked(self) -> None:
        """Ask the nearest candidate for peers near it while that finds a nearer one; then ask it for our place."""
        ring = self._ring
        nearest = ring.known.nearest_of(peer for peer in self._candidates.values() if peer.id in self._there)
        if nearest is None:
            return  # no candidate has answered: the timer PATIENCE begins anew
        improved = self._best is None or nearest.id != self._best.id
        self._best = nearest
        self._rounds_left -= 1
        if improved and self._rounds_left > 0 and ring.config.proximity:
            ring.send(nearest.address, m.NearbyAsked(ring.own))
            return
        cargo = m.JoinAsked(ring.own)
        ring.send(nearest.address, m.Routed(ring.own, ring.rng.getrandbits(62), ring.own.id, cargo, 1))

    def told_place(self, message: m.JoinTold) -> None:
        """Probe all peers around our place; with the last answer we become active."""
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
        """Become active once every peer that should be our leaf has answered or is found dead."""
        ring = self._ring
        if ring.phase is not PeerPhase.JOINING or not self._told or ring.questions.awaits_leaves():
            return
        if len(ring.known.leaves) == 0:
            self._begin()  # all peers that we were told of are dead
            return
        ring.timers.cancel(PATIENCE)
        ring.activate()

    def ask_contact(self) -> None:
        """Ask a contact that is not in our ring as far as we know: its answer merges the two rings."""
        ring = self._ring
        known = {peer.address for peer in (ring.own, *ring.known.everybody())}
        strangers = [contact for contact in self._contacts if contact not in known]
        if strangers:
            ring.send(ring.rng.choice(strangers), m.NearbyAsked(ring.own))
