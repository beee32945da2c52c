"""The columns of a stream in Spark's types, and the conversion there and back.

Spark has fewer types than Arrow: no unsigned numbers, no dictionaries, one unit of time and no named zones. So every
stream of the twin has two schemas: Headwater's own, which users' functions and sinks see, and its Spark form, in which
the rows are in files and shuffles. Values survive the round trip, but for nanoseconds, which become microseconds. Types
that have no Spark form are refused.
"""

from typing import Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headwater.connectors.times import loses_zone, zone_lost
from headwater.model.errors import FlowError

_WIDER: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.time32("s"): pa.time64("us"),
    pa.time32("ms"): pa.time64("us"),
    pa.time64("ns"): pa.time64("us"),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}
_PLAIN: Final = frozenset(
    {
        pa.bool_(),
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.binary(),
        pa.date32(),
        pa.time64("us"),
    }
)
_DECIMAL_DIGITS: Final = 38  # as many as Spark's decimals have


def spark_form(schema: pa.Schema, where: str) -> pa.Schema:
    """Return the columns in Spark's types, all nullable; `where` names the stream in an error."""
    return pa.schema([pa.field(one.name, _spark_type(one.type, one.name, where)) for one in schema])


def struct_of(form: pa.Schema) -> StructType:
    """Return the Spark schema of columns that are in Spark form."""
    return from_arrow_schema(form)


def quoted(name: str) -> Column:
    """Return a column by its name, which may hold dots and backticks."""
    return sf.col(f"`{name.replace('`', '``')}`")


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows in the types of another schema, column by column in order, under that schema's names."""
    if batch.num_columns != len(schema):
        raise ValueError(f"{batch.num_columns} columns are no {len(schema)} columns")
    arrays = [_cast(column, one.type) for column, one in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def aligned(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows with the columns of another schema, found by name; one that the rows lack is null."""
    extra = [name for name in batch.schema.names if name not in schema.names]
    if extra:
        raise ValueError(f"has column {extra[0]!r}, which the rows before it had not")
    arrays = [
        _cast(batch.column(one.name), one.type)
        if one.name in batch.schema.names
        else pa.nulls(batch.num_rows, one.type)
        for one in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def table_in(table: pa.Table, form: pa.Schema) -> pa.Table:
    """Return a table in the types of another schema, column by column in order."""
    columns = [_cast(column, one.type) for column, one in zip(table.columns, form, strict=True)]
    return pa.Table.from_arrays(columns, schema=form)


def _cast(column: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    if column.type == kind:
        return column
    if loses_zone(column.type, kind):
        raise ValueError(f"a column {zone_lost(column.type)}")
    return column.cast(kind, safe=not _has_nanoseconds(column.type))


def _has_nanoseconds(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _has_nanoseconds(kind.value_type)
    if getattr(kind, "unit", None) == "ns":
        return True
    return any(_has_nanoseconds(kind.field(index).type) for index in range(kind.num_fields))


def _spark_type(kind: pa.DataType, name: str, where: str) -> pa.DataType:
    if kind in _PLAIN:
        return kind
    if kind in _WIDER:
        return _WIDER[kind]
    if pa.types.is_dictionary(kind):
        return _spark_type(kind.value_type, name, where)
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if pa.types.is_duration(kind):
        return pa.duration("us")
    if pa.types.is_decimal(kind) and kind.precision <= _DECIMAL_DIGITS and 0 <= kind.scale <= kind.precision:
        return pa.decimal128(kind.precision, kind.scale)
    if pa.types.is_map(kind):
        return pa.map_(_spark_type(kind.key_type, name, where), _spark_type(kind.item_type, name, where))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, _spark_type(one.type, name, where)) for one in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_spark_type(kind.value_type, name, where))
    if pa.types.is_null(kind):
        raise FlowError(
            f"column {name!r} of {where} is null in all of the first rows, so its type is unknown; declare schema="
        )
    raise FlowError(
        f"column {name!r} of {where} is a {kind}, which Spark has no type for; cast it, or run on Headwater"
    )
