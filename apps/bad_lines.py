"""Files that are read as a whole and may have bad lines: a bad one costs itself, and the log says how many there were.

All lines are tried at once, since one by one they take 10 to 100 times as long; where that fails, each half is tried.
Such a file is no source of the engine, so these lines are in no ledger.
"""

import logging
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

log = logging.getLogger("headwater.apps")  # below `headwater`, whose lines `headwater logs` shows

Result = TypeVar("Result")


def lines_of(path: str | PathLike[str]) -> list[bytes]:
    """Return the lines of a file that are not blank."""
    with open(path, "rb") as file:
        return [line.rstrip(b"\r\n") for line in file if line.strip()]


def good_rows(lines: Sequence[bytes], parse: Callable[[pa.RecordBatch], pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return the rows of the good lines; `parse` raises a ValueError for lines of which one is bad."""

    def parsed(some: Sequence[bytes]) -> pa.RecordBatch:
        return parse(pa.record_batch({"line": pa.array(some, pa.string())}))

    return [rows for rows in _in_halves(lines, parsed, None) if rows is not None]


def csv_fields(path: str | PathLike[str], names: Sequence[str]) -> tuple[pa.Table, int]:
    """Return columns of a CSV file, as bytes, and how many lines are left out: those with other numbers of fields."""
    content = Path(path).read_bytes()
    if not content.strip():
        return pa.schema([(name, pa.binary()) for name in names]).empty_table(), 0
    left_out = []

    def leave_out(row: csv.InvalidRow) -> str:
        left_out.append(row.text.count("\n") + 1)  # a quote that is never closed takes the lines behind it along
        return "skip"

    table = csv.read_csv(
        pa.py_buffer(content + b"\n"),  # without one at its end, pyarrow refuses a header and misreads quotes
        parse_options=csv.ParseOptions(invalid_row_handler=leave_out),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.binary()), include_columns=list(names), strings_can_be_null=True
        ),
    )
    return table, sum(left_out)


def read_or_null(fields: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """Return the values that are written in fields; null for what is none, and for a number that is not finite."""
    read = _in_halves(fields.combine_chunks(), lambda some: some.cast(pa.string()).cast(kind), pa.nulls(1, kind))
    values = pa.concat_arrays(read)
    return pc.if_else(pc.is_finite(values), values, None) if pa.types.is_floating(kind) else values


def _in_halves(items: Any, attempt: Callable[[Any], Result], bad: Result) -> list[Result]:
    """Return what an attempt makes of all items or, where it fails, of each half; of a single one that is `bad`."""
    try:
        return [attempt(items)]
    except ValueError:
        if len(items) <= 1:
            return [bad]
        middle = len(items) // 2
        return [*_in_halves(items[:middle], attempt, bad), *_in_halves(items[middle:], attempt, bad)]
