"""What peers of the ring say to one another. Every message names its sender, as the sender knows itself."""

from collections.abc import Hashable
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from headwater.model.ids import Number
from headwater.model.peers import DIGITS, NodeId, Peer

PEERS_MAX: Final = 512  # in one message: rows of a table and a leaf set are far fewer
PAYLOAD_BYTES_MAX: Final = 64 << 10  # of what is carried, or goes down a tree: it is kept until the next hop has it
RTT_US_MAX: Final = 60_000_000  # questions wait for thrice as long: whoever says more is not waited for even longer
HOPS_MAX: Final = 64  # 128 bits have 32 digits; more hops than twice that are a loop

Peers = Annotated[tuple[Peer, ...], Meta(max_length=PEERS_MAX)]
Hops = Annotated[int, Meta(ge=0, le=HOPS_MAX)]
Payload = Annotated[bytes, Meta(max_length=PAYLOAD_BYTES_MAX)]
Share = Annotated[float, Meta(ge=0, le=1)]
Row = Annotated[int, Meta(ge=0, lt=DIGITS)]  # of a table
Ids = Annotated[tuple[NodeId, ...], Meta(max_length=PEERS_MAX)]


class Message(msgspec.Struct, frozen=True, array_like=True, tag_field="kind"):
    """Something a peer said."""

    sender: Peer

    @property
    def brings(self) -> Hashable:
        """What it brings, if one that brings the same is superfluous while this one waits to be sent; else None."""
        return None


class Heartbeat(Message, frozen=True, tag="hb"):
    """I am here."""


class Ping(Message, frozen=True, tag="pi"):
    """Are you here? `sent_us` is the asker's own clock, and comes back."""

    sent_us: Number
    about: Number = 0  # of an asker who wants to know it for somebody else


class Pong(Message, frozen=True, tag="po"):
    """I am here, and my links are as congested as this (0 to 1)."""

    sent_us: Number
    congestion: Share = 0.0
    about: Number = 0
    is_active: bool = True  # False: I am on my way into the ring myself, so do not join through me


class NearbyAsked(Message, frozen=True, tag="na"):
    """Whom do you know that might be near me?"""


class NearbyTold(Message, frozen=True, tag="nt"):
    """These."""

    peers: Peers


class LeafProbe(Message, frozen=True, tag="lp"):
    """These are my leaves; I found these dead of late. Which are yours?"""

    leaves: Peers
    dead: Ids = ()


class LeafTold(Message, frozen=True, tag="lt"):
    """These are mine."""

    leaves: Peers
    dead: Ids = ()


class AliveAsked(Message, frozen=True, tag="aa"):
    """Is this peer there? I do not hear it."""

    whom: Peer


class AliveTold(Message, frozen=True, tag="at"):
    """It is: it has just answered me."""

    whom: Peer


class Leaving(Message, frozen=True, tag="lv"):
    """I go; these were my leaves."""

    leaves: Peers


class RowAsked(Message, frozen=True, tag="ra"):
    """Who is in this row of your table?"""

    row: Row


class RowTold(Message, frozen=True, tag="rt"):
    """These; and of all that I know, these might be near you."""

    peers: Peers


class Introduced(Message, frozen=True, tag="in"):
    """I have joined: you may route through me."""


class JoinAsked(msgspec.Struct, frozen=True, array_like=True, tag="j"):
    """Whoever is nearest to this peer's id: tell it your leaves. On the way everybody adds a row of their table."""

    joiner: Peer
    rows: Peers = ()


class PlaceAsked(msgspec.Struct, frozen=True, array_like=True, tag="p"):
    """Whoever thinks to be nearest to this peer's id: tell it your leaves. It should be the peer itself."""

    asker: Peer


class Carried(msgspec.Struct, frozen=True, array_like=True, tag="c"):
    """Something for whoever owns the key; the ring does not look into it."""

    origin: Peer
    payload: Payload


Cargo = JoinAsked | PlaceAsked | Carried


class Routed(Message, frozen=True, tag="ro"):
    """On its way to a key. The number is the same on the whole way: what comes twice is taken once."""

    number: Number
    key: NodeId
    cargo: Cargo
    hops: Hops = 0


class RoutedTaken(Message, frozen=True, tag="rk"):
    """I have it; or, not taken, it asks for a place in a ring that I am not in myself yet."""

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
