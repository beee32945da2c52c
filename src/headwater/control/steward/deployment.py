"""One app's way from its register entry to running instances, step by step.

    placing ──all paths and rooms known──► starting ──all started──► running ──wanted to end──► ending ──► ended
       ▲                                     │ a host has no room, or is silent: place that instance anew
       └──────── a host is lost ─────────────┴──────────── (only what ran there is placed anew)

A deployment is the volatile part: open requests and what was heard. All that must survive the steward is in the entry.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from headwater.control.messages import app_messages as m
from headwater.engine.cuts import InstanceCut
from headwater.model.peers import NodeId, Peer
from headwater.model.terms import Lot
from headwater.model.time import Instant
from headwater.planner.placement import PathStep, PlacementPolicy, Room, Spot, Wish


class AppPhase(StrEnum):
    """How far an app's deployment has come."""

    PLACING = "placing"
    STARTING = "starting"
    RUNNING = "running"
    ENDING = "ending"
    ENDED = "ended"


ENDS: Final = (AppPhase.ENDING, AppPhase.ENDED)  # never left again


@dataclass(slots=True)
class Deployment:
    """What a steward knows of an app beyond its entry."""

    ways: dict[int, tuple[Peer, ...]] = field(default_factory=dict)  # by source
    rooms: dict[NodeId, m.RoomTold] = field(default_factory=dict)
    room_question: int | None = None  # the number of the open RoomAsked to the nodes on the paths
    refused: set[NodeId] = field(default_factory=set)  # hosts that had no room, or did not answer
    started: set[int] = field(default_factory=set)
    stopped: set[tuple[NodeId, int]] = field(default_factory=set)
    tries: int = 0  # transmissions in this phase
    heard: dict[NodeId, Instant] = field(default_factory=dict)  # when each host was
    unheard: set[NodeId] = field(default_factory=set)  # hosts that have not answered us since we took the app over
    instances_heard: dict[int, Instant] = field(default_factory=dict)
    sources_heard: dict[int, Instant] = field(default_factory=dict)
    sources_read: set[int] = field(default_factory=set)
    wanted: set[int] = field(default_factory=set)  # instances on demand that rows have asked for
    moving: dict[int, bool | None] = field(default_factory=dict)  # need another host; whether theirs has their state
    lost: set[int] = field(default_factory=set)  # of those, such as have a host that is silent for long
    moved_at: Instant | None = None  # when a host last wanted to be rid of what it runs
    begins_anew: bool = False  # what was placed elsewhere last, and nothing else has been since the owner agreed
    agreed: tuple[m.Placed, ...] = ()  # how the app is placed, as its owner said last
    proposed_since: Instant | None = None  # another placement, which the owner has not answered yet
    owner_knows: bool = False
    ran_before: bool = False  # as its owner has said: rows and state lie where it is placed
    runs_since: Instant | None = None
    ended_at: Instant | None = None

    def begin_phase(self) -> None:
        """Count the tries anew."""
        self.tries = 0

    def missing(self, entry: m.RegisterEntry) -> list[int]:
        """Return the instances that need a host, or another host; those on demand do once a row has needed them."""
        placed = {one.instance for one in entry.placed}
        chains = enumerate(entry.spec.chains)
        unplaced = {one for one, chain in chains if one not in placed and (not chain.on_demand or one in self.wanted)}
        return sorted(unplaced | (placed & self.moving.keys()))

    def to_start(self, entry: m.RegisterEntry) -> list[m.Placed]:
        """Return the placed instances whose host has not confirmed that they run."""
        return [one for one in entry.placed if one.instance not in self.started]

    def nodes_on_ways(self) -> list[Peer]:
        """Return all nodes on the paths of all sources, each once."""
        return list({peer.id: peer for way in self.ways.values() for peer in way}.values())

    def place(self, entry: m.RegisterEntry, policy: PlacementPolicy) -> dict[int, Spot] | None:
        """Return spots for the instances that need one; None if the paths do not lead to one root."""
        ways = {source: way for source, way in self.ways.items() if way}
        if not ways or len({way[-1].id for way in ways.values()}) != 1:
            return None
        numbers = sorted(ways)
        steps = [self._steps(ways[number]) for number in numbers]
        wishes = []
        for instance in self.missing(entry):
            chain = entry.spec.chains[instance]
            fed = tuple(numbers.index(source) for source in chain.sources if source in ways) or (0,)
            wishes.append(Wish(instance, chain.operators, chain.stage, fed))
        return policy.place(wishes, steps)

    def placed_at(self, entry: m.RegisterEntry, spots: Mapping[int, Spot]) -> tuple[m.Placed, ...]:
        """Return the placement of all instances, with these at new spots under a new lot, to fetch their state."""
        lot = (entry.term, entry.version + 1)
        placed = {one.instance: one for one in entry.placed}
        for instance, spot in spots.items():
            before = placed.get(instance)
            if before is None:
                placed[instance] = m.Placed(instance, spot.peer, spot.anchor, lot)
            elif before.host.id != spot.peer.id:
                placed[instance] = self._elsewhere(entry, before, spot, lot)
        return tuple(placed[instance] for instance in sorted(placed))

    def _elsewhere(self, entry: m.RegisterEntry, before: m.Placed, spot: Spot, lot: Lot) -> m.Placed:
        if before.instance in self.lost and entry.may_begin_anew(before):
            return m.Placed(
                before.instance, spot.peer, spot.anchor, lot, cuts=(*before.cuts, InstanceCut(lot, before.host))
            )
        return m.Placed(before.instance, spot.peer, spot.anchor, lot, self._whence(entry, before), before.cuts)

    def _whence(self, entry: m.RegisterEntry, before: m.Placed) -> m.Whence | None:
        """Return where the state of an instance may be: on its host, or on an earlier one if it did not fetch it yet.

        A sink has no state to fetch: what it has written stays where it was written.
        """
        instance, further = before.instance, before.whence
        if entry.spec.chains[instance].operators == 0:
            return None
        match self.moving.get(instance, True):
            case False:
                return further
            case True:
                further = None
        further = None if further is None else further.first(m.WHENCES_MAX - 1)
        return m.Whence(before.host, before.lot, instance in self.lost, further)

    def load_told(self, peer: Peer) -> int | None:
        """Return how many operators run on a node, as reported for the last placement; None if no node reported it."""
        own = self.rooms.get(peer.id)
        if own is not None:
            return own.load
        loads = (load for told in self.rooms.values() for near, load, *_ in told.around if near.id == peer.id)
        return max(loads, default=None)

    def _steps(self, way: tuple[Peer, ...]) -> list[PathStep]:
        return [PathStep(self._room(peer), tuple(self._around(peer))) for peer in way]

    def _room(self, peer: Peer) -> Room:
        told = self.rooms.get(peer.id)
        if told is None or (peer.id in self.refused and told.capacity > 0):
            return Room(peer, 1, 1)  # full, as far as we know
        return Room(peer, told.load, told.capacity)

    def _around(self, peer: Peer) -> Iterator[Room]:
        told = self.rooms.get(peer.id)
        if told is not None:
            for near, load, capacity, rtt_us in told.around:
                if near.id not in self.refused:
                    yield Room(near, load, capacity, rtt_us)
