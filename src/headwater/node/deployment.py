"""One app's way from its register entry to running instances, step by step.

    placing ──all ways and rooms known──► starting ──all started──► running ──wanted to end──► ending ──► ended
       ▲                                     │ a host has no room, or is silent: place that one anew
       └──────── a host is lost ─────────────┴──────────── (only what ran there is placed anew)

It remembers what was asked and has not been answered; all that must survive the steward is in the entry.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from headwater.model.peers import NodeId, Peer
from headwater.model.time import Instant
from headwater.node import messages as m
from headwater.planner.placement import PlacementPolicy, Room, Spot, Step, Wish


class AppPhase(StrEnum):
    """How far an app has come."""

    PLACING = "placing"
    STARTING = "starting"
    RUNNING = "running"
    ENDING = "ending"
    ENDED = "ended"


ENDS: Final = (AppPhase.ENDING, AppPhase.ENDED)  # which is never taken back


@dataclass(slots=True)
class Deployment:
    """What a steward knows of an app beyond its entry."""

    ways: dict[int, tuple[Peer, ...]] = field(default_factory=dict)  # by source
    rooms: dict[NodeId, m.RoomTold] = field(default_factory=dict)
    refused: set[NodeId] = field(default_factory=set)  # hosts that had no room, or did not answer
    started: set[int] = field(default_factory=set)
    stopped: set[tuple[NodeId, int]] = field(default_factory=set)
    tries: int = 0  # of asking in this phase
    heard: dict[NodeId, Instant] = field(default_factory=dict)  # hosts
    unheard: set[NodeId] = field(default_factory=set)  # hosts that have not answered us since we took the app over
    instances_heard: dict[int, Instant] = field(default_factory=dict)
    sources_heard: dict[int, Instant] = field(default_factory=dict)
    sources_read: set[int] = field(default_factory=set)
    wanted: set[int] = field(default_factory=set)  # instances on demand that rows have asked for
    agreed: tuple[m.Placed, ...] = ()  # how the app is placed, as its owner said last
    proposed_since: Instant | None = None  # another placement, which the owner has not answered yet
    owner_knows: bool = False
    runs_since: Instant | None = None
    ended_at: Instant | None = None

    def begin_phase(self) -> None:
        """Count the tries anew."""
        self.tries = 0

    def missing(self, entry: m.Entry) -> list[int]:
        """Return the instances that have no host."""
        placed = {one.instance for one in entry.placed}
        return [number for number in range(len(entry.spec.chains)) if number not in placed]

    def to_start(self, entry: m.Entry) -> list[m.Placed]:
        """Return the instances that should run, and have not said so."""
        return [one for one in entry.placed if one.instance not in self.started and self.is_wanted(entry, one.instance)]

    def is_wanted(self, entry: m.Entry, instance: int) -> bool:
        """Whether an instance should run: one on demand only if rows have asked for it."""
        return instance in self.wanted or instance in self.started or not entry.spec.chains[instance].on_demand

    def nodes_on_ways(self) -> list[Peer]:
        """Return all nodes on the ways of all sources, each once."""
        return list({peer.id: peer for way in self.ways.values() for peer in way}.values())

    def place(self, entry: m.Entry, policy: PlacementPolicy) -> list[m.Placed] | None:
        """Return spots for the instances that have none; None if the ways do not lead to one root."""
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
        spots = policy.place(wishes, steps)
        return [_placed(instance, spot) for instance, spot in sorted(spots.items())]

    def load_told(self, peer: Peer) -> int | None:
        """Return how many operators run on a node, as it was told when we placed; None if nobody told us."""
        own = self.rooms.get(peer.id)
        if own is not None:
            return own.load
        loads = (load for told in self.rooms.values() for near, load, *_ in told.around if near.id == peer.id)
        return max(loads, default=None)

    def _steps(self, way: tuple[Peer, ...]) -> list[Step]:
        return [Step(self._room(peer), tuple(self._around(peer))) for peer in way]

    def _room(self, peer: Peer) -> Room:
        told = self.rooms.get(peer.id)
        if told is None or peer.id in self.refused:
            return Room(peer, 1, 1)  # full, as far as we know
        return Room(peer, told.load, told.capacity)

    def _around(self, peer: Peer) -> Iterator[Room]:
        told = self.rooms.get(peer.id)
        if told is not None:
            for near, load, capacity, rtt_us in told.around:
                if near.id not in self.refused:
                    yield Room(near, load, capacity, rtt_us)


def _placed(instance: int, spot: Spot) -> m.Placed:
    return m.Placed(instance, spot.peer, spot.anchor)
