"""A node's status: plain data for the live table, `--json`, Prometheus and tests."""

from dataclasses import dataclass, field
from enum import StrEnum

from headwater.engine.ledger import Ledger
from headwater.model.ids import Figure, Number


class AppState(StrEnum):
    """The state of an app."""

    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Latency:
    """End-to-end latency of the sampled rows, in milliseconds; None while there is no sample."""

    p50: Figure | None
    p95: Figure | None
    p99: Figure | None
    rows: Number = 0  # in the sample


@dataclass(frozen=True, slots=True)
class OperatorStatus:
    """One vertex of the chain graph: a source, a chain or a sink.

    Sums since the app began on this node; take the difference of two statuses for a rate.
    """

    name: str
    kind: str  # source, chain or sink
    stage: int
    instances: int
    rows_in: int
    rows_out: int
    waiting: int
    empty_us: int  # summed over instances: time with an empty queue; utilisation is 1 - empty / window
    queue_us: int  # T_Q, T_S, T_C, each summed over rows
    schedule_us: int
    compute_us: int
    busy_us: int
    turns: int
    note: str = ""  # "paused", "ended", "failed"
    told: str = ""  # what a source or sink has to say: where it is connected, what it waits for, what it met


@dataclass(frozen=True, slots=True)
class AppStatus:
    """One app."""

    name: str
    state: AppState
    error: str
    started_us: int
    ended_us: int | None
    rows_in: int
    rows_out: int
    latency: Latency  # since the start
    recent: Latency  # of the last few seconds
    operators: tuple[OperatorStatus, ...]
    ledger: Ledger | None = None  # only on request: it reads all queues


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node."""

    at_us: int
    apps: tuple[AppStatus, ...]
    workers: int
    spares: int
    idle: int
    turns: int
    pressure: str
    bytes_held: int
    memory_bytes: int
    disk_bytes: int
    policy: str
    epoch: int
    workers_lost: int
    notes: tuple[str, ...] = field(default=())  # what an operator should know: store full, Spark restarted
