"""RIoTBench's STATS with plots: what the stored charts show is read back from their lines and compared."""

import re
import xml.etree.ElementTree as ET
import zipfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from apps.riotbench.charts import Series, line_chart
from apps.riotbench.stats_plots import StatsPlots
from headwater.engine.policies import Consumption
from headwater.runtime.node import Node
from headwater.workers.local.pool import SparkPool
from tests.apps import riotbench_oracle as oracle
from tests.apps.app_results import Row, made_rows, results_of, twin_results_of

SVG = "{http://www.w3.org/2000/svg}"

Lines = list[list[float]]


def drawn(svg: str) -> tuple[str, Lines]:
    """Return the title of a chart and the values of its lines, read off its own vertical axis."""
    root = ET.fromstring(svg)
    assert (root.get("width"), root.get("height")) == ("800", "600")
    texts = list(root.iter(f"{SVG}text"))
    title = next(text.text for text in texts if text.get("font-size") == "17")
    ticks = [(float(text.get("y", 0)) - 4, float(text.text or 0)) for text in texts if text.get("text-anchor") == "end"]
    (y0, value0), (y1, value1) = ticks[0], ticks[-1]
    lines = [
        [value0 + (float(point.split(",")[1]) - y0) / (y1 - y0) * (value1 - value0) for point in line.split()]
        for line in (polyline.get("points", "") for polyline in root.iter(f"{SVG}polyline"))
    ]
    assert title is not None
    return title, lines


def charts_in(archives: Sequence[Row], directory: Path) -> dict[str, list[Lines]]:
    """Return the lines of all charts of these archives, by title; equal archives are one file."""
    found: dict[str, list[Lines]] = defaultdict(list)
    for row in archives:
        with zipfile.ZipFile(directory / row["file"]) as archive:
            for name in archive.namelist():
                title, lines = drawn(archive.read(name).decode())
                found[title].append(lines)
    return found


def expected(app: StatsPlots, lines: Sequence[str], per_chart: int) -> dict[str, list[Lines]]:
    """Return the lines of all charts by title, in order; a chart is drawn whenever there are enough results for it."""
    found = oracle.statistics(app.dataset, lines, None, app.seed)
    values: dict[str, list[Any]] = {}
    for (sensor, observable), results in found["regression"].items():
        values[f"regression of {observable}, {sensor}"] = [[one[0], one[-1]] for one in results]
    for (_, observable), results in found["distinct_count"].items():
        values[f"distinct count of {observable}, all sensors"] = results
    for (sensor, observable), results in averages(app.dataset, lines).items():
        values[f"average of {observable}, {sensor}"] = [[one] for one in results]
    return {
        title: [
            [list(line) for line in zip(*results[begin : begin + per_chart], strict=True)]
            for begin in range(0, len(results) - per_chart + 1, per_chart)
        ]
        for title, results in values.items()
        if len(results) >= per_chart
    }


def averages(dataset: str, lines: Sequence[str]) -> dict[tuple[str, str], list[float]]:
    """Return the means of every five, or ten, values of one observable of one sensor."""
    waiting: dict[tuple[str, str], list[float]] = defaultdict(list)
    made: dict[tuple[str, str], list[float]] = defaultdict(list)
    for line in lines:
        message = oracle.parsed(line)
        for name, value in message.items():
            if name in oracle.META[dataset] or not isinstance(value, float):
                continue
            key = message[oracle.ID[dataset]], name
            waiting[key].append(value)
            if len(waiting[key]) == oracle.AVERAGED[dataset]:
                made[key].append(sum(waiting[key]) / len(waiting[key]))
                waiting[key].clear()
    return made


def check(app: StatsPlots, lines: Sequence[str], archives: Sequence[Row]) -> None:
    """Check that the charts are those expected, with the same lines up to the width of a line."""
    wanted = expected(app, lines, app.chart_values)
    found = charts_in(archives, Path(app.directory))
    assert {title: len(charts) for title, charts in found.items()} == {
        title: len(charts) for title, charts in wanted.items()
    }
    for title, charts in wanted.items():
        if app.parallelism > 1 and title.startswith("distinct"):
            continue  # sensors overtake one another, and the counts on the way are others
        for chart, shown in zip(sorted(charts), sorted(found[title]), strict=True):
            values = [value for line in chart for value in line]
            near = 0.002 * (max(values) - min(values)) + 0.002 * max(map(abs, values))
            assert shown == [pytest.approx(line, abs=near) for line in chart], title


@pytest.mark.parametrize("dataset", ["city", "grid"])
def test_charts_show_the_averages_trends_and_counts(dataset: Any, tmp_path: Path) -> None:
    app = StatsPlots(dataset=dataset, sensors=4, chart_values=6, charts_per_archive=1, directory=str(tmp_path))
    lines = [row["line"] for row in made_rows(app, 180)]
    check(app, lines, results_of(app, 180)["results"])


def test_on_several_instances_and_in_tiny_turns_the_same_is_drawn(tmp_path: Path) -> None:
    app = StatsPlots(
        dataset="grid", sensors=4, chart_values=3, charts_per_archive=1, parallelism=3, directory=str(tmp_path)
    )
    lines = [row["line"] for row in made_rows(app, 100)]
    check(app, lines, results_of(app, 100, chaining=False, consumption=Consumption.parse("9"))["results"])


@pytest.mark.spark
def test_the_twin_draws_the_same(spark_node: Node, tmp_path: Path) -> None:
    assert isinstance(spark_node.pool, SparkPool)
    app = StatsPlots(
        dataset="grid", sensors=2, chart_values=5, charts_per_archive=1, directory=str(tmp_path / "charts")
    )
    lines = [row["line"] for row in made_rows(app, 30)]
    check(app, lines, twin_results_of(app, 30, spark_node.pool.session, tmp_path / "twin")["results"])


def test_an_archive_is_told_with_its_size_and_stored_whole(tmp_path: Path) -> None:
    """As many charts as the benchmark puts into one: a hundred of city's sensors."""
    app = StatsPlots(directory=str(tmp_path))
    rows = results_of(app, 600)["results"]
    assert rows
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(row["file"] for row in rows)
    for row in rows:
        assert (row["charts"], (tmp_path / row["file"]).stat().st_size) == (100, row["bytes"])
        with zipfile.ZipFile(tmp_path / row["file"]) as archive:
            assert archive.testzip() is None
            assert all(re.fullmatch(r"[0-9]{3}-[A-Za-z0-9_.-]+\.svg", name) for name in archive.namelist())
    assert results_of(app, 600)["results"] == rows, "the same charts make the same archive, under the same name"


def test_without_a_directory_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert results_of(StatsPlots(), 600)["results"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "values",
    [[1.0, 2.0], [5.0, 5.0, 5.0], [0.0, 0.0], [-3e-9, 4e-9], [1e12, -1e12], [-0.1, 0.25, 1e5]],
)
def test_a_chart_has_an_axis_that_holds_its_values(values: list[float]) -> None:
    title, lines = drawn(line_chart("a < b & c", "x", "y", [Series("s", range(len(values)), values)]))
    spread = max(values) - min(values) or abs(values[0]) or 1.0
    assert title == "a < b & c"
    assert lines == [pytest.approx(values, abs=spread / 300)]


def test_a_chart_of_one_value_shows_a_point() -> None:
    root = ET.fromstring(line_chart("one", "x", "y", [Series("s", [1], [2.0])]))
    assert len(list(root.iter(f"{SVG}circle"))) == 1
