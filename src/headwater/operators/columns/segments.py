"""Many short stretches of one array, handled all at once: the rows of one key each, for a thousand keys."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def starts_of(counts: Ints) -> Ints:
    """Return where stretches of these lengths begin if they lie one behind the other."""
    return np.cumsum(counts) - counts


def places(starts: Ints, counts: Ints) -> Ints:
    """Return the positions of all items of stretches that begin at `starts`, stretch by stretch."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(starts - ends + counts, counts)


def sums_of(values: Ints, counts: Ints) -> Ints:
    """Return the sum of the values of each stretch."""
    sums: Ints = np.concatenate((np.zeros(1, np.int64), np.cumsum(values)))
    ends: Ints = np.cumsum(counts)
    return sums[ends] - sums[ends - counts]  # type: ignore[no-any-return]


def cut(joined: bytes, sizes: Ints) -> list[bytes]:
    """Cut bytes into stretches of these sizes."""
    ends = np.cumsum(sizes).tolist()
    return [joined[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def in_order_of(keys: npt.NDArray[np.signedinteger[Any]], count: int) -> Ints:
    """Return the positions of items in order of their keys, which are numbers below `count`, else as they are.

    Numbers of 16 bits are sorted by their digits, three times as fast.
    """
    return np.argsort(keys.astype(np.uint16) if count <= _SHORT_MAX else keys, kind="stable")


def distinct_numbers(numbers: Ints, limit: int) -> tuple[Ints, Ints]:
    """Return the distinct ones among numbers from 0 up to a limit, in order, and for each number its place there."""
    if limit > _SPREAD_MAX * len(numbers):
        return np.unique(numbers, return_inverse=True)
    there = np.zeros(limit, np.bool_)
    there[numbers] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[numbers]


_SHORT_MAX: Final = 1 << 16
_SPREAD_MAX: Final = 16  # numbers that lie further apart are faster sorted than ticked off
