"""Engine benchmark: Headwater against stock Structured Streaming and against no engine at all, side by side in one run.

    python -m bench.engine --quick --json engine.json

Nothing runs at the same time as anything else: first Structured Streaming in a process of its own, then a node whose
chain is not fused, then a node as a user starts it, then the bare functions. README.md says what each ratio means.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench import bare, structured
from bench.arrivals import as_csv
from bench.command_line import run_as_told
from bench.ours import Fleet, Measured, Spans, Throughput, average_flow, chain_flow, most_turns, recovery, throughput
from bench.processes import this_machine
from bench.report import draw_figures, limits
from bench.turncost import turn_costs
from bench.watching import Figures, memory_of
from headwater.engine.policies import Consumption
from headwater.runtime.node import Node
from headwater.workers.config import NodeConfig

Tell = Callable[[str], None]

QUIET_CORES: Final = 0.15  # used by others: more, and neither side of a ratio had the machine to itself
GOALS: Final = {
    "p50_vs_structured_streaming": (">=", 50.0),
    "p99_vs_structured_streaming_8_apps": (">=", 200.0),
    "throughput_vs_bare_functions": (">=", 0.6),
    "p99_100_apps_vs_1_app": ("<=", 10.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured, and for how long."""

    structured: structured.Request | None
    chain_rates: tuple[float, ...] = (1_000.0,)
    chain: Spans = field(default_factory=Spans)
    apps: tuple[int, ...] = (1, 8, 100)  # the last is compared with the first, the second with Structured Streaming
    app_rate: float = 100.0
    app: Spans = field(default_factory=Spans)
    rounds: int = 1  # of the apps from few to many
    saturated_s: tuple[float, float] = (3.0, 6.0)  # warm-up and measurement
    bare_s: float = 3.0
    speed_rounds: int = 3  # the engine and the bare functions in turn: a machine's speed changes within seconds
    settle_s: float = 2.0  # after a worker was killed
    most_turns_s: float = 0.0  # 0: left out, it needs a Spark start of its own
    turn_rows: tuple[int, ...] = (1, 50, 1_000)
    turn_count: int = 200
    spark: bool = True  # False: worker threads, for tests


def plan_for(quick: bool, cores: int) -> Plan:
    """Return the plan of the short form (within three minutes on two cores) or of the full one."""
    if quick:
        request = structured.Request(cores=cores, chain_measure_s=4.0, apps_measure_s=8.0, warm_s_max=20.0)
        return Plan(
            structured=request, chain=Spans(3.0, 3.0, 2), app=Spans(2.0, 3.0, 2), saturated_s=(1.0, 2.0), bare_s=1.5
        )
    request = structured.Request(
        cores=cores,
        chain_measure_s=30.0,
        apps_measure_s=30.0,
        warm_s_min=15.0,
        warm_s_max=45.0,
        average_forms=tuple(structured.AVERAGE_FORMS),
    )
    return Plan(
        structured=request,
        chain_rates=(1_000.0, 100.0, 3_000.0),
        chain=Spans(5.0, 10.0, 3),
        apps=(1, 8, 32, 100),
        app=Spans(5.0, 10.0, 2),
        rounds=3,
        saturated_s=(5.0, 15.0),
        bare_s=10.0,
        speed_rounds=5,
        settle_s=5.0,
        most_turns_s=8.0,
        turn_count=2_000,
    )


@dataclass(slots=True)
class Findings:
    """Everything that was measured on our side."""

    chain: dict[float, Measured] = field(default_factory=dict)
    apps: dict[int, list[Measured]] = field(default_factory=dict)
    saturated: Throughput | None = None
    bare_rows_per_s: float = 0.0
    speed_ratios: list[float] = field(default_factory=list)  # of all rounds, in order of size
    recovery: Figures = field(default_factory=dict)
    most_turns: Figures = field(default_factory=dict)
    node_start_s: list[float] = field(default_factory=list)
    memory_mb: dict[str, Any] = field(default_factory=dict)
    turns: dict[str, Figures] = field(default_factory=dict)

    def apps_p99(self, count: int) -> float:
        """Return the median over the rounds."""
        return median(one.summary.p99 for one in self.apps[count])


def run(quick: bool, output: Path | None = None, tell: Tell = print) -> dict[str, object]:
    """Measure everything and return ratios, details and figures; `output` is the JSON file that they go to."""
    return run_plan(plan_for(quick, this_machine().cores), output, tell)


def run_plan(plan: Plan, output: Path | None, tell: Tell) -> dict[str, object]:
    """Measure what a plan says."""
    began = time.monotonic()
    stock: dict[str, Any] = {}
    if plan.structured is not None:
        tell("Structured Streaming: the chain, then 8 keyed averages")
        stock = structured.measure(plan.structured)
    found = measure_ours(plan, tell)
    ratios = ratios_of(plan, found, stock)
    details = details_of(plan, found, stock, ratios)
    if not details["quiet"]:
        tell(
            f"others used up to {max(details['disturbance_cores'].values()):.1f} cores meanwhile; do not trust this run"
        )
    details["seconds"] = round(time.monotonic() - began, 1)
    result: dict[str, object] = {"name": "engine", "ratios": ratios, "details": details, "figures": []}
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        result["figures"] = [str(path) for path in draw_figures(details, this_machine(), output)]
        output.with_name(f"{output.stem}-percentiles.csv").write_text(as_csv(details["percentiles"]))
        output.write_text(json.dumps(result, indent=2))
    return result


def measure_ours(plan: Plan, tell: Tell) -> Findings:
    """Measure Headwater and the bare functions."""
    found = Findings()
    tell("Headwater: the chain, not fused")
    with _started(NodeConfig(spark=plan.spark, chaining=False), found) as node:
        for rate in plan.chain_rates:
            fleet = Fleet(node, chain_flow, rate)
            fleet.grow(1)
            found.chain[rate] = fleet.measure(plan.chain)
            fleet.remove()
    with _started(NodeConfig(spark=plan.spark), found) as node:
        _measure_apps(node, plan, found, tell)
        tell("Headwater: the chain, fused and saturated, and the bare functions, in turn")
        _measure_speed(node, plan, found)
        found.memory_mb = memory_of(node)
    found.turns = {f"{rows} rows": turn_costs(rows, plan.turn_count) for rows in plan.turn_rows}
    if plan.most_turns_s:
        one_row = NodeConfig(spark=plan.spark, consumption=Consumption("at-most", 1))
        with _started(one_row, found) as node:
            found.most_turns = most_turns(node, plan.most_turns_s)
    return found


def _measure_speed(node: Node, plan: Plan, found: Findings) -> None:
    """Measure the saturated engine and the bare functions side by side, and keep the pair with the median ratio."""
    pairs: list[tuple[Throughput, float]] = []
    for _ in range(plan.speed_rounds):
        ours = throughput(node, node.config.workers, *plan.saturated_s)
        size = max(1, round(ours.rows_per_turn))
        pairs.append((ours, bare.rows_per_second(size, this_machine().cores, plan.bare_s)))
    pairs.sort(key=lambda pair: pair[0].rows_per_s / pair[1])
    found.saturated, found.bare_rows_per_s = pairs[len(pairs) // 2]
    found.speed_ratios = [round(ours.rows_per_s / bare_rows, 3) for ours, bare_rows in pairs]


def _measure_apps(node: Node, plan: Plan, found: Findings, tell: Tell) -> None:
    for number in range(plan.rounds):
        fleet = Fleet(node, average_flow, plan.app_rate)
        for count in plan.apps:
            tell(f"Headwater: {count} keyed averages, round {number + 1} of {plan.rounds}")
            fleet.grow(count)
            found.apps.setdefault(count, []).append(fleet.measure(plan.app))
            if plan.spark and not found.recovery and count == plan.apps[min(1, len(plan.apps) - 1)]:
                found.recovery = recovery(node, fleet, plan.settle_s)
        fleet.remove()


@contextmanager
def _started(config: NodeConfig, found: Findings) -> Iterator[Node]:
    """Start a node and note how long it took: Spark, the pool's job and the first workers."""
    began = time.monotonic()
    with Node(config) as node:
        found.node_start_s.append(round(time.monotonic() - began, 2))
        yield node


def ratios_of(plan: Plan, found: Findings, stock: dict[str, Any]) -> dict[str, float | None]:
    """Return the ratios; None for one whose other side was not measured."""
    theirs = stock.get("measurements", {})
    assert found.saturated is not None
    chain_ms = fastest_chain(theirs)["summary"]["p50"] if theirs else None
    apps_ms = fastest_average(theirs)["summary"]["p99"] if theirs else None
    few, several, many = plan.apps[0], plan.apps[1], plan.apps[-1]
    return {
        "p50_vs_structured_streaming": _ratio(chain_ms, found.chain[plan.chain_rates[0]].summary.p50),
        "p99_vs_structured_streaming_8_apps": _ratio(apps_ms, found.apps_p99(several)),
        "throughput_vs_bare_functions": _ratio(found.saturated.rows_per_s, found.bare_rows_per_s),
        "p99_100_apps_vs_1_app": _ratio(found.apps_p99(many), found.apps_p99(few)),
    }


def fastest_chain(theirs: dict[str, Any]) -> dict[str, Any]:
    """Return Structured Streaming's better way to run the chain, of those its guide knows."""
    chosen: dict[str, Any] = min(
        (theirs["chain_sql"], theirs["chain_arrow"]), key=lambda one: float(one["summary"]["p50"])
    )
    return chosen


def fastest_average(theirs: dict[str, Any]) -> dict[str, Any]:
    """Return Structured Streaming's best setting for the keyed average, of those measured."""
    forms = [one for name, one in theirs.items() if name.startswith("average")]
    chosen: dict[str, Any] = min(forms, key=lambda one: float(one["summary"]["p99"]))
    return chosen


def _ratio(above: float | None, below: float) -> float | None:
    return None if above is None else round(above / below, 3)


def details_of(plan: Plan, found: Findings, stock: dict[str, Any], ratios: dict[str, float | None]) -> dict[str, Any]:
    """Return the raw figures behind the ratios."""
    theirs = stock.get("measurements", {})
    chain = {f"{rate:,g} rows/s": asdict(one) for rate, one in found.chain.items()}
    apps = {f"{count} app{'s' * (count > 1)}": [asdict(one) for one in rounds] for count, rounds in found.apps.items()}
    table = {f"headwater chain {name}": one["percentiles"] for name, one in chain.items()}
    table |= {f"headwater average {name}": rounds[-1]["percentiles"] for name, rounds in apps.items()}
    table |= {f"structured {name}": one["percentiles"] for name, one in theirs.items()}
    disturbed = disturbance(found, theirs)
    details: dict[str, Any] = {
        "machine": asdict(this_machine()),
        "goals": {name: f"{sign} {value:g}" for name, (sign, value) in GOALS.items()},
        "reached": {name: reached(name, value) for name, value in ratios.items()},
        "chain": chain,
        "apps": apps,
        "saturated": None if found.saturated is None else asdict(found.saturated),
        "bare_rows_per_s": round(found.bare_rows_per_s, 1),
        "speed_ratios": found.speed_ratios,
        "structured_streaming": stock,
        "turn_us": found.turns,
        "most_turns": found.most_turns,
        "recovery": found.recovery,
        "node_start_s": found.node_start_s,
        "memory_mb": found.memory_mb,
        "percentiles": table,
        "disturbance_cores": disturbed,
        "quiet": max(disturbed.values()) <= QUIET_CORES,
    }
    return details | {"limits": limits(details, [name for name, good in details["reached"].items() if good is False])}


def disturbance(found: Findings, theirs: dict[str, Any]) -> dict[str, float]:
    """Return how many cores other processes used meanwhile: near 0, or the figures are not worth much."""
    shares = {f"chain {rate:g} rows/s": one.costs["others_cores"] for rate, one in found.chain.items()}
    shares |= {f"average {count}": max(one.costs["others_cores"] for one in all_) for count, all_ in found.apps.items()}
    if found.saturated is not None:
        shares["saturated"] = found.saturated.costs["others_cores"]
    return shares | {f"structured {name}": one["others_cores"] for name, one in theirs.items()}


def reached(name: str, value: float | None) -> bool | None:
    """Whether a ratio meets its goal; None if it was not measured."""
    if value is None:
        return None
    sign, goal = GOALS[name]
    return value >= goal if sign == ">=" else value <= goal


if __name__ == "__main__":
    run_as_told(__doc__, run)
