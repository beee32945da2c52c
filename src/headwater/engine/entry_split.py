"""Cuts batches into entries of limited size.

An entry is stored, sent and taken as a whole, so its size has to have a limit, or one large batch could be longer than
a message and wait for ever. Batches are cut here, by rows and in order, before they become entries; queues and channels
need not know. A row that alone is too large is separated before it comes to a queue: it could never be sent to another
node. Nor may a batch have many rows in hardly any bytes, as of nulls, since receivers refuse it
(`engine/measuring.py`).
"""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.measuring import ROWS_FREE, ROWS_MAX, ROWS_PER_BYTE, VALUES_FREE, VALUES_PER_BYTE

ENTRY_BYTES_MAX: Final = 1 << 20  # of several rows: what may be under way for one instance; 0.8 s of a 10 Mbit/s link
ROW_BYTES_MAX: Final = 12 << 20  # of one row: a message has 16 MiB, for its schema and the names on the way, too


def is_large(batch: pa.RecordBatch) -> bool:
    """Whether a batch has to be cut; called for every batch.

    The size of its buffers takes 0.2 µs to get, its own part of them 9 µs; the former is never less.
    """
    if batch.get_total_buffer_size() > ENTRY_BYTES_MAX and batch.nbytes > ENTRY_BYTES_MAX:
        return True
    rows = batch.num_rows
    return bool((rows > ROWS_FREE or rows * batch.num_columns > VALUES_FREE // 2) and _is_thin(batch))


def _is_thin(batch: pa.RecordBatch) -> bool:
    """Whether a batch has more than half of the rows or values that a receiver accepts in so many bytes."""
    rows, size = batch.num_rows, batch.nbytes
    values = rows * sum(_values_of(field.type) for field in batch.schema)
    return bool(
        rows > min(ROWS_MAX, ROWS_FREE + ROWS_PER_BYTE // 2 * size)
        or values > (VALUES_FREE + VALUES_PER_BYTE * size) // 2
    )


def _values_of(kind: pa.DataType) -> int:
    """Return how many values a row has in a column, itself included, with one item per list."""
    return 1 + sum(_values_of(kind.field(place).type) for place in range(kind.num_fields))


def cut(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Cut a batch into pieces that can be entries; only a piece of one row may exceed the size."""
    if batch.num_rows < 2 or not is_large(batch):
        return [batch]
    middle = batch.num_rows // 2
    return [*cut(_on_its_own(batch.slice(0, middle))), *cut(_on_its_own(batch.slice(middle)))]


def sieve(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[pa.RecordBatch]]:
    """Separate the rows that fit into a queue from those that are too large, which come one by one."""
    if batch.nbytes <= ROW_BYTES_MAX:
        return batch, []
    pieces = cut(batch)
    giants = [piece for piece in pieces if piece.nbytes > ROW_BYTES_MAX]
    if not giants:
        return batch, []
    fitting = [piece for piece in pieces if piece.nbytes <= ROW_BYTES_MAX]
    return pa.concat_batches(fitting) if fitting else batch.slice(0, 0), giants


def _on_its_own(piece: pa.RecordBatch) -> pa.RecordBatch:
    """Return a slice with its own dictionaries and views: it would share those of the whole batch."""
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
