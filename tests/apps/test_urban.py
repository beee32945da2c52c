"""Urban sensing against plain Python: means of sliding windows, and what is far from usual."""

import math
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headwater as hw
from apps.urban.readings import SensorMeans
from apps.urban.sensing import UrbanSensing
from headwater.engine.policies import Consumption
from headwater.runtime.node import Node
from headwater.workers.local.pool import SparkPool
from tests.apps.app_results import Row, made_rows, results_of
from tests.structured_runs import run_to_end

COLUMN_AND_RANGE = {
    "pollution": ("airquality_raw", 0, 10_000),
    "dust": ("dust", 0, 100_000),
    "light": ("light", 0, 200_000),
    "sound": ("sound", 0, 10_000),
    "temperature": ("temperature", -40, 60),
    "humidity": ("humidity", 0, 100),
}
Alerts = dict[tuple[str, datetime, str], float]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def pictures(
    readings: Sequence[Row], observed: Sequence[str], size: timedelta, slide: timedelta
) -> dict[tuple[str, datetime], Row]:
    """Return the mean of every observable in every window, by city and the end of the window."""
    values: dict[tuple[str, datetime], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in readings:
        ends = [EPOCH + ((row["timestamp"] - EPOCH) // slide + 1) * slide]
        while ends[-1] + slide - size <= row["timestamp"]:
            ends.append(ends[-1] + slide)
        for name in observed:
            column, low, high = COLUMN_AND_RANGE[name]
            if row[column] is not None and low <= row[column] <= high:
                for end in ends:
                    values[row["city"], end][name].append(row[column])
    return {key: {name: sum(found) / len(found) for name, found in means.items()} for key, means in values.items()}


def changes(found: dict[tuple[str, datetime], Row], memory: float, warm_up: int) -> dict[tuple[str, datetime], Row]:
    """Return how many deviations each mean is off what was usual until then."""
    kept: dict[tuple[str, str], tuple[int, float, float]] = {}
    result: dict[tuple[str, datetime], Row] = defaultdict(dict)
    for city, end in sorted(found, key=lambda key: key[1]):
        for name, mean in found[city, end].items():
            count, usual, variance = kept.get((city, name), (0, mean, 0.0))
            off = mean - usual
            if count >= warm_up and variance > 0:
                result[city, end][name] = off / math.sqrt(variance)
            variance = (1 - memory) * (variance + memory * off * off)
            kept[city, name] = count + 1, usual + memory * off, variance
    return result


def close(found: float | None, expected: float | None) -> bool:
    """Whether two numbers are equal but for their last digits, or both missing."""
    return found is expected is None or (
        found is not None and expected is not None and math.isclose(found, expected, rel_tol=1e-6, abs_tol=1e-9)
    )


def cities_agree(app: UrbanSensing, cities: Sequence[Row], readings: Sequence[Row], minutes: tuple[int, int]) -> Alerts:
    """Compare all means and changes, and return the changes that must have been alerts."""
    means = pictures(readings, app.channels, timedelta(minutes=minutes[0]), timedelta(minutes=minutes[1]))
    expected = changes(means, app.memory, app.warm_up)
    found = {(row["city"], row["until"]): row for row in cities}
    assert found.keys() == means.keys()
    assert len(found) == len(cities)
    alerts = {}
    for (city, end), row in found.items():
        for name in COLUMN_AND_RANGE:
            change = expected[city, end].get(name)
            assert close(row[name], means[city, end].get(name))
            assert close(row[f"{name}_change"], change)
            if change is not None and abs(change) > app.alert_above:
                alerts[city, end, name] = change
    return alerts


def agrees(app: UrbanSensing, results: dict[str, list[Row]], readings: Sequence[Row], minutes: tuple[int, int]) -> None:
    """Compare all means, changes and alerts."""
    expected = cities_agree(app, results["cities"], readings, minutes)
    alerts = {(row["city"], row["until"], row["observable"]): row["change"] for row in results["alerts"]}
    assert expected
    assert alerts == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("parallelism", "turn"), [(1, "all"), (3, "40")])
def test_made_readings_give_the_means_and_changes_of_plain_python(parallelism: int, turn: str) -> None:
    app = UrbanSensing(sensors=60, alert_above=2.0, parallelism=parallelism, seed=3)
    results = results_of(app, 3_000, consumption=Consumption.parse(turn))
    agrees(app, results, made_rows(app, 3_000), (5, 1))


def test_real_readings_give_the_means_and_changes_of_plain_python(data: Path) -> None:
    app = UrbanSensing(window="3 hours", slide="1 hour")
    sinks: dict[str, Any] = {}
    status = hw.run(app.flow(app.source(data=data), lambda name: sinks.setdefault(name, hw.to.memory())), spark=False)
    assert status.ledger is not None
    assert status.ledger.dropped.get("late", 0) == 0
    readings = pa.Table.from_batches(SensorMeans(data)()).to_pylist()
    agrees(app, {name: sink.rows() for name, sink in sinks.items()}, readings, (180, 60))


@pytest.mark.spark
def test_the_twin_gives_the_same(spark_node: Node, tmp_path: Path) -> None:
    """Two channels, and the cities only: a second result would be a second query, with all its windows once more."""
    app, out = UrbanSensing(sensors=20, observables="sound,dust", warm_up=2), hw.to.memory()
    flow = hw.flow("urban-twin", app.build(app.source(rows=140))["cities"].sink(out))
    assert isinstance(spark_node.pool, SparkPool)
    run_to_end(flow, spark_node.pool.session, tmp_path)
    cities_agree(app, out.rows(), made_rows(app, 140), (5, 1))


def test_an_observable_that_is_none_is_refused() -> None:
    with pytest.raises(hw.FlowError, match="'smell' is not observed"):
        UrbanSensing(observables="dust, smell")


def test_real_readings_are_of_seven_cities_in_order_of_time(data: Path) -> None:
    readings = pa.Table.from_batches(SensorMeans(data)())
    assert len(set(readings["city"].to_pylist())) == 7
    times = readings["timestamp"].to_pylist()
    assert times == sorted(times)
    assert readings.schema == UrbanSensing().schema


HEADER = b"timestamp,airquality_raw,dust,humidity,light,sound,source,temperature,city"


def means_in(directory: Path, *lines: bytes) -> Path:
    """Write a file of hourly means beside those that are there, and return the directory of real data it is in."""
    folder = directory / "sense_your_city"
    folder.mkdir(exist_ok=True)
    (folder / f"sensors-mean-{len(list(folder.iterdir()))}.csv").write_bytes(b"\n".join(lines))
    return directory


def test_a_clock_in_a_city_is_turned_to_utc(tmp_path: Path) -> None:
    """San Francisco's clocks were put forward on 8 March 2015; Bangalore's are half an hour off."""
    means_in(
        tmp_path,
        HEADER,
        b"2015-03-07 16:00:00,1,2,3,4,5,s,6,San Francisco",
        b"2015-03-09 16:00:00,1,2,3,4,5,s,6,San Francisco",
        b"2015-03-09 05:30:00,1,2,3,4,5,b,6,Bangalore",
    )
    (readings,) = SensorMeans(tmp_path)()
    found = [(row["sensor"], row["timestamp"].day, row["timestamp"].hour) for row in readings.to_pylist()]
    assert found == [("s", 8, 0), ("b", 9, 0), ("s", 9, 23)]


def test_in_a_loop_time_goes_on(data: Path) -> None:
    stream = SensorMeans(data, loop=True)()
    rows = 0
    last = None
    while rows < 25_000:
        batch = next(stream)
        rows += len(batch)
        times = batch["timestamp"].to_pylist()
        assert last is None or times[0] >= last
        last = times[-1]


def test_a_missing_file_a_wrong_one_and_one_without_a_reading_are_told(tmp_path: Path) -> None:
    with pytest.raises(hw.ConnectorError, match="no file matches"):
        next(SensorMeans(tmp_path)())
    means_in(tmp_path, b"timestamp,city", b"2015-03-07 16:00:00,Boston")
    with pytest.raises(hw.ConnectorError, match="cannot be read as hourly means"):
        next(SensorMeans(tmp_path)())
    (tmp_path / "elsewhere").mkdir()
    means_in(tmp_path / "elsewhere", HEADER, b"2015-03-07 16:00:00,1,2,3,4,5,s,6,Ys")
    with pytest.raises(
        hw.ConnectorError, match=r"none of the 1 lines .* is a reading: .* the cities Bangalore, Boston"
    ):
        next(SensorMeans(tmp_path / "elsewhere")())


GOOD = b"2015-03-07 16:00:00,1,2,3,4,5,s,6,Singapore"


@pytest.mark.parametrize(
    "bad",
    [
        b"2015-03-07 16:00:00,1,2,3",
        b"2015-03-07 16:00:00,1,2,3,4,5,s,6,Singapore,7",
        b"2015-03-07 16:00:00,1,2,3,4,5,s,6,",
        b"2015-03-07 16:00:00,1,2,3,4,5,s,6,Ys",
        b"2015-03-07 16:00:00,1,2,3,4,5,s,6,\xff",
        b",1,2,3,4,5,s,6,Singapore",
        b"yesterday,1,2,3,4,5,s,6,Singapore",
    ],
)
def test_a_line_that_is_no_reading_costs_only_itself(
    bad: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In any of the files; the log says in which, and how many there are."""
    means_in(tmp_path, HEADER, GOOD)
    (readings,) = SensorMeans(means_in(tmp_path, HEADER, bad, GOOD, b"", bad))()
    assert readings["city"].to_pylist() == ["Singapore", "Singapore"]
    assert "sensors-mean-1.csv: 2 lines without a time, a known city or some field are left out" in caplog.text
    assert "sensors-mean-0.csv" not in caplog.text


@pytest.mark.parametrize("written", [b"loud", b"1_000", b"inf", b"\xff"])
def test_an_observable_that_is_no_number_is_missing_and_the_others_stay(
    written: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (readings,) = SensorMeans(means_in(tmp_path, HEADER, GOOD.replace(b"5,s", written + b",s"), GOOD))()
    assert readings["sound"].to_pylist() == [None, 5.0]
    assert readings["light"].to_pylist() == [4.0, 4.0]
    assert "sensors-mean-0.csv: 1 values that are no numbers are taken for missing" in caplog.text


def test_an_observable_that_is_empty_or_nan_is_missing_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (readings,) = SensorMeans(means_in(tmp_path, HEADER, *(GOOD.replace(b"5,s", no + b",s") for no in (b"", b"NaN"))))()
    assert readings["sound"].to_pylist() == [None, None]
    assert not caplog.text


@pytest.mark.parametrize("loop", [False, True])
@pytest.mark.parametrize("lines", [(), (b"", b""), (HEADER,), (HEADER, b"", b"")])
def test_files_without_readings_give_none(lines: tuple[bytes, ...], loop: bool, tmp_path: Path) -> None:
    assert list(SensorMeans(means_in(tmp_path, *lines), loop)()) == []


def test_ninety_thousand_sensors_are_averaged_by_city() -> None:
    """A minute of them: 90,000 rows, and all that is kept is a few numbers for each city and channel."""
    app = UrbanSensing(sensors=90_000)
    results = results_of(app, 90_000)
    assert len(results["cities"]) == 7 * 5  # each reading is in five windows
    temperatures = {row["city"]: row["temperature"] for row in results["cities"]}
    assert temperatures["Rio de Janeiro"] > temperatures["Singapore"] > temperatures["Boston"]
