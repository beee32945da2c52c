"""Instants and durations as whole microseconds, and how a person writes them.

`Instant` is microseconds since the Unix epoch: it is stored with rows and must survive a restart, which a monotonic
clock does not.
"""

import re
from typing import Final, NewType

from headwater.model.errors import ConfigError

Instant = NewType("Instant", int)
Duration = NewType("Duration", int)

MICROSECOND: Final = Duration(1)
MILLISECOND: Final = Duration(1_000)
SECOND: Final = Duration(1_000_000)

_UNITS_US: Final = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "min": 60_000_000, "h": 3_600_000_000}
_WRITTEN: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(us|ms|s|min|m|h)?\s*")


def seconds(value: float) -> Duration:
    """Return a duration of so many seconds."""
    return Duration(round(value * SECOND))


def milliseconds(value: float) -> Duration:
    """Return a duration of so many milliseconds."""
    return Duration(round(value * MILLISECOND))


def parse_duration(written: str) -> Duration:
    """Read `30s`, `250ms`, `1.5 min` or a bare number of seconds."""
    match = _WRITTEN.fullmatch(written)
    if match is None:
        raise ConfigError(f"{written!r} is not a duration; write it like 30s, 250ms, 2min or 1h")
    return Duration(round(float(match[1]) * _UNITS_US[match[2] or "s"]))
