"""The requests that nodes make to one another on behalf of users, and their answers: typed and bounded."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from headwater.client.requests import (
    WISH_BYTES_MAX,
    DrainTold,
    DrainWish,
    ExplainTold,
    FlowTold,
    LineCount,
    LogsTold,
    NodeLine,
    OwnedLine,
    PartLine,
    Patience,
    StatusTold,
    Submitted,
    Text,
    Texts,
    UpgradeTold,
)
from headwater.control.messages.app_messages import FLOW_BYTES_MAX
from headwater.engine.cuts import Unsettled
from headwater.engine.ledger import Ledger
from headwater.model.ids import LIST_MAX, AppName, Number, SaidMany
from headwater.model.peers import NodeId, Peer

HOPS_MAX: Final = 40  # of a question that goes along the ring; a ring of 128 bits needs 33

Hops = Annotated[int, Meta(ge=0, le=HOPS_MAX)]
Flow = Annotated[bytes, Meta(max_length=FLOW_BYTES_MAX)]  # signed


# --- who is there, and who has what -----------------------------------------------------------------------------------


class Look(msgspec.Struct, frozen=True, tag="look"):
    """Asks what the node has, and which neighbours it knows."""


class Greet(msgspec.Struct, frozen=True, tag="greet"):
    """Asks whether the node is there."""


class Greeted(msgspec.Struct, frozen=True, tag="greeted"):
    """The node is there."""

    peer: Peer
    is_draining: bool  # it is to leave for good


class PartInShort(msgspec.Struct, frozen=True, array_like=True):
    """A node's part of an app, as short as a list of apps needs it."""

    id: AppName
    owner: NodeId
    sources: Number  # that are open on this node
    has_failed: bool
    is_troubled: bool  # something could not be started, and is retried
    is_idle: bool  # all sources here have ended, and nothing waits
    is_open: bool  # its flow is known to be somebody's who may submit, and was built
    unsettled: Unsettled = Unsettled()  # rows that wait here, and may be in doubt


class Looked(msgspec.Struct, frozen=True, tag="looked"):
    """What a node has: its neighbours on the ring, the apps it owns, and its parts of apps."""

    peer: Peer
    leaves: Annotated[tuple[Peer, ...], Meta(max_length=LIST_MAX)]
    node: NodeLine
    owned: Annotated[list[OwnedLine], Meta(max_length=LIST_MAX)]
    awaited: SaidMany  # ids of apps that run nowhere yet but must be kept, as in an upgrade
    parts: Annotated[list[PartInShort], Meta(max_length=LIST_MAX)]
    runs: SaidMany  # ids of apps with an instance or source here


class Whereabouts(msgspec.Struct, frozen=True, array_like=True):
    """An app and its owner."""

    name: AppName
    id: AppName
    owner: Peer
    submitter: Text


class Publish(msgspec.Struct, frozen=True, tag="publish"):
    """Tells the node that keeps the entry of a name where the app is; forwarded along the ring.

    The answer says which app has the name: one that was there before keeps it for as long as its owner publishes it.
    """

    app: Whereabouts
    instead_of: Text = ""  # the id of the app that this one may replace: it has ended, or is the version before
    hops: Hops = 0


class Find(msgspec.Struct, frozen=True, tag="find"):
    """Asks the node that keeps the entry of a name where the app is; forwarded along the ring."""

    name: Text
    hops: Hops = 0


class AppFound(msgspec.Struct, frozen=True, tag="found"):
    """The entry of a name; None if there is none."""

    app: Whereabouts | None


class NameHere(msgspec.Struct, frozen=True, tag="name-here"):
    """Asks whether the node owns an app of this name, or is about to."""

    name: Text


class NameTold(msgspec.Struct, frozen=True, tag="name-told"):
    """Whether the name is in use."""

    is_taken: bool


# --- apps -------------------------------------------------------------------------------------------------------------


class SubmitHere(msgspec.Struct, frozen=True, tag="submit-here"):
    """Asks the node to be the owner of this app."""

    flow: Flow
    submitter: Text  # without certificates; with them it is the signer of the flow
    at: Annotated[dict[Text, Peer], Meta(max_length=1_000)]


class StatusHere(msgspec.Struct, frozen=True, tag="status-here"):
    """Asks the owner for the status of an app."""

    app: Text


class ExplainHere(msgspec.Struct, frozen=True, tag="explain-here"):
    """Asks the owner what the flow of an app compiles to."""

    app: Text


class PartHere(msgspec.Struct, frozen=True, tag="part-here"):
    """Asks a node for its part of an app."""

    app: Text


class NodeRoom(msgspec.Struct, frozen=True, array_like=True):
    """How many operators run on a node, of all apps, and how many may."""

    load: Number = 0
    capacity: Number = 0


class PartTold(msgspec.Struct, frozen=True, tag="part-told"):
    """A node's part of an app; None if it has none."""

    part: PartLine | None
    room: NodeRoom = NodeRoom()


class EndHere(msgspec.Struct, frozen=True, tag="end-here"):
    """Asks the owner to end an app, and to have it deleted on all nodes."""

    app: Text
    whose: Text = ""  # only if this user has submitted it, which the owner checks; empty: any user


class Forget(msgspec.Struct, frozen=True, tag="forget"):
    """Tells a node that an app has ended, so that it deletes its part."""

    app: AppName


class LogsHere(msgspec.Struct, frozen=True, tag="logs-here"):
    """Asks a node for the last lines of its log."""

    lines: LineCount


class DrainHere(msgspec.Struct, frozen=True, tag="drain-here"):
    """Asks a node to leave for good, to revoke that, or to report its progress."""

    wish: DrainWish


class KeepAccount(msgspec.Struct, frozen=True, tag="keep-account"):
    """Gives an app's owner the ledger of a node that leaves for good."""

    app: AppName
    store: Text
    ledger: Ledger


# --- upgrades ---------------------------------------------------------------------------------------------------------


class FlowHere(msgspec.Struct, frozen=True, tag="flow-here"):
    """Asks the owner for the flow of an app, on behalf of the user who has signed the wish."""

    app: Text
    wish: Annotated[bytes, Meta(max_length=WISH_BYTES_MAX)]


class UpgradeHere(msgspec.Struct, frozen=True, tag="upgrade-here"):
    """Asks the owner to replace an app by another version of its flow."""

    app: Text
    flow: Flow
    given_up: Texts
    at: Annotated[dict[Text, Peer], Meta(max_length=1_000)]
    patience_s: Patience
    only_check: bool


class Adopt(msgspec.Struct, frozen=True, tag="adopt"):
    """Asks a node to pass its part of an app to the next version, or only to check that it could."""

    app: AppName
    key: NodeId
    flow: Flow
    predecessor: AppName
    given_up: Texts
    takes_rows: bool
    only_check: bool = False


class HoldApp(msgspec.Struct, frozen=True, tag="hold"):
    """Asks a node to stop an app's sources and timers for an upgrade, or to start them again."""

    app: AppName
    is_held: bool


class Acknowledged(msgspec.Struct, frozen=True, tag="done"):
    """The request was carried out."""


QuestionKind = (
    Look
    | Greet
    | Publish
    | Find
    | NameHere
    | SubmitHere
    | StatusHere
    | ExplainHere
    | PartHere
    | EndHere
    | Forget
    | LogsHere
    | FlowHere
    | UpgradeHere
    | Adopt
    | HoldApp
    | DrainHere
    | KeepAccount
)
AnswerKind = (
    Looked
    | Greeted
    | AppFound
    | NameTold
    | Submitted
    | StatusTold
    | ExplainTold
    | PartTold
    | FlowTold
    | UpgradeTold
    | Acknowledged
    | LogsTold
    | DrainTold
)
question_decoder: Final = msgspec.msgpack.Decoder(QuestionKind)
answer_decoder: Final[msgspec.msgpack.Decoder[AnswerKind]] = msgspec.msgpack.Decoder(AnswerKind)
encoder: Final = msgspec.msgpack.Encoder()
