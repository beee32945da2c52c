"""Where the boxes of a picture go: stages from left to right, boxes of a stage from top to bottom.

A small version of Sugiyama's method. Routes that skip stages get a waypoint in every stage they pass, so that they run
between boxes and not through them; a few sweeps put each box near the median of its neighbours, in order; then the
heights are relaxed, with nothing in a stage closer than `gap`. Knows sizes, but not what is drawn.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import mean, median
from typing import Final

ORDER_SWEEPS: Final = 8  # crossings hardly improve after four
PLACE_SWEEPS: Final = 24


@dataclass(frozen=True, slots=True)
class Box:
    """Something to place: its name, stage and size."""

    name: str
    stage: int
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class DrawnRoute:
    """A route between two boxes, with its attachment heights below the tops of the boxes."""

    source: str
    target: str
    leaves_at: float
    enters_at: float
    label_width: float = 0.0


@dataclass(frozen=True, slots=True)
class Point:
    """A place in the picture."""

    x: float
    y: float


@dataclass(frozen=True, slots=True)
class PlacedBox:
    """A box and its top left corner."""

    box: Box
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class PictureLayout:
    """The places of all boxes, and for each link its waypoints as (left, right) pairs."""

    boxes: Mapping[str, PlacedBox]
    waypoints: Sequence[Sequence[tuple[Point, Point]]]
    width: float
    height: float


@dataclass(slots=True, eq=False)
class _Slot:
    """A box, or a link's waypoint, in its stage."""

    stage: int
    height: float
    box: Box | None = None
    left: list[tuple["_Slot", float, float]] = field(default_factory=list)  # neighbour, its height there, ours
    right: list[tuple["_Slot", float, float]] = field(default_factory=list)
    y: float = 0.0


def lay_out(
    boxes: Sequence[Box], links: Sequence[DrawnRoute], *, gap: float, lane: float, channel: float
) -> PictureLayout:
    """Place boxes at least `gap` apart, waypoints in lanes of height `lane`, stages `channel` and labels apart."""
    slots = {box.name: _Slot(box.stage, box.height, box) for box in boxes}
    ways = [_way(slots, link, lane) for link in links]
    stages = _stages([*slots.values(), *(slot for way in ways for slot in way)])
    _order(stages)
    _place(stages, gap)
    lefts, widths, right = _columns(stages, boxes, links, channel)
    placed = {box.name: PlacedBox(box, lefts[box.stage], slots[box.name].y) for box in boxes}
    waypoints = [
        [
            (
                Point(lefts[slot.stage], slot.y + lane / 2),
                Point(lefts[slot.stage] + widths[slot.stage], slot.y + lane / 2),
            )
            for slot in way
        ]
        for way in ways
    ]
    bottom = max(slot.y + slot.height for stage in stages for slot in stage)
    return PictureLayout(placed, waypoints, right, bottom)


def _way(slots: Mapping[str, _Slot], link: DrawnRoute, lane: float) -> list[_Slot]:
    """Make a link's waypoints and join them to its ends."""
    source, target = slots[link.source], slots[link.target]
    assert source.stage < target.stage, (link.source, link.target)
    way = [_Slot(stage, lane) for stage in range(source.stage + 1, target.stage)]
    chain = [source, *way, target]
    for index, (before, after) in enumerate(pairwise(chain)):
        leaves = link.leaves_at if index == 0 else lane / 2
        enters = link.enters_at if after is target else lane / 2
        before.right.append((after, enters, leaves))
        after.left.append((before, leaves, enters))
    return way


def _stages(slots: Iterable[_Slot]) -> list[list[_Slot]]:
    by_stage: defaultdict[int, list[_Slot]] = defaultdict(list)
    for slot in slots:
        by_stage[slot.stage].append(slot)
    return [by_stage[stage] for stage in sorted(by_stage)]


def _order(stages: list[list[_Slot]]) -> None:
    """Sort each stage by the middle of its neighbours, going right and left in turn."""
    for sweep in range(ORDER_SWEEPS):
        rightwards = sweep % 2 == 0
        for stage in stages if rightwards else reversed(stages):
            rank = {id(slot): place for other in stages for place, slot in enumerate(other)}
            stage.sort(key=lambda slot, rank=rank, left=rightwards: _middle(slot, rank, left))  # type: ignore[misc]


def _middle(slot: _Slot, rank: Mapping[int, int], left: bool) -> float:
    neighbours = slot.left if left else slot.right
    if not neighbours:
        return rank[id(slot)]
    # The height at which a link leaves its box breaks ties, so that the links of one box do not cross.
    return mean(rank[id(other)] + there / (other.height + 1) for other, there, _ in neighbours)


def _place(stages: list[list[_Slot]], gap: float) -> None:
    """Stack each stage, then move every slot towards the height that makes its links level."""
    for stage in stages:
        y = 0.0
        for slot in stage:
            slot.y, y = y, y + slot.height + gap
    for sweep in range(PLACE_SWEEPS):
        for stage in stages if sweep % 2 == 0 else reversed(stages):
            wishes = [_wish(slot) for slot in stage]
            _settle(stage, wishes, gap)
    top = min(slot.y for stage in stages for slot in stage)
    for stage in stages:
        for slot in stage:
            slot.y -= top


def _wish(slot: _Slot) -> float:
    """Return the top at which the slot's links would run level."""
    wanted = [other.y + there - here for other, there, here in (*slot.left, *slot.right)]
    return median(wanted) if wanted else slot.y


def _settle(stage: list[_Slot], wishes: Sequence[float], gap: float) -> None:
    """Give each slot its wish as far as order and distance allow; slots that want the same place share it.

    Slots that touch form a block, which is placed where its members' wishes balance (pool adjacent violators).
    """
    blocks: list[tuple[list[int], float]] = []  # members, and the top of the first
    for index, wish in enumerate(wishes):
        members, top = [index], wish
        while blocks and blocks[-1][1] + _extent(stage, blocks[-1][0], gap) > top:
            members = blocks.pop()[0] + members
            top = _balance(stage, members, wishes, gap)
        blocks.append((members, top))
    for members, top in blocks:
        for index in members:
            stage[index].y, top = top, top + stage[index].height + gap


def _extent(stage: list[_Slot], members: Sequence[int], gap: float) -> float:
    return sum(stage[index].height + gap for index in members)


def _balance(stage: list[_Slot], members: Sequence[int], wishes: Sequence[float], gap: float) -> float:
    offset, tops = 0.0, []
    for index in members:
        tops.append(wishes[index] - offset)
        offset += stage[index].height + gap
    return mean(tops)


def _columns(
    stages: list[list[_Slot]], boxes: Sequence[Box], links: Sequence[DrawnRoute], channel: float
) -> tuple[dict[int, float], dict[int, float], float]:
    """Return the left edge and width of each stage, and the right edge of all; labels have room before their target."""
    stage_of = {box.name: box.stage for box in boxes}
    label: defaultdict[int, float] = defaultdict(float)
    for link in links:
        label[stage_of[link.target]] = max(label[stage_of[link.target]], link.label_width)
    lefts: dict[int, float] = {}
    widths: dict[int, float] = {}
    x = 0.0
    for number in sorted({slot.stage for stage in stages for slot in stage}):
        widths[number] = max((box.width for box in boxes if box.stage == number), default=0.0)
        x += (channel + label[number]) if lefts else 0.0
        lefts[number] = x
        x += widths[number]
    return lefts, widths, x
