"""What users ask nodes, and how they are answered: typed, and limited.

Every answer is plain data, the same for a program that asks in Python and for `--json`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from headwater.dataflow.explained import Explained
from headwater.engine.ledger import Ledger
from headwater.model.peers import Peer
from headwater.node.messages import FLOW_BYTES_MAX, Placed
from headwater.runtime.identity import Role
from headwater.runtime.links.requests import RequestTable
from headwater.runtime.status import Latency

LOG_LINES_MAX: Final = 1_000
PATIENCE_S_MAX: Final = 86_400
WISH_BYTES_MAX: Final = 8_192  # a name, a certificate and a signature

Text = Annotated[str, Meta(max_length=300)]
Texts = Annotated[tuple[Text, ...], Meta(max_length=1_000)]
Patience = Annotated[float, Meta(gt=0, le=PATIENCE_S_MAX)]
LineCount = Annotated[int, Meta(ge=1, le=LOG_LINES_MAX)]

# --- of users ---------------------------------------------------------------------------------------------------------


class Submit(msgspec.Struct, frozen=True, tag="submit"):
    """Run this flow: its sources at these nodes, by name, and all else where the cluster finds room."""

    flow: Annotated[bytes, Meta(max_length=FLOW_BYTES_MAX)]  # signed
    zone: Text = ""  # of the node that answers for it; none: the one that is asked
    at: Annotated[dict[Text, Text], Meta(max_length=1_000)] = {}  # address, or the first digits of the id, by source


class ListApps(msgspec.Struct, frozen=True, tag="apps"):
    """Which apps are there?"""


class ListNodes(msgspec.Struct, frozen=True, tag="nodes"):
    """Which nodes are there?"""


class GetStatus(msgspec.Struct, frozen=True, tag="status"):
    """How is an app?"""

    app: Text


class ExplainApp(msgspec.Struct, frozen=True, tag="explain"):
    """What does the flow of an app compile to?"""

    app: Text


class StopApp(msgspec.Struct, frozen=True, tag="stop"):
    """End an app, and delete what it has on all nodes."""

    app: Text


class GetFlow(msgspec.Struct, frozen=True, tag="flow"):
    """What is the flow of an app, and what was it told? Only for who may upgrade it: there may be passwords in it."""

    app: Text
    wish: Annotated[bytes, Meta(max_length=WISH_BYTES_MAX)]  # signed


class UpgradeApp(msgspec.Struct, frozen=True, tag="upgrade"):
    """Let another version of an app's flow take its place, which goes on where this one stands."""

    app: Text
    flow: Annotated[bytes, Meta(max_length=FLOW_BYTES_MAX)]  # signed
    given_up: Texts = ()  # of which nothing need be kept
    at: Annotated[dict[Text, Text], Meta(max_length=1_000)] = {}  # where sources are read that it did not have before
    patience_s: Patience = 120.0  # for its rows to be through; then it goes on as it is
    only_check: bool = False


class DrainWish(StrEnum):
    """What is wanted of a node that may leave for good."""

    LEAVE = "leave"  # what runs there moves to others
    STAY = "stay"  # after all
    TELL = "tell"  # how far it is


class Drain(msgspec.Struct, frozen=True, tag="drain"):
    """Let a node leave for good, or stay after all; or say how far it is."""

    node: Text  # address, or the first digits of the id
    wish: DrainWish = DrainWish.LEAVE


class GetLogs(msgspec.Struct, frozen=True, tag="logs"):
    """What have nodes, or this one, written to their logs of late?"""

    lines: LineCount = 50
    node: Text = ""


# --- parts of answers -------------------------------------------------------------------------------------------------


class SourceLine(msgspec.Struct, frozen=True):
    """A source that is read on a node, or would be."""

    name: str
    kind: str
    guarantee: str
    rows: int  # since the node was started
    rate: float  # rows a second, of late
    state: str  # reading, paused, ended, stopped (its app has failed), held (for an upgrade)


class InstanceLine(msgspec.Struct, frozen=True):
    """An instance that runs on a node."""

    number: int
    name: str
    rows_in: int
    rows_out: int
    waiting: int
    rate: float


class SinkLine(msgspec.Struct, frozen=True):
    """A sink that is written on a node."""

    number: int  # of the queue that feeds it
    name: str
    kind: str
    guarantee: str
    rows: int
    waiting: int
    rate: float
    latency: Latency  # of late


class PartLine(msgspec.Struct, frozen=True):
    """What a node has of an app."""

    node: str
    zone: str
    state: str
    error: str
    above: list[str]  # the nodes above it in the app's tree, up to the root, as far as it knows
    troubles: list[str]  # what could not be started here, and is tried again
    sources: list[SourceLine]
    instances: list[InstanceLine]
    sinks: list[SinkLine]
    leaving: dict[str, int]  # rows that wait here for instances elsewhere, by instance
    ledger: Ledger
    is_idle: bool  # all sources here have ended or are held, and nothing waits
    is_held: bool  # for an upgrade
    activity: int  # grows with all that happens to the queues here
    store: str  # the name of the store it is in


class OwnedLine(msgspec.Struct, frozen=True):
    """An app that was submitted to a node."""

    name: str  # as users call it
    id: str  # of this submission
    owner: Peer
    submitter: str
    runs: bool
    version: int
    upgrading: str  # how far an upgrade is; empty: there is none
    placed: tuple[Placed, ...]
    sources: tuple[Peer, ...]  # the nodes at which they are read

    @property
    def places(self) -> tuple[Peer, ...]:
        """The nodes it is on now: those of its sources, and the hosts of its instances."""
        return (*self.sources, *(one.host for one in self.placed))


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One node."""

    id: str
    address: str
    zone: str
    load: int  # operators
    capacity: int
    apps: int  # of which something is here
    refused: dict[str, int]  # connections and requests, by reason
    notes: tuple[str, ...] = ()
    is_draining: bool = False  # it is to leave for good


# --- answers to users -------------------------------------------------------------------------------------------------


class Submitted(msgspec.Struct, frozen=True, tag="submitted"):
    """It is being deployed."""

    app: str
    id: str
    owner: str


class AppLine(msgspec.Struct, frozen=True):
    """One app, in a list."""

    name: str
    id: str
    owner: str
    submitter: str
    state: str
    version: int
    nodes: int


class AppsTold(msgspec.Struct, frozen=True, tag="apps-told"):
    """These."""

    apps: list[AppLine]
    silent: list[str]  # nodes that did not answer, and have something of these, or may have others


class NodesTold(msgspec.Struct, frozen=True, tag="nodes-told"):
    """These."""

    nodes: list[NodeLine]
    silent: list[str]


class StatusTold(msgspec.Struct, frozen=True, tag="status-told"):
    """How an app is, over all nodes."""

    name: str
    id: str
    version: int
    owner: str
    submitter: str
    state: str  # deploying, running, finished, failed, troubled (something is tried again), upgrading, nodes away
    errors: list[str]
    notes: list[str]  # how far an upgrade is, or how the last one ended
    parts: list[PartLine]
    homes: dict[str, str]  # the node of each instance, by number
    missing: list[str]  # instances and sources that are not where they should be
    rows_in: int
    rows_out: int
    waiting: int  # at the nodes that have told
    ledger: Ledger
    is_balanced: bool
    activity: int
    silent: list[str]  # nodes that have something of it
    unaccounted: list[str] = []  # silent nodes that had something of it before, and whose account is lacking


class ExplainTold(Explained, frozen=True, kw_only=True, tag="explain-told"):
    """This: operators, chains, sinks and routes."""

    app: str
    id: str
    version: int
    owner: str


class FlowTold(msgspec.Struct, frozen=True, tag="flow-told"):
    """This, as its submitter has signed it."""

    app: str
    flow: Annotated[bytes, Meta(max_length=FLOW_BYTES_MAX)]


class UpgradeTold(msgspec.Struct, frozen=True, tag="upgrade-told"):
    """An upgrade was begun, or could be."""

    app: str
    id: str  # of the version that is to be replaced
    successor: str  # the id of the one that takes its place; empty: only checked
    version: int  # of the successor
    kept: tuple[str, ...]  # operators, sources and sinks that go on where they stand
    begun: tuple[str, ...]  # that begin with nothing
    given_up: tuple[str, ...]
    takes_rows: bool  # that wait, since the version before has failed and cannot let them through
    options: tuple[str, ...] = ()  # that the version before was told, and the next one is too; without passwords


class Stopped(msgspec.Struct, frozen=True, tag="stopped"):
    """It has ended."""

    app: str


class DrainTold(msgspec.Struct, frozen=True, tag="drain-told"):
    """It is going to leave, once this has moved; or it stays."""

    node: str
    left: list[str]  # instances, by app and number
    waits_for: str = ""  # when no instance runs there any more
    is_leaving: bool = True


class LogLine(msgspec.Struct, frozen=True):
    """One line of a node's log."""

    node: str
    at_us: int
    level: str
    text: str


class LogsTold(msgspec.Struct, frozen=True, tag="logs-told"):
    """These, the latest last."""

    lines: list[LogLine]
    silent: list[str]


REQUESTS: Final = RequestTable(
    {
        Submit: Role.SUBMIT,
        StopApp: Role.SUBMIT,  # of one's own apps; all others need the role operate
        UpgradeApp: Role.SUBMIT,  # likewise
        GetFlow: Role.SUBMIT,  # likewise
        ListApps: Role.SEE,
        ListNodes: Role.SEE,
        GetStatus: Role.SEE,
        ExplainApp: Role.SEE,
        GetLogs: Role.SEE,
        Drain: Role.OPERATE,
    },
    answers=(
        Submitted,
        AppsTold,
        NodesTold,
        StatusTold,
        ExplainTold,
        Stopped,
        FlowTold,
        UpgradeTold,
        LogsTold,
        DrainTold,
    ),
)
