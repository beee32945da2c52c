"""Where a stream ends: files, the console, memory, a function.

Every function returns a sink for `stream.sink(...)` and touches nothing; files are opened when the app runs. `mode`
says what a new app does with a file that is there already; an app that goes on after a restart goes on with its own.
"""

import os
from collections.abc import Callable
from typing import TextIO

import pyarrow as pa

from headwater.connectors.linesink import CsvSink, JsonSink, Mode, TextSink
from headwater.connectors.local import CallSink, ConsoleSink, MemorySink, NothingSink
from headwater.connectors.tablesink import ROWS_PER_FILE, ParquetSink

Path = str | os.PathLike[str]


def csv(path: Path, *, mode: Mode = "error", sync: bool = False) -> CsvSink:
    """Write a CSV file with a header; the first rows fix its columns."""
    return CsvSink(path=os.fspath(path), mode=mode, sync=sync)


def json(path: Path, *, mode: Mode = "error", sync: bool = False) -> JsonSink:
    """Write a file of JSON lines."""
    return JsonSink(path=os.fspath(path), mode=mode, sync=sync)


def text(path: Path, column: str = "line", *, mode: Mode = "error", sync: bool = False) -> TextSink:
    """Write the text of one column, a line a row."""
    return TextSink(path=os.fspath(path), column=column, mode=mode, sync=sync)


def parquet(
    directory: Path, *, mode: Mode = "error", rows_per_file: int = ROWS_PER_FILE, sync: bool = False
) -> ParquetSink:
    """Write Parquet files of `rows_per_file` rows into a directory."""
    return ParquetSink(directory=os.fspath(directory), mode=mode, rows_per_file=rows_per_file, sync=sync)


def console(limit: int | None = None, file: TextIO | None = None) -> ConsoleSink:
    """Print rows in aligned columns, at most `limit` of them."""
    return ConsoleSink(limit=limit, file=file)


def memory(limit: int | None = None) -> MemorySink:
    """Keep rows in this process, the latest `limit` of them; read them with `rows()`, `batches()` or `table()`."""
    return MemorySink(limit)


def nothing() -> NothingSink:
    """Count rows and forget them."""
    return NothingSink()


def call(function: Callable[[pa.RecordBatch], object]) -> CallSink:
    """Call `function(batch)` in the node's process; after a crash it may see rows again."""
    return CallSink(function=function)
