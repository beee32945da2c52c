"""The types that constants have in expressions, and the one that holds the values of several: Spark's rules."""

import datetime as dt
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from headwater.model.quoting import quoted
from headwater.operators.functions import WrongResult

_INT: Final = range(-(1 << 31), 1 << 31)  # a whole number is an int if it fits, else a bigint
_LONG: Final = range(-(1 << 63), 1 << 63)


def constant_scalar(value: Any) -> pa.Scalar:
    """Return a Python value in the type that Spark gives it; a time with a zone is an instant."""
    match value:
        case pa.Scalar():
            return value
        case bool() | None:
            return pa.scalar(value)
        case int():
            return pa.scalar(value, _whole_type(value))
        case dt.datetime():
            zoned = value.tzinfo is not None
            return pa.scalar(value, pa.timestamp("us", "UTC" if zoned else None))
        case dt.timedelta():
            return pa.scalar(value, pa.duration("us"))
        case Decimal() if not value.is_finite():
            raise WrongResult(f"{value} is no decimal; write a float")
    return pa.scalar(value)


def _whole_type(value: int) -> pa.DataType:
    if value in _INT:
        return pa.int32()
    if value not in _LONG:
        raise WrongResult(f"{quoted(value)} does not fit into 64 bits; write a float or a Decimal")
    return pa.int64()


def common_type(kinds: Iterable[pa.DataType]) -> pa.DataType | None:
    """Return the type that holds the values of all of these, or None if none does."""
    found = [kind for kind in dict.fromkeys(kinds) if not pa.types.is_null(kind)]
    if len(found) <= 1:
        return found[0] if found else pa.null()
    try:
        schemas = [pa.schema([pa.field("value", kind)]) for kind in found]
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except pa.ArrowException:
        return None
