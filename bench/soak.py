"""Soak: an hour at half load while nodes join and leave every minute; memory, ledgers and results stay as they should.

    python -m bench.soak --minutes 60 --json soak.json

The apps of the demo run in many copies on eight peers that are joined by emulated links. Half of the peers own the apps
and read their sensors, and stay. Of the others the busiest leaves for good every minute, after a fresh one has joined:
what runs there moves with its state. README.md says how each figure is judged.
"""

import itertools
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from bench.command_line import parser_for, print_found
from bench.edge.links import PEERS, told
from bench.edge.sites import EdgeCluster, SitePlan
from bench.processes import this_machine
from bench.soak_cpu import CpuWatch, Looked
from bench.soak_figures import draw_figures
from bench.soak_memory import WARM_UP, MemoryWatch, growth
from headwater.client.cluster import Cluster
from headwater.client.requests import StatusTold
from headwater.demo import command as demo
from headwater.demo.check import CHECKS, made, written
from headwater.model.errors import EngineError, HeadwaterError
from headwater.model.peers import Peer
from headwater.runtime.service.service import NodeService
from headwater.workers.config import NodeConfig

Tell = Callable[[str], None]

KINDS: Final = ("air", "heat", "cities")  # keyed state, no state, windows
LOAD: Final = 0.5  # of the machine
CAPACITY: Final = 1_000  # operators on a peer: nobody is turned away
USUAL: Final = NodeConfig()  # an hour sees pools of Spark come and go, too
SETTLE_S: Final = 120.0  # for the last rows
GOALS: Final[dict[str, tuple[str, float]]] = {
    "outputs_equal_to_oracle": (">=", 1.0),
    "ledgers_balanced": (">=", 1.0),
    "nodes_left_as_wanted": (">=", 1.0),
    "memory_growth": ("<=", 0.05),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is done, and for how long."""

    minutes: float = 60.0
    change_s: float = 60.0  # between two changes of who is there
    rate: int = 10  # readings a second, of each app
    apps: int = 2 * len(KINDS)  # to begin with
    apps_max: int = 60  # that are added up to during the warm-up, until the machine is half busy
    processes: int = 2
    spark: bool = True


def plan_for(quick: bool) -> Plan:
    """Return the plan of the short form or of the full one."""
    return Plan(minutes=4.0, change_s=20.0) if quick else Plan()


@dataclass(frozen=True, slots=True)
class App:
    """One copy of an app of the demo, the plan that its readings and its file come from, and its owner."""

    kind: str
    name: str
    owner: Peer
    plan: demo.Plan


@dataclass(slots=True)
class Soak:
    """The soak while it runs."""

    plan: Plan
    cluster: EdgeCluster
    place: Path
    cpu: CpuWatch
    tell: Tell
    apps: list[App] = field(default_factory=list)
    changes: list[dict[str, Any]] = field(default_factory=list)
    _staying: list[Peer] = field(init=False)
    _ends: list[tuple[Peer, Peer]] = field(init=False)  # where an app is owned, and where it is read
    _passing: list[Peer] = field(init=False)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        """Let one peer of each zone stay, of one process or the other in turn; the first is whom others join."""
        zones = dict.fromkeys(peer.zone for peer in self.cluster.peers)
        there = [[peer for peer in self.cluster.peers if peer.zone == zone] for zone in zones]
        self._staying = [peers[number % len(peers)] for number, peers in enumerate(there)]
        self._ends = list(itertools.permutations(self._staying, 2))
        self._passing = [peer for peer in self.cluster.peers if peer not in self._staying]

    def submit(self, count: int, seconds: float) -> None:
        """Submit copies of the apps, each to a peer that stays, with its sensors at another; readings end in time."""
        for number in itertools.islice(self._numbers, count):
            kind, rows = KINDS[number % len(KINDS)], round(self.plan.rate * seconds)
            directory = self.place / f"app-{number}"
            directory.mkdir()
            owner, reads = self._ends[number % len(self._ends)]
            app = App(kind, f"{kind}-{number}", owner, demo.Plan(directory, seconds, self.plan.rate, rows, rows))
            app.plan.write_flows()
            with Cluster(owner.address, insecure=True) as cluster:
                cluster.submit(f"{app.plan.flows}:{kind}", name=app.name, at={"readings": reads.address})
            self.apps.append(app)

    def finish(self) -> list[StatusTold | HeadwaterError]:
        """Wait for all rows of all apps, and return how each is then."""

        def wait(app: App) -> StatusTold | HeadwaterError:
            try:
                with Cluster(app.owner.address, insecure=True) as cluster:
                    return cluster.wait(app.name, SETTLE_S)
            except HeadwaterError as failure:
                return failure

        with ThreadPoolExecutor(len(self._staying)) as waiting:
            return list(waiting.map(wait, self.apps))

    def change(self) -> None:
        """Let a fresh node join, and the busiest of those that may go leave for good."""
        began = time.monotonic()
        hosted = self.cluster.hosted()
        leaves = max(self._passing, key=lambda peer: hosted[peer.id])
        self._passing.remove(leaves)
        joined = self.cluster.add(leaves)
        self._passing.append(joined)
        joined_s = time.monotonic() - began
        change = {"at_s": round(began - self._began, 1), "joined": joined.address, "join_s": round(joined_s, 2)}
        try:
            moved = self.cluster.drain(leaves)
        except HeadwaterError as failure:
            change["failure"] = str(failure)
        else:
            change |= {"left": leaves.address, "moved": moved}
            change["leave_s"] = round(time.monotonic() - began - joined_s, 2)
        self.changes.append(change)
        self.tell(f"{change['at_s']:.0f} s: {_told_change(change)}")

    def keep_changing(self, until: float) -> Looked:
        """Change who is there at an even pace, as long as apps run; return the look at the end of the warm-up."""
        warm_at = until - (1 - WARM_UP) * (until - time.monotonic())
        warm = self.cpu.look()
        due = time.monotonic() + self.plan.change_s
        while due < until:
            time.sleep(max(0.0, due - time.monotonic()))
            self.change()
            if due < warm_at:
                self._fill(warm, until)
                warm = self.cpu.look()
            due = max(due + self.plan.change_s, time.monotonic())
        time.sleep(max(0.0, until - time.monotonic()))
        return warm

    def _fill(self, before: Looked, until: float) -> None:
        """Add apps towards half load, by what those that run have cost since a look.

        Half of what is lacking at a time, and no more than there are: what an app costs falls while its code warms up
        and turns are shared, so what is measured now is too much.
        """
        used = before.cores_until(self.cpu.look())
        each = used / len(self.apps)
        lacking = round((LOAD * this_machine().cores - used) / each / 2)
        wanted = min(lacking, len(self.apps), self.plan.apps_max - len(self.apps))
        if wanted > 0:
            self.submit(wanted, until - time.monotonic())
            self.tell(f"{used:.2f} cores used: {wanted} apps more, {len(self.apps)} in all")


def _told_change(change: dict[str, Any]) -> str:
    if "failure" in change:
        return f"a node joined; the one that was to leave did not: {change['failure']}"
    return (
        f"a node joined in {change['join_s']} s, one left in {change['leave_s']} s, {change['moved']} instances moved"
    )


def _soaked(soak: Soak) -> dict[str, Any]:
    """Run it all, and return what was seen."""
    plan = soak.plan
    seconds = 60 * plan.minutes
    soak.tell(f"{plan.minutes:g} minutes of apps with {plan.rate} readings a second each; {plan.apps} to begin with")
    with MemoryWatch(soak.cluster.pids()) as memory:
        began = time.monotonic()
        soak.submit(plan.apps, seconds)
        warm = soak.keep_changing(began + seconds)
        end = soak.cpu.look()
        states = soak.finish()
    soak.tell("comparing what was written with what plain Python makes of the readings")
    own = warm.cores_until(end)
    return {
        "apps": len(soak.apps),
        "readings": sum(app.plan.rows for app in soak.apps),
        "own_cores": round(own, 3),
        "load": round(own / this_machine().cores, 3),
        "others_cores": round(warm.others_until(end), 3),
        "changes": soak.changes,
        "results": [_judged(app, state) for app, state in zip(soak.apps, states, strict=True)],
        "memory": memory.told(),
    }


def _judged(app: App, state: StatusTold | HeadwaterError) -> dict[str, Any]:
    """Compare an app's ledger with its readings, and what it wrote with what plain Python makes of them."""
    wrong = CHECKS[app.kind](made(demo.SENSORS, app.plan.rows), written(app.plan.directory / f"{app.kind}.jsonl"))
    if isinstance(state, HeadwaterError):
        return {"app": app.name, "failure": str(state), "balanced": False, "wrong": wrong[:3]}
    balanced = state.is_balanced and state.rows_in == app.plan.rows
    told = {"state": state.state, "rows_in": state.rows_in, "rows_out": state.rows_out}
    return {"app": app.name, **told, "balanced": balanced, "wrong": wrong[:3]}


def run_plan(plan: Plan, output: Path | None, tell: Tell) -> dict[str, Any]:
    """Run the soak, judge it, and write and draw it if that is wanted."""
    machine = this_machine()
    with tempfile.TemporaryDirectory(prefix="headwater-soak-", ignore_cleanup_errors=True) as scratch:
        place = Path(scratch)
        site = SitePlan(
            place=place / "peers",
            zones=(),
            links=None,
            spark=plan.spark,
            capacity=CAPACITY,
            kind=NodeService,
            sample_share=USUAL.sample_share,
            epoch_s=USUAL.epoch_s,
        )
        tell(f"starting {len(PEERS)} peers")
        with EdgeCluster(site, plan.processes) as cluster, CpuWatch() as cpu:
            seen = _soaked(Soak(plan, cluster, place, cpu, tell))
    details: dict[str, Any] = {"machine": asdict(machine), "links": told(), "plan": asdict(plan), **seen}
    details["memory_judged"] = growth(details["memory"])
    ratios = _ratios(details)
    details["goals"] = {name: f"{sign} {goal}" for name, (sign, goal) in GOALS.items()}
    details["reached"] = {name: _is_reached(name, ratios[name]) for name in GOALS}
    details["limits"] = {name: _limit(name, details) for name, met in details["reached"].items() if not met}
    result: dict[str, Any] = {"ratios": ratios, "details": details, "figures": []}
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        result["figures"] = [str(path) for path in draw_figures(details, machine, output)]
        output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


def _ratios(details: dict[str, Any]) -> dict[str, float]:
    results, changes = details["results"], details["changes"]
    if not changes:
        raise EngineError("nobody joined or left; let the soak run for longer")
    return {
        "outputs_equal_to_oracle": round(sum(not one["wrong"] for one in results) / len(results), 4),
        "ledgers_balanced": round(sum(one["balanced"] for one in results) / len(results), 4),
        "nodes_left_as_wanted": round(sum("left" in one for one in changes) / len(changes), 4),
        "memory_growth": max(one["growth"] for one in details["memory_judged"].values()),
        "load": details["load"],
    }


def _is_reached(name: str, value: float) -> bool:
    sign, goal = GOALS[name]
    return value <= goal if sign == "<=" else value >= goal


def _limit(name: str, details: dict[str, Any]) -> str:
    """Say what was seen of a ratio that was not reached."""
    match name:
        case "memory_growth":
            return f"growth by process: {details['memory_judged']}"
        case "nodes_left_as_wanted":
            return "; ".join(one["failure"] for one in details["changes"] if "failure" in one)
        case _:
            return str([one for one in details["results"] if one["wrong"] or not one["balanced"]])


def run(quick: bool, output: Path | None, tell: Tell) -> dict[str, Any]:
    """Run the benchmark, as `headwater bench soak` does."""
    return run_plan(plan_for(quick), output, tell)


def main() -> None:
    """Run from the command line."""
    parser = parser_for(__doc__)
    parser.add_argument("--minutes", type=float, help="how long nodes come and go")
    given = parser.parse_args()
    plan = plan_for(given.quick)
    if given.minutes is not None:
        plan = replace(plan, minutes=given.minutes)
    print_found(run_plan(plan, given.json, print))


if __name__ == "__main__":
    main()
