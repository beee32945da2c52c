"""The messages between the nodes of a tree. A tree is named by its key on the ring."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from headwater.model.ids import FIGURE_MAX, NUMBER_MAX, Figure, Number
from headwater.model.peers import NodeId, Peer
from headwater.overlay.messages import Hops, Message, Payload

CHILDREN_MAX: Final = 4_096  # of one node in one tree
SUMMARIES_MAX: Final = 64  # names in one aggregate
SUMMARY_NAME_MAX: Final = 100  # characters of one
PATH_MAX: Final = 64  # nodes from a leaf of a tree to its root; a ring of 128 bits needs 33


class Summary(msgspec.Struct, frozen=True, array_like=True):
    """An aggregate of numbers over a tree: their count, sum, minimum and maximum."""

    count: Number
    total: Figure
    least: Figure
    most: Figure

    def with_(self, other: "Summary") -> "Summary":
        """Return both merged, clamped to what a message can carry."""
        return Summary(
            min(NUMBER_MAX, self.count + other.count),
            max(-FIGURE_MAX, min(FIGURE_MAX, self.total + other.total)),
            min(self.least, other.least),
            max(self.most, other.most),
        )


def of_one(value: float) -> Summary:
    """Return the summary of a single number."""
    return Summary(1, value, value, value)


Summaries = Annotated[dict[Annotated[str, Meta(max_length=SUMMARY_NAME_MAX)], Summary], Meta(max_length=SUMMARIES_MAX)]


class TreeJoin(Message, frozen=True, tag="tj"):
    """I want to be your child in this tree; these are the aggregates of my subtree. Repeated as a heartbeat."""

    key: NodeId
    summaries: Summaries = msgspec.field(default_factory=dict)


class TreeTold(Message, frozen=True, tag="tt"):
    """You are my child, and this is the path from me to the root, as far as I know it."""

    key: NodeId
    path: Annotated[tuple[Peer, ...], Meta(max_length=PATH_MAX)]
    is_rooted: bool  # whether the last of the path is the root


class TreeLeave(Message, frozen=True, tag="tl"):
    """I am not your child, or not your parent, any more."""

    key: NodeId


class TreeUp(Message, frozen=True, tag="tu"):
    """A multicast on its way to the root, which sends it down to all members."""

    key: NodeId
    number: Number
    payload: Payload
    hops: Hops = 0


class TreeDown(Message, frozen=True, tag="td"):
    """A multicast on its way from the root to all members."""

    key: NodeId
    number: Number
    payload: Payload


AnyTreeMessage = TreeJoin | TreeTold | TreeLeave | TreeUp | TreeDown
