"""Draws what the deployment benchmark measured: AgileDART's Figure 8, and every app by itself."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.plots import OURS, THEIRS, save
from bench.processes import Machine

Details = Mapping[str, Any]


def draw_figures(details: Details, machine: Machine, output: Path) -> list[Path]:
    """Draw everything there is, beside the JSON file."""
    figure = Figure(figsize=(12.0, 8.0), layout="constrained")
    (queue, deploy), (latency, single) = figure.subplots(2, 2)
    _against_apps(queue, details, "queue_ms", "8(a): until somebody takes an app up")
    _against_apps(deploy, details, "deploy_ms", "8(b): until it runs")
    _latencies(latency, details)
    _one_by_one(single, details)
    rate = details["ours"]["arrivals_per_s"]
    figure.suptitle(f"Apps of Storm's starter set on 8 peers, links of 20 to 100 ms, {rate:.0f} apps a second")
    return [save(figure, machine, output.with_name(f"{output.stem}-figure8.png"))]


def _against_apps(axis: Axes, details: Details, kind: str, title: str) -> None:
    for side, label, color in (("ours", "stewards", OURS), ("central", "one central master", THEIRS)):
        found = details[side]
        by_apps = {"1": found["one_app"], **found["by_apps"]}
        counts = [int(apps) for apps in by_apps]
        for share, style in (("p50", "--"), ("p99", "-")):
            times = [one[kind][share] / 1_000 for one in by_apps.values()]
            axis.plot(counts, times, style, marker="o", markersize=4, color=color, label=f"{label}, {share}")
    axis.set(title=title, xlabel="apps", ylabel="seconds from the submission", yscale="log")
    _finish(axis)


def _latencies(axis: Axes, details: Details) -> None:
    found = details["ours"]["query_latency_ms"]
    for share, style in (("p50", "--"), ("p99", "-")):
        known = {int(apps): one[share] for apps, one in found.items() if share in one}
        axis.plot(list(known), list(known.values()), style, marker="o", markersize=4, color=OURS, label=share)
    rows = details["plan"]["rows_per_s"]
    axis.set(title=f"8(c): latency of rows, {rows:g} rows/s into each app", xlabel="apps", ylabel="milliseconds")
    axis.set_ylim(0, None)
    _finish(axis)


def _one_by_one(axis: Axes, details: Details) -> None:
    for side, label, color in (("ours", "stewards", OURS), ("central", "one central master", THEIRS)):
        times = [one["deploy_ms"] / 1_000 for one in details[side]["all_apps"]]
        axis.plot(range(1, len(times) + 1), times, ".", color=color, markersize=4, label=label)
    axis.set(title="until the n-th app runs", xlabel="n", ylabel="seconds from its submission", yscale="log")
    _finish(axis)


def _finish(axis: Axes) -> None:
    axis.grid(visible=True, which="both", alpha=0.25)
    axis.legend(fontsize=8)
