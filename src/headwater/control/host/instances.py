"""The instances and sources of apps on this node. Their host sends heartbeats to the steward of each.

A host obeys the steward with the highest term (a fencing token). It stops an instance only if its steward says so, or
if no steward has claimed it for `strange_max`: a steward that is silent is no reason to stop.
"""

from dataclasses import dataclass
from typing import Final

from headwater.control.context import NodeContext
from headwater.control.messages import app_messages as m
from headwater.control.messages.events import AwaitInstance, StartInstance, StopInstance
from headwater.engine.cuts import InstanceCut
from headwater.model.peers import NodeId, Peer
from headwater.model.terms import Lot
from headwater.model.time import Instant
from headwater.overlay.tree_messages import PATH_MAX

ARRIVING_BYTES_MAX: Final = 64 << 20  # of flows of instances that are still being fetched
STEWARD_PLACES_MAX: Final = m.PLACES_MAX // 2  # of one steward on a node, so that none has all
LOADS_MAX = 96  # nodes whose load we remember: our leaves, and nodes that have us as a leaf first
BEAT = ("beat", b"")
LOAD = ("load", b"")
USUAL_CAPACITY: Final = 8  # the capacity for which `busy` is meant; for a larger node it grows in proportion


@dataclass(slots=True)
class Hosted:
    """An instance that runs here."""

    operators: int  # of its chain
    term: int
    steward: Peer
    anchor: Peer
    heard: Instant  # when a steward last answered us
    lot: Lot = (0, 0)
    is_arriving: bool = False  # what it had elsewhere has yet to come
    flow_bytes: int = 0  # that are kept until then
    strange_since: Instant | None = None  # no steward that we asked knows of it
    cuts: tuple[InstanceCut, ...] = ()


@dataclass(slots=True)
class Sourced:
    """A source of an app, whose rows come in here."""

    key: NodeId
    term: int
    steward: Peer
    heard: Instant  # when a steward last answered us
    strange_since: Instant | None = None  # since when the stewards that we told do not know it
    is_read: bool = False  # whether its rows are being read


Place = tuple[str, int, Hosted | Sourced]  # an app, and an instance or (negative) a source of it


class Hosting:
    """The part of a node that runs instances."""

    def __init__(self, ground: NodeContext) -> None:
        self._ground = ground
        self.hosted: dict[tuple[str, int], Hosted] = {}
        self.sourced: dict[tuple[str, int], Sourced] = {}
        self.doubted: list[Peer] = []  # stewards that do not answer while the ring takes them for alive
        self.trees_wanted: dict[NodeId, bool] = {}  # trees to join or to leave
        self.fetches_wanted: list[m.StartAsked] = []  # instances whose state is to be fetched
        self._ways: dict[NodeId, tuple[Peer, ...]] = {}  # our paths to the roots of trees, where known
        self._loads: dict[NodeId, tuple[Peer, int, int]] = {}  # of leaves, the latest last
        self._load_told = (0, 0)  # our load and capacity as the leaves know them
        self._tells_late = False  # the LOAD timer is for a small change

    @property
    def load(self) -> int:
        """How many operators run here."""
        return sum(hosted.operators for hosted in self.hosted.values())

    @property
    def capacity(self) -> int:
        """How many operators can run here: none while draining."""
        return 0 if self._ground.is_draining else self._ground.config.capacity

    def _is_full_for(self, steward: Peer) -> bool:
        """Whether a steward gets no further place here: all are taken, or half are and this steward has that many."""
        if len(self.hosted) + len(self.sourced) >= m.PLACES_MAX:
            return True
        kept: list[Hosted | Sourced] = [*self.hosted.values(), *self.sourced.values()]
        return len(kept) >= STEWARD_PLACES_MAX <= sum(one.steward.id == steward.id for one in kept)

    def _awaits_too_much(self, message: m.StartAsked) -> bool:
        """Whether an instance has to be fetched while the flows of others that are being fetched fill their memory."""
        kept = sum(hosted.flow_bytes for hosted in self.hosted.values() if hosted.is_arriving)
        return message.whence is not None and kept >= ARRIVING_BYTES_MAX

    @property
    def _busy(self) -> int:
        """The load above which a steward that knows of less is refused: a share of our capacity."""
        config = self._ground.config
        return max(config.busy, config.capacity * config.busy // USUAL_CAPACITY)

    def tell_at_once(self) -> None:
        """Tell stewards at once, and our leaves soon, whether this node drains."""
        self._changed()
        self.beat()

    def begin(self) -> None:
        """Begin to send heartbeats to stewards."""
        self._ground.come_back(BEAT, self._ground.rng.randrange(self._ground.config.beat))
        self._changed()

    def check(self) -> None:
        """Raise if an invariant is broken."""
        for (_, source), sourced in self.sourced.items():
            assert source >= 0
            assert sourced.key is not None
        assert self.load >= 0

    # --- paths and room -----------------------------------------------------------------------------------------------

    def path_asked(self, message: m.PathAsked) -> None:
        """Join an app's tree; tell the steward our path to its root once we know it."""
        place = (message.app, message.source)
        known = self.sourced.get(place)
        if known is not None and known.term > message.term:
            self._refuse(message.sender, message.app, known)
            return
        if known is None:
            if self._is_full_for(message.sender):
                return  # the steward retransmits
            self.trees_wanted[message.key] = True
            self.sourced[place] = Sourced(message.key, message.term, message.sender, self._ground.now)
        self._in_care_of(message.sender, message.app, -1 - message.source, message.term)
        self._all_in_care_of(message.sender, message.app, message.term)
        way = self._ways.get(message.key)
        if way is not None:
            self._tell_path(message.app, message.source, message.sender, way)

    def way_found(self, key: NodeId, path: tuple[Peer, ...], is_rooted: bool) -> None:
        """Take note of our path to the root of a tree."""
        if not is_rooted or len(path) > PATH_MAX:
            self._ways.pop(key, None)
            return
        self._ways[key] = path
        for (app, source), sourced in self.sourced.items():
            if sourced.key == key:
                self._tell_path(app, source, sourced.steward, path)

    def _tell_path(self, app: str, source: int, steward: Peer, way: tuple[Peer, ...]) -> None:
        self._ground.send(steward, m.PathTold(self._ground.own, app, source, way))

    def room_asked(self, message: m.RoomAsked) -> None:
        """Tell how much room there is here and around."""
        ground = self._ground
        around = []
        for peer, load, capacity in self._loads.values():
            if peer.id in ground.ring.known.leaves:
                around.append((peer, load, capacity, ground.ring.known.rtt_us(peer.id) or 1_000_000))
        around.sort(key=lambda room: (room[1], room[3], room[0].id))
        told = m.RoomTold(ground.own, message.number, self.load, self.capacity, tuple(around[: m.AROUND_MAX]))
        ground.send(message.sender, told)

    def load_told(self, message: m.LoadTold) -> None:
        """Take note of the load of a leaf, or of one that will be; tell it ours if it is new to us.

        Nodes tell their load when they become leaves of each other; a node that was still joining ignored that.
        """
        sender = message.sender
        if self._loads.pop(sender.id, None) is None:
            self.leaf_gained(sender)
        self._loads[sender.id] = (sender, message.load, message.capacity)
        if len(self._loads) > LOADS_MAX:
            del self._loads[next(iter(self._loads))]

    def leaf_gained(self, peer: Peer) -> None:
        """Tell a new leaf how much room we have."""
        self._ground.send(peer, m.LoadTold(self._ground.own, self.load, self.capacity))

    def leaf_lost(self, peer: Peer) -> None:
        """Forget the load of a leaf."""
        self._loads.pop(peer.id, None)

    def _changed(self) -> None:
        """Tell our leaves our load soon; a change by an eighth can wait, as stewards may be off by half."""
        config, (load, capacity) = self._ground.config, self._load_told
        is_small = capacity == self.capacity and abs(self.load - load) <= load // 8
        if LOAD not in self._ground.timers or (self._tells_late and not is_small):
            self._tells_late = is_small
            self._ground.come_back(LOAD, config.load_told_small if is_small else config.load_told)

    def tell_load(self) -> None:
        """Tell our leaves how much room we have."""
        self._load_told = (self.load, self.capacity)
        told = m.LoadTold(self._ground.own, self.load, self.capacity)
        for peer in self._ground.ring.known.leaves:
            self._ground.send(peer, told)

    def begins(self, message: m.StartAsked) -> bool:
        """Whether an instance that was asked for runs here, and has nothing to fetch."""
        hosted = self.hosted.get((message.app, message.instance))
        return hosted is not None and hosted.lot == message.lot and not hosted.is_arriving

    def beginning(self, app: str) -> list[tuple[int, tuple[InstanceCut, ...]]]:
        """Return the instances of an app that are to run here and have nothing to fetch, and its cuts."""
        return [
            (number, one.cuts) for (name, number), one in self.hosted.items() if name == app and not one.is_arriving
        ]

    def cuts_of(self, app: str, instance: int) -> tuple[InstanceCut, ...] | None:
        """Return the cuts of an instance that is here; None if it is not."""
        hosted = self.hosted.get((app, instance))
        return None if hosted is None else hosted.cuts

    # --- instances ----------------------------------------------------------------------------------------------------

    def steward_of(self, app: str) -> Peer | None:
        """Return the steward of an app that has an instance or source here."""
        return next((kept.steward for _, kept in self._places_of(app)), None)

    def start_asked(self, message: m.StartAsked, *, has_run: bool, is_over: bool) -> None:
        """Run an instance, if there is room.

        `has_run` if it ran here before and its state is here; `is_over` if we have disowned this placement.
        """
        if message.instance < 0:
            self._read_asked(message)
            return
        ground, place = self._ground, (message.app, message.instance)
        known = self.hosted.get(place)
        if known is not None and known.term > message.term:
            self._refuse(message.sender, message.app, known)
            return
        self._all_in_care_of(message.sender, message.app, message.term)
        if known is None and (is_over or not self._has_room_for(message)):
            self._tell_started(message, started=False, has_run=has_run)
            return
        if known is None or known.lot != message.lot:
            if known is not None and (is_over or self._awaits_too_much(message)):
                return  # a late word, whose answer would be taken for one about what runs; or the steward retransmits
            self._host(message)
        self._in_care_of(message.sender, message.app, message.instance, message.term)
        if not self.hosted[place].is_arriving:
            ground.emit(_start(message))
            self._tell_started(message, started=True)

    def _host(self, message: m.StartAsked) -> None:
        ground, place = self._ground, (message.app, message.instance)
        if place in self.hosted and message.whence is not None:
            ground.emit(StopInstance(*place))
        hosted = Hosted(message.chain.operators, message.term, message.sender, message.anchor, ground.now, message.lot)
        hosted.cuts = message.cuts
        self.hosted[place] = hosted
        self._changed()
        if message.whence is not None:
            hosted.is_arriving, hosted.flow_bytes = True, len(message.flow)
            self.fetches_wanted.append(message)
            ground.emit(AwaitInstance(message.app, message.instance, message.flow, message.key))

    def arrived(self, asked: m.StartAsked) -> None:
        """Run an instance whose state has arrived."""
        hosted = self.hosted[asked.app, asked.instance]
        hosted.is_arriving = False
        self._ground.emit(_start(asked))
        self._tell_started(asked, started=True)

    def gave_away(self, place: tuple[str, int]) -> None:
        """Drop an instance that another host has taken over."""
        if self.hosted.pop(place, None) is not None:
            self._changed()

    def _tell_started(self, asked: m.StartAsked, *, started: bool, has_run: bool = True) -> None:
        told = m.StartTold(self._ground.own, asked.app, asked.term, asked.instance, started, has_run)
        self._ground.send(asked.sender, told)

    def _read_asked(self, message: m.StartAsked) -> None:
        """Read a source; its rows wait here until they find their instances."""
        ground, place = self._ground, (message.app, -1 - message.instance)
        known = self.sourced.get(place)
        if known is not None and known.term > message.term:
            self._refuse(message.sender, message.app, known)
            return
        if known is None:
            if self._is_full_for(message.sender):
                return  # the steward retransmits
            self.trees_wanted[message.key] = True
            known = self.sourced[place] = Sourced(message.key, message.term, message.sender, ground.now)
        self._all_in_care_of(message.sender, message.app, message.term)
        if not known.is_read:
            known.is_read = True
            ground.emit(_start(message))
        ground.send(message.sender, m.StartTold(ground.own, message.app, message.term, message.instance, started=True))

    def _has_room_for(self, message: m.StartAsked) -> bool:
        """Whether an instance fits; above the load `_busy`, only if its steward knew roughly how much runs here.

        Stewards place concurrently by slightly old loads: two that both found us idle would crowd us while other nodes
        are idle. A steward that knew that we are busy chose us all the same, and may be off by half.
        """
        if self._ground.is_draining or self._is_full_for(message.sender) or self._awaits_too_much(message):
            return False
        if message.chain.operators == 0:  # a sink takes no room, and can be placed nowhere but at the root
            return True
        busy, told = self._busy, message.load
        load = self.load + room_taken(message.chain.operators, self._ground.config.capacity)
        of_others = sum(hosted.operators for (app, _), hosted in self.hosted.items() if app != message.app)
        if load > self._ground.config.capacity:
            return False
        if told is None or of_others <= told:
            return True
        return load <= busy if told < busy else of_others <= told + max(self._ground.config.busy, told // 2)

    def stop_asked(self, message: m.StopAsked) -> None:
        """Stop an instance or a source, unless we know a steward with a higher term."""
        if message.instance < 0:
            sourced = self.sourced.get((message.app, -1 - message.instance))
            if sourced is not None and sourced.term > message.term:
                self._refuse(message.sender, message.app, sourced)
                return
            self._end_source(message.app, -1 - message.instance)
        else:
            hosted = self.hosted.get((message.app, message.instance))
            if hosted is not None and hosted.term > message.term:
                self._refuse(message.sender, message.app, hosted)
                return
            self._stop(message.app, message.instance)
        self._ground.send(message.sender, m.StopTold(self._ground.own, message.app, message.instance))

    def _refuse(self, steward: Peer, app: str, kept: Hosted | Sourced) -> None:
        """Tell a steward with an old term which steward has the app."""
        self._ground.send(steward, m.StewardMoved(self._ground.own, app, kept.term, kept.steward))

    def _stop(self, app: str, instance: int) -> None:
        if self.hosted.pop((app, instance), None) is not None:
            self._ground.emit(StopInstance(app, instance))
            self._changed()

    def _end_source(self, app: str, source: int) -> None:
        gone = self.sourced.pop((app, source), None)
        if gone is not None and gone.is_read:
            self._ground.emit(StopInstance(app, -1 - source))
        if gone is not None and all(other.key != gone.key for other in self.sourced.values()):
            self.trees_wanted[gone.key] = False
            self._ways.pop(gone.key, None)

    # --- stewards -----------------------------------------------------------------------------------------------------

    def beat(self) -> None:
        """Send every steward a heartbeat with its instances and sources here."""
        ground = self._ground
        ground.come_back(BEAT, ground.config.beat)
        by_steward: dict[Peer, list[Place]] = {}
        for (app, instance), hosted in self.hosted.items():
            by_steward.setdefault(self._whom_to_tell(hosted), []).append((app, instance, hosted))
        for (app, source), sourced in self.sourced.items():
            by_steward.setdefault(self._whom_to_tell(sourced), []).append((app, -1 - source, sourced))
        for steward, places in by_steward.items():
            self._tell_of(steward, places)

    def _tell_of(self, steward: Peer, places: list[Place]) -> None:
        """Send a steward a HostBeat of these instances and sources."""
        arriving = tuple(_told(place) for place in places if _is_arriving(place))
        hosted = tuple(_told(place) for place in places if not _is_arriving(place))
        unread = tuple((app, -1 - one) for app, one, kept in places if isinstance(kept, Sourced) and not kept.is_read)
        beat = m.HostBeat(self._ground.own, hosted, unread, arriving, self._ground.is_draining)
        self._ground.send(steward, beat)

    def _whom_to_tell(self, kept: Hosted | Sourced) -> Peer:
        """Return the steward; if it has been silent for long, the peer that owns its id, which inherits its apps."""
        ground = self._ground
        if ground.now - kept.heard <= ground.config.steward_silence_max:
            return kept.steward
        heir = ground.ring.next_hop(kept.steward.id) or ground.own
        if heir.id == kept.steward.id:
            self.doubted.append(heir)
        return heir

    def _find(self, app: str, instance: int) -> Hosted | Sourced | None:
        return self.sourced.get((app, -1 - instance)) if instance < 0 else self.hosted.get((app, instance))

    def _is_strange(self, app: str, instance: int, teller: Peer) -> None:
        """Stop an instance that no steward claims, but only after `strange_max`: an heir may still be taking over."""
        kept, ground = self._find(app, instance), self._ground
        if kept is None:
            return
        kept.steward, kept.heard = teller, ground.now
        if kept.strange_since is None:
            kept.strange_since = ground.now
        elif ground.now - kept.strange_since > ground.config.strange_max:
            if instance < 0:
                self._end_source(app, -1 - instance)
            else:
                self._stop(app, instance)

    def told(self, message: m.HostTold) -> None:
        """Obey a steward's answer to our heartbeat."""
        for app, instance, term in message.mine:
            self._in_care_of(message.sender, app, instance, term)
        for app, instance in message.unknown:
            if not self._is_in_care(self._find(app, instance), message.sender):
                continue
            if instance < 0:
                self._end_source(app, -1 - instance)
            else:
                self._stop(app, instance)
        for app, instance in message.strange:
            if self._is_in_care(self._find(app, instance), message.sender):  # else it has just named another steward
                self._is_strange(app, instance, message.sender)

    def _is_in_care(self, kept: Hosted | Sourced | None, steward: Peer) -> bool:
        """Whether to obey a steward: ours, or any that answers while ours has been silent for long."""
        if kept is None:
            return False
        is_silent = self._ground.now - kept.heard > self._ground.config.steward_silence_max
        return kept.steward.id == steward.id or is_silent

    def _in_care_of(self, steward: Peer, app: str, instance: int, term: int) -> None:
        kept = self._find(app, instance)
        if kept is None or term < kept.term:
            return
        kept.heard, kept.strange_since = self._ground.now, None
        before, kept.term, kept.steward = kept.steward, term, steward
        if before.id != steward.id:  # it may have been cut off by a partition during the takeover
            self._ground.send(before, m.StewardMoved(self._ground.own, app, term, steward))

    def steward_moved(self, message: m.StewardMoved) -> None:
        """Turn to the named steward if its term is higher; send it a heartbeat: hearsay is no sign of life."""
        for instance, kept in self._places_of(message.app):
            if message.term > kept.term:
                self._in_care_of(message.steward, message.app, instance, message.term)
            if message.term == kept.term:
                self._tell_of(message.steward, [(message.app, instance, kept)])

    def steward_changed(self, message: m.StewardChanged) -> None:
        """Turn to the sender if its term is at least as high, and send it a heartbeat."""
        for instance, kept in self._places_of(message.app):
            self._in_care_of(message.sender, message.app, instance, message.term)
            if kept.steward.id == message.sender.id:
                self._tell_of(message.sender, [(message.app, instance, kept)])

    def _places_of(self, app: str) -> list[tuple[int, Hosted | Sourced]]:
        return [
            *((instance, hosted) for (name, instance), hosted in self.hosted.items() if name == app),
            *((-1 - source, sourced) for (name, source), sourced in self.sourced.items() if name == app),
        ]

    def _all_in_care_of(self, steward: Peer, app: str, term: int) -> None:
        """Put all parts of an app here in the care of the steward with a higher term for one of them."""
        for instance, kept in self._places_of(app):
            if kept.term < term:
                self._in_care_of(steward, app, instance, term)


def room_taken(operators: int, capacity: int) -> int:
    """Return how many operators a chain counts as when a host checks its room.

    A fused chain with more operators than the capacity would fit nowhere, though they share a thread and a queue: it
    counts as half the capacity. Once it runs, all its operators count, and nothing else fits beside it.
    """
    return operators if operators <= capacity else capacity // 2


def _told(place: Place) -> tuple[str, int, int]:
    app, instance, kept = place
    return app, instance, kept.term


def _is_arriving(place: Place) -> bool:
    kept = place[2]
    return isinstance(kept, Hosted) and kept.is_arriving


def _start(message: m.StartAsked) -> StartInstance:
    chain, anchor, flow = message.chain, message.anchor, message.flow
    return StartInstance(message.app, message.instance, chain, anchor, flow, message.key, message.lot, message.cuts)
