"""One run: a flow under a policy at a rate, and everything that was seen of it meanwhile."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import mean, pstdev
from typing import Final

from bench.scheduler_contention import Contention
from bench.watching import Figures, Window
from headwater.engine.policies import PolicyName
from headwater.engine.status import OperatorStatus
from headwater.model.histogram import Histogram

P99_MS_MAX: Final = 100.0  # a rate is held if 99 of 100 rows take no longer
NEAR: Final = 2.0  # a p99 this many times too long may have been a hiccup

Waiting = Mapping[str, Sequence[int]]  # rows in the queues of each operator, looked at every now and then


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy, and how many rows a turn takes: `all`, `half`, a number, or None for as many as the topology says."""

    policy: PolicyName
    consumption: str | None = None

    @property
    def label(self) -> str:
        """What people call it."""
        if self.consumption is None:
            return self.policy
        return f"{self.policy}, {self.consumption}{' rows' if self.consumption.isdigit() else ''}"


@dataclass(frozen=True, slots=True)
class Run:
    """What was measured."""

    app: str
    contender: Contender
    rate: float  # asked for, rows per second into the flow
    seconds: float
    rows_in_per_s: float
    rows_out_per_s: float
    latency_ms: Figures  # mean, p50, p95 and p99 over all rows; only `rows` if none came out
    given_up: bool  # the flow fell so far behind that it was stopped
    utilisation_cv: float  # coefficient of variation over the operators (EdgeWise, section 7.3.1)
    operators: dict[str, Figures]
    costs: Figures

    @property
    def p99_ms(self) -> float:
        """The latency that 99 of 100 rows did not exceed: endless if none came out."""
        return self.latency_ms.get("p99", inf)

    @property
    def held(self) -> bool:
        """Whether the flow kept up with the rate."""
        return not self.given_up and self.p99_ms <= P99_MS_MAX

    @property
    def nearly_held(self) -> bool:
        """Whether a hiccup may have been at fault."""
        return not self.given_up and self.p99_ms <= NEAR * P99_MS_MAX


def latency_of(histogram: Histogram) -> Figures:
    """Return the percentiles in milliseconds."""
    told = {
        "mean": histogram.mean(),
        "p50": histogram.percentile(0.5),
        "p95": histogram.percentile(0.95),
        "p99": histogram.percentile(0.99),
    }
    figures = {name: round(value / 1_000, 2) for name, value in told.items() if value is not None}
    return figures | {"rows": float(histogram.total)}


def operators_of(window: Window, waiting: Waiting) -> dict[str, Figures]:
    """Return what every operator did: its utilisation, its latency in parts, its turns, its queue."""
    return {part.name: _operator(part, window.seconds, waiting.get(part.name, ())) for part in window.chains()}


def _operator(part: OperatorStatus, seconds: float, waiting: Sequence[int]) -> Figures:
    rows, turns = max(1, part.rows_in), max(1, part.turns)
    figures = {
        "instances": part.instances,
        "utilisation": min(1.0, max(0.0, 1 - part.empty_us / (seconds * 1e6 * part.instances))),  # equation (11)
        "queue_ms": part.queue_us / rows / 1_000,
        "schedule_ms": part.schedule_us / rows / 1_000,
        "compute_ms": part.compute_us / rows / 1_000,
        "rows_per_s": part.rows_in / seconds,
        "turns_per_s": part.turns / seconds,
        "rows_per_turn": part.rows_in / turns,
        "busy_cores": part.busy_us / seconds / 1e6,
        "waiting_mean": mean(waiting) if waiting else 0.0,
        "waiting_max": max(waiting, default=0),
    }
    return {name: round(value, 3) for name, value in figures.items()}


def utilisation_cv(operators: Mapping[str, Figures]) -> float:
    """Return how uneven the operators' utilisation is: 0 if all are alike."""
    shares = [one["utilisation"] for one in operators.values()]
    return round(pstdev(shares) / mean(shares), 4) if any(shares) else 0.0


def costs_of(window: Window, workers: Contention, node: Contention, rows_in: int) -> Figures:
    """Return what the run cost: cores by process, switches, and the CPU that a row of input took, by purpose."""
    figures = window.costs()
    seconds, rows = window.seconds, rows_in or inf  # without any row, none cost anything
    computed_s = sum(part.busy_us for part in window.chains()) / 1e6
    figures |= {
        "workers_runnable": (workers.ran_s + workers.waited_s) / seconds,  # on average: above the cores, they contend
        "workers_waiting_for_a_core": workers.waited_s / seconds,
        "node_waiting_for_a_core": node.waited_s / seconds,
        "workers_preemptions_per_s": workers.preemptions / seconds,
        "workers_yields_per_s": workers.yields / seconds,
        "node_preemptions_per_s": node.preemptions / seconds,
        "node_yields_per_s": node.yields / seconds,
        "functions_cores": computed_s / seconds,  # by the clock: with contention, waiting is in it
        "cpu_us_per_row": sum(_cores(figures, who) for who in ("node", "jvm", "workers")) * seconds * 1e6 / rows,
        "workers_cpu_us_per_row": _cores(figures, "workers") * seconds * 1e6 / rows,
        "node_cpu_us_per_row": _cores(figures, "node") * seconds * 1e6 / rows,
    }
    return {name: round(value, 3) for name, value in figures.items()}


def _cores(figures: Figures, who: str) -> float:
    return figures.get(f"{who}_cores", 0.0)
