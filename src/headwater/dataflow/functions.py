"""Windows and aggregates as a flow writes them, by the names that PySpark gives them.

    from headwater import functions as F

    readings.key_by("sensor").window(F.window("at", "10 minutes", "1 minute")).agg(F.avg("celsius").alias("mean"))

Everything here makes plain data; a mistake is found where it is written.
"""

from collections.abc import Sequence
from datetime import timedelta
from enum import Enum
from typing import Any, Final

from headwater.model.errors import ConfigError, FlowError
from headwater.model.time import Duration, duration_us
from headwater.operators.windows.sketches import ACCURACY, RSD, RSD_MAX
from headwater.operators.windows.window_specs import Aggregate, CountWindow, SessionWindow, TimeWindow

__all__ = [
    "PROCESSING_TIME",
    "approx_count_distinct",
    "approx_percentile",
    "avg",
    "collect_list",
    "collect_set",
    "count",
    "count_window",
    "first",
    "last",
    "max",
    "mean",
    "min",
    "percentile_approx",
    "session_window",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "sum",
    "var_pop",
    "var_samp",
    "variance",
    "window",
]


class Clock(Enum):
    """What stands in the place of a column of event time."""

    PROCESSING_TIME = "processing time"


PROCESSING_TIME: Final = Clock.PROCESSING_TIME  # windows by the clock: a row is in the window in which it arrives

Time = str | Clock
Span = str | timedelta


def window(time: Time, size: Span, slide: Span | None = None, start: Span | None = None) -> TimeWindow:
    """Windows of a fixed size: tumbling, or sliding if one begins every `slide`; `start` shifts where they begin."""
    size_us = _span("the size of a window", size)
    slide_us = size_us if slide is None else _span("the slide of a window", slide)
    return TimeWindow(_time(time), size_us, slide_us, 0 if start is None else _shift(start))


def session_window(time: Time, gap: Span) -> SessionWindow:
    """Windows that end when a key has had no row for as long as the gap."""
    return SessionWindow(_time(time), _span("the gap of a session window", gap))


def count_window(size: int, slide: int | None = None) -> CountWindow:
    """Windows of the last `size` rows of a key: tumbling, or after every `slide` rows."""
    return CountWindow(_rows("size", size), _rows("slide", size if slide is None else slide))


def count(column: str = "*") -> Aggregate:
    """How many rows, or in how many of them the column is not null."""
    return Aggregate("count", None, "count") if column == "*" else _aggregate("count", column)


def sum(column: str) -> Aggregate:  # noqa: A001 - PySpark's name
    """The sum of numbers; whole numbers that exceed 64 bits stop the flow."""
    return _aggregate("sum", column)


def min(column: str) -> Aggregate:  # noqa: A001 - PySpark's name
    """The smallest value."""
    return _aggregate("min", column)


def max(column: str) -> Aggregate:  # noqa: A001 - PySpark's name
    """The largest value; NaN is larger than any number."""
    return _aggregate("max", column)


def avg(column: str) -> Aggregate:
    """The mean of numbers."""
    return _aggregate("avg", column)


def mean(column: str) -> Aggregate:
    """The mean of numbers, which is called `avg` as in PySpark."""
    return avg(column)


def var_samp(column: str) -> Aggregate:
    """The unbiased variance of numbers; null for a single one."""
    return _aggregate("var_samp", column)


def variance(column: str) -> Aggregate:
    """The unbiased variance of numbers: `var_samp`."""
    return var_samp(column).alias(f"variance({column})")


def var_pop(column: str) -> Aggregate:
    """The variance of numbers that are all there is."""
    return _aggregate("var_pop", column)


def stddev_samp(column: str) -> Aggregate:
    """The unbiased standard deviation of numbers; null for a single one."""
    return _aggregate("stddev_samp", column)


def stddev(column: str) -> Aggregate:
    """The unbiased standard deviation of numbers: `stddev_samp`."""
    return stddev_samp(column).alias(f"stddev({column})")


def stddev_pop(column: str) -> Aggregate:
    """The standard deviation of numbers that are all there is."""
    return _aggregate("stddev_pop", column)


def first(column: str, ignorenulls: bool = False) -> Aggregate:
    """The value of the row that arrived first; with `ignorenulls`, of the first row that has one."""
    return _aggregate("first", column, ignorenulls=bool(ignorenulls))


def last(column: str, ignorenulls: bool = False) -> Aggregate:
    """The value of the row that arrived last; with `ignorenulls`, of the last row that has one."""
    return _aggregate("last", column, ignorenulls=bool(ignorenulls))


def approx_count_distinct(column: str, rsd: float | None = None) -> Aggregate:
    """How many different values, by HyperLogLog; `rsd` is the relative standard deviation that is allowed."""
    allowed = RSD if rsd is None else rsd
    if not _is_number(allowed) or not 0 < allowed <= RSD_MAX:
        raise FlowError(f"rsd={rsd!r} is no deviation for approx_count_distinct; it is above 0 and at most {RSD_MAX}")
    return _aggregate("approx_count_distinct", column, rsd=float(allowed))


def approx_percentile(
    column: str, percentage: float | Sequence[float], accuracy: int = ACCURACY, *, function: str = "approx_percentile"
) -> Aggregate:
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
    return made.alias(f"{function}({column}, {written}, {accuracy})")


def percentile_approx(column: str, percentage: float | Sequence[float], accuracy: int = ACCURACY) -> Aggregate:
    """The same as `approx_percentile`."""
    return approx_percentile(column, percentage, accuracy, function="percentile_approx")


def collect_list(column: str) -> Aggregate:
    """All values but nulls, in order of arrival."""
    return _aggregate("collect_list", column)


def collect_set(column: str) -> Aggregate:
    """All different values but null, in order of their first arrival."""
    return _aggregate("collect_set", column)


def _aggregate(function: str, column: Any, **options: Any) -> Aggregate:
    if not isinstance(column, str) or not column:
        raise FlowError(f"{function} takes the name of a column, not {column!r}")
    if column == "*":
        raise FlowError(f"{function} takes one column, not '*'; only count counts whole rows")
    return Aggregate(function, column, f"{function}({column})", tuple(options.items()))


def _time(time: Any) -> str | None:
    if time is PROCESSING_TIME:
        return None
    if not isinstance(time, str) or not time:
        raise FlowError(f"a window takes the name of a column of time, or PROCESSING_TIME, not {time!r}")
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
