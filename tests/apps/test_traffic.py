"""Traffic Monitoring beside plain Python written from the Falcon paper, on both engines and on real traces."""

import csv
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from apps.traffic.monitoring import TRACES, TrafficMonitoring
from headwater.engine.policies import Consumption
from headwater.model.errors import ConfigError
from headwater.runtime.node import Node
from headwater.workers.local.pool import SparkPool
from tests.apps.app_results import Row, made_rows, results_of, twin_results_of


def alerts(readings: Iterable[tuple[str, float]], limit: float) -> list[tuple[str, float, float, int]]:
    """Every reading with which the average of a vehicle's speeds so far is above the limit, vehicle by vehicle."""
    statistics: dict[str, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
    found = []
    for vehicle, speed in readings:
        total, count = statistics[vehicle]
        statistics[vehicle] = total, count = total + speed, count + 1
        if total / count > limit:
            found.append((vehicle, speed, total / count, count))
    return sorted(found, key=lambda alert: (alert[0], alert[3]))


def told(rows: Iterable[Row]) -> list[tuple[str, float, float, int]]:
    found = [(row["vehicle"], row["speed"], row["average"], row["count"]) for row in rows]
    return sorted(found, key=lambda alert: (alert[0], alert[3]))


def made(app: TrafficMonitoring, count: int) -> list[tuple[str, float]]:
    return [(row["vehicle"], row["speed"]) for row in made_rows(app, count)]


@pytest.mark.parametrize(
    ("app", "settings"),
    [
        (TrafficMonitoring(), {}),
        (TrafficMonitoring(vehicles=400, speed_limit=52.5), {}),
        (TrafficMonitoring(parallelism=3), {"consumption": Consumption.parse("7")}),
    ],
    ids=["ten vehicles", "many vehicles", "in parallel, a few rows a turn"],
)
def test_alerts_are_those_of_the_paper(app: TrafficMonitoring, settings: dict[str, Any]) -> None:
    found = told(results_of(app, 2_000, **settings)["results"])
    assert found == alerts(made(app, 2_000), app.speed_limit)
    assert 0 < len(found) < 2_000


def test_made_readings_are_those_of_falcons_producer() -> None:
    """Vehicles in turn, and whole speeds from 20 to 80, all alike."""
    rows = made(TrafficMonitoring(), 20_000)
    assert [vehicle for vehicle, _ in rows[:12]] == [*(f"A{n}" for n in range(10)), "A0", "A1"]
    speeds = [speed for _, speed in rows]
    assert sorted(set(speeds)) == [float(speed) for speed in range(20, 81)]
    assert all(abs(speeds.count(speed) - 20_000 / 61) < 100 for speed in set(speeds))


def test_readings_that_lack_something_are_passed_over() -> None:
    out = hw.to.memory()
    app = TrafficMonitoring()
    rows = [{"vehicle": "a", "speed": None}, {"vehicle": None, "speed": 99.0}, {"vehicle": "a", "speed": 60.0}]
    hw.run(app.flow(hw.read.iterable(rows, schema=app.schema), lambda name: out), spark=False)
    assert told(out.rows()) == [("a", 60.0, 60.0, 1)]


def test_alerts_about_beijings_taxis(data: Path) -> None:
    """75,000 points of 53 taxis, most of which stand still most of the time."""
    app, out = TrafficMonitoring(speed_limit=10.0), hw.to.memory()
    hw.run(app.flow(app.source(data=data), lambda name: out), spark=False)
    with (data / TRACES).open(encoding="utf-8") as traces:
        readings = [(line[1], float(line[5])) for line in csv.reader(traces)]
    expected = alerts(readings, app.speed_limit)
    assert told(out.rows()) == expected
    assert 1_000 < len(expected) < 40_000


@pytest.mark.parametrize("bad", ["nonsense", "1,7,2011-05-06 07:13:20,39.8,116.4,fast,0", "1,7", '1,"7'])
def test_a_trace_that_is_none_is_counted_and_the_others_go_on(bad: str, tmp_path: Path) -> None:
    good = "1,7,2011-05-06 07:13:20,39.8,116.4,{},0"
    (tmp_path / TRACES).parent.mkdir()
    (tmp_path / TRACES).write_text("\n".join([good.format(60), bad, "", good.format(70)]) + "\n")
    app, out = TrafficMonitoring(), hw.to.memory()
    status = hw.run(app.flow(app.source(data=tmp_path), lambda name: out), spark=False)
    assert told(out.rows()) == alerts([("7", 60.0), ("7", 70.0)], app.speed_limit)
    assert status.ledger is not None
    assert (status.ledger.dropped["unparsable"], status.ledger.balanced) == (1, True)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=str(TRACES)):
        TrafficMonitoring().source(data=tmp_path)


@pytest.mark.spark
def test_the_twin_gives_the_same_alerts(spark_node: Node, tmp_path: Path) -> None:
    app = TrafficMonitoring()
    assert isinstance(spark_node.pool, SparkPool)
    found = told(twin_results_of(app, 500, spark_node.pool.session, tmp_path)["results"])
    assert found == alerts(made(app, 500), app.speed_limit)
