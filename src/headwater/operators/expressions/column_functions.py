"""All functions that expressions have: what makes each."""

from collections.abc import Mapping
from math import pi
from typing import Final

from headwater.operators.expressions import cast_functions as casts
from headwater.operators.expressions import logic_functions as logic
from headwater.operators.expressions import number_functions as numbers
from headwater.operators.expressions import part_functions as parts
from headwater.operators.expressions import text_functions as texts
from headwater.operators.expressions import time_functions as times
from headwater.operators.expressions.fitting import Maker, called

CATALOGUE: Final[Mapping[str, Maker]] = {
    # operators
    **dict.fromkeys(("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"), logic.compared),
    "and": logic.connected,
    "or": logic.connected,
    "not": logic.negated,
    "is_null": called("is_null"),
    "is_valid": called("is_valid"),
    "isin": logic.is_in,
    "case": logic.chosen,
    "add": numbers.added,
    "subtract": numbers.subtracted,
    "multiply": called("multiply_checked"),
    "divide": numbers.divided,
    "remainder": numbers.remainder,
    "negate": called("negate_checked"),
    "cast": casts.cast,
    "field": parts.field,
    "item": parts.item,
    "coalesce": logic.first_valid,
    # numbers
    "abs": called("abs_checked"),
    "is_nan": numbers.is_nan,
    "round": numbers.rounded("half_towards_infinity"),
    "bround": numbers.rounded("half_to_even"),
    "floor": numbers.whole("floor"),
    "ceil": numbers.whole("ceil"),
    "pow": numbers.doubles("power"),
    "sqrt": numbers.doubles("sqrt"),
    "exp": numbers.doubles("exp"),
    "ln": numbers.logarithm("ln"),
    "log2": numbers.logarithm("log2"),
    "log10": numbers.logarithm("log10"),
    "log1p": numbers.logarithm("log1p"),
    **{name: numbers.doubles(name) for name in ("sin", "cos", "tan", "asin", "acos", "atan")},
    "atan2": numbers.doubles("atan2"),
    "degrees": numbers.scaled(180.0 / pi),
    "radians": numbers.scaled(pi / 180.0),
    "signum": numbers.doubles("sign"),
    "greatest": numbers.extreme("max_element_wise"),
    "least": numbers.extreme("min_element_wise"),
    # texts
    "upper": called("utf8_upper"),
    "lower": called("utf8_lower"),
    "reverse": called("utf8_reverse"),
    "length": called("utf8_length"),
    "trim": texts.trimmed("utf8_trim"),
    "ltrim": texts.trimmed("utf8_ltrim"),
    "rtrim": texts.trimmed("utf8_rtrim"),
    "lpad": texts.padded("utf8_lpad"),
    "rpad": texts.padded("utf8_rpad"),
    "repeat": texts.repeated,
    "substring": texts.substring,
    "instr": texts.place_of,
    "concat": texts.joined,
    "concat_ws": texts.joined_with,
    "contains": texts.matching("match_substring"),
    "startswith": texts.matching("starts_with"),
    "endswith": texts.matching("ends_with"),
    "like": texts.like,
    "rlike": texts.matching("match_substring_regex"),
    "replace": texts.replaced,
    "regexp_replace": texts.replaced_by_pattern,
    "split": texts.parted,
    "size": parts.size,
    # times
    "year": times.part("year"),
    "quarter": times.part("quarter"),
    "month": times.part("month"),
    "dayofmonth": times.part("day"),
    "dayofyear": times.part("day_of_year"),
    "dayofweek": times.day_of_week(count_from_zero=False, week_start=7),  # 1 is Sunday
    "weekday": times.day_of_week(count_from_zero=True, week_start=1),  # 0 is Monday
    "weekofyear": times.part("iso_week"),
    "hour": times.part("hour"),
    "minute": times.part("minute"),
    "second": times.part("second"),
    "date_trunc": times.truncated,
    "date_format": times.formatted,
    "to_timestamp": times.read,
    "date_add": times.days_later(1),
    "date_sub": times.days_later(-1),
    "datediff": times.days_between,
    "unix_seconds": times.since_1970(1),
    "unix_millis": times.since_1970(1_000),
    "unix_micros": times.since_1970(casts.MICROS),
    "timestamp_seconds": times.instant_of("s"),
    "timestamp_millis": times.instant_of("ms"),
    "timestamp_micros": times.instant_of("us"),
}
