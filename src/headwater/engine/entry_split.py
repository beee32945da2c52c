"""Batches cut to what a queue takes at a time.

An entry of a queue is kept, sent to another node and taken as a whole, so its size has to have a limit, or one large
batch would be more than a message can carry and wait for ever. Whoever makes entries cuts batches here, by rows and in
their order; those who keep, send and take them need not know. A row that alone is too large is told from the others
before it comes to a queue: no instance that runs elsewhere could ever be sent it. Nor may a batch have many rows in
hardly any bytes, as of nulls: who is sent it has to believe what it says (`engine/measuring.py`).
"""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.measuring import ROWS_FREE, ROWS_MAX, ROWS_PER_BYTE, VALUES_FREE, VALUES_PER_BYTE

ENTRY_BYTES_MAX: Final = 1 << 20  # of several rows: what may be under way for one instance; 0.8 s of a 10 Mbit/s link
ROW_BYTES_MAX: Final = 12 << 20  # of one row: a message has 16 MiB, for its schema and the names on the way, too


def is_large(batch: pa.RecordBatch) -> bool:
    """Whether a batch has to be cut: the one question that is asked of every batch.

    What its buffers have takes 0.2 µs to tell, and 9 µs what of them is its own; the former is never less.
    """
    if batch.get_total_buffer_size() > ENTRY_BYTES_MAX and batch.nbytes > ENTRY_BYTES_MAX:
        return True
    rows = batch.num_rows
    return bool((rows > ROWS_FREE or rows * batch.num_columns > VALUES_FREE // 2) and _is_thin(batch))


def _is_thin(batch: pa.RecordBatch) -> bool:
    """Whether a batch has more rows or values than half of what a receiver takes in so many bytes."""
    rows, size = batch.num_rows, batch.nbytes
    values = rows * sum(_values_of(field.type) for field in batch.schema)
    return bool(
        rows > min(ROWS_MAX, ROWS_FREE + ROWS_PER_BYTE // 2 * size)
        or values > (VALUES_FREE + VALUES_PER_BYTE * size) // 2
    )


def _values_of(kind: pa.DataType) -> int:
    """Return how many values a row has in a column, itself among them; as if a list had one."""
    return 1 + sum(_values_of(kind.field(place).type) for place in range(kind.num_fields))


def cut(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Return a batch in pieces of which each is an entry; only one of a single row may be larger than others."""
    if batch.num_rows < 2 or not is_large(batch):
        return [batch]
    middle = batch.num_rows // 2
    return [*cut(_on_its_own(batch.slice(0, middle))), *cut(_on_its_own(batch.slice(middle)))]


def sieve(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[pa.RecordBatch]]:
    """Return the rows that a queue takes, and those that are too large for any, one by one."""
    if batch.nbytes <= ROW_BYTES_MAX:
        return batch, []
    pieces = cut(batch)
    giants = [piece for piece in pieces if piece.nbytes > ROW_BYTES_MAX]
    if not giants:
        return batch, []
    fitting = [piece for piece in pieces if piece.nbytes <= ROW_BYTES_MAX]
    return pa.concat_batches(fitting) if fitting else batch.slice(0, 0), giants


def _on_its_own(piece: pa.RecordBatch) -> pa.RecordBatch:
    """Return a piece of a batch without what only the rest of it refers to: a slice shares dictionaries and views."""
    if not any(_shares(field.type) for field in piece.schema):
        return piece
    return pa.RecordBatch.from_arrays([_without_rest(column) for column in piece.columns], schema=piece.schema)


def _shares(kind: pa.DataType) -> bool:
    return any(one(kind) for one in (pa.types.is_dictionary, pa.types.is_string_view, pa.types.is_binary_view))


def _without_rest(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_dictionary(kind):
        used = pc.unique(column.indices).drop_null()
        indices = pc.index_in(column.indices, value_set=used).cast(kind.index_type)
        return pa.DictionaryArray.from_arrays(indices, column.dictionary.take(used), ordered=kind.ordered)
    if pa.types.is_string_view(kind):
        return column.cast(pa.large_string()).cast(kind)
    if pa.types.is_binary_view(kind):
        return column.cast(pa.large_binary()).cast(kind)
    return column
