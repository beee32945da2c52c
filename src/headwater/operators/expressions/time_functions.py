"""What expressions do with times. An instant is seen in the zone of its column; what has no zone, as it is written."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.errors import FlowError
from headwater.operators.expressions.cast_functions import INSTANT, MICROS
from headwater.operators.expressions.fitting import Fitted, Maker, Values, castable, computed, kernel, misfit
from headwater.operators.expressions.trees import Call

_INT: Final = pa.int32()
UNITS: Final = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond")

# Letters of Spark's patterns, in the form that strftime knows. Others are refused: they would mean something else.
_LETTERS: Final[Mapping[str, str]] = {
    "yyyy": "%Y",
    "yy": "%y",
    "MM": "%m",
    "MMM": "%b",
    "MMMM": "%B",
    "dd": "%d",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
    "DDD": "%j",
    "EEE": "%a",
    "EEEE": "%A",
    "a": "%p",
    "hh": "%I",
}
_PIECE: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")


def part(name: str, plus: int = 0) -> Maker:
    """Return a part of a time, as an int."""
    call = kernel(name)

    def compute(values: Values) -> Values:
        found = call(values).cast(_INT)
        return pc.add(found, pa.scalar(plus, _INT)) if plus else found

    return lambda node, given: computed(node, compute, _times(node, given))


def day_of_week(count_from_zero: bool, week_start: int) -> Maker:
    """Return the number of a day in its week; weeks start with Monday (1) or Sunday (7)."""
    options = pc.DayOfWeekOptions(count_from_zero=count_from_zero, week_start=week_start)
    call = kernel("day_of_week", options)
    return lambda node, given: computed(node, lambda values: call(values).cast(_INT), _times(node, given))


def truncated(node: Call, given: Sequence[Fitted]) -> Fitted:
    """The beginning of the hour, the day or another unit in which a time lies."""
    (unit,) = node.options
    call = kernel("floor_temporal", pc.RoundTemporalOptions(1, unit, week_starts_monday=True))
    return computed(node, call, _times(node, given))


def formatted(node: Call, given: Sequence[Fitted]) -> Fitted:
    """A time as text."""
    (pattern,) = node.options
    options = pc.StrftimeOptions(strftime_of(pattern))

    def compute(values: Values) -> Values:
        zone = values.type.tz if pa.types.is_timestamp(values.type) else None
        whole = pc.floor_temporal(values, 1, "second") if pa.types.is_timestamp(values.type) else values
        return kernel("strftime", options)(whole.cast(pa.timestamp("s", zone)))  # else %S has fractions

    return computed(node, compute, _times(node, given))


def read(node: Call, given: Sequence[Fitted]) -> Fitted:
    """An instant that a text tells in a pattern, in UTC."""
    (pattern,) = node.options
    options = pc.StrptimeOptions(strftime_of(pattern), "s")

    def compute(values: Values) -> Values:
        naive = kernel("strptime", options)(values).cast(pa.timestamp("us"))
        return pc.assume_timezone(naive, "UTC")

    return computed(node, compute, given)


def strftime_of(pattern: str) -> str:
    """Return a pattern of Spark's in the form of strftime."""
    made = []
    for piece in _PIECE.finditer(pattern):
        quoted_text, letter = piece.group(1), piece.group(2)
        if quoted_text is not None:
            made.append((quoted_text.replace("''", "'") or "'").replace("%", "%%"))
        elif letter is None:
            made.append(piece.group().replace("%", "%%"))
        elif piece.group() in _LETTERS:
            made.append(_LETTERS[piece.group()])
        else:
            raise FlowError(
                f"the pattern {pattern!r} has {piece.group()!r}, which is not known here; known are: "
                f"{', '.join(_LETTERS)}. Write map(function) for another form"
            )
    return "".join(made)


def since_1970(per_second: int) -> Maker:
    """Return the whole seconds, milliseconds or microseconds between 1970 and an instant."""

    def compute(values: Values) -> Values:
        unit = {1: "second", 1_000: "millisecond", MICROS: "microsecond"}[per_second]
        short = {1: "s", 1_000: "ms", MICROS: "us"}[per_second]
        return pc.floor_temporal(values, 1, unit).cast(pa.timestamp(short, values.type.tz)).cast(pa.int64())

    return lambda node, given: computed(node, compute, _times(node, given))


def instant_of(unit: str) -> Maker:
    """Return the instant so many seconds, milliseconds or microseconds after 1970."""

    def compute(values: Values) -> Values:
        return values.cast(pa.int64()).cast(pa.timestamp(unit, "UTC")).cast(INSTANT)

    def make(node: Call, given: Sequence[Fitted]) -> Fitted:
        if not (pa.types.is_integer(given[0].type) or pa.types.is_null(given[0].type)):
            raise misfit(node, given)
        return computed(node, compute, given)

    return make


def days_later(sign: int) -> Maker:
    """Return the date so many days after another, or before it."""

    def compute(values: Values, days: Values) -> Values:
        moved = pc.multiply(days.cast(pa.int32()), pa.scalar(sign, pa.int32()))
        return pc.add(values.cast(pa.date32()).cast(pa.int32()), moved).cast(pa.date32())

    return lambda node, given: computed(node, compute, given)


def days_between(node: Call, given: Sequence[Fitted]) -> Fitted:
    """How many days the first date is behind the second."""

    def compute(end: Values, start: Values) -> Values:
        return pc.subtract(*[values.cast(pa.date32()).cast(pa.int32()) for values in (end, start)])

    return computed(node, compute, _times(node, given))


def _times(node: Call, given: Sequence[Fitted]) -> Sequence[Fitted]:
    """Return what is given if it is times: a text becomes one by a cast only, which is for the user to write."""
    for one in given:
        if not (pa.types.is_timestamp(one.type) or pa.types.is_date(one.type) or pa.types.is_null(one.type)):
            raise misfit(node, given, f'make it a time first, as in {castable(one)}.cast("timestamp")')
    return given
