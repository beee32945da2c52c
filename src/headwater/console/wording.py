"""Numbers as people read them."""

from typing import Final

NONE: Final = "–"

_UNITS: Final = ("B", "KB", "MB", "GB", "TB")


def size(count: float) -> str:
    """Return bytes in the unit that leaves at most four digits."""
    unit = 0
    while count >= 1000 and unit < len(_UNITS) - 1:
        count /= 1024
        unit += 1
    return f"{count:.0f} {_UNITS[unit]}" if unit == 0 or count >= 10 else f"{count:.1f} {_UNITS[unit]}"


def rate(per_second: float) -> str:
    """Return a rate in at most six characters."""
    if per_second < 9.95:
        return "0" if per_second < 0.05 else f"{per_second:.1f}"
    if per_second < 9_999.5:
        return f"{per_second:,.0f}"
    return f"{per_second / 1e3:,.1f}k" if per_second < 999_500 else f"{per_second / 1e6:,.1f}M"


def count(rows: int) -> str:
    """Return a number of rows; from a hundred thousand on, shortened like a rate."""
    return f"{rows:,}" if rows < 100_000 else rate(rows)


def milliseconds(value: float | None) -> str:
    """Return milliseconds without their unit, with two or three digits that mean something."""
    if value is None:
        return NONE
    if value < 0.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"


def share(value: float | None) -> str:
    """Return a share as a percentage."""
    return NONE if value is None else f"{value:.0%}"


def duration(seconds: float) -> str:
    """Return a duration in a suitable unit."""
    if seconds < 0.0995:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 119.5:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"
