"""A steward: takes apps into its register, gets them from and gives them to other stewards, answers hosts, ends apps.

Every request is retransmitted until it is answered, and every handler is idempotent. The entries of the register drive
a steward; its leaves replicate them, so that an heir goes on where this one stood.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from math import ceil
from typing import Final

import msgspec

from headwater.control.context import KnownSteward, NodeContext
from headwater.control.messages import app_messages as m
from headwater.control.steward.deployment import ENDS, AppPhase
from headwater.control.steward.register import Register
from headwater.control.steward.steps import Steps
from headwater.model.peers import Peer
from headwater.model.terms import is_counted, term_after
from headwater.model.time import Instant
from headwater.planner.placement import PlacementPolicy

ANNOUNCE: Final = ("announce", b"")
HEIR_PATIENCE: Final = 3  # `retry` intervals that an heir waits for hosts, which it asks in each of them


class StewardDesk:
    """The part of a node that is a steward, while it is open."""

    def __init__(self, ground: NodeContext, register: Register, policy: PlacementPolicy) -> None:
        self._ground, self._register = ground, register
        self.is_open = False
        self.steps = Steps(ground, register, policy)
        self._handing_to: Peer | None = None
        self.announcements = 0  # since we became a steward

    @property
    def apps(self) -> int | None:
        """How many apps are in our care; None if we are no steward."""
        if not self.is_open:
            return None
        return sum(entry.phase != AppPhase.ENDED for entry in self._register.entries.values())

    def check(self) -> None:
        """Raise if an invariant is broken."""
        assert set(self.steps.deployments) == set(self._register.entries), (
            "an app without a deployment, or the other way"
        )
        assert self.is_open or not self._register.entries, "apps in the care of nobody"

    # --- being a steward ----------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Become a steward, and tell the zone."""
        if not self.is_open:
            self.is_open = True
            self.announcements = 0
            self._announce()

    def appointed(self, message: m.Appointed) -> None:
        """Become a steward of an app of our zone, or pass the appointment on to a peer nearer to the place."""
        ground = self._ground
        if message.asker.zone != ground.own.zone:
            return  # the asker does not know our zone; it appoints another when we are silent
        nearest = ground.own if self.is_open else ground.nearest_of_zone(message.place, frozenset(message.full))
        if nearest.id != ground.own.id and message.hops_left > 0:
            ground.send(nearest, msgspec.structs.replace(message, sender=ground.own, hops_left=message.hops_left - 1))
            return
        self.open()
        ground.send(message.asker, m.StewardTold(ground.own, message.number, ground.own, self.apps or 0, 1))

    def _announce(self) -> None:
        ground = self._ground
        here = m.StewardHere(ground.own, self.apps or 0)
        for peer in ground.of_our_zone(ground.ring.known.everybody()):
            ground.send(peer, here)
        self.announcements += 1
        ground.come_back(ANNOUNCE, ground.config.announce)

    def announce(self, others: Sequence[KnownSteward]) -> None:
        """Announce ourselves to the zone; if we are one steward too many, hand our apps over, and close when empty."""
        if not self.is_open:
            return
        ground = self._ground
        self._handing_to = self._heir_among(others)
        if self._handing_to is not None and self._register.entries:
            some = tuple(islice(self._register.entries.values(), m.ENTRIES_MAX))
            ground.send(self._handing_to, m.HandedOver(ground.own, some))
        self._register.compare()
        for entry in self._register.entries.values():
            with ground.apart("claim"):
                self._claim(entry)
        if self._handing_to is not None and not self._register.entries:
            self._close()
        else:
            self._announce()

    def _heir_among(self, others: Sequence[KnownSteward]) -> Peer | None:
        """Return the steward to which we give our apps, one with more apps than we have; None if we stay.

        With few apps we give them to a steward that is then at most half full. With more we do so only if we have the
        fewest of all and there are at least two stewards too many, so that the next app needs no new one.
        """
        config, apps, own = self._ground.config, self.apps or 0, self._ground.own
        apps_max = config.steward_apps_max
        larger = [(one.apps, one.peer) for one in others if (one.apps, one.peer.id) > (apps, own.id)]
        rooms = [room for room in larger if room[0] + apps <= apps_max // 2] if apps <= config.steward_apps_few else []
        needed = ceil((apps + sum(one.apps for one in others)) / apps_max)
        if not rooms and len(larger) == len(others) > needed:
            rooms = [room for room in larger if room[0] < apps_max]
        return max(rooms)[1] if rooms else None

    def _claim(self, entry: m.RegisterEntry) -> None:
        ground, spec = self._ground, entry.spec
        has_ended = entry.phase in ENDS
        ground.send(ground.own, m.AppClaimed(ground.own, spec.name, spec.key, entry.term, ground.own, has_ended))

    def _close(self) -> None:
        self.is_open = False
        self._handing_to = None
        for peer in self._ground.of_our_zone(self._ground.ring.known.everybody()):
            self._ground.send(peer, m.StewardHere(self._ground.own, -1))

    # --- taking apps --------------------------------------------------------------------------------------------------

    def register_asked(self, message: m.RegisterAsked) -> None:
        """Take an app into the register, if there is room."""
        app, ground = message.spec.name, self._ground
        known = self._register.entries.get(app)
        if known is None and (moved := self._register.whose(app, message.term)):
            ground.send(message.sender, m.StewardMoved(ground.own, app, *moved))
            return
        if known is None and self.is_open and (self.apps or 0) < ground.config.steward_apps_max:
            self._take_new(message, AppPhase.PLACING)
        entry = self._register.entries.get(app)
        term = 0 if entry is None else entry.term
        told = m.RegisterTold(ground.own, message.number, app, taken=entry is not None, term=term)
        ground.send(message.sender, told)

    def _take_new(self, asked: m.RegisterAsked | m.EndAsked, phase: AppPhase) -> None:
        """Take an unknown app into the register, if there is memory for it and its term is plausible."""
        if is_counted(asked.term):
            term = term_after(asked.term, self._ground.rng)
            entry = m.RegisterEntry(asked.spec, term, 1, phase, (), asked.sender)
            if self._register.has_room_for(entry, asked.sender):
                self.open()
                self._take(entry)
                self.steps.go_on(asked.spec.name)

    def _take(self, entry: m.RegisterEntry) -> None:
        self.steps.begin(entry.spec.name)
        self._register.put(entry)

    def inherit(self, entries: Iterable[m.RegisterEntry], by: Peer | None = None) -> None:
        """Take over the apps of a steward that is lost, or that hands them over.

        Refuses entries with an implausibly high term or version, and what does not fit in memory if it comes `by`
        another node; our own replicas are in memory already.
        """
        for entry in entries:
            with self._ground.apart("inherit"):
                self._inherit_one(entry, by)

    def _inherit_one(self, entry: m.RegisterEntry, by: Peer | None) -> None:
        known = self._register.entries.get(entry.spec.name)
        if known is not None and not entry.is_newer_than(known):
            if entry.phase in ENDS:
                self._end(known)
            return
        has_room = by is None or self._register.has_room_for(entry, by, known)
        if has_room and is_counted(entry.term, entry.version):
            self._inherit_newer(entry, known)

    def _inherit_newer(self, entry: m.RegisterEntry, known: m.RegisterEntry | None) -> None:
        if known is None and (moved := self._register.whose(entry.spec.name, entry.term)):
            self._register.pass_to(moved[1], entry, moved[0])
        else:
            self._take_over(entry, ends=known is not None and known.phase in ENDS)

    def _take_over(self, entry: m.RegisterEntry, *, ends: bool) -> None:
        self.open()
        taken = msgspec.structs.replace(
            entry,
            term=term_after(entry.term, self._ground.rng),
            version=entry.version + 1,
            phase=AppPhase.ENDING if ends else entry.phase,
        )
        self._take(taken)
        self._tell_changed(taken)
        self.steps.go_on(entry.spec.name)

    def given_back(self, message: m.ReplicaSent) -> None:
        """Take back our apps from a keeper's replica after a restart; have it drop what it need not keep."""
        register = self._register
        lacking = [one for one in message.entries if one.phase in ENDS or one.spec.name not in register.entries]
        self.inherit([entry for entry in lacking if not register.has_dropped(entry)], message.sender)
        for entry in message.entries:
            app = entry.spec.name
            if moved := register.whose(app, entry.term):
                self._ground.send(message.sender, m.StewardMoved(self._ground.own, app, *moved))
            elif register.has_dropped(entry) or register.may_forget(message.sender, app):
                register.drop_at(message.sender, [app])

    def without_settled(self, message: m.ReplicaSent) -> m.ReplicaSent:
        """Tell a keeper of a lost steward which apps have another steward; return the message with the others alone."""
        open_ = []
        for entry in message.entries:
            app, ours = entry.spec.name, self._register.entries.get(entry.spec.name)
            if ours is not None and ours.term > entry.term:
                self._ground.send(message.sender, m.StewardMoved(self._ground.own, app, ours.term, self._ground.own))
            elif moved := self._register.whose(app, entry.term):
                self._ground.send(message.sender, m.StewardMoved(self._ground.own, app, *moved))
            else:
                open_.append(entry)
                continue
            if entry.phase in ENDS:
                self.inherit([entry], message.sender)
        return m.ReplicaSent(message.sender, message.steward, tuple(open_))

    def _tell_changed(self, entry: m.RegisterEntry) -> None:
        app = entry.spec.name
        changed = m.StewardChanged(self._ground.own, app, entry.term)
        hosts = {placed.host.id: placed.host for placed in entry.placed}
        hosts |= {whence.host.id: whence.host for placed in entry.placed for whence in placed.whences()}
        hosts |= {peer.id: peer for peer in (*entry.spec.sources, entry.owner)}
        for peer in hosts.values():
            self._ground.send(peer, changed)
        # Hosts have `HEIR_PATIENCE` retries to answer before their instances are placed anew.
        deployment, config = self.steps.deployments[app], self._ground.config
        since = Instant(self._ground.now - config.host_silence_max + HEIR_PATIENCE * config.retry)
        deployment.heard, deployment.unheard = dict.fromkeys(hosts, since), set(hosts)
        self.steps.deployments[app].instances_heard.clear()

    def handed_over(self, message: m.HandedOver) -> None:
        """Take over apps of another steward, as many as there is room for, and acknowledge those."""
        room = self._ground.config.steward_apps_max - (self.apps or 0)
        self.inherit(message.entries[: max(0, room)], message.sender)
        entries = self._register.entries
        taken = tuple(
            (entry.spec.name, entries[entry.spec.name].term) for entry in message.entries if entry.spec.name in entries
        )
        self._ground.send(message.sender, m.HandedOverTaken(self._ground.own, taken))
        if self.is_open:
            self._ground.send(message.sender, m.StewardHere(self._ground.own, self.apps or 0))

    def hand_over_taken(self, message: m.HandedOverTaken) -> None:
        """Give up the apps that another steward has taken over."""
        for app, term in message.apps:
            if self._is_behind(app, term):
                self._hand_on(app, term, message.sender)

    def overtaken(self, apps: Iterable[tuple[str, int]], by: Peer) -> None:
        """Give up apps that another steward has under a higher term; rise above a term that we had and have lost."""
        for app, term in apps:
            if self._is_behind(app, term):
                entry = self._register.entries[app]
                if by.id == self._ground.own.id:
                    self._rise_above(entry, term)
                elif entry.phase in ENDS:
                    self._end_there(entry, by)
                else:
                    self._hand_on(app, term, by)

    def _end_there(self, entry: m.RegisterEntry, by: Peer) -> None:
        """Have the steward that took over an app end it, since it may not know; stop it ourselves until it does."""
        self._ground.send(by, m.EndAsked(self._ground.own, entry.spec, entry.term))
        if entry.phase == AppPhase.ENDED:
            self.steps.deployments[entry.spec.name].stopped.clear()
            self.steps.change(entry, phase=AppPhase.ENDING)
            self._ground.come_back(("deploy", entry.spec.name), self._ground.config.retry)

    def _rise_above(self, entry: m.RegisterEntry, term: int) -> None:
        """Go on above a term that hosts know, and that we or a lost steward had: our register was stale."""
        if is_counted(term):
            risen = self.steps.change(entry, term=term_after(term, self._ground.rng))
            self._tell_changed(risen)

    def _is_behind(self, app: str, term: int) -> bool:
        entry = self._register.entries.get(app)
        return entry is not None and entry.term < term

    def _hand_on(self, app: str, term: int, steward: Peer) -> None:
        self.steps.forget(app)
        self._register.hand_on(app, term, steward)

    # --- hosts --------------------------------------------------------------------------------------------------------

    def host_beat(self, message: m.HostBeat) -> None:
        """Take note of what runs on a host; answer what is ours, what to stop, and what we do not know."""
        mine: list[tuple[str, int, int]] = []
        unknown: list[tuple[str, int]] = []
        strange: list[tuple[str, int]] = []
        for app, source in message.unread:  # the host restarted before we noticed: have it read its sources again
            if app in self.steps.deployments:
                self.steps.deployments[app].sources_read.discard(source)
        for app, instance, term in message.hosted:
            entry = self._register.entries.get(app)
            if entry is None:
                self._point_on(app, message.sender)
                strange.append((app, instance))
                continue
            if term > entry.term:  # the steward with that term is silent, so its host turned to us
                self._rise_above(entry, term)
                entry = self._register.entries[app]
            deployment = self.steps.deployments[app]
            deployment.heard[message.sender.id] = self._ground.now
            deployment.unheard.discard(message.sender.id)
            if instance < 0:
                deployment.sources_heard[-1 - instance] = self._ground.now
            if self._belongs(entry, instance, message.sender):
                if instance < 0 or _has(entry, instance, message.sender):
                    deployment.instances_heard[instance] = self._ground.now
                    if instance >= 0:
                        deployment.started.add(instance)
                mine.append((app, instance, entry.term))
            else:
                unknown.append((app, instance))
        for app, instance, _ in message.arriving:
            if app in self.steps.deployments:
                self.steps.deployments[app].heard[message.sender.id] = self._ground.now
                self.steps.deployments[app].unheard.discard(message.sender.id)
                if not self._belongs(self._register.entries[app], instance, message.sender):
                    unknown.append((app, instance))
        if mine or unknown or strange:
            told = m.HostTold(self._ground.own, tuple(mine), tuple(unknown), tuple(strange))
            self._ground.send(message.sender, told)
        if message.is_leaving:
            for app in list(self._register.entries):
                self.steps.move_away(app, message.sender)

    def _point_on(self, app: str, host: Peer) -> None:
        """Tell a host the steward of an app that was ours; an app that never was we may inherit yet."""
        if moved := self._register.whose(app, 0):
            self._ground.send(host, m.StewardMoved(self._ground.own, app, *moved))

    def _belongs(self, entry: m.RegisterEntry, instance: int, host: Peer) -> bool:
        if entry.phase in ENDS:
            return False
        if instance < 0:
            source = -1 - instance
            return source < len(entry.spec.sources) and entry.spec.sources[source].id == host.id
        return _has(entry, instance, host) or self._is_fetched_from(entry, instance, host)

    def _is_fetched_from(self, entry: m.RegisterEntry, instance: int, host: Peer) -> bool:
        """Whether an instance is being fetched from a host, which has to keep it until it has arrived."""
        started = self.steps.deployments[entry.spec.name].started
        whences = (whence for placed in entry.placed if placed.instance == instance for whence in placed.whences())
        return instance not in started and any(whence.host.id == host.id for whence in whences)

    # --- ending -------------------------------------------------------------------------------------------------------

    def end_asked(self, message: m.EndAsked) -> None:
        """End an app: stop all of it, then keep a tombstone for `ended_kept`."""
        app = message.spec.name
        entry = self._register.entries.get(app)
        if entry is None and (moved := self._register.whose(app, message.term)):
            self._ground.send(message.sender, m.StewardMoved(self._ground.own, app, *moved))
        elif entry is None:  # we may have lost it while its hosts still run it
            self._take_new(message, AppPhase.ENDING)
        elif entry.phase == AppPhase.ENDED:
            self._ground.send(message.sender, m.EndTold(self._ground.own, app))
        else:
            self._end(entry)

    def end_known(self, message: m.EndKnown) -> None:
        """End an app that was ended through another steward."""
        entry = self._register.entries.get(message.app)
        if entry is not None:
            self._end(entry)

    def _end(self, entry: m.RegisterEntry) -> None:
        if entry.phase not in ENDS:
            self.steps.change(entry, phase=AppPhase.ENDING)
            self.steps.go_on(entry.spec.name)


def _has(entry: m.RegisterEntry, instance: int, host: Peer) -> bool:
    """Whether an instance is placed on a host."""
    return any(placed.instance == instance and placed.host.id == host.id for placed in entry.placed)
