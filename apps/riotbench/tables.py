"""The table that TRAIN reads its rows from: those of a data set, by event time.

In the benchmark it is filled by ETL and lies in a cloud store. Here it is a file, or, where there is none, made up: the
rows that `riotbench.etl` would have been given in that stretch of time.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, floor
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

import headwater as hw

from ..bad_lines import csv_fields, good_rows, lines_of, log, read_or_null
from . import made_city, made_fit, made_grid, made_taxi
from .analytics import ANALYTICS, Analytics
from .datasets import TIMESTAMP, Dataset
from .models import Floats
from .parsing import Parse

ROWS_MAX: Final = 1_000_000  # to train on at a time: 80 MB of FIT, and a minute for a tree
FILE_BYTES_MAX: Final = 1 << 30

_HOUR_MS: Final = 3_600_000
_MARGIN: Final = 64  # rows of one second of CITY, or of one minute of TAXI, have the same time


class Table(Protocol):
    """Rows by event time."""

    def read(self, start_ms: int, end_ms: int) -> Floats:
        """Return the attributes of all rows from the start up to but without the end; each row has all of them."""
        ...


@dataclass(frozen=True)
class _Made:
    """How the rows of a data set are made: by what, from when on, and how many in an hour."""

    function: Callable[[int, int, int, int], dict[str, pa.Array]]
    begin_ms: int
    hourly: float
    of_each_sensor: bool  # so many, or of all together


_MADE: Final[Mapping[str, _Made]] = {
    "city": _Made(made_city.made_city, made_city.BEGIN_MS, 60.0 * made_city.MESSAGES_PER_MINUTE, False),
    "taxi": _Made(made_taxi.made_taxi, made_taxi.BEGIN_MS, made_taxi.TRIPS_PER_HOUR, False),
    "fit": _Made(made_fit.made_fit, made_fit.BEGIN_MS, _HOUR_MS / made_fit.TICK_MS, True),
    "grid": _Made(made_grid.made_grid, made_grid.BEGIN_MS, _HOUR_MS / made_grid.PERIOD_MS, True),
}


def begin_ms(dataset: str) -> int:
    """Return the time of the first row that is made of a data set."""
    return _MADE[dataset].begin_ms


@dataclass(frozen=True)
class MadeTable:
    """Rows that are made up when they are asked for."""

    dataset: str
    sensors: int = 0  # 0: as many as there are in the original
    seed: int = 1

    def read(self, start_ms: int, end_ms: int) -> Floats:
        """Make somewhat more rows than there can be in that time, and choose."""
        made, analytics = _MADE[self.dataset], ANALYTICS[self.dataset]
        sensors = self.sensors or analytics.dataset.sensors
        per_ms = made.hourly * (sensors if made.of_each_sensor else 1) / _HOUR_MS
        first = max(floor((start_ms - made.begin_ms) * per_ms) - _MARGIN, 0)
        count = _checked(ceil((end_ms - made.begin_ms) * per_ms) + _MARGIN - first)
        if count <= 0:
            return np.empty((0, len(analytics.attributes)))
        columns = made.function(first, count, sensors, self.seed)
        times = columns[TIMESTAMP].to_numpy()
        rows = np.column_stack([columns[name].cast(pa.float64()).to_numpy() for name in analytics.attributes])
        chosen: Floats = rows[(times >= start_ms) & (times < end_ms)]
        return chosen


@dataclass(frozen=True)
class StoredTable:
    """The rows of a file: Parquet or CSV with a column `timestamp` and the attributes, or messages as they come."""

    path: str
    dataset: str

    def read(self, start_ms: int, end_ms: int) -> Floats:
        """Look them up."""
        times, rows = _stored(self.path, self.dataset)
        first, last = np.searchsorted(times, [start_ms, end_ms])
        _checked(int(last - first))
        return rows[first:last]


def table_of(dataset: str, path: str, sensors: int, seed: int) -> Table:
    """Return the table in a file, or the one that is made up."""
    if not path:
        return MadeTable(dataset, sensors, seed)
    place = Path(path).absolute()  # a worker's working directory is not the author's
    if not place.is_file():
        raise hw.ConfigError(
            f"there is no file {place} to read the table from; leave table= away, and its rows are made"
        )
    if place.stat().st_size > FILE_BYTES_MAX:
        raise hw.ConfigError(f"{place} has more than {FILE_BYTES_MAX} bytes, which a worker does not take into memory")
    _refuse_unreadable(str(place), ANALYTICS[dataset])
    return StoredTable(str(place), dataset)


def _checked(rows: int) -> int:
    if rows > ROWS_MAX:
        raise ValueError(f"{rows} rows lie in that stretch of time; at most {ROWS_MAX} are trained on at once")
    return rows


def _refuse_unreadable(path: str, analytics: Analytics) -> None:
    """Refuse a file without a row: a worker would find out too late, and make every training a dead letter."""
    try:
        names = _columns_named(path)
    except (OSError, ValueError) as failure:
        raise hw.ConfigError(f"{path} cannot be read as a table: {failure}") from failure
    if names is not None:
        _refuse_missing(path, names, analytics)
    elif not _has_message(path, analytics.dataset):
        raise hw.ConfigError(
            f"{path} has no message of {analytics.dataset.name}, nor a first line that names a column "
            f"{TIMESTAMP!r}; leave table= away, and its rows are made"
        )


def _refuse_missing(path: str, names: list[str], analytics: Analytics) -> None:
    missing = [name for name in (TIMESTAMP, *analytics.attributes) if name not in names]
    if missing:
        raise hw.ConfigError(f"{path} has no column {missing[0]!r}; it has {', '.join(names)}")


def _has_message(path: str, dataset: Dataset) -> bool:
    with open(path, "rb") as file:
        return any(good_rows([line], Parse(dataset)) for line in file if line.strip())


@lru_cache(maxsize=4)  # a worker reads a file once
def _stored(path: str, dataset: str) -> tuple[npt.NDArray[np.int64], Floats]:
    """Return the times and the attributes of the rows of a file, by time; a row that lacks something is left out."""
    analytics = ANALYTICS[dataset]
    table = _columns(path, analytics).drop_null().sort_by(TIMESTAMP)
    rows = [table[name].cast(pa.float64()).to_numpy() for name in analytics.attributes]
    return table[TIMESTAMP].cast(pa.int64()).to_numpy(), np.column_stack(rows)


def _columns(path: str, analytics: Analytics) -> pa.Table:
    wanted, names = [TIMESTAMP, *analytics.attributes], _columns_named(path)
    if names is None:
        return _messages(path, analytics.dataset).select(wanted)
    _refuse_missing(path, names, analytics)
    if path.endswith(".parquet"):
        return pyarrow.parquet.read_table(path, columns=wanted)
    return _csv_rows(path, wanted)


def _columns_named(path: str) -> list[str] | None:
    """Return the names of a file's columns; None for a file of messages, whose lines name none."""
    if path.endswith(".parquet"):
        names: list[str] = pyarrow.parquet.read_schema(path).names
        return names
    with open(path, "rb") as file:
        first = next((line for line in file if line.strip()), b"")
    is_header = TIMESTAMP.encode() in first and b"{" not in first
    return pyarrow.csv.read_csv(pa.py_buffer(first + b"\n")).column_names if is_header else None


def _messages(path: str, dataset: Dataset) -> pa.Table:
    lines = lines_of(path)
    table = pa.Table.from_batches(good_rows(lines, Parse(dataset)), schema=dataset.schema)
    if len(table) < len(lines):
        left_out = len(lines) - len(table)
        log.warning("%s: %d of %d lines are no messages of %s, and left out", path, left_out, len(lines), dataset.name)
    return table


def _csv_rows(path: str, names: list[str]) -> pa.Table:
    fields, left_out = csv_fields(path, names)
    table = pa.table({name: read_or_null(fields[name], pa.float64()) for name in names})
    left_out += len(fields.drop_null()) - len(table.drop_null())
    if left_out:
        log.warning("%s: %d lines are no rows of numbers, and left out", path, left_out)
    times = table[TIMESTAMP].cast(pa.int64(), safe=False)  # a fraction of a millisecond is nothing
    return table.set_column(0, TIMESTAMP, times)
