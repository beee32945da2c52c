"""Rows as PySpark's stateful processors take and give them: pandas DataFrames, or PySpark's rows.

What a processor sees is what PySpark would show it. DataFrames have all columns, an index from 0, whole numbers as
int64, instants as datetime64[ns] in UTC without a zone, maps and structs as dicts. Rows have Python's own values.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from headwater.model.keys import decode_key
from headwater.operators.functions import WrongResult
from headwater.operators.processors.spark_names import row_maker

Positions = npt.NDArray[np.intp]


class Given(Protocol):
    """The rows of a batch, in the form of a processor."""

    def of_key(self, start: int, end: int) -> Iterator[Any]:
        """Return the rows from one position up to another, as `handleInputRows` takes them."""
        ...


class Frames:
    """The rows of a batch as DataFrames."""

    def __init__(self, batch: pa.RecordBatch, order: Positions) -> None:
        """Take the rows in this order."""
        self._frame = _for_pandas(batch).to_pandas(maps_as_pydicts="lossy").take(order)

    def of_key(self, start: int, end: int) -> Iterator[pd.DataFrame]:
        """Return the rows as one DataFrame."""
        frame = self._frame.iloc[start:end].copy(deep=False)  # not deep: no other key sees these rows
        frame.index = pd.RangeIndex(end - start)
        return iter((frame,))


class SparkRows:
    """The rows of a batch as PySpark's rows."""

    def __init__(self, batch: pa.RecordBatch, order: Positions) -> None:
        """Take the rows in this order."""
        taken = batch.take(pa.array(order))
        self._make = row_maker(batch.schema.names)
        self._values = list(zip(*(_in_microseconds(column).to_pylist() for column in taken.columns), strict=True))

    def of_key(self, start: int, end: int) -> Iterator[Any]:
        """Return the rows one by one."""
        make = self._make
        return (make(*values) for values in self._values[start:end])


GIVEN: Final[dict[str, Callable[[pa.RecordBatch, Positions], Given]]] = {"pandas": Frames, "rows": SparkRows}


def _for_pandas(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [_as_spark_shows_it(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _as_spark_shows_it(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_timestamp(kind):
        return _in_nanoseconds(_without_zones(column), pa.timestamp("ns"))
    if pa.types.is_duration(kind):
        return _in_nanoseconds(column, pa.duration("ns"))
    if pa.types.is_signed_integer(kind):
        return column.cast(pa.int64())
    if pa.types.is_floating(kind):
        return column.cast(pa.float64())
    return column.cast(kind.value_type) if pa.types.is_dictionary(kind) else column


def _without_zones(column: pa.Array) -> pa.Array:
    """Return instants as a clock in UTC shows them."""
    unit = column.type.unit
    in_utc = column if column.type.tz is None else column.cast(pa.timestamp(unit, "UTC"))
    return in_utc.cast(pa.timestamp(unit))


def _in_nanoseconds(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return times in nanoseconds; those that are too far for them stay as they are."""
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        return column


def _in_microseconds(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return column.cast(pa.timestamp("us", kind.tz), safe=False)
    return column


class Keys:
    """A stream's keys as a processor is given them: a tuple of the key columns' values."""

    def __init__(self, schema: pa.Schema, form: str) -> None:
        """Know the types of the key columns: the bytes of a key say only that 1.0 and 1 are the same."""
        self._types = [field.type for field in schema]
        self._shown = _without_zone if form == "pandas" else _as_it_is

    def shown(self, key: Any) -> tuple[Any, ...]:
        """Return a key as the processor sees it."""
        return tuple(map(self._shown, key if len(self._types) > 1 else (key,)))

    def from_bytes(self, encoded: bytes) -> tuple[Any, ...]:
        """Return the key that has these bytes as the processor sees it."""
        key = decode_key(encoded)
        parts = key if len(self._types) > 1 else (key,)
        typed = [pa.array([part], kind)[0].as_py() for part, kind in zip(parts, self._types, strict=True)]
        return tuple(map(self._shown, typed))


def key_schema(schema: pa.Schema, columns: Sequence[str], known: pa.Schema | None) -> pa.Schema:
    """Return the types that the values of these columns have as keys; one that is null here may be known already."""
    types = {name: _key_type(schema.field(name).type) for name in columns}
    if known is not None:
        types |= {name: known.field(name).type for name in columns if pa.types.is_null(types[name])}
    return pa.schema(list(types.items()))


def _key_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _key_type(kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return pa.float64() if pa.types.is_floating(kind) else kind


def _without_zone(value: Any) -> Any:
    if not isinstance(value, datetime):
        return value
    stamp = pd.Timestamp(value)
    return stamp if stamp.tz is None else stamp.tz_convert("UTC").tz_localize(None)


def _as_it_is(value: Any) -> Any:
    return value


class Made(Protocol):
    """What a processor has made so far."""

    def add(self, results: Any, method: str) -> None:
        """Take all results of a call."""
        ...

    def batch(self) -> pa.RecordBatch | None:
        """Return them in the declared schema; None if there are none."""
        ...


class MadeFrames:
    """What a processor has made as DataFrames."""

    def __init__(self, schema: pa.Schema) -> None:
        """Begin with nothing."""
        self._schema = schema
        self._frames: list[pd.DataFrame] = []

    def add(self, results: Any, method: str) -> None:
        """Take all DataFrames of a call."""
        for frame in _iterated(results, method, "DataFrames"):
            if not isinstance(frame, pd.DataFrame):
                raise WrongResult(f"{method} yielded a {type(frame).__name__}; a pandas processor yields DataFrames")
            if len(frame):
                self._frames.append(self._in_order(frame, method))

    def _in_order(self, frame: pd.DataFrame, method: str) -> pd.DataFrame:
        """Return the declared columns by name, or by place if none has a name; what else there is does not count."""
        names = self._schema.names
        if list(frame.columns) == names:
            return frame
        if not any(isinstance(name, str) for name in frame.columns):
            if len(frame.columns) < len(names):
                raise WrongResult(f"{method} yielded {len(frame.columns)} columns, but {len(names)} are declared")
            return frame.iloc[:, : len(names)].set_axis(names, axis="columns")
        lacking = [name for name in names if name not in frame.columns]
        if lacking:
            raise WrongResult(f"{method} yielded a DataFrame without column {lacking[0]!r} of the declared schema")
        if not frame.columns.is_unique:
            raise WrongResult(f"{method} yielded a DataFrame with two columns of the same name")
        return frame[names]

    def batch(self) -> pa.RecordBatch | None:
        """Return all rows, in order."""
        if not self._frames:
            return None
        columns = [_column([frame[field.name] for frame in self._frames], field) for field in self._schema]
        return _without_forbidden_nulls(columns, self._schema)


def _column(pieces: list["pd.Series[Any]"], field: pa.Field) -> pa.Array:
    """Return the pieces of one column as one array; those of the same plain type are joined before they are read."""
    kind = pieces[0].dtype
    if isinstance(kind, np.dtype) and all(piece.dtype == kind for piece in pieces):
        return _array(np.concatenate([piece.to_numpy() for piece in pieces]), field)
    return pa.concat_arrays([_array(piece, field) for piece in pieces])


def _array(values: Any, field: pa.Field) -> pa.Array:
    if isinstance(getattr(values, "dtype", None), pd.CategoricalDtype):
        values = values.astype(values.dtype.categories.dtype)
    safe = not pa.types.is_timestamp(field.type)  # what is finer than microseconds is cut off
    try:
        try:
            return pa.Array.from_pandas(values, type=field.type, safe=safe)
        except pa.ArrowInvalid:
            return pa.Array.from_pandas(values).cast(field.type, safe=safe)
    except (pa.ArrowException, OverflowError, TypeError) as failure:
        raise _misfit(field, failure) from failure


class MadeRows:
    """What a processor has made as rows."""

    def __init__(self, schema: pa.Schema) -> None:
        """Begin with nothing."""
        self._schema = schema
        self._rows: list[Mapping[str, Any]] = []

    def add(self, results: Any, method: str) -> None:
        """Take all rows of a call."""
        self._rows.extend(_as_mapping(row, method) for row in _iterated(results, method, "rows"))

    def batch(self) -> pa.RecordBatch | None:
        """Return all rows, in order; a column that a row lacks is null, one that is not declared is left out."""
        if not self._rows:
            return None
        columns = []
        for field in self._schema:
            try:
                columns.append(pa.array([row.get(field.name) for row in self._rows], type=field.type))
            except (pa.ArrowException, OverflowError, TypeError, ValueError) as failure:
                raise _misfit(field, failure) from failure
        return _without_forbidden_nulls(columns, self._schema)


MADE: Final[dict[str, Callable[[pa.Schema], Made]]] = {"pandas": MadeFrames, "rows": MadeRows}


def _iterated(results: Any, method: str, what: str) -> Iterable[Any]:
    """Return the results of a call; a method that returns nothing has none."""
    if results is None:
        return ()
    if isinstance(results, pd.DataFrame) or not isinstance(results, Iterable):
        raise WrongResult(f"{method} returned a {type(results).__name__}; it must return an iterator of {what}")
    return results


def _as_mapping(row: Any, method: str) -> Mapping[str, Any]:
    if isinstance(row, Mapping):
        return row
    try:
        fields: Mapping[str, Any] = row.asDict(True)
    except (AttributeError, TypeError):
        raise WrongResult(f"{method} yielded {row!r}; a row processor yields rows, such as Row(id=1)") from None
    return fields


def _without_forbidden_nulls(columns: list[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    for field, column in zip(schema, columns, strict=True):
        if not field.nullable and column.null_count:
            raise WrongResult(f"its result has nulls in column {field.name!r}, which is declared without")
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _misfit(field: pa.Field, failure: Exception) -> WrongResult:
    return WrongResult(f"its result does not fit column {field.name!r}, declared as {field.type}: {failure}")
