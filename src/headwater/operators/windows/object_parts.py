"""Aggregates that no record of one size can hold: texts, decimals, and collections. One piece of bytes for each.

They are worked on value by value, in Python: what they hold is Python's. No bytes at all stand for "no row yet".
"""

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from itertools import pairwise
from typing import Any, Final

from headwater.model.errors import StoreError
from headwater.operators.columns.vectors import GroupedRows
from headwater.operators.state_values import decode_value, encode_value
from headwater.operators.windows.packed_parts import Starts

EXACTLY: Final = Context(prec=100, rounding=ROUND_HALF_UP)  # decimals have up to 76 digits, and sums a few more

_LENGTH: Final = struct.Struct("<I")


@dataclass(frozen=True)
class ObjectPart(ABC):
    """Something to remember about a column as bytes."""

    column: str

    @abstractmethod
    def add(self, kept: Sequence[bytes], rows: GroupedRows) -> list[bytes]:
        """Return what is kept for each group once these rows are added."""

    @abstractmethod
    def combine(self, kept: Sequence[bytes]) -> bytes:
        """Return what is kept for all these together, of which there are at least two."""

    def value(self, kept: bytes) -> Any:
        """Return the value that comes out."""
        return decode_value(kept) if kept else None


@dataclass(frozen=True)
class ExtremeObject(ObjectPart):
    """The smallest or largest value."""

    largest: bool

    def add(self, kept: Sequence[bytes], rows: GroupedRows) -> list[bytes]:
        best = [self.value(one) for one in kept]
        for group, value in zip(rows.groups.tolist(), rows.listed(self.column), strict=True):
            if value is not None and self._is_better(value, best[group]):
                best[group] = value
        return [b"" if value is None else encode_value(value) for value in best]

    def combine(self, kept: Sequence[bytes]) -> bytes:
        best: Any = None
        for value in (decode_value(one) for one in kept if one):
            best = value if self._is_better(value, best) else best
        return b"" if best is None else encode_value(best)

    def _is_better(self, value: Any, best: Any) -> bool:
        try:
            return best is None or bool(value > best if self.largest else value < best)
        except (TypeError, ValueError) as damage:  # of one column all values are alike
            raise StoreError(f"the {'largest' if self.largest else 'smallest'} value is damaged: {damage}") from damage


@dataclass(frozen=True)
class EdgeObject(ObjectPart):
    """The first or the last value to arrive, null or not, with its place in the order of arrivals."""

    last: bool
    ignore_nulls: bool

    def add(self, kept: Sequence[bytes], rows: GroupedRows) -> list[bytes]:
        found = list(kept)
        listed = zip(rows.groups.tolist(), rows.listed(self.column), rows.arrivals.tolist(), strict=True)
        for group, value, arrival in listed:
            if (self.last or not found[group]) and not (self.ignore_nulls and value is None):
                found[group] = encode_value([arrival, value])
        return found

    def combine(self, kept: Sequence[bytes]) -> bytes:
        seen = [one for one in kept if one]
        if not seen:
            return b""
        return (max if self.last else min)(seen, key=lambda one: _pair(decode_value(one))[0])

    def value(self, kept: bytes) -> Any:
        return _pair(decode_value(kept))[1] if kept else None


@dataclass(frozen=True)
class DecimalSum(ObjectPart):
    """The exact sum of decimals."""

    def add(self, kept: Sequence[bytes], rows: GroupedRows) -> list[bytes]:
        sums = [_decimal(one) for one in kept]
        for group, value in zip(rows.groups.tolist(), rows.listed(self.column), strict=True):
            if value is not None:
                sums[group] = value if sums[group] is None else EXACTLY.add(sums[group], value)
        return [b"" if total is None else encode_value(total) for total in sums]

    def combine(self, kept: Sequence[bytes]) -> bytes:
        total = None
        for value in (_decimal(one) for one in kept if one):
            total = value if total is None or value is None else EXACTLY.add(total, value)
        return b"" if total is None else encode_value(total)


def _decimal(kept: bytes) -> Decimal | None:
    found = decode_value(kept) if kept else None
    if found is not None and not isinstance(found, Decimal):
        raise StoreError(f"a sum of decimals is damaged: a {type(found).__name__}")
    return found


@dataclass(frozen=True)
class Collected(ObjectPart):
    """All values but nulls, in order of arrival: a run of pieces, so that adding copies but does not decode."""

    def add(self, kept: Sequence[bytes], rows: GroupedRows) -> list[bytes]:
        values, arrivals = rows.listed(self.column), rows.arrivals.tolist()
        made = list(kept)
        for group, chosen in _rows_of_groups(rows):
            pairs = [(arrivals[row], values[row]) for row in chosen if values[row] is not None]
            if pairs:
                piece = encode_value([[arrival for arrival, _ in pairs], [value for _, value in pairs]])
                made[group] += _LENGTH.pack(len(piece)) + piece
        return made

    def combine(self, kept: Sequence[bytes]) -> bytes:
        return b"".join(kept)

    def value(self, kept: bytes) -> Any:
        pairs = [pair for piece in _pieces(kept) for pair in _side_by_side(decode_value(piece))]
        if any(before[0] > after[0] for before, after in pairwise(pairs)):
            pairs.sort(key=lambda pair: pair[0])
        return [value for _, value in pairs]


def _pieces(kept: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(kept):
        try:
            (length,) = _LENGTH.unpack_from(kept, at)
        except struct.error as damage:
            raise StoreError(f"what was collected is damaged: {damage}") from damage
        at += _LENGTH.size + length
        if at > len(kept):
            raise StoreError(f"what was collected is damaged: {at} bytes of {len(kept)} are said to be there")
        yield kept[at - length : at]


@dataclass(frozen=True)
class DistinctPart(ObjectPart):
    """The different values but null, in order of their first arrival."""

    def add(self, kept: Sequence[bytes], rows: GroupedRows) -> list[bytes]:
        values, arrivals = rows.listed(self.column), rows.arrivals.tolist()
        made = list(kept)
        for group, chosen in _rows_of_groups(rows):
            found = [[arrivals[row], values[row]] for row in chosen if values[row] is not None]
            made[group] = _distinct([*(_pairs(kept[group]) if kept[group] else ()), *found])
        return made

    def combine(self, kept: Sequence[bytes]) -> bytes:
        pairs = [pair for one in kept if one for pair in _pairs(one)]
        return _distinct(sorted(pairs, key=lambda pair: pair[0]))

    def value(self, kept: bytes) -> Any:
        return [value for _, value in _pairs(kept)] if kept else []


def _pair(found: Any) -> list[Any]:
    """Return a value and when it arrived."""
    if not isinstance(found, list) or len(found) != 2 or not isinstance(found[0], int):
        raise StoreError(f"what is kept of a value is damaged: a {type(found).__name__}")
    return found


def _pairs(kept: bytes) -> list[list[Any]]:
    found = decode_value(kept)
    if not isinstance(found, list):
        raise StoreError(f"what is kept of several values is damaged: a {type(found).__name__}")
    return [_pair(one) for one in found]


def _side_by_side(found: Any) -> Iterator[tuple[Any, Any]]:
    """Yield arrivals and values, which are kept apart."""
    is_sound = isinstance(found, list) and len(found) == 2 and all(isinstance(one, list) for one in found)
    if not is_sound or len(found[0]) != len(found[1]) or not all(isinstance(one, int) for one in found[0]):
        raise StoreError(f"what was collected is damaged: a {type(found).__name__}")
    return zip(*found, strict=True)


def _distinct(pairs: Iterable[list[Any]]) -> bytes:
    first: dict[bytes, list[Any]] = {}
    for pair in pairs:
        first.setdefault(encode_value(pair[1]), pair)  # bytes: all NaN are one, and lists can be told apart
    return encode_value(list(first.values())) if first else b""


def _rows_of_groups(rows: GroupedRows) -> Iterator[tuple[int, list[int]]]:
    """Yield each group that has rows, and its rows as they came."""
    order, starts = rows.in_groups
    listed, bounds = order.tolist(), [*starts.tolist(), len(order)]
    return ((group, listed[a:b]) for group, (a, b) in enumerate(pairwise(bounds)) if a < b)


def combine_runs(part: ObjectPart, kept: Sequence[bytes], starts: Starts) -> list[bytes]:
    """Return what is kept for each run taken together."""
    bounds = [*starts.tolist(), len(kept)]
    return [kept[a] if b - a == 1 else part.combine(kept[a:b]) for a, b in pairwise(bounds)]
