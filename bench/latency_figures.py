"""Draws what the latency benchmark measured: AgileDART's Figure 9, a panel for each application."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from matplotlib.figure import Figure

from bench.plots import OURS, THEIRS, save
from bench.processes import Machine

Details = Mapping[str, Any]

SIDES: Final = {
    "ours": ("Headwater", OURS),
    "owpoa": ("one worker per operator", THEIRS),
    "worker_per_chain": ("one worker per chain", "#e8a33d"),
    "structured": ("Structured Streaming, central", "#6a6a6a"),
}


def draw_figures(details: Details, machine: Machine, output: Path) -> list[Path]:
    """Draw everything there is, beside the JSON file."""
    apps = details["apps"]
    figure = Figure(figsize=(5.0 * len(apps), 5.0), layout="constrained")
    axes = figure.subplots(1, len(apps), squeeze=False)[0]
    for axis, letter, (app, sides) in zip(axes, "abcdefgh", apps.items(), strict=False):
        for side, (label, color) in SIDES.items():
            runs = sides.get(side, [])
            for share, style in (("p50", "--"), ("p99", "-")):
                rates, times = [one["rate"] for one in runs], [one[share] for one in runs]
                if runs:
                    axis.plot(rates, times, style, marker="o", markersize=4, color=color, label=f"{label}, {share}")
        for level, rate in details["judged"]["rates"][app].items():
            axis.axvline(rate, color="#bdbdbd", linewidth=1)
            axis.annotate(level, (rate, 1.0), xycoords=("data", "axes fraction"), fontsize=7, ha="right", va="top")
        axis.set(title=f"9({letter}): {app}", xlabel="rows per second, of all peers", ylabel="latency [ms]")
        axis.set(xscale="log", yscale="log")
        axis.set_xticks([one["rate"] for one in sides["ours"]], [f"{one['rate']:,g}" for one in sides["ours"]])
        axis.minorticks_off()
        axis.grid(visible=True, which="both", alpha=0.25)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", fontsize=8)
    figure.suptitle("Results of rows that are read at 8 peers, for users at other peers, links of 20 to 100 ms")
    return [save(figure, machine, output.with_name(f"{output.stem}-figure9.png"))]
