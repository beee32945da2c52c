"""Tables beside a stream: a file, rows in memory, a DataFrame, or a function that fetches rows.

Rows in memory travel with the flow. Every worker that needs a file or a function reads or calls it, and again when
`refresh` has passed. A refresh that fails is logged and leaves the old rows in use, so a file that is being written
stops nothing; better still, put a new file in place by renaming it over the old.
"""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from headwater.connectors.columns import as_batch
from headwater.connectors.files.files import no_access
from headwater.connectors.files.json_lines import read_json_lines
from headwater.connectors.frames import is_spark_frame
from headwater.connectors.times import as_texts, loses_zone, with_times, zone_lost
from headwater.dataflow.arguments import schema_of
from headwater.dataflow.calling import answered
from headwater.dataflow.stream import SchemaLike
from headwater.model.errors import ConnectorError, FlowError, HeadwaterError
from headwater.model.quoting import cause, listed, quoted
from headwater.model.time import duration_us

log = logging.getLogger(__name__)

KEY: Final = "key"
VALUE: Final = "value"

_FILES_MAX: Final = 8  # parsed files that a worker caches


@dataclass(frozen=True, kw_only=True)
class FileTable:
    """A CSV, JSON lines or Parquet file, by the suffix of its name."""

    path: str
    schema: pa.Schema | None = None
    refresh_us: int | None = None

    def load(self, now_us: int) -> pa.Table:
        """Read the file; an untouched one is not parsed again."""
        try:
            found = os.stat(self.path)
            return _parsed(self.path, self.schema, (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size))
        except OSError as failure:
            raise no_access(self.path, failure, "read") from failure

    def refresh(self, now_us: int) -> pa.Table | None:
        try:
            return self.load(now_us)
        except HeadwaterError as failure:
            _warn(self.path, failure)
            return None


@dataclass(frozen=True, kw_only=True, eq=False)
class HeldTable:
    """Rows in memory, which do not change."""

    rows: pa.Table
    refresh_us: int | None = None

    def load(self, now_us: int) -> pa.Table:
        return self.rows

    def refresh(self, now_us: int) -> pa.Table | None:
        """Return the same rows."""
        return self.rows


@dataclass(frozen=True, kw_only=True)
class FetchedTable:
    """Rows that a function returns."""

    function: Callable[[], Any]
    refresh_us: int | None = None

    def load(self, now_us: int) -> pa.Table:
        return pa.Table.from_batches([_rows_of(self.function(), f"the table of {self._name}")])

    def refresh(self, now_us: int) -> pa.Table | None:
        try:
            return self.load(now_us)
        except Exception as failure:  # a user's code may raise anything
            _warn(self._name, failure)
            return None

    @property
    def _name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)


@answered
def table(
    source: Any, *, schema: SchemaLike = None, refresh: str | timedelta | None = None
) -> FileTable | HeldTable | FetchedTable:
    """Make a table of a path (.csv, .json, .jsonl, .parquet), rows, or a function of no arguments that returns rows.

    Rows are a pyarrow Table, a pandas or Spark DataFrame, a dict of columns, a list of row dicts; or a dict by key:
    `{"a": {"room": 1}}` has columns `key` and `room`, `{"a": 1}` has `key` and `value`. A Spark DataFrame is collected
    here and now.
    """
    schema = schema_of(schema)
    refresh_us = None if refresh is None else duration_us(refresh)
    if refresh_us is not None and refresh_us <= 0:
        raise FlowError(f"refresh={quoted(refresh)} must be longer than nothing")
    if isinstance(source, str | os.PathLike):
        path = os.path.abspath(os.fspath(source))  # a worker may stand in another directory
        if not path.endswith(tuple(_READERS)):
            raise FlowError(f"the table {path} is not one of {listed(_READERS)}; give it the name of its format")
        return FileTable(path=path, schema=schema, refresh_us=refresh_us)
    if callable(source):
        return FetchedTable(function=source, refresh_us=refresh_us)
    if refresh_us is not None:
        raise FlowError("only a file or a function can be refreshed; rows in memory stay as they are")
    try:
        rows = pa.Table.from_batches([_rows_of(source, "the table")])
        return HeldTable(rows=rows if schema is None else _in_schema(rows, schema, "it"))
    except (ConnectorError, pa.ArrowException) as failure:
        raise FlowError(f"the table cannot be made: {failure}") from failure


def _rows_of(source: Any, where: str) -> pa.RecordBatch:
    if is_spark_frame(source):
        source = source.toArrow()
    if isinstance(source, Mapping) and source and not all(map(_is_column, source.values())):
        source = [{KEY: key, **(row if isinstance(row, Mapping) else {VALUE: row})} for key, row in source.items()]
    return as_batch(source, None, where)


def _is_column(values: Any) -> bool:
    return not isinstance(values, Mapping | str | bytes) and (
        isinstance(values, Sequence) or hasattr(values, "__array__")
    )


def _warn(name: str, failure: Exception) -> None:
    log.warning("the table %s was not refreshed, the rows in use stay: %s", name, failure)


@lru_cache(maxsize=_FILES_MAX)
def _parsed(path: str, schema: pa.Schema | None, version: tuple[int, ...]) -> pa.Table:
    """Return the rows of a file, cached by its version."""
    with open(path, "rb") as file:
        content = pa.py_buffer(file.read())
    read = next(reader for ending, reader in _READERS.items() if path.endswith(ending))
    try:
        return read(content, schema)
    except (pa.ArrowException, UnicodeDecodeError) as failure:
        raise ConnectorError(
            f"{path} cannot be read as a table: {cause(failure)}; correct the file or its schema"
        ) from failure


def _read_csv(content: pa.Buffer, schema: pa.Schema | None) -> pa.Table:
    found = pa.csv.read_csv(
        content,
        read_options=pa.csv.ReadOptions(use_threads=False),
        convert_options=pa.csv.ConvertOptions(
            column_types=None if schema is None else {field.name: as_texts(field.type) for field in schema},
            include_columns=None if schema is None else schema.names,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return with_times(found, pa.schema([]) if schema is None else schema)


def _read_json(content: pa.Buffer, schema: pa.Schema | None) -> pa.Table:
    return read_json_lines(content, schema, infers=schema is None)


def _read_parquet(content: pa.Buffer, schema: pa.Schema | None) -> pa.Table:
    rows = pq.read_table(pa.BufferReader(content), page_checksum_verification=True)
    rows.validate(full=True)
    return rows if schema is None else _in_schema(rows, schema, "the Parquet file")


def _in_schema(rows: pa.Table, schema: pa.Schema, where: str) -> pa.Table:
    lacking = [name for name in schema.names if name not in rows.column_names]
    if lacking:
        raise pa.ArrowInvalid(f"{where} lacks column {quoted(lacking[0])}; it has only: {listed(rows.column_names)}")
    for field in schema:
        if loses_zone(rows.schema.field(field.name).type, field.type):
            raise pa.ArrowInvalid(f"column {quoted(field.name)} {zone_lost(rows.schema.field(field.name).type)}")
    return rows.select(schema.names).cast(schema)


_READERS: Final = {
    ".csv": _read_csv,
    ".json": _read_json,
    ".jsonl": _read_json,
    ".ndjson": _read_json,
    ".parquet": _read_parquet,
}
