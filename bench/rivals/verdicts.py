"""From figures to ratios, sentences and a table for people."""

from collections.abc import Mapping, Sequence
from typing import Final

from bench.rivals.contests import CONTESTS
from bench.rivals.measuring import Many, Measured

ByContest = Mapping[str, Measured]
TITLES: Final = {
    "headwater": "Headwater",
    "structured": "Structured Streaming",
    "pyflink": "PyFlink",
    "bytewax": "Bytewax",
}


def ratios_of(ours: ByContest, theirs: Mapping[str, ByContest], contests: Sequence[str]) -> dict[str, float | None]:
    """Return all ratios, above 1 where Headwater is better; None where a side was not measured."""
    ratios: dict[str, float | None] = {}
    for contest in contests:
        for peer, figures in theirs.items():
            one, other = ours.get(contest), figures.get(contest)
            both = one is not None and other is not None
            ratios[f"{contest}_throughput_vs_{peer}"] = (
                round(one.throughput / other.throughput, 3) if both and one and other else None
            )
            ratios[f"{contest}_p99_vs_{peer}"] = (
                round(other.latency.p99 / one.latency.p99, 3) if both and one and other else None
            )
    return ratios


def limits_of(ours: ByContest, theirs: Mapping[str, ByContest], missed: Sequence[str]) -> dict[str, str]:
    """Say, for every ratio that was not reached, what the measurements show to be in the way."""
    return {name: _limit(name, ours, theirs) for name in missed}


def _limit(name: str, ours: ByContest, theirs: Mapping[str, ByContest]) -> str:
    about, _, peer = name.rpartition("_vs_")
    contest, _, kind = about.rpartition("_")
    one, other = ours[contest], theirs[peer][contest]
    if kind == "throughput":
        return (
            f"a million rows cost {one.cpu_s_per_million_rows:.1f} CPU seconds against "
            f"{other.cpu_s_per_million_rows:.1f}; {one.cores_at_burst:.2f} cores were busy against "
            f"{other.cores_at_burst:.2f}"
        )
    return (
        f"p50 is {one.latency.p50:.1f} ms against {other.latency.p50:.1f}, p99 {one.latency.p99:.1f} against "
        f"{other.latency.p99:.1f}; at {CONTESTS[contest].pace:,.0f} rows/s {one.cores_at_pace:.2f} cores were busy "
        f"against {other.cores_at_pace:.2f}"
    )


def markdown(
    measured: Mapping[str, ByContest],
    many: Mapping[str, Mapping[int, Many]],
    failures: Mapping[str, Mapping[str, str]],
    contests: Sequence[str],
    copies: Sequence[int],
) -> str:
    """Return two tables: the contests, and many copies of one; what could not be measured is told below them."""
    engines = [engine for engine in TITLES if engine in measured or engine in failures or engine in many]
    lines = [
        "| | " + " | ".join(f"{TITLES[engine]}" for engine in engines) + " |",
        "|---|" + "---|" * len(engines),
    ]
    for contest in contests:
        cells = (_cell(measured.get(engine, {}).get(contest)) for engine in engines)
        pace = f"{CONTESTS[contest].title}, at {CONTESTS[contest].pace:,.0f} rows/s"
        lines.append(f"| {pace} | " + " | ".join(cells) + " |")
    for count in copies:
        cells = (_many_cell(many.get(engine, {}).get(count)) for engine in engines)
        lines.append(f"| {count} × TM | " + " | ".join(cells) + " |")
    is_held = any(one.held_rows_per_s is not None for found in measured.values() for one in found.values())
    rate = "rows/s held" if is_held else "rows/s of a burst"
    legend = f"{rate} · p50 / p99 ms · CPU s per million rows · MB; for copies: p50 / p99 ms · cores · MB"
    told = [f"- {TITLES[engine]}, {what}: {why}" for engine, found in failures.items() for what, why in found.items()]
    return "\n".join([legend, "", *lines, "", *told]).rstrip() + "\n"


def _cell(one: Measured | None) -> str:
    if one is None:
        return "–"
    return (
        f"{one.throughput:,.0f} · {one.latency.p50:.3g} / {one.latency.p99:.3g} · "
        f"{one.cpu_s_per_million_rows:.3g} · {one.memory_mb:,.0f}"
    )


def _many_cell(one: Many | None) -> str:
    if one is None:
        return "–"
    return f"{one.latency.p50:.3g} / {one.latency.p99:.3g} · {one.cores:.2f} · {one.memory_mb:,.0f}"
