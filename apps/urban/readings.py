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

import headwater as hw

from ..bad_lines import csv_fields, log, read_or_null

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
        if not len(times):
            return
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
    tables, left_out = zip(*map(_table, files), strict=True)
    table = pa.concat_tables(tables)
    if not len(table) and any(left_out):
        raise hw.ConnectorError(
            f"none of the {sum(left_out)} lines of {data / FILES} is a reading: each needs a time, all fields, and "
            f"one of the cities {', '.join(ZONES)}"
        )
    cities = [_by_utc(table.filter(pc.field("city") == city), zone) for city, zone in ZONES.items()]
    return pa.concat_tables(cities).sort_by([("timestamp", "ascending"), ("city", "ascending")])


def _table(path: Path) -> tuple[pa.Table, int]:
    """Return the readings of a file, and how many of its lines are none; an observable that is no number is null."""
    try:
        fields, broken = csv_fields(path, list(COLUMNS))
    except (OSError, ValueError, KeyError) as failure:  # it is no CSV, or has other columns
        raise hw.ConnectorError(f"{path} cannot be read as hourly means of sensors: {failure}") from failure
    table = pa.table({name: read_or_null(fields[name], kind) for name, kind in COLUMNS.items()})
    readings = table.filter(pc.field("timestamp").is_valid() & pc.field("city").isin(list(ZONES)))
    left_out = broken + len(table) - len(readings)
    values = sum(table[name].null_count - fields[name].null_count for name in OBSERVED)
    if left_out:
        log.warning("%s: %d lines without a time, a known city or some field are left out", path, left_out)
    if values:
        log.warning("%s: %d values that are no numbers are taken for missing", path, values)
    return readings, left_out


def _by_utc(table: pa.Table, zone: str) -> pa.Table:
    """Bring the readings of a city into the columns of the made ones."""
    local = pc.assume_timezone(table["timestamp"], zone, ambiguous="earliest", nonexistent="latest")
    nowhere = pa.nulls(len(table), pa.float64())
    columns = {"timestamp": local.cast(pa.timestamp("us", "UTC")), "city": table["city"], "sensor": table["source"]}
    columns |= {"longitude": nowhere, "latitude": nowhere} | {name: table[name] for name in OBSERVED}
    return pa.table(columns, schema=READING)
