"""README's tables of figures, made from the results that are kept.

    python -m bench.tables      # writes them into README.md; a test holds that nobody edits them by hand

A table stands between `<!-- table NAME -->` and `<!-- end -->`, where NAME is that of a file in bench/results.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.rivals.contests import CONTESTS
from bench.rivals.verdicts import TITLES

ROOT: Final = Path(__file__).parents[1]
README: Final = ROOT / "README.md"
RESULTS: Final = ROOT / "bench" / "results"
Result = Mapping[str, Any]
_PLACE: Final = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def engine(result: Result) -> str:
    """Return the engine benchmark's four ratios, with both of their sides."""
    details, ratios = result["details"], result["ratios"]
    percentiles = details["percentiles"]
    chain = min(percentiles[f"structured {name}"]["p50"] for name in ("chain_sql", "chain_arrow"))
    p99 = {count: median(run["summary"]["p99"] for run in runs) for count, runs in details["apps"].items()}
    fast, bare = (f"{rate / 1e6:.2f} M" for rate in (details["saturated"]["rows_per_s"], details["bare_rows_per_s"]))
    own_p50, their_p99 = percentiles["headwater chain 1,000 rows/s"]["p50"], percentiles["structured average"]["p99"]
    spark = "Structured Streaming"
    return _table(
        ("", "Headwater", "compared with", "ratio"),
        (
            (
                "p50 latency, five separate operators, 1,000 rows/s",
                _time(own_p50),
                f"{spark} {_time(chain)}",
                ratios["p50_vs_structured_streaming"],
            ),
            (
                "p99 latency, 8 keyed averages at 100 rows/s each",
                _time(p99["8 apps"]),
                f"{spark} {_time(their_p99)}",
                ratios["p99_vs_structured_streaming_8_apps"],
            ),
            (
                "rows/s, the chain fused, both cores full",
                fast,
                f"the same functions in bare loops {bare}",
                ratios["throughput_vs_bare_functions"],
            ),
            (
                "p99 latency, 100 keyed averages at 100 rows/s each",
                _time(p99["100 apps"]),
                f"one of them {_time(p99['1 app'])}",
                ratios["p99_100_apps_vs_1_app"],
            ),
        ),
    )


def operators(result: Result) -> str:
    """Return the speed of every operator, and that of the bare function beside it."""
    found = result["details"]["operators"]
    return _table(
        ("million rows/s", *found),
        (
            ("Headwater", *(one["rows_per_s"] / 1e6 for one in found.values())),
            (
                "the same in a bare vectorised function, in memory",
                *(one["bare_rows_per_s"] / 1e6 for one in found.values()),
            ),
            ("ratio, median of rounds (goal 0.5)", *(one["vs_bare"] for one in found.values())),
        ),
    )


def scheduler(result: Result) -> str:
    """Return the rates that both sides held, their ratio, the paper's, and the most that any schedule could do."""
    details, ratios = result["details"], result["ratios"]
    apps = [name.removesuffix("_vs_owpoa") for name in ratios]
    held = [details["held_rows_per_s"][app] for app in apps]
    return _table(
        ("rows/s held with p99 ≤ 100 ms", *(app.upper() for app in apps)),
        (
            ("longest queue first", *(f"{median(one['longest-queue']):,.0f}" for one in held)),
            ("one worker per operator", *(f"{median(one['one-worker-per-operator']):,.0f}" for one in held)),
            ("ratio", *ratios.values()),
            ("EdgeWise over Storm, on a Raspberry Pi", *(goal.split()[-1] for goal in details["goals"].values())),
            ("two cores that never rest", *(details["evidence"][app]["most_possible"] for app in apps)),
        ),
    )


def peers(result: Result) -> str:
    """Return Headwater's own figures, and by how much it is better than each peer: in throughput, in p99."""
    ratios, ours = result["ratios"], result["details"]["engines"]["headwater"]
    others = [name for name in TITLES if name != "headwater"]
    rows = []
    for name, one in ours.items():
        latency = one["latency"]
        throughput = one["rows_per_s"] if one["held_rows_per_s"] is None else one["held_rows_per_s"]
        cells = [
            f"{_number(ratios[f'{name}_throughput_vs_{peer}'])} · {_number(ratios[f'{name}_p99_vs_{peer}'])}"
            for peer in others
        ]
        told = f"{throughput:,.0f} rows/s · {_time(latency['p50'])} / {_time(latency['p99'])}"
        rows.append((f"{CONTESTS[name].title}, latency at {CONTESTS[name].pace:,.0f} rows/s", told, *cells))
    return _table(("", "Headwater: throughput · p50 / p99", *(f"over {TITLES[peer]}" for peer in others)), rows)


TABLES: Final[Mapping[str, Callable[[Result], str]]] = {
    "engine": engine,
    "operators": operators,
    "scheduler": scheduler,
    "peers": peers,
}


def with_tables(text: str, results: Path = RESULTS) -> str:
    """Return a text with its tables as the kept results have them."""

    def made(place: "re.Match[str]") -> str:
        name = place[2]
        result = json.loads((results / f"{name}.json").read_text(encoding="utf-8"))
        return f"{place[1]}{TABLES[name](result)}{place[3]}"

    return _PLACE.sub(made, text)


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *([_number(cell) for cell in row] for row in rows)]
    return "".join("|" + "|".join(f" {cell} " if cell != "---" else cell for cell in line) + "|\n" for line in lines)


def _number(value: Any) -> str:
    """Write a number with as many digits as mean something."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 2 else f"{value:.2f}"


def _time(ms: float) -> str:
    return f"{ms / 1e3:.1f} s" if ms >= 1_000 else f"{ms:.0f} ms" if ms >= 10 else f"{ms:.1f} ms"


def main() -> None:
    """Write README's tables anew."""
    README.write_text(with_tables(README.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
