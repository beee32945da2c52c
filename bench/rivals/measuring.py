"""One contest on one engine: what it holds, how long a result takes, what that costs; and many copies of one.

Each run warms up until results come. Then rows come at a pace that every engine should hold: there latency is measured.
Then they come as fast as they are taken, for some seconds, and what counts is when the last result is out. Where there
is time, a second run offers shares of that rate and tells which of them are really held.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from bench.arrivals import Arrivals, Summary, join, percentiles, summarize
from bench.rivals.checking import Told, told
from bench.rivals.contests import Input, Result, Rows
from bench.rivals.driving import Engine, Job, Results, Run
from bench.rivals.feeding import Fed, Stage

START: Final = "start"
WARM: Final = "warm"
PACE: Final = "pace"
BURST: Final = "burst"
DRAINED: Final = "drained"
CHECKED_ROWS: Final = 2_000  # whose results are compared; for windows there must be some more
CHECKED_EVENTS: Final = 10_000
KEPT: Final = 300_000  # results of a run
HELD_MS: Final = 1_000.0  # p99 of a rate that is held, or, for an engine that is never so fast,
HELD_TIMES: Final = 5.0  # so many times its p99 at the common pace
GROWTH_MAX: Final = 0.1  # of a stage's length: by so much may results come later at its end


@dataclass(frozen=True, kw_only=True)
class Spans:
    """How long things last, in seconds."""

    settle_s: float = 1.0
    pace_s: float = 3.0
    burst_s: float = 3.0
    burst_share: float = 1.0  # of the input that a burst may have at most
    ladder: tuple[float, ...] = ()  # shares of the burst's rate that are offered
    step_s: float = 3.0
    start_limit_s: float = 90.0
    limit_s: float = 60.0


@dataclass(frozen=True)
class Measured:
    """What was found of one contest on one engine."""

    rows_per_s: float  # that a burst was worked off with
    held_rows_per_s: float | None  # of the ladder; None if it was left out
    latency: Summary  # at the common pace
    percentiles: dict[str, float]
    cpu_s_per_million_rows: float
    cores_at_burst: float
    cores_at_pace: float
    memory_mb: float
    others_cores: float  # used meanwhile by what has nothing to do with it
    steps: dict[str, Any] = field(default_factory=dict)  # of the ladder

    @property
    def throughput(self) -> float:
        """What counts: the highest rate that was held; what a burst was worked off with, where that was not tried."""
        return self.rows_per_s if self.held_rows_per_s is None else self.held_rows_per_s


@dataclass(frozen=True)
class Many:
    """What was found of many copies."""

    latency: Summary
    percentiles: dict[str, float]
    cores: float
    memory_mb: float
    others_cores: float


def measure(engine: Engine, made: Input, spans: Spans, settings: dict[str, Any]) -> tuple[Measured, Told]:
    """Measure a contest, and return what the engine said about the first rows."""
    contest = made.contest
    checked = checked_rows(made)
    stages = (
        *_first_stages(contest.pace, checked, spans),
        Stage(PACE, contest.pace, spans.pace_s),
        Stage(BURST, None, spans.burst_s, rows=int(contest.rows * spans.burst_share)),
    )
    run = engine.run(_job(made, stages, spans, settings, stride=KEPT))
    looks, burst = run.looks, run.stage(BURST)
    assert burst is not None, "a burst takes what it gets, however late the pace was"
    arrivals = _arrivals(made, run, PACE)
    last_us = max(result.last_us for copy in run.results for result in copy)
    rate = burst.rows / max(1e-3, (last_us - burst.began_us) / 1e6)
    summary = summarize(arrivals)
    steps = _ladder(engine, made, spans, settings, rate, summary) if spans.ladder else {}
    measured = Measured(
        rows_per_s=round(rate, 1),
        held_rows_per_s=highest_held(steps, contest.pace) if steps else None,
        latency=summary,
        percentiles=percentiles(arrivals),
        cpu_s_per_million_rows=round((looks[DRAINED].cpu_s - looks[BURST].cpu_s) / burst.rows * 1e6, 2),
        cores_at_burst=round(looks[DRAINED].cores_since(looks[BURST]), 2),
        cores_at_pace=round(looks[BURST].cores_since(looks[PACE]), 2),
        memory_mb=run.memory_mb,
        others_cores=round(looks[DRAINED].others_since(looks[PACE]), 2),
        steps=steps,
    )
    results = [
        result for copy in run.results for recording in copy for _, items in recording.batches for result in items
    ]
    return measured, told(contest, results, made.causes(results, checked), checked)


def highest_held(steps: dict[str, Any], pace: float) -> float:
    """Return the highest rate of a ladder that was held: the common pace, at which results came, if no step was."""
    held = [float(step["rows_per_s"]) for step in steps.values() if step["held"]]
    return max([pace, *held])


def measure_many(engine: Engine, made: Input, copies: int, rate: float, spans: Spans, settings: dict[str, Any]) -> Many:
    """Measure the latency of many copies side by side, each with its own input."""
    stages = (*_first_stages(rate, 1, spans), Stage(PACE, rate, spans.pace_s))
    run = engine.run(_job(made, stages, spans, settings, copies=copies))
    arrivals = _arrivals(made, run, PACE)
    before, after = run.looks[PACE], run.looks[DRAINED]
    return Many(
        summarize(arrivals),
        percentiles(arrivals),
        round(after.cores_since(before), 2),
        run.memory_mb,
        round(after.others_since(before), 2),
    )


def _first_stages(pace: float, rows: int, spans: Spans) -> tuple[Stage, Stage]:
    """Return the stages that are not measured: until results come, and a little longer."""
    return Stage(START, pace, spans.start_limit_s, rows=rows, waits=True), Stage(WARM, pace, spans.settle_s)


def checked_rows(made: Input) -> int:
    """Return how many rows are compared: enough that windows are among their results."""
    return CHECKED_EVENTS if made.contest.app().wire == "json" and made.contest.pace > CHECKED_ROWS else CHECKED_ROWS


def _job(
    made: Input, stages: tuple[Stage, ...], spans: Spans, settings: dict[str, Any], copies: int = 1, stride: int = 1
) -> Job:
    return Job(
        contest=made.contest.name,
        lines=made.lines,
        offsets=made.offsets,
        settings={**made.settings, **settings},
        stages=stages,
        copies=copies,
        whole=KEPT,
        stride=stride,
        start_limit_s=spans.start_limit_s,
        limit_s=spans.limit_s,
    )


def _ladder(
    engine: Engine, made: Input, spans: Spans, settings: dict[str, Any], rate: float, usual: Summary
) -> dict[str, Any]:
    """Offer shares of a rate, and tell which of them are held."""
    pace = made.contest.pace
    offered = [Stage(f"{share:g}", share * rate, spans.step_s) for share in spans.ladder]
    stages = (*_first_stages(pace, checked_rows(made), spans), *offered)
    expected = int(sum(stage.seconds * (stage.rate or 0) for stage in offered))
    run = engine.run(_job(made, stages, spans, settings, stride=max(1, expected // KEPT)))
    names = {stage.name for stage in offered}
    bound_ms = max(HELD_MS, HELD_TIMES * usual.p99)
    return {
        stage.name: _step(stage, _arrivals(made, run, stage.name), bound_ms) for stage in run.fed if stage.name in names
    }


def _step(stage: Fed, arrivals: Arrivals, bound_ms: float) -> dict[str, Any]:
    """Tell whether a rate was held: results neither come too late, nor ever later."""
    figures: dict[str, Any] = {"rows_per_s": round(stage.rate or 0.0, 1), "held": False}
    if len(arrivals) == 0:
        return figures
    summary = summarize(arrivals)
    span_us = stage.rows / (stage.rate or 1.0) * 1e6
    first = arrivals.between(stage.began_us, stage.began_us + int(span_us / 4))
    last = arrivals.between(stage.began_us + int(span_us * 3 / 4), stage.began_us + int(span_us) + 1)
    growth_ms = float(np.median(last.latency_ms) - np.median(first.latency_ms)) if len(first) and len(last) else 0.0
    held = summary.p99 <= bound_ms and growth_ms <= max(GROWTH_MAX * span_us / 1e3, bound_ms / HELD_TIMES)
    return figures | {"held": bool(held), "p50": summary.p50, "p99": summary.p99, "growth_ms": round(growth_ms, 1)}


def _arrivals(made: Input, run: Run, name: str) -> Arrivals:
    """Return the results whose rows were due in a stage: when they were due, and when they came."""
    stage = run.stage(name)
    if stage is None or stage.rate is None:
        return join([])
    known = stage.first + stage.rows
    parts = []
    for copy, recordings in enumerate(run.results):
        for recording in recordings:
            results, arrived_us = _laid_out(recording)
            causes = made.causes(results, known)
            inside = (causes >= stage.first) & (causes < known)
            behind = causes[inside] - stage.first + copy / len(run.results)
            due_us = (stage.began_us + behind / stage.rate * 1e6).astype(np.int64)
            parts.append(Arrivals(due_us, arrived_us[inside]))
    return join(parts)


def _laid_out(recording: Results) -> tuple[Sequence[Result], Rows]:
    results = [result for _, items in recording.batches for result in items]
    times = [arrived_us for arrived_us, _ in recording.batches]
    return results, np.repeat(np.array(times, np.int64), [len(items) for _, items in recording.batches])
