"""Draws what the overlay benchmark measured: AgileDART's figures 8, 10 and 11(a)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from bench.plots import GREYS, OURS, THEIRS, save
from bench.processes import Machine

Details = Mapping[str, Any]


def draw_figures(details: Details, machine: Machine, output: Path) -> list[Path]:
    """Draw everything there is, beside the JSON file."""
    return [
        _deployment(details, machine, _path(output, "deployment")),
        _distribution(details, machine, _path(output, "distribution")),
        _recovery(details, machine, _path(output, "recovery")),
    ]


def _path(output: Path, name: str) -> Path:
    return output.with_name(f"{output.stem}-{name}.png")


def _deployment(details: Details, machine: Machine, path: Path) -> Path:
    """Figure 8(a) and (b): waiting and deployment against the number of apps; and app by app."""
    by_apps = details["deployment"]["by_apps"]
    counts = [int(apps) for apps in by_apps]
    figure, (means, single) = _panels(details, "apps that are submitted at one instant", 2)
    means.plot(counts, [one["central_queue_s"]["mean"] for one in by_apps.values()], "s:", color=THEIRS)
    means.plot(counts, [one["central_s"]["mean"] for one in by_apps.values()], "s-", color=THEIRS)
    means.plot(counts, [one["ours_s"]["mean"] for one in by_apps.values()], "o-", color=OURS)
    means.legend(["central: waiting for its turn", "central: until it runs", "stewards: until it runs"], fontsize=8)
    means.set(title="mean time of an app", xlabel="apps", ylabel="virtual seconds", ylim=(0, None))
    nth = list(by_apps.values())[-1]["nth_app_s"]
    for name, style, color in (("central", "-", THEIRS), ("ours", "-", OURS)):
        label = "one central master" if name == "central" else "stewards"
        single.plot([int(number) for number in nth[name]], list(nth[name].values()), style, color=color, label=label)
    single.set(title=f"until the n-th of {counts[-1]} apps runs", xlabel="n", ylim=(0, None))
    return _save(figure, (means, single), details, machine, path)


def _distribution(details: Details, machine: Machine, path: Path) -> Path:
    """Figure 10: operators over nodes, the same as a cumulative share, and stewards over zones."""
    by_apps = details["operators"]["by_apps"]
    figure, (bars, shares, zones) = _panels(details, "where operators and stewards are", 3)
    for place, (apps, one) in enumerate(by_apps.items()):
        loads = {int(load): count for load, count in one["nodes_by_operators"].items()}
        color = GREYS[place % len(GREYS)]
        width = 0.8 / len(by_apps)
        bars.bar(
            [load + place * width for load in loads], list(loads.values()), width, color=color, label=f"{apps} apps"
        )
        total, below, line = sum(loads.values()), 0, []
        for load in range(max(loads) + 1):
            below += loads.get(load, 0)
            line.append(100 * below / total)
        shares.plot(range(len(line)), line, ".-", color=color, label=f"{apps} apps")
        stewards = list(one["stewards_by_zone"].values())
        zones.bar(
            [zone + place * width for zone in range(len(stewards))], stewards, width, color=color, label=f"{apps} apps"
        )
    bars.set(title="operators per node", xlabel="operators", ylabel="nodes", yscale="log")
    shares.set(title="nodes with no more than this", xlabel="operators", ylabel="share of nodes [%]")
    zones.set(title="stewards per zone", xlabel="zone", ylabel="stewards")
    for counted in (bars.xaxis, shares.xaxis, zones.xaxis, zones.yaxis):
        counted.set_major_locator(MaxNLocator(integer=True))
    return _save(figure, (bars, shares, zones), details, machine, path)


def _recovery(details: Details, machine: Machine, path: Path) -> Path:
    """Figure 11(a): recovery against the number of simultaneous failures."""
    found = details["recovery"]
    failures = [one["failures"] for one in found]
    figure, (axis,) = _panels(details, "nodes that fail at one instant", 1)
    axis.plot(failures, [one["ring_s"] for one in found], "o-", color=OURS, label="ring: all leaf sets true again")
    axis.plot(
        failures, [one["dataflow_s"] for one in found], "s-", color=THEIRS, label="dataflow: all apps whole again"
    )
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:.0f}")
    axis.set(xlabel="simultaneous failures", ylabel="recovery [virtual s]", ylim=(0, None))
    return _save(figure, (axis,), details, machine, path)


def _panels(details: Details, title: str, count: int) -> tuple[Figure, tuple[Axes, ...]]:
    figure = Figure(figsize=(max(6.0, 4.6 * count), 4.4), layout="constrained")
    axes = figure.subplots(1, count, squeeze=False)[0]
    figure.suptitle(f"{details['nodes']:,} simulated nodes in {details['zones']} zones: {title}")
    return figure, tuple(axes)


def _save(figure: Figure, axes: Sequence[Axes], details: Details, machine: Machine, path: Path) -> Path:
    for axis in axes:
        axis.grid(visible=True, alpha=0.25)
        if axis.get_legend() is None:
            axis.legend(fontsize=8)
    return save(figure, machine, path)
