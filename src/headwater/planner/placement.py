"""Where the instances of an app should run: along the paths from its sources to its root (AgileDART, section IV-B).

The first chain runs at its source. Later chains are spread over the rest of the path in order of their stages, so that
rows only ever climb. A chain that several sources feed can run only where their paths have met. A sink, which runs no
operator, is at the root, where its user wants the rows, and nowhere else. At its place on the path an instance goes to
the nearest idle node among the one there and its leaf set; if none is idle, to the least loaded for its capacity.

A placement is a pure function of its arguments: another policy is another class with `place`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headwater.model.peers import NodeId, Peer


@dataclass(frozen=True, slots=True)
class Wish:
    """An instance that is to be placed."""

    instance: int
    operators: int  # how many its chain has; none: it is a sink
    stage: int  # how many chains precede it on the longest path from a source
    sources: tuple[int, ...]  # the numbers of the app's sources that its rows come from


@dataclass(frozen=True, slots=True)
class Room:
    """A node that might take an instance."""

    peer: Peer
    load: int  # operators it runs already
    capacity: int
    rtt_us: int = 0  # from the node on the path


@dataclass(frozen=True, slots=True)
class PathStep:
    """A node on the path from a source to the root, and nodes of its leaf set that might take an instance instead."""

    node: Room
    around: tuple[Room, ...] = ()


@dataclass(frozen=True, slots=True)
class Spot:
    """The node that runs an instance, and the node on the path at which its rows turn off and come back."""

    peer: Peer
    anchor: Peer


class PlacementPolicy(Protocol):
    """Decides where instances run."""

    def place(self, wishes: Sequence[Wish], ways: Sequence[Sequence[PathStep]]) -> dict[int, Spot]:
        """Return a spot for every instance; `ways[i]` is the path of source i, its own node first, the root last."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AlongTheWay:
    """The paper's placement, with the load spread over the leaf sets."""

    easy: int = 1  # operators up to which a node counts as idle: the nearest idle one wins, else the least loaded
    crowded: int = 2  # operators above which a first chain leaves its source's node for one with fewer, if any

    def place(self, wishes: Sequence[Wish], ways: Sequence[Sequence[PathStep]]) -> dict[int, Spot]:
        """Return a spot for every instance, stage by stage."""
        stages = max((wish.stage for wish in wishes), default=0)
        taken = _Taken()
        spots: dict[int, Spot] = {}
        for wish in sorted(wishes, key=lambda wish: (wish.stage, wish.instance)):
            way = _common_way([ways[source] for source in wish.sources])
            is_sink = wish.operators == 0
            step = way[-1 if is_sink else _place_on(len(way), wish.stage, stages)]
            at_the_data = wish.stage == 0 and len(wish.sources) == 1
            if not is_sink:
                step = _with_room(way, step)
            room = step.node if is_sink else self._choose(step, wish, taken, at_the_data=at_the_data)
            taken.add(room, wish.operators)
            spots[wish.instance] = Spot(room.peer, step.node.peer)
        return spots

    def _choose(self, step: PathStep, wish: Wish, taken: "_Taken", *, at_the_data: bool) -> Room:
        rooms = _open(step) or [step.node]
        load = taken.load(step.node) + wish.operators
        if at_the_data and load <= min(step.node.capacity, max(self.crowded, wish.operators)):
            return step.node
        idle = [room for room in rooms if taken.load(room) + wish.operators <= min(self.easy, room.capacity)]
        if idle:
            return min(idle, key=lambda room: (room.rtt_us, room.peer.id))
        # No node is idle: take the least loaded for its capacity, the nearest among equals.
        return min(rooms, key=lambda room: (taken.load(room) / max(1, room.capacity), room.rtt_us, room.peer.id))


@dataclass(slots=True)
class _Taken:
    """The operators that this placement has given to each node so far."""

    operators: dict[NodeId, int] = field(default_factory=dict)

    def load(self, room: Room) -> int:
        return room.load + self.operators.get(room.peer.id, 0)

    def add(self, room: Room, operators: int) -> None:
        self.operators[room.peer.id] = self.operators.get(room.peer.id, 0) + operators


def _common_way(ways: Sequence[Sequence[PathStep]]) -> Sequence[PathStep]:
    """Return the part that all paths share: from where the last of them joins, up to the root."""
    shared = 0
    shortest = min(len(way) for way in ways)
    while shared < shortest and len({way[-1 - shared].node.peer.id for way in ways}) == 1:
        shared += 1
    assert shared > 0, "ways that do not end in one root"
    return ways[0][len(ways[0]) - shared :]


def _open(step: PathStep) -> list[Room]:
    """Return the nodes that take instances at a place on the path: a draining node reports no capacity."""
    return [room for room in (step.node, *step.around) if room.capacity > 0]


def _with_room(way: Sequence[PathStep], wanted: PathStep) -> PathStep:
    """Return the place on a path that is nearest to the wanted one and has a node that takes instances."""
    at = way.index(wanted)
    able = [(abs(number - at), number) for number, step in enumerate(way) if _open(step)]
    return way[min(able)[1]] if able else wanted


def _place_on(length: int, stage: int, stages: int) -> int:
    """Return the index of a stage on a path of so many nodes: the first at its start, the last at its end."""
    return 0 if stages == 0 else min(length - 1, round(stage * (length - 1) / stages))
