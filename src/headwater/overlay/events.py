"""The events that the ring's machine takes (past tense) and the effects that it returns (imperative)."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from headwater.model.peers import NodeId, Peer
from headwater.model.time import MILLISECOND, SECOND, Duration
from headwater.overlay.leafset import LEAF_SIDE
from headwater.overlay.messages import AnyMessage
from headwater.overlay.mistakes import NoteMistake


class PeerPhase(StrEnum):
    """How far a peer's membership of the ring has come."""

    IDLE = "idle"
    JOINING = "joining"
    ACTIVE = "active"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class Started:
    """This peer is up and joins through one of these addresses; without any it is the first peer of a ring."""

    contacts: Sequence[str] = ()


class Received(NamedTuple):
    """A message of another peer has arrived."""

    message: AnyMessage


@dataclass(frozen=True, slots=True)
class SendingWanted:
    """A payload is to be routed to the owner of a key."""

    key: NodeId
    payload: bytes


@dataclass(frozen=True, slots=True)
class CongestionChanged:
    """Our own links have this congestion, 0 to 1."""

    level: float


@dataclass(frozen=True, slots=True)
class PeerDoubted:
    """A layer above the ring does not hear a peer; the ring sends heartbeats to few, so it has to probe this one."""

    peer: Peer


@dataclass(frozen=True, slots=True)
class PeerHeard:
    """A layer above the ring hears a peer that the ring may have found dead."""

    peer: Peer


@dataclass(frozen=True, slots=True)
class LeavingWanted:
    """This peer is to leave the ring and tell the others so."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """The machine's deadline has passed."""


Event = Started | Received | SendingWanted | CongestionChanged | PeerDoubted | PeerHeard | LeavingWanted | Ticked


class Send(NamedTuple):
    """Send a message; it may be lost."""

    to: str
    message: AnyMessage


class Deliver(NamedTuple):
    """Hand over a payload whose key we own."""

    key: NodeId
    origin: Peer
    payload: bytes
    hops: int


class BecomeActive(NamedTuple):
    """Begin to work: every peer that should be our leaf has answered."""


class NoteLeafGained(NamedTuple):
    """Take note that a peer is among our leaves."""

    peer: Peer


class NoteLeafLost(NamedTuple):
    """Take note that a peer is not among our leaves any more; `dead` unless it only lost its place to nearer ones."""

    peer: Peer
    dead: bool


Effect = Send | Deliver | BecomeActive | NoteLeafGained | NoteLeafLost | NoteMistake


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlayConfig:
    """Timeouts, intervals and bounds of a peer."""

    leaf_side: int = LEAF_SIDE
    watched_side: int = 2  # neighbours on each side that get our heartbeats: if two die at once, others still notice
    heartbeat: Duration = SECOND
    silence_max: Duration = Duration(3 * SECOND)  # three heartbeats in a row are not lost by chance
    answer_min: Duration = Duration(500 * MILLISECOND)  # least timeout of a question; 3 round trips if those are longer
    answer_unknown: Duration = SECOND  # the timeout for a peer whose round trip was never measured
    questions_max: int = 4  # unanswered ones after which a peer is dead: at 5 % loss each way, wrong once in 10,000
    vouchers: int = 3  # leaves asked whether they hear a silent one (SWIM's indirect probes)
    reprieves_max: int = 3  # times that such a leaf's answer makes us ask the silent one all over again
    upkeep: Duration = Duration(15 * SECOND)  # between two rounds of anti-entropy over table, place and leaves
    newcomers: Duration = Duration(10 * SECOND)  # from joining until peers that joined at the same time are in tables
    burial: Duration = Duration(30 * SECOND)  # how long hearsay does not make us ask a peer that we found dead
    buried_max: int = 64  # tombstones of dead peers, which are pinged now and then: partitions heal
    join_patience: Duration = Duration(8 * SECOND)  # the timeout of one attempt to join
    near_max: int = 16  # peers of the neighbourhood set
    mates_max: int = 16  # peers of our own zone: in a zone of a hundred, messages of three hops reach most
    near_rounds: int = 4  # searches for a nearer peer to join through
    near_asked: int = 8  # peers measured in each of them
    forwards_max: int = 8  # hops tried for one message at one peer
    held_max: int = (
        1_000  # messages that wait for us to become active, for a question to be answered, or for a next hop
    )
    seen_max: int = 2_048  # numbers of messages that are remembered, to drop duplicates
    announcement: Duration = Duration(100 * MILLISECOND)  # deaths found within it are told in one message
    proximity: bool = True  # False: a table filled in order of arrival, to measure the difference
