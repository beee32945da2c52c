"""Rows as bytes that can be cut apart by key and put together again without looking at them.

Arrow's own format costs ten microseconds to write or read a batch however few rows it has, too much where a turn writes
the one or two rows of each of a thousand keys. Here every row is a record of fixed width, and what varies in length
lies row by row in a heap beside. Records and heaps of many keys are simply put one behind the other, and decoded as if
they had always been one batch.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.model.batch import decode_batch, encode_batch, needs_whole
from headwater.operators.columns.segments import Ints

Records = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]


class PackedRows(NamedTuple):
    """Rows as records, their heap, and the bytes that each row has there."""

    records: Records
    heap: bytes
    heap_sizes: Ints


class Packing:
    """How rows of one schema are packed.

    A record begins with the marks: bytes that mean nothing here, 0 at first, under names of their own. It may be longer
    than it need be, so that rows of different schemas can lie among one another.
    """

    def __init__(self, schema: pa.Schema, marks: Sequence[str] = (), bytes_min: int = 0) -> None:
        """Lay out the record: column i, unless it is a structure or of varying length, is field `str(i)`."""
        self.schema = schema
        self._kinds = [kind for field in schema for kind in _leaf_kinds(field.type)]
        self._varying = [index for index, kind in enumerate(self._kinds) if _varies(kind)]
        self._plain = all(kind == field.type for kind, field in zip(self._kinds, schema, strict=False))
        self._widths = [_fixed_width(kind) or 0 for kind in self._kinds]  # of values that stand in the record
        self.record = _record_of(self._kinds, marks, bytes_min)
        self._full = np.array(
            [_ones(len(self._kinds) - 8 * byte) for byte in range(_valid_bytes(self._kinds))], np.uint8
        )

    def pack(self, batch: pa.RecordBatch) -> PackedRows:
        """Pack a batch of this schema."""
        leaves = batch.columns if self._plain else [leaf for column in batch.columns for leaf in _leaves(column)]
        records = np.zeros(batch.num_rows, dtype=self.record)
        records["valid"] = self._full
        for index, leaf in enumerate(leaves):
            if leaf.null_count:
                missing = leaf.is_null().to_numpy(zero_copy_only=False)
                records["valid"][missing, index >> 3] &= ~np.uint8(1 << (index & 7))
            if self._widths[index]:
                records[f"{index}"] = _fixed_values(leaf, self._widths[index])
        heap, sizes = self._fill_heap([leaves[index] for index in self._varying], records)
        return PackedRows(records, heap, sizes)

    def pack_some(self, batch: pa.RecordBatch, rows: Ints) -> PackedRows:
        """Pack some rows of a batch that has these columns among others."""
        kept = batch.select(self.schema.names)
        if self.has_heap:
            return self.pack(kept.take(pa.array(rows)))
        packed = self.pack(kept)  # records are moved faster than columns
        return PackedRows(packed.records.take(rows), packed.heap, packed.heap_sizes.take(rows))

    def unpack(self, found: Records, heap: bytes) -> pa.RecordBatch:
        """Return the rows of these records."""
        missing = _Missing(found["valid"], self._full)
        varying = self._read_heap(found, heap)
        leaves = (self._restored(index, found, varying, missing) for index in range(len(self._kinds)))
        columns = list(leaves) if self._plain else [_assembled(field.type, leaves, len(found)) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _restored(self, index: int, records: Records, varying: dict[int, pa.Array], missing: "_Missing") -> pa.Array:
        kind, rows = self._kinds[index], len(records)
        if kind == pa.null():
            return pa.nulls(rows)
        valid, nulls = missing.of(index)
        if index in varying:
            return _from_binary(kind, varying[index], valid, nulls)
        values = np.ascontiguousarray(records[f"{index}"]) if self._widths[index] else np.empty(0, np.uint8)
        if kind == pa.bool_():
            values = np.packbits(values, bitorder="little")
        return pa.Array.from_buffers(kind, rows, [valid, pa.py_buffer(values)], nulls)

    @property
    def has_heap(self) -> bool:
        """Whether any column varies in length."""
        return bool(self._varying)

    def heap_sizes(self, records: Records) -> Ints:
        """Return how many bytes each row has in the heap."""
        sizes = np.zeros(len(records), np.int64)
        for index in self._varying:
            sizes += records[f"{index}"]
        return sizes

    def _fill_heap(self, columns: list[pa.Array], records: Records) -> tuple[bytes, Ints]:
        rows = len(records)
        if not columns:
            return b"", np.zeros(rows, np.int64)
        values = [_as_binary(column) for column in columns]
        joined = values[0]
        if len(values) > 1:
            order = np.arange(rows * len(values)).reshape(len(values), rows).T.reshape(-1)
            joined = pa.concat_arrays(values).take(pa.array(order))
        offsets = np.frombuffer(joined.buffers()[1], np.int32)[joined.offset : joined.offset + len(joined) + 1]
        lengths = np.diff(offsets).reshape(rows, len(values))
        for place, index in enumerate(self._varying):
            records[f"{index}"] = lengths[:, place]
        return heap_of(joined), lengths.sum(axis=1, dtype=np.int64)

    def _read_heap(self, records: Records, heap: bytes) -> dict[int, pa.Array]:
        """Return the values of varying length by column."""
        count = len(self._varying)
        if not count:
            return {}
        lengths = np.stack([records[f"{index}"] for index in self._varying], axis=1).reshape(-1)
        joined = heap_by_row(heap, lengths)
        if count == 1:
            return {self._varying[0]: joined}
        return {
            index: joined.take(pa.array(np.arange(place, len(lengths), count)))
            for place, index in enumerate(self._varying)
        }


def heap_by_row(heap: bytes, sizes: Ints) -> pa.Array:
    """Return a heap as one binary value for each row, so that it can be cut and put together by row.

    State may come from another node, and Arrow would read on behind the end of the heap.
    """
    if int(sizes.sum(dtype=np.int64)) > len(heap):
        raise ValueError(f"rows are kept with {len(heap):,} bytes of what varies in length, and name more")
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), len(sizes), [None, pa.py_buffer(offsets), pa.py_buffer(heap)])


def heap_of(rows: pa.Array) -> bytes:
    """Return the heap that is made of these values."""
    _, offsets, data = rows.buffers()
    if data is None:
        return b""
    ends = np.frombuffer(offsets, np.int32)[rows.offset : rows.offset + len(rows) + 1]
    return data.slice(ends[0], ends[-1] - ends[0]).to_pybytes()  # type: ignore[no-any-return]


class _Missing:
    """Which values of a column are null."""

    def __init__(self, valid: Bytes, full: Bytes) -> None:
        self._valid = valid
        self._none = bool((valid == full).all())

    def of(self, index: int) -> tuple[pa.Buffer | None, int]:
        """Return a column's validity bitmap and its number of nulls."""
        if self._none:
            return None, 0
        valid = (self._valid[:, index >> 3] >> (index & 7)) & 1
        return pa.py_buffer(np.packbits(valid, bitorder="little")), len(valid) - int(valid.sum())


_TEXTS: Final = frozenset({pa.string(), pa.binary()})
_LARGE_TEXTS: Final = frozenset({pa.large_string(), pa.large_binary()})


def _fixed_width(kind: pa.DataType) -> int | None:
    """Return the bytes that a value takes; None if values differ in that, or are not plain bytes at all."""
    if kind == pa.bool_():
        return 1
    if pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType):
        return None
    try:
        return int(kind.bit_width) // 8
    except ValueError:
        return None


def _varies(kind: pa.DataType) -> bool:
    return kind != pa.null() and _fixed_width(kind) is None


def _leaf_kinds(kind: pa.DataType) -> list[pa.DataType]:
    """Return the types of the plain columns that a column is made of: a structure is its fields and its validity."""
    if pa.types.is_struct(kind):
        return [pa.bool_(), *(leaf for field in kind for leaf in _leaf_kinds(field.type))]
    return _leaf_kinds(kind.value_type) if pa.types.is_dictionary(kind) else [kind]


def _leaves(column: pa.Array) -> Iterator[pa.Array]:
    kind = column.type
    if pa.types.is_struct(kind):
        yield column.is_valid()
        for place in range(kind.num_fields):
            yield from _leaves(column.field(place))
    elif pa.types.is_dictionary(kind):
        yield from _leaves(column.dictionary_decode())
    else:
        yield column


def _assembled(kind: pa.DataType, leaves: Iterator[pa.Array], rows: int) -> pa.Array:
    if pa.types.is_struct(kind):
        valid = next(leaves)
        fields = [_assembled(field.type, leaves, rows) for field in kind]
        missing = pa.compute.invert(valid)
        if not fields:
            return pa.array([None if gone else {} for gone in missing.to_pylist()], kind)
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=missing)
    if pa.types.is_dictionary(kind):
        found = _assembled(kind.value_type, leaves, rows).dictionary_encode()
        indices = found.indices.cast(kind.index_type)
        return pa.DictionaryArray.from_arrays(indices, found.dictionary, ordered=kind.ordered)
    return next(leaves)


def _record_of(kinds: list[pa.DataType], marks: Sequence[str], bytes_min: int) -> np.dtype[Any]:
    """Return the record's layout: the marks, the validity bits, then the values, wide ones first."""
    widths = {
        str(index): width
        for index, kind in enumerate(kinds)
        if (width := 4 if _varies(kind) else _fixed_width(kind) or 0)
    }
    names = sorted(widths, key=lambda name: (-widths[name], int(name)))
    valid = _valid_bytes(kinds)
    sizes = [*(1 for _ in marks), valid, *(widths[name] for name in names)]
    ends = np.cumsum(sizes).tolist()
    return np.dtype(
        {
            "names": [*marks, "valid", *names],
            "formats": [*("u1" for _ in marks), (np.uint8, (valid,)), *(_format_of(widths[name]) for name in names)],
            "offsets": [0, *ends[:-1]],
            "itemsize": max(bytes_min, ends[-1]),
        }
    )


def _format_of(width: int) -> str:
    return _FORMATS.get(width, f"V{width}")


_FORMATS: Final = {1: "u1", 2: "u2", 4: "u4", 8: "u8"}


def _valid_bytes(kinds: list[pa.DataType]) -> int:
    return max(1, -(-len(kinds) // 8))


def _ones(columns: int) -> int:
    return (1 << min(8, max(0, columns))) - 1


def _fixed_values(leaf: pa.Array, width: int) -> npt.NDArray[Any]:
    column = leaf.cast(pa.uint8()) if leaf.type == pa.bool_() else leaf
    data = column.buffers()[1]
    kind = np.dtype(_format_of(width))
    if data is None:
        return np.zeros(len(column), kind)
    return np.frombuffer(data, kind, len(column), column.offset * width)


def _as_binary(column: pa.Array) -> pa.Array:
    """Return the values of a column as bytes; lists and the like each as a batch of one."""
    if column.type in _TEXTS:
        return column.view(pa.binary())
    if column.type in _LARGE_TEXTS:
        return column.cast(pa.binary())
    whole = needs_whole(pa.schema([("value", column.type)]))
    alone = (pa.RecordBatch.from_arrays([column.slice(row, 1)], ["value"]) for row in range(len(column)))
    return pa.array([encode_batch(batch, whole=whole) for batch in alone], pa.binary())


def _from_binary(kind: pa.DataType, values: pa.Array, valid: pa.Buffer | None, nulls: int) -> pa.Array:
    _, offsets, data = values.buffers()
    if kind in _TEXTS:
        return pa.Array.from_buffers(kind, len(values), [valid, offsets, data], nulls)
    if kind in _LARGE_TEXTS:
        return pa.Array.from_buffers(pa.binary(), len(values), [valid, offsets, data], nulls).cast(kind)
    schema = pa.schema([("value", kind)])
    whole = needs_whole(schema)
    found = [decode_batch(value.as_buffer().to_pybytes(), schema, whole=whole).column(0) for value in values]
    return pa.concat_arrays(found) if found else pa.nulls(0, kind)
