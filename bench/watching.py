"""A window on a running node: two looks at it, and what happened in between.

The node's own figures only grow, so the difference of two looks tells what the time between them cost, without warm-up.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.processes import Usage, cpu_s, memory_mb, usage
from headwater.engine.status import NodeStatus, OperatorStatus
from headwater.runtime.node import Node
from headwater.workers.local.pool import SparkPool

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Look:
    """A node at one instant."""

    status: NodeStatus
    cpu: dict[str, float]  # seconds used so far by the node's process, the JVM and the workers
    usage: Usage
    at_s: float = field(default_factory=time.monotonic)


def look(node: Node) -> Look:
    """Look at a node."""
    cpu = {who: sum(map(cpu_s, pids)) for who, pids in processes_of(node).items()}
    return Look(node.status(), cpu, usage())


def processes_of(node: Node) -> dict[str, list[int]]:
    """Return the processes of a node; with worker threads there is only one."""
    if not isinstance(node.pool, SparkPool):
        return {"node": [os.getpid()]}
    return {"node": [os.getpid()], "jvm": [node.pool.jvm_pid], "workers": sorted(node.dispatcher.worker_pids())}


def memory_of(node: Node) -> dict[str, list[dict[str, float]]]:
    """Return what the processes of a node keep in memory, in megabytes."""
    return {who: [memory_mb(pid) for pid in pids] for who, pids in processes_of(node).items()}


@dataclass(frozen=True, slots=True)
class Window:
    """What a node did between two looks."""

    before: Look
    after: Look

    @property
    def seconds(self) -> float:
        """How long it was."""
        return self.after.at_s - self.before.at_s

    @property
    def turns(self) -> int:
        """Turns given to workers; one may serve several queues."""
        return self.after.status.turns - self.before.status.turns

    def chains(self, only: str | None = None) -> list[OperatorStatus]:
        """Return what the chains of all apps did, or of only one."""
        old = {(app.name, part.name): part for app in self.before.status.apps for part in app.operators}
        return [
            _difference(old.get((app.name, part.name)), part)
            for app in self.after.status.apps
            for part in app.operators
            if part.kind == "chain" and only in (None, app.name)
        ]

    def costs(self) -> Figures:
        """Return what a turn cost, in microseconds of CPU of each process, and how busy the machine was."""
        turns = max(1, self.turns)
        chains = self.chains()
        served = max(1, sum(part.turns for part in chains))
        figures = {
            "turns_per_s": self.turns / self.seconds,
            "queues_per_turn": served / turns,
            "rows_per_queue": sum(part.rows_in for part in chains) / served,
            "compute_us_per_turn": sum(part.busy_us for part in chains) / turns,
            "machine_busy_share": self.after.usage.busy_share_since(self.before.usage),
            "others_cores": self.after.usage.others_since(self.before.usage, self.seconds),
        }
        for who, used in self.after.cpu.items():
            spent = used - self.before.cpu.get(who, 0.0)
            figures[f"{who}_cpu_us_per_turn"] = spent * 1e6 / turns
            figures[f"{who}_cores"] = spent / self.seconds
        return {name: round(value, 3) for name, value in figures.items()}

    def breakdown_of(self, app: str) -> dict[str, Figures]:
        """Return where a row's time went in each chain of an app, in milliseconds per row: T_Q, T_S and T_C."""
        return {part.name: _per_row([part]) for part in self.chains(app)}

    def breakdown_of_all(self) -> Figures:
        """Return the same over all chains of all apps."""
        return _per_row(self.chains())


def rest_ms(mean_latency_ms: float, breakdown: dict[str, Figures]) -> float:
    """Return what the chains do not account for: source and sink pumps, commits, wake-ups, messages."""
    return round(mean_latency_ms - sum(part["total_ms"] for part in breakdown.values()), 3)


def _per_row(parts: Sequence[OperatorStatus]) -> Figures:
    rows = max(1, sum(part.rows_in for part in parts))
    sums = {
        "queue_ms": sum(part.queue_us for part in parts),
        "schedule_ms": sum(part.schedule_us for part in parts),
        "compute_ms": sum(part.compute_us for part in parts),
    }
    figures = {name: round(total / rows / 1_000, 3) for name, total in sums.items()}
    return figures | {"total_ms": round(sum(figures.values()), 3)}


def _difference(old: OperatorStatus | None, new: OperatorStatus) -> OperatorStatus:
    if old is None:
        return new
    return OperatorStatus(
        name=new.name,
        kind=new.kind,
        stage=new.stage,
        instances=new.instances,
        rows_in=new.rows_in - old.rows_in,
        rows_out=new.rows_out - old.rows_out,
        waiting=new.waiting,
        empty_us=new.empty_us - old.empty_us,
        queue_us=new.queue_us - old.queue_us,
        schedule_us=new.schedule_us - old.schedule_us,
        compute_us=new.compute_us - old.compute_us,
        busy_us=new.busy_us - old.busy_us,
        turns=new.turns - old.turns,
    )
