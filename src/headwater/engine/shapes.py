"""Whether the streams that a union joins have columns of the same types, where nobody declares them.

The compiler refuses a union whose inputs are known to differ. Where only the rows can tell, whoever takes them from a
queue behind the union holds them against those that came before, and keeps the types with the queue. A type may become
wider, as within a stream without a schema: whole numbers to fractions, nulls to anything.
"""

from collections.abc import Iterable, Mapping

import msgspec
import pyarrow as pa

from headwater.dataflow.graph import UnionPlace
from headwater.operators.columns.input_columns import read_schema
from headwater.operators.processors.spark_types import article

_KEPT: msgspec.msgpack.Decoder[dict[int, bytes]] = msgspec.msgpack.Decoder(dict[int, bytes])


class Mixed(Exception):
    """A row has a column of another type than the rows before it, from another stream of the same union."""

    def __init__(self, union: UnionPlace, rows: pa.RecordBatch, before: pa.Field) -> None:
        """Say which union, and what to do."""
        self.union, self.rows = union, rows
        column, now = before.name, rows.schema.field(before.name).type
        super().__init__(
            f"column {column!r} is {article(now)} in this row, and was {article(before.type)} in rows of another "
            f"stream that union {union.name!r} joins; make them alike before it, as in "
            f'with_column("{column}", hw.col("{column}").cast("string"))'
        )


def checked_shapes(
    kept: bytes | None, rows: Iterable[tuple[int, pa.RecordBatch]], unions: Mapping[int, UnionPlace]
) -> bytes | None:
    """Return what is to be kept of the types of rows, None if that is what is kept already; raises Mixed."""
    before = {} if kept is None else {source: read_schema(one) for source, one in _KEPT.decode(kept).items()}
    after = dict(before)
    for source, batch in rows:
        union = unions.get(source)
        if union is not None:
            known = after.get(source)
            after[source] = batch.schema if known is None else _both(known, batch, union)
    if all(source in before and before[source].equals(one) for source, one in after.items()):
        return None
    return msgspec.msgpack.encode({source: one.serialize().to_pybytes() for source, one in after.items()})


def _both(before: pa.Schema, batch: pa.RecordBatch, union: UnionPlace) -> pa.Schema:
    """Return the columns that hold both what came before and this."""
    if before.equals(batch.schema):
        return before
    made = {field.name: field for field in before}
    for field in batch.schema:
        try:
            known = pa.schema([made.get(field.name, field)])
            made[field.name] = pa.unify_schemas([known, pa.schema([field])], promote_options="permissive").field(0)
        except pa.ArrowException:
            raise Mixed(union, batch, made[field.name]) from None
    return pa.schema(list(made.values()))
