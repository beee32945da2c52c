"""Every application with an input that shows something, and how its results are compared.

Results that may come in any order are compared as a whole; where a flow keeps the order of all its rows, or of those
with the same key, so must every engine that is not Structured Streaming, whose micro-batches have none. The last digits
of fractions may differ: in which order a sum was made is nobody's promise. What an engine makes up itself is left out.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isclose
from pathlib import Path
from typing import Any, Final

Row = Mapping[str, Any]
Results = Mapping[str, Sequence[Row]]  # by name
NEAR: Final = 1e-9  # of a fraction, and of nothing
TOLD_MAX: Final = 3  # rows of a difference


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """An application, so many rows of its own generator, and what its results have to agree in."""

    app: str
    rows: int = 300
    settings: tuple[str, ...] = ()
    spread: bool = True  # several instances where it has any, on all engines but the one node
    ordered_by: tuple[str, ...] | None = None  # rows that are equal in these columns keep their order; none: no order
    made_up: frozenset[str] = frozenset()  # columns that an engine makes up
    reduced: Callable[[Sequence[Row]], list[Row]] = list  # to what has to be the same

    def written(self, *, many: bool) -> tuple[str, ...]:
        """Return the options, as the command takes them."""
        return (*self.settings, "parallelism=3") if many and self.spread else self.settings


def last_rankings(rows: Sequence[Row]) -> list[Row]:
    """Keep the last ranking of each city: which rankings there were before depends on who came first."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row["rank"] == 1:
            found[row["city"]] = []
        found[row["city"]].append(row)
    return [row for city in sorted(found) for row in found[city]]


def _trial(app: str, rows: int = 300, /, *settings: str, **other: Any) -> Trial:
    return Trial(app=app, rows=rows, settings=settings, **other)


ALL: Final[tuple[str, ...]] = ()  # columns: the order of all rows
TRIALS: Final = (
    _trial("debs2015.frequent_routes", spread=False, ordered_by=ALL),
    _trial("debs2015.profitable_areas", spread=False, ordered_by=ALL),
    _trial("linear_road.accidents", 700),
    _trial("linear_road.tolls", 700),
    _trial("nexmark.q5", 1_000),
    _trial("nexmark.q6", 1_000),
    _trial("nexmark.q7", 1_000, spread=False),
    _trial("nexmark.q8", 1_000),
    _trial("riotbench.etl", made_up=frozenset({"row", "batch"})),
    _trial("riotbench.pred"),
    _trial("riotbench.stats", 40, spread=False),
    _trial(
        "riotbench.stats_plots", 30, "dataset=grid", "sensors=2", "chart_values=5", "charts_per_archive=1", spread=False
    ),
    _trial("riotbench.train", 3, spread=False),
    _trial("scaling.remove_duplicates"),
    _trial("scaling.top_k", reduced=last_rankings),
    _trial("scaling.word_count", ordered_by=("word",)),
    _trial("soil.moisture"),
    _trial("storm.exclamation", spread=False, ordered_by=ALL),
    _trial("storm.join_bolt"),
    _trial("storm.lambdas", spread=False, ordered_by=ALL),
    _trial("storm.prefix", spread=False, ordered_by=ALL),
    _trial("storm.single_join"),
    _trial("storm.sliding_tuple_ts", spread=False, ordered_by=ALL),
    _trial("storm.sliding_window", spread=False, ordered_by=ALL),
    _trial("storm.word_count", ordered_by=("word",)),
    _trial("taxi.demand"),
    _trial("traffic.monitoring", ordered_by=("vehicle",)),
    _trial("urban.sensing", 600, "warm_up=2", "alert_above=2"),
)


def read_results(directory: Path, stem: str) -> dict[str, list[Row]]:
    """Return what the sinks of an application have written to `STEM.json` and `STEM-RESULT.json`."""
    return {
        path.stem.removeprefix(stem).removeprefix("-") or "results": [
            json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()
        ]
        for path in sorted(directory.glob(f"{stem}*.json"))
    }


def difference(trial: Trial, wanted: Results, found: Results, *, in_order: bool) -> str | None:
    """Say in what two engines differ; None if in nothing."""
    if wanted.keys() != found.keys():
        return f"results {sorted(found)} instead of {sorted(wanted)}"
    for name in wanted:
        due, come = (trial.reduced(each[name]) for each in (wanted, found))
        missing, more = _unmatched(trial, due, come), _unmatched(trial, come, due)
        if missing or more:
            some = [*(f"lacks {row}" for row in missing[:TOLD_MAX]), *(f"has {row}" for row in more[:TOLD_MAX])]
            return f"{name}: {len(missing)} of {len(due)} rows are missing, {len(more)} others have come: {some}"
        if in_order and trial.ordered_by is not None and not _same_order(trial, due, come):
            return f"{name}: the rows are the same, in another order"
    return None


@dataclass(frozen=True, slots=True, order=True)
class _Form:
    """A row without its fractions, and these."""

    exact: str
    fractions: tuple[float, ...]

    def is_near(self, other: "_Form") -> bool:
        pairs = zip(self.fractions, other.fractions, strict=False)
        return self.exact == other.exact and all(isclose(one, two, rel_tol=NEAR, abs_tol=NEAR) for one, two in pairs)


def _form(trial: Trial, row: Row) -> _Form:
    fractions: list[float] = []

    def parted(value: Any) -> Any:
        match value:
            case float():
                fractions.append(value)
                return "a fraction"
            case list():
                return [parted(one) for one in value]
            case dict():
                return {name: parted(one) for name, one in sorted(value.items())}
        return value

    kept = parted({name: value for name, value in row.items() if name not in trial.made_up})
    return _Form(json.dumps(kept), tuple(fractions))


def _unmatched(trial: Trial, rows: Sequence[Row], others: Sequence[Row]) -> list[Row]:
    """Return the rows that have no partner among the others: each of those is the partner of one row at most."""
    left: dict[str, list[_Form]] = defaultdict(list)
    for other in others:
        form = _form(trial, other)
        left[form.exact].append(form)
    alone = []
    for row in rows:
        form = _form(trial, row)
        partner = next((other for other in left[form.exact] if form.is_near(other)), None)
        if partner is None:
            alone.append(row)
        else:
            left[form.exact].remove(partner)
    return alone


def _same_order(trial: Trial, due: Sequence[Row], come: Sequence[Row]) -> bool:
    ours, theirs = _by_key(trial, due), _by_key(trial, come)
    return all(
        one.is_near(two) for key, forms in ours.items() for one, two in zip(forms, theirs.get(key, []), strict=True)
    )


def _by_key(trial: Trial, rows: Sequence[Row]) -> dict[tuple[str, ...], list[_Form]]:
    parts: dict[tuple[str, ...], list[_Form]] = defaultdict(list)
    for row in rows:
        parts[tuple(str(row[name]) for name in trial.ordered_by or ())].append(_form(trial, row))
    return parts
