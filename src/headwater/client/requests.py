"""What users ask nodes, and how they are answered: typed, and limited.

Every answer is plain data, the same for a program that asks in Python and for `--json`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from headwater.control.messages.app_messages import FLOW_BYTES_MAX, Placed
from headwater.dataflow.explained import Explained
from headwater.engine.ledger import Ledger
from headwater.engine.status import Latency
from headwater.links.requests import RequestTable
from headwater.model.ids import LIST_MAX, CountByName, Figure, Number, Said, SaidAll, SaidByName, SaidMany, Signed
from headwater.model.peers import Peer
from headwater.security.identity import Role

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

    name: Said
    kind: Said
    guarantee: Said
    rows: Number  # since the node was started
    rate: Figure  # rows a second, of late
    state: Said  # reading, paused, ended, stopped (its app has failed), held (for an upgrade)


class InstanceLine(msgspec.Struct, frozen=True):
    """An instance that runs on a node."""

    number: Number
    name: Said
    rows_in: Number
    rows_out: Number
    waiting: Signed
    rate: Figure


class SinkLine(msgspec.Struct, frozen=True):
    """A sink that is written on a node."""

    number: Number  # of the queue that feeds it
    name: Said
    kind: Said
    guarantee: Said
    rows: Number
    waiting: Signed
    rate: Figure
    latency: Latency  # of late


class PartLine(msgspec.Struct, frozen=True):
    """What a node has of an app."""

    node: Said
    zone: Said
    state: Said
    error: Said
    above: SaidMany  # the nodes above it in the app's tree, up to the root, as far as it knows
    troubles: SaidMany  # what could not be started here, and is tried again
    sources: Annotated[list[SourceLine], Meta(max_length=LIST_MAX)]
    instances: Annotated[list[InstanceLine], Meta(max_length=LIST_MAX)]
    sinks: Annotated[list[SinkLine], Meta(max_length=LIST_MAX)]
    leaving: CountByName  # rows that wait here for instances elsewhere, by instance
    ledger: Ledger
    is_idle: bool  # all sources here have ended or are held, and nothing waits
    is_held: bool  # for an upgrade
    activity: Number  # grows with all that happens to the queues here
    store: Said  # the name of the store it is in


class OwnedLine(msgspec.Struct, frozen=True):
    """An app that was submitted to a node."""

    name: Said  # as users call it
    id: Said  # of this submission
    owner: Peer
    submitter: Said
    runs: bool
    version: Number
    upgrading: Said  # how far an upgrade is; empty: there is none
    placed: Annotated[tuple[Placed, ...], Meta(max_length=LIST_MAX)]
    sources: Annotated[tuple[Peer, ...], Meta(max_length=LIST_MAX)]  # the nodes at which they are read

    @property
    def places(self) -> tuple[Peer, ...]:
        """The nodes it is on now: those of its sources, and the hosts of its instances."""
        return (*self.sources, *(one.host for one in self.placed))


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One node."""

    id: Said
    address: Said
    zone: Said
    load: Number  # operators
    capacity: Number
    apps: Number  # of which something is here
    refused: CountByName  # connections and requests, by reason
    notes: SaidAll = ()
    is_draining: bool = False  # it is to leave for good


# --- answers to users -------------------------------------------------------------------------------------------------


class Submitted(msgspec.Struct, frozen=True, tag="submitted"):
    """It is being deployed."""

    app: Said
    id: Said
    owner: Said


class AppLine(msgspec.Struct, frozen=True):
    """One app, in a list."""

    name: Said
    id: Said
    owner: Said
    submitter: Said
    state: Said
    version: Number
    nodes: Number


class AppsTold(msgspec.Struct, frozen=True, tag="apps-told"):
    """These."""

    apps: Annotated[list[AppLine], Meta(max_length=LIST_MAX)]
    silent: SaidMany  # nodes that did not answer, and have something of these, or may have others


class NodesTold(msgspec.Struct, frozen=True, tag="nodes-told"):
    """These."""

    nodes: Annotated[list[NodeLine], Meta(max_length=LIST_MAX)]
    silent: SaidMany


class StatusTold(msgspec.Struct, frozen=True, tag="status-told"):
    """How an app is, over all nodes."""

    name: Said
    id: Said
    version: Number
    owner: Said
    submitter: Said
    state: Said  # deploying, running, finished, failed, troubled (something is tried again), upgrading, nodes away
    errors: SaidMany
    notes: SaidMany  # how far an upgrade is, or how the last one ended
    parts: Annotated[list[PartLine], Meta(max_length=LIST_MAX)]
    homes: SaidByName  # the node of each instance, by number
    missing: SaidMany  # instances and sources that are not where they should be
    rows_in: Number
    rows_out: Number
    waiting: Signed  # at the nodes that have told
    ledger: Ledger
    is_balanced: bool
    activity: Number
    silent: SaidMany  # nodes that have something of it
    unaccounted: SaidMany = []  # silent nodes that had something of it before, and whose account is lacking


class ExplainTold(Explained, frozen=True, kw_only=True, tag="explain-told"):
    """This: operators, chains, sinks and routes."""

    app: Said
    id: Said
    version: Number
    owner: Said


class FlowTold(msgspec.Struct, frozen=True, tag="flow-told"):
    """This, as its submitter has signed it."""

    app: Said
    flow: Annotated[bytes, Meta(max_length=FLOW_BYTES_MAX)]


class UpgradeTold(msgspec.Struct, frozen=True, tag="upgrade-told"):
    """An upgrade was begun, or could be."""

    app: Said
    id: Said  # of the version that is to be replaced
    successor: Said  # the id of the one that takes its place; empty: only checked
    version: Number  # of the successor
    kept: SaidAll  # operators, sources and sinks that go on where they stand
    begun: SaidAll  # that begin with nothing
    given_up: SaidAll
    takes_rows: bool  # that wait, since the version before has failed and cannot let them through
    options: SaidAll = ()  # that the version before was told, and the next one is too; without passwords


class Stopped(msgspec.Struct, frozen=True, tag="stopped"):
    """It has ended."""

    app: Said


class DrainTold(msgspec.Struct, frozen=True, tag="drain-told"):
    """It is going to leave, once this has moved; or it stays."""

    node: Said
    left: SaidMany  # instances, by app and number
    waits_for: Said = ""  # when no instance runs there any more
    is_leaving: bool = True


class LogLine(msgspec.Struct, frozen=True):
    """One line of a node's log."""

    node: Said
    at_us: Number
    level: Said
    text: Said


class LogsTold(msgspec.Struct, frozen=True, tag="logs-told"):
    """These, the latest last."""

    lines: Annotated[list[LogLine], Meta(max_length=LIST_MAX)]
    silent: SaidMany


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
