"""Three pictures: what each engine holds, how long a result takes, and what many applications do to it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.plots import save
from bench.processes import Machine
from bench.rivals.contests import CONTESTS
from bench.rivals.measuring import Many, Measured
from bench.rivals.verdicts import TITLES

COLORS: Final = {"headwater": "#1b6ca8", "structured": "#f0a868", "pyflink": "#c8553d", "bytewax": "#6a994e"}
HEIGHT: Final = 0.2  # of a bar; four of them and a gap to an application

ByEngine = Mapping[str, Mapping[str, Measured]]


def draw_figures(
    measured: ByEngine, many: Mapping[str, Mapping[int, Many]], machine: Machine, output: Path
) -> list[Path]:
    """Draw everything there is, beside the JSON file."""
    drawn = []
    if measured:
        drawn += [_throughput(measured, machine, output), _latency(measured, machine, output)]
    if many:
        drawn.append(_many(many, machine, output))
    return drawn


def _throughput(measured: ByEngine, machine: Machine, output: Path) -> Path:
    figure, axis = _bars(
        measured,
        lambda one: one.throughput,
        lambda one: f"{one.throughput:,.0f}, {one.cpu_s_per_million_rows:.3g} CPU s/M",
    )
    axis.set(title="Throughput, with the CPU seconds that a million rows take", xscale="log", xlabel="rows per second")
    axis.margins(x=0.35)
    return save(figure, machine, output.with_name(f"{output.stem}-throughput.png"))


def _latency(measured: ByEngine, machine: Machine, output: Path) -> Path:
    figure, axis = _bars(
        measured, lambda one: one.latency.p99, lambda one: f"{one.latency.p50:.3g} / {one.latency.p99:.3g}"
    )
    axis.set(title="Latency: p50 / p99", xscale="log", xlabel="p99 from when a row is due to its result [ms]")
    axis.margins(x=0.25)
    return save(figure, machine, output.with_name(f"{output.stem}-latency.png"))


def _bars(
    measured: ByEngine, value: Callable[[Measured], float], label: Callable[[Measured], str]
) -> tuple[Figure, Axes]:
    """Draw a bar for each application and engine."""
    contests = [name for name in CONTESTS if any(name in by_name for by_name in measured.values())]
    figure = Figure(figsize=(8.0, 1.5 + len(contests) * (len(measured) + 1) * HEIGHT * 0.95), layout="constrained")
    axis = figure.subplots()
    for number, (engine, by_name) in enumerate(measured.items()):
        places = [place + number * HEIGHT for place, name in enumerate(contests) if name in by_name]
        known = [by_name[name] for name in contests if name in by_name]
        bars = axis.barh(places, [value(one) for one in known], HEIGHT, color=COLORS[engine], label=TITLES[engine])
        axis.bar_label(bars, labels=[label(one) for one in known], padding=3, fontsize=7)
    middle = (len(measured) - 1) * HEIGHT / 2
    axis.set_yticks([place + middle for place in range(len(contests))], [_titled(name) for name in contests])
    axis.invert_yaxis()
    axis.grid(visible=True, axis="x", which="major", alpha=0.25)
    axis.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=len(measured))
    return figure, axis


def _titled(contest: str) -> str:
    return f"{CONTESTS[contest].title}\n{CONTESTS[contest].pace:,.0f} rows/s"


def _many(many: Mapping[str, Mapping[int, Many]], machine: Machine, output: Path) -> Path:
    """Draw p50 and p99 against the number of applications."""
    figure = Figure(figsize=(7.0, 4.6), layout="constrained")
    axis = figure.subplots()
    for engine, by_count in many.items():
        counts = list(by_count)
        for share, style in (("p50", "--"), ("p99", "-")):
            values = [getattr(one.latency, share) for one in by_count.values()]
            axis.plot(
                counts,
                values,
                style,
                color=COLORS[engine],
                marker="o",
                markersize=4,
                label=f"{TITLES[engine]}, {share}",
            )
    axis.set(
        title="Copies of TM at 100 rows/s each",
        xlabel="applications",
        ylabel="latency [ms]",
        xscale="log",
        yscale="log",
    )
    counts = sorted({count for by_count in many.values() for count in by_count})
    axis.set_xticks(counts, [str(count) for count in counts])
    axis.minorticks_off()
    axis.grid(visible=True, alpha=0.25)
    axis.legend(fontsize=8)
    return save(figure, machine, output.with_name(f"{output.stem}-apps.png"))
