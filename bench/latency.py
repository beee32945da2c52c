"""Latency benchmark: taxis and city sensors on eight real peers, against one worker per operator and a central engine.

    python -m bench.latency --quick --json latency.json

AgileDART's Figure 9 (section VII-B): the applications of DEBS 2015 and urban sensing at input rates from idle to
saturation. Every peer reads sensors of its own for a user at another one, over emulated links of 20 to 100 ms. The same
nodes run them with a worker for every operator, and with one for every chain of operators; and Structured Streaming
runs the same flow in one central place. README.md says what each figure means.
"""

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any, Final

from bench.command_line import run_as_told
from bench.edge.apart import Apart
from bench.edge.central import Central
from bench.edge.driver import Driver, cores_during
from bench.edge.links import CENTRE, PEERS, round_trip_ms, told
from bench.edge.sites import EdgeCluster, SitePlan
from bench.edge.users import Wanted, wanted_app
from bench.latency_figures import draw_figures
from bench.processes import this_machine
from headwater.client.flow_text import EndsText
from headwater.engine.policies import PolicyName
from headwater.model.errors import EngineError
from headwater.model.histogram import Histogram

Tell = Callable[[str], None]

CAPACITY: Final = 1_000  # operators on a peer: nobody is turned away
URBAN: Final = "urban.sensing"
RESULTS: Final = {  # of each application, by which the central engine is measured
    "debs2015.frequent_routes": "results",
    "debs2015.profitable_areas": "results",
    URBAN: "cities",
}
SETTINGS: Final[dict[str, tuple[str, ...]]] = {  # of each peer's copy
    URBAN: ("sensors=11",),  # of the 90 that there were; with all of them a minute would hardly ever be over
}
QUICK_RATES: Final[Sequence[float]] = (80, 1_600, 3_200)
FULL_RATES: Final[Sequence[float]] = (80, 400, 800, 1_600, 3_200, 6_400)
URBAN_QUICK_RATES: Final[Sequence[float]] = (20, 100, 200, 400)  # a reading goes through nine chains
URBAN_FULL_RATES: Final[Sequence[float]] = (20, 100, 200, 400, 800, 1_600)
OURS, OWPOA, PER_CHAIN, STRUCTURED = "ours", "owpoa", "worker_per_chain", "structured"
SIDES: Final = (OURS, OWPOA, PER_CHAIN, STRUCTURED)
BEHIND_MS: Final = 1_000.0  # a side whose median row is later than this, beyond what it is when idle, is behind
GROWS: Final = 2.0  # and so is one whose latency does so from one half of the measured time to the other
WARM_S_MAX: Final = 60.0
AGAIN_MAX: Final = 3  # times that a side is measured again which was not warm yet
SETTLED: Final = 0.95  # of the median of the look before: rows that waited for workers to start are through
GOAL: Final = 1.0
SHARE: Final = "p99"  # by which sides are compared
SHARES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}

Run = Mapping[str, Any]  # what was found of one side at one rate
Runs = Mapping[str, Sequence[Run]]  # of an application, by side, one for each rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured."""

    rates: Mapping[str, Sequence[float]]  # rows a second, of all peers together, by application
    rounds: int = 3  # where both kinds of nodes are compared
    warm_s: float = 3.0
    measure_s: float = 10.0
    processes: int = 2
    spark: bool = True
    structured: bool = True


def plan_for(quick: bool) -> Plan:
    """Return the plan of the short form or of the full one."""
    rates = dict.fromkeys(RESULTS, QUICK_RATES if quick else FULL_RATES)
    rates[URBAN] = URBAN_QUICK_RATES if quick else URBAN_FULL_RATES
    return Plan(rates=rates, warm_s=2.0 if quick else 3.0)


class Edge:
    """A cluster that runs one application at a time: a copy for every peer, with its user at another one."""

    def __init__(self, cluster: EdgeCluster, plan: Plan, *, chaining: bool = True) -> None:
        """Begin with a cluster that runs."""
        self._driver, self._plan, self._chaining = Driver(cluster), plan, chaining

    def measure(self, app: str, rate: float) -> dict[str, Any]:
        """Run the application at a rate, and return the latencies of its results."""
        arrivals, _ = self._driver.deploy(self._copies(app, rate))
        try:
            self._warm_up()
            found = self._measured()
            again = 0
            while is_settling(found) and again < AGAIN_MAX:
                found, again = self._measured(), again + 1
        finally:
            self._driver.stop(arrivals)
        if not found["rows"]:
            raise EngineError(f"{app} had no result within {self._plan.measure_s:g} s at {rate:g} rows/s")
        return found

    def _measured(self) -> dict[str, Any]:
        halves, cores = cores_during(
            lambda: [self._driver.latency(self._plan.measure_s / 2) for _ in ("first", "second")]
        )
        return _told(halves) | cores

    def _warm_up(self) -> None:
        """Let results come until they come no earlier: a worker for each of 128 operators takes a while to start."""
        gives_up, before = time.monotonic() + WARM_S_MAX, None
        while time.monotonic() < gives_up:
            median = self._driver.latency(self._plan.warm_s).percentile(0.5)
            if median is not None and before is not None and median > SETTLED * before:
                return
            before = median

    def _copies(self, app: str, rate: float) -> list[Wanted]:
        peers = self._driver.cluster.peers
        ends = EndsText(rate=rate / len(peers))
        users = [*peers[3:], *peers[:3]]  # in another zone, and in either process
        return [
            wanted_app(app, f"app-{number}", owner, reads, ends, SETTINGS.get(app, ()), chaining=self._chaining)
            for number, (reads, owner) in enumerate(zip(peers, users, strict=True))
        ]


def _told(halves: Sequence[Histogram]) -> dict[str, Any]:
    together = Histogram()
    for half in halves:
        together.merge(half)
    told: dict[str, Any] = {
        name: round((together.percentile(share) or 0.0) / 1_000, 1) for name, share in SHARES.items()
    }
    medians = [half.percentile(0.5) for half in halves]
    return told | {
        "rows": together.total,
        "p50_of_halves": [round(value / 1_000, 1) for value in medians if value is not None],
    }


def links_ms() -> float:
    """Return how long a row is under way to the centre and its result to the user, on average."""
    ways = [0.0 if number == CENTRE else round_trip_ms(PEERS[CENTRE], zone) / 2 for number, zone in enumerate(PEERS)]
    return 2 * sum(ways) / len(ways)


def is_held(idle: Run, found: Run) -> bool:
    """Whether a side keeps up with a rate."""
    first, *rest = found["p50_of_halves"]
    grows = bool(rest) and _is_much_later(rest[-1], first)
    return not grows and bool(found["p50"] < idle["p50"] + BEHIND_MS)


def is_settling(found: Run) -> bool:
    """Whether rows that waited for workers to start came through in the first half, and none in the second."""
    first, *rest = found["p50_of_halves"] or [0.0]
    return bool(rest) and _is_much_later(first, rest[-1])


def _is_much_later(latency_ms: float, than_ms: float) -> bool:
    return latency_ms > GROWS * than_ms + 0.1 * BEHIND_MS


def measure(plan: Plan, place: Path, tell: Tell) -> tuple[dict[str, Runs], dict[str, dict[str, int]]]:
    """Measure all sides in turn, application by application and rate by rate: all are up at once.

    Return what was found, and which rates of each application are medium and high.
    """
    found: dict[str, dict[str, list[Run]]] = {app: {side: [] for side in SIDES} for app in plan.rates}
    levels = {}
    tell("starting eight peers twice, and a central engine")
    central = Apart("the central engine", Central, place / "central") if plan.structured else None
    try:
        with (
            EdgeCluster(_site(plan, place / OURS, PolicyName.LONGEST_QUEUE), plan.processes) as ours,
            EdgeCluster(_site(plan, place / OWPOA, PolicyName.ONE_WORKER_PER_OPERATOR), plan.processes) as owpoa,
        ):
            if central is not None:
                central.wait()
            edges = {
                OURS: Edge(ours, plan),
                OWPOA: Edge(owpoa, plan, chaining=False),  # EdgeWise, section 3.3: a worker for each operation instance
                PER_CHAIN: Edge(owpoa, plan),
            }
            for app, rates in plan.rates.items():
                for rate in rates:
                    for side, edge in edges.items():
                        found[app][side].append({"rate": rate, **edge.measure(app, rate)})
                    if central is not None:
                        found[app][STRUCTURED].append({"rate": rate, **_central(central, app, rate, plan)})
                    tell(_sentence(app, rate, {side: runs[-1] for side, runs in found[app].items() if runs}))
                levels[app] = levels_of(found[app])
                for number in sorted(set(levels[app].values())):
                    _compare_again(edges, app, found[app], number, plan.rounds - 1)
                    tell(_sentence(app, rates[number], {side: found[app][side][number] for side in edges}))
    finally:
        if central is not None:
            central.close()
    return dict(found), levels


def _compare_again(edges: Mapping[str, Edge], app: str, runs: dict[str, list[Run]], number: int, times: int) -> None:
    """Measure the nodes some more times at a rate, in turn from either end: one hiccup is much of a p99."""
    for turn in range(times):
        for side in reversed(list(edges)) if turn % 2 == 0 else edges:
            first = runs[side][number]
            runs[side][number] = with_another(first, edges[side].measure(app, first["rate"]))


def with_another(found: Run, another: Run) -> Run:
    """Return the medians of what was found at a rate so far and once more; `runs` has each."""
    runs = [*found.get("runs", [found]), another]
    return {**found, **{share: round(median(run[share] for run in runs), 1) for share in SHARES}, "runs": runs}


def _central(central: Apart, app: str, rate: float, plan: Plan) -> dict[str, Any]:
    found: dict[str, Any] = central.ask("measure", app, RESULTS[app], rate, plan.warm_s, plan.measure_s)
    way_ms = links_ms()
    return found | {name: round(found[name] + way_ms, 1) for name in SHARES} | {"links_ms": way_ms}


def _sentence(app: str, rate: float, runs: Mapping[str, Mapping[str, Any]]) -> str:
    told = ", ".join(f"{side} p50 {one['p50']:.0f} p99 {one['p99']:.0f} ms" for side, one in runs.items())
    return f"{app} at {rate:,.0f} rows/s: {told}"


def _site(plan: Plan, place: Path, policy: PolicyName) -> SitePlan:
    return SitePlan(place=place, zones=(), links=None, spark=plan.spark, capacity=CAPACITY, policy=policy)


def levels_of(runs: Runs) -> dict[str, int]:
    """Return the number of the highest rate that both kinds of nodes hold, and of the highest not above its half."""
    held = [
        number
        for number in range(len(runs[OURS]))
        if all(is_held(runs[side][0], runs[side][number]) for side in (OURS, OWPOA))
    ]
    high = max(held)
    rates = [run["rate"] for run in runs[OURS]]
    medium = max(number for number in range(high + 1) if rates[number] <= rates[high] / 2 or number == 0)
    return {"medium": medium, "high": high}


def judged(found: Mapping[str, Runs], levels: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """Return how the others' latencies compare with ours at medium and high rates."""
    told: dict[str, Any] = {"rates": {}, "ratios": {}}
    for app, numbers in levels.items():
        told["rates"][app] = {level: found[app][OURS][number]["rate"] for level, number in numbers.items()}
        told["ratios"][app] = {
            f"{side}_{level}_{share}": round(found[app][side][number][share] / found[app][OURS][number][share], 3)
            for side in SIDES
            if side != OURS and found[app].get(side)
            for level, number in numbers.items()
            for share in ("p50", "p99")
        }
    return told


def ratios_of(judgement: Mapping[str, Any]) -> dict[str, float]:
    """Return the geometric means over the applications, and the lower of medium and high."""
    apps = list(judgement["ratios"].values())
    ratios = {}
    for side in SIDES:
        for level in ("medium", "high"):
            known = [one[f"{side}_{level}_{SHARE}"] for one in apps if f"{side}_{level}_{SHARE}" in one]
            if known:
                ratios[f"latency_vs_{side}_{level}"] = round(geometric_mean(known), 3)
        both = [value for name, value in ratios.items() if name.startswith(f"latency_vs_{side}_")]
        if both:
            ratios[f"latency_vs_{side}"] = min(both)
    return ratios


def run_plan(plan: Plan, output: Path | None, tell: Tell) -> dict[str, Any]:
    """Measure, judge, and write and draw it if that is wanted."""
    machine = this_machine()
    with tempfile.TemporaryDirectory(prefix="headwater-latency-", ignore_cleanup_errors=True) as scratch:
        found, levels = measure(plan, Path(scratch), tell)
    judgement = judged(found, levels)
    ratios = ratios_of(judgement)
    details: dict[str, Any] = {"machine": asdict(machine), "links": told(), "plan": asdict(plan)}
    details |= {"apps": found, "judged": judgement}
    goals = [name for name in ratios if PER_CHAIN not in name]
    details["goals"] = dict.fromkeys(goals, f"> {GOAL}")
    details["reached"] = {name: ratios[name] > GOAL for name in goals}
    details["limits"] = {name: _limit(name, details) for name, met in details["reached"].items() if not met}
    result: dict[str, Any] = {"ratios": ratios, "details": details, "figures": []}
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        result["figures"] = [str(path) for path in draw_figures(details, machine, output)]
        output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return result


def _limit(name: str, details: Mapping[str, Any]) -> str:
    """Say what the measurements show of a ratio that was not reached."""
    side = STRUCTURED if STRUCTURED in name else OWPOA
    parts = []
    for app, levels in details["judged"]["rates"].items():
        runs = {one["rate"]: one for one in details["apps"][app][OURS]}
        theirs = {one["rate"]: one for one in details["apps"][app][side]}
        for level, rate in levels.items():
            ours = runs[rate]
            parts.append(
                f"{app}, {level} ({rate:g} rows/s): ours p50 {ours['p50']} p99 {ours['p99']} ms with "
                f"{ours['own_cores']} cores, theirs p50 {theirs[rate]['p50']} p99 {theirs[rate]['p99']} ms"
            )
    return "; ".join(parts)


def run(quick: bool, output: Path | None, tell: Tell) -> dict[str, Any]:
    """Run the benchmark, as `headwater bench latency` does."""
    return run_plan(plan_for(quick), output, tell)


if __name__ == "__main__":
    run_as_told(__doc__, run)
