"""Draws what the soak saw: memory over time, and how long it took nodes to join and to leave."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from bench.plots import OURS, THEIRS, save
from bench.processes import Machine

Details = Mapping[str, Any]


def draw_figures(details: Details, machine: Machine, output: Path) -> list[Path]:
    """Draw everything there is, beside the JSON file."""
    figure = Figure(figsize=(10.0, 7.0), layout="constrained")
    memory, changes = figure.subplots(2, 1, sharex=True)
    minutes = [at / 60 for at in details["memory"]["at_s"]]
    for name, sizes in details["memory"]["mb"].items():
        grown = details["memory_judged"][name]["growth"]
        memory.plot(minutes, sizes, label=f"{name}: {grown:+.1%} since the warm-up", linewidth=1.2)
    memory.set(title="anonymous memory of every process", ylabel="megabytes")
    memory.set_ylim(0, None)
    memory.grid(visible=True, alpha=0.25)
    memory.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    for kind, label, color in (("join_s", "to join", OURS), ("leave_s", "to leave for good", THEIRS)):
        known = [(one["at_s"] / 60, one[kind]) for one in details["changes"] if kind in one]
        changes.plot([at for at, _ in known], [took for _, took in known], "o", markersize=4, color=color, label=label)
    changes.set(title="nodes that joined and left", xlabel="minutes", ylabel="seconds that it took")
    changes.set_ylim(0, None)
    changes.grid(visible=True, alpha=0.25)
    changes.legend(fontsize=8)
    told = f"{details['apps']} apps, {details['readings']:,} readings, {details['load']:.0%} of the machine"
    figure.suptitle(f"Soak: {told}, {len(details['changes'])} nodes joined and left")
    return [save(figure, machine, output.with_name(f"{output.stem}-memory.png"))]
