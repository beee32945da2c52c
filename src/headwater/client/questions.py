"""What nodes ask one another on behalf of users, and how they answer: typed, and limited."""

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
from headwater.engine.ledger import Ledger
from headwater.model.ids import LIST_MAX, AppName, Number, SaidMany
from headwater.model.peers import NodeId, Peer

HOPS_MAX: Final = 40  # of a question that goes along the ring; a ring of 128 bits needs 33

Hops = Annotated[int, Meta(ge=0, le=HOPS_MAX)]
Flow = Annotated[bytes, Meta(max_length=FLOW_BYTES_MAX)]  # signed


# --- who is there, and who has what -----------------------------------------------------------------------------------


class Look(msgspec.Struct, frozen=True, tag="look"):
    """What do you have, and whom do you know?"""


class Greet(msgspec.Struct, frozen=True, tag="greet"):
    """Are you there?"""


class Greeted(msgspec.Struct, frozen=True, tag="greeted"):
    """Yes."""

    peer: Peer
    is_draining: bool  # it is to leave for good


class PartInShort(msgspec.Struct, frozen=True, array_like=True):
    """An app of which something is on a node, as far as a list of apps shows it."""

    id: AppName
    owner: NodeId
    sources: Number  # that are open here
    has_failed: bool
    is_troubled: bool  # something could not be started, and is tried again
    is_idle: bool  # all sources here have ended, and nothing waits
    is_open: bool  # its flow is known to be somebody's who may submit, and was built


class Looked(msgspec.Struct, frozen=True, tag="looked"):
    """This."""

    peer: Peer
    leaves: Annotated[tuple[Peer, ...], Meta(max_length=LIST_MAX)]
    node: NodeLine
    owned: Annotated[list[OwnedLine], Meta(max_length=LIST_MAX)]
    awaited: SaidMany  # ids of apps that nobody runs and that are wanted nevertheless, as in an upgrade
    parts: Annotated[list[PartInShort], Meta(max_length=LIST_MAX)]
    runs: SaidMany  # ids of apps of which something runs here


class Whereabouts(msgspec.Struct, frozen=True, array_like=True):
    """An app, and the node that answers for it."""

    name: AppName
    id: AppName
    owner: Peer
    submitter: Text


class Publish(msgspec.Struct, frozen=True, tag="publish"):
    """On its way along the ring to whoever keeps the names like this one: remember where this app is.

    The answer says which app has the name now: one that was there before has it for as long as its owner says so.
    """

    app: Whereabouts
    instead_of: Text = ""  # the id of an app that has ended, or of the version before: that one gives way
    hops: Hops = 0


class Find(msgspec.Struct, frozen=True, tag="find"):
    """On its way along the ring to whoever keeps names like this one: where is this app?"""

    name: Text
    hops: Hops = 0


class AppFound(msgspec.Struct, frozen=True, tag="found"):
    """There; or nobody has said."""

    app: Whereabouts | None


class NameHere(msgspec.Struct, frozen=True, tag="name-here"):
    """Do you answer for an app of this name, or are you about to?"""

    name: Text


class NameTold(msgspec.Struct, frozen=True, tag="name-told"):
    """Yes, or no."""

    is_taken: bool


# --- apps -------------------------------------------------------------------------------------------------------------


class SubmitHere(msgspec.Struct, frozen=True, tag="submit-here"):
    """Be the owner of this app."""

    flow: Flow
    submitter: Text  # counts only where nobody has certificates; else it is whoever has signed the flow
    at: Annotated[dict[Text, Peer], Meta(max_length=1_000)]


class StatusHere(msgspec.Struct, frozen=True, tag="status-here"):
    """How is this app of yours?"""

    app: Text


class ExplainHere(msgspec.Struct, frozen=True, tag="explain-here"):
    """What does the flow of this app of yours compile to?"""

    app: Text


class PartHere(msgspec.Struct, frozen=True, tag="part-here"):
    """How is what you have of this app?"""

    app: Text


class NodeRoom(msgspec.Struct, frozen=True, array_like=True):
    """How many operators run on a node, of all apps, and how many may."""

    load: Number = 0
    capacity: Number = 0


class PartTold(msgspec.Struct, frozen=True, tag="part-told"):
    """Like this; or there is nothing of it here."""

    part: PartLine | None
    room: NodeRoom = NodeRoom()


class EndHere(msgspec.Struct, frozen=True, tag="end-here"):
    """End this app of yours, and have all nodes delete what they have of it."""

    app: Text
    whose: Text = ""  # only if this user has submitted it: who keeps its name may not know; empty: whoever has


class Forget(msgspec.Struct, frozen=True, tag="forget"):
    """This app has ended: delete what you have of it."""

    app: AppName


class LogsHere(msgspec.Struct, frozen=True, tag="logs-here"):
    """What have you written to your log?"""

    lines: LineCount


class DrainHere(msgspec.Struct, frozen=True, tag="drain-here"):
    """Leave for good, or stay after all; or say how far you are."""

    wish: DrainWish


class KeepAccount(msgspec.Struct, frozen=True, tag="keep-account"):
    """I leave for good, and this is what I have done for your app."""

    app: AppName
    store: Text
    ledger: Ledger


# --- upgrades ---------------------------------------------------------------------------------------------------------


class FlowHere(msgspec.Struct, frozen=True, tag="flow-here"):
    """What is the flow of this app of yours? Somebody wants to read it who has signed that."""

    app: Text
    wish: Annotated[bytes, Meta(max_length=WISH_BYTES_MAX)]


class UpgradeHere(msgspec.Struct, frozen=True, tag="upgrade-here"):
    """Replace this app of yours by another version of its flow."""

    app: Text
    flow: Flow
    given_up: Texts
    at: Annotated[dict[Text, Peer], Meta(max_length=1_000)]
    patience_s: Patience
    only_check: bool


class Adopt(msgspec.Struct, frozen=True, tag="adopt"):
    """Let this app go on with what you have of another one, whose next version it is; or only say whether it could."""

    app: AppName
    key: NodeId
    flow: Flow
    predecessor: AppName
    given_up: Texts
    takes_rows: bool
    only_check: bool = False


class HoldApp(msgspec.Struct, frozen=True, tag="hold"):
    """Read no sources of this app, and let the clock begin nothing, until its upgrade is over; or again."""

    app: AppName
    is_held: bool


class Acknowledged(msgspec.Struct, frozen=True, tag="done"):
    """So it is."""


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
