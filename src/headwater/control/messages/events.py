"""The events that a node's machine takes (past tense) and the effects that it returns (imperative)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headwater.control.messages.app_messages import AnyNodeMessage, AppSpec, ChainSpec, Placed
from headwater.engine.cuts import InstanceCut
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
    """This node is up and joins the ring through one of these addresses."""

    contacts: Sequence[str] = ()


class MessageReceived(NamedTuple):
    """A message of another node has arrived."""

    message: AnyNodeMessage


@dataclass(frozen=True, slots=True)
class AppSubmitted:
    """A user submitted an app; `placed` and `has_run` restore what this node had noted before a restart."""

    spec: AppSpec
    placed: tuple[Placed, ...] = ()
    has_run: bool = False
    is_known: bool = False  # it was submitted before, so a steward may have it


@dataclass(frozen=True, slots=True)
class AppEndWanted:
    """A user wants an app that was submitted here to end."""

    app: str


@dataclass(frozen=True, slots=True)
class LeaveWanted:
    """This node is to leave the ring and tell the others so; it may come back."""


@dataclass(frozen=True, slots=True)
class DrainWanted:
    """This node is to leave for good: its instances have to move elsewhere first."""


@dataclass(frozen=True, slots=True)
class DrainRevoked:
    """This node is to stay after all; instances that have moved stay where they are."""


@dataclass(frozen=True, slots=True)
class NodeTicked:
    """The machine's deadline has passed."""


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
    """An instance runs here: this node takes rows for it."""

    app: str
    instance: int


@dataclass(frozen=True, slots=True)
class InstanceClosed:
    """An instance has stopped here: rows that wait for it are to go where it runs."""

    app: str
    instance: int


@dataclass(frozen=True, slots=True)
class RowsWaited:
    """Rows wait here for an instance that runs elsewhere."""

    app: str
    instance: int


class AgreedPlacement(NamedTuple):
    """Record of an owner: where the instances of its app are placed, and whether they have run there."""

    app: str
    placed: tuple[Placed, ...]
    has_run: bool


class EndedApp(NamedTuple):
    """Record of an owner: its app has ended, and nothing of it has to be remembered."""

    app: str


DurableRecord = AgreedPlacement | EndedApp


class Persisted(NamedTuple):
    """A record is durable."""

    record: DurableRecord


class Refused(NamedTuple):
    """A record could not be written, and nothing that depends on it was carried out."""

    record: DurableRecord
    why: str


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
    | Persisted
    | Refused
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
    cuts: tuple[InstanceCut, ...] = ()  # take only rows that are sent under the last of them


class AwaitInstance(NamedTuple):
    """Open an app of which an instance is to run here once its state has arrived."""

    app: str
    instance: int
    flow: bytes
    key: NodeId


class EmptyInstance(NamedTuple):
    """Run an instance here until the rows that wait for it are done, then stop it: it moves elsewhere."""

    app: str
    instance: int


class StopInstance(NamedTuple):
    """Stop an instance here, or (negative) stop reading a source."""

    app: str
    instance: int


class NoteRowsPut(NamedTuple):
    """Take note that rows of another node were put into a queue."""

    instance: InstanceId
    record: QueueRecord


class NoteRowsGone(NamedTuple):
    """Take note that another node has acknowledged rows of a queue here."""

    instance: InstanceId
    record: QueueRecord


class Persist(NamedTuple):
    """Write a record durably, and only then carry out what others are told of it (write-ahead).

    Answered by Persisted or Refused. The machine changes what it says of itself when it hears Persisted, never before.
    """

    record: DurableRecord
    then: tuple["SendMessage | NoteAppEnded", ...] = ()


class NoteRefused(NamedTuple):
    """Take note that this node refused something a peer sent, and why."""

    sender: Peer
    why: str


class NoteAppRuns(NamedTuple):
    """Take note that an app that was submitted here runs."""

    app: str


class NoteAppEnded(NamedTuple):
    """Take note that an app that was submitted here has ended."""

    app: str


class NoteStewardFound(NamedTuple):
    """Take note that a steward was found for an app, after so many hops; -1 if one had to be appointed."""

    app: str
    steward: Peer
    hops: int


class NoteWay(NamedTuple):
    """Take note of our path to the root of an app's tree, ourselves first."""

    key: NodeId
    path: tuple[Peer, ...]
    is_rooted: bool


class NoteHandedDown(NamedTuple):
    """Take note of a multicast to the members of a tree."""

    key: NodeId
    payload: bytes


class NoteDelivered(NamedTuple):
    """Take note of a payload that was routed to us as the owner of a key."""

    key: NodeId
    origin: Peer
    payload: bytes
    hops: int


class NoteActive(NamedTuple):
    """Take note that this node is in the ring."""


class NoteDrained(NamedTuple):
    """Take note that nothing runs here any more; the store may still hold state that others have yet to fetch."""


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
    | Persist
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
    """Message sizes, windows and timeouts of rows between nodes."""

    message_bytes: int = 128 << 10  # small entries are gathered up to this; a larger one goes alone
    window_bytes: int = 1 << 20  # unacknowledged for one instance: a link of 10 MB/s and 100 ms is kept busy
    gather: Duration = Duration(5 * MILLISECOND)  # how long few rows wait for more while others are under way
    gather_bytes: int = 16 << 10
    answer: Duration = Duration(SECOND // 2)  # then what was sent is sent again: a slow link's round trip, and a commit
    answer_max: Duration = Duration(8 * SECOND)  # each time twice as long as before
    direct_tries: int = 2  # unanswered, rows climb the tree again instead of going where they last went
    behind_tries: int = 6  # unanswered by any other, rows go to a host that was passed over: half a minute
    tell: Duration = Duration(3 * SECOND)  # between two words of a host to the nodes on its way up
    bound_kept: Duration = Duration(10 * SECOND)  # three such words: then a binding is forgotten
    home_asked: Duration = SECOND  # between two questions of a root to a steward


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineConfig:
    """Bounds, intervals and timeouts of a node."""

    overlay: OverlayConfig = field(default_factory=OverlayConfig)
    trees: TreeConfig = field(default_factory=TreeConfig)
    capacity: int = 8  # operators that run here at most
    busy: int = 3  # operators above which a host refuses a steward that underestimates its load
    steward_apps_max: int = 50  # of one steward; further apps need another one (AgileDART, section VII-C)
    steward_apps_few: int = 10  # a steward with so few hands them over, if another of the zone has room
    search_fanout: int = 3  # zone peers that are asked at each hop of the search
    search_patience: Duration = Duration(2 * SECOND)
    replicas_side: int = 4  # leaves on either side with a replica of the register: lost only if all eight die together
    replicas_gather: Duration = Duration(SECOND // 4)  # about what a deployment takes: its steps go together
    copy_silence_max: Duration = Duration(12 * SECOND)  # two comparisons of a steward with its replicas, and a margin
    lease: Duration = Duration(10 * SECOND)  # between two renewals of an owner with the steward of its app
    lease_tries_max: int = 3  # unanswered renewals after which the owner looks for another steward
    retry: Duration = SECOND  # the retransmission interval of whatever has not been answered
    tries_max: int = 5  # unanswered requests after which a node is passed over
    start_tries_max: int = 3  # the same for a host that is to start something new: it may be dead and not yet missed
    beat: Duration = Duration(2 * SECOND)  # of a host to the stewards of its instances
    host_silence_max: Duration = Duration(8 * SECOND)  # four beats: then the steward places its instances anew
    keeper_silence_max: Duration = Duration(600 * SECOND)  # of a host with state: a reboot, or a walk to the machine
    steward_silence_max: Duration = Duration(20 * SECOND)  # then a host tells the owner of its steward's id
    owner_silence_max: Duration = Duration(60 * SECOND)  # then a steward places instances without the owner's agreement
    strange_max: Duration = Duration(60 * SECOND)  # then a host stops what no steward claims; heirs take less time
    announce: Duration = Duration(5 * SECOND)  # between two announcements of a steward to its zone
    steward_unheard_max: Duration = Duration(21 * SECOND)  # four of them: then others forget the steward
    ended_kept: Duration = Duration(300 * SECOND)  # how long a steward keeps the tombstone of an ended app
    load_told: Duration = Duration(SECOND // 10)  # changes of load within it are told together,
    load_told_small: Duration = SECOND  # and within this those too small to matter for placement
    carrying: CarryingConfig = field(default_factory=CarryingConfig)
