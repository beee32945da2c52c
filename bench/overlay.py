"""Overlay benchmark: routes, stewards, placement, recovery and deployment on thousands of simulated nodes.

    python -m bench.overlay --quick --json overlay.json

Every node is the machine that real nodes run; only clock and network are imagined. One world is grown through the
nodes' own join protocol, and everything that changes it for a measurement is tried in a copy. README.md says what each
figure means.
"""

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from bench.command_line import run_as_told
from bench.overlay_apps import FEW, against_master, spread_of, step_costs, stewards_of, submit
from bench.overlay_failures import Standing, recoveries
from bench.overlay_figures import draw_figures
from bench.overlay_world import Walk, grow, in_a_copy, percentile, stretch, walks, without_collection
from bench.processes import this_machine
from headwater.model.peers import BASE
from headwater.model.time import SECOND
from headwater.overlay.events import OverlayConfig
from headwater.sim.nodes import NodeWorld
from headwater.sim.rings import RingWorld

Tell = Callable[[str], None]

SEED: Final = 1
GOALS: Final[dict[str, tuple[str, float]]] = {
    "hops_p99_over_log16n": ("<=", 1.0),
    "nodes_under_4_operators": (">=", 0.9989),
    "steward_hops_p99": ("<=", 4.0),
    "recovery_64_failures_vs_1": ("<=", 1.5),
    "deploy_p99_vs_central": (">=", 5.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured."""

    nodes: int = 10_000
    zones: int = 20
    walks: int = 10_000
    apps: tuple[int, ...] = (250, 500, 750, 1_000)
    arrival_s: float = 20.0  # within which all apps of the distribution are submitted
    standing_s: int = 15
    failures: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    rounds_of_few: int = 3  # what a single failure takes depends on who it is
    timed_apps: int = 20

    @property
    def rounds(self) -> dict[int, int]:
        """How often each number of failures is tried."""
        return {count: self.rounds_of_few if count == self.failures[0] else 1 for count in self.failures}


def plan_for(quick: bool) -> Plan:
    """Return the plan of the short form or of the full one."""
    return Plan(nodes=2_000, walks=4_000, apps=(50, 100, 150, 200), timed_apps=10) if quick else Plan()


def run_plan(plan: Plan, output: Path | None, tell: Tell) -> dict[str, Any]:
    """Measure everything, judge it, and write and draw it if that is wanted."""
    machine = this_machine()
    with without_collection():
        details: dict[str, Any] = {"machine": asdict(machine), "nodes": plan.nodes, "zones": plan.zones}
        _Measuring(plan, tell, details).all()
    ratios = _ratios(details)
    details["goals"] = {name: f"{sign} {goal}" for name, (sign, goal) in GOALS.items()}
    details["reached"] = {name: _is_reached(name, ratios[name]) for name in GOALS}
    details["limits"] = {name: _limit(name, details) for name, met in details["reached"].items() if not met}
    result: dict[str, Any] = {"ratios": ratios, "details": details, "figures": []}
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        result["figures"] = [str(path) for path in draw_figures(details, machine, output)]
        output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return result


class _Measuring:
    """One world and all that is measured on it, in an order that needs it to be grown only once."""

    def __init__(self, plan: Plan, tell: Tell, details: dict[str, Any]) -> None:
        self._plan, self._tell, self._details = plan, tell, details
        self._world = NodeWorld(SEED, zones=plan.zones)

    def all(self) -> None:
        """Measure one thing after the other."""
        self._join()
        self._routes()
        self._deployment()
        self._operators()
        self._recovery()

    def _join(self) -> None:
        plan, world = self._plan, self._world
        self._tell(f"{plan.nodes:,} nodes join")
        begin, node_s = time.process_time(), _NodeSeconds(world)
        grow(world, plan.nodes)
        took_s = time.process_time() - begin
        standing = Standing(world, plan.standing_s)
        joining = (world.network.sent - standing.per_node_s * node_s.about()) / plan.nodes
        self._details["messages"] = {
            "joining_per_node": round(joining, 1),
            "standing_per_node_s": round(standing.per_node_s, 3),
        }
        self._details["simulator"] = {
            "grown_in_cpu_s": round(took_s, 2),
            "virtual_s": world.timeline.now / SECOND,
            "events": world.timeline.happened,
            "events_per_s": round(world.timeline.happened / took_s),
            "nodes_joined_per_s": round(plan.nodes / took_s, 1),
        }

    def _routes(self) -> None:
        plan = self._plan
        self._tell("routes, with proximity and without")
        near = walks(self._world, plan.walks, SEED)
        far = in_a_copy(lambda: _walks_without_proximity(plan))
        self._details["routing"] = {
            "hops": _hops(near),
            "log16n": math.ceil(math.log(plan.nodes, BASE)),
            "stretch": round(stretch(near), 3),
            "stretch_without_proximity": round(stretch(far), 3),
            "hops_without_proximity": _hops(far),
        }

    def _deployment(self) -> None:
        plan, world = self._plan, self._world
        costs = step_costs(plan.timed_apps)
        cost_s = sum(costs.values()) / 1_000
        by_apps = {}
        for count in plan.apps:
            self._tell(f"{count} apps at one instant, against one central master")
            by_apps[str(count)] = in_a_copy(lambda apps=count: against_master(world, submit(world, apps), cost_s))  # type: ignore[misc]
        self._details["deployment"] = {"step_costs_ms": costs, "by_apps": by_apps}

    def _operators(self) -> None:
        plan, world = self._plan, self._world
        by_apps = {}
        for count in plan.apps:
            self._tell(f"operators and stewards of {count} apps")
            more = count - len(world.specs)
            submit(world, more, plan.arrival_s * more / plan.apps[-1])
            by_apps[str(count)] = spread_of(world)
        self._details["operators"] = {"by_apps": by_apps}

    def _recovery(self) -> None:
        plan, world = self._plan, self._world
        world.run(5.0)  # until everybody has told its load
        standing = Standing(world, plan.standing_s)
        self._details["messages"]["standing_with_apps_per_node_s"] = round(standing.per_node_s, 3)
        self._details["operators"]["stewards_settled_by_zone"] = stewards_of(world)
        self._details["recovery"] = recoveries(world, plan.rounds, standing, self._tell)


class _NodeSeconds:
    """How many seconds all nodes of a growing world have been in the ring, together."""

    def __init__(self, world: NodeWorld) -> None:
        self._world = world

    def about(self) -> float:
        """Return it, by when each became active."""
        return sum(self._world.timeline.now - at for at in self._world.active_at.values()) / SECOND


def _walks_without_proximity(plan: Plan) -> list[Walk]:
    world = RingWorld(SEED, zones=plan.zones, config=OverlayConfig(proximity=False))
    grow(world, plan.nodes)
    return walks(world, plan.walks, SEED)


def _hops(found: list[Walk]) -> dict[str, float]:
    hops = [float(one.hops) for one in found]
    return {"mean": round(sum(hops) / len(hops), 3), "p99": percentile(hops, 0.99), "max": max(hops)}


def _ratios(details: dict[str, Any]) -> dict[str, float]:
    recovered = details["recovery"]
    most = list(details["operators"]["by_apps"].values())[-1]
    hops = [float(hop) for hop, count in most["steward_hops"].items() for _ in range(count)]
    return {
        "hops_p99_over_log16n": round(details["routing"]["hops"]["p99"] / details["routing"]["log16n"], 3),
        "nodes_under_4_operators": most[f"share_under_{FEW}"],
        "steward_hops_p99": percentile(hops, 0.99),
        "recovery_64_failures_vs_1": round(
            max(recovered[-1][kind] / recovered[0][kind] for kind in ("ring_s", "dataflow_s")), 3
        ),
        "deploy_p99_vs_central": list(details["deployment"]["by_apps"].values())[-1]["p99_vs_central"],
        "nodes_simulated_per_second": details["simulator"]["nodes_joined_per_s"],
    }


def _is_reached(name: str, value: float) -> bool:
    sign, goal = GOALS[name]
    return value <= goal if sign == "<=" else value >= goal


def _limit(name: str, details: dict[str, Any]) -> str:
    """Say what the measurements show of a ratio that was not reached."""
    match name:
        case "hops_p99_over_log16n":
            return f"hops {details['routing']['hops']}"
        case "nodes_under_4_operators" | "steward_hops_p99":
            most = list(details["operators"]["by_apps"].values())[-1]
            return f"nodes by operators {most['nodes_by_operators']}, hops to a steward {most['steward_hops']}"
        case "recovery_64_failures_vs_1":
            times = [(one["failures"], one["ring_s"], one["dataflow_s"]) for one in details["recovery"]]
            return f"failures, ring and dataflow in seconds: {times}"
        case _:
            most = list(details["deployment"]["by_apps"].values())[-1]
            return f"ours {most['ours_s']}, central {most['central_s']}"


def run(quick: bool, output: Path | None, tell: Tell) -> dict[str, Any]:
    """Run the benchmark, as `headwater bench overlay` does."""
    return run_plan(plan_for(quick), output, tell)


if __name__ == "__main__":
    run_as_told(__doc__, run)
