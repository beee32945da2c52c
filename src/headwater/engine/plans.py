"""What a worker needs to know to run a chain: its operators, where its rows go, and who sends it rows."""

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.dataflow.graph import Spread
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
    marks: bool = False  # whether somebody there or further on has to know how far time has come


@dataclass(frozen=True, slots=True)
class Feed:
    """A route that leads to a chain: which input it is, and who sends on it."""

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
    feeds: tuple["Feed", ...] = ()  # all that send rows and marks here

    @property
    def watches_clock(self) -> bool:
        """Whether it has to be given a turn though no row has ever come."""
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
        """Return the chain, ready to run."""
        return OpenChain(self.flow, self.operators)


def channel_of(declaration: int, index: int) -> int:
    """Return the number of the channel on which an instance of an operator, or a source, sends."""
    return declaration << 16 | index
