"""Spark's ways of writing a schema, read as Arrow's.

A processor names its columns as PySpark does: by a `StructType`, which tells its own JSON, or by a line of DDL such as
`id string, total decimal(10,2), tags array<string>`. Both are read here without PySpark. What Arrow has no type for
(variants, calendar intervals) is refused.
"""

import re
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from headwater.model.errors import FlowError

DECIMAL: Final = pa.decimal128(10, 0)  # what Spark means by a decimal without precision
TIMESTAMP: Final = pa.timestamp("us", "UTC")  # an instant; `timestamp_ntz` is what a calendar and a clock show

_ATOMS: Final[dict[str, pa.DataType]] = {
    **dict.fromkeys(("boolean",), pa.bool_()),
    **dict.fromkeys(("byte", "tinyint"), pa.int8()),
    **dict.fromkeys(("short", "smallint"), pa.int16()),
    **dict.fromkeys(("int", "integer"), pa.int32()),
    **dict.fromkeys(("long", "bigint"), pa.int64()),
    **dict.fromkeys(("float", "real"), pa.float32()),
    **dict.fromkeys(("double",), pa.float64()),
    **dict.fromkeys(("string", "char", "varchar", "character"), pa.string()),
    **dict.fromkeys(("binary",), pa.binary()),
    **dict.fromkeys(("date",), pa.date32()),
    **dict.fromkeys(("timestamp", "timestamp_ltz"), TIMESTAMP),
    **dict.fromkeys(("timestamp_ntz",), pa.timestamp("us")),
    **dict.fromkeys(("time",), pa.time64("us")),
    **dict.fromkeys(("void", "null"), pa.null()),
    **dict.fromkeys(("decimal", "dec", "numeric"), DECIMAL),
}
_DAY_TIME: Final = frozenset({"day", "hour", "minute", "second"})
_TOKEN: Final = re.compile(r"\s*(`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|[\w$.\-]+|\S)")
_NAME: Final = re.compile(r"[\w$.\-]+|`.*`", re.DOTALL)


def arrow_schema(given: Any) -> pa.Schema:
    """Return the Arrow schema of what a flow was given: a line of DDL, a `StructType`, or an Arrow schema itself."""
    if isinstance(given, pa.Schema):
        return given
    if isinstance(given, str):
        return pa.schema(_Ddl(given).columns())
    written = getattr(given, "jsonValue", None)
    if not callable(written):
        raise FlowError(
            f"a {type(given).__name__} is not a schema; give a StructType, a line of DDL such as "
            "'id string, total double', or a pyarrow schema"
        )
    kind = _from_json(written())
    if not pa.types.is_struct(kind):
        raise FlowError(f"a {type(given).__name__} is not a schema; columns need a StructType")
    return pa.schema(list(kind))


def _from_json(written: Any) -> pa.DataType:
    """Return the type that Spark's JSON describes: a name, or an object for what holds other types."""
    if isinstance(written, str):
        return _Ddl(written).only_type()
    match written:
        case {"type": "struct", "fields": fields}:
            return pa.struct([_field(one["name"], _from_json(one["type"]), one["nullable"]) for one in fields])
        case {"type": "array", "elementType": element, "containsNull": nulls}:
            return pa.list_(_field("element", _from_json(element), nulls))
        case {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": nulls}:
            return pa.map_(_from_json(key), _field("value", _from_json(value), nulls))
        case {"type": "udt", "sqlType": kept}:
            return _from_json(kept)
    raise FlowError(f"{written!r} is not a type of Spark's that this engine knows")


def _field(name: str, kind: pa.DataType, nullable: bool) -> pa.Field:
    return pa.field(name, kind, nullable or pa.types.is_null(kind))  # what is always null cannot be without nulls


class _Ddl:
    """One line of DDL and how far it has been read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = _TOKEN.findall(text)
        self._at = 0

    def columns(self) -> list[pa.Field]:
        """Read the whole line: columns, or a struct of them."""
        if self._next_is("struct") and self._tokens[1:2] == ["<"]:
            return list(self.only_type())
        columns = self._fields(until="")
        if not columns:
            raise self._unreadable("it names no column")
        return columns

    def only_type(self) -> pa.DataType:
        """Read the whole line as one type."""
        kind = self._type()
        if self._peek():
            raise self._unreadable(f"{self._peek()!r} is not expected behind the type")
        return kind

    def _fields(self, until: str) -> list[pa.Field]:
        fields: list[pa.Field] = []
        while self._peek() != until:
            if fields:
                self._take(",")
            fields.append(self._field())
        return fields

    def _field(self) -> pa.Field:
        name = self._take()
        if not _NAME.fullmatch(name):
            raise self._unreadable(f"{name!r} is not the name of a column")
        if self._peek() == ":":
            self._take()
        kind = self._type()
        nullable = True
        while self._peek() and self._peek() not in (",", ">"):
            nullable = self._option() and nullable
        return _field(name[1:-1].replace("``", "`") if name.startswith("`") else name, kind, nullable)

    def _option(self) -> bool:
        """Read what may stand behind a type, and return whether nulls are allowed."""
        match self._take().lower():
            case "not":
                self._take("null")
                return False
            case "comment":
                self._take()
                return True
            case "collate":
                self._take()
                return True
            case other:
                raise self._unreadable(f"{other!r} is not expected behind a type")

    def _type(self) -> pa.DataType:
        name = self._take().lower()
        compound = _COMPOUND.get(name)
        if compound is not None:
            return compound(self)
        if name not in _ATOMS:
            raise self._unreadable(f"{name!r} is not a type that this engine knows")
        numbers = self._numbers()
        if _ATOMS[name] == DECIMAL and numbers:
            return self._decimal(*numbers)
        if name == "string" and self._next_is("collate"):
            self._option()
        return _ATOMS[name]

    def _decimal(self, precision: int, scale: int = 0, *more: int) -> pa.DataType:
        if more or not 1 <= precision <= 38 or not 0 <= scale <= precision:
            raise self._unreadable(f"a decimal of {precision} digits with {scale} behind the point does not exist")
        return pa.decimal128(precision, scale)

    def _numbers(self) -> list[int]:
        """Read the numbers in brackets behind a type, if there are any."""
        if self._peek() != "(":
            return []
        self._take()
        numbers: list[int] = []
        while self._peek() != ")":
            if numbers:
                self._take(",")
            number = self._take()
            if not number.isdecimal():
                raise self._unreadable(f"{number!r} is not a number")
            numbers.append(int(number))
        self._take(")")
        return numbers

    def _array(self) -> pa.DataType:
        self._take("<")
        element = self._type()
        self._take(">")
        return pa.list_(pa.field("element", element))

    def _map(self) -> pa.DataType:
        self._take("<")
        key = self._type()
        self._take(",")
        value = self._type()
        self._take(">")
        return pa.map_(key, value)

    def _struct(self) -> pa.DataType:
        self._take("<")
        fields = self._fields(until=">")
        self._take(">")
        return pa.struct(fields)

    def _interval(self) -> pa.DataType:
        units = [self._take().lower()]
        if self._next_is("to"):
            self._take()
            units.append(self._take().lower())
        if not _DAY_TIME.issuperset(units):
            raise self._unreadable("an interval of months or years has no fixed length; use one of days to seconds")
        return pa.duration("us")

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next_is(self, word: str) -> bool:
        return self._peek().lower() == word

    def _take(self, wanted: str | None = None) -> str:
        found = self._peek()
        if not found or (wanted is not None and found.lower() != wanted):
            expected = repr(wanted) if wanted else "a name or a type"
            raise self._unreadable(f"{expected} is expected where it has {repr(found) if found else 'nothing more'}")
        self._at += 1
        return found

    def _unreadable(self, why: str) -> FlowError:
        return FlowError(f"the schema {self._text!r} cannot be read: {why}")


_COMPOUND: Final[dict[str, Callable[[_Ddl], pa.DataType]]] = {
    "array": _Ddl._array,
    "map": _Ddl._map,
    "struct": _Ddl._struct,
    "interval": _Ddl._interval,
}
