"""The queries of the DEBS 2015 challenge against the same computed anew for every trip."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import headwater as hw
from apps.debs2015 import frequent_routes, profitable_areas
from apps.debs2015.frequent_routes import FrequentRoutes
from apps.debs2015.made_trips import TripLines
from apps.debs2015.profitable_areas import ProfitableAreas
from apps.debs2015.trips import FIELDS, TRIPS
from headwater.engine.policies import Consumption
from headwater.runtime.node import Node
from headwater.workers.local.pool import SparkPool
from tests.apps import debs_oracle
from tests.apps.app_results import twin_results_of
from tests.apps.debs_oracle import Query

ROUTES = pytest.param(FrequentRoutes(), 500, debs_oracle.frequent_routes, id="routes")
AREAS = pytest.param(ProfitableAreas(), 250, debs_oracle.profitable_areas, id="areas")
QUERIES = pytest.mark.parametrize(("app", "size_m", "query"), [ROUTES, AREAS])

SAMPLE = (
    "07290D3599E7A0D62097A346EFCC1FB5,E7750A37CAB07D0DFF0AF7E3573AC141,2013-01-01 00:00:00,2013-01-01 00:02:00,120,"
    "0.44,-73.956528,40.716976,-73.962440,40.715008,CSH,3.50,0.50,0.50,0.00,0.00,4.50"
)


def answers(app: hw.App, lines: Sequence[str], turn: str = "all") -> list[list[Any]]:
    """Run a query over lines, so many in a turn, and return its rows as lists."""
    out = hw.to.memory()
    given = hw.read.iterable([{"line": line} for line in lines], schema=app.schema)
    status = hw.run(app.flow(given, lambda name: out), spark=False, consumption=Consumption.parse(turn))
    assert status.ledger is not None
    assert status.ledger.balanced
    return rounded([list(row.values()) for row in out.rows()])


def rounded(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Take off the last digits of fractions, in which two ways to divide may differ."""
    return [[round(value, 9) if isinstance(value, float) else value for value in row] for row in rows]


def made_lines(every: int, count: int) -> list[str]:
    """Return every so-manieth made trip, to have hours of them without their number."""
    lines: list[str] = TripLines(seed=5)(0, every * count)["line"].to_pylist()
    return lines[::every]


@QUERIES
@pytest.mark.parametrize("turn", ["all", "7"])
def test_made_trips_change_the_answer_as_computed_anew(app: hw.App, size_m: int, query: Query, turn: str) -> None:
    """A trip in twenty of 52 minutes, so that many have left the windows."""
    lines = made_lines(every=20, count=700)
    expected = debs_oracle.changes(lines, size_m, query)
    assert len(expected) > 60
    assert answers(app, lines, turn) == rounded(expected)


@QUERIES
def test_real_trips_change_the_answer_as_computed_anew(app: hw.App, size_m: int, query: Query, data: Path) -> None:
    lines = (data / TRIPS).read_text().splitlines()[::12]
    assert answers(app, lines) == rounded(debs_oracle.changes(lines, size_m, query))


@QUERIES
@pytest.mark.parametrize("count", [2_000, 10_004])
def test_the_last_answer_is_right_with_all_real_trips(
    app: hw.App, size_m: int, query: Query, count: int, data: Path
) -> None:
    lines = (data / TRIPS).read_text().splitlines()[:count]
    assert answers(app, lines, "1000")[-1][2:] == pytest.approx(debs_oracle.final(lines, size_m, query))


@QUERIES
@pytest.mark.parametrize(("seed", "turn"), [(1, "all"), (2, "3"), (3, "50")])
def test_equal_figures_wrong_order_and_new_starts_are_as_documented(
    app: hw.App, size_m: int, query: Query, seed: int, turn: str
) -> None:
    lines = debs_oracle.unruly_lines(400, seed)
    expected = debs_oracle.changes(lines, size_m, query)
    assert len(expected) > 100
    assert answers(app, lines, turn) == rounded(expected)


@pytest.mark.spark
@QUERIES
def test_the_twin_gives_the_same(app: hw.App, size_m: int, query: Query, spark_node: Node, tmp_path: Path) -> None:
    assert isinstance(spark_node.pool, SparkPool)
    found = twin_results_of(app, 300, spark_node.pool.session, tmp_path)["results"]
    lines = app.made()(0, 300)["line"].to_pylist()
    expected = debs_oracle.changes(lines, size_m, query)
    assert rounded([list(row.values()) for row in found]) == rounded(expected)


def test_the_columns_are_those_of_the_challenge() -> None:
    """All but `delay`: how long a row takes is measured by the engine, for every flow."""
    routes, areas = frequent_routes.CHANGE.names, profitable_areas.CHANGE.names
    assert routes[:6] == ["pickup_datetime", "dropoff_datetime", "start_1", "end_1", "start_2", "end_2"]
    assert areas[2:7] == ["cell_id_1", "empty_taxis_1", "median_profit_1", "profitability_1", "cell_id_2"]
    assert (len(routes), len(areas)) == (22, 42)


def test_a_first_trip_is_the_only_route_and_earns_nothing_where_no_taxi_waits() -> None:
    (row,) = answers(FrequentRoutes(), [SAMPLE])
    assert row[2:] == ["161.170", "160.170", *[None] * 18]
    assert answers(ProfitableAreas(), [SAMPLE]) == []


@pytest.mark.parametrize(
    "wrong",
    ["", "a,b,c", SAMPLE + ",0", SAMPLE.replace("-73.956528", "west"), SAMPLE.replace("2013-01-01 00:02:00", "soon")],
)
def test_a_line_that_is_no_trip_is_a_dead_letter_and_the_others_count(wrong: str) -> None:
    out, letters = hw.to.memory(), hw.to.memory()
    app = FrequentRoutes()
    given = hw.read.iterable([{"line": line} for line in (SAMPLE, wrong, SAMPLE.replace(":02:", ":03:"))])
    read = given.map(frequent_routes.READ, schema=frequent_routes.READ.schema, on_error="dead-letter", name="read")
    hw.run(hw.flow("read", read.sink(out), read.errors.sink(letters)), spark=False)
    assert [row["dropoff_datetime"].minute for row in out.rows()] == [2, 3]
    assert [wrong in row["row"] for row in letters.rows()] == [True]
    assert len(answers(app, [SAMPLE, wrong])) == 1


@pytest.mark.parametrize("place", ["0.000000,0.000000", "-74.92,40.7", "-73.1,40.7", "-73.9,41.48", "-73.9,nan"])
def test_a_trip_that_leaves_the_grid_does_not_count(place: str) -> None:
    assert answers(FrequentRoutes(), [SAMPLE.replace("-73.962440,40.715008", place)]) == []


def test_a_trip_of_a_million_dollars_is_a_dead_letter() -> None:
    rich = SAMPLE.replace(",3.50,", ",1000000.00,")
    fields = profitable_areas.READ(pa.record_batch({"line": [rich]}))
    with pytest.raises(ValueError, match="no trip earns"):
        profitable_areas.located(fields)


def test_made_trips_have_the_statistics_of_the_real_ones(data: Path) -> None:
    """Of the last half of the real hour: before, long trips are missing, since all began after midnight."""
    real = trips_frame((data / TRIPS).read_text().splitlines())
    real = real[real.dropoff_datetime >= "2013-01-01 00:35:00"]
    made = trips_frame(TripLines(seed=2)(0, 20_000)["line"].to_pylist())

    def minutes(trips: pd.DataFrame) -> Any:
        return trips.groupby(trips.dropoff_datetime.dt.floor("min")).size().iloc[1:-1].mean()

    def shares(trips: pd.DataFrame) -> list[float]:
        nowhere = (trips.pickup_longitude == 0) | (trips.dropoff_longitude == 0)
        full_minutes = trips.dropoff_datetime.dt.second == 0
        cash, tipped = trips.payment_type == "CSH", trips.tip_amount > 0
        return [float(share.mean()) for share in (nowhere, full_minutes, cash, tipped, trips.tolls_amount > 0)]

    def middles(trips: pd.DataFrame) -> list[float]:
        found = trips[(trips.pickup_longitude != 0) & (trips.dropoff_longitude != 0)]
        columns = ["trip_time_in_secs", "trip_distance", "fare_amount", "total_amount"]
        places = [f"{end}_{way}" for end in ("pickup", "dropoff") for way in ("longitude", "latitude")]
        quartiles = found[columns].quantile([0.25, 0.5, 0.75]).to_numpy().ravel()
        return [*quartiles.tolist(), *((found[places].quantile([0.25, 0.75]) * 100).to_numpy().ravel().tolist())]

    def busiest(trips: pd.DataFrame) -> float:
        cells = [
            debs_oracle.cell(x, y, 500) for x, y in zip(trips.pickup_longitude, trips.pickup_latitude, strict=True)
        ]
        return float(pd.Series(cells).value_counts(normalize=True).iloc[0])

    assert minutes(made) == pytest.approx(minutes(real), rel=0.1)
    assert shares(made) == pytest.approx(shares(real), abs=0.03)
    assert middles(made) == pytest.approx(middles(real), rel=0.12, abs=1)
    assert busiest(made) == pytest.approx(busiest(real), rel=0.25)
    assert made.dropoff_datetime.is_monotonic_increasing
    assert np.allclose(
        made.total_amount, made.filter(regex="amount|surcharge|tax").drop(columns="total_amount").sum(axis=1)
    )


def trips_frame(lines: Sequence[str]) -> pd.DataFrame:
    """Read lines as pandas does."""
    frame = pd.DataFrame([line.split(",") for line in lines], columns=list(FIELDS))
    for name, kind in FIELDS.items():
        if pa.types.is_timestamp(kind):
            frame[name] = pd.to_datetime(frame[name])
        elif not pa.types.is_string(kind):
            frame[name] = pd.to_numeric(frame[name])
    return frame
