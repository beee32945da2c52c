"""Taxi demand against plain Python: counts with their zeros, three predictors, and the mean that weighs them."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headwater as hw
from apps.taxi.demand import TaxiDemand
from apps.taxi.pickups import PICKUP, RealPickUps
from headwater.engine.policies import Consumption
from headwater.runtime.node import Node
from headwater.workers.local.pool import SparkPool
from tests.apps.app_results import Row, made_rows, results_of
from tests.structured_runs import run_to_end

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WEEK = timedelta(weeks=1)

Predictions = dict[tuple[str, datetime], dict[str, float | None]]


class Autoregression:
    """The mean of the posterior of a linear model with unit prior and unit noise, after Bishop (2006), section 3.3."""

    def __init__(self) -> None:
        """Know nothing."""
        self.precision = np.eye(3)
        self.pull = np.zeros(3)

    def predict(self, lags: Sequence[float]) -> float:
        """Return what is expected to come next."""
        return float(np.linalg.solve(self.precision, self.pull) @ np.array(lags))

    def learn(self, lags: Sequence[float], demand: float) -> None:
        """Take note of what came."""
        self.precision += np.outer(lags, lags)
        self.pull += np.array(lags) * demand


def zone_of(row: Row) -> str | None:
    """Name the zone of a place; zones of 0.024 by 0.018 degrees, 24 by 24 of them."""
    x, y = math.floor((row["longitude"] + 74.12) / 0.024), math.floor((row["latitude"] - 40.55) / 0.018)
    return f"{x}.{y}" if 0 <= x < 24 and 0 <= y < 24 else None


def counted(pickups: Sequence[Row], period: timedelta) -> dict[datetime, Counter[str]]:
    """Count pick-ups by period and zone; all periods from the first to the last are there."""
    found: dict[datetime, Counter[str]] = defaultdict(Counter)
    for row in pickups:
        zone = zone_of(row)
        if zone is not None:
            found[EPOCH + (row["at"] - EPOCH) // period * period][zone] += 1
    starts = sorted(found)
    every = [starts[0] + number * period for number in range((starts[-1] - starts[0]) // period + 1)]
    return {start: found[start] for start in every}


def off(predicted: float, demand: float) -> float:
    """Return the symmetric error."""
    return abs(predicted - demand) / (predicted + demand + 1)


class Zone:
    """All that was seen in a zone."""

    def __init__(self, weeks: int) -> None:
        """Have seen nothing; one predictor looks so many weeks back."""
        self.weeks = weeks
        self.demands: dict[datetime, float] = {}
        self.model = Autoregression()
        self.errors: dict[str, list[float | None]] = defaultdict(list)

    def lags(self, start: datetime, period: timedelta) -> list[float]:
        """Return the demands of the three periods before."""
        return [self.demands.get(start - lag * period, 0.0) for lag in (1, 2, 3)]

    def predict(self, start: datetime, period: timedelta) -> dict[str, float | None]:
        """Predict the demand of a period from those before it."""
        earlier = [self.demands[then] for week in range(1, 100) if (then := start - week * WEEK) in self.demands]
        latest = [(0.6**age, demand) for age, demand in enumerate(earlier[: self.weeks])]
        found = {
            "poisson": sum(earlier) / len(earlier) if earlier else None,
            "weighted": sum(w * x for w, x in latest) / sum(w for w, _ in latest) if latest else None,
            "regressed": max(0.0, self.model.predict(self.lags(start, period))),
        }
        weights = {name: 1 - self.mean_error(name) for name, value in found.items() if value is not None}
        total = sum(weight * (found[name] or 0.0) for name, weight in weights.items())
        return {**found, "forecast": total / sum(weights.values())}

    def mean_error(self, name: str) -> float:
        """Return the mean of the last eight errors of a predictor, of those that there are."""
        errors = [error for error in self.errors[name][-8:] if error is not None]
        return sum(errors) / len(errors) if errors else 0.0

    def see(self, start: datetime, period: timedelta, demand: float) -> None:
        """Judge the predictors by what came, and remember it."""
        predicted = self.predict(start, period)
        for name in ("poisson", "weighted", "regressed"):
            value = predicted[name]
            self.errors[name].append(None if value is None else off(value, demand))
        self.model.learn(self.lags(start, period), demand)
        self.demands[start] = demand


def expected_of(pickups: Sequence[Row], period: timedelta, weeks: int = 4) -> tuple[Predictions, Predictions]:
    """Return what is told of periods before they come, and when they are known."""
    zones: dict[str, Zone] = {}
    asked: Predictions = {}
    known: Predictions = {}
    periods = counted(pickups, period)
    for start, counts in periods.items():
        for zone in counts:
            zones.setdefault(zone, Zone(weeks))
        for name, zone_seen in zones.items():
            demand = float(counts[name])
            predicted = zone_seen.predict(start, period)
            error = off(predicted["forecast"] or 0.0, demand)
            known[name, start] = {**predicted, "demand": demand, "error": error}
            zone_seen.see(start, period, demand)
            if counts:  # a period in which nothing happens is known only when something happens again
                asked[name, start + period] = zone_seen.predict(start + period, period)
    return asked, known


def agrees(rows: Sequence[Row], expected: Predictions) -> None:
    """Compare all numbers of all rows."""
    assert len(rows) == len(expected)
    for row in rows:
        for name, value in expected[row["zone"], row["start"]].items():
            found = row[name]
            assert (found is None) == (value is None), (row, name)
            assert value is None or math.isclose(found, value, rel_tol=1e-6, abs_tol=1e-6), (row, name, value)


@pytest.mark.parametrize(("parallelism", "turn"), [(1, "all"), (3, "200")])
def test_made_pickups_are_foreseen_as_by_plain_python(parallelism: int, turn: str) -> None:
    """Four weeks in periods of half a day, so that one of the predictors forgets the oldest ones."""
    app = TaxiDemand(period_minutes=720, weeks=2, per_hour=2, parallelism=parallelism, seed=2)
    count = 2 * 168 * 4
    results = results_of(app, count, consumption=Consumption.parse(turn))
    asked, known = expected_of(made_rows(app, count), timedelta(hours=12), weeks=2)
    agrees(results["forecasts"], asked)
    agrees(results["accuracy"], known)


def test_real_pickups_are_foreseen_as_by_plain_python(data: Path) -> None:
    app, sinks = TaxiDemand(period_minutes=5), dict[str, Any]()
    flow = app.flow(app.source(data=data), lambda name: sinks.setdefault(name, hw.to.memory()))
    status = hw.run(flow, spark=False)
    assert status.ledger is not None
    assert status.ledger.balanced
    asked, known = expected_of(pa.Table.from_batches(RealPickUps(data)()).to_pylist(), timedelta(minutes=5))
    agrees(sinks["forecasts"].rows(), asked)
    agrees(sinks["accuracy"].rows(), known)
    assert sum(row["demand"] or 0.0 for row in known.values()) > 9_500


def pickups(*hours: float) -> list[Row]:
    """Return a pick-up at each of these hours, all in one zone."""
    begin = datetime(2013, 1, 7, tzinfo=UTC)
    place = {"taxi": 1, "longitude": -73.98, "latitude": 40.75}
    return [{"at": begin + timedelta(hours=hour), **place} for hour in hours]


def foreseen(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """Run over given pick-ups with periods of an hour, and return the forecasts and what is known."""
    app, sinks = TaxiDemand(period_minutes=60), dict[str, Any]()
    given = hw.read.iterable(rows, schema=PICKUP)
    hw.run(app.flow(given, lambda name: sinks.setdefault(name, hw.to.memory())), spark=False)
    return sinks["forecasts"].rows(), sinks["accuracy"].rows()


def test_a_period_without_pickups_is_a_demand_of_none() -> None:
    forecasts, known = foreseen(pickups(0.1, 0.2, 3.5))
    assert [row["demand"] for row in known] == [2.0, 0.0, 0.0, 1.0]
    assert [row["start"].hour for row in forecasts] == [1, 4]


def test_after_days_of_silence_no_zeros_are_made_up() -> None:
    _, known = foreseen(pickups(0.5, 49.5))
    assert [row["demand"] for row in known] == [1.0, *[0.0] * 48, 1.0]
    _, known = foreseen(pickups(0.5, 50.5))
    assert [row["demand"] for row in known] == [1.0, 1.0]


def test_a_pickup_outside_of_the_map_counts_nowhere() -> None:
    rows = pickups(0.1, 0.2, 0.3, 0.4, 0.5)
    for row, place in zip(rows, [(0.0, 0.0), (-74.2, 40.7), (-73.9, 41.3), (None, None)], strict=False):
        row["longitude"], row["latitude"] = place
    _, known = foreseen(rows)
    assert [row["demand"] for row in known] == [1.0]


@pytest.mark.parametrize("minutes", [11, 1, 0, -30])
def test_a_week_must_be_a_multiple_of_the_period(minutes: int) -> None:
    with pytest.raises(hw.FlowError, match=f"periods of {minutes} minutes"):
        TaxiDemand(period_minutes=minutes)


@pytest.mark.spark
def test_the_twin_gives_the_same(spark_node: Node, tmp_path: Path) -> None:
    """What is known only: a second result would be a second query."""
    app, out = TaxiDemand(period_minutes=720, per_hour=1), hw.to.memory()
    flow = hw.flow("taxi-twin", app.build(app.source(rows=100))["accuracy"].sink(out))
    assert isinstance(spark_node.pool, SparkPool)
    run_to_end(flow, spark_node.pool.session, tmp_path)
    agrees(out.rows(), expected_of(made_rows(app, 100), timedelta(hours=12))[1])


def test_made_pickups_follow_the_week() -> None:
    """In order of time, so many an hour on average, most in the evening and few before dawn, 2% without a place."""
    rows = made_rows(TaxiDemand(per_hour=100), 100 * 168)
    times = [row["at"] for row in rows]
    assert times == sorted(times)
    assert WEEK - timedelta(minutes=5) < times[-1] - times[0] < WEEK
    by_hour = Counter(at.hour for at in times if at.weekday() < 5)
    assert by_hour[19] > 5 * by_hour[4]
    assert 0.01 < sum(row["longitude"] == 0 for row in rows) / len(rows) < 0.03
    night = np.mean([row["latitude"] for row in rows if row["at"].hour == 2 and row["latitude"]])
    day = np.mean([row["latitude"] for row in rows if row["at"].hour == 13 and row["latitude"]])
    assert night < day - 0.01


def test_real_pickups_are_in_order_and_go_on_in_a_loop(data: Path) -> None:
    stream = RealPickUps(data, loop=True)()
    batches = [next(stream) for _ in range(25)]
    times = pa.Table.from_batches(batches)["at"].to_pylist()
    assert times == sorted(times)
    assert times[-1] - times[0] > timedelta(hours=2)


def test_a_missing_file_and_a_wrong_one_are_told(tmp_path: Path) -> None:
    with pytest.raises(hw.ConnectorError, match=r"debs2015_sorted_10004\.csv cannot be read"):
        next(RealPickUps(tmp_path)())
    (tmp_path / "debs2015").mkdir()
    (tmp_path / "debs2015" / "debs2015_sorted_10004.csv").write_text("a,b,c\n")
    with pytest.raises(hw.ConnectorError, match="is not a file of trips"):
        next(RealPickUps(tmp_path)())


def trips_in(directory: Path, *lines: bytes) -> Path:
    """Write the file of trips, and return the directory of real data it is in."""
    (directory / "debs2015").mkdir()
    (directory / "debs2015" / "debs2015_sorted_10004.csv").write_bytes(b"\n".join(lines))
    return directory


@pytest.mark.parametrize("place", [0, 50, 100], ids=["first", "amid", "last"])
def test_a_line_that_is_no_trip_costs_only_itself(
    place: int, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Blank ones are passed over, the others counted in the log."""
    good = (data / "debs2015" / "debs2015_sorted_10004.csv").read_bytes().splitlines()[:100]
    fields = good[0].split(b",")
    bad = [b"a,b,c", b"\xff" + good[0], b",".join([*fields[:2], b"today", *fields[3:]]), b"", b" "]
    found = pa.Table.from_batches(RealPickUps(trips_in(tmp_path, *good[:place], *bad, *good[place:]))())
    (tmp_path / "good").mkdir()
    assert found == pa.Table.from_batches(RealPickUps(trips_in(tmp_path / "good", *good))())
    assert len(found) == 100
    assert "debs2015_sorted_10004.csv: 3 of 103 lines are no trips, and left out" in caplog.text


@pytest.mark.parametrize("loop", [False, True])
@pytest.mark.parametrize("lines", [(), (b"", b"", b"")], ids=["empty", "blank"])
def test_a_file_without_trips_gives_none(lines: tuple[bytes, ...], loop: bool, tmp_path: Path) -> None:
    assert list(RealPickUps(trips_in(tmp_path, *lines), loop)()) == []
