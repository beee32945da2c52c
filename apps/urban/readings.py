"""Readings of city sensors: made ones, and the real ones of Sense Your City in order of time.

The real files hold hourly means of one sensor in each of the seven cities, sensor after sensor and by the clocks of the
cities; a stream of them is in order of time, by UTC.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

import headwater as hw

READING: Final = hw.CityRows.schema.set(0, pa.field("timestamp", pa.timestamp("us", "UTC")))

FILES: Final = "sense_your_city/sensors-mean-*.csv"

ZONES: Final[Mapping[str, str]] = {
    "Bangalore": "Asia/Kolkata",
    "Boston": "America/New_York",
    "Geneva": "Europe/Zurich",
    "Rio de Janeiro": "America/Sao_Paulo",
    "San Francisco": "America/Los_Angeles",
    "Shanghai": "Asia/Shanghai",
    "Singapore": "Asia/Singapore",
}
OBSERVED: Final = ("temperature", "humidity", "light", "dust", "airquality_raw", "sound")
COLUMNS: Final[Mapping[str, pa.DataType]] = {
    "timestamp": pa.timestamp("us"),
    "source": pa.string(),
    "city": pa.string(),
    **dict.fromkeys(OBSERVED, pa.float64()),
}


@dataclass(frozen=True)
class MadeReadings:
    """Readings of so many sensors in seven cities, once a minute each."""

    sensors: int
    seed: int

    def __call__(self, first: int, count: int) -> pa.RecordBatch:
        """Make rows `first` to `first + count - 1`, in microseconds, which every way to write a time can hold."""
        return hw.CityRows(sensors=self.sensors, seed=self.seed)(first, count).cast(READING)


@dataclass(frozen=True)
class SensorMeans:
    """Gives the readings of all files; in a loop, each time some days later, so that time goes on."""

    data: Path
    loop: bool = False

    def __call__(self) -> Iterator[pa.RecordBatch]:
        """Read the files when the flow starts."""
        readings = _in_order(self.data)
        times = readings["timestamp"]
        days = timedelta(days=(times[-1].as_py() - times[0].as_py()).days + 1)
        while True:
            yield from readings.to_batches(max_chunksize=1_000)
            if not self.loop:
                return
            later = pc.add(readings["timestamp"], pa.scalar(days, pa.duration("us")))
            readings = readings.set_column(0, readings.field(0), later)


def _in_order(data: Path) -> pa.Table:
    files = sorted(data.glob(FILES))
    if not files:
        raise hw.ConnectorError(f"no file matches {data / FILES}, so there is nothing to read; docs/data.md says more")
    table = pa.concat_tables(_table(path) for path in files)
    unknown = set(table["city"].unique().to_pylist()) - ZONES.keys()
    if unknown:
        raise hw.ConnectorError(
            f"{data / FILES} has readings of {sorted(unknown)}, of which the time zone is not known"
        )
    cities = [_by_utc(table.filter(pc.field("city") == city), zone) for city, zone in ZONES.items()]
    return pa.concat_tables(cities).sort_by([("timestamp", "ascending"), ("city", "ascending")])


def _table(path: Path) -> pa.Table:
    options = csv.ConvertOptions(column_types=dict(COLUMNS), include_columns=list(COLUMNS))
    try:
        return csv.read_csv(path, convert_options=options)
    except (OSError, ValueError, KeyError) as failure:  # it is no CSV, or has other columns
        raise hw.ConnectorError(f"{path} cannot be read as hourly means of sensors: {failure}") from failure


def _by_utc(table: pa.Table, zone: str) -> pa.Table:
    """Bring the readings of a city into the columns of the made ones."""
    local = pc.assume_timezone(table["timestamp"], zone, ambiguous="earliest", nonexistent="latest")
    nowhere = pa.nulls(len(table), pa.float64())
    columns = {"timestamp": local.cast(pa.timestamp("us", "UTC")), "city": table["city"], "sensor": table["source"]}
    columns |= {"longitude": nowhere, "latitude": nowhere} | {name: table[name] for name in OBSERVED}
    return pa.table(columns, schema=READING)
