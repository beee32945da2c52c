"""What can happen to a node, and what it can want: past tense in, imperative out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headwater.control.messages.app_messages import AnyNodeMessage, AppSpec, ChainSpec, Placed
from headwater.engine.queue_records import QueueRecord
from headwater.model.ids import AppId, InstanceId
from headwater.model.peers import NodeId, Peer
from headwater.model.terms import Lot
from headwater.model.time import MILLISECOND, SECOND, Duration
from headwater.overlay.events import CongestionChanged, OverlayConfig, SendingWanted
from headwater.overlay.mistakes import NoteMistake
from headwater.overlay.trees import MulticastWanted, NumberChanged, TreeConfig


@dataclass(frozen=True, slots=True)
class NodeStarted:
    """This node is up; it may join through whoever answers at these addresses."""

    contacts: Sequence[str] = ()


class MessageReceived(NamedTuple):
    """A message has come."""

    message: AnyNodeMessage


@dataclass(frozen=True, slots=True)
class AppSubmitted:
    """A user wants an app to run; or did, before this node was restarted, and its instances were placed like this."""

    spec: AppSpec
    placed: tuple[Placed, ...] = ()
    has_run: bool = False


@dataclass(frozen=True, slots=True)
class AppEndWanted:
    """A user wants an app that was submitted here to end."""

    app: str


@dataclass(frozen=True, slots=True)
class LeaveWanted:
    """This node is to leave in good order."""


@dataclass(frozen=True, slots=True)
class DrainWanted:
    """This node is to leave for good: what runs here has to move elsewhere before."""


@dataclass(frozen=True, slots=True)
class DrainRevoked:
    """This node is to stay after all; what has moved meanwhile stays where it is."""


@dataclass(frozen=True, slots=True)
class NodeTicked:
    """The deadline has come."""


@dataclass(frozen=True, slots=True)
class AppOpened:
    """An app has queues in this node's store."""

    app: str
    id: AppId
    key: NodeId


@dataclass(frozen=True, slots=True)
class AppClosed:
    """Nothing of an app is left in this node's store."""

    app: str


@dataclass(frozen=True, slots=True)
class InstanceOpened:
    """An instance runs here: rows for it are taken here."""

    app: str
    instance: int


@dataclass(frozen=True, slots=True)
class InstanceClosed:
    """An instance runs here no more: what waits for it is to go where it runs."""

    app: str
    instance: int


@dataclass(frozen=True, slots=True)
class RowsWaited:
    """Rows lie here for an instance that runs elsewhere."""

    app: str
    instance: int


NodeEvent = (
    NodeStarted
    | MessageReceived
    | AppSubmitted
    | AppEndWanted
    | SendingWanted
    | MulticastWanted
    | NumberChanged
    | CongestionChanged
    | LeaveWanted
    | DrainWanted
    | DrainRevoked
    | NodeTicked
    | AppOpened
    | AppClosed
    | InstanceOpened
    | InstanceClosed
    | RowsWaited
)


class SendMessage(NamedTuple):
    """Send a message; it may be lost."""

    to: str
    message: AnyNodeMessage


class StartInstance(NamedTuple):
    """Run an instance here, or (negative) read a source."""

    app: str
    instance: int
    chain: ChainSpec
    anchor: Peer
    flow: bytes
    key: NodeId
    lot: Lot = (0, 0)


class AwaitInstance(NamedTuple):
    """Open an app of which an instance is to run here, once what it had elsewhere has come."""

    app: str
    instance: int
    flow: bytes
    key: NodeId


class EmptyInstance(NamedTuple):
    """Run an instance here until what waits for it now is done, then no more: it moves elsewhere."""

    app: str
    instance: int


class StopInstance(NamedTuple):
    """Stop an instance here, or (negative) read a source no more."""

    app: str
    instance: int


class NoteRowsPut(NamedTuple):
    """Take note that rows of another node were put into a queue."""

    instance: InstanceId
    record: QueueRecord


class NoteRowsGone(NamedTuple):
    """Take note that rows of a queue are with another node now."""

    instance: InstanceId
    record: QueueRecord


class NoteRefused(NamedTuple):
    """Take note that something a peer sent was refused, and why."""

    sender: Peer
    why: str


class NoteAppRuns(NamedTuple):
    """Take note that an app that was submitted here runs."""

    app: str


class NotePlaced(NamedTuple):
    """Take note, durably, of where the instances of an app are that was submitted here, and if it has run there."""

    app: str
    placed: tuple[Placed, ...]
    has_run: bool


class NoteAppEnded(NamedTuple):
    """Take note that an app that was submitted here has ended."""

    app: str


class NoteStewardFound(NamedTuple):
    """Take note that a steward was found for an app, after so many hops; -1 if one had to be appointed."""

    app: str
    steward: Peer
    hops: int


class NoteWay(NamedTuple):
    """Take note of our way to the root of an app's tree, ourselves first."""

    key: NodeId
    path: tuple[Peer, ...]
    is_rooted: bool


class NoteHandedDown(NamedTuple):
    """Take note of what was multicast to the members of a tree."""

    key: NodeId
    payload: bytes


class NoteDelivered(NamedTuple):
    """Take note of what was sent to the owner of a key, which we are."""

    key: NodeId
    origin: Peer
    payload: bytes
    hops: int


class NoteActive(NamedTuple):
    """Take note that this node is in the ring."""


class NoteDrained(NamedTuple):
    """Take note that nothing runs here any more. What its store has, and others have yet to fetch, it may not know."""


NodeEffect = (
    SendMessage
    | StartInstance
    | AwaitInstance
    | EmptyInstance
    | StopInstance
    | NoteRowsPut
    | NoteRowsGone
    | NoteRefused
    | NoteAppRuns
    | NotePlaced
    | NoteAppEnded
    | NoteStewardFound
    | NoteWay
    | NoteHandedDown
    | NoteDelivered
    | NoteActive
    | NoteDrained
    | NoteMistake
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CarryingConfig:
    """How rows travel."""

    message_bytes: int = 128 << 10  # small entries are gathered up to this; a larger one goes alone
    window_bytes: int = 1 << 20  # sent and unanswered for one instance: a link of 10 MB/s and 100 ms is kept busy
    gather: Duration = Duration(5 * MILLISECOND)  # how long few rows wait for more while others are under way
    gather_bytes: int = 16 << 10
    answer: Duration = Duration(SECOND // 2)  # then what was sent is sent again: a slow link's round trip, and a commit
    answer_max: Duration = Duration(8 * SECOND)  # each time twice as long as before
    direct_tries: int = 2  # unanswered, rows climb the tree again instead of going where they last went
    tell: Duration = Duration(3 * SECOND)  # between two words of a host to the nodes on its way up
    bound_kept: Duration = Duration(10 * SECOND)  # three such words: then a binding is forgotten
    home_asked: Duration = SECOND  # between two questions of a root to a steward


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineConfig:
    """How a node behaves in the matter of apps."""

    overlay: OverlayConfig = field(default_factory=OverlayConfig)
    trees: TreeConfig = field(default_factory=TreeConfig)
    capacity: int = 8  # operators that run here at most
    busy: int = 3  # operators beyond which a host says no to a steward that thinks it has less to do than it has
    steward_apps_max: int = 50  # then another steward is wanted (AgileDART, section VII-C)
    steward_apps_few: int = 10  # then it hands them over, if another of the zone has room
    search_fanout: int = 3  # zone peers that are asked at each hop of the search
    search_patience: Duration = Duration(2 * SECOND)
    replicas_side: int = 4  # leaves on either side that keep a copy of the register: eight may not die within seconds
    replicas_gather: Duration = Duration(SECOND // 4)  # about what a deployment takes: its steps are copied together
    copy_silence_max: Duration = Duration(12 * SECOND)  # two words of a steward to its keepers, and a bit
    lease: Duration = Duration(10 * SECOND)  # between two words of an owner to the steward of its app
    lease_tries_max: int = 3  # unanswered, another steward is looked for
    retry: Duration = SECOND  # between two askings for anything that has not been answered
    tries_max: int = 5  # then whoever does not answer is passed over
    start_tries_max: int = 3  # of a host that is to start something new: of many that die at once some look well
    beat: Duration = Duration(2 * SECOND)  # of a host to the stewards of its instances
    host_silence_max: Duration = Duration(8 * SECOND)  # four beats: then its instances are placed anew
    keeper_silence_max: Duration = Duration(600 * SECOND)  # of a host with state: a reboot, or a walk to the machine
    steward_silence_max: Duration = Duration(20 * SECOND)  # then a host tells whoever is at its steward's place
    owner_silence_max: Duration = Duration(60 * SECOND)  # then what runs is placed otherwise without its owner's word
    strange_max: Duration = Duration(60 * SECOND)  # what no steward knows for so long is stopped: heirs are quicker
    announce: Duration = Duration(5 * SECOND)  # between two words of a steward to its zone
    steward_unheard_max: Duration = Duration(21 * SECOND)  # four such words: then others do not count on it
    ended_kept: Duration = Duration(300 * SECOND)  # for so long it is remembered that an app has ended
    load_told: Duration = Duration(SECOND // 10)  # changes of load within it are told together,
    load_told_small: Duration = SECOND  # and those that hardly change a steward's mind within this
    carrying: CarryingConfig = field(default_factory=CarryingConfig)
