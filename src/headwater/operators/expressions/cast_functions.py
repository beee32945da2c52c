"""Casts with Spark's meaning: what has no value in the other type is an error of its row.

Between times and numbers, numbers are seconds since 1970. A text without a zone is in UTC, where a zone is wanted.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.operators.expressions.fitting import Fitted, Values, computed
from headwater.operators.expressions.trees import Call

MICROS: Final = 1_000_000
INSTANT: Final = pa.timestamp("us", "UTC")
_NAIVE: Final = pa.timestamp("us")
_ZONED: Final = r"\d.*(Z|[+-]\d\d(:?\d\d)?)$"  # behind the date, whose own dashes are not a zone's
_DAY: Final = 10  # characters of a date


def cast(node: Call, given: Sequence[Fitted]) -> Fitted:
    """Bring a value to another type."""
    (kind,) = node.options
    return computed(node, lambda values: values if values.type == kind else _cast(values, kind), given)


def _cast(values: Values, kind: pa.DataType) -> Values:
    before = values.type
    if _is_text(before):
        return _from_text(values, kind)
    if pa.types.is_timestamp(before) and _is_number(kind):
        return _seconds(values, kind)
    if _is_number(before) and pa.types.is_timestamp(kind):
        return _instant(values).cast(kind)
    if pa.types.is_timestamp(before) and pa.types.is_timestamp(kind) and (before.tz is None) != (kind.tz is None):
        return _other_zone(values, kind)
    if pa.types.is_floating(before) and pa.types.is_boolean(kind):
        return pc.not_equal(values, 0.0)
    if pa.types.is_floating(before) and pa.types.is_integer(kind):
        return pc.trunc(values).cast(kind)  # which refuses NaN and what is too large
    return pc.cast(values, options=_options(kind))


def _options(kind: pa.DataType) -> pc.CastOptions:
    """Return how to cast: what is finer than the other type may be lost, what is larger may not."""
    return pc.CastOptions(kind, allow_decimal_truncate=True, allow_time_truncate=True)


def _from_text(values: Values, kind: pa.DataType) -> Values:
    if _is_text(kind) or pa.types.is_binary(kind):
        return values.cast(kind)
    trimmed = pc.utf8_trim_whitespace(values)
    if pa.types.is_timestamp(kind):
        return _instants_in(trimmed).cast(kind) if kind.tz is not None else _clock_in(trimmed).cast(kind)
    if pa.types.is_date(kind):
        return pc.utf8_slice_codeunits(trimmed, 0, _DAY).cast(kind)
    return pc.cast(trimmed, options=_options(kind))


def _instants_in(texts: Values) -> Values:
    """Return the instants that texts tell; where they tell no zone, it is UTC."""
    is_zoned = pc.match_substring_regex(pc.utf8_slice_codeunits(texts, _DAY, None), _ZONED)
    is_day = pc.less_equal(pc.utf8_length(texts), _DAY)
    whole = pc.if_else(is_day, pc.binary_join_element_wise(texts, "00:00:00", " "), texts)
    return pc.if_else(is_zoned, whole, pc.binary_join_element_wise(whole, "Z", "")).cast(INSTANT)


def _clock_in(texts: Values) -> Values:
    """Return what texts tell of a calendar and a clock."""
    return texts.cast(_NAIVE)


def _other_zone(values: Values, kind: pa.TimestampType) -> Values:
    """Return what a calendar and a clock show as an instant, or an instant as they show it in its zone."""
    if kind.tz is not None:
        return pc.assume_timezone(values, "UTC").cast(kind)
    return pc.local_timestamp(values).cast(kind)


def _seconds(values: Values, kind: pa.DataType) -> Values:
    micros = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
    if pa.types.is_integer(kind):
        return pc.floor(pc.divide(micros.cast(pa.float64()), float(MICROS))).cast(pa.int64()).cast(kind)
    return pc.divide(micros.cast(pa.float64()), float(MICROS)).cast(kind)


def _instant(values: Values) -> Values:
    """Return the instants so many seconds after 1970."""
    if pa.types.is_integer(values.type):
        return pc.multiply_checked(values.cast(pa.int64()), MICROS).cast(INSTANT)
    micros = pc.round(pc.multiply(values.cast(pa.float64()), float(MICROS)))
    return micros.cast(pa.int64()).cast(INSTANT)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
