"""Encodes rows as lines: CSV, JSON lines and plain text. The same rows always give the same bytes.

JSON: an instant is ISO 8601 with as many digits as its unit has, and `Z` if its column has a zone; NaN and infinity are
null, bytes base64, decimals strings, a time span seconds. CSV: as pyarrow writes it, every text in quotes, so that an
empty text (quoted) and a null (nothing) differ; a null in a file of one column is a blank line, which readers skip.
"""

import base64
import datetime
import decimal
from collections.abc import Sequence
from typing import Any, Final, Protocol

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.csv

from headwater.connectors.columns import one_batch
from headwater.model.errors import ConnectorError, SchemaMismatch
from headwater.model.quoting import listed, quoted


class Encoder(Protocol):
    """Encodes rows as lines of one format."""

    def columns(self, batch: pa.RecordBatch, before: Sequence[str] | None, where: str) -> list[str] | None:
        """Return the file's columns from here on, or refuse the batch."""
        ...

    def header(self, columns: Sequence[str]) -> bytes:
        """Return the bytes before the first row."""
        ...

    def lines(self, batch: pa.RecordBatch) -> bytes:
        """Return the rows, each with its newline."""
        ...

    def columns_in(self, first_line: bytes) -> list[str] | None:
        """Return the columns of an existing file, from its first line."""
        ...


class CsvLines:
    """A header, then a record a row."""

    def columns(self, batch: pa.RecordBatch, before: Sequence[str] | None, where: str) -> list[str] | None:
        """Let the first batch fix the columns."""
        for field in batch.schema:
            if pa.types.is_nested(field.type) or pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type):
                raise SchemaMismatch(
                    f"{where}: column {quoted(field.name)} is {field.type}, which CSV cannot hold; "
                    "leave it out with select(...), or write to.json or to.parquet"
                )
        names: list[str] = batch.schema.names
        if before is not None and list(before) != names:
            raise SchemaMismatch(
                f"{where}: the file has columns {listed(before)}, but rows came with {listed(names)}; "
                "select(...) the same columns for every row, or write to.json"
            )
        return names

    def header(self, columns: Sequence[str]) -> bytes:
        """Return the names as a record."""
        return self._written(pa.RecordBatch.from_pydict({name: pa.array([], pa.string()) for name in columns}), True)

    def lines(self, batch: pa.RecordBatch) -> bytes:
        """Return a record for each row."""
        return self._written(batch, False)

    def columns_in(self, first_line: bytes) -> list[str] | None:
        return list(pa.csv.read_csv(pa.py_buffer(first_line)).column_names)

    def _written(self, batch: pa.RecordBatch, header: bool) -> bytes:
        stream = pa.BufferOutputStream()
        try:
            pa.csv.write_csv(batch, stream, pa.csv.WriteOptions(include_header=header))
        except pa.ArrowInvalid as failure:
            raise SchemaMismatch(f"rows cannot be written as CSV: {failure}; write to.json or to.parquet") from failure
        return stream.getvalue().to_pybytes()  # type: ignore[no-any-return]


class JsonLines:
    """An object a row; the columns may change from row to row."""

    def columns(self, batch: pa.RecordBatch, before: Sequence[str] | None, where: str) -> list[str] | None:
        """Accept any columns."""
        return None

    def header(self, columns: Sequence[str]) -> bytes:
        """Return nothing: there is no header."""
        return b""

    def lines(self, batch: pa.RecordBatch) -> bytes:
        """Return an object for each row."""
        names = batch.schema.names
        values = [_plain(column) for column in batch.columns]
        objects = [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)] if names else []
        return b"".join([orjson.dumps(row, _other, _JSON_OPTIONS) for row in objects])

    def columns_in(self, first_line: bytes) -> list[str] | None:
        """Return None: the columns are not fixed."""
        return None


class TextLines:
    """The text of one column, a line a row."""

    def __init__(self, column: str) -> None:
        self._column = column

    def columns(self, batch: pa.RecordBatch, before: Sequence[str] | None, where: str) -> list[str] | None:
        """Refuse a batch without the column, or in which it is not text."""
        if self._column not in batch.schema.names:
            raise SchemaMismatch(
                f"{where}: there is no column {quoted(self._column)}, only: {listed(batch.schema.names)}; "
                "name another one"
            )
        kind = batch.schema.field(self._column).type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise SchemaMismatch(f"{where}: column {quoted(self._column)} is {kind}, not text; make it a string first")
        return None

    def header(self, columns: Sequence[str]) -> bytes:
        """Return nothing: there is no header."""
        return b""

    def lines(self, batch: pa.RecordBatch) -> bytes:
        """Return the texts; null is a blank line, and a newline inside a text is refused."""
        texts = ["" if text is None else text for text in batch.column(self._column).to_pylist()]
        joined = "\n".join([*texts, ""]).encode()
        if joined.count(b"\n") != len(texts):
            raise ConnectorError(
                f"a text in column {quoted(self._column)} has a newline inside and would become two lines; "
                "replace it, or write to.json"
            )
        return joined

    def columns_in(self, first_line: bytes) -> list[str] | None:
        """Return None: lines have no columns."""
        return None


_JSON_OPTIONS: Final = orjson.OPT_APPEND_NEWLINE | orjson.OPT_UTC_Z


def _plain(column: pa.Array) -> list[Any]:
    """Return values that orjson writes by itself, as fast as the type allows."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _plain(column.dictionary_decode())
    if pa.types.is_timestamp(kind):
        return _instants(column)
    if column.null_count == 0 and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return column.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]
    return column.to_pylist()  # type: ignore[no-any-return]


def _instants(column: pa.Array) -> list[str | None]:
    moments = (
        column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).view(f"datetime64[{column.type.unit}]")
    )
    texts = np.datetime_as_string(moments, timezone="naive" if column.type.tz is None else "UTC").tolist()
    if column.null_count == 0:
        return texts  # type: ignore[no-any-return]
    return [text if known else None for text, known in zip(texts, column.is_valid().to_pylist(), strict=True)]


def _other(value: Any) -> Any:
    """Return the JSON form of a value that JSON has no type for."""
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case decimal.Decimal():
            return str(value)
        case datetime.timedelta():
            return value.total_seconds()
        case datetime.datetime():  # pandas' own, for nanoseconds
            return value.isoformat()
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


def joined(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return fewer and larger batches where neighbours have the same schema, in the same order."""
    runs: list[list[pa.RecordBatch]] = []
    for batch in batches:
        if batch.num_rows == 0:
            continue
        if runs and runs[-1][0].schema.equals(batch.schema):
            runs[-1].append(batch)
        else:
            runs.append([batch])
    return [run[0] if len(run) == 1 else one_batch(pa.Table.from_batches(run)) for run in runs]
