"""Scheduler benchmark: EdgeWise's policies and one worker per operator, on the paper's topologies and one engine.

    python -m bench.scheduler --quick --json scheduler.json

Every policy has a node of its own, and one of them is fed at a time. They take turns, run by run, so that a machine
that becomes faster or slower does so for all of them. README.md says what is measured and what each figure shows.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.command_line import run_as_told
from bench.processes import this_machine
from bench.scheduler_figures import draw_figures
from bench.scheduler_limits import Evidence, evidence_of, limit
from bench.scheduler_player import Player, Probe, player_for
from bench.scheduler_run import P99_MS_MAX, Contender, Run
from bench.scheduler_search import Search
from bench.scheduler_topologies import Topology, paper_topologies
from headwater.engine.policies import PolicyName

Tell = Callable[[str], None]

OURS: Final = Contender(PolicyName.LONGEST_QUEUE)
THEIRS: Final = Contender(PolicyName.ONE_WORKER_PER_OPERATOR)
RIVALS: Final = tuple(map(Contender, (PolicyName.RANDOM, PolicyName.MIN_LATENCY, PolicyName.MIN_MEMORY)))
DISTURBED_MAX: Final = 12  # runs that are played again because others used the machine; a minute at most
QUIET_CORES: Final = 0.15  # used by others: more, and neither side of a ratio had the machine to itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Contenders that take turns, and what they play."""

    contenders: Sequence[Contender]
    apps: Sequence[str]
    rounds: int = 0  # of the search for the highest rate that each of them holds
    shares: Mapping[str, Sequence[float]] = field(default_factory=dict)  # by app, of the rate that both sides held


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured, and for how long."""

    topologies: Sequence[Topology]
    stages: Sequence[Stage]  # the first one has both sides of the ratios
    step: float = 1.06  # between two rates that a search tells apart
    stride: int = 4  # rungs of the first search of an app; later ones begin where it ended, with half of it
    probes_max: int = 16  # of a search
    probe: Probe = field(default_factory=Probe)
    warm_s: float = 2.0  # of a flow that was just deployed
    ours: Contender = OURS
    theirs: Contender = THEIRS
    spark: bool = True  # False: worker threads, for tests


def plan_for(quick: bool) -> Plan:
    """Return the plan of the short form (within eight minutes on two cores) or of the full one."""
    topologies = paper_topologies()
    apps = tuple(one.name for one in topologies)
    if quick:
        few = (0.4, 0.7, 1.0)
        beyond = (*few, 1.3)
        return Plan(
            topologies=topologies,
            stages=(
                Stage(contenders=(OURS, THEIRS), apps=apps, rounds=2, shares={"pred": few}),
                Stage(contenders=(*_taking(OURS, "2000"), *_taking(THEIRS, "2000")), apps=("stats",), rounds=1),
                Stage(contenders=_taking(OURS, "50", "half", "all"), apps=("stats",), shares={"stats": few}),
                Stage(contenders=RIVALS, apps=("pred", "stats"), shares={"pred": beyond, "stats": beyond}),
            ),
            probe=Probe(warm_s=0.5, measure_s=2.0),
        )
    many = (0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 1.0, 1.15, 1.3, 1.6)
    consumptions = (
        *_taking(OURS, "10", "50", "2000", "half", "all", "adaptive"),
        *_taking(THEIRS, "10", "50", "2000", "all"),
    )
    return Plan(
        topologies=topologies,
        stages=(
            Stage(contenders=(OURS, THEIRS), apps=apps, rounds=3),
            Stage(contenders=consumptions, apps=("pred", "stats"), rounds=1),
            Stage(contenders=(OURS, THEIRS, *RIVALS), apps=apps, shares=dict.fromkeys(apps, many)),
        ),
        step=1.04,
        probe=Probe(warm_s=1.0, measure_s=4.0),
        warm_s=4.0,
    )


def _taking(contender: Contender, *consumptions: str) -> tuple[Contender, ...]:
    return tuple(replace(contender, consumption=one) for one in consumptions)


class Measuring:
    """Goes through a plan and keeps everything that was seen."""

    def __init__(self, plan: Plan, tell: Tell) -> None:
        """Begin with nothing."""
        self._plan, self._tell = plan, tell
        self._players: dict[PolicyName, Player] = {}
        self.runs: list[Run] = []
        self.disturbed = 0  # runs that were played again
        self.held: dict[str, dict[Contender, list[float]]] = {one.name: {} for one in plan.topologies}

    def go(self) -> None:
        """Measure everything, stage by stage."""
        try:
            for stage in self._plan.stages:
                self._have_players({one.policy for one in stage.contenders})
                for topology in self._plan.topologies:
                    if topology.name in stage.apps:
                        self._play(stage, topology)
        finally:
            self._have_players(set())

    def _have_players(self, policies: set[PolicyName]) -> None:
        """Have the nodes of these policies up, and no others: even one that rests takes some of the machine."""
        for policy in self._players.keys() - policies:
            self._players.pop(policy).close()
        for policy in sorted(policies - self._players.keys()):
            self._tell(f"starting the node of {policy}")
            self._players[policy] = player_for(policy, spark=self._plan.spark)

    def _play(self, stage: Stage, topology: Topology) -> None:
        for player in self._players.values():
            player.deploy(topology, topology.start_rate / 4, self._plan.warm_s)
        for number in range(stage.rounds):
            self._tell(f"{topology.name}: the highest rate held, round {number + 1} of {stage.rounds}")
            self._search(topology, stage.contenders, self._plan.stride if number == 0 else self._plan.stride // 2)
        for share in stage.shares.get(topology.name, ()):
            rate = share * (self._held_by_both(topology) or topology.start_rate)
            self._tell(f"{topology.name}: {rate:,.0f} rows/s for each")
            for contender in stage.contenders:
                self._measure(contender, rate)

    def _search(self, topology: Topology, contenders: Sequence[Contender], stride: int) -> None:
        """Look for the rate that each one holds, one run of each in turn."""
        plan = self._plan
        searches = {
            one: Search(self._start(topology, one), plan.step, stride, probes_max=plan.probes_max) for one in contenders
        }
        while any(search.rate is not None for search in searches.values()):
            for contender, search in searches.items():
                if search.rate is not None:
                    run = self._measure(contender, search.rate)
                    search.note(held=run.held, near=run.nearly_held)
        for contender, search in searches.items():
            self.held[topology.name].setdefault(contender, []).append(round(search.rate_held, 1))
            self._tell(f"{topology.name}: {contender.label} held {search.rate_held:,.0f} rows/s")

    def _start(self, topology: Topology, contender: Contender) -> float:
        """Return where a search begins: at what was held before, else at what both sides did, else where it is told."""
        before = self.held[topology.name].get(contender, [])
        return (median(before) if before else self._held_by_both(topology)) or topology.start_rate

    def _measure(self, contender: Contender, rate: float) -> Run:
        """Play a rate; while others disturb, once more: a search that is misled once is misled to its end."""
        run = self._players[contender.policy].measure(contender, rate, self._plan.probe)
        while run.costs["others_cores"] > QUIET_CORES and self.disturbed < DISTURBED_MAX:
            self.disturbed += 1
            run = self._players[contender.policy].measure(contender, rate, self._plan.probe)
        self.runs.append(run)
        return run

    def _held_by_both(self, topology: Topology) -> float:
        """Return the rate that both sides held, in the middle of the rounds so far; 0 before the first."""
        rounds = [self.held[topology.name].get(side, []) for side in (self._plan.ours, self._plan.theirs)]
        return min((median(rates) for rates in rounds if rates), default=0.0)


def run(quick: bool, output: Path | None = None, tell: Tell = print) -> dict[str, object]:
    """Measure everything and return ratios, details and figures; `output` is the JSON file that they go to."""
    return run_plan(plan_for(quick), output, tell)


def run_plan(plan: Plan, output: Path | None, tell: Tell) -> dict[str, object]:
    """Measure what a plan says."""
    began = time.monotonic()
    found = Measuring(plan, tell)
    found.go()
    details = details_of(plan, found)
    if not details["quiet"]:
        tell(f"others used up to {details['disturbance_cores']:.1f} cores meanwhile; do not trust this run")
    details["seconds"] = round(time.monotonic() - began, 1)
    result: dict[str, object] = {
        "name": "scheduler",
        "ratios": details.pop("ratios"),
        "details": details,
        "figures": [],
    }
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        result["figures"] = [str(path) for path in draw_figures(found.runs, plan, this_machine(), output)]
        output.write_text(json.dumps(result, indent=2))
    return result


def details_of(plan: Plan, found: Measuring) -> dict[str, Any]:
    """Return the ratios and all that is behind them."""
    ratios: dict[str, float | None] = {}
    goals, reached, limits = {}, {}, {}
    evidence: dict[str, Evidence] = {}
    for topology in plan.topologies:
        name = f"{topology.name}_vs_owpoa"
        ratio = ratios[name] = ratio_of(found.held[topology.name], plan.ours, plan.theirs)
        goals[name] = f">= {topology.paper:g}"
        reached[name] = None if ratio is None else ratio >= topology.paper
        seen = evidence_of([one for one in found.runs if one.app == topology.name], plan.ours, plan.theirs)
        if seen is not None:
            evidence[topology.name] = seen
            if reached[name] is False:
                limits[name] = limit(seen, topology.paper)
    disturbance = max((one.costs["others_cores"] for one in found.runs), default=0.0)
    return {
        "ratios": ratios,
        "machine": asdict(this_machine()),
        "goals": goals,
        "reached": reached,
        "limits": limits,
        "p99_ms_max": P99_MS_MAX,
        "rows_per_turn": {one.name: one.rows_per_turn for one in plan.topologies},
        "held_rows_per_s": {
            app: {contender.label: rates for contender, rates in held.items()} for app, held in found.held.items()
        },
        "ratio_by_consumption": {name: ratios_by_consumption(held, plan) for name, held in found.held.items()},
        "ratio_of_best": {name: ratio_of_best(held, plan) for name, held in found.held.items()},
        "evidence": {
            name: asdict(seen) | {"gain_left": round(seen.gain_left, 3), "most_possible": round(seen.most_possible, 3)}
            for name, seen in evidence.items()
        },
        "disturbance_cores": disturbance,
        "quiet": disturbance <= QUIET_CORES,
        "disturbed_runs": found.disturbed,
        "runs": [asdict(one) for one in found.runs],
    }


def ratio_of(held: Mapping[Contender, Sequence[float]], ours: Contender, theirs: Contender) -> float | None:
    """Return the ratio of held rates in the middle of the rounds; None where a side held nothing."""
    rounds = zip(held.get(ours, ()), held.get(theirs, ()), strict=True)
    ratios = [mine / others for mine, others in rounds if others]
    return round(median(ratios), 3) if ratios else None


def ratios_by_consumption(held: Mapping[Contender, Sequence[float]], plan: Plan) -> dict[str, float | None]:
    """Return the ratio for every number of rows in a turn that both sides were searched with."""
    pairs = [(mine, replace(plan.theirs, consumption=mine.consumption)) for mine in held]
    return {
        mine.consumption or "as in the ratio": ratio_of(held, mine, theirs)
        for mine, theirs in pairs
        if mine.policy == plan.ours.policy and theirs in held
    }


def ratio_of_best(held: Mapping[Contender, Sequence[float]], plan: Plan) -> float | None:
    """Return the ratio with as many rows in a turn as is best for each side, of those that both were searched with."""
    common = {one.consumption for one in held if one.policy == plan.ours.policy} & {
        one.consumption for one in held if one.policy == plan.theirs.policy
    }
    best = [
        max((median(held[replace(side, consumption=one)]) for one in common), default=0.0)
        for side in (plan.ours, plan.theirs)
    ]
    return round(best[0] / best[1], 3) if all(best) else None


if __name__ == "__main__":
    run_as_told(__doc__, run)
