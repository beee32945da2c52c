"""Encodes rows as lines: CSV, JSON lines and plain text. The same rows always give the same bytes.

An instant is written in UTC, with `Z`; a time whose column has no zone as it stands, without one (`times.py`).

JSON: a time is ISO 8601 with as many digits as its unit has; NaN and infinity are null or refused, bytes base64,
decimals strings, a time span seconds.

CSV: as pyarrow writes it, every text in quotes, so that an empty text (quoted) and a null (nothing) remain two things;
a null in a file of one column is a blank line, which readers pass over.
"""

import base64
import datetime
import decimal
import logging
from collections.abc import Sequence
from typing import Any, Final, Literal, Protocol

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from headwater.connectors.columns import one_batch
from headwater.connectors.times import in_utc, with_utc
from headwater.model.errors import ConnectorError, FlowError, SchemaMismatch
from headwater.model.quoting import listed, quoted

log = logging.getLogger(__name__)

NotFinite = Literal["null", "refuse"]
NOT_FINITE: Final = ("null", "refuse")


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

    def nulled(self, batch: pa.RecordBatch) -> int:
        """Return how many values of these rows are written as null, since there is no word for them."""
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

    def nulled(self, batch: pa.RecordBatch) -> int:
        """NaN and infinity are `nan` and `inf` in CSV."""
        return 0

    def _written(self, batch: pa.RecordBatch, header: bool) -> bytes:
        stream = pa.BufferOutputStream()
        try:
            pa.csv.write_csv(in_utc(batch), stream, pa.csv.WriteOptions(include_header=header))
        except pa.ArrowInvalid as failure:
            raise SchemaMismatch(f"rows cannot be written as CSV: {failure}; write to.json or to.parquet") from failure
        return stream.getvalue().to_pybytes()  # type: ignore[no-any-return]


class JsonLines:
    """An object a row; the columns may change from row to row."""

    def __init__(self, not_finite: NotFinite = "null") -> None:
        """Write NaN and infinity as null, or refuse them."""
        self._not_finite = not_finite

    def columns(self, batch: pa.RecordBatch, before: Sequence[str] | None, where: str) -> list[str] | None:
        """Any columns will do."""
        if self._not_finite == "refuse":
            self._refuse_not_finite(batch, where)
        return None

    def _refuse_not_finite(self, batch: pa.RecordBatch, where: str) -> None:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if not_finite_in(column):
                raise SchemaMismatch(
                    f"{where}: column {quoted(name)} has NaN or infinity, which JSON has no word for; "
                    "filter such rows out, or pass not_finite='null'"
                )

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

    def nulled(self, batch: pa.RecordBatch) -> int:
        """Return how many numbers are NaN or infinity."""
        return sum(not_finite_in(column) for column in batch.columns)


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

    def nulled(self, batch: pa.RecordBatch) -> int:
        """A text is a text."""
        return 0


def checked_not_finite(given: str) -> None:
    """Refuse what says neither."""
    if given not in NOT_FINITE:
        raise FlowError(f"not_finite={quoted(given)} is not known; give one of {listed(NOT_FINITE)}")


def not_finite_in(column: pa.Array) -> int:
    """Return how many numbers in a column, also inside of structs and lists, are NaN or infinity."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return not_finite_in(column.dictionary_decode())
    if pa.types.is_struct(kind):
        return sum(not_finite_in(inner) for inner in column.flatten())
    if pa.types.is_nested(kind):
        inner = column.flatten()
        return sum(map(not_finite_in, inner)) if isinstance(inner, list) else not_finite_in(inner)
    if not pa.types.is_floating(kind):
        return 0
    return len(column) - column.null_count - (pc.sum(pc.is_finite(column)).as_py() or 0)  # type: ignore[no-any-return]


class Nulled:
    """Counts what was written as null since JSON has no word for it, and says so: in the log the first time."""

    def __init__(self, where: str, count: int) -> None:
        """Go on counting."""
        self._where, self.count = where, count
        self._has_warned = False

    def add(self, more: int) -> None:
        """So many more are written."""
        self.count += more
        if more and not self._has_warned:
            self._has_warned = True
            log.warning("%s: NaN or infinity is written as null, and counted; not_finite='refuse' stops", self._where)

    def remembered(self) -> dict[str, int]:
        """Return the part of a position that keeps the count."""
        return {"nulled": self.count} if self.count else {}

    def told(self) -> str:
        """Say how many there were."""
        return f"{self.count:,} times NaN or infinity, written as null" if self.count else ""


_JSON_OPTIONS: Final = orjson.OPT_APPEND_NEWLINE | orjson.OPT_UTC_Z


def _plain(column: pa.Array) -> list[Any]:
    """Return values that orjson writes by itself, as fast as the type allows."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _plain(column.dictionary_decode())
    if pa.types.is_timestamp(kind):
        return _instants(column)
    if pa.types.is_nested(kind):
        return column.cast(with_utc(kind)).to_pylist()  # type: ignore[no-any-return]
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
