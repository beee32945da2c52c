"""What became of an app that was run to its end: the same for `hw.run` and for `Cluster.wait`.

What only one of the two can know has a value that says so: a cluster tells no latency over all nodes, and a run in this
process has no owner and no parts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headwater.engine.ledger import Ledger
from headwater.engine.status import AppStatus, Latency, OperatorStatus

if TYPE_CHECKING:
    from headwater.client.requests import PartLine, StatusTold

UNMEASURED: Final = Latency(None, None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What became of an app."""

    name: str
    state: str  # finished, or running if all is done that there was to do
    rows_in: int
    rows_out: int
    waiting: int  # rows that are still in queues
    ledger: Ledger
    is_balanced: bool  # whether every row is accounted for, on all nodes
    errors: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    # Of a run in this process.
    started_us: int | None = None
    ended_us: int | None = None
    latency: Latency = UNMEASURED  # since the start
    recent: Latency = UNMEASURED  # of the last few seconds
    operators: tuple[OperatorStatus, ...] = ()

    # Of an app in a cluster.
    id: str = ""
    version: int | None = None
    owner: str = ""
    submitter: str = ""
    parts: "list[PartLine]" = field(default_factory=list)
    homes: Mapping[str, str] = field(default_factory=dict)  # the node of each instance, by number
    missing: list[str] = field(default_factory=list)  # instances and sources that are not where they should be
    activity: int | None = None
    silent: list[str] = field(default_factory=list)  # nodes that have something of it, and do not answer
    unaccounted: list[str] = field(default_factory=list)  # those of them whose account is lacking

    @property
    def error(self) -> str:
        """What went wrong, in one text; nothing if nothing did."""
        return "; ".join(self.errors)


def result_here(app: AppStatus) -> RunResult:
    """Return what became of an app on a node of this process, from its status with the ledger."""
    assert app.ledger is not None, "a result is made of a status with its ledger"
    return RunResult(
        name=app.name,
        state=app.state,
        rows_in=app.rows_in,
        rows_out=app.rows_out,
        waiting=app.ledger.waiting,
        ledger=app.ledger,
        is_balanced=app.ledger.balanced,
        errors=[app.error] if app.error else [],
        notes=[f"{one.name}: {one.told}" for one in app.operators if one.told],
        started_us=app.started_us,
        ended_us=app.ended_us,
        latency=app.latency,
        recent=app.recent,
        operators=app.operators,
    )


def result_in_cluster(told: "StatusTold") -> RunResult:
    """Return what became of an app in a cluster, as its owner tells it."""
    return RunResult(
        name=told.name,
        state=told.state,
        rows_in=told.rows_in,
        rows_out=told.rows_out,
        waiting=told.waiting,
        ledger=told.ledger,
        is_balanced=told.is_balanced,
        errors=told.errors,
        notes=told.notes,
        id=told.id,
        version=told.version,
        owner=told.owner,
        submitter=told.submitter,
        parts=told.parts,
        homes=told.homes,
        missing=told.missing,
        activity=told.activity,
        silent=told.silent,
        unaccounted=told.unaccounted,
    )
