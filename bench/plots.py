"""Draws what was measured: latency distributions, throughput, and where a row's time goes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.processes import Machine

mpl.use("Agg")

OURS: Final = "#1b6ca8"
THEIRS: Final = "#c8553d"
GREYS: Final = ("#1b6ca8", "#7fb2d6", "#f0a868", "#bdbdbd")

Percentiles = Mapping[str, float]


def draw_latencies(panels: Mapping[str, Mapping[str, Percentiles]], machine: Machine, path: Path) -> Path:
    """Draw distributions side by side: a panel for each comparison, a line for each engine, latency on a log scale."""
    figure = Figure(figsize=(5.2 * len(panels), 4.8), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (title, lines) in zip(axes, panels.items(), strict=True):
        for number, (label, percentiles) in enumerate(lines.items()):
            _distribution(axis, label, percentiles, OURS if "Headwater" in label else THEIRS, number)
        axis.set(title=title, xscale="log", xlabel="end-to-end latency [ms]", ylabel="rows no slower than this [%]")
        axis.set_ylim(0, 101)
        axis.grid(visible=True, which="both", alpha=0.25)
        axis.legend(fontsize=7, loc="lower center", bbox_to_anchor=(0.5, -0.42))
    return save(figure, machine, path)


def _distribution(axis: Axes, label: str, percentiles: Percentiles, color: str, number: int) -> None:
    shares = [float(name.removeprefix("p")) for name in percentiles]
    style = ("-", "--", ":", "-.")[number % 4]
    told = f"{label}: p50 {_figure(percentiles['p50'])} ms, p99 {_figure(percentiles['p99'])} ms"
    axis.plot(list(percentiles.values()), shares, style, color=color, label=told, marker=".", markersize=4)


def draw_bars(
    title: str, unit: str, bars: Mapping[str, float], machine: Machine, path: Path, goal: float | None = None
) -> Path:
    """Draw one bar for each figure, with its value beside it, and the goal as a line."""
    figure = Figure(figsize=(7.0, 1.2 + 0.5 * len(bars)), layout="constrained")
    axis = figure.subplots()
    names, values = list(bars), list(bars.values())
    drawn = axis.barh(names, values, color=[OURS if "Headwater" in name else THEIRS for name in names])
    axis.bar_label(drawn, labels=[_figure(value) for value in values], padding=3, fontsize=8)
    axis.xaxis.set_major_formatter(lambda value, _: _figure(value))
    axis.set(title=title, xlabel=unit)
    axis.margins(x=0.15)
    axis.invert_yaxis()
    if goal is not None:
        axis.axvline(goal, color="black", linestyle="--", linewidth=1, label=f"goal: {_figure(goal)}")
        axis.legend(fontsize=8, loc="lower right")
    return save(figure, machine, path)


def draw_breakdown(title: str, parts: Mapping[str, Mapping[str, float]], machine: Machine, path: Path) -> Path:
    """Draw where the mean latency goes: a stacked bar for each chain, in milliseconds per row."""
    figure = Figure(figsize=(7.0, 1.5 + 0.45 * len(parts)), layout="constrained")
    axis = figure.subplots()
    kinds = list(dict.fromkeys(kind for part in parts.values() for kind in part))
    begin = dict.fromkeys(parts, 0.0)
    for kind, color in zip(kinds, GREYS, strict=False):
        widths = [part.get(kind, 0.0) for part in parts.values()]
        axis.barh(list(parts), widths, left=list(begin.values()), color=color, label=kind)
        begin = {name: begin[name] + width for name, width in zip(parts, widths, strict=True)}
    axis.set(title=title, xlabel="milliseconds per row, mean")
    axis.invert_yaxis()
    axis.legend(fontsize=8)
    return save(figure, machine, path)


def _figure(value: float) -> str:
    """Write a number as people read it: three digits, or all of a large one."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def save(figure: Figure, machine: Machine, path: Path) -> Path:
    """Save a figure with what it was measured on below it."""
    figure.supxlabel(f"Measured on {machine}.", y=-0.02, va="top", fontsize=7, color="#555555")
    figure.savefig(path, dpi=130, bbox_inches="tight")  # the caption lies below everything else
    return path
