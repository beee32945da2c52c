"""Boxes never overlap, routes go to the right, and waypoints keep clear of boxes."""

from itertools import combinations, pairwise
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from headwater.console.layout import Box, DrawnRoute, PictureLayout, PlacedBox, lay_out

GAP: Final = 20.0
LANE: Final = 10.0
CHANNEL: Final = 50.0


def placed(boxes: list[Box], links: list[DrawnRoute]) -> PictureLayout:
    """Lay out with the distances of these tests."""
    return lay_out(boxes, links, gap=GAP, lane=LANE, channel=CHANNEL)


def linked(source: Box, target: Box) -> DrawnRoute:
    """Return a link between the middles of two boxes."""
    return DrawnRoute(source.name, target.name, source.height / 2, target.height / 2, label_width=30)


@st.composite
def drawings(draw: st.DrawFn) -> tuple[list[Box], list[DrawnRoute]]:
    """Draw up to five stages of up to five boxes, each box fed from stages before it."""
    boxes: list[Box] = []
    links: list[DrawnRoute] = []
    for stage in range(draw(st.integers(1, 5))):
        for number in range(draw(st.integers(1, 5))):
            width, height = draw(st.floats(20, 300)), draw(st.floats(20, 300))
            box = Box(f"{stage}-{number}", stage, width, height)
            before = [other for other in boxes if other.stage < stage]
            if before:
                origins = draw(st.lists(st.sampled_from(before), min_size=1, max_size=4))
                links += [linked(origin, box) for origin in origins]
            boxes.append(box)
    return boxes, links


def overlap(one: PlacedBox, other: PlacedBox) -> bool:
    """Whether two boxes share any point."""
    apart_x = one.x + one.box.width <= other.x or other.x + other.box.width <= one.x
    apart_y = one.y + one.box.height <= other.y or other.y + other.box.height <= one.y
    return not (apart_x or apart_y)


@given(drawings())
def test_no_two_boxes_overlap_and_all_lie_inside(drawing: tuple[list[Box], list[DrawnRoute]]) -> None:
    layout = placed(*drawing)
    for one, other in combinations(layout.boxes.values(), 2):
        assert not overlap(one, other), (one, other)
    for one in layout.boxes.values():
        assert 0 <= one.x <= layout.width - one.box.width + 1e-6
        assert -1e-6 <= one.y <= layout.height - one.box.height + 1e-6


@given(drawings())
def test_boxes_of_a_stage_keep_their_distance(drawing: tuple[list[Box], list[DrawnRoute]]) -> None:
    layout = placed(*drawing)
    for one, other in combinations(layout.boxes.values(), 2):
        if one.box.stage == other.box.stage:
            above, below = sorted((one, other), key=lambda box: box.y)
            assert below.y - (above.y + above.box.height) >= GAP - 1e-6


@given(drawings())
def test_a_route_that_skips_stages_passes_between_their_boxes(drawing: tuple[list[Box], list[DrawnRoute]]) -> None:
    layout = placed(*drawing)
    for way in layout.waypoints:
        for left, right in way:
            for one in layout.boxes.values():
                beside = one.x >= right.x or one.x + one.box.width <= left.x
                assert beside or not one.y < left.y < one.y + one.box.height, (one, left, right)


@given(drawings())
def test_stages_go_from_left_to_right_with_room_for_labels(drawing: tuple[list[Box], list[DrawnRoute]]) -> None:
    boxes, links = drawing
    layout = placed(boxes, links)
    for link in links:
        source, target = layout.boxes[link.source], layout.boxes[link.target]
        assert source.x + source.box.width + CHANNEL + link.label_width <= target.x + 1e-6


def test_a_line_of_equal_boxes_is_drawn_as_a_straight_line() -> None:
    boxes = [Box(str(stage), stage, 100, 40) for stage in range(5)]
    layout = placed(boxes, [linked(*pair) for pair in pairwise(boxes)])
    assert {one.y for one in layout.boxes.values()} == {0.0}


def test_two_lines_side_by_side_do_not_cross() -> None:
    """Whatever order the boxes are given in."""
    a, b = (
        [Box(f"a{stage}", stage, 50, 30) for stage in range(3)],
        [Box(f"b{stage}", stage, 50, 30) for stage in range(3)],
    )
    boxes = [a[0], b[0], b[1], a[1], a[2], b[2]]
    layout = placed(boxes, [linked(a[0], a[1]), linked(a[1], a[2]), linked(b[0], b[1]), linked(b[1], b[2])])
    above = [layout.boxes[one.name].y < layout.boxes[other.name].y for one, other in zip(a, b, strict=True)]
    assert len(set(above)) == 1
