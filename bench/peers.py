"""Peers benchmark: six of the papers' applications on Headwater, Structured Streaming, PyFlink and Bytewax.

    python -m bench.peers --quick --json peers.json

Every engine gets the same lines from the same feeder, and its results are compared with Headwater's before anything
counts. One engine runs at a time, in processes of its own. README.md says what each ratio means, and how each peer was
tuned.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from bench.command_line import parser_for, print_found
from bench.processes import this_machine
from bench.rivals.checking import Told, difference
from bench.rivals.contests import CONTESTS, Input
from bench.rivals.driving import ROOT, Command, Engine, EngineFailed, scratch
from bench.rivals.environments import BYTEWAX, PYFLINK, Unavailable, python_of
from bench.rivals.figures import draw_figures
from bench.rivals.measuring import Many, Measured, Spans, measure, measure_many
from bench.rivals.verdicts import limits_of, markdown, ratios_of
from headwater.model.errors import EngineError
from headwater.spark.java import find_java

Tell = Callable[[str], None]

HEADWATER: Final = "headwater"
STRUCTURED: Final = "structured"
ENGINES: Final = (HEADWATER, BYTEWAX.name, PYFLINK.name, STRUCTURED)  # the quickest first: the time is limited
QUIET_CORES: Final = 0.15  # used by others: more, and no engine had the machine to itself
MANY: Final = "tm"  # what many copies are of: the lightest
MANY_RATE: Final = 100.0  # rows a second of each copy
FEW_JOBS: Final = 4  # room where one application runs at a time


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is measured, and for how long."""

    engines: tuple[str, ...] = ENGINES
    contests: tuple[str, ...] = tuple(CONTESTS)
    spans: Spans = field(default_factory=Spans)
    many: Spans = field(default_factory=lambda: Spans(settle_s=2.0, pace_s=4.0))
    copies: tuple[int, ...] = (1, 8, 32, 100)
    rows: int | None = None  # of each input; None: as many as the contest needs
    burst_shares: Mapping[str, float] = field(default_factory=dict)  # of engines that would take far too long otherwise
    budget_s: float = 3_600.0  # when so much time is used up, what is left is left out
    commands: Callable[[str, Tell, int], Command] = field(default_factory=lambda: command_of)


def plan_for(quick: bool) -> Plan:
    """Return the plan of the short form, within ten minutes on two cores, or of the full one."""
    if quick:
        return Plan(
            spans=Spans(pace_s=2.5, burst_s=2.5, start_limit_s=45.0, limit_s=25.0),
            many=Spans(settle_s=1.0, pace_s=3.0, start_limit_s=45.0, limit_s=25.0),
            copies=(1, 8, 32),
            burst_shares={STRUCTURED: 0.25},
            budget_s=540.0,
        )
    return Plan(
        spans=Spans(settle_s=3.0, pace_s=15.0, burst_s=8.0, ladder=(0.5, 0.7, 0.8, 0.9), step_s=6.0, limit_s=120.0),
        many=Spans(settle_s=5.0, pace_s=15.0, start_limit_s=240.0, limit_s=120.0),
        budget_s=5_400.0,
    )


def command_of(engine: str, tell: Tell, jobs: int) -> Command:
    """Return how an engine is started, with room for so many jobs; raises Unavailable if it cannot be had."""
    ours = {"PYTHONPATH": str(ROOT)}
    if engine == HEADWATER:
        return Command(engine, Path(sys.executable), "bench.rivals.headwater_engine", ours)
    if engine == STRUCTURED:
        return Command(engine, Path(sys.executable), "bench.rivals.structured_engine", ours)
    own = {"PYTHONPATH": ""}
    if engine == BYTEWAX.name:
        return Command(engine, python_of(BYTEWAX, tell), "bench.rivals.bytewax_engine", own, process_per_copy=True)
    try:
        java = {"JAVA_HOME": str(find_java().home)}
    except EngineError as failure:
        raise Unavailable(str(failure)) from failure
    python = python_of(PYFLINK, tell)
    return Command(engine, python, "bench.rivals.pyflink_engine", {**own, **java}, arguments=(str(jobs),))


@dataclass(slots=True)
class Findings:
    """Everything that was measured, by engine."""

    measured: dict[str, dict[str, Measured]] = field(default_factory=dict)
    many: dict[str, dict[int, Many]] = field(default_factory=dict)
    failures: dict[str, dict[str, str]] = field(default_factory=dict)  # by engine and by what failed: why
    expected: dict[str, Told] = field(default_factory=dict)  # Headwater's results, by contest
    start_s: dict[str, float] = field(default_factory=dict)

    def fail(self, engine: str, what: str, why: str) -> None:
        """Note a failure."""
        self.failures.setdefault(engine, {})[what] = why


def run(quick: bool, output: Path | None = None, tell: Tell = print) -> dict[str, Any]:
    """Measure everything and return ratios, details and figures; `output` is the JSON file that they go to."""
    return run_plan(plan_for(quick), output, tell)


def run_plan(plan: Plan, output: Path | None, tell: Tell) -> dict[str, Any]:
    """Measure what a plan says."""
    found = Findings()
    commands = {engine: _commands(plan, engine, found, tell) for engine in plan.engines}
    began = time.monotonic()  # what is made once is no part of the time that a run takes
    with scratch() as directory:
        place = Path(directory)
        tell("making the inputs")
        inputs = make_inputs(plan, place)
        for engine, both in commands.items():
            if both is not None:
                _Turn(plan, engine, found, place, began, tell).take(inputs, *both)
    details = details_of(plan, found)
    details["seconds"] = round(time.monotonic() - began, 1)
    if not details["quiet"]:
        tell(f"others used up to {details['disturbance_cores']:.1f} cores meanwhile; do not trust this run")
    result: dict[str, Any] = {"name": "peers", "ratios": details.pop("ratios"), "details": details, "figures": []}
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        result["figures"] = [str(path) for path in draw_figures(found.measured, found.many, this_machine(), output)]
        output.with_name(f"{output.stem}.md").write_text(details["table"], encoding="utf-8")
        output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return result


def _commands(plan: Plan, engine: str, found: Findings, tell: Tell) -> tuple[Command, Command] | None:
    """Return how an engine is started for one application and for many; None if it cannot be had, which is noted."""
    try:
        return plan.commands(engine, tell, FEW_JOBS), plan.commands(engine, tell, max(plan.copies, default=FEW_JOBS))
    except Unavailable as failure:
        found.fail(engine, "start", str(failure))
        tell(f"{engine}: {failure}")
        return None


def make_inputs(plan: Plan, place: Path) -> dict[str, Input]:
    """Make the lines of every contest, and of the one that there are many copies of."""
    names = dict.fromkeys((*plan.contests, *((MANY,) if plan.copies else ())))
    return {name: Input.make(CONTESTS[name], place, plan.rows) for name in names}


class _Turn:
    """One engine's turn: all contests, then more and more copies of one."""

    def __init__(self, plan: Plan, engine: str, found: Findings, place: Path, began: float, tell: Tell) -> None:
        self._plan, self._engine, self._found = plan, engine, found
        self._place, self._began, self._tell = place, began, tell
        self._spans = replace(plan.spans, burst_share=plan.burst_shares.get(engine, 1.0))

    def take(self, inputs: dict[str, Input], alone: Command, among_many: Command) -> None:
        """Measure; an engine that cannot be started is noted, with the reason."""
        try:
            self._tell(f"{self._engine}: starting")
            with Engine(alone, self._place) as engine:
                self._found.start_s[self._engine] = engine.start_s
                for name in self._plan.contests:
                    self._measure(engine, inputs[name])
                if self._plan.copies and among_many == alone:
                    self._measure_many(engine, inputs[MANY])
            if self._plan.copies and among_many != alone:
                with Engine(among_many, self._place) as engine:
                    self._measure_many(engine, inputs[MANY])
        except EngineFailed as failure:
            self._fail("start", failure)

    def _measure(self, engine: Engine, made: Input) -> None:
        name = made.contest.name
        if self._is_late(name):
            return
        try:
            measured, said = measure(engine, made, self._spans, {})
        except (EngineFailed, ValueError) as failure:  # ValueError: not one result came
            self._fail(name, failure)
            return
        if self._engine == HEADWATER:
            self._found.expected[name] = said
        wrong = difference(self._found.expected.get(name, {}), said)
        if wrong is not None:
            self._fail(name, ValueError(f"OTHER RESULTS than Headwater: {wrong}"))
            return
        self._found.measured.setdefault(self._engine, {})[name] = measured
        latency = measured.latency
        self._tell(
            f"{self._engine}: {name} {measured.throughput:,.0f} rows/s; at {made.contest.pace:,.0f} rows/s "
            f"p50 {latency.p50:.1f}, p99 {latency.p99:.1f} ms; {measured.cpu_s_per_million_rows:.1f} CPU s per million"
        )

    def _measure_many(self, engine: Engine, made: Input) -> None:
        for copies in self._plan.copies:
            what = f"{copies} apps"
            if self._is_late(what):
                return
            try:
                many = measure_many(engine, made, copies, MANY_RATE, self._plan.many, {})
            except (EngineFailed, ValueError) as failure:
                self._fail(what, failure)
                return  # more of them would not do better
            self._found.many.setdefault(self._engine, {})[copies] = many
            self._tell(
                f"{self._engine}: {copies} apps p50 {many.latency.p50:.1f}, p99 {many.latency.p99:.1f} ms, "
                f"{many.cores:.2f} cores, {many.memory_mb:,.0f} MB"
            )

    def _is_late(self, what: str) -> bool:
        """Leave the rest out when the time is used up, and say so."""
        if time.monotonic() - self._began < self._plan.budget_s:
            return False
        self._fail(what, TimeoutError("left out: the time for this benchmark was used up"))
        return True

    def _fail(self, what: str, failure: Exception) -> None:
        self._found.fail(self._engine, what, str(failure))
        self._tell(f"{self._engine}: {what}: {str(failure)[:300]}")


def details_of(plan: Plan, found: Findings) -> dict[str, Any]:
    """Return ratios, goals and all raw figures."""
    peers = [engine for engine in plan.engines if engine != HEADWATER]
    ours = found.measured.get(HEADWATER, {})
    theirs = {peer: found.measured.get(peer, {}) for peer in peers}
    ratios = ratios_of(ours, theirs, plan.contests)
    reached = {name: None if value is None else value > 1 for name, value in ratios.items()}
    disturbed = [one.others_cores for by_name in found.measured.values() for one in by_name.values()]
    disturbed += [one.others_cores for by_count in found.many.values() for one in by_count.values()]
    return {
        "ratios": ratios,
        "machine": asdict(this_machine()),
        "goals": dict.fromkeys(ratios, "> 1"),
        "reached": reached,
        "limits": limits_of(ours, theirs, [name for name, good in reached.items() if good is False]),
        "failures": found.failures,
        "engines": {
            engine: {name: asdict(one) for name, one in by_name.items()} for engine, by_name in found.measured.items()
        },
        "many_apps": {
            engine: {str(count): asdict(one) for count, one in by_count.items()}
            for engine, by_count in found.many.items()
        },
        "start_s": found.start_s,
        "table": markdown(found.measured, found.many, found.failures, plan.contests, plan.copies),
        "disturbance_cores": max(disturbed, default=0.0),
        "quiet": max(disturbed, default=0.0) <= QUIET_CORES,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = parser_for(__doc__)
    parser.add_argument("--copies", type=int, nargs="+", metavar="N", help="only so many copies of one, side by side")
    given = parser.parse_args(arguments)
    plan = plan_for(given.quick)
    if given.copies:
        plan = replace(plan, contests=(), copies=tuple(given.copies))
    print_found(run_plan(plan, given.json, print))


if __name__ == "__main__":
    main()
