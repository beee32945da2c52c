"""What a worker needs to run a chain: its operators, where its rows go, and from where it gets rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headwater.dataflow.connectors import is_source
from headwater.dataflow.graph import Chain, Graph, Route, Spread, UnionPlace
from headwater.model.ids import AppId, InstanceId
from headwater.model.keys import groups_of
from headwater.operators.chain import NamedOperator, OpenChain
from headwater.operators.watermarks import WithWatermark


@dataclass(frozen=True, slots=True)
class Outlet:
    """Where the rows of a port go: the queues of the next chain, and how rows are spread over them."""

    spread: Spread
    key: tuple[str, ...]
    targets: tuple[int, ...]
    source: int = 0  # which input of the next chain's first operator
    marks: bool = False  # whether an operator there or downstream needs watermarks


@dataclass(frozen=True, slots=True)
class FeedingRoute:
    """A route that leads to a chain: the input, and the senders on it."""

    source: int
    declaration: int
    senders: int
    one_to_one: bool  # instance i sends to instance i alone


@dataclass(frozen=True)
class ChainPlan:
    """All that a worker needs to run one chain. Kept in the store, read once per worker."""

    app: AppId
    flow: str
    operators: tuple[NamedOperator, ...]
    numbers: tuple[int, ...]  # of the operators among the flow's declarations: names their state
    outlets: tuple[tuple[Outlet, ...], ...]  # for each port of the last operator
    errors: Mapping[int, tuple[Outlet, ...]]  # for operators with dead letters, by index in the chain
    first_instance: int
    parallelism: int = 1
    timed: bool = False  # whether anything in the chain or behind it depends on time
    feeds: tuple["FeedingRoute", ...] = ()  # all that send rows and marks here
    unions: tuple[tuple[int, UnionPlace], ...] = ()  # behind which inputs one is whose columns only rows can tell

    @property
    def watches_clock(self) -> bool:
        """Whether it needs a turn by the clock even before its first row."""
        parts = (named.operator for named in self.operators)
        return any(isinstance(part, WithWatermark) and part.needs_clock for part in parts)

    def groups_of(self, instance: InstanceId) -> range:
        """Return the key groups that an instance owns."""
        return groups_of(instance.number - self.first_instance, self.parallelism)

    def channels_of(self, instance: InstanceId) -> list[tuple[int, int]]:
        """Return the channels, as input and sender, whose watermarks an instance has to wait for."""
        own = instance.number - self.first_instance
        return [
            (feed.source, channel_of(feed.declaration, index))
            for feed in self.feeds
            for index in ((own,) if feed.one_to_one else range(feed.senders))
        ]

    def sender(self, index: int, instance: InstanceId) -> int:
        """Return the number of the channel on which an operator of an instance sends."""
        return channel_of(self.numbers[index], instance.number - self.first_instance)

    def open(self) -> OpenChain:
        """Return the chain with its processors opened."""
        return OpenChain(self.flow, self.operators)


def channel_of(declaration: int, index: int) -> int:
    """Return the number of the channel on which an instance of an operator, or a source, sends."""
    return declaration << 16 | index


def plan_chain(graph: Graph, app: AppId, chain: Chain) -> ChainPlan:
    """Return the plan of a chain."""
    last = graph.operator(chain.operators[-1])
    numbers = {declared.name: number for number, declared in enumerate(graph.declarations)}
    errors = {
        index: outlets
        for index, name in enumerate(chain.operators)
        if (outlets := _outlets(graph, [route for route in graph.routes_from(name) if route.port == "errors"]))
    }
    tail = list(graph.routes_from(chain.operators[-1]))
    return ChainPlan(
        app=app,
        flow=graph.name,
        operators=graph.named_operators(chain),
        numbers=tuple(numbers[name] for name in chain.operators),
        outlets=tuple(_outlets(graph, [route for route in tail if route.port == port]) for port in last.ports),
        errors=errors,
        first_instance=chain.first_instance,
        parallelism=chain.parallelism,
        timed=chain.head in graph.timed,
        feeds=tuple(_feed(graph, route, numbers) for route in graph.routes if route.target == chain.head),
        unions=tuple(graph.open_unions(chain.head).items()),
    )


def _feed(graph: Graph, route: Route, numbers: Mapping[str, int]) -> FeedingRoute:
    origin = graph.by_name[route.source]
    senders = 1 if is_source(origin.part) else origin.parallelism
    one_to_one = route.spread is Spread.FORWARD and len(graph.targets(route.target)) > 1
    return FeedingRoute(route.input, numbers[route.source], senders, one_to_one)


def _outlets(graph: Graph, routes: Sequence[Route]) -> tuple[Outlet, ...]:
    return tuple(
        Outlet(
            route.spread, route.key, tuple(graph.targets(route.target)), route.input, marks=route.target in graph.timed
        )
        for route in routes
    )


def source_outlets(graph: Graph, source: str) -> tuple[Outlet, ...]:
    """Return the outlets of a source."""
    return _outlets(graph, list(graph.routes_from(source)))
