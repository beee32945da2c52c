"""Reading rows that were kept under one schema as rows of another, by Avro's rules as Spark applies them.

Fields are found by name: one that is new is null, one that is gone is left out, their order does not matter. Numbers
may become wider (int, long, float, double, in this order), a text may become binary and the other way round. All else
is refused before a row is read, with the field that stands against it. As in Spark, dates count as ints, instants,
times of day and spans as longs. Two rules are ours: a whole number never becomes a narrower one, which Avro cannot
tell apart below 32 bits, and a decimal may get more digits before the point, which loses nothing.
"""

from collections.abc import Callable, Sequence
from datetime import date, time
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from headwater.model.quoting import quoted
from headwater.operators.processors.spark_types import spark_type

Change = Callable[[Any], Any]  # of a value that is not null, as it is kept

_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_RANKS: Final = {"int": 0, "long": 1, "float": 2, "double": 3}


class Unreadable(Exception):
    """Rows of one schema cannot be read as rows of another: says which field stands against it."""


def row_change(older: pa.Schema, newer: pa.Schema) -> Change:
    """Return how a row kept under the older schema is read as one of the newer; raises Unreadable."""
    return _record(list(older), list(newer), "")


def value_change(older: pa.DataType, newer: pa.DataType, at: str = "it") -> Change | None:
    """Return how a kept value becomes one of another type, None if it stays as it is; raises Unreadable."""
    if pa.types.is_null(older) or older.equals(newer):
        return None
    for is_kind, change in _COMPOUNDS:
        if is_kind(older) and is_kind(newer):
            return change(older, newer, at)
    from_number, to_number = _number(older), _number(newer)
    if from_number is not None and to_number is not None:
        return _number_change(from_number, to_number, _misfit(older, newer, at))
    if _is_text(older) and _is_bytes(newer):
        return str.encode
    if _is_bytes(older) and _is_text(newer):
        return lambda kept: kept.decode(errors="replace")  # as Java reads what is no UTF-8
    if any(is_kind(older) and is_kind(newer) for is_kind in (_is_text, _is_bytes, pa.types.is_boolean)):
        return None
    raise _misfit(older, newer, at)


def _misfit(older: pa.DataType, newer: pa.DataType, at: str) -> Unreadable:
    return Unreadable(f"{at} was {spark_type(older)} and would be {spark_type(newer)}")


def _record(older: Sequence[pa.Field], newer: Sequence[pa.Field], at: str) -> Change:
    places = _places(older, at)
    _places(newer, at)
    parts = [(places.get(field.name), _field_change(older, places.get(field.name), field, at)) for field in newer]
    size = len(older)

    def change(kept: Any) -> list[Any]:
        if len(kept) != size:
            raise ValueError(f"{len(kept)} fields are kept, not {size}")
        found = [(None if place is None else kept[place], one) for place, one in parts]
        return [value if one is None or value is None else one(value) for value, one in found]

    return change


def _places(fields: Sequence[pa.Field], at: str) -> dict[str, int]:
    places = {field.name: place for place, field in enumerate(fields)}
    if len(places) < len(fields):
        raise Unreadable(f"two fields have one name{f' in {at}' if at else ''}, and fields are found by name")
    return places


def _field_change(older: Sequence[pa.Field], place: int | None, newer: pa.Field, at: str) -> Change | None:
    called = f"field {quoted(newer.name)}{f' of {at}' if at else ''}"
    before = None if place is None else older[place]
    if not newer.nullable and (before is None or before.nullable):
        raise Unreadable(f"{called} may not be null, and what is kept may have none")
    return None if before is None else value_change(before.type, newer.type, called)


def _struct(older: pa.StructType, newer: pa.StructType, at: str) -> Change:
    return _record(list(older), list(newer), at)


def _array(older: pa.ListType, newer: pa.ListType, at: str) -> Change | None:
    change = value_change(older.value_type, newer.value_type, f"an element of {at}")
    return None if change is None else lambda kept: [None if one is None else change(one) for one in kept]


def _map(older: pa.MapType, newer: pa.MapType, at: str) -> Change | None:
    if spark_type(older.key_type) != spark_type(newer.key_type):
        raise _misfit(older.key_type, newer.key_type, f"a key of {at}")
    change = value_change(older.item_type, newer.item_type, f"a value of {at}")
    return None if change is None else lambda kept: [[key, None if one is None else change(one)] for key, one in kept]


def _decimal(older: pa.DataType, newer: pa.DataType, at: str) -> None:
    if older.scale != newer.scale or older.precision > newer.precision:
        raise _misfit(older, newer, at)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


_COMPOUNDS: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any, Any, str], Change | None]], ...]] = (
    (pa.types.is_struct, _struct),
    (pa.types.is_map, _map),
    (_is_list, _array),
    (pa.types.is_decimal, _decimal),
)


class _Number(NamedTuple):
    """A type whose values Avro writes as numbers."""

    form: str  # Avro's: int, long, float or double
    bits: int
    number: Change | None = None  # of a kept value
    value: Change | None = None  # to be kept, of a number


def _number(kind: pa.DataType) -> _Number | None:
    """Return which number stands for a value of this type; None if none does."""
    if pa.types.is_integer(kind):
        return _Number("int" if kind.bit_width <= 32 else "long", kind.bit_width)
    if pa.types.is_float64(kind):
        return _Number("double", 64, None, float)
    if pa.types.is_floating(kind):
        return _Number("float", 32, None, _short_float)
    if pa.types.is_date(kind):
        return _Number("int", 32, _day, _date)
    if pa.types.is_time(kind):
        return _Number("long", 64, _microsecond, _time)
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return _Number("long", 64)  # as both are kept
    return None


def _number_change(older: _Number, newer: _Number, misfit: Unreadable) -> Change | None:
    is_narrower = older.form == newer.form and older.bits > newer.bits
    if is_narrower or _RANKS[older.form] > _RANKS[newer.form]:
        raise misfit
    number, value = older.number, newer.value
    if (older.number, older.value) == (newer.number, newer.value):
        return None
    if number is None or value is None:
        return number or value
    return lambda kept: value(number(kept))


def _short_float(number: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(number))


def _day(kept: date) -> int:
    return kept.toordinal() - _EPOCH_DAY


def _date(number: int) -> date:
    return date.fromordinal(number + _EPOCH_DAY)


def _microsecond(kept: time) -> int:
    return ((kept.hour * 60 + kept.minute) * 60 + kept.second) * 1_000_000 + kept.microsecond


def _time(number: int) -> time:
    seconds, microsecond = divmod(number, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return time(hour, minute, second, microsecond)
