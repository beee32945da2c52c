"""Keys of rows: their canonical bytes, and their groups.

A key is the value of one column or of several. Its bytes are the same on every machine and after every restart, since
state is stored under them. Values that are equal in SQL are one key: 1, 1.0 and the decimal 1.00, also -0.0 and 0.0,
all nulls, all NaN, and one instant in any time zone. Instances own groups, not single keys: a fixed number of groups is
spread over the instances of an operator, so that ownership is a small table however many keys there are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from types import NoneType
from typing import Any, Final
from zlib import crc32

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.model import scalars

KEY_GROUPS: Final = 1024  # bounds the instances of one operator; 1,024 shares of 0.1 % balance well enough

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(ext_hook=scalars.restore)
_AS_THEY_ARE: Final = frozenset({NoneType, bool, int, str, bytes})
_NAN: Final = float("nan")
_COMBINED_MAX: Final = 1 << 62
_GOLDEN: Final = 0x9E3779B1  # 2^32 divided by the golden ratio: spreads neighbours far apart

Codes = npt.NDArray[np.int32]

KNOWN_GROUPS_MAX: Final = 100_000  # of one type of key; some megabytes

FEW_ROWS: Final = 128  # to set up Arrow's dictionary encoding takes 30 us, which few rows do not repay
_PLAIN: Final = frozenset({pa.string(), pa.int64(), pa.int32()})  # types whose Python values are equal as keys are


class WrongKey(TypeError):
    """A value or a column that cannot be a key."""


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """The distinct keys of a batch in order of first appearance, and for every row the index of its key."""

    keys: list[Any]
    codes: Codes
    kinds: tuple[pa.DataType, ...]  # of the key's columns: True and 1 are equal in Python, and are not one key


def encode_key(key: Any) -> bytes:
    """Return the canonical bytes of a key: a scalar, or a tuple of scalars."""
    if type(key) is tuple:
        return _ENCODER.encode([_canonical(part) for part in key])
    return _ENCODER.encode(_canonical(key))


def _canonical(value: Any) -> Any:
    """Return the value to encode, the same for all values that are equal."""
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if kind is float:
        return _NAN if value != value else int(value) if _is_int64(value) else value
    if kind is Decimal and _is_int64(value):
        return int(value)
    if kind is datetime and value.tzinfo is not None:
        return scalars.extend(value.astimezone(UTC))
    if kind is Decimal:
        return scalars.extend(_shortest(value))
    if kind in scalars.KINDS:
        return scalars.extend(value)
    if isinstance(value, np.generic):
        return _canonical(value.item())
    raise WrongKey(f"a {kind.__name__} cannot be a key; use numbers, texts, bytes, booleans, dates or times")


def _shortest(value: Decimal) -> Decimal:
    """Return the number without trailing zeros; `normalize` would round more than 28 digits."""
    written = format(value, "f")
    return Decimal(written.rstrip("0").rstrip(".") if "." in written else written)


def _is_int64(value: float | Decimal) -> bool:
    return -(1 << 63) <= value < 1 << 63 and value == int(value)


def decode_key(encoded: bytes) -> Any:
    """Return the key with these bytes; a key of several columns is a tuple."""
    key = _DECODER.decode(encoded)
    return tuple(key) if isinstance(key, list) else key


def group_of(encoded: bytes) -> int:
    """Return the group of a key, the same everywhere.

    With CRC-32 alone, keys that differ in one byte, as numbers below 128 do, are in neighbouring groups, and so all
    with one instance. The multiplication spreads them.
    """
    return (crc32(encoded) * _GOLDEN & 0xFFFF_FFFF) >> 22


def owner_of(group: int, instances: int) -> int:
    """Return the instance that owns a group: contiguous ranges, as even as possible."""
    return group * instances // KEY_GROUPS


def groups_of(index: int, instances: int) -> range:
    """Return the groups of one instance."""
    return range(-(-index * KEY_GROUPS // instances), -(-(index + 1) * KEY_GROUPS // instances))


class KeyGroups:
    """A cache of the groups of keys of one type: to encode and hash a key takes ten times as long as to find it."""

    def __init__(self) -> None:
        self._known: dict[Any, int] = {}

    def of(self, keys: Sequence[Any]) -> list[int]:
        """Return the group of every key."""
        known = self._known
        if len(known) > KNOWN_GROUPS_MAX:
            known.clear()
        try:
            return [known[key] for key in keys]
        except KeyError:
            return [known[key] if key in known else self._learn(key) for key in keys]

    def _learn(self, key: Any) -> int:
        group = self._known[key] = group_of(encode_key(key))
        return group


def can_be_key(kind: pa.DataType) -> bool:
    """Whether the values of a column of this type can be keys."""
    return not (pa.types.is_nested(kind) or pa.types.is_interval(kind) or isinstance(kind, pa.BaseExtensionType))


def keyed_rows(batch: pa.RecordBatch, columns: Sequence[str]) -> KeyedRows:
    """Find the distinct keys of a batch and where each row's key is among them."""
    encoded = [_dictionary(name, batch.column(name)) for name in columns]
    kinds = tuple(batch.schema.field(name).type for name in columns)
    if not encoded:  # all rows have the empty key
        return KeyedRows([()] * min(batch.num_rows, 1), np.zeros(batch.num_rows, dtype=np.int32), kinds)
    if len(encoded) == 1:
        values, codes = encoded[0]
        return KeyedRows(values, codes, kinds)
    combined = np.zeros(batch.num_rows, dtype=np.int64)
    count = 1
    for values, codes in encoded:
        if count * len(values) > _COMBINED_MAX:  # renumber, before the product overflows
            found, combined = np.unique(combined, return_inverse=True)
            count = len(found)
        combined = combined * max(1, len(values)) + codes
        count *= max(1, len(values))
    _, first, inverse = np.unique(combined, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    firsts = first[order]
    keys = list(zip(*(_picked(values, codes[firsts]) for values, codes in encoded), strict=True))
    return KeyedRows(keys, rank[inverse].astype(np.int32), kinds)


def _picked(values: list[Any], codes: Codes) -> list[Any]:
    return [values[code] for code in codes.tolist()]


def _dictionary(name: str, column: pa.Array) -> tuple[list[Any], Codes]:
    """Return the distinct values of a column, nulls among them, and the index of each row's value."""
    if len(column) <= FEW_ROWS and column.type in _PLAIN:
        index: dict[Any, int] = {}
        few = [index.setdefault(value, len(index)) for value in column.to_pylist()]
        return list(index), np.array(few, dtype=np.int32)
    encoded = _comparable(name, column).dictionary_encode(null_encoding="encode")
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)


def _comparable(name: str, column: pa.Array) -> pa.Array:
    """Return the column in a type whose values are equal exactly if they are the same key."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _comparable(name, column.cast(kind.value_type))
    if not can_be_key(kind):
        raise WrongKey(f"column {name!r} is a {kind} and cannot be a key; use numbers, texts, bytes, dates or times")
    if pa.types.is_floating(kind):
        return pc.add(column.cast(pa.float64()), 0.0)  # turns -0.0 into 0.0
    if getattr(kind, "unit", None) == "ns":  # Python's dates and times end at microseconds
        try:
            return column.cast(_IN_MICROSECONDS[type(kind)](kind))
        except pa.ArrowInvalid:
            raise WrongKey(f"column {name!r} has nanoseconds and cannot be a key; round it to microseconds") from None
    return column


_IN_MICROSECONDS: Final = {
    pa.TimestampType: lambda kind: pa.timestamp("us", kind.tz),
    pa.Time64Type: lambda kind: pa.time64("us"),
    pa.DurationType: lambda kind: pa.duration("us"),
}
