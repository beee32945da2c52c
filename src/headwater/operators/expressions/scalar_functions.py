"""Functions of columns as a flow writes them, by the names that PySpark gives them: `F.upper("name")`.

A text stands for the column of that name, as in PySpark; `hw.lit("text")` is the text itself. What is no column (a
length, a pattern, a unit) is the same for every row.
"""

from typing import Any

from headwater.model.errors import FlowError
from headwater.model.quoting import quoted
from headwater.model.suggestions import did_you_mean
from headwater.operators.expressions.cast_functions import INSTANT
from headwater.operators.expressions.time_functions import UNITS, strftime_of
from headwater.operators.expressions.trees import Call, Column, as_node, col

ColumnLike = Column | str


def isnull(column: ColumnLike) -> Column:
    """Whether there is no value."""
    return _call("is_null", column)


def isnotnull(column: ColumnLike) -> Column:
    """Whether there is a value."""
    return _call("is_valid", column)


def isnan(column: ColumnLike) -> Column:
    """Whether a number is NaN; null is not."""
    return _call("is_nan", column)


def coalesce(*columns: ColumnLike) -> Column:
    """The first value that is not null."""
    return _call("coalesce", *_some("coalesce", columns))


def nvl(column: ColumnLike, other: ColumnLike) -> Column:
    """The value, or the other where it is null."""
    return _call("coalesce", column, other)


def greatest(*columns: ColumnLike) -> Column:
    """The largest of several values, nulls left out."""
    return _call("greatest", *_some("greatest", columns, at_least=2))


def least(*columns: ColumnLike) -> Column:
    """The smallest of several values, nulls left out."""
    return _call("least", *_some("least", columns, at_least=2))


def abs(column: ColumnLike) -> Column:  # noqa: A001 - PySpark's name
    """The number without its sign."""
    return _call("abs", column)


def round(column: ColumnLike, scale: int = 0) -> Column:  # noqa: A001 - PySpark's name
    """The number with so many digits behind the point; halves go away from zero."""
    return _call("round", column, options=(_whole("round", "scale", scale),))


def bround(column: ColumnLike, scale: int = 0) -> Column:
    """The number with so many digits behind the point; halves go to the even digit."""
    return _call("bround", column, options=(_whole("bround", "scale", scale),))


def floor(column: ColumnLike) -> Column:
    """The largest whole number that is not above it."""
    return _call("floor", column)


def ceil(column: ColumnLike) -> Column:
    """The smallest whole number that is not below it."""
    return _call("ceil", column)


def pow(column: ColumnLike, power: ColumnLike | float) -> Column:  # noqa: A001 - PySpark's name
    """The number to a power."""
    return _call("pow", column, power)


def sqrt(column: ColumnLike) -> Column:
    """The square root; NaN below zero."""
    return _call("sqrt", column)


def exp(column: ColumnLike) -> Column:
    """E to this power."""
    return _call("exp", column)


def log(column: ColumnLike) -> Column:
    """The natural logarithm; null where there is none."""
    return _call("ln", column)


def log2(column: ColumnLike) -> Column:
    """The logarithm to base 2."""
    return _call("log2", column)


def log10(column: ColumnLike) -> Column:
    """The logarithm to base 10."""
    return _call("log10", column)


def log1p(column: ColumnLike) -> Column:
    """The natural logarithm of one more."""
    return _call("log1p", column)


def sin(column: ColumnLike) -> Column:
    """The sine of an angle in radians."""
    return _call("sin", column)


def cos(column: ColumnLike) -> Column:
    """The cosine of an angle in radians."""
    return _call("cos", column)


def tan(column: ColumnLike) -> Column:
    """The tangent of an angle in radians."""
    return _call("tan", column)


def asin(column: ColumnLike) -> Column:
    """The angle of a sine, in radians."""
    return _call("asin", column)


def acos(column: ColumnLike) -> Column:
    """The angle of a cosine, in radians."""
    return _call("acos", column)


def atan(column: ColumnLike) -> Column:
    """The angle of a tangent, in radians."""
    return _call("atan", column)


def atan2(y: ColumnLike, x: ColumnLike) -> Column:
    """The angle of a point, in radians."""
    return _call("atan2", y, x)


def degrees(column: ColumnLike) -> Column:
    """Radians as degrees."""
    return _call("degrees", column)


def radians(column: ColumnLike) -> Column:
    """Degrees as radians."""
    return _call("radians", column)


def signum(column: ColumnLike) -> Column:
    """-1, 0 or 1."""
    return _call("signum", column)


def upper(column: ColumnLike) -> Column:
    """A text in upper case."""
    return _call("upper", column)


def lower(column: ColumnLike) -> Column:
    """A text in lower case."""
    return _call("lower", column)


def reverse(column: ColumnLike) -> Column:
    """A text backwards."""
    return _call("reverse", column)


def length(column: ColumnLike) -> Column:
    """How many characters a text has."""
    return _call("length", column)


def trim(column: ColumnLike) -> Column:
    """A text without spaces at its ends."""
    return _call("trim", column)


def ltrim(column: ColumnLike) -> Column:
    """A text without spaces at its beginning."""
    return _call("ltrim", column)


def rtrim(column: ColumnLike) -> Column:
    """A text without spaces at its end."""
    return _call("rtrim", column)


def lpad(column: ColumnLike, length: int, pad: str = " ") -> Column:
    """A text filled at its beginning up to a length; a longer one is cut."""
    return _call("lpad", column, options=(_whole("lpad", "length", length), _one_character("lpad", pad)))


def rpad(column: ColumnLike, length: int, pad: str = " ") -> Column:
    """A text filled at its end up to a length; a longer one is cut."""
    return _call("rpad", column, options=(_whole("rpad", "length", length), _one_character("rpad", pad)))


def repeat(column: ColumnLike, times: int) -> Column:
    """A text so many times behind itself."""
    return _call("repeat", column, options=(_whole("repeat", "times", times),))


def substring(column: ColumnLike, start: int, length: int) -> Column:
    """A part of a text; the first character is number 1, and negative numbers count from the end."""
    wanted = _whole("substring", "start", start), _whole("substring", "length", length)
    return _call("substring", column, options=wanted)


def instr(column: ColumnLike, part: str) -> Column:
    """The place, from 1, at which a text has a part; 0 if it has not."""
    if not _text("instr", "part", part):
        raise FlowError("instr takes a part of at least one character")
    return _call("instr", column, options=(part,))


def concat(*columns: ColumnLike) -> Column:
    """Texts behind one another; null if one of them is. Other values are written as texts first."""
    return _call("concat", *_some("concat", columns))


def concat_ws(separator: str, *columns: ColumnLike) -> Column:
    """Texts with a separator between them; nulls are left out."""
    return _call("concat_ws", *_some("concat_ws", columns), options=(_text("concat_ws", "separator", separator),))


def contains(column: ColumnLike, part: str) -> Column:
    """Whether a text has a part."""
    return _call("contains", column, options=(_text("contains", "part", part),))


def startswith(column: ColumnLike, part: str) -> Column:
    """Whether a text begins like this."""
    return _call("startswith", column, options=(_text("startswith", "part", part),))


def endswith(column: ColumnLike, part: str) -> Column:
    """Whether a text ends like this."""
    return _call("endswith", column, options=(_text("endswith", "part", part),))


def replace(column: ColumnLike, search: str, replacement: str = "") -> Column:
    """A text with every place of a part replaced."""
    wanted = _text("replace", "search", search), _text("replace", "replacement", replacement)
    return _call("replace", column, options=wanted)


def regexp_replace(column: ColumnLike, pattern: str, replacement: str) -> Column:
    """A text with every match of a regular expression (of RE2) replaced; `$1` is what its first group matched."""
    wanted = _text("regexp_replace", "pattern", pattern), _text("regexp_replace", "replacement", replacement)
    return _call("regexp_replace", column, options=wanted)


def split(column: ColumnLike, pattern: str) -> Column:
    """The parts of a text between the matches of a regular expression: a list."""
    return _call("split", column, options=(_text("split", "pattern", pattern),))


def size(column: ColumnLike) -> Column:
    """How many items a list has."""
    return _call("size", column)


def year(column: ColumnLike) -> Column:
    """The year of a time."""
    return _call("year", column)


def quarter(column: ColumnLike) -> Column:
    """The quarter of a time, from 1."""
    return _call("quarter", column)


def month(column: ColumnLike) -> Column:
    """The month of a time, from 1."""
    return _call("month", column)


def dayofmonth(column: ColumnLike) -> Column:
    """The day of a month, from 1."""
    return _call("dayofmonth", column)


def dayofyear(column: ColumnLike) -> Column:
    """The day of a year, from 1."""
    return _call("dayofyear", column)


def dayofweek(column: ColumnLike) -> Column:
    """The day of a week; 1 is Sunday."""
    return _call("dayofweek", column)


def weekday(column: ColumnLike) -> Column:
    """The day of a week; 0 is Monday."""
    return _call("weekday", column)


def weekofyear(column: ColumnLike) -> Column:
    """The week of a year as ISO 8601 counts."""
    return _call("weekofyear", column)


def hour(column: ColumnLike) -> Column:
    """The hour of a time."""
    return _call("hour", column)


def minute(column: ColumnLike) -> Column:
    """The minute of a time."""
    return _call("minute", column)


def second(column: ColumnLike) -> Column:
    """The second of a time."""
    return _call("second", column)


def date_trunc(unit: str, column: ColumnLike) -> Column:
    """The beginning of the year, month, week, day, hour, minute or second in which a time lies."""
    wanted = _text("date_trunc", "unit", unit).lower()
    if wanted not in UNITS:
        raise FlowError(
            f"date_trunc knows no unit {unit!r}; it is one of {', '.join(UNITS)}{did_you_mean(unit, UNITS)}"
        )
    return _call("date_trunc", column, options=(wanted,))


def date_format(column: ColumnLike, pattern: str) -> Column:
    """A time as text, in a pattern such as `yyyy-MM-dd HH:mm:ss`."""
    strftime_of(_text("date_format", "pattern", pattern))
    return _call("date_format", column, options=(pattern,))


def to_timestamp(column: ColumnLike, pattern: str | None = None) -> Column:
    """The instant that a text tells, in a pattern or as ISO 8601; in UTC if it tells no zone."""
    if pattern is None:
        return _call("cast", column, options=(INSTANT,))
    strftime_of(_text("to_timestamp", "pattern", pattern))
    return _call("to_timestamp", column, options=(pattern,))


def to_date(column: ColumnLike, pattern: str | None = None) -> Column:
    """The date of a time, or that a text tells."""
    return (col(column) if pattern is None else to_timestamp(column, pattern)).cast("date")


def date_add(start: ColumnLike, days: ColumnLike | int) -> Column:
    """The date so many days later."""
    return _call("date_add", start, days)


def date_sub(start: ColumnLike, days: ColumnLike | int) -> Column:
    """The date so many days earlier."""
    return _call("date_sub", start, days)


def datediff(end: ColumnLike, start: ColumnLike) -> Column:
    """How many days the first date is behind the second."""
    return _call("datediff", end, start)


def unix_seconds(column: ColumnLike) -> Column:
    """The whole seconds since 1970."""
    return _call("unix_seconds", column)


def unix_millis(column: ColumnLike) -> Column:
    """The whole milliseconds since 1970."""
    return _call("unix_millis", column)


def unix_micros(column: ColumnLike) -> Column:
    """The microseconds since 1970."""
    return _call("unix_micros", column)


def timestamp_seconds(column: ColumnLike) -> Column:
    """The instant so many seconds after 1970."""
    return _call("timestamp_seconds", column)


def timestamp_millis(column: ColumnLike) -> Column:
    """The instant so many milliseconds after 1970."""
    return _call("timestamp_millis", column)


def timestamp_micros(column: ColumnLike) -> Column:
    """The instant so many microseconds after 1970."""
    return _call("timestamp_micros", column)


def _call(function: str, *columns: Any, options: tuple[Any, ...] = ()) -> Column:
    nodes = tuple(col(one).node if isinstance(one, str) else as_node(one) for one in columns)
    return Column(Call(function, nodes, options))


def _some(function: str, columns: tuple[Any, ...], at_least: int = 1) -> tuple[Any, ...]:
    listed = tuple(columns[0]) if len(columns) == 1 and isinstance(columns[0], list | tuple) else columns
    if len(listed) < at_least:
        raise FlowError(f"{function} needs at least {at_least} column{'s' if at_least > 1 else ''}")
    return listed


def _whole(function: str, what: str, given: Any) -> int:
    if type(given) is not int:
        raise FlowError(f"{function} takes a whole number as {what}, not {quoted(given)}")
    return given


def _text(function: str, what: str, given: Any) -> str:
    if not isinstance(given, str):
        raise FlowError(f"{function} takes a text as {what}, the same for every row, not {quoted(given)}")
    return given


def _one_character(function: str, given: Any) -> str:
    if len(_text(function, "pad", given)) != 1:
        raise FlowError(f"{function} fills with one character, not {quoted(given)}")
    return str(given)
