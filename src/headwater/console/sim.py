"""`headwater sim`: the stories of many seeds, each in a world of its own, over all cores; or of one, to watch it."""

import json
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from headwater.console.options import SetOption
from headwater.console.screen import screen
from headwater.console.sim_flows import Subject, prepared
from headwater.model.errors import ConfigError
from headwater.sim.faults import faults_named
from headwater.sim.story import NODES_MIN, StoryOutcome
from headwater.sim.troubled import NODES_MAX, beyond_limits
from headwater.workers.config import cores_here

SEEDS: Final = 100
SEEDS_AT_ONCE: Final = 8  # per task of a worker: few enough for smooth progress
LINE_S: Final = 10.0  # between two lines of progress: it is seen to go on, and the log of an hour stays readable
LATELY_TOLD: Final = 24  # events that are printed with a failure
FAILURES_TOLD: Final = 20  # in full; beyond that only the commands


def sim(
    flow: Annotated[
        str | None,
        typer.Argument(
            metavar="FLOW.py[:NAME]|APP", help="Flows whose rows are to arrive.", show_default="apps without rows"
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(metavar="N", help="How many stories.")] = SEEDS,
    first: Annotated[int, typer.Option("--from", metavar="SEED", help="The first of the seeds.")] = 0,
    seed: Annotated[int | None, typer.Option(metavar="SEED", help="Only this story.")] = None,
    faults: Annotated[str, typer.Option(metavar="NAME[+NAME]", help="What goes wrong.")] = "stormy",
    nodes: Annotated[
        int | None, typer.Option(metavar="N", help="Nodes to begin with.", show_default="3 to 64, by the seed")
    ] = None,
    rows: Annotated[int | None, typer.Option(help="Make so many rows for an application.", show_default="1000")] = None,
    rate: Annotated[float | None, typer.Option(help="Rows a virtual second.", show_default="50")] = None,
    settings: SetOption = None,
    trace: Annotated[bool, typer.Option("--trace", help="Print every event; with --seed.")] = False,
    workers: Annotated[int | None, typer.Option(help="Processes.", show_default="one per core")] = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a report of the run as JSON.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report on the last line.")] = False,
) -> None:
    """Let misfortune strike rings of nodes with apps, in a simulator, and demand that they are whole again.

    With a flow, its rows are under way meanwhile, and must all arrive, each once.
    """
    faults_named(faults)  # an unknown name is refused before anything runs
    _refuse_nonsense(seeds, seed, nodes, workers, trace=trace)
    _refuse_unwritable(report)
    subject = Subject(flow, rows, rate, tuple(settings or ()))
    console = screen(stderr=as_json)
    if subject.flow is not None:
        _print_subject(console, subject)
    tally = Tally(faults=faults, nodes=nodes)
    if seed is not None:
        with console.status(f"seed {seed} is under way"):
            tally.add(subject.story(seed, faults, nodes, _line_printer(console) if trace else None))
        _print_story(console, tally.outcomes[0])
    else:
        wanted = range(first, first + seeds)
        console.print(f"{seeds:,} stories of {faults}, seeds {first} to {first + seeds - 1}", markup=False)
        outcomes = _outcomes(wanted, faults, nodes, subject, workers or cores_here())
        for outcome in with_progress(console, outcomes, seeds):
            tally.add(outcome)
            if outcome.failure is not None and tally.failed <= FAILURES_TOLD:
                _print_failure(console, outcome)
        _print_tally(console, tally)
    if report is not None:
        _write(report, tally)
        console.print(f"report: {report}", soft_wrap=True, markup=False)
    if as_json:
        print(json.dumps(tally.report()))
    raise typer.Exit(1 if tally.failed or tally.beyond_limits() else 0)


def _refuse_nonsense(seeds: int, seed: int | None, nodes: int | None, workers: int | None, *, trace: bool) -> None:
    if seeds < 1:
        raise ConfigError(f"--seeds {seeds} tells no story; give at least 1")
    if nodes is not None and not NODES_MIN <= nodes <= NODES_MAX:
        raise ConfigError(f"--nodes {nodes} is not within {NODES_MIN} to {NODES_MAX}")
    if workers is not None and workers < 1:
        raise ConfigError(f"--workers {workers} leaves nobody to tell a story; give at least 1")
    if trace and seed is None:
        raise ConfigError("--trace prints one story: say which with --seed")


def _refuse_unwritable(report: Path | None) -> None:
    """Refuse a report that could not be written, before the run, which may take hours."""
    if report is not None and not report.parent.is_dir():
        raise ConfigError(f"--report {report}: there is no directory {report.parent}; make it first")
    if report is not None and report.is_dir():
        raise ConfigError(f"--report {report} is a directory; give a file")


def _write(report: Path, tally: "Tally") -> None:
    try:
        report.write_text(json.dumps(tally.report(), indent=1) + "\n", encoding="utf-8")
    except OSError as failure:
        raise ConfigError(f"the report {report} cannot be written: {failure.strerror}") from failure


@dataclass(slots=True)
class Tally:
    """How the stories of a run ended."""

    faults: str
    nodes: int | None
    outcomes: list[StoryOutcome] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    failed: int = 0

    def add(self, outcome: StoryOutcome) -> None:
        """Add the outcome of one story."""
        self.outcomes.append(outcome)
        self.failed += outcome.failure is not None

    @property
    def seeds_per_s(self) -> float:
        """Stories a second so far."""
        return len(self.outcomes) / max(1e-9, time.monotonic() - self.began)

    def excused(self) -> dict[str, int]:
        """Return how many apps were not as their users want them, by why that was nobody's fault."""
        return dict(sorted(sum((Counter(one.excused) for one in self.outcomes), Counter()).items()))

    def beyond_limits(self) -> list[str]:
        """Return which excuses were needed too often."""
        return beyond_limits(self.excused(), sum(one.apps for one in self.outcomes))

    def report(self) -> dict[str, Any]:
        """Return the record of a run."""
        outcomes = sorted(self.outcomes, key=lambda outcome: outcome.seed)
        healed = sorted(one.healed_in_s for one in outcomes if one.healed_in_s is not None)
        return {
            "faults": self.faults,
            "nodes": self.nodes,
            "seeds": {"first": outcomes[0].seed, "last": outcomes[-1].seed, "count": len(outcomes)},
            "failed": self.failed,
            "rings": _counts(one.nodes for one in outcomes),
            "apps": sum(one.apps for one in outcomes),
            "events": sum(one.events for one in outcomes),
            "excused": self.excused(),
            "beyond_limits": self.beyond_limits(),
            "happened": dict(sorted(sum((Counter(one.happened) for one in outcomes), Counter()).items())),
            "virtual_hours": round(sum(one.virtual_s for one in outcomes) / 3600, 2),
            "took_s": round(time.monotonic() - self.began, 1),
            "healed_in_s": {name: _quantile(healed, share) for name, share in QUANTILES.items()},
            "digest_of_first": outcomes[0].digest,
            "failures": [{"replay": one.replay, **asdict(one)} for one in outcomes if one.failure is not None],
        }


QUANTILES: Final = {"p50": 0.5, "p99": 0.99, "max": 1.0}


def _quantile(ordered: list[float], share: float) -> float | None:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def _counts(sizes: Iterator[int]) -> dict[str, int]:
    """Return how many rings had a size in each range."""
    spans = {
        "3-4": range(3, 5),
        "5-8": range(5, 9),
        "9-16": range(9, 17),
        "17-32": range(17, 33),
        "33-64": range(33, 65),
    }
    found = list(sizes)
    return {name: sum(size in span for size in found) for name, span in spans.items()}


# --- many stories -----------------------------------------------------------------------------------------------------


def _some(seeds: range, faults: str, nodes: int | None, subject: Subject) -> list[StoryOutcome]:
    return [subject.story(seed, faults, nodes) for seed in seeds]


def _outcomes(seeds: range, faults: str, nodes: int | None, subject: Subject, workers: int) -> Iterator[StoryOutcome]:
    """Simulate stories in several processes, and yield each outcome as it comes."""
    parts = [seeds[start : start + SEEDS_AT_ONCE] for start in range(0, len(seeds), SEEDS_AT_ONCE)]
    if workers == 1:
        for part in parts:
            yield from _some(part, faults, nodes, subject)
        return
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            for done in as_completed([pool.submit(_some, part, faults, nodes, subject) for part in parts]):
                yield from done.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def with_progress(
    console: Console, outcomes: Iterable[StoryOutcome], seeds: int, clock: Callable[[], float] = time.monotonic
) -> Iterator[StoryOutcome]:
    """Yield the outcomes, and show progress meanwhile: as a bar, or as lines without a terminal."""
    return _with_bar(console, outcomes, seeds) if console.is_terminal else _with_lines(console, outcomes, seeds, clock)


def _with_lines(
    console: Console, outcomes: Iterable[StoryOutcome], seeds: int, clock: Callable[[], float]
) -> Iterator[StoryOutcome]:
    began = told = clock()
    failed = 0
    for number, outcome in enumerate(outcomes, start=1):
        failed += outcome.failure is not None
        now = clock()
        if now - told >= LINE_S:
            told, pace = now, number / (now - began)
            console.print(f"{number:,} of {seeds:,} seeds, {pace:.1f} a second, {failed:,} failed", markup=False)
        yield outcome


def _with_bar(console: Console, outcomes: Iterable[StoryOutcome], seeds: int) -> Iterator[StoryOutcome]:
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    began, failed = time.monotonic(), 0
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("", total=seeds)
        for number, outcome in enumerate(outcomes, start=1):
            failed += outcome.failure is not None
            pace = number / max(1e-9, time.monotonic() - began)
            progress.update(bar, completed=number, description=f"{pace:.1f} seeds/s, {failed} failed")
            yield outcome


# --- what is printed --------------------------------------------------------------------------------------------------


def _line_printer(console: Console) -> Any:
    return lambda line: console.print(line, markup=False, soft_wrap=True)


def _print_subject(console: Console, subject: Subject) -> None:
    """Say what has to arrive, and the progress of preparing it: a flow without an end runs for a while."""
    console.print("first on a node that nothing disturbs, to know what has to arrive", markup=False)
    with console.status("reading") as shown:
        _, expected = prepared(subject, lambda flow, rows, s: shown.update(f"{flow}: {rows:,} rows in {s:,.1f} s"))
    for name, sinks in expected.items():
        rows = ", ".join(f"{counts.total():,} rows in {sink}" for sink, counts in sinks.items())
        console.print(f"{name}: {rows}", markup=False, soft_wrap=True)


def _print_story(console: Console, outcome: StoryOutcome) -> None:
    if outcome.failure is not None:
        _print_failure(console, outcome)
        return
    console.print(
        f"seed {outcome.seed}: {outcome.nodes} nodes, {outcome.apps} apps, {outcome.events:,} events in "
        f"{outcome.virtual_s:,.1f} s of virtual time; whole again {outcome.healed_in_s:.0f} s after healing",
        soft_wrap=True,
        markup=False,
    )
    console.print(f"digest {outcome.digest}", markup=False)


def _print_failure(console: Console, outcome: StoryOutcome) -> None:
    failure = outcome.failure
    assert failure is not None
    what = f"seed {outcome.seed} failed at {failure.at_s:.3f} s: {failure.what}"
    console.print(what, style="red", markup=False, soft_wrap=True)
    for line in failure.lately[-LATELY_TOLD:]:
        console.print(f"  {line}", markup=False, soft_wrap=True, style="dim")
    console.print(f"digest {outcome.digest}\nreplay: {outcome.replay}", markup=False, soft_wrap=True)


def _print_tally(console: Console, tally: Tally) -> None:
    report = tally.report()
    healed = report["healed_in_s"]["p99"]
    console.print(
        f"{len(tally.outcomes):,} stories, {tally.failed} failed; {report['apps']:,} apps, {report['events']:,} "
        f"events, {report['virtual_hours']:,} virtual hours in {report['took_s']:,} s ({tally.seeds_per_s:.1f} seeds/s)"
        + ("" if healed is None else f"; 99 % whole again within {healed:.0f} s of healing"),
        soft_wrap=True,
        markup=False,
    )
    for excuse, apps in report["excused"].items():
        console.print(f"{apps:,} of {report['apps']:,} apps {excuse}", markup=False, soft_wrap=True)
    for limit in report["beyond_limits"]:
        console.print(f"too many: {limit}", markup=False, soft_wrap=True)
    for outcome in [one for one in tally.outcomes if one.failure is not None][FAILURES_TOLD:]:
        console.print(f"replay: {outcome.replay}", markup=False, soft_wrap=True)
