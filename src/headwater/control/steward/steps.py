"""The phases of an app at its steward: placed, started, watched while it runs, stopped, forgotten.

Every request is retransmitted until it is answered, and every handler is idempotent. The entries of the register, which
the steward's leaves replicate, drive all of it, so that an heir goes on where this steward stood.
"""

from typing import Final

import msgspec

from headwater.control.context import NodeContext
from headwater.control.messages import app_messages as m
from headwater.control.messages.events import NoteRefused
from headwater.control.messages.row_messages import HomeTold, HomeWanted
from headwater.control.messages.state_messages import StateHere, StateLost, StateSought
from headwater.control.steward.agreement import is_agreed, is_kept, is_lost, may_read
from headwater.control.steward.deployment import ENDS, AppPhase, Deployment
from headwater.control.steward.register import Register
from headwater.model.peers import Peer
from headwater.model.time import SECOND, Instant
from headwater.planner.placement import PlacementPolicy

RUNNING_LOOK: Final = 2  # seconds between two looks at the hosts of an app that runs
OWNER_LOOK: Final = 10  # times that hosts are asked in vain, between two looks at where the owner knows them to be
MOVING_AGAIN: Final = 5  # seconds between two attempts to place elsewhere what a host wants to be rid of
SOURCE: Final = m.ChainSpec("source", 0, 0, ())


class Steps:
    """The part of a steward that brings apps from one phase to the next."""

    def __init__(self, ground: NodeContext, register: Register, policy: PlacementPolicy) -> None:
        self._ground, self._register, self._policy = ground, register, policy
        self.deployments: dict[str, Deployment] = {}
        self._room_questions: dict[int, str] = {}  # the app of each open question

    def begin(self, app: str) -> None:
        """Begin a new deployment of an app, from its entry alone."""
        if app in self.deployments:
            self._close_room_question(self.deployments[app])
        self.deployments[app] = Deployment()

    def forget(self, app: str) -> None:
        """Drop an app's deployment."""
        self._close_room_question(self.deployments.pop(app))
        self._ground.timers.cancel(("deploy", app))

    def _entry(self, app: str) -> m.RegisterEntry | None:
        return self._register.entries.get(app)

    def change(self, entry: m.RegisterEntry, **changes: object) -> m.RegisterEntry:
        """Store a new version of an app's entry, and return it."""
        changed: m.RegisterEntry = msgspec.structs.replace(entry, version=entry.version + 1, **changes)
        if changed.phase != entry.phase:
            self.deployments[entry.spec.name].begin_phase()
        self._register.put(changed)
        return changed

    def go_on(self, app: str) -> None:
        """Send the requests of the app's phase, or retransmit those not answered."""
        entry, deployment = self._register.entries.get(app), self.deployments.get(app)
        if entry is None or deployment is None:
            return
        deployment.tries += 1
        self._ground.come_back(("deploy", app), self._ground.config.retry)
        match entry.phase:
            case AppPhase.PLACING:
                self._place(entry, deployment)
            case AppPhase.STARTING:
                self._start(entry, deployment)
            case AppPhase.RUNNING:
                self._watch(entry, deployment)
            case AppPhase.ENDING:
                self._stop(entry, deployment)
            case AppPhase.ENDED:
                self._bury(entry, deployment)

    def _place(self, entry: m.RegisterEntry, deployment: Deployment) -> None:
        ground, spec = self._ground, entry.spec
        lacking = [number for number in range(len(spec.sources)) if number not in deployment.ways]
        for number in lacking:
            asked = m.PathAsked(ground.own, spec.name, spec.key, entry.term, number)
            ground.send(spec.sources[number], asked)
        if lacking and (deployment.tries <= ground.config.tries_max or not deployment.ways):
            return  # after `tries_max` a silent source is passed over, if another one has answered
        unknown = [peer for peer in deployment.nodes_on_ways() if peer.id not in deployment.rooms]
        if unknown and deployment.tries <= 2 * ground.config.tries_max:
            question = self._room_question(spec.name, deployment)
            for peer in unknown:
                ground.send(peer, m.RoomAsked(ground.own, question))
            return
        self._find_spots(entry, deployment)

    def _room_question(self, app: str, deployment: Deployment) -> int:
        """Return the number of the open question for rooms; retransmissions keep it, so that late answers count."""
        if deployment.room_question is None:
            deployment.room_question = self._ground.rng.getrandbits(62)
            self._room_questions[deployment.room_question] = app
        return deployment.room_question

    def _close_room_question(self, deployment: Deployment) -> None:
        if deployment.room_question is not None:
            del self._room_questions[deployment.room_question]
            deployment.room_question = None

    def _find_spots(self, entry: m.RegisterEntry, deployment: Deployment) -> None:
        spots = deployment.place(entry, self._policy)
        if spots is None:  # the paths were told while the ring was changing: ask for them again
            deployment.ways.clear()
            return
        placed = deployment.placed_at(entry, spots)
        deployment.started &= {one.instance for one in placed if one in entry.placed}
        placed_now = (one for one in placed if one not in entry.placed or one.instance in deployment.moving)
        deployment.heard |= {one.host.id: self._ground.now for one in placed_now}
        deployment.moving.clear()
        deployment.lost.clear()
        self._start(self.change(entry, placed=placed, phase=AppPhase.STARTING), deployment)

    def path_told(self, message: m.PathTold) -> None:
        """Take note of a source's path to the root; with the last one go on."""
        entry, deployment = self._entry(message.app), self.deployments.get(message.app)
        if entry is None or deployment is None or message.source >= len(entry.spec.sources):
            return
        deployment.ways[message.source] = message.path
        if entry.phase == AppPhase.PLACING and len(deployment.ways) == len(entry.spec.sources):
            self.go_on(message.app)

    def room_told(self, message: m.RoomTold) -> None:
        """Take note of the room of a node on a path; with the last one go on."""
        app = self._room_questions.get(message.number)
        entry, deployment = self._entry(app or ""), self.deployments.get(app or "")
        if app is None or entry is None or deployment is None or entry.phase != AppPhase.PLACING:
            return
        deployment.rooms[message.sender.id] = message
        if all(peer.id in deployment.rooms for peer in deployment.nodes_on_ways()):
            self._close_room_question(deployment)
            self._find_spots(entry, deployment)

    def _start(self, entry: m.RegisterEntry, deployment: Deployment) -> None:
        ground, spec = self._ground, entry.spec
        deployment.started -= self._silent(entry, deployment)
        waiting = deployment.to_start(entry)
        if not waiting:
            self._run(entry, deployment)
            return
        if not is_agreed(ground, entry, deployment):
            return
        if deployment.tries and deployment.tries % OWNER_LOOK == 0:  # it may have agreed with another steward since
            ground.send(entry.owner, m.PlacementTold(ground.own, spec.name, deployment.agreed, entry.placed))
        if deployment.tries > ground.config.start_tries_max:  # whoever has not answered by now is passed over
            replaceable = [placed for placed in waiting if not is_kept(entry, placed)]
            if replaceable:
                self._place_anew(entry, deployment, replaceable)
                return
        lost = [one for one in waiting if is_kept(entry, one) and is_lost(ground, entry, one, deployment)]
        if lost:
            self._place_anew(entry, deployment, lost, are_lost=True)
            return
        for placed in waiting:
            load = deployment.load_told(placed.host) if deployment.tries <= 1 else None
            self._ask_to_start(entry, placed, spec.chains[placed.instance], load)
            for whence in placed.whences() if self._has_been_silent(deployment, placed.host) else ():
                ground.send(whence.host, StateSought(ground.own, spec.name, placed.instance, whence.lot))
        if entry.has_run and all(is_kept(entry, one) for one in waiting):  # the rest of it goes on meanwhile
            self._see_to_sources(entry, deployment)

    def state_here(self, message: StateHere) -> None:
        """Place an instance anew whose new host is silent, since an earlier host reports that it still has the state.

        The silent host, or one before it, may have fetched the state after this report. The next host therefore asks
        every host in the chain.
        """
        entry, deployment = self._entry(message.app), self.deployments.get(message.app)
        if entry is None or deployment is None or entry.phase != AppPhase.STARTING:
            return
        for placed in deployment.to_start(entry):
            found = next((whence for whence in placed.whences() if whence.lot == message.lot), None)
            is_meant = found is not None and placed.instance == message.instance
            if is_meant and self._has_been_silent(deployment, placed.host):
                self._place_anew(entry, deployment, [placed], are_lost=True)
                return

    def state_lost(self, message: StateLost) -> None:
        """Start an instance without state if that is lost, or with the copy that its host has.

        It gets a new lot, to which the owner has to agree: that fences off a host that has been replaced meanwhile.
        """
        entry, deployment = self._entry(message.app), self.deployments.get(message.app)
        if entry is None or deployment is None or entry.phase in ENDS or message.instance in deployment.started:
            return
        for placed in entry.placed:
            if (placed.instance, placed.host.id, placed.lot) == (message.instance, message.sender.id, message.lot):
                whence = m.Whence(placed.host, placed.lot) if message.has_copy else None
                anew = msgspec.structs.replace(placed, lot=(entry.term, entry.version + 1), whence=whence)
                replaced = tuple(anew if one is placed else one for one in entry.placed)
                self._start(self.change(entry, placed=replaced, phase=AppPhase.STARTING), deployment)
                return

    def _has_been_silent(self, deployment: Deployment, host: Peer) -> bool:
        heard = deployment.heard.setdefault(host.id, self._ground.now)
        return heard < self._ground.now - self._ground.config.host_silence_max

    def _silent(self, entry: m.RegisterEntry, deployment: Deployment) -> set[int]:
        """Return the instances that no host has reported within `host_silence_max`: theirs may have been restarted."""
        now, heard = self._ground.now, deployment.instances_heard
        quiet = Instant(now - self._ground.config.host_silence_max)
        return {one.instance for one in entry.placed if heard.setdefault(one.instance, now) < quiet}

    def _ask_to_start(
        self, entry: m.RegisterEntry, placed: m.Placed, chain: m.ChainSpec, load: int | None = None
    ) -> None:
        spec, own = entry.spec, self._ground.own
        asked = m.StartAsked(
            own,
            spec.name,
            entry.term,
            placed.instance,
            chain,
            placed.anchor,
            spec.flow,
            spec.key,
            load,
            placed.lot,
            placed.whence,
            placed.cuts,
        )
        self._ground.send(placed.host, asked)

    def start_told(self, message: m.StartTold) -> None:
        """Take note that an instance runs, or that a host has no room for it."""
        entry, deployment = self._entry(message.app), self.deployments.get(message.app)
        if entry is None or deployment is None or entry.term != message.term:
            return
        if message.instance < 0:
            deployment.sources_read.add(-1 - message.instance)
            return
        placed = next((one for one in entry.placed if one.instance == message.instance), None)
        if placed is None or placed.host.id != message.sender.id:
            return  # it was placed elsewhere meanwhile; the answer to the host's next HostBeat says so
        if not message.started:
            self._place_anew(entry, deployment, [placed], has_run=message.has_run)
            return
        deployment.started.add(message.instance)
        deployment.heard[placed.host.id] = deployment.instances_heard[message.instance] = self._ground.now
        if placed.whence is not None:  # the host has all of the state: earlier hosts are not needed any more
            settled = msgspec.structs.replace(placed, whence=None)
            entry = self.change(entry, placed=tuple(settled if one is placed else one for one in entry.placed))
        if entry.phase == AppPhase.STARTING and not deployment.to_start(entry):
            self._run(entry, deployment)

    def move_away(self, app: str, host: Peer) -> None:
        """Place the instances of a host that drains elsewhere; they run there until the new hosts fetch them."""
        entry, deployment, now = self._register.entries[app], self.deployments[app], self._ground.now
        leaving = [one for one in entry.placed if one.host.id == host.id and entry.spec.chains[one.instance].operators]
        is_early = deployment.moved_at is not None and now - deployment.moved_at < MOVING_AGAIN * SECOND
        if entry.phase == AppPhase.RUNNING and leaving and not is_early:
            deployment.moved_at = now
            self._place_anew(entry, deployment, leaving)

    def _place_anew(
        self,
        entry: m.RegisterEntry,
        deployment: Deployment,
        whom: list[m.Placed],
        *,
        are_lost: bool = False,
        has_run: bool | None = None,
    ) -> None:
        """Find other spots for these instances, and for others on their hosts that have not started.

        The new host has to fetch their state from their host, or from an earlier one if their host never fetched it:
        `has_run` says whether they ran there, None if unknown. An instance that neither ran there nor has an earlier
        host has no state to fetch.
        """
        gone = {placed.host.id for placed in whom}
        deployment.begins_anew = are_lost and all(entry.may_begin_anew(one) for one in whom)
        is_full_everywhere = gone <= deployment.refused
        deployment.refused |= gone
        if len(deployment.refused) > 64:
            deployment.refused = gone
        fresh = {one.instance for one in whom if has_run is False and one.whence is None and not one.cuts}
        keep_something = {one.instance for one in whom if is_kept(entry, one)} - fresh
        deployment.moving |= {one: True if one in deployment.started else has_run for one in keep_something}
        deployment.lost |= keep_something if are_lost else set()
        stays = deployment.started | {one.instance for one in entry.placed if is_kept(entry, one)} - fresh
        kept = tuple(one for one in entry.placed if one.host.id not in gone or one.instance in stays)
        deployment.ways.clear()
        deployment.rooms.clear()
        self.change(entry, placed=kept, phase=AppPhase.PLACING)
        if is_full_everywhere:  # these hosts had refused before, so every candidate has: retry after a delay
            self._ground.come_back(("deploy", entry.spec.name), self._ground.config.retry)
        else:
            self.go_on(entry.spec.name)

    def _run(self, entry: m.RegisterEntry, deployment: Deployment) -> None:
        if deployment.missing(entry):
            self.change(entry, phase=AppPhase.PLACING)
            return
        changed = self.change(entry, phase=AppPhase.RUNNING, has_run=True)
        deployment.refused.clear()
        self._watch(changed, deployment)

    def _watch(self, entry: m.RegisterEntry, deployment: Deployment) -> None:
        ground, app = self._ground, entry.spec.name
        if not deployment.owner_knows:
            ground.send(entry.owner, m.AppRunning(ground.own, app, entry.term))
        is_agreed(ground, entry, deployment)
        lost = [placed for placed in entry.placed if is_lost(ground, entry, placed, deployment)]
        if lost:
            deployment.started -= {one.instance for one in lost if not is_kept(entry, one) or entry.may_begin_anew(one)}
            self._place_anew(entry, deployment, lost, are_lost=True)
            return
        if self._silent(entry, deployment):  # their host is alive, but was restarted and has lost them
            self._start(self.change(entry, phase=AppPhase.STARTING), deployment)
            return
        self._see_to_sources(entry, deployment)
        unheard = {placed.host for placed in entry.placed if placed.host.id in deployment.unheard}
        for host in sorted(unheard):
            ground.send(host, m.StewardChanged(ground.own, app, entry.term))
        ground.come_back(("deploy", app), (1 if unheard else RUNNING_LOOK) * ground.config.retry)

    def _see_to_sources(self, entry: m.RegisterEntry, deployment: Deployment) -> None:
        """Have all sources of an app that runs read: a node that was restarted knows nothing of them."""
        ground, spec = self._ground, entry.spec
        quiet = Instant(ground.now - ground.config.host_silence_max)
        for number, peer in enumerate(spec.sources):
            if deployment.sources_heard.setdefault(number, ground.now) < quiet:
                ground.send(peer, m.PathAsked(ground.own, spec.name, spec.key, entry.term, number))
                deployment.sources_read.discard(number)
            elif spec.flow and number not in deployment.sources_read and may_read(ground, entry, deployment):
                self._ask_to_start(entry, m.Placed(-1 - number, peer, peer), SOURCE)

    def home_wanted(self, message: HomeWanted) -> None:
        """Name the host of an instance to rows that look for it; start one on demand with its first row."""
        entry, deployment = self._entry(message.app), self.deployments.get(message.app)
        if entry is None or deployment is None:
            return
        host = next((one.host for one in entry.placed if one.instance == message.instance), None)
        if host is not None:
            if message.instance in deployment.started:
                self._ground.send(message.sender, HomeTold(self._ground.own, message.app, message.instance, host))
        elif message.instance < len(entry.spec.chains) and message.instance not in deployment.wanted:
            deployment.wanted.add(message.instance)
            if entry.phase in (AppPhase.STARTING, AppPhase.RUNNING):  # else it is placed with the others
                deployment.rooms.clear()
                self.change(entry, phase=AppPhase.PLACING)
                self.go_on(message.app)

    def placement_heard(self, message: m.PlacementHeard) -> None:
        """Go on with the placement that the owner answers: the proposed one, or the previous one."""
        entry, deployment = self._entry(message.app), self.deployments.get(message.app)
        if entry is None or deployment is None or entry.phase in ENDS or message.sender.id != entry.owner.id:
            return
        if not entry.spec.can_be_placed(message.placed):
            self._ground.emit(NoteRefused(message.sender, f"{message.app} is not placed as it can be"))
            return
        is_news = deployment.agreed != message.placed
        deployment.agreed, deployment.proposed_since = message.placed, None
        if message.placed and message.placed != entry.placed:
            known = set(entry.placed)
            deployment.started &= {one.instance for one in message.placed if one in known}
            entry = self.change(entry, placed=message.placed, phase=AppPhase.STARTING)
        deployment.ran_before |= message.has_run
        if message.has_run and not entry.has_run:
            entry = self.change(entry, has_run=True)
        if entry.phase == AppPhase.STARTING and is_news:
            deployment.begin_phase()  # nobody has been asked to start anything before
            self._start(entry, deployment)

    def owner_heard(self, message: m.AppRunningHeard) -> None:
        """Take the owner's acknowledgement that its app runs: sources may be read from here on."""
        entry, deployment = self._entry(message.app), self.deployments.get(message.app)
        if entry is None or deployment is None or deployment.owner_knows:
            return
        deployment.owner_knows = True
        if entry.phase == AppPhase.RUNNING:
            self._watch(entry, deployment)

    # --- ending -------------------------------------------------------------------------------------------------------

    def _stop(self, entry: m.RegisterEntry, deployment: Deployment) -> None:
        ground, spec = self._ground, entry.spec
        waiting = [(peer, one) for peer, one in _places(entry) if (peer.id, one) not in deployment.stopped]
        if not waiting or deployment.tries > ground.config.tries_max:
            # A host that did not answer learns it from our answer to its next HostBeat.
            deployment.ended_at = ground.now
            self.change(entry, phase=AppPhase.ENDED, placed=())
            ground.send(entry.owner, m.EndTold(ground.own, spec.name))
            ground.come_back(("deploy", spec.name), ground.config.ended_kept)
            return
        for peer, instance in waiting:
            ground.send(peer, m.StopAsked(ground.own, spec.name, entry.term, instance, spec.key))

    def stop_told(self, message: m.StopTold) -> None:
        """Take note that an instance or source has stopped; with the last of them the app has ended."""
        entry, deployment = self._entry(message.app), self.deployments.get(message.app)
        if entry is None or deployment is None or entry.phase != AppPhase.ENDING:
            return
        deployment.stopped.add((message.sender.id, message.instance))
        if {(peer.id, one) for peer, one in _places(entry)} <= deployment.stopped:
            self._stop(entry, deployment)

    def _bury(self, entry: m.RegisterEntry, deployment: Deployment) -> None:
        """Drop the tombstone of an app that ended `ended_kept` ago."""
        ground = self._ground
        if deployment.ended_at is None:
            deployment.ended_at = ground.now
        if ground.now - deployment.ended_at >= ground.config.ended_kept:
            self.forget(entry.spec.name)
            self._register.drop(entry.spec.name)
        else:
            ground.come_back(("deploy", entry.spec.name), ground.config.ended_kept)


def _places(entry: m.RegisterEntry) -> list[tuple[Peer, int]]:
    """Return the hosts of all instances of an app, also those with state to fetch, and the nodes of its sources."""
    places = [(placed.host, placed.instance) for placed in entry.placed]
    places += [(whence.host, placed.instance) for placed in entry.placed for whence in placed.whences()]
    return [*places, *((peer, -1 - number) for number, peer in enumerate(entry.spec.sources))]
