"""Where a stream begins: files, generated rows, Python iterables.

Every function returns a `Stream` and touches nothing; files are opened when the app runs. Rows come as fast as the flow
takes them, or at `rate` rows a second, or by the times in `time_column`, replayed `speed` times as fast.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from headwater.connectors.cities import CITY_SCHEMA, CityRows
from headwater.connectors.pacing import Pace
from headwater.connectors.sources import (
    GENERATED_ROWS,
    BadLines,
    CsvSource,
    GeneratorSource,
    IterableSource,
    JsonSource,
    ParquetSource,
    TextSource,
)
from headwater.dataflow.stream import Stream, source

Path = str | os.PathLike[str]


def csv(
    path: Path,
    *,
    schema: pa.Schema | None = None,
    header: bool = True,
    delimiter: str = ",",
    nulls: Sequence[str] = ("",),
    rate: float | None = None,
    time_column: str | None = None,
    speed: float = 1.0,
    follow: bool = False,
    loop: bool = False,
    bad_lines: BadLines = "stop",
    can_wait: bool = True,
    name: str | None = None,
) -> Stream:
    """Read CSV files: one, a directory or a pattern. Without a schema the first rows decide the types.

    A type found that way widens when later rows need it: whole numbers to fractions, anything to text.
    """
    spec = CsvSource(
        path=os.fspath(path),
        schema=schema,
        pace=Pace(rate=rate, time_column=time_column, speed=speed),
        header=header,
        delimiter=delimiter,
        nulls=tuple(nulls),
        follow=follow,
        loop=loop,
        bad_lines=bad_lines,
        can_wait=can_wait,
    )
    return source(spec, name=name)


def json(
    path: Path,
    *,
    schema: pa.Schema | None = None,
    rate: float | None = None,
    time_column: str | None = None,
    speed: float = 1.0,
    follow: bool = False,
    loop: bool = False,
    bad_lines: BadLines = "stop",
    can_wait: bool = True,
    name: str | None = None,
) -> Stream:
    """Read files of JSON lines. A declared schema picks its fields; without one every field becomes a column."""
    spec = JsonSource(
        path=os.fspath(path),
        schema=schema,
        pace=Pace(rate=rate, time_column=time_column, speed=speed),
        follow=follow,
        loop=loop,
        bad_lines=bad_lines,
        can_wait=can_wait,
    )
    return source(spec, name=name)


def text(
    path: Path,
    *,
    rate: float | None = None,
    follow: bool = False,
    loop: bool = False,
    bad_lines: BadLines = "stop",
    can_wait: bool = True,
    name: str | None = None,
) -> Stream:
    """Read files of text, a row of one column `line` for each line."""
    spec = TextSource(
        path=os.fspath(path),
        pace=Pace(rate=rate),
        follow=follow,
        loop=loop,
        bad_lines=bad_lines,
        can_wait=can_wait,
    )
    return source(spec, name=name)


def parquet(
    path: Path,
    *,
    schema: pa.Schema | None = None,
    rate: float | None = None,
    time_column: str | None = None,
    speed: float = 1.0,
    follow: bool = False,
    loop: bool = False,
    can_wait: bool = True,
    name: str | None = None,
) -> Stream:
    """Read Parquet files; `follow` waits for further files in a directory."""
    spec = ParquetSource(
        path=os.fspath(path),
        schema=schema,
        pace=Pace(rate=rate, time_column=time_column, speed=speed),
        follow=follow,
        loop=loop,
        can_wait=can_wait,
    )
    return source(spec, name=name)


def generator(
    function: Callable[[int, int], Any],
    *,
    rate: float | None = None,
    rows: int | None = None,
    schema: pa.Schema | None = None,
    batch_rows: int = GENERATED_ROWS,
    name: str | None = None,
) -> Stream:
    """Make rows with `function(first_row, count)`, which must give the same rows for the same numbers every time.

    It returns a RecordBatch, a DataFrame, a dict of columns or a list of row dicts; fewer rows than asked are the last.
    """
    spec = GeneratorSource(function=function, pace=Pace(rate=rate), rows=rows, schema=schema, batch_rows=batch_rows)
    return source(spec, name=name)


def iterable(
    items: Iterable[Any] | Callable[[], Iterable[Any]],
    *,
    schema: pa.Schema | None = None,
    rate: float | None = None,
    name: str | None = None,
) -> Stream:
    """Take rows from a Python iterable, or from a function that returns one: dicts, record batches or single values.

    A single value becomes column `value`. After a restart the iterable is gone through again from the start.
    """
    return source(IterableSource(items=items, schema=schema, pace=Pace(rate=rate)), name=name)


def cities(
    sensors: int = 500, *, rate: float | None = None, rows: int | None = None, seed: int = 7, name: str | None = None
) -> Stream:
    """Make readings like those of the Sense Your City sensors: seven cities, a reading per sensor and minute."""
    spec = GeneratorSource(
        function=CityRows(sensors=sensors, seed=seed),
        pace=Pace(rate=rate),
        rows=rows,
        schema=CITY_SCHEMA,
        kind="cities",
    )
    return source(spec, name=name)
