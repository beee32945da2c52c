"""Generators, iterables and the imagined cities."""

import csv
import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from headwater.connectors import read
from headwater.connectors.cities import CITIES, CITY_SCHEMA, CityRows
from headwater.dataflow.connectors import Ended, Idle, Rows
from headwater.model.errors import ConnectorError, SchemaMismatch
from tests.connectors.polls import drained, polled, rows_in, spec_of


def first_rows(result: Any) -> list[dict[str, Any]]:
    """Return what a generator makes of a function's result."""
    return rows_in(drained(read.generator(lambda first, count: result, rows=2)))


@pytest.mark.parametrize(
    "result",
    [
        pa.RecordBatch.from_pydict({"a": [1, 2]}),
        pa.table({"a": [1, 2]}),
        pd.DataFrame({"a": [1, 2]}),
        {"a": [1, 2]},
        [{"a": 1}, {"a": 2}],
    ],
)
def test_a_generator_may_return_rows_in_any_form(result: Any) -> None:
    """They all become the same batch."""
    assert first_rows(result) == [{"a": 1}, {"a": 2}]


def test_a_generator_that_returns_fewer_rows_has_ended() -> None:
    """More than asked for are refused."""
    assert first_rows({"a": [1]}) == [{"a": 1}]
    with pytest.raises(ConnectorError, match="rows 0 to 1: the function returned 3 rows"):
        first_rows({"a": [1, 2, 3]})
    with pytest.raises(SchemaMismatch, match="a int is not rows; give a RecordBatch"):
        first_rows(5)


def test_a_generator_must_keep_to_its_schema() -> None:
    """The column is named."""
    with pytest.raises(SchemaMismatch, match="column 'b' is missing"):
        drained(read.generator(lambda first, count: {"a": [1]}, schema=pa.schema([("b", pa.int64())])))


def test_an_iterable_gives_dicts_batches_and_single_values() -> None:
    """In order, whatever they are."""
    items = [{"value": 1}, 2, pa.RecordBatch.from_pydict({"value": [3, 4]}), pd.DataFrame({"value": [5]}), 6.5]
    assert [row["value"] for row in rows_in(drained(read.iterable(items)))] == [1, 2, 3, 4, 5, 6.5]


def test_rows_stored_before_a_restart_are_passed_over_and_counted_once() -> None:
    """In the first rows after it."""
    spec = spec_of(read.iterable(list(range(10))))
    position = polled(spec.open(None), rows_max=4).position
    reader = spec.open(position)
    assert [polled(reader, rows_max=3).refused, polled(reader, rows_max=3).refused] == [4, 0]


def test_an_iterable_that_has_become_shorter_is_refused() -> None:
    """Its rows are not the rows that were stored."""
    position = polled(spec_of(read.iterable([1, 2, 3])).open(None)).position
    with pytest.raises(ConnectorError, match="gave 1 rows, but 3 are stored"):
        spec_of(read.iterable([1])).open(position).poll(10, 0)


def test_values_of_two_kinds_in_one_column_are_refused() -> None:
    """The row and the column are named."""
    with pytest.raises(SchemaMismatch, match="iterable, row 1: 'x' in column 'value' is not of one type"):
        drained(read.iterable([1, "x"]))
    with pytest.raises(SchemaMismatch, match="iterable, row 1: column 'value' holds string but held int64 before"):
        drained(read.iterable([1, "x"]), rows_max=1)


def test_a_list_never_blocks_and_an_iterator_may() -> None:
    """So it gets a thread, and what it gave before a crash is gone."""
    live = spec_of(read.iterable(iter([1])))
    fixed = spec_of(read.iterable([1]))
    assert (fixed.blocking, fixed.guarantee) == (False, "exactly-once")
    assert (live.blocking, live.guarantee) == (True, "at-most-once")
    live.open(None)
    with pytest.raises(ConnectorError, match="only once"):
        live.open(None)


def test_a_row_leaves_although_the_iterator_blocks_behind_it() -> None:
    """And the reader can be closed while it does."""
    release = Event()

    def sensor() -> Iterator[int]:
        yield 1
        release.wait()
        yield 2

    reader = spec_of(read.iterable(sensor)).open(None)
    assert polled(reader).batch.to_pylist() == [{"value": 1}]
    assert isinstance(reader.poll(10, 0), Idle)
    release.set()
    while isinstance(answer := reader.poll(10, 0), Idle):
        continue
    assert isinstance(answer, Rows)
    while isinstance(answer := reader.poll(10, 0), Idle):
        continue
    assert isinstance(answer, Ended)
    reader.close()


def test_what_an_iterator_raises_reaches_the_reader() -> None:
    """After the rows before it."""

    def failing() -> Iterator[int]:
        yield 1
        raise ValueError("the sensor is broken")

    with pytest.raises(ValueError, match="the sensor is broken"):
        drained(read.iterable(failing))


def test_sources_can_be_pickled_and_shown() -> None:
    """Where their content can."""
    spec = spec_of(read.csv("x.csv", rate=10, schema=pa.schema([("a", pa.int64())])))
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert "path='x.csv'" in repr(spec)
    assert "rate=10" in repr(spec)
    cities = spec_of(read.cities(seed=3))
    assert pickle.loads(pickle.dumps(cities)) == cities


def test_city_rows_look_like_sensors() -> None:
    """Seven cities, one reading a minute each, in the order of time, with a few readings missing."""
    batch = CityRows(sensors=200)(0, 20_000)
    frame = batch.to_pandas()
    assert batch.schema == CITY_SCHEMA
    assert set(frame["city"]) == {city.name for city in CITIES}
    assert frame["sensor"].nunique() == 200
    assert frame["timestamp"].is_monotonic_increasing
    assert (frame.groupby("sensor")["timestamp"].diff().dropna() == pd.Timedelta(minutes=1)).all()
    assert 0 < frame["temperature"].isna().mean() < 0.01


def test_city_days_are_brighter_and_warmer_than_nights() -> None:
    """By the city's own clock."""
    frame = CityRows(sensors=50)(0, 50 * 60 * 24).to_pandas()
    boston = frame[frame["city"] == "Boston"].set_index("timestamp").tz_convert("America/New_York")
    day, night = boston.between_time("11:00", "15:00"), boston.between_time("00:00", "04:00")
    assert day["temperature"].mean() > night["temperature"].mean() + 2
    assert day["light"].mean() > 100
    assert night["light"].max() == 0


def real_data() -> Path:
    """Return where the real data lie, or skip."""
    named = os.environ.get("HEADWATER_DATA")
    directory = Path(named) if named else Path(__file__).parents[3] / "shared" / "data"
    if not (directory / "sys" / "SYS_sample_data_senml.csv").exists():
        pytest.skip("the Sense Your City data are not here; name their directory in HEADWATER_DATA to compare")
    return directory


def test_city_rows_have_the_statistics_of_the_real_sample() -> None:
    """The same minute as RIoTBench's sample of 1,000 readings: means and spreads within a factor."""
    with (real_data() / "sys" / "SYS_sample_data_senml.csv").open() as file:
        entries = [json.loads(line.split(",", 1)[1])["e"] for line in file]
    made = CityRows(sensors=788)(0, 1000).to_pandas()
    for name in ("temperature", "humidity", "light", "dust", "airquality_raw"):
        real = np.array([float(entry["v"]) for row in entries for entry in row if entry["n"] == name])
        assert made[name].mean() == pytest.approx(real.mean(), rel=0.3), name
        assert 0.4 < made[name].std() / real.std() < 2, name
        assert made[name].median() == pytest.approx(np.median(real), rel=0.3, abs=10), name


def test_city_rows_have_the_levels_of_the_real_hourly_means() -> None:
    """Over a whole day, against the means of March 2015; light is a factor of two, as days were longer then."""
    with (real_data() / "sense_your_city" / "cities-mean-2015-03-01-to-2015-03-21.csv").open() as file:
        hours = list(csv.DictReader(file))
    made = CityRows(sensors=100)(0, 100 * 60 * 24).to_pandas()
    for name, within in {"temperature": 0.3, "humidity": 0.3, "dust": 0.3, "sound": 0.2, "light": 0.6}.items():
        real = np.mean([float(hour[name]) for hour in hours])
        assert made[name].mean() == pytest.approx(real, rel=within), name
