"""The messages between peers of the ring. Every message names its sender with the sender's own address and zone."""

from collections.abc import Hashable
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from headwater.model.ids import Number
from headwater.model.peers import DIGITS, NodeId, Peer

PEERS_MAX: Final = 512  # in one message: rows of a table and a leaf set are far fewer
PAYLOAD_BYTES_MAX: Final = 64 << 10  # routed or multicast; a routed one is buffered until the next hop acknowledges
RTT_US_MAX: Final = 60_000_000  # a timeout is 3 round trips: a forged Pong cannot stretch it beyond 3 minutes
HOPS_MAX: Final = 64  # 128 bits have 32 digits; more hops than twice that are a loop

Peers = Annotated[tuple[Peer, ...], Meta(max_length=PEERS_MAX)]
Hops = Annotated[int, Meta(ge=0, le=HOPS_MAX)]
Payload = Annotated[bytes, Meta(max_length=PAYLOAD_BYTES_MAX)]
Share = Annotated[float, Meta(ge=0, le=1)]
Row = Annotated[int, Meta(ge=0, lt=DIGITS)]  # of a table
Ids = Annotated[tuple[NodeId, ...], Meta(max_length=PEERS_MAX)]


class Message(msgspec.Struct, frozen=True, array_like=True, tag_field="kind"):
    """A message from one peer to another."""

    sender: Peer

    @property
    def brings(self) -> Hashable:
        """A key for coalescing: a message with the same key is superfluous while this one waits; None for never."""
        return None


class Heartbeat(Message, frozen=True, tag="hb"):
    """I am here."""


class Ping(Message, frozen=True, tag="pi"):
    """Are you here? `sent_us` is the asker's own clock, and comes back."""

    sent_us: Number
    about: Number = 0  # not 0: the asker pings on behalf of a third peer, under this number


class Pong(Message, frozen=True, tag="po"):
    """I am here, and my links are as congested as this (0 to 1)."""

    sent_us: Number
    congestion: Share = 0.0
    about: Number = 0
    is_active: bool = True  # False: I am on my way into the ring myself, so do not join through me


class NearbyAsked(Message, frozen=True, tag="na"):
    """Which peers do you know that might be near me?"""


class NearbyTold(Message, frozen=True, tag="nt"):
    """These peers might be near you."""

    peers: Peers


class LeafProbe(Message, frozen=True, tag="lp"):
    """These are my leaves; I found these dead of late. Which are yours?"""

    leaves: Peers
    dead: Ids = ()


class LeafTold(Message, frozen=True, tag="lt"):
    """These are my leaves; I found these dead of late."""

    leaves: Peers
    dead: Ids = ()


class AliveAsked(Message, frozen=True, tag="aa"):
    """Do you hear this peer? I do not (an indirect probe)."""

    whom: Peer


class AliveTold(Message, frozen=True, tag="at"):
    """That peer has just answered me."""

    whom: Peer


class Leaving(Message, frozen=True, tag="lv"):
    """I leave the ring; these were my leaves."""

    leaves: Peers


class RowAsked(Message, frozen=True, tag="ra"):
    """Which peers are in this row of your table?"""

    row: Row


class RowTold(Message, frozen=True, tag="rt"):
    """These peers are in the row, or of your zone, or a random sample."""

    peers: Peers


class Introduced(Message, frozen=True, tag="in"):
    """I have joined: you may route through me."""


class JoinAsked(msgspec.Struct, frozen=True, array_like=True, tag="j"):
    """To the peer nearest to the joiner's id: tell it your leaves. Every hop adds a row of its table."""

    joiner: Peer
    rows: Peers = ()


class PlaceAsked(msgspec.Struct, frozen=True, array_like=True, tag="p"):
    """To the owner of this peer's id: tell it your leaves. An owner other than the peer itself reveals a split ring."""

    asker: Peer


class Carried(msgspec.Struct, frozen=True, array_like=True, tag="c"):
    """A payload for the owner of the key, opaque to the ring."""

    origin: Peer
    payload: Payload


Cargo = JoinAsked | PlaceAsked | Carried


class Routed(Message, frozen=True, tag="ro"):
    """A message on its way to a key. Its number stays the same on all hops, so that duplicates can be dropped."""

    number: Number
    key: NodeId
    cargo: Cargo
    hops: Hops = 0


class RoutedTaken(Message, frozen=True, tag="rk"):
    """I acknowledge a routed message; or, not taken, I refuse a JoinAsked since I am still joining myself."""

    number: Number
    taken: bool = True


class JoinTold(Message, frozen=True, tag="jt"):
    """You are next to me: these are your leaves, and a table to begin with."""

    rows: Peers
    leaves: Peers


class PlaceTold(Message, frozen=True, tag="pt"):
    """Your place is next to me, and these are around it."""

    leaves: Peers


AnyMessage = (
    Heartbeat
    | Ping
    | Pong
    | NearbyAsked
    | NearbyTold
    | LeafProbe
    | LeafTold
    | AliveAsked
    | AliveTold
    | Leaving
    | RowAsked
    | RowTold
    | Introduced
    | Routed
    | RoutedTaken
    | JoinTold
    | PlaceTold
)
