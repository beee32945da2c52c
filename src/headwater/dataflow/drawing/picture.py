"""A graph as an SVG picture: stages from left to right, chains as boxes around their operators, routes as curves."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final
from xml.sax.saxutils import escape

from headwater.dataflow.drawing import glyphs
from headwater.dataflow.drawing.glyphs import DETAIL_PX, NAME_PX, POINT
from headwater.dataflow.drawing.layout import Box, DrawnRoute, PictureLayout, PlacedBox, Point, lay_out
from headwater.dataflow.graph import Graph, Route, Spread
from headwater.dataflow.stream import ERRORS
from headwater.model.quoting import plural
from headwater.operators.base import OnError

MARGIN: Final = 28.0
HEADER: Final = 76.0  # title, and the numbers of the stages
FOOTER: Final = 30.0  # the legend
PAD: Final = 11.0  # between a chain's border and its operators
LINE: Final = 42.0  # height of an operator: two lines of text
BETWEEN: Final = 12.0  # from operator to operator in a chain
END: Final = 48.0  # height of a source or sink
PORT: Final = 20.0  # between two routes at the same box
GAP: Final = 30.0
LANE: Final = 14.0
CHANNEL: Final = 62.0  # where routes bend
RUN: Final = 20.0  # straight part before a box, besides the label
LEEWAY: Final = 13.0  # how far from the middle of its operator a single route may attach, to become straight

_MEANINGS: Final = {
    "key": "rows of equal key to the same instance",
    "balance": "batches in turn to all instances",
    "dead": "dead letters",
}


@dataclass(frozen=True, slots=True)
class PicturePart:
    """One operator, source or sink: two lines of text, and the ports that routes leave from."""

    name: str
    detail: str
    ports: tuple[str, ...]
    entries: int = 0

    @property
    def width(self) -> float:
        """The width of its text."""
        name = glyphs.shortened(self.name, glyphs.NAME_CHARS_MAX)
        detail = glyphs.shortened(self.detail, glyphs.DETAIL_CHARS_MAX)
        return max(glyphs.text_width(name, NAME_PX), glyphs.text_width(detail, DETAIL_PX)) + 24

    def height(self, least: float) -> float:
        """Return the height of its text and its routes."""
        return max(least, PORT * self.entries, PORT * len(self.ports))

    def port_offset(self, port: str, height: float) -> float:
        """Return the distance of a port from its top."""
        return _spread_out(self.ports.index(port), len(self.ports), height)


@dataclass(frozen=True, slots=True)
class Group:
    """A source, a sink or a chain, with its parts from top to bottom."""

    role: str
    stage: int
    instances: int
    parts: tuple[PicturePart, ...]

    @property
    def name(self) -> str:
        """The name by which routes refer to it."""
        return self.parts[0].name

    @property
    def inset(self) -> float:
        """The distance of the parts from the border; a chain of one has none."""
        return PAD if len(self.parts) > 1 else 0.0

    @property
    def width(self) -> float:
        """The width of the widest part, with the border."""
        return max(part.width for part in self.parts) + 2 * self.inset + (0 if self.role == "chain" else POINT)

    @property
    def heights(self) -> list[float]:
        """The heights of its parts."""
        return [part.height(LINE if self.role == "chain" else END) for part in self.parts]

    @property
    def height(self) -> float:
        """The height of all parts, with the border."""
        return sum(self.heights) + BETWEEN * (len(self.parts) - 1) + 2 * self.inset

    def tops(self) -> list[float]:
        """Return the distance of each part from the top of the group."""
        tops, y = [], self.inset
        for height in self.heights:
            tops.append(y)
            y += height + BETWEEN
        return tops

    def leaves_at(self, name: str, port: str) -> float:
        """Return the distance of a port from the top of the group."""
        index = [part.name for part in self.parts].index(name)
        return self.tops()[index] + self.parts[index].port_offset(port, self.heights[index])

    def enters_at(self, entry: int) -> float:
        """Return the distance of a route's entry from the top of the group."""
        return self.inset + _spread_out(entry, self.parts[0].entries, self.heights[0])


def _spread_out(index: int, count: int, height: float) -> float:
    return height / 2 + PORT * (index - (count - 1) / 2)


def draw(graph: Graph) -> str:
    """Return the picture of a graph."""
    groups = {group.name: group for group in _groups(graph)}
    group_of = {part.name: group for group in groups.values() for part in group.parts}
    links = _links(graph.routes, groups, group_of)
    layout = lay_out(_boxes(groups), links, gap=GAP, lane=LANE, channel=CHANNEL)
    links = _levelled(_untangled(links, layout, groups), layout, groups)
    kinds = list(dict.fromkeys(_kind(route) for route in graph.routes))
    width, height = max(layout.width, _header_width(graph), _legend_width(kinds)), layout.height
    body = [
        _header(graph, layout),
        *(_draw_group(group, layout.boxes[name]) for name, group in groups.items()),
        *(_draw_route(graph.routes[at], link, layout, group_of, at) for at, link in enumerate(links)),
        _legend(kinds, height),
    ]
    footer = FOOTER if _legend_width(kinds) else 0.0
    whole_width, whole_height = width + 2 * MARGIN, height + HEADER + footer + 2 * MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole_width:.0f} {whole_height:.0f}" '
        f'width="{whole_width:.0f}" height="{whole_height:.0f}" role="img">'
        f"<title>Flow {escape(graph.name)}</title>{glyphs.style()}{glyphs.tips(kinds)}"
        f"{glyphs.rounded(0, 0, whole_width, whole_height, 'bg', 12)}"
        f'<g transform="translate({MARGIN:.0f} {MARGIN + HEADER:.0f})">{"".join(body)}</g></svg>\n'
    )


def _groups(graph: Graph) -> list[Group]:
    entries: defaultdict[str, int] = defaultdict(int)
    ports: defaultdict[str, list[str]] = defaultdict(list)
    for route in graph.routes:
        entries[route.target] += 1
        if route.port not in ports[route.source]:
            ports[route.source].append(route.port)
            ports[route.source].sort(key=ERRORS.__eq__)  # dead letters leave below the others

    def part(name: str, detail: str) -> PicturePart:
        return PicturePart(name, detail, tuple(ports[name]), entries[name])

    made = [
        Group("source", 0, 1, (part(name, f"{spec.kind} · {spec.guarantee}"),)) for name, spec in graph.sources.items()
    ]
    for chain in graph.chains:
        parts = tuple(part(name, _detail(graph, name)) for name in chain.operators)
        made.append(Group("chain", chain.stage, chain.parallelism, parts))
    for sink in graph.sinks:
        spec = graph.sink(sink.name)
        made.append(Group("sink", sink.stage, 1, (part(sink.name, f"{spec.kind} · {spec.guarantee}"),)))
    return made


def _detail(graph: Graph, name: str) -> str:
    operator = graph.operator(name)
    key = f" by {', '.join(operator.key)}" if operator.key else ""
    dead = " · dead letters" if operator.on_error is OnError.DEAD_LETTER else ""
    return f"{operator.kind}{key}{dead}"


def _boxes(groups: dict[str, Group]) -> list[Box]:
    """Make the boxes of a stage equally wide, so that its edges line up."""
    widest: defaultdict[int, float] = defaultdict(float)
    for group in groups.values():
        widest[group.stage] = max(widest[group.stage], group.width)
    return [Box(name, group.stage, widest[group.stage], group.height) for name, group in groups.items()]


def _links(routes: Sequence[Route], groups: dict[str, Group], group_of: dict[str, Group]) -> list[DrawnRoute]:
    entered: defaultdict[str, int] = defaultdict(int)
    links = []
    for route in routes:
        source, target = group_of[route.source], groups[route.target]
        links.append(
            DrawnRoute(
                source.name,
                target.name,
                source.leaves_at(route.source, route.port),
                target.enters_at(entered[target.name]),
                glyphs.text_width(_label(route), DETAIL_PX) + RUN,
            )
        )
        entered[target.name] += 1
    return links


def _untangled(links: Sequence[DrawnRoute], layout: PictureLayout, groups: dict[str, Group]) -> list[DrawnRoute]:
    """Let the routes into one box enter in the order of their heights."""
    coming: defaultdict[str, list[int]] = defaultdict(list)
    for index, link in enumerate(links):
        coming[link.target].append(index)
    untangled = list(links)
    for target, indices in coming.items():
        indices.sort(key=lambda index: _last_height(links[index], layout, index))
        for entry, index in enumerate(indices):
            untangled[index] = replace(links[index], enters_at=groups[target].enters_at(entry))
    return untangled


def _levelled(links: Sequence[DrawnRoute], layout: PictureLayout, groups: dict[str, Group]) -> list[DrawnRoute]:
    """Let a single route attach a little higher or lower at a chain, if that makes it straight."""
    levelled = []
    for index, link in enumerate(links):
        drop = layout.boxes[link.target].y + link.enters_at - _last_height(link, layout, index)
        enters_alone = sum(other.target == link.target for other in links) == 1
        leaves_alone = sum(other.source == link.source for other in links) == 1 and not layout.waypoints[index]
        if abs(drop) <= LEEWAY and enters_alone and groups[link.target].role == "chain":
            link = replace(link, enters_at=link.enters_at - drop)
        elif abs(drop) <= LEEWAY and leaves_alone and groups[link.source].role == "chain":
            link = replace(link, leaves_at=link.leaves_at + drop)
        levelled.append(link)
    return levelled


def _last_height(link: DrawnRoute, layout: PictureLayout, index: int) -> float:
    way = layout.waypoints[index]
    return way[-1][1].y if way else layout.boxes[link.source].y + link.leaves_at


def _draw_group(group: Group, at: PlacedBox) -> str:
    x, y, width, height = at.x, at.y, at.box.width, at.box.height
    if group.role != "chain":
        shape = glyphs.source_shape if group.role == "source" else glyphs.sink_shape
        indent = 14.0 if group.role == "source" else 14.0 + POINT
        return shape(x, y, width, height) + _draw_text(group.parts[0], x + indent, y, height)
    behind = "".join(glyphs.rounded(x + d, y + d, width, height, "chain") for d in (8.0, 4.0)[: group.instances - 1])
    drawn = [behind, glyphs.rounded(x, y, width, height, "chain" if group.inset else "operator")]
    tops, heights = group.tops(), group.heights
    for index, part in enumerate(group.parts):
        top = y + tops[index]
        if group.inset:
            drawn.append(glyphs.rounded(x + PAD, top, width - 2 * PAD, heights[index], "operator", 7))
        if index:
            middle = x + width / 2
            drawn.append(f'<path class="inner forward" d="M{middle:.1f} {top - BETWEEN:.1f}V{top:.1f}"/>')
        drawn.append(_draw_text(part, x + group.inset + 12, top, heights[index]))
    if group.instances > 1:
        drawn.append(glyphs.badge(x + width, y - 3, f"×{group.instances}"))
    return "".join(drawn)


def _draw_text(part: PicturePart, x: float, top: float, height: float) -> str:
    name = glyphs.shortened(part.name, glyphs.NAME_CHARS_MAX)
    detail = glyphs.shortened(part.detail, glyphs.DETAIL_CHARS_MAX)
    middle = top + height / 2
    return glyphs.words(x, middle - 2.5, name, "name", whole=part.name) + glyphs.words(
        x, middle + 12.5, detail, "muted", whole=part.detail
    )


def _draw_route(route: Route, link: DrawnRoute, layout: PictureLayout, group_of: dict[str, Group], index: int) -> str:
    source, target = layout.boxes[link.source], layout.boxes[link.target]
    end_y = target.y + link.enters_at
    end_x = target.x + (_notch(link.enters_at, target.box.height) if group_of[link.target].role == "sink" else 0)
    origin = group_of[route.source]
    start_x = source.x + source.box.width - (origin.inset if origin.role == "chain" else 0)
    path = [Point(start_x, source.y + link.leaves_at), Point(source.x + source.box.width, source.y + link.leaves_at)]
    for left, right in layout.waypoints[index]:
        path += [left, right]
    path += [Point(target.x - link.label_width, end_y), Point(end_x, end_y)]
    kind = _kind(route)
    label = glyphs.words(
        target.x - link.label_width + RUN / 2 - 3,
        end_y - 4.5,
        _label(route),
        "muted" if kind == "forward" else f"{kind}-tip",
    )
    return glyphs.route(path, kind) + label


def _notch(entry: float, height: float) -> float:
    return POINT * max(0.0, 1 - abs(entry - height / 2) / (height / 2))


def _kind(route: Route) -> str:
    if route.port == ERRORS:
        return "dead"
    return {Spread.KEY: "key", Spread.BALANCE: "balance", Spread.FORWARD: "forward"}[route.spread]


def _label(route: Route) -> str:
    spread = f"key({', '.join(route.key)})" if route.key else route.spread.value
    return glyphs.shortened(spread if route.port == "out" else f"{route.port} · {spread}", glyphs.DETAIL_CHARS_MAX)


def _subtitle(graph: Graph) -> str:
    return f"{plural(len(graph.chains), 'chain')} · {plural(graph.instance_count, 'queue')}"


def _header_width(graph: Graph) -> float:
    return max(glyphs.text_width(graph.name, 17), glyphs.text_width(_subtitle(graph), DETAIL_PX))


def _header(graph: Graph, layout: PictureLayout) -> str:
    lefts = {placed.box.stage: placed.x for placed in layout.boxes.values()}
    stages = "".join(glyphs.words(x, -14, f"stage {stage}", "muted") for stage, x in sorted(lefts.items()))
    title = glyphs.words(0, -HEADER + 14, graph.name, "name title")
    return title + glyphs.words(0, -HEADER + 30, _subtitle(graph), "muted") + stages


def _legend_width(kinds: Sequence[str]) -> float:
    return sum(glyphs.text_width(_MEANINGS[kind], DETAIL_PX) + 64 for kind in kinds if kind in _MEANINGS)


def _legend(kinds: Sequence[str], bottom: float) -> str:
    x, y, drawn = 0.0, bottom + FOOTER + 4, ""
    for kind in kinds:
        if kind in _MEANINGS:
            drawn += glyphs.route([Point(x, y), Point(x + 30, y)], kind)
            drawn += glyphs.words(x + 38, y + 3.7, _MEANINGS[kind], "muted")
            x += glyphs.text_width(_MEANINGS[kind], DETAIL_PX) + 64
    return drawn
