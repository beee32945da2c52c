"""Finding the partners of many rows at once: for each, a stretch of what waits under its key in order of time."""

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from headwater.model.time import BEGINNING_OF_TIME, END_OF_TIME
from headwater.operators.columns.segments import Ints

LAST: Final = END_OF_TIME - 2  # the latest instant at which a row can be due, so that the end of time is after it

_NUMBERS_MAX: Final = 1 << 62


class Stretches(NamedTuple):
    """Where the partners of each row begin, how many they are, and the order in which they lie side by side."""

    starts: Ints
    counts: Ints
    order: Ints | None  # None: as they are


def search(
    keys: npt.NDArray[np.signedinteger[Any]], lowest: Ints, highest: Ints, other_keys: Ints, other_times: Ints
) -> Stretches:
    """Find for each row those of the others that have its key and a time between two instants, both included.

    Key and time of the others become one number, so that a single search over all of them does. Keys are small numbers.
    """
    first, last = int(other_times.min()), int(other_times.max())
    if (last - first + 1) * (int(other_keys.max()) + 1) >= _NUMBERS_MAX:  # centuries: number the instants
        instants, other_times = np.unique(other_times, return_inverse=True)
        lowest, highest = np.searchsorted(instants, lowest), np.searchsorted(instants, highest, "right") - 1
        first, last = 0, len(instants) - 1
    span = last - first + 1
    numbers = other_keys * span + (other_times - first)
    order = None
    if not (numbers[1:] >= numbers[:-1]).all():
        order = np.argsort(numbers, kind="stable")
        numbers = numbers[order]
    base = keys.astype(np.int64) * span - first
    starts = np.searchsorted(numbers, base + _within(lowest, first, last + 1))
    ends = np.searchsorted(numbers, base + _within(highest, first - 1, last), "right")
    return Stretches(starts, np.maximum(ends - starts, 0), order)


def later(times: Ints, by_us: int) -> Ints:
    """Return instants so much later, or earlier, within what is an instant at all."""
    if by_us >= 0:
        return np.where(times > LAST - by_us, LAST, times + by_us)
    return np.where(times < BEGINNING_OF_TIME - by_us, BEGINNING_OF_TIME, times + by_us)


def _within(values: Ints, least: int, most: int) -> Ints:
    """Return the values, none below or above these: `np.clip` takes ten times as long for a thousand."""
    return np.minimum(np.maximum(values, least), most)
