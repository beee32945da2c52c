"""Soil moisture against plain Python: doubts, hourly means, trends, and when to irrigate."""

import math
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from statistics import fmean, linear_regression
from typing import Any

import pytest

import headwater as hw
from apps.soil.moisture import SoilMoisture
from apps.soil.network import SITES
from headwater.engine.policies import Consumption
from headwater.runtime.node import Node
from headwater.workers.local.pool import SparkPool
from tests.apps.app_results import Row, made_rows, results_of
from tests.structured_runs import run_to_end

SENSORS = 618  # 206 nodes with three sensors each
HOUR = timedelta(hours=1)
LAYERS_MM = {5: 125, 20: 225, 50: 300}
SITE = {site.site: site for site in SITES}

Hours = dict[tuple[str, int, datetime], list[Row]]


def doubts(readings: Sequence[Row]) -> list[str | None]:
    """Return why each reading is doubted: one that jumps away, or stays the same for too long, among others."""
    last_water: dict[tuple[str, int, int], float] = {}
    same: dict[tuple[str, int, int], tuple[float, int]] = {}
    found: list[str | None] = []
    for row in readings:
        sensor = (row["site"], row["node"], row["depth_cm"])
        if row["raw_mv"] is None:
            found.append("missing")
            continue
        water = water_of(row)
        before, times = same.get(sensor, (None, 0))
        same[sensor] = (row["raw_mv"], times + 1 if before == row["raw_mv"] else 1)
        reasons = {
            "low": water < 0,
            "high": water > 0.6,
            "battery": row["battery_v"] is not None and row["battery_v"] < 3.3,
            "jump": sensor in last_water and abs(water - last_water[sensor]) > 0.1,
            "stuck": same[sensor][1] >= 36,
        }
        found.append(next((reason for reason, holds in reasons.items() if holds), None))
        if 0 <= water <= 0.6:
            last_water[sensor] = water
    return found


def water_of(row: Row) -> float:
    """Apply the calibration of the site."""
    return float(row["raw_mv"] * SITE[row["site"]].slope + SITE[row["site"]].offset)


def by_hour(readings: Sequence[Row]) -> Hours:
    """Return the readings that are not doubted, by site, depth and hour."""
    found: Hours = defaultdict(list)
    for row, doubt in zip(readings, doubts(readings), strict=True):
        if doubt is None:
            start = row["timestamp"].replace(minute=0, second=0, microsecond=0)
            found[row["site"], row["depth_cm"], start].append(row)
    return found


def means(hours: Hours) -> dict[tuple[str, int, datetime], float]:
    """Return the mean water of every hour."""
    return {hour: fmean(water_of(row) for row in rows) for hour, rows in hours.items()}


def trend(water: dict[tuple[str, int, datetime], float], site: str, depth: int, start: datetime) -> float | None:
    """Return the slope of a line through the last 24 hours, a day; none of less than six."""
    hours = [(age, water.get((site, depth, start - age * HOUR))) for age in range(24)]
    points = [(-age / 24, mean) for age, mean in hours if mean is not None]
    return linear_regression(*zip(*points, strict=True)).slope if len(points) >= 6 else None


def irrigation(water: dict[tuple[str, int, datetime], float]) -> list[tuple[str, datetime, str, float, float]]:
    """Return when each site is to be irrigated and when it has enough, with the available water and what is lacking."""
    found = []
    for site, soil in SITE.items():
        last: dict[int, float] = {}
        dry = False
        for start in sorted({start for name, _, start in water if name == site}):
            last |= {depth: water[site, depth, start] for depth in LAYERS_MM if (site, depth, start) in water}
            if len(last) < 3:
                continue
            lacking = {depth: (soil.field_capacity - last[depth]) * thick for depth, thick in LAYERS_MM.items()}
            available = 1 - sum(lacking.values()) / ((soil.field_capacity - soil.wilting_point) * 650)
            deficit = sum(max(mm, 0) for mm in lacking.values())
            if not dry and available < 0.5:
                dry = True
                found.append((site, start, "irrigate", available, deficit))
            elif dry and available >= 0.8:
                dry = False
                found.append((site, start, "enough", available, deficit))
    return found


def advice(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """Return the rows of advice in the form of `irrigation`, in order."""
    columns = ("site", "start", "advice", "available", "deficit_mm")
    return sorted(tuple(row[name] for name in columns) for row in rows)


@pytest.mark.parametrize(("parallelism", "turn"), [(1, "all"), (3, "1500")])
def test_made_readings_give_the_hours_trends_and_advice_of_plain_python(parallelism: int, turn: str) -> None:
    """30 hours of all sensors: more than a trend looks back."""
    app = SoilMoisture(seed=4, parallelism=parallelism)
    results = results_of(app, SENSORS * 90, consumption=Consumption.parse(turn))
    readings = made_rows(app, SENSORS * 90)
    hours = by_hour(readings)
    water = means(hours)

    found = {(row["site"], row["depth_cm"], row["start"]): row for row in results["depths"]}
    assert found.keys() == hours.keys()
    for key, row in found.items():
        values = [water_of(one) for one in hours[key]]
        assert row["readings"] == len(values)
        told = (row["water"], row["lowest"], row["highest"])
        assert all(map(math.isclose, told, (water[key], min(values), max(values))))
        warmth = [one["temperature"] for one in hours[key] if one["temperature"] is not None]
        assert row["temperature"] == (pytest.approx(fmean(warmth)) if warmth else None)
        slope = trend(water, *key)
        assert row["trend"] == (None if slope is None else pytest.approx(slope, abs=1e-9))
    assert any(row["trend"] is not None for row in found.values())

    expected = sorted(irrigation(water))
    assert [row[2] for row in expected].count("irrigate") > 3
    assert advice(results["irrigation"]) == [(*row[:3], *map(pytest.approx, row[3:])) for row in expected]

    told_doubts = sorted((row["timestamp"], row["doubt"]) for row in results["doubted"])
    reasons = zip(readings, doubts(readings), strict=True)
    assert told_doubts == sorted((row["timestamp"], doubt) for row, doubt in reasons if doubt is not None)
    assert {doubt for _, doubt in told_doubts} == {"missing", "low", "battery", "jump", "stuck"}


def readings_of(values: Sequence[float | None], **others: Any) -> list[Row]:
    """Return readings of one sensor, 20 minutes apart."""
    begin = datetime(2015, 6, 1, tzinfo=UTC)
    sensor = {"site": "Canton", "node": 1, "depth_cm": 5, "temperature": None, "battery_v": 3.9} | others
    return [
        sensor | {"timestamp": begin + number * timedelta(minutes=20), "raw_mv": value}
        for number, value in enumerate(values)
    ]


def doubted(readings: list[Row], **options: Any) -> list[tuple[int, str]]:
    """Return which of the readings are doubted, and why."""
    app, sinks = SoilMoisture(**options), dict[str, Any]()
    given = hw.read.iterable(readings, schema=app.schema)
    hw.run(app.flow(given, lambda name: sinks.setdefault(name, hw.to.memory())), spark=False)
    times = [row["timestamp"] for row in readings]
    return [(times.index(row["timestamp"]), row["doubt"]) for row in sinks["doubted"].rows()]


def test_a_spike_is_doubted_as_it_comes_and_as_it_goes() -> None:
    assert doubted(readings_of([500.0, 501.0, 640.0, 502.0, 503.0])) == [(2, "jump"), (3, "jump")]


def test_a_step_that_stays_is_believed_from_its_second_reading_on() -> None:
    assert doubted(readings_of([500.0, 640.0, 641.0, 642.0])) == [(1, "jump")]


def test_a_sensor_that_is_cut_off_does_not_make_its_return_a_jump() -> None:
    assert doubted(readings_of([500.0, 0.0, None, 501.0])) == [(1, "low"), (2, "missing")]


def test_equal_readings_are_doubted_after_a_while_and_a_missing_one_does_not_part_them() -> None:
    assert doubted(readings_of([500.0, 500.0, None, 500.0, 501.0]), stuck_after=3) == [(2, "missing"), (3, "stuck")]


def test_a_reading_above_what_soil_can_hold_or_with_a_weak_battery_is_doubted() -> None:
    assert doubted(readings_of([900.0])) == [(0, "high")]
    assert doubted(readings_of([500.0], battery_v=3.2)) == [(0, "battery")]
    assert doubted(readings_of([500.0], battery_v=None)) == []


def test_a_reading_of_an_unknown_site_has_no_calibration_and_is_dropped() -> None:
    app, sinks = SoilMoisture(), dict[str, Any]()
    given = hw.read.iterable(readings_of([500.0], site="Atlantis"), schema=app.schema)
    status = hw.run(app.flow(given, lambda name: sinks.setdefault(name, hw.to.memory())), spark=False)
    assert [sink.rows() for sink in sinks.values()] == [[], [], []]
    assert status.ledger is not None
    assert status.ledger.balanced


@pytest.mark.spark
def test_the_twin_gives_the_same_advice(spark_node: Node, tmp_path: Path) -> None:
    """Of two small sites, and only the advice, to which all else leads: every result is a query of its own."""
    app, out = SoilMoisture(seed=4), hw.to.memory()
    readings = [row for row in made_rows(app, SENSORS * 9) if row["site"] in ("Jacob Farm", "Lucky Hills")]
    given = hw.read.iterable(readings, schema=app.schema)
    flow = hw.flow("soil-twin", app.build(given)["irrigation"].sink(out))
    assert isinstance(spark_node.pool, SparkPool)
    run_to_end(flow, spark_node.pool.session, tmp_path)
    expected = sorted(irrigation(means(by_hour(readings))))
    assert expected
    assert advice(out.rows()) == [(*row[:3], *map(pytest.approx, row[3:])) for row in expected]


def test_the_made_network_is_of_the_shape_of_soilscapes() -> None:
    """13 sites with 6 to 27 nodes and over 200 in all, three depths, a reading every 20 minutes, most of them good."""
    readings = made_rows(SoilMoisture(), SENSORS * 6)
    nodes = {(row["site"], row["node"]) for row in readings}
    per_site = [sum(site == name for site, _ in nodes) for name in SITE]
    assert (len(per_site), min(per_site), max(per_site), len(nodes)) == (13, 6, 27, 206)
    assert {row["depth_cm"] for row in readings} == {5, 20, 50}
    of_one = [row["timestamp"] for row in readings if (row["site"], row["node"], row["depth_cm"]) == ("BLM 2", 7, 20)]
    assert {later - earlier for earlier, later in pairwise(of_one)} == {timedelta(minutes=20)}
    assert 0.9 < sum(doubt is None for doubt in doubts(readings)) / len(readings) < 0.99
    water = [water_of(row) for row, doubt in zip(readings, doubts(readings), strict=True) if doubt is None]
    assert 0.03 < min(water) < max(water) < 0.4
    assert all((row["temperature"] is None) == (row["depth_cm"] > 5) for row in readings)
