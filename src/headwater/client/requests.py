"""The requests of users, and their answers: typed and bounded.

Every answer is plain data, the same for Python and for `--json`.
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
    """Asks to run a flow: its sources at the named nodes, the rest where the cluster finds room."""

    flow: Annotated[bytes, Meta(max_length=FLOW_BYTES_MAX)]  # signed
    zone: Text = ""  # of the owner; empty: the node asked is the owner
    at: Annotated[dict[Text, Text], Meta(max_length=1_000)] = {}  # by source: an address, or the first digits of an id


class ListApps(msgspec.Struct, frozen=True, tag="apps"):
    """Asks for all apps."""


class ListNodes(msgspec.Struct, frozen=True, tag="nodes"):
    """Asks for all nodes."""


class GetStatus(msgspec.Struct, frozen=True, tag="status"):
    """Asks for the status of an app."""

    app: Text


class ExplainApp(msgspec.Struct, frozen=True, tag="explain"):
    """Asks what the flow of an app compiles to."""

    app: Text


class StopApp(msgspec.Struct, frozen=True, tag="stop"):
    """Asks to end an app, and to delete its data on all nodes."""

    app: Text


class GetFlow(msgspec.Struct, frozen=True, tag="flow"):
    """Asks for the flow of an app with its options; only for those who may upgrade it, since it may have passwords."""

    app: Text
    wish: Annotated[bytes, Meta(max_length=WISH_BYTES_MAX)]  # signed


class UpgradeApp(msgspec.Struct, frozen=True, tag="upgrade"):
    """Asks to replace an app by another version of its flow, which continues from the old one's state."""

    app: Text
    flow: Annotated[bytes, Meta(max_length=FLOW_BYTES_MAX)]  # signed
    given_up: Texts = ()  # whose state is discarded
    at: Annotated[dict[Text, Text], Meta(max_length=1_000)] = {}  # where sources are read that it did not have before
    patience_s: Patience = 120.0  # for its rows to drain; then the upgrade is given up
    only_check: bool = False


class DrainWish(StrEnum):
    """What a drain request asks of a node."""

    LEAVE = "leave"  # leave for good: its instances move to others
    STAY = "stay"  # revoke the drain
    TELL = "tell"  # report progress


class Drain(msgspec.Struct, frozen=True, tag="drain"):
    """Asks a node to leave for good, to revoke that, or to report its progress."""

    node: Text  # address, or the first digits of the id
    wish: DrainWish = DrainWish.LEAVE


class GetLogs(msgspec.Struct, frozen=True, tag="logs"):
    """Asks for the last log lines of all nodes, or of one."""

    lines: LineCount = 50
    node: Text = ""


# --- parts of answers -------------------------------------------------------------------------------------------------


class SourceLine(msgspec.Struct, frozen=True):
    """A source on a node."""

    name: Said
    kind: Said
    guarantee: Said
    rows: Number  # since the node was started
    rate: Figure  # rows per second, lately
    state: Said  # reading, paused, ended, stopped (its app has failed), held (for an upgrade)
    told: Said = ""  # what it has to say: where it is connected, what it waits for, what it met


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
    told: Said = ""  # what it has to say


class PartLine(msgspec.Struct, frozen=True):
    """A node's part of an app."""

    node: Said
    zone: Said
    state: Said
    error: Said
    above: SaidMany  # the nodes above it in the app's tree, towards the root, as far as it knows
    troubles: SaidMany  # what could not be started here, and is retried
    sources: Annotated[list[SourceLine], Meta(max_length=LIST_MAX)]
    instances: Annotated[list[InstanceLine], Meta(max_length=LIST_MAX)]
    sinks: Annotated[list[SinkLine], Meta(max_length=LIST_MAX)]
    leaving: CountByName  # rows in outboxes, by instance
    ledger: Ledger
    is_idle: bool  # all sources here have ended or are held, and nothing waits
    is_held: bool  # for an upgrade
    activity: Number  # the sum of all counters of the queues here
    store: Said  # the name of the store it is in
    waits_for: Said = ""  # why nothing of it is computed here for now, as where Spark was lost; empty: it is


class OwnedLine(msgspec.Struct, frozen=True):
    """An app, as its owner lists it."""

    name: Said  # as users call it
    id: Said  # of this submission
    owner: Peer
    submitter: Said
    runs: bool
    version: Number
    upgrading: Said  # the phase of its upgrade; empty: none
    placed: Annotated[tuple[Placed, ...], Meta(max_length=LIST_MAX)]
    sources: Annotated[tuple[Peer, ...], Meta(max_length=LIST_MAX)]  # the nodes at which they are read

    @property
    def places(self) -> tuple[Peer, ...]:
        """The nodes of its sources and instances at present."""
        return (*self.sources, *(one.host for one in self.placed))


@dataclass(frozen=True, slots=True)
class NodeLine:
    """A node, in a list."""

    id: Said
    address: Said
    zone: Said
    load: Number  # operators
    capacity: Number
    apps: Number  # with a part here
    refused: CountByName  # connections and requests, by reason
    notes: SaidAll = ()
    is_draining: bool = False  # it is to leave for good


# --- answers to users -------------------------------------------------------------------------------------------------


class Submitted(msgspec.Struct, frozen=True, tag="submitted"):
    """The app is being deployed."""

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
    """All apps."""

    apps: Annotated[list[AppLine], Meta(max_length=LIST_MAX)]
    silent: SaidMany  # nodes that did not answer, and have something of these, or may have others


class NodesTold(msgspec.Struct, frozen=True, tag="nodes-told"):
    """All nodes."""

    nodes: Annotated[list[NodeLine], Meta(max_length=LIST_MAX)]
    silent: SaidMany


class StatusTold(msgspec.Struct, frozen=True, tag="status-told"):
    """The status of an app over all nodes."""

    name: Said
    id: Said
    version: Number
    owner: Said
    submitter: Said
    state: Said  # deploying, running, finished, failed, troubled (a start is being retried), upgrading, nodes away
    errors: SaidMany
    notes: SaidMany  # the progress of an upgrade, or the result of the last one
    parts: Annotated[list[PartLine], Meta(max_length=LIST_MAX)]
    homes: SaidByName  # the node of each instance, by number
    missing: SaidMany  # instances and sources that are not where they should be
    rows_in: Number
    rows_out: Number
    waiting: Signed  # at the nodes that have answered
    ledger: Ledger
    is_balanced: bool
    activity: Number
    silent: SaidMany  # nodes with a part of it
    unaccounted: SaidMany = []  # silent nodes that had a part before, and whose ledger is missing


class ExplainTold(Explained, frozen=True, kw_only=True, tag="explain-told"):
    """What a flow compiles to: operators, chains, sinks and routes."""

    app: Said
    id: Said
    version: Number
    owner: Said


class FlowTold(msgspec.Struct, frozen=True, tag="flow-told"):
    """An app's flow, as its submitter has signed it."""

    app: Said
    flow: Annotated[bytes, Meta(max_length=FLOW_BYTES_MAX)]


class UpgradeTold(msgspec.Struct, frozen=True, tag="upgrade-told"):
    """An upgrade has begun or, if it was only checked, is possible."""

    app: Said
    id: Said  # of the old version
    successor: Said  # the id of the next version; empty: only checked
    version: Number  # of the successor
    kept: SaidAll  # operators, sources and sinks that keep their state
    begun: SaidAll  # that begin without state
    given_up: SaidAll
    takes_rows: bool  # queued rows too, since the old version has failed and cannot process them
    options: SaidAll = ()  # that both versions have; without passwords


class Stopped(msgspec.Struct, frozen=True, tag="stopped"):
    """The app has ended."""

    app: Said


class DrainTold(msgspec.Struct, frozen=True, tag="drain-told"):
    """The progress of a drain, or that the node stays."""

    node: Said
    left: SaidMany  # instances, by app and number
    waits_for: Said = ""  # after the last instance has moved
    is_leaving: bool = True


class LogLine(msgspec.Struct, frozen=True):
    """One line of a node's log."""

    node: Said
    at_us: Number
    level: Said
    text: Said


class LogsTold(msgspec.Struct, frozen=True, tag="logs-told"):
    """Log lines, the latest last."""

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
