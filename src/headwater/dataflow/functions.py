"""Windows, aggregates and functions of columns as a flow writes them, by the names that PySpark gives them.

    from headwater import functions as F

    readings.with_column("name", F.upper("name"))
    readings.key_by("sensor").window(F.window("at", "10 minutes", "1 minute")).agg(F.avg("celsius").alias("mean"))

Everything here makes plain data; a mistake is found where it is written.
"""

from collections.abc import Sequence
from datetime import timedelta
from enum import Enum
from inspect import isfunction
from typing import Any, Final, NoReturn

from headwater.dataflow import near_names
from headwater.dataflow.arguments import column_name
from headwater.dataflow.calling import answered
from headwater.model.errors import ConfigError, FlowError
from headwater.model.quoting import quoted
from headwater.model.time import Duration, duration_us
from headwater.operators.expressions.scalar_functions import (
    abs,  # noqa: A004 - PySpark's name
    acos,
    asin,
    atan,
    atan2,
    bround,
    ceil,
    coalesce,
    concat,
    concat_ws,
    contains,
    cos,
    date_add,
    date_format,
    date_sub,
    date_trunc,
    datediff,
    dayofmonth,
    dayofweek,
    dayofyear,
    degrees,
    endswith,
    exp,
    floor,
    greatest,
    hour,
    instr,
    isnan,
    isnotnull,
    isnull,
    least,
    length,
    log,
    log1p,
    log2,
    log10,
    lower,
    lpad,
    ltrim,
    minute,
    month,
    nvl,
    pow,  # noqa: A004 - PySpark's name
    quarter,
    radians,
    regexp_replace,
    repeat,
    replace,
    reverse,
    round,  # noqa: A004 - PySpark's name
    rpad,
    rtrim,
    second,
    signum,
    sin,
    size,
    split,
    sqrt,
    startswith,
    substring,
    tan,
    timestamp_micros,
    timestamp_millis,
    timestamp_seconds,
    to_date,
    to_timestamp,
    trim,
    unix_micros,
    unix_millis,
    unix_seconds,
    upper,
    weekday,
    weekofyear,
    year,
)
from headwater.operators.expressions.sql_text import expr
from headwater.operators.expressions.trees import Column, col, lit, when
from headwater.operators.windows import window_specs as specs
from headwater.operators.windows.sketches import ACCURACY, RSD, RSD_MAX

__all__ = [
    "PROCESSING_TIME",
    "abs",
    "acos",
    "approx_count_distinct",
    "approx_percentile",
    "asin",
    "atan",
    "atan2",
    "avg",
    "bround",
    "ceil",
    "coalesce",
    "col",
    "collect_list",
    "collect_set",
    "concat",
    "concat_ws",
    "contains",
    "cos",
    "count",
    "count_distinct",
    "count_window",
    "date_add",
    "date_format",
    "date_sub",
    "date_trunc",
    "datediff",
    "dayofmonth",
    "dayofweek",
    "dayofyear",
    "degrees",
    "endswith",
    "exp",
    "expr",
    "first",
    "floor",
    "greatest",
    "hour",
    "instr",
    "isnan",
    "isnotnull",
    "isnull",
    "last",
    "least",
    "length",
    "lit",
    "log",
    "log1p",
    "log2",
    "log10",
    "lower",
    "lpad",
    "ltrim",
    "max",
    "mean",
    "min",
    "minute",
    "month",
    "nvl",
    "percentile_approx",
    "pow",
    "quarter",
    "radians",
    "regexp_replace",
    "repeat",
    "replace",
    "reverse",
    "round",
    "rpad",
    "rtrim",
    "second",
    "session_window",
    "signum",
    "sin",
    "size",
    "split",
    "sqrt",
    "startswith",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "substring",
    "sum",
    "tan",
    "timestamp_micros",
    "timestamp_millis",
    "timestamp_seconds",
    "to_date",
    "to_timestamp",
    "trim",
    "unix_micros",
    "unix_millis",
    "unix_seconds",
    "upper",
    "var_pop",
    "var_samp",
    "variance",
    "weekday",
    "weekofyear",
    "when",
    "window",
    "year",
]


class Clock(Enum):
    """What stands in the place of a column of event time."""

    PROCESSING_TIME = "processing time"


PROCESSING_TIME: Final = Clock.PROCESSING_TIME  # windows by the clock: a row is in the window in which it arrives

Time = str | Column | Clock
ColumnLike = str | Column
Span = str | timedelta


def window(time: Time, size: Span, slide: Span | None = None, start: Span | None = None) -> specs.TimeWindow:
    """Windows of a fixed size: tumbling, or sliding if one begins every `slide`; `start` shifts where they begin."""
    size_us = _span("the size of a window", size)
    slide_us = size_us if slide is None else _span("the slide of a window", slide)
    return specs.TimeWindow(_time(time), size_us, slide_us, 0 if start is None else _shift(start))


def session_window(time: Time, gap: Span) -> specs.SessionWindow:
    """Windows that end when a key has had no row for as long as the gap."""
    return specs.SessionWindow(_time(time), _span("the gap of a session window", gap))


def count_window(size: int, slide: int | None = None) -> specs.CountWindow:
    """Windows of the last `size` rows of a key: tumbling, or after every `slide` rows."""
    return specs.CountWindow(_rows("size", size), _rows("slide", size if slide is None else slide))


def count(column: ColumnLike | int = "*") -> specs.Aggregate:
    """How many rows, or in how many of them the column is not null."""
    if isinstance(column, int) or (isinstance(column, str) and column == "*"):
        return specs.Aggregate("count", None, "count")
    return _aggregate("count", column)


def sum(column: ColumnLike) -> specs.Aggregate:  # noqa: A001 - PySpark's name
    """The sum of numbers; whole numbers that exceed 64 bits stop the flow."""
    return _aggregate("sum", column)


def min(column: ColumnLike) -> specs.Aggregate:  # noqa: A001 - PySpark's name
    """The smallest value."""
    return _aggregate("min", column)


def max(column: ColumnLike) -> specs.Aggregate:  # noqa: A001 - PySpark's name
    """The largest value; NaN is larger than any number."""
    return _aggregate("max", column)


def avg(column: ColumnLike) -> specs.Aggregate:
    """The mean of numbers."""
    return _aggregate("avg", column)


def mean(column: ColumnLike) -> specs.Aggregate:
    """The mean of numbers, which is called `avg` as in PySpark."""
    return avg(column)


def var_samp(column: ColumnLike) -> specs.Aggregate:
    """The unbiased variance of numbers; null for a single one."""
    return _aggregate("var_samp", column)


def variance(column: ColumnLike) -> specs.Aggregate:
    """The unbiased variance of numbers: `var_samp`."""
    return var_samp(column).alias(f"variance({column_name('variance', column)})")


def var_pop(column: ColumnLike) -> specs.Aggregate:
    """The variance of numbers that are all there is."""
    return _aggregate("var_pop", column)


def stddev_samp(column: ColumnLike) -> specs.Aggregate:
    """The unbiased standard deviation of numbers; null for a single one."""
    return _aggregate("stddev_samp", column)


def stddev(column: ColumnLike) -> specs.Aggregate:
    """The unbiased standard deviation of numbers: `stddev_samp`."""
    return stddev_samp(column).alias(f"stddev({column_name('stddev', column)})")


def stddev_pop(column: ColumnLike) -> specs.Aggregate:
    """The standard deviation of numbers that are all there is."""
    return _aggregate("stddev_pop", column)


def first(column: ColumnLike, ignorenulls: bool = False) -> specs.Aggregate:
    """The value of the row that arrived first; with `ignorenulls`, of the first row that has one."""
    return _aggregate("first", column, ignorenulls=bool(ignorenulls))


def last(column: ColumnLike, ignorenulls: bool = False) -> specs.Aggregate:
    """The value of the row that arrived last; with `ignorenulls`, of the last row that has one."""
    return _aggregate("last", column, ignorenulls=bool(ignorenulls))


def count_distinct(column: ColumnLike) -> specs.Aggregate:
    """How many different values but null, exactly: each is remembered until its window is over."""
    return _aggregate("count_distinct", column)


def approx_count_distinct(column: ColumnLike, rsd: float | None = None) -> specs.Aggregate:
    """How many different values, by HyperLogLog; `rsd` is the relative standard deviation that is allowed."""
    allowed = RSD if rsd is None else rsd
    if not _is_number(allowed) or not 0 < allowed <= RSD_MAX:
        raise FlowError(f"rsd={rsd!r} is no deviation for approx_count_distinct; it is above 0 and at most {RSD_MAX}")
    return _aggregate("approx_count_distinct", column, rsd=float(allowed))


def approx_percentile(
    column: ColumnLike,
    percentage: float | Sequence[float],
    accuracy: int = ACCURACY,
    *,
    function: str = "approx_percentile",
) -> specs.Aggregate:
    """The value below which such a part of the values lies, or a list of values for a list of parts.

    Its rank is off by at most one part in `accuracy`.
    """
    parts = tuple(percentage) if isinstance(percentage, list | tuple) else (percentage,)
    if not parts or not all(_is_number(part) and 0 <= part <= 1 for part in parts):
        raise FlowError(f"percentage={percentage!r} is none; {function} takes a number from 0 to 1, or a list of them")
    if type(accuracy) is not int or accuracy <= 0:
        raise FlowError(f"accuracy={accuracy!r} is none; {function} takes a whole number above zero")
    numbers = tuple(float(part) for part in parts)
    wanted: Any = numbers if isinstance(percentage, list | tuple) else numbers[0]
    written = f"array({', '.join(map(str, numbers))})" if isinstance(wanted, tuple) else wanted
    made = _aggregate("approx_percentile", column, percentage=wanted, accuracy=accuracy)
    return made.alias(f"{function}({made.column}, {written}, {accuracy})")


def percentile_approx(
    column: ColumnLike, percentage: float | Sequence[float], accuracy: int = ACCURACY
) -> specs.Aggregate:
    """The same as `approx_percentile`."""
    return approx_percentile(column, percentage, accuracy, function="percentile_approx")


def collect_list(column: ColumnLike) -> specs.Aggregate:
    """All values but nulls, in order of arrival."""
    return _aggregate("collect_list", column)


def collect_set(column: ColumnLike) -> specs.Aggregate:
    """All different values but null, in order of their first arrival."""
    return _aggregate("collect_set", column)


def _aggregate(function: str, given: Any, **options: Any) -> specs.Aggregate:
    if isinstance(given, str) and given == "*":
        raise FlowError(f"{function} takes one column, not '*'; only count counts whole rows")
    column = column_name(function, given)
    return specs.Aggregate(function, column, f"{function}({column})", tuple(options.items()))


def _time(time: Any) -> str | None:
    if time is PROCESSING_TIME:
        return None
    if isinstance(time, Column):
        return column_name("window", time)
    if not isinstance(time, str) or not time:
        raise FlowError(
            f'a window takes the name of a column of time, as in F.window("ts", "1 minute"), or PROCESSING_TIME, '
            f"not {quoted(time)}"
        )
    return time


def _span(what: str, given: Span) -> Duration:
    try:
        span = duration_us(given)
    except ConfigError as wrong:
        raise FlowError(f"{what} is wrong: {wrong}") from None
    if span <= 0:
        raise FlowError(f"{what} must be above zero, not {given!r}")
    return span


def _shift(given: Span) -> int:
    """Return how far windows are shifted, which may be backwards."""
    if isinstance(given, str) and given.strip().startswith("-"):
        return -_shift(given.strip()[1:])
    try:
        return duration_us(given)
    except ConfigError as wrong:
        raise FlowError(f"the start of a window is wrong: {wrong}") from None


def _rows(what: str, given: Any) -> int:
    if type(given) is not int or given <= 0:
        raise FlowError(f"the {what} of a count window is a whole number of rows above zero, not {given!r}")
    return given


def _is_number(given: Any) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)


for _name in __all__:  # a call that does not fit is answered, wherever the function is written
    if isfunction(globals()[_name]):
        globals()[_name] = answered(globals()[_name])


def __getattr__(name: str) -> NoReturn:
    near_names.refuse("headwater.functions", name, near_names.FUNCTIONS, __all__)


def __dir__() -> list[str]:
    return list(__all__)
