"""Whether two engines have the same results: as many of each name, with the same numbers."""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from bench.rivals.contests import Contest, Result, Rows

RELATIVE: Final = 1e-9  # numbers are added up in other orders, and written as text
ABSOLUTE: Final = 1e-9

Told = dict[tuple[Any, ...], list[tuple[Any, ...]]]


def told(contest: Contest, results: Sequence[Result], causes: Rows, rows: int) -> Told:
    """Return what was said about the first rows, by name."""
    found: Told = defaultdict(list)
    for result, cause in zip(results, causes.tolist(), strict=True):
        if 0 <= cause < rows:
            name, numbers = contest.normal(result)
            found[name].append(numbers)
    return dict(found)


def difference(expected: Told, found: Told) -> str | None:
    """Return the first difference in words; None if there is none."""
    if not expected:
        return "there is nothing to compare with"
    for name in expected.keys() | found.keys():
        ours, theirs = expected.get(name, []), found.get(name, [])
        if len(ours) != len(theirs):
            return f"{name}: {len(theirs)} results instead of {len(ours)}"
        for one, other in zip(sorted(ours, key=_order), sorted(theirs, key=_order), strict=True):
            if len(one) != len(other) or not all(map(_same, one, other)):
                return f"{name}: {other} instead of {one}"
    return None


def _order(numbers: tuple[Any, ...]) -> list[tuple[bool, float]]:
    return [(number is None, 0.0 if number is None else round(number, 6)) for number in numbers]


def _same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
