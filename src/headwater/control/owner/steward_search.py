"""How an owner finds a steward of its zone: a bounded flood of questions; if none has room, it appoints one.

The owner asks a few peers of its zone. A peer that is a steward with room, or knows one, answers the owner; any other
asks a few more peers, at most as many hops far as the ring needs digits, and tells the owner which peers it asked. So
the owner knows when every peer asked has answered, and waits no longer. Stewards announce themselves, so most peers
know one; a steward that is not heard of for a while is forgotten.

The zone and the number of stewards known to be full determine a place on the ring; the peer of the zone nearest to it
is appointed. A peer that knows a nearer one passes the appointment on, so that owners that look at the same time, and
know different peers of the zone, mostly appoint the same one. Stewards search for one another in the same way, since
there may be more of them than the apps need.
"""

import math
from dataclasses import dataclass, field
from typing import Final

from headwater.control.context import KnownSteward, NodeContext
from headwater.control.messages import app_messages as m
from headwater.control.messages.events import (
    AgreedPlacement,
    AppSubmitted,
    DurableRecord,
    EndedApp,
    NoteAppEnded,
    NoteAppRuns,
    NoteRefused,
    NoteStewardFound,
    Persist,
    SendMessage,
)
from headwater.model.peers import BASE, RING, NodeId, Peer, clockwise, key_of
from headwater.model.time import Instant
from headwater.overlay.messages import HOPS_MAX

KNOWN_MAX: Final = 16  # stewards that a node remembers
SEEN_MAX: Final = 512  # numbers of searches that are remembered, to pass each on once
APPOINTED: Final = -1  # in place of hops: no steward was found, and one was appointed
PASSED_ON_MAX: Final = 4  # times that an appointment goes on to a nearer peer: about three reach the nearest
MEETINGS_EVERY: Final = 16  # announcements; a new steward looks for others after 1, 2, 4 and 8


@dataclass(slots=True)
class Search:
    """A search for a steward: the peers asked, as far as we were told, and those of them that know none."""

    asked: set[NodeId]
    without: set[NodeId] = field(default_factory=set)

    @property
    def is_over(self) -> bool:
        """Whether all peers asked have answered that they know no steward."""
        return self.asked <= self.without


@dataclass(slots=True)
class SubmittedApp:
    """An app that was submitted here."""

    spec: m.AppSpec
    number: int = 0  # of the open question
    search: Search | None = None  # the search under this number
    steward: Peer | None = None
    term: int = 0  # the highest that we heard of
    was_offered: bool = False  # to a steward, which may have taken it even if its answer was lost
    is_registered: bool = False
    unanswered: int = 0  # requests to the steward
    is_running: bool = False
    placed: tuple[m.Placed, ...] = ()  # the placement that we have agreed to
    has_run: bool = False  # since it was submitted, across restarts of ours
    pending: DurableRecord | None = None  # what is being written; until it is, others hear what was before
    is_ending: bool = False
    hops: int = APPOINTED
    full: set[NodeId] = field(default_factory=set)  # stewards that had no room, or did not answer
    appointed: int = 0


class Seeking:
    """The part of a node that owns the apps of its users, and finds stewards for them."""

    def __init__(self, ground: NodeContext) -> None:
        self._ground = ground
        self.owned: dict[str, SubmittedApp] = {}
        self._known: dict[NodeId, KnownSteward] = {}  # the latest last
        self._by_number: dict[int, str] = {}
        self._seen: dict[int, None] = {}

    # --- the owner's side ---------------------------------------------------------------------------------------------

    def submit(self, submitted: AppSubmitted) -> None:
        """Look for a steward for an app."""
        app = submitted.spec.name
        if app not in self.owned:
            self.owned[app] = SubmittedApp(
                submitted.spec, placed=submitted.placed, has_run=submitted.has_run, was_offered=submitted.is_known
            )
            self._look(self.owned[app])

    def end(self, app: str) -> None:
        """Have an app ended by its steward; an app that was offered to none just ends."""
        owned = self.owned.get(app)
        if owned is None:
            return
        owned.is_ending = True
        if not owned.was_offered:
            self._ended(app)
        elif owned.is_registered or owned.steward is None:
            self._ask_end(owned)
        # else a registration is under way: its answer, or its timeout, ends the app

    def again(self, app: str) -> None:
        """Handle the timeout of an app's open request, or the end of its lease interval."""
        owned = self.owned.get(app)
        if owned is None:
            return
        if owned.is_ending:
            self._ask_end(owned)
        elif owned.is_registered:
            self._renew(owned)
        else:
            if owned.steward is not None:  # it did not answer
                self.forget(owned.steward)
                owned.full.add(owned.steward.id)
                owned.steward = None
                self._look(owned)
            else:
                self._appoint(owned)

    def _renew(self, owned: SubmittedApp) -> None:
        """Renew the lease: the steward and all replicas of its register may be lost."""
        assert owned.steward is not None
        owned.unanswered += 1
        if owned.unanswered > self._ground.config.lease_tries_max:
            self.forget(owned.steward)
            owned.steward, owned.is_registered, owned.unanswered = None, False, 0
            self._look(owned)
            return
        self._ground.send(owned.steward, m.RegisterAsked(self._ground.own, owned.number, owned.spec, owned.term))
        self._ground.come_back(("app", owned.spec.name), self._ground.config.lease)

    def _look(self, owned: SubmittedApp) -> None:
        ground = self._ground
        self._by_number.pop(owned.number, None)
        owned.number = ground.rng.getrandbits(62)
        self._by_number[owned.number] = owned.spec.name
        known = self._with_room(owned.full)
        if known is not None:
            self._register(owned, known, 0)
            return
        owned.search = Search({peer.id for peer in self._ask_around(owned.number)})
        ground.come_back(("app", owned.spec.name), ground.config.search_patience)
        self._end_search(owned)

    def _end_search(self, owned: SubmittedApp) -> None:
        """Appoint a steward once all peers asked know none."""
        if owned.search is not None and owned.search.is_over:
            owned.search = None
            self._appoint(owned)

    def _with_room(self, besides: set[NodeId]) -> Peer | None:
        apps_max = self._ground.config.steward_apps_max
        rooms = [(one.apps, one.peer) for one in self.stewards() if one.apps < apps_max and one.peer.id not in besides]
        return min(rooms)[1] if rooms else None

    def stewards(self) -> list[KnownSteward]:
        """Return the other stewards of our zone that were heard of lately."""
        since = self._ground.now - self._ground.config.steward_unheard_max
        return [one for one in self._known.values() if one.at >= since]

    def meet(self, announcements: int) -> None:
        """Search for other stewards, as a steward with this many announcements: often at first, then now and then."""
        is_new = announcements < MEETINGS_EVERY and announcements.bit_count() == 1
        if is_new or announcements % MEETINGS_EVERY == 0:
            self._ask_around(self._ground.rng.getrandbits(62))

    def _ask_around(self, number: int) -> list[Peer]:
        ground, some = self._ground, self._some_of_zone()
        for peer in some:
            ground.send(peer, m.StewardAsked(ground.own, number, ground.own, 1, search_hops(ground) - 1))
        return some

    def _some_of_zone(self) -> list[Peer]:
        peers = self._ground.of_our_zone(self._ground.ring.known.everybody())
        return self._ground.rng.sample(peers, min(self._ground.config.search_fanout, len(peers)))

    def _register(self, owned: SubmittedApp, steward: Peer, hops: int) -> None:
        if owned.is_ending and not owned.was_offered:  # its end is being written: offered now, it would run for ever
            return
        owned.steward, owned.hops, owned.was_offered = steward, hops, True
        self._ground.send(steward, m.RegisterAsked(self._ground.own, owned.number, owned.spec, owned.term))
        self._ground.come_back(("app", owned.spec.name), self._ground.config.search_patience)

    def _appoint(self, owned: SubmittedApp) -> None:
        """Appoint the peer of the zone nearest to a place on the ring that other owners compute alike."""
        ground = self._ground
        place = key_of(f"steward/{ground.own.zone}/{len(owned.full)}/{owned.appointed}")
        chosen = ground.nearest_of_zone(place, owned.full)
        if chosen.id in owned.full:  # all are full or silent: begin anew, since some may have room or be back
            owned.full.clear()
        owned.appointed += 1
        full = tuple(sorted(owned.full))[:KNOWN_MAX]
        ground.send(chosen, m.Appointed(ground.own, owned.number, ground.own, place, PASSED_ON_MAX, full))
        ground.come_back(("app", owned.spec.name), ground.config.search_patience)

    def found(self, message: m.StewardTold) -> None:
        """Register with the first steward of our zone that a peer names."""
        owned = self._asked(message.number)
        self._remember(message.steward, message.apps, Instant(self._ground.now - max(0, message.age_us)))
        if owned is None or owned.steward is not None or owned.is_registered:
            return
        is_full = message.steward.id in owned.full  # the teller does not know that it is full, and knows no other
        if is_full or not self._is_of_our_zone(message.steward):
            self._knows_of_none(owned, message.sender)
            return
        self._register(owned, message.steward, message.hops)

    def unknown(self, message: m.StewardUnknown) -> None:
        """Take note that a peer knows no steward, and which peers it has asked."""
        owned = self._asked(message.number)
        if owned is None or owned.search is None or owned.steward is not None or owned.is_registered:
            return
        owned.search.asked.update(message.asked[: self._ground.config.search_fanout])
        self._knows_of_none(owned, message.sender)

    def _knows_of_none(self, owned: SubmittedApp, peer: Peer) -> None:
        if owned.search is not None:
            owned.search.without.add(peer.id)
            self._end_search(owned)

    def registered(self, message: m.RegisterTold) -> None:
        """Take note that a steward has an app in its register; if it refused, look for another."""
        owned = self.owned.get(message.app)
        if owned is None:
            return
        if message.taken:
            self._hear_from(message.sender)
            if not owned.is_registered:
                self._by_number.pop(owned.number, None)
                self._ground.emit(NoteStewardFound(message.app, message.sender, owned.hops))
                self._in_care_of(owned, message.sender, message.term)
            elif owned.steward is not None and owned.steward.id == message.sender.id:
                owned.unanswered = 0
                owned.term = max(owned.term, message.term)
        elif owned.steward is not None and owned.steward.id == message.sender.id:
            self._remember(message.sender, self._ground.config.steward_apps_max)
            owned.full.add(message.sender.id)
            owned.steward, owned.is_registered, owned.unanswered = None, False, 0
            self._look(owned)

    def _in_care_of(self, owned: SubmittedApp, steward: Peer, term: int) -> None:
        owned.term = max(owned.term, term)
        owned.steward, owned.is_registered, owned.unanswered = steward, True, 0
        if owned.is_ending:
            self._ask_end(owned)
        else:
            self._ground.come_back(("app", owned.spec.name), self._ground.config.lease)

    def _asked(self, number: int) -> SubmittedApp | None:
        app = self._by_number.get(number)
        return None if app is None else self.owned.get(app)

    def runs(self, message: m.AppRunning) -> None:
        """Take note that an app runs."""
        heard = SendMessage(message.sender.address, m.AppRunningHeard(self._ground.own, message.app))
        owned = self.owned.get(message.app)
        if owned is not None:
            is_news = owned.steward is None or owned.steward.id != message.sender.id
            if is_news and message.term >= owned.term:
                self._in_care_of(owned, message.sender, message.term)
            if not owned.is_running:
                owned.is_running = True
                self._ground.emit(NoteAppRuns(message.app))
            if not owned.has_run:
                self._persist(owned, AgreedPlacement(message.app, owned.placed, has_run=True), heard)
                return
        self._ground.emit(heard)

    def placement_told(self, message: m.PlacementTold) -> None:
        """Agree to a placement if the steward knows the previous one: a compare-and-set, kept durably by the owner.

        A register can be lost, or inherited from a stale replica, and the two sides of a partition may each have a
        steward. The owner decides, so that rows and state of an instance are never in two places.
        """
        owned = self.owned.get(message.app)
        if owned is None:
            return
        if not owned.spec.can_be_placed(message.placed):
            self._ground.emit(NoteRefused(message.sender, f"{message.app} is not placed as it can be"))
            return
        if message.before == owned.placed and message.placed != owned.placed:
            agreed = AgreedPlacement(message.app, message.placed, owned.has_run)
            heard = m.PlacementHeard(self._ground.own, *agreed)
            self._persist(owned, agreed, SendMessage(message.sender.address, heard))
            return
        heard = m.PlacementHeard(self._ground.own, message.app, owned.placed, owned.has_run)
        self._ground.send(message.sender, heard)

    def _persist(self, owned: SubmittedApp, record: DurableRecord, *then: SendMessage | NoteAppEnded) -> None:
        """Have a record written before others hear of it; one at a time, and who is not answered asks again."""
        if owned.pending is None:
            owned.pending = record
            self._ground.emit(Persist(record, then))

    def persisted(self, record: DurableRecord) -> None:
        """Take over what is durable."""
        owned = self.owned.get(record.app)
        if owned is None or owned.pending != record:
            return
        owned.pending = None
        match record:
            case AgreedPlacement(_, placed, has_run):
                owned.placed, owned.has_run = placed, has_run
            case EndedApp(app):
                self._by_number.pop(self.owned.pop(app).number, None)
                self._ground.timers.cancel(("app", app))

    def refused(self, record: DurableRecord) -> None:
        """Leave things as they were: the steward asks again, and an end is asked for again."""
        owned = self.owned.get(record.app)
        if owned is not None and owned.pending == record:
            owned.pending = None
            if isinstance(record, EndedApp):
                self._ground.come_back(("app", record.app), self._ground.config.search_patience)

    def steward_changed(self, message: m.StewardChanged) -> None:
        """Take the sender as steward if its term is at least as high as we know."""
        owned = self.owned.get(message.app)
        if owned is not None and message.term >= owned.term:
            self._in_care_of(owned, message.sender, message.term)

    def steward_moved(self, message: m.StewardMoved) -> None:
        """Take the named peer as steward if its term is at least as high as we know."""
        owned = self.owned.get(message.app)
        if owned is not None and message.term >= owned.term:
            self._in_care_of(owned, message.steward, message.term)

    def _ask_end(self, owned: SubmittedApp) -> None:
        """Have the steward end an app; if it stays silent, or we have found none, ask our own steward desk."""
        owned.unanswered += 1
        if owned.steward is None or owned.unanswered > self._ground.config.tries_max:
            owned.unanswered = 0
            owned.steward = self._ground.own
        self._ground.send(owned.steward, m.EndAsked(self._ground.own, owned.spec, owned.term))
        self._ground.come_back(("app", owned.spec.name), self._ground.config.search_patience)

    def has_ended(self, message: m.EndTold) -> None:
        """Take note that an app has ended."""
        if message.app in self.owned and self.owned[message.app].is_ending:
            self._ended(message.app)

    def _ended(self, app: str) -> None:
        self._persist(self.owned[app], EndedApp(app), NoteAppEnded(app))

    # --- every node's side --------------------------------------------------------------------------------------------

    def asked(self, message: m.StewardAsked, own_apps: int | None) -> None:
        """Answer if we are a steward with room or know one; else ask other peers of the zone, once per search."""
        ground, apps_max = self._ground, self._ground.config.steward_apps_max
        if not self._is_of_our_zone(message.asker):
            ground.send(message.asker, m.StewardUnknown(ground.own, message.number, ()))
            return
        if message.number in self._seen:
            return
        self._seen[message.number] = None
        if len(self._seen) > SEEN_MAX:
            del self._seen[next(iter(self._seen))]
        if own_apps is not None and own_apps < apps_max:
            told = m.StewardTold(ground.own, message.number, ground.own, own_apps, message.hops)
            ground.send(message.asker, told)
            return
        known = self._with_room({message.asker.id})
        if known is not None:
            seen = self._known[known.id]
            age_us = ground.now - seen.at
            told = m.StewardTold(ground.own, message.number, known, seen.apps, message.hops, age_us)
            ground.send(message.asker, told)
            return
        others = [
            peer
            for peer in self._some_of_zone()
            if peer.id != message.asker.id and min(message.hops_left, HOPS_MAX - message.hops) > 0
        ]
        further = m.StewardAsked(ground.own, message.number, message.asker, message.hops + 1, message.hops_left - 1)
        for peer in others:
            ground.send(peer, further)
        ground.send(message.asker, m.StewardUnknown(ground.own, message.number, tuple(peer.id for peer in others)))

    def here(self, message: m.StewardHere) -> None:
        """Take note of a steward of our zone."""
        if message.apps < 0:
            self.forget(message.sender)
        else:
            self._remember(message.sender, message.apps)

    def _hear_from(self, steward: Peer) -> None:
        known = self._known.get(steward.id)
        if known is not None:
            self._remember(steward, known.apps)

    def _remember(self, steward: Peer, apps: int, at: Instant | None = None) -> None:
        """Take note of a steward of our zone, as heard now or by another peer at `at`; a later word counts."""
        when = self._ground.now if at is None else at
        known = self._known.get(steward.id)
        is_later = known is None or known.at <= when
        if steward.id == self._ground.own.id or not self._is_of_our_zone(steward) or not is_later:
            return
        self.forget(steward)
        self._known[steward.id] = KnownSteward(steward, apps, when)
        if len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]

    def _is_of_our_zone(self, peer: Peer) -> bool:
        return peer.zone == self._ground.own.zone

    def forget(self, peer: Peer) -> None:
        """Forget a steward."""
        self._known.pop(peer.id, None)


def search_hops(ground: NodeContext) -> int:
    """Return how many hops far a search goes: the digits of base 16 that number all nodes."""
    return max(1, math.ceil(math.log(max(2.0, nodes_about(ground)), BASE)))


def nodes_about(ground: NodeContext) -> float:
    """Estimate the number of nodes from how densely our leaves lie on the ring."""
    leaves = ground.ring.known.leaves
    if leaves.knows_all:
        return len(leaves) + 1.0
    ends = leaves.ends()
    span = clockwise(ends[0].id, ends[-1].id) if len(ends) > 1 else RING
    return (len(leaves) + 1) * RING / max(1, span)
