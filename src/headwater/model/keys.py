"""Keys of rows: their canonical bytes, and the group each falls into.

A key is the value of one column or of several. Its bytes are the same on every machine and after every restart, since
state is found by them. Keys are owned by group, not one by one: a fixed number of groups is spread over the instances
of an operator, so that ownership is a small table however many keys there are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

KEY_GROUPS: Final = 1024  # bounds the instances of one operator; 1,024 shares of 0.1 % balance well enough

_ENCODER: Final = msgspec.msgpack.Encoder(order="deterministic")
_DECODER: Final = msgspec.msgpack.Decoder()

Codes = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """The distinct keys of a batch in order of first appearance, and for every row the index of its key."""

    keys: list[Any]
    codes: Codes


def encode_key(key: Any) -> bytes:
    """Return the canonical bytes of a key: a scalar, or a tuple of scalars."""
    return _ENCODER.encode(key)


def decode_key(encoded: bytes) -> Any:
    """Return the key that has these bytes; a key of several columns comes back as a tuple."""
    key = _DECODER.decode(encoded)
    return tuple(key) if isinstance(key, list) else key


def group_of(encoded: bytes) -> int:
    """Return the group a key belongs to. CRC-32 spreads keys evenly and is the same everywhere."""
    return crc32(encoded) % KEY_GROUPS


def owner_of(group: int, instances: int) -> int:
    """Return which of so many instances owns a group: contiguous shares, as even as can be."""
    return group * instances // KEY_GROUPS


def keyed_rows(batch: pa.RecordBatch, columns: Sequence[str]) -> KeyedRows:
    """Find the distinct keys of a batch and where each row's key is among them."""
    encoded = [_dictionary(batch.column(name)) for name in columns]
    if len(encoded) == 1:
        values, codes = encoded[0]
        return KeyedRows(values, codes)
    combined = np.zeros(batch.num_rows, dtype=np.int64)
    for values, codes in encoded:
        combined = combined * max(1, len(values)) + codes
    _, first, inverse = np.unique(combined, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    keys = [tuple(values[codes[row]] for values, codes in encoded) for row in first[order]]
    return KeyedRows(keys, rank[inverse].astype(np.int32))


def _dictionary(column: pa.Array) -> tuple[list[Any], Codes]:
    """Return the distinct values of a column, nulls among them, and the index of each row's value."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    encoded = column.dictionary_encode(null_encoding="encode")
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
