"""A peer of the ring: it joins, keeps its leaf set, detects failures, and routes messages to the owners of keys.

Pastry (Rowstron and Druschel 2001), with the care for consistency of MSPastry (Castro, Costa and Rowstron 2004):

- A peer becomes our leaf when it has answered us itself, and stops being one only when our own probes time out.
  Hearsay, of its life or its death, only makes us probe it.
- We deliver nothing before every peer that should be our leaf has answered: until then another peer may own the key
  and not know of us. Nor do we deliver while a peer nearer to the key is in doubt.
- Every hop of a message acknowledges it, else another hop is tried; peers drop duplicates by the message's number.
- We ping dead peers now and then, and look through others which peer is at our own place: so two rings that formed
  apart, or that a partition separated, merge when they meet.

Knows no socket and no clock: `handle` takes what has happened and returns what to do.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from headwater.model.peers import NodeId, Peer, shared_digits
from headwater.model.time import Duration, Instant
from headwater.model.timers import Timers
from headwater.overlay import messages as m
from headwater.overlay.events import (
    BecomeActive,
    CongestionChanged,
    Effect,
    Event,
    LeavingWanted,
    NoteLeafGained,
    NoteLeafLost,
    OverlayConfig,
    PeerDoubted,
    PeerHeard,
    PeerPhase,
    Received,
    Send,
    SendingWanted,
    Started,
    Ticked,
)
from headwater.overlay.forwarding import Forwarding
from headwater.overlay.joining import Joining
from headwater.overlay.known_peers import KnownPeers
from headwater.overlay.mistakes import Apart, NoteMistake
from headwater.overlay.probes import Question, Questions

HEARTBEAT: Final = ("heartbeat", b"")
UPKEEP: Final = ("upkeep", b"")
ANNOUNCEMENT: Final = ("announcement", b"")
NEWCOMERS: Final = ("newcomers", b"")
HEARSAY_MAX: Final = 1_000  # open questions above which hearsay opens no more: a leaf set is 24
MEASURED_AT_ONCE: Final = 4  # peers of a told row that are measured at once; upkeep measures others later


@dataclass(frozen=True, slots=True)
class RingStatus:
    """A snapshot of a peer."""

    phase: PeerPhase
    leaves: tuple[Peer, ...]
    table_peers: int
    undelivered: int  # messages given up: too many hops or bytes, no hop answered, or a queue was full


class Ring:
    """The machine of one peer; it begins outside the ring."""

    def __init__(self, own: Peer, config: OverlayConfig, rng: Random) -> None:
        self.own, self.config, self.rng = own, config, rng
        self.phase = PeerPhase.IDLE
        self.known = KnownPeers(own, config)
        self.questions = Questions(config)
        self.timers: Timers[tuple[str, Any]] = Timers()
        self.now = Instant(0)
        self._congestion = 0.0
        self._heard_at: dict[NodeId, Instant] = {}  # of leaves
        self._asked_for: dict[int, tuple[str, Peer]] = {}  # indirect probes: who asked, about which peer
        self._out: list[Effect] = []
        self.mistakes = 0  # exceptions that were contained
        self._joining = Joining(self)
        self._forwarding = Forwarding(self)

    # --- the four handles ---------------------------------------------------------------------------------------------

    def handle(self, event: Event, now: Instant) -> list[Effect]:
        """Handle an event, and return the effects; a peer that has left ignores all events and sets no timer."""
        self.now = now
        self._out = []
        if self.phase is PeerPhase.LEFT:
            return self._out
        match event:
            case Received(message):
                with Apart(type(message).__name__, self._mistaken):
                    self._hear(message)
            case Ticked():
                self._tick()
            case Started(contacts):
                self._joining.start(contacts)
            case SendingWanted(key, payload):
                self._forwarding.send(key, payload)
            case CongestionChanged(level):
                self._congestion = level
            case PeerDoubted(peer):
                self.ask(peer, for_leaves=peer.id in self.known.leaves)
            case PeerHeard(peer):
                if peer.id in self.known.dead:
                    self._revive(peer)
            case LeavingWanted():
                self._leave()
        return self._out

    def deadline(self) -> Instant | None:
        """Return when the next timer is due; None if there is none."""
        return self.timers.first()

    def status(self) -> RingStatus:
        """Return a snapshot."""
        return RingStatus(self.phase, self.known.leaves.told(), len(self.known.table), self._forwarding.undelivered)

    def check(self) -> None:
        """Raise if an invariant is broken."""
        assert not self.mistakes, self.mistakes
        self.known.check()
        if self.phase is PeerPhase.ACTIVE:
            assert not self._forwarding.held, "an active peer holds nothing back"
        assert len(self._forwarding.held) <= self.config.held_max

    def next_hop(self, key: NodeId) -> Peer | None:
        """Return the next hop towards a key, or None if the key is ours; only an active peer can tell."""
        return self.known.next_hop(key, self.questions.doubtful())

    # --- what the parts need ------------------------------------------------------------------------------------------

    def send(self, to: str, message: m.AnyMessage) -> None:
        """Send a message."""
        self._out.append(Send(to, message))

    def emit(self, effect: Effect) -> None:
        """Return this effect from the current `handle`."""
        self._out.append(effect)

    def come_back(self, name: tuple[str, Any], after: Duration | int) -> None:
        """Set a timer."""
        self.timers.set(name, Instant(self.now + after))

    def ask(self, peer: Peer, *, for_leaves: bool) -> None:
        """Probe a peer, unless a probe of it is open."""
        question = self.questions.begin(peer, for_leaves=for_leaves)
        if question is not None:
            self._put(question)

    def ask_wanted(self, peers: Iterable[Peer]) -> None:
        """Probe those of these peers, known from hearsay, that should be our leaves."""
        wants, now = self.known.leaves.wants, self.now
        for peer in peers:
            if len(self.questions) >= HEARSAY_MAX:
                return  # a peer floods us with made-up peers; true ones will be told again
            if wants(peer.id) and not self.known.is_buried(peer.id, now):
                self.ask(peer, for_leaves=True)

    def look_at_our_place_through(self, peer: Peer) -> None:
        """Ask through another peer which peer owns our own id, to find a split ring."""
        cargo = m.PlaceAsked(self.own)
        self.send(peer.address, m.Routed(self.own, self.rng.getrandbits(62), self.own.id, cargo, 1))

    # --- hearing ------------------------------------------------------------------------------------------------------

    def _hear(self, message: m.AnyMessage) -> None:
        sender = message.sender
        if sender.id == self.own.id:
            return  # our own message come back, or a second peer with our id, which cannot be told apart
        if sender.id in self._heard_at:
            self._heard_at[sender.id] = self.now
        elif sender.id in self.known.dead:
            self._revive(sender)
        _HEARD[type(message)](self, message)

    def _revive(self, peer: Peer) -> None:
        """Drop the tombstone of a peer that is heard again, and merge rings: a partition may have healed."""
        del self.known.dead[peer.id]
        if self.phase is PeerPhase.ACTIVE:
            self.ask_wanted([peer])
            self.look_at_our_place_through(peer)

    def _heartbeat_heard(self, message: m.Heartbeat) -> None:
        if self.phase is PeerPhase.ACTIVE:
            self.ask_wanted([message.sender])

    def _ping_heard(self, message: m.Ping) -> None:
        is_active = self.phase is PeerPhase.ACTIVE
        pong = m.Pong(self.own, message.sent_us, self._congestion, message.about, is_active)
        self.send(message.sender.address, pong)

    def _pong_heard(self, message: m.Pong) -> None:
        sender = message.sender
        rtt_us = min(max(0, self.now - message.sent_us), m.RTT_US_MAX)  # a Pong that we never asked for says anything
        congestion = message.congestion if 0 <= message.congestion <= 1 else 1.0
        self.known.measured(sender, rtt_us, congestion)
        if self.phase is PeerPhase.JOINING:
            self._joining.answered(sender, is_active=message.is_active)
        if message.about:
            wanted = self._asked_for.pop(message.about, None)
            if wanted is not None and wanted[1].id == sender.id:
                self.send(wanted[0], m.AliveTold(self.own, sender))
        question = self.questions.find(sender.id)
        if question is not None and not question.for_leaves:
            self._answered(sender)

    def _leaf_probe_heard(self, message: m.LeafProbe) -> None:
        self._leaves_told(message)
        self.send(message.sender.address, self._leaf_told())

    def _leaves_told(self, message: m.LeafProbe | m.LeafTold) -> None:
        sender = message.sender
        self._gain(sender)
        self.known.consider(sender)
        if self.phase is not PeerPhase.IDLE:
            self.ask_wanted(message.leaves)
            self._doubt(message.dead)
        self._answered(sender)

    def _doubt(self, said_dead: Iterable[NodeId]) -> None:
        """Probe leaves that are said to be dead, unless we have heard from them within a heartbeat.

        Two leaves that do not hear each other each call the other dead in every answer: without the pause we would
        probe one and the other as fast as they answer.
        """
        for identity in said_dead:
            peer = self.known.leaves.find(identity)
            if peer is not None and self.now - self._heard_at[identity] > self.config.heartbeat:
                self.ask(peer, for_leaves=True)

    def _gain(self, peer: Peer) -> None:
        leaves = self.known.leaves
        if leaves.find(peer.id) == peer or not (peer.id in leaves or leaves.wants(peer.id)):
            return
        is_new = peer.id not in leaves
        lost = leaves.add(peer)
        self._heard_at[peer.id] = self.now
        if is_new:
            self.emit(NoteLeafGained(peer))
        for one in lost:
            self._heard_at.pop(one.id, None)
            self.emit(NoteLeafLost(one, dead=False))

    def _alive_asked(self, message: m.AliveAsked) -> None:
        about = self.rng.getrandbits(62) + 1
        if len(self._asked_for) >= self.config.buried_max:
            del self._asked_for[next(iter(self._asked_for))]
        self._asked_for[about] = (message.sender.address, message.whom)
        self.send(message.whom.address, m.Ping(self.own, self.now, about))

    def _alive_told(self, message: m.AliveTold) -> None:
        self.questions.vouched(message.whom.id)

    def _leaving_heard(self, message: m.Leaving) -> None:
        """Drop a peer that leaves; without announcing it, since it told the others itself."""
        self._bury(message.sender, tell=False)
        self.ask_wanted(message.leaves)

    def _row_asked(self, message: m.RowAsked) -> None:
        known, sender = self.known, message.sender
        mates = known.mates_of(sender, MEASURED_AT_ONCE, self.rng)
        row = (*mates, *known.table.row(message.row), *known.sample(MEASURED_AT_ONCE, self.rng))
        self.send(sender.address, m.RowTold(self.own, row))

    def _row_told(self, message: m.RowTold) -> None:
        self._consider_all(message.peers)

    def _introduced(self, message: m.Introduced) -> None:
        self._consider_all([message.sender])

    def _consider_all(self, peers: Iterable[Peer]) -> None:
        measured = 0
        for peer in peers:
            if peer.id == self.own.id or peer.id in self.known.dead:
                continue
            if self.known.table.holder(peer.id) is None:
                self.known.consider(peer)
            elif measured < MEASURED_AT_ONCE and self.known.worth_measuring(peer):
                measured += 1
                self.send(peer.address, m.Ping(self.own, self.now))

    def _nearby_asked(self, message: m.NearbyAsked) -> None:
        known, asked = self.known, self.config.near_asked
        mates = known.mates_of(message.sender, asked // 2, self.rng)
        near = (*mates, *known.near.values(), *known.sample(asked, self.rng))
        told = tuple({peer.id: peer for peer in near if peer.id != message.sender.id}.values())
        self.send(message.sender.address, m.NearbyTold(self.own, told))

    def _nearby_told(self, message: m.NearbyTold) -> None:
        if self.phase is PeerPhase.JOINING:
            self._joining.told_nearby(message)
        elif self.phase is PeerPhase.ACTIVE:  # the answer to `ask_contact`: the contact may be in another ring
            self.ask_wanted([message.sender])
            self.look_at_our_place_through(message.sender)

    def _place_told(self, message: m.PlaceTold) -> None:
        self.ask_wanted([message.sender, *message.leaves])

    def _join_told(self, message: m.JoinTold) -> None:
        self._joining.told_place(message)

    def _routed_heard(self, message: m.Routed) -> None:
        self._forwarding.take(message)

    def _routed_taken(self, message: m.RoutedTaken) -> None:
        self._forwarding.taken(message)

    # --- asking -------------------------------------------------------------------------------------------------------

    def _put(self, question: Question) -> None:
        peer = question.peer
        if question.for_leaves:
            self.send(peer.address, m.LeafProbe(self.own, self.known.leaves.told(), self.known.lately_dead(self.now)))
        else:
            self.send(peer.address, m.Ping(self.own, self.now))
        self.come_back(("question", peer.id), self.questions.patience(self.known.rtt_us(peer.id)))

    def _leaf_told(self) -> m.LeafTold:
        return m.LeafTold(self.own, self.known.leaves.told(), self.known.lately_dead(self.now))

    def _answered(self, peer: Peer) -> None:
        if self.questions.answered(peer.id) is not None:
            self.timers.cancel(("question", peer.id))
            self._forwarding.resolved(peer.id)
            self._joining.maybe_active()

    def _unanswered(self, question: Question) -> None:
        peer = question.peer
        if not self.questions.unanswered(question):
            self._bury(peer, tell=True)
            return
        self._put(question)
        if peer.id in self.known.leaves:
            others = [leaf for leaf in self.known.leaves.neighbours(self.config.vouchers) if leaf.id != peer.id]
            for other in others[: self.config.vouchers]:
                self.send(other.address, m.AliveAsked(self.own, peer))

    def _bury(self, peer: Peer, *, tell: bool) -> None:
        watched = any(peer.id == one.id for one in self.known.leaves.neighbours(self.config.watched_side))
        was_leaf = self.known.bury(peer, self.now)
        self.questions.answered(peer.id)
        self.timers.cancel(("question", peer.id))
        self._heard_at.pop(peer.id, None)
        if was_leaf:
            self.emit(NoteLeafLost(peer, dead=True))
            for end in self.known.leaves.ends():  # they know who comes next on that side
                self.ask(end, for_leaves=True)
            if watched and tell and ANNOUNCEMENT not in self.timers:
                self.come_back(ANNOUNCEMENT, self.config.announcement)
        self._forwarding.resolved(peer.id)
        self._joining.maybe_active()

    # --- time ---------------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        for name, what in self.timers.due(self.now):
            with Apart(name, self._mistaken) as tried:
                self._due(name, what)
            if tried.failed and (name, what) not in self.timers:
                self.come_back((name, what), self.config.heartbeat)

    def _mistaken(self, mistake: NoteMistake) -> None:
        self.mistakes += 1
        self.emit(mistake)

    def _due(self, name: str, what: Any) -> None:
        match name:
            case "question":
                if (question := self.questions.find(what)) is not None:
                    self._unanswered(question)
            case "forward":
                self._forwarding.not_taken(what)
            case "heartbeat":
                self._beat()
            case "upkeep":
                self._keep_up()
            case "announcement":
                self._announce()
            case "newcomers":
                self._look_for_newcomers()
            case _:
                self._joining.due(name)

    def activate(self) -> None:
        """Be a full member of the ring from here on: own keys, send heartbeats, do upkeep."""
        self.phase = PeerPhase.ACTIVE
        self.emit(BecomeActive())
        for peer in self.known.table:
            self.send(peer.address, m.Introduced(self.own))
        self.come_back(HEARTBEAT, self.rng.randrange(self.config.heartbeat))
        self.come_back(UPKEEP, self.rng.randrange(self.config.upkeep))
        self.come_back(NEWCOMERS, self.config.newcomers)
        self._forwarding.let_go()

    def _beat(self) -> None:
        self.come_back(HEARTBEAT, self.config.heartbeat)
        heartbeat = m.Heartbeat(self.own)
        for peer in self.known.leaves.neighbours(self.config.watched_side):
            if self.now - self._heard_at[peer.id] > self.config.silence_max:
                self.ask(peer, for_leaves=True)
            else:
                self.send(peer.address, heartbeat)

    def _announce(self) -> None:
        """Tell our leaves which peers we found dead, so that they probe them themselves."""
        probe = m.LeafProbe(self.own, self.known.leaves.told(), self.known.lately_dead(self.now))
        for peer in self.known.leaves:
            self.send(peer.address, probe)

    def _keep_up(self) -> None:
        """Do a round of anti-entropy: probe neighbours, a table row, a mate, our place, dead peers and a contact."""
        self.come_back(UPKEEP, self.config.upkeep // 2 + self.rng.randrange(self.config.upkeep))
        rng, known = self.rng, self.known
        for leaf in known.leaves.neighbours(1):
            self.ask(leaf, for_leaves=True)
        if known.table:
            asked = self._ask_row(rng.choice(known.table.rows()))
            self.send(asked, m.Ping(self.own, self.now))  # measure it again: it may be farther, or congested
        if known.mates:
            self.ask(next(iter(known.mates.values())), for_leaves=False)  # the one measured longest ago
        if strangers := [peer for peer in known.sample(MEASURED_AT_ONCE, rng) if peer.id not in known.leaves]:
            self.look_at_our_place_through(strangers[0])
        for peer, _ in rng.sample(sorted(known.dead.values()), min(2, len(known.dead))):
            self.send(peer.address, m.Ping(self.own, self.now))
        self._joining.ask_contact()

    def _ask_row(self, row: int) -> str:
        """Ask a random peer of a row of our table for its own row; return its address."""
        asked = self.rng.choice(self.known.table.row(row)).address
        self.send(asked, m.RowAsked(self.own, row))
        return asked

    def _look_for_newcomers(self) -> None:
        """Ask for all rows once more: peers that joined at the same time as we did were in no table then."""
        for row in self.known.table.rows():
            self._ask_row(row)

    def _leave(self) -> None:
        """Tell all peers that we know: others may have us as a leaf before we are active."""
        farewell = m.Leaving(self.own, self.known.leaves.told())
        for peer in {peer.id: peer for peer in self.known.everybody()}.values():
            self.send(peer.address, farewell)
        self.phase = PeerPhase.LEFT
        self.timers = Timers()

    def row_for(self, peer: Peer) -> list[Peer]:
        """Return ourselves and the row of our table that is also right in the table of this peer."""
        return [*self.known.table.row(shared_digits(self.own.id, peer.id)), self.own]


_HEARD: Final[dict[type[Any], Any]] = {
    m.Heartbeat: Ring._heartbeat_heard,
    m.Ping: Ring._ping_heard,
    m.Pong: Ring._pong_heard,
    m.NearbyAsked: Ring._nearby_asked,
    m.NearbyTold: Ring._nearby_told,
    m.LeafProbe: Ring._leaf_probe_heard,
    m.LeafTold: Ring._leaves_told,
    m.AliveAsked: Ring._alive_asked,
    m.AliveTold: Ring._alive_told,
    m.Leaving: Ring._leaving_heard,
    m.RowAsked: Ring._row_asked,
    m.RowTold: Ring._row_told,
    m.Introduced: Ring._introduced,
    m.Routed: Ring._routed_heard,
    m.RoutedTaken: Ring._routed_taken,
    m.JoinTold: Ring._join_told,
    m.PlaceTold: Ring._place_told,
}
