"""The size of rows that share values, if each had its own copy.

A dictionary, a run, a view or a union refers to a value with a few bytes, any number of times. Arrow has the value
once; Python objects, Spark or a file made of the rows have it for every reference.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.errors import StoreError

EXACT_FROM: Final = 16 << 20  # an upper bound below this is accurate enough
_VIEW_NUMBERS: Final = 4  # of 32 bits, that refer to one text

_SHARING: Final = (
    pa.types.is_dictionary,
    pa.types.is_run_end_encoded,
    pa.types.is_union,
    pa.types.is_string_view,
    pa.types.is_binary_view,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)


def folds(kind: pa.DataType) -> bool:
    """Whether rows of a type can share values."""
    if isinstance(kind, pa.BaseExtensionType):
        return folds(kind.storage_type)
    return any(shares(kind) for shares in _SHARING) or any(
        folds(kind.field(place).type) for place in range(kind.num_fields)
    )


def unfolded_bytes(column: pa.Array) -> int:
    """Return an upper bound of a column's bytes when rows share none."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return unfolded_bytes(column.storage)
    if pa.types.is_dictionary(kind):
        return _named_bytes(column.dictionary, column.indices)
    if pa.types.is_run_end_encoded(kind):
        return len(column) * _largest_bytes(column.values)
    if pa.types.is_union(kind):
        return len(column) * max((_largest_bytes(column.field(place)) for place in range(kind.num_fields)), default=0)
    if _is_view(kind):
        return int(_view_lengths(column).sum(dtype=np.int64))
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return int(pc.sum(column.sizes).as_py() or 0) * _largest_bytes(column.values)
    return sum(map(unfolded_bytes, _inside(column))) if folds(kind) else int(column.nbytes)


def _inside(column: pa.Array) -> list[pa.Array]:
    kind = column.type
    if pa.types.is_struct(kind):
        return [column.field(place) for place in range(kind.num_fields)]
    return [column.keys, column.items] if pa.types.is_map(kind) else [column.values]


def _named_bytes(values: pa.Array, names: pa.Array) -> int:
    """Return the bytes of the values that are referred to; exact for texts, if the upper bound is large."""
    most = len(names) * _largest_bytes(values)
    if most < EXACT_FROM or not _is_text(values.type):
        return most
    return int(pc.sum(pc.take(pc.binary_length(values), names)).as_py() or 0)


def _largest_bytes(values: pa.Array) -> int:
    """Return an upper bound for the largest of some values."""
    kind = values.type
    if len(values) == 0:
        return 0
    if _is_text(kind):
        return int(pc.max(pc.binary_length(values)).as_py() or 0)
    if _is_view(kind):
        return int(_view_lengths(values).max())
    return -(-kind.bit_width // 8) if pa.types.is_primitive(kind) else unfolded_bytes(values)


def _is_text(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)
    return any(test(kind) for test in tests)


def _is_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def _view_lengths(column: pa.Array) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Return the lengths of texts, which are the first of the four numbers that name each; 0 for nulls.

    Arrow validates neither what a null slot holds nor that the slots end with the buffer.
    """
    if len(column) == 0:  # there may be no buffer
        return np.zeros(0, np.int32)
    slots = np.frombuffer(column.buffers()[1], np.int32, _VIEW_NUMBERS * (column.offset + len(column)))
    lengths = np.where(column.is_valid().to_numpy(zero_copy_only=False), slots[::_VIEW_NUMBERS][column.offset :], 0)
    if lengths.min() < 0:
        raise StoreError(f"a text is said to have {lengths.min()} bytes")
    return lengths
