"""Why a ratio is what it is: what both sides did at the highest rate that each held.

A scheduler can gain what the operating system wastes. Whether it wastes anything shows in how busy the machine was, in
what a row cost on either side, in how many workers wanted a core at the same time, and in whether one operator, or the
node's own process, was at its end while cores were left.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.processes import this_machine
from bench.scheduler_run import Contender, Run


@dataclass(frozen=True, slots=True)
class Side:
    """One side at the highest rate it held."""

    rate: float
    p99_ms: float
    cores_used: float  # by node, JVM and workers
    cpu_us_per_row: float
    node_cores: float
    workers_cores: float
    functions_cores: float  # of the workers', in the operators' functions; by the clock, so waiting for a core is in it
    turns_per_s: float
    rows_per_turn: float
    preemptions_per_s: float  # of workers
    yields_per_s: float
    workers_runnable: float  # on average
    workers_waiting_for_a_core: float
    utilisation_cv: float
    longest_queue: float  # the most rows that were seen to wait for one operator
    longest_queue_of: str
    busiest: str  # the operator whose instances computed for the largest share of the time,
    busiest_share: float  # and that share

    @property
    def was_measured(self) -> bool:
        """Whether the kernel counted any CPU: it does so in ticks of 10 ms, and a busy machine may grant us less."""
        return self.cores_used > 0 and self.cpu_us_per_row > 0


@dataclass(frozen=True, slots=True)
class Evidence:
    """Both sides of a ratio."""

    ours: Side
    theirs: Side
    cores: int

    @property
    def ratio(self) -> float:
        """How much more ours held."""
        return self.ours.rate / self.theirs.rate

    @property
    def gain_left(self) -> float:
        """How much more could be held than theirs did if no core ever rested, at what a row cost them."""
        return self.cores / self.theirs.cores_used

    @property
    def most_possible(self) -> float:
        """How much more than theirs any schedule could hold if no core ever rested, at what a row cost us."""
        return self.cores * 1e6 / self.ours.cpu_us_per_row / self.theirs.rate


def evidence_of(runs: Sequence[Run], ours: Contender, theirs: Contender) -> Evidence | None:
    """Return what both sides did; None where one of them held nothing, or for so short that no CPU was counted."""
    sides = [_side([one for one in runs if one.contender == side and one.held]) for side in (ours, theirs)]
    mine, others = sides
    if mine is None or others is None or not (mine.was_measured and others.was_measured):
        return None
    return Evidence(mine, others, this_machine().cores)


def _side(held: Sequence[Run]) -> Side | None:
    if not held:
        return None
    best = max(held, key=lambda one: one.rate)
    costs, operators = best.costs, best.operators
    longest = max(operators, key=lambda name: operators[name]["waiting_max"])
    share = {name: one["busy_cores"] / one["instances"] for name, one in operators.items()}
    busiest = max(share, key=lambda name: share[name])
    return Side(
        rate=best.rate,
        p99_ms=best.p99_ms,
        cores_used=round(sum(costs.get(f"{who}_cores", 0.0) for who in ("node", "jvm", "workers")), 3),
        cpu_us_per_row=costs["cpu_us_per_row"],
        node_cores=costs["node_cores"],
        workers_cores=costs.get("workers_cores", 0.0),
        functions_cores=costs["functions_cores"],
        turns_per_s=costs["turns_per_s"],
        rows_per_turn=costs["rows_per_queue"],
        preemptions_per_s=costs["workers_preemptions_per_s"],
        yields_per_s=costs["workers_yields_per_s"],
        workers_runnable=costs["workers_runnable"],
        workers_waiting_for_a_core=costs["workers_waiting_for_a_core"],
        utilisation_cv=best.utilisation_cv,
        longest_queue=operators[longest]["waiting_max"],
        longest_queue_of=longest,
        busiest=busiest,
        busiest_share=round(share[busiest], 3),
    )


def limit(seen: Evidence, goal: float) -> str:
    """Say what the measurements show to be in the way of a larger ratio."""
    ours, theirs = seen.ours, seen.theirs
    reach = "is out of reach of any" if seen.most_possible < goal else "leaves no core a moment's rest under any"
    return (
        f"The longest queue first held {ours.rate:,.0f} rows/s, one worker per operator {theirs.rate:,.0f}. At "
        f"{ours.cpu_us_per_row:,.0f} us of CPU per row, {seen.cores} cores that never rest make "
        f"{seen.most_possible:.2f} times the latter, so {goal:g} {reach} schedule. What is left to gain: one worker "
        f"per operator spent {theirs.cpu_us_per_row:,.0f} us per row and had {theirs.cores_used:.2f} of {seen.cores} "
        f"cores at work (ours {ours.cores_used:.2f}); between bursts both rest. The operating system gives a core to "
        f"any of its workers that has rows ({theirs.workers_runnable:.1f} had on average, "
        f"{theirs.workers_waiting_for_a_core:.1f} of them no core), so it wastes switches "
        f"({theirs.preemptions_per_s:,.0f} preemptions and {theirs.yields_per_s:,.0f} yields/s against "
        f"{ours.preemptions_per_s:,.0f} and {ours.yields_per_s:,.0f}) and no time. A turn works for "
        f"{_turn_ms(theirs):.1f} ms on {theirs.rows_per_turn:,.0f} rows (ours {_turn_ms(ours):.1f} ms on "
        f"{ours.rows_per_turn:,.0f}), long beside a switch. And nothing holds up the source: its longest queue was "
        f"{theirs.longest_queue:,.0f} rows for {theirs.longest_queue_of} (ours {ours.longest_queue:,.0f} for "
        f"{ours.longest_queue_of}), which under Storm stops the spouts. Busiest was {theirs.busiest}, "
        f"{theirs.busiest_share:.0%} of the time (ours {ours.busiest}, {ours.busiest_share:.0%}); the node's process "
        f"took {theirs.node_cores:.2f} cores (ours {ours.node_cores:.2f})."
    )


def _turn_ms(side: Side) -> float:
    """Return the CPU time of a turn."""
    return side.workers_cores * 1e3 / max(1e-9, side.turns_per_s)
