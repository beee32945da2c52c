"""Instants and durations as whole microseconds, and how a person writes them.

`Instant` is microseconds since the Unix epoch: it is stored with rows and must survive a restart, which a monotonic
clock does not.
"""

import re
from datetime import timedelta
from typing import Annotated, Final, NewType

from msgspec import Meta

from headwater.model.errors import ConfigError

Instant = NewType("Instant", int)
Duration = NewType("Duration", int)

# As in messages of other nodes: any 64 bits, since rows may have any time.
Micros = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]

MICROSECOND: Final = Duration(1)
MILLISECOND: Final = Duration(1_000)
SECOND: Final = Duration(1_000_000)

BEGINNING_OF_TIME: Final = -(1 << 63)  # a watermark that has not risen yet
END_OF_TIME: Final = (1 << 63) - 1  # the watermark after the last row of a source that has ended

_MINUTE: Final = 60_000_000
_UNITS_US: Final = {
    "us": 1,
    "microsecond": 1,
    "ms": 1_000,
    "millisecond": 1_000,
    "s": 1_000_000,
    "sec": 1_000_000,
    "second": 1_000_000,
    "m": _MINUTE,
    "min": _MINUTE,
    "minute": _MINUTE,
    "h": 60 * _MINUTE,
    "hour": 60 * _MINUTE,
    "d": 24 * 60 * _MINUTE,
    "day": 24 * 60 * _MINUTE,
    "week": 7 * 24 * 60 * _MINUTE,
}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)\s*")


def seconds(value: float) -> Duration:
    """Return a duration of so many seconds."""
    return Duration(round(value * SECOND))


def milliseconds(value: float) -> Duration:
    """Return a duration of so many milliseconds."""
    return Duration(round(value * MILLISECOND))


def parse_duration(written: str) -> Duration:
    """Read `30s`, `250ms`, `1.5 min`, PySpark's `1 hour 30 minutes`, or a bare number of seconds."""
    text = written.strip().lower().removeprefix("interval ").strip()
    total = 0.0
    at = 0
    while match := _PART.match(text, at):
        unit = match[2] if match[2] in _UNITS_US else match[2].removesuffix("s")
        if (unit or "s") not in _UNITS_US or (not unit and match.end() < len(text)):
            break
        total += float(match[1]) * _UNITS_US[unit or "s"]
        at = match.end()
    if at == 0 or at < len(text):
        raise ConfigError(f"{written!r} is not a duration; write it like 30s, 250ms, 2min, 1h or '10 minutes'")
    return Duration(round(total))


def duration_us(given: str | timedelta) -> Duration:
    """Return a duration that a flow was given, as text or as a timedelta."""
    if isinstance(given, timedelta):
        return Duration(given // timedelta(microseconds=1))
    if not isinstance(given, str):
        raise ConfigError(f"{given!r} is not a duration; write it as text, like '10 minutes', or as a timedelta")
    return parse_duration(given)
