"""What can happen to the ring's machine, and what it can want: past tense in, imperative out."""

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
    """How far a peer has come."""

    IDLE = "idle"
    JOINING = "joining"
    ACTIVE = "active"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class Started:
    """This peer is up; it may join through whoever answers at these addresses. Without any it is the first."""

    contacts: Sequence[str] = ()


class Received(NamedTuple):
    """A message has come."""

    message: AnyMessage


@dataclass(frozen=True, slots=True)
class SendingWanted:
    """Something is to be brought to whoever owns a key."""

    key: NodeId
    payload: bytes


@dataclass(frozen=True, slots=True)
class CongestionChanged:
    """Our own links are as congested as this, 0 to 1."""

    level: float


@dataclass(frozen=True, slots=True)
class PeerDoubted:
    """Somebody above the ring does not hear a peer, which may be in our table without being a leaf."""

    peer: Peer


@dataclass(frozen=True, slots=True)
class PeerHeard:
    """Somebody above the ring hears a peer, which may have been found dead."""

    peer: Peer


@dataclass(frozen=True, slots=True)
class LeavingWanted:
    """This peer is to leave in good order."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """The deadline has come."""


Event = Started | Received | SendingWanted | CongestionChanged | PeerDoubted | PeerHeard | LeavingWanted | Ticked


class Send(NamedTuple):
    """Send a message; it may be lost."""

    to: str
    message: AnyMessage


class Deliver(NamedTuple):
    """This is for us, who own its key."""

    key: NodeId
    origin: Peer
    payload: bytes
    hops: int


class BecomeActive(NamedTuple):
    """Begin to work: the leaf set has answered."""


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
    """How patient and how talkative a peer is."""

    leaf_side: int = LEAF_SIDE
    watched_side: int = 2  # neighbours on each side that hear from us: two may die at once unseen by none
    heartbeat: Duration = SECOND
    silence_max: Duration = Duration(3 * SECOND)  # three heartbeats in a row are not lost by chance
    answer_min: Duration = Duration(500 * MILLISECOND)  # before a question is asked again; longer where the way is
    answer_unknown: Duration = SECOND  # of a peer whose way was never measured
    questions_max: int = 4  # unanswered, a peer is dead: at 5 % loss each way one in 10,000 is buried alive
    vouchers: int = 3  # peers asked whether they hear somebody we do not
    reprieves_max: int = 3  # times that a word from one of them gives it another round
    upkeep: Duration = Duration(15 * SECOND)  # between two looks at table, place and leaves
    newcomers: Duration = Duration(10 * SECOND)  # after we came in, when those who joined meanwhile are in tables
    burial: Duration = Duration(30 * SECOND)  # a peer found dead is not asked again on hearsay for so long
    buried_max: int = 64  # dead peers that are remembered, and asked now and then: partitions heal
    join_patience: Duration = Duration(8 * SECOND)  # then begin to join anew
    near_max: int = 16  # peers of the neighbourhood set
    mates_max: int = 16  # peers of our own zone: among a hundred, messages of three hops reach most
    near_rounds: int = 4  # of looking for a nearer peer to join through
    near_asked: int = 8  # peers measured in each of them
    forwards_max: int = 8  # hops tried for one message at one peer
    held_max: int = (
        1_000  # messages that wait for us to become active, for a question to be answered, or for a next hop
    )
    seen_max: int = 2_048  # numbers of messages that are remembered, to take each once
    announcement: Duration = Duration(100 * MILLISECOND)  # deaths of so long are told together
    proximity: bool = True  # False: a table filled in order of arrival, to measure the difference
