"""Figures 7 to 11 of EdgeWise, and one more: what a row costs on either side.

7: throughput against latency. 8: how uneven the operators' utilisation is against the input rate. 9 and 10: where a
row's time goes in every operator, at a low, a medium and a high rate. 11: how many rows a turn takes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.plots import save
from bench.processes import Machine
from bench.scheduler_run import P99_MS_MAX, Contender, Run
from headwater.engine.policies import PolicyName

COLORS: Final = ("#1b6ca8", "#c8553d", "#7fb2d6", "#6a994e", "#f0a868", "#8d6cab", "#555555", "#2a9d8f", "#b5838d")
MARKERS: Final = ("o", "s", "^", "v", "D", "P", "X", "*", "h")
NEAR_RATES: Final = 1.03  # of a search's rungs, which are farther apart, and of a share that falls beside one
PARTS: Final = {"queue_ms": "behind other rows", "schedule_ms": "waiting for a worker", "compute_ms": "computing"}
SPENDERS: Final = {"workers": "workers", "node": "node: source, sinks, scheduler", "jvm": "JVM"}
PANEL: Final = 4.6  # inches
LATENCY_MS: Final = (20, 11 * P99_MS_MAX)  # worse than ten times what is allowed is drawn as that
LATENCY_TICKS: Final = (20, 50, 100, 200, 500, 1000)
LEVELS: Final = (0.4, 0.7, 1.0)  # low, medium and high: shares of the highest rate that both sides played and held


class Sides(Protocol):
    """Who is compared."""

    @property
    def ours(self) -> Contender:
        """The longest queue first."""
        ...

    @property
    def theirs(self) -> Contender:
        """One worker per operator."""
        ...


def draw_figures(runs: Sequence[Run], sides: Sides, machine: Machine, output: Path) -> list[Path]:
    """Draw everything there is, beside the JSON file."""
    drawing = _Drawing(runs, sides, machine, output)
    return [
        drawing.throughput_latency(),
        drawing.utilisation(),
        *drawing.breakdowns(),
        *drawing.consumptions(),
        drawing.costs(),
    ]


class _Drawing:
    """Knows which runs go into which plot."""

    def __init__(self, runs: Sequence[Run], sides: Sides, machine: Machine, output: Path) -> None:
        self._runs, self._ours, self._theirs = runs, sides.ours, sides.theirs
        self._machine, self._output = machine, output
        self._apps = list(dict.fromkeys(one.app for one in runs))
        self._contenders = list(dict.fromkeys(one.contender for one in runs))

    def throughput_latency(self) -> Path:
        """Figure 7: all policies, with as many rows in a turn as the topology says."""
        figure, axes = _panels(self._apps)
        for axis, app in zip(axes, self._apps, strict=True):
            self._curves(axis, app, [one for one in self._contenders if one.consumption is None])
        return self._save(figure, "throughput-latency")

    def consumptions(self) -> list[Path]:
        """Figure 11: how many rows a turn takes; nothing where only one number was tried."""
        tried = [one for one in self._contenders if one.consumption is not None]
        apps = [app for app in self._apps if any(self._of(app, one) for one in tried)]
        if not apps:
            return []
        figure, axes = _panels(apps)
        for axis, app in zip(axes, apps, strict=True):
            self._curves(axis, app, [self._ours, self._theirs, *tried])
        return [self._save(figure, "consumption")]

    def _curves(self, axis: Axes, app: str, contenders: Sequence[Contender]) -> None:
        for contender in contenders:
            runs = [one for one in self._curve(app, contender) if not one.given_up]
            if runs:
                latencies = [min(one.p99_ms, 10 * P99_MS_MAX) for one in runs]
                style = self._style(contender)
                axis.plot([one.rows_out_per_s for one in runs], latencies, label=contender.label, **style)
        axis.axhline(P99_MS_MAX, color="black", linestyle="--", linewidth=0.8)
        axis.set(title=app, yscale="log", xlabel="throughput [rows/s at the sinks]", ylabel="p99 latency [ms]")
        axis.set_xlim(left=0)
        axis.set_ylim(LATENCY_MS)
        axis.set_yticks(LATENCY_TICKS, map(str, LATENCY_TICKS))
        axis.minorticks_off()
        _finish(axis)

    def utilisation(self) -> Path:
        """Figure 8: both sides, against the input rate."""
        figure, axes = _panels(self._apps)
        for axis, app in zip(axes, self._apps, strict=True):
            for side in (self._ours, self._theirs):
                runs = [one for one in self._curve(app, side) if not one.given_up]
                shares = [one.utilisation_cv for one in runs]
                axis.plot([one.rate for one in runs], shares, label=side.label, **self._style(side))
            axis.set(title=app, xlabel="input rate [rows/s]", ylabel="variation of the operators' utilisation (CV)")
            axis.set_ylim(bottom=0)
            axis.set_xlim(left=0)
            _finish(axis)
        return self._save(figure, "utilisation")

    def breakdowns(self) -> list[Path]:
        """Figures 9 and 10: a picture for each app, one worker per operator above, the longest queue below."""
        return [self._breakdown(app) for app in self._apps if self._levels(app)]

    def _breakdown(self, app: str) -> Path:
        levels = self._levels(app)
        figure = Figure(figsize=(2.1 * PANEL, 1.5 * PANEL), layout="constrained")
        axes = figure.subplots(2, 1, sharex=True, squeeze=False)[:, 0]
        for axis, side in zip(axes, (self._theirs, self._ours), strict=True):
            _stacks(axis, {one.rate: one for one in self._of(app, side) if one.rate in levels})
            axis.set(title=f"{app}, {side.label}", ylabel="ms per row, mean")
            axis.legend(fontsize=7)
        top = max(axis.get_ylim()[1] for axis in axes)
        for axis in axes:
            axis.set_ylim(0, top * 1.1)
        return self._save(figure, f"breakdown-{app}")

    def _levels(self, app: str) -> list[float]:
        """Return three rates that both sides held: those nearest to low, medium and high."""
        ours, theirs = ({one.rate for one in self._of(app, side) if one.held} for side in (self._ours, self._theirs))
        common = sorted(ours & theirs)
        if len(common) < len(LEVELS):
            return []
        return sorted({min(common, key=lambda rate: abs(rate - level * common[-1])) for level in LEVELS})

    def costs(self) -> Path:
        """What a row of input costs in CPU at the highest rate held, by who spends it."""
        figure, axes = _panels(self._apps)
        for axis, app in zip(axes, self._apps, strict=True):
            for place, side in enumerate((self._ours, self._theirs)):
                held = [one for one in self._of(app, side) if one.held]
                if held:
                    _cost_bar(axis, place, held[-1])
            axis.set(title=app, ylabel="CPU per row of input [us]")
            axis.set_xticks([0, 1], [self._ours.label, self._theirs.label], fontsize=7)
            if axis.containers:
                axis.legend(fontsize=7, loc="upper center", ncols=3)
            axis.margins(y=0.2)
        return self._save(figure, "cost")

    def _of(self, app: str, contender: Contender) -> list[Run]:
        """Return the runs of an app under a policy, by rate; a rate that was played twice counts once, the better."""
        best: dict[float, Run] = {}
        for one in self._runs:
            if one.app == app and one.contender == contender:
                known = best.get(one.rate)
                if known is None or one.p99_ms < known.p99_ms:
                    best[one.rate] = one
        return [best[rate] for rate in sorted(best)]

    def _curve(self, app: str, contender: Contender) -> list[Run]:
        """Return the runs by rate; of rates so near that they are one point of a curve, the middle one by its p99."""
        points: list[list[Run]] = []
        for one in sorted((one for one in self._runs if one.app == app and one.contender == contender), key=_rate):
            if points and one.rate <= points[-1][0].rate * NEAR_RATES:
                points[-1].append(one)
            else:
                points.append([one])
        return [sorted(point, key=lambda one: one.p99_ms)[(len(point) - 1) // 2] for point in points]

    def _style(self, contender: Contender) -> dict[str, Any]:
        """Return how a contender is drawn: the same in every picture, and two of one picture never alike."""
        sides = (self._ours, self._theirs)
        others = [one for name in PolicyName if (one := replace(self._ours, policy=name)) not in sides]
        taking = [one for one in self._contenders if one.consumption is not None]
        number = [*sides, *others, *taking].index(contender)
        turn, color = divmod(number, len(COLORS))
        return {"color": COLORS[color], "marker": MARKERS[(color + turn) % len(MARKERS)], "markersize": 4}

    def _save(self, figure: Figure, name: str) -> Path:
        return save(figure, self._machine, self._output.with_name(f"{self._output.stem}-{name}.png"))


def _rate(run: Run) -> float:
    return run.rate


def _panels(names: Sequence[str]) -> tuple[Figure, list[Axes]]:
    columns = min(2, len(names))
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(1.2 * PANEL * columns, PANEL * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for spare in axes[len(names) :]:
        spare.set_visible(False)
    return figure, axes[: len(names)]


def _finish(axis: Axes) -> None:
    axis.grid(visible=True, which="both", alpha=0.25)
    axis.legend(fontsize=7)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def _stacks(axis: Axes, runs: Mapping[float, Run]) -> None:
    """Draw a stack for every operator and rate, its parts in the order in which a row meets them."""
    names = list(next(iter(runs.values())).operators)
    width = 0.8 / len(runs)
    for number, (rate, run) in enumerate(runs.items()):
        begin = [0.0] * len(names)
        for (part, told), color in zip(PARTS.items(), COLORS, strict=False):
            heights = [run.operators[name][part] for name in names]
            places = [place + (number - (len(runs) - 1) / 2) * width for place in range(len(names))]
            label = told if number == 0 else None
            axis.bar(places, heights, width * 0.9, bottom=begin, color=color, label=label)
            begin = [low + height for low, height in zip(begin, heights, strict=True)]
        for place, top in zip(places, begin, strict=True):
            axis.annotate(f"{rate:,.0f}/s", (place, top), rotation=90, fontsize=5, ha="center", va="bottom")
    axis.set_xticks(range(len(names)), names, fontsize=8)


def _cost_bar(axis: Axes, place: int, run: Run) -> None:
    begin = 0.0
    for (who, told), color in zip(SPENDERS.items(), COLORS, strict=False):
        height = run.costs.get(f"{who}_cores", 0.0) * 1e6 / max(1e-9, run.rows_in_per_s)
        axis.bar([place], [height], 0.6, bottom=begin, color=color, label=told if place == 0 else None)
        begin += height
    axis.annotate(f"at {run.rate:,.0f} rows/s", (place, begin), ha="center", va="bottom", fontsize=8)
