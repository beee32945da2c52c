"""Deployment benchmark: from one to hundreds of apps on eight real peers, against one central master.

    python -m bench.deploy --quick --json deploy.json

AgileDART's Figure 8 (section VII-B) on real nodes, joined by emulated links of 20 to 100 ms: how long an app of Storm's
starter set waits until somebody takes it up, how long until it runs, and what latency the rows of all have. Apps arrive
at a rate that keeps the machine about half busy, the same for both sides. README.md says what each figure means.
"""

import functools
import itertools
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from bench.command_line import run_as_told
from bench.deploy_figures import draw_figures
from bench.edge.driver import Driver, cores_during
from bench.edge.links import told
from bench.edge.master import MasteredNode
from bench.edge.sites import EdgeCluster, SitePlan
from bench.edge.users import Deployed, Wanted, wanted_app
from bench.edge.watched import WatchedNode
from bench.overlay_world import percentile
from bench.processes import this_machine
from headwater.client.flow_text import EndsText
from headwater.model.histogram import Histogram

Tell = Callable[[str], None]

SEED: Final = 1
STARTER_SET: Final = (
    "storm.exclamation",
    "storm.join_bolt",
    "storm.lambdas",
    "storm.prefix",
    "storm.single_join",
    "storm.sliding_tuple_ts",
    "storm.sliding_window",
    "storm.word_count",
)
GOALS: Final[dict[str, tuple[str, float]]] = {
    "deploy_p99_vs_central": (">=", 5.0),
    "deploy_p99_growth": ("<=", 3.0),
}
BUSY: Final = 0.5  # of the machine, while apps arrive
CAPACITY: Final = 10_000  # operators on a peer: nobody is turned away
PROCESSES: Final = 2  # of the eight peers: see README.md


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured."""

    counts: tuple[int, ...] = (1, 25, 50, 100, 200, 400)
    singles: int = 16  # apps by themselves, one after the other: what is compared with is their p99
    trial: int = 64  # apps by which the rate of arrival is found
    trial_rate: float = 4.0
    rows_per_s: float = 0.2  # into each app
    hold_s: float = 10.0  # for which rows are looked at, with each number of apps
    processes: int = PROCESSES
    spark: bool = True


def plan_for(quick: bool) -> Plan:
    """Return the plan of the short form or of the full one."""
    return Plan(counts=(1, 100, 200, 300), singles=8, trial=40, hold_s=5.0) if quick else Plan()


class Side(Driver):
    """One cluster, and the apps that come there."""

    def __init__(self, cluster: EdgeCluster, plan: Plan) -> None:
        """Begin with a cluster that runs."""
        super().__init__(cluster)
        self._plan = plan
        self._rng, self._numbers = Random(SEED), itertools.count()

    def some(self, count: int) -> list[Wanted]:
        """Return the next apps: the starter set in turn, each submitted at one peer and read at another, by chance."""
        apps = []
        for number in itertools.islice(self._numbers, count):
            owner, reads = self._rng.sample(self.cluster.peers, 2)
            kind = STARTER_SET[number % len(STARTER_SET)]
            ends = EndsText(rate=self._plan.rows_per_s)
            apps.append(wanted_app(kind, f"app-{number}", owner, reads, ends))
        return apps


def _ours(side: Side, plan: Plan, tell: Tell) -> dict[str, Any]:
    """Measure our stewards: single apps, the rate of arrival, many apps, and their rows."""
    tell("stewards: one of each app, to load the code")
    warm, _ = side.deploy(side.some(len(STARTER_SET)))
    side.stop(warm)
    tell(f"stewards: {plan.singles} apps by themselves")
    singles = []
    for _ in range(plan.singles):
        arrivals, [single] = side.deploy(side.some(1))
        side.stop(arrivals)
        singles.append(single)
    rate, found = _rate(side, plan)
    most = plan.counts[-1]
    tell(f"stewards: {most} apps, {rate:.1f} a second")
    (arrivals, runs), cores = cores_during(lambda: side.deploy(side.some(most), rate))
    latencies = {}
    for count in reversed(plan.counts):
        side.stop(arrivals[count:])
        arrivals = arrivals[:count]
        tell(f"stewards: the rows of {count} apps")
        hold_s = plan.hold_s * (4 if count == 1 else 1)  # a single app has few rows
        histogram, resting = cores_during(functools.partial(side.latency, hold_s))
        latencies[str(count)] = _latency_ms(histogram) | {"own_cores": resting["own_cores"]}
    return {
        "arrivals_per_s": round(rate, 2),
        "rate_found_by": found,
        "while_arriving": cores,
        "one_app": _summary(singles),
        "all_apps": [asdict(one) for one in runs],
        "by_apps": {str(count): _summary(runs[:count]) for count in plan.counts[1:]},
        "query_latency_ms": dict(reversed(latencies.items())),
    }


def _rate(side: Side, plan: Plan) -> tuple[float, dict[str, float]]:
    """Find the rate of arrival that keeps the machine half busy, by what the deployment of some apps costs."""
    _, idle = cores_during(lambda: time.sleep(plan.hold_s / 2))
    rate, found = plan.trial_rate, {"idle_cores": idle["own_cores"]}
    for name in ("cpu_ms_per_app_at_first", "cpu_ms_per_app"):  # an app costs less where more arrive at a time
        (arrivals, _), busy = cores_during(functools.partial(side.deploy, side.some(plan.trial), rate))
        side.stop(arrivals)
        cpu_s = max(1e-3, (busy["own_cores"] - idle["own_cores"]) * busy["seconds"] / plan.trial)
        found[name] = round(1_000 * cpu_s, 1)
        rate = max(1.0, (BUSY * this_machine().cores - idle["own_cores"]) / cpu_s)
    return rate, found


def _central(side: Side, plan: Plan, rate: float, tell: Tell) -> dict[str, Any]:
    """Measure the master; what was deployed before goes on, since only its owners could end it."""
    tell("master: one of each app, to load the code")
    side.deploy(side.some(len(STARTER_SET)))
    tell(f"master: {plan.singles} apps by themselves")
    singles = [side.deploy(side.some(1))[1][0] for _ in range(plan.singles)]
    most = plan.counts[-1]
    tell(f"master: {most} apps, {rate:.1f} a second")
    (_, runs), cores = cores_during(lambda: side.deploy(side.some(most), rate))
    return {
        "while_arriving": cores,
        "one_app": _summary(singles),
        "all_apps": [asdict(one) for one in runs],
        "by_apps": {str(count): _summary(runs[:count]) for count in plan.counts[1:]},
    }


def _summary(runs: Sequence[Deployed]) -> dict[str, dict[str, float]]:
    return {
        "queue_ms": _figures([one.queue_ms for one in runs]),
        "deploy_ms": _figures([one.deploy_ms for one in runs]),
    }


def _figures(times: list[float]) -> dict[str, float]:
    return {
        "mean": round(sum(times) / len(times), 1),
        "p50": percentile(times, 0.5),
        "p99": percentile(times, 0.99),
        "max": max(times),
    }


def _latency_ms(histogram: Histogram) -> dict[str, float]:
    found = {name: histogram.percentile(share) for name, share in (("p50", 0.5), ("p99", 0.99))}
    return {name: round(value / 1_000, 1) for name, value in found.items() if value is not None} | {
        "rows": histogram.total
    }


def run_plan(plan: Plan, output: Path | None, tell: Tell) -> dict[str, Any]:
    """Measure both sides, one after the other, judge, and write and draw it if that is wanted."""
    machine = this_machine()
    with tempfile.TemporaryDirectory(prefix="headwater-deploy-", ignore_cleanup_errors=True) as scratch:
        tell("eight peers with stewards")
        with EdgeCluster(_site(plan, Path(scratch, "ours"), mastered=False), plan.processes) as cluster:
            ours = _ours(Side(cluster, plan), plan, tell)
        tell("eight peers with one central master")
        with EdgeCluster(_site(plan, Path(scratch, "central"), mastered=True), plan.processes) as cluster:
            central = _central(Side(cluster, plan), plan, ours["arrivals_per_s"], tell)
    details: dict[str, Any] = {"machine": asdict(machine), "links": told(), "plan": asdict(plan)}
    details |= {"ours": ours, "central": central}
    ratios = _ratios(details, plan)
    details["goals"] = {name: f"{sign} {goal}" for name, (sign, goal) in GOALS.items()}
    details["reached"] = {name: _is_reached(name, ratios[name]) for name in GOALS}
    details["limits"] = {name: _limit(details) for name, met in details["reached"].items() if not met}
    result: dict[str, Any] = {"ratios": ratios, "details": details, "figures": []}
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        result["figures"] = [str(path) for path in draw_figures(details, machine, output)]
        output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return result


def _site(plan: Plan, place: Path, *, mastered: bool) -> SitePlan:
    kind = MasteredNode if mastered else WatchedNode
    return SitePlan(place=place, zones=(), links=None, spark=plan.spark, capacity=CAPACITY, kind=kind)


def _ratios(details: dict[str, Any], plan: Plan) -> dict[str, float]:
    most = str(plan.counts[-1])
    ours, central = (details[side]["by_apps"][most]["deploy_ms"]["p99"] for side in ("ours", "central"))
    return {
        "deploy_p99_vs_central": round(central / ours, 3),
        "deploy_p99_growth": round(ours / details["ours"]["one_app"]["deploy_ms"]["p99"], 3),
    }


def _is_reached(name: str, value: float) -> bool:
    sign, goal = GOALS[name]
    return value <= goal if sign == "<=" else value >= goal


def _limit(details: dict[str, Any]) -> str:
    """Say what the measurements show of a ratio that was not reached."""
    ours, central = details["ours"], details["central"]
    most = list(ours["by_apps"])[-1]
    return (
        f"{most} apps at {ours['arrivals_per_s']} a second: ours {ours['by_apps'][most]}, one by itself "
        f"{ours['one_app']['deploy_ms']}; the master {central['by_apps'][most]}; while they arrived, our side used "
        f"{ours['while_arriving']} and the master's {central['while_arriving']}"
    )


def run(quick: bool, output: Path | None, tell: Tell) -> dict[str, Any]:
    """Run the benchmark, as `headwater bench deploy` does."""
    return run_plan(plan_for(quick), output, tell)


if __name__ == "__main__":
    run_as_told(__doc__, run)
