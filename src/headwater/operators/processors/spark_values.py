"""Values as PySpark's stateful processors put them and get them back.

A state variable has a schema, and what is put is brought to it: numpy and pandas scalars to Python's, a dict or a named
tuple to a struct, an instant to one without a zone (in UTC, as all of this engine's times are). What comes back are
tuples, with rows for structs inside. A value that Spark would silently keep as null, such as a text for a number, is
kept if it fits the type without loss (5 as 5.0), else refused: nothing put is lost.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from headwater.model.quoting import quoted
from headwater.operators.processors.spark_names import row_maker
from headwater.operators.state_values import WrongState, decode_value, encode_value

Convert = Callable[[Any], Any]

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - times without a zone are what PySpark's state gives back
_MICROSECOND: Final = timedelta(microseconds=1)
_WIDE: Final = Context(prec=76)  # twice what a decimal can have, so that rounding never fails
_EXACT_FLOAT: Final = 1 << 53  # whole numbers up to this are floats without loss


class RowCodec:
    """The bytes of tuples of one schema."""

    def __init__(self, schema: pa.Schema, owner: str) -> None:
        """Work out how each field is written and read; a refusal names the owner."""
        self.schema = schema
        self.owner = owner
        self._write = [_checked(field) for field in schema]
        self._read = [_reader(field.type) for field in schema]
        self._as_it_is = not any(self._read)
        self._row = row_maker(schema.names)

    def encode(self, values: Iterable[Any]) -> bytes:
        """Return the bytes of a tuple; like PySpark's, anything that can be iterated will do."""
        given = tuple(values)
        if len(given) != len(self._write):
            fields = ", ".join(self.schema.names)
            raise WrongState(
                f"{self.owner} has {len(self._write)} fields ({fields}), but was given {len(given)} values"
            )
        try:
            return encode_value([write(value) for write, value in zip(self._write, given, strict=True)])
        except WrongState as refusal:
            raise WrongState(f"{self.owner}: {refusal}") from None

    def decode(self, encoded: bytes) -> tuple[Any, ...]:
        """Return the tuple that has these bytes."""
        kept = decode_value(encoded)
        if len(kept) != len(self._read):
            raise WrongState(
                f"{self.owner} was kept with {len(kept)} fields, but is now declared with {len(self._read)}; "
                "give the new one another name, and forget the old one by deleteIfExists"
            )
        if self._as_it_is:
            return tuple(kept)
        return tuple(
            value if read is None or value is None else read(value)
            for read, value in zip(self._read, kept, strict=True)
        )

    def decode_row(self, encoded: bytes) -> Any:
        """Return the tuple with names to its fields."""
        return self._row(*self.decode(encoded))


class _Misfit(Exception):
    """A value that is not of its type."""


def _checked(field: pa.Field) -> Convert:
    """Return how a field's value is written; a refusal names the field, and nulls are refused if it may have none."""
    write = _writer(field.type)

    def checked(value: Any) -> Any:
        if value is None:
            if field.nullable:
                return None
            raise WrongState(f"field {field.name!r} is declared without nulls, but was given None")
        try:
            return write(value)
        except (_Misfit, InvalidOperation, OverflowError, TypeError, ValueError):
            shown = quoted(value)
            raise WrongState(
                f"field {field.name!r} is declared as {field.type}, but was given {shown} ({type(value).__name__}); "
                "convert it first"
            ) from None

    return checked


def _plain(value: Any) -> Any:
    """Return a numpy scalar as Python's."""
    return value.item() if isinstance(value, np.generic) else value


def _writer(kind: pa.DataType) -> Convert:
    """Return how a value of a type that is not null is brought to what is kept of it."""
    for is_kind, writer in _KINDS:
        if is_kind(kind):
            return writer(kind)
    raise WrongState(f"a state variable cannot have a field of type {kind}")


def _struct(kind: pa.StructType) -> Convert:
    names = [field.name for field in kind]
    writes = [_checked(field) for field in kind]

    def write(value: Any) -> list[Any]:
        parts = [value.get(name) for name in names] if isinstance(value, Mapping) else value
        if not isinstance(parts, list | tuple) or len(parts) != len(names):
            raise _Misfit
        return [one(part) for one, part in zip(writes, parts, strict=True)]

    return write


def _map(kind: pa.MapType) -> Convert:
    key, item = _checked(kind.key_field), _checked(kind.item_field)

    def write(value: Any) -> list[list[Any]]:
        if not isinstance(value, Mapping):
            raise _Misfit
        return [[key(name), item(one)] for name, one in value.items()]

    return write


def _array(kind: pa.ListType) -> Convert:
    element = _checked(kind.value_field)

    def write(value: Any) -> list[Any]:
        if not isinstance(value, list | tuple | np.ndarray):
            raise _Misfit
        return [element(one) for one in value]

    return write


def _integer(kind: pa.DataType) -> Convert:
    limit = 1 << (kind.bit_width - 1)

    def write(value: Any) -> int | None:
        number = _plain(value)
        if type(number) is float:
            if number != number:
                return None  # pandas' null in a column of whole numbers, which Spark keeps as null too
            if not number.is_integer():
                raise _Misfit
            number = int(number)
        if type(number) is not int or not -limit <= number < limit:
            raise _Misfit
        return number

    return write


def _floating(kind: pa.DataType) -> Convert:
    def write(value: Any) -> float:
        number = _plain(value)
        if type(number) is int and abs(number) <= _EXACT_FLOAT:
            number = float(number)
        if type(number) is not float:
            raise _Misfit
        return number

    if kind == pa.float64():
        return write
    with_32_bits = np.float32  # Spark rounds as it writes

    def write_short(value: Any) -> float:
        with np.errstate(over="ignore"):
            return float(with_32_bits(write(value)))

    return write_short


def _boolean(_: pa.DataType) -> Convert:
    def write(value: Any) -> bool:
        truth = _plain(value)
        if type(truth) is not bool:
            raise _Misfit
        return truth

    return write


def _decimal(kind: pa.Decimal128Type) -> Convert:
    step = Decimal(1).scaleb(-kind.scale)
    limit = Decimal(10) ** (kind.precision - kind.scale)

    def write(value: Any) -> Decimal:
        number = _plain(value)
        if type(number) is int:
            number = Decimal(number)
        if not isinstance(number, Decimal) or not number.is_finite():
            raise _Misfit
        rounded = number.quantize(step, rounding=ROUND_HALF_UP, context=_WIDE)  # as Spark does
        if abs(rounded) >= limit:
            raise _Misfit
        return rounded

    return write


def _text(_: pa.DataType) -> Convert:
    def write(value: Any) -> str:
        text = _plain(value)
        if isinstance(text, str):
            return str(text)
        if type(text) is bool:
            return "true" if text else "false"
        if type(text) is float:
            return _float_as_java_writes_it(text)
        if type(text) is not int:
            raise _Misfit
        return str(text)

    return write


def _float_as_java_writes_it(number: float) -> str:
    """Return the shortest digits, with an exponent below a thousandth and from ten millions on."""
    if not math.isfinite(number):
        return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(exponent, int)
    shown = "".join(map(str, digits))
    return f"{'-' if sign else ''}{shown[0]}.{shown[1:] or '0'}E{exponent + len(shown) - 1}"


def _binary(_: pa.DataType) -> Convert:
    def write(value: Any) -> bytes:
        if isinstance(value, str):
            return value.encode()
        if not isinstance(value, bytes | bytearray):
            raise _Misfit
        return bytes(value)

    return write


def _date(_: pa.DataType) -> Convert:
    def write(value: Any) -> date:
        if not isinstance(value, date) or value != value:
            raise _Misfit
        return date(value.year, value.month, value.day)

    return write


def _instant(kind: pa.TimestampType) -> Convert:
    """An instant is kept as microseconds; a time without a zone counts as UTC's."""

    def write(value: Any) -> int:
        if not isinstance(value, datetime) or value != value:
            raise _Misfit
        moment = value.to_pydatetime(warn=False) if isinstance(value, pd.Timestamp) else value
        if moment.tzinfo is not None and kind.tz is not None:
            moment = moment.astimezone(UTC)
        return (moment.replace(tzinfo=None) - _EPOCH) // _MICROSECOND

    return write


def _duration(_: pa.DataType) -> Convert:
    def write(value: Any) -> int:
        if not isinstance(value, timedelta) or value != value:
            raise _Misfit
        span_us = int(value // _MICROSECOND)
        if abs(span_us) >= 1 << 63:
            raise _Misfit
        return span_us

    return write


def _clock_time(_: pa.DataType) -> Convert:
    def write(value: Any) -> time:
        if not isinstance(value, time):
            raise _Misfit
        return value.replace(tzinfo=None)

    return write


def _nothing(_: pa.DataType) -> Convert:
    def write(value: Any) -> None:
        raise _Misfit

    return write


_KINDS: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], Convert]], ...]] = (
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _floating),
    (pa.types.is_boolean, _boolean),
    (pa.types.is_string, _text),
    (pa.types.is_large_string, _text),
    (pa.types.is_timestamp, _instant),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_date, _date),
    (pa.types.is_binary, _binary),
    (pa.types.is_large_binary, _binary),
    (pa.types.is_duration, _duration),
    (pa.types.is_time, _clock_time),
    (pa.types.is_null, _nothing),
    (pa.types.is_struct, _struct),
    (pa.types.is_map, _map),
    (pa.types.is_list, _array),
    (pa.types.is_large_list, _array),
)


def _reader(kind: pa.DataType) -> Convert | None:
    """Return how a kept value that is not null is given back; None if as it is."""
    if pa.types.is_timestamp(kind):
        return lambda kept: _EPOCH + timedelta(microseconds=kept)
    if pa.types.is_duration(kind):
        return lambda kept: timedelta(microseconds=kept)
    if pa.types.is_struct(kind):
        make, reads = row_maker([field.name for field in kind]), [_reader(field.type) for field in kind]
        return lambda kept: make(*map(_read, reads, kept))
    if pa.types.is_map(kind):
        of_key, of_item = _reader(kind.key_type), _reader(kind.item_type)
        return lambda kept: {_read(of_key, key): _read(of_item, item) for key, item in kept}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = _reader(kind.value_type)
        return None if element is None else lambda kept: [_read(element, one) for one in kept]
    return None


def _read(read: Convert | None, kept: Any) -> Any:
    return kept if read is None or kept is None else read(kept)
