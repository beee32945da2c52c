"""Aggregates that are a few numbers each: kept side by side in records of one size, and computed for all keys at once.

A part is what an aggregate has to remember, such as a sum: some fields of a record, what they are before the first row
(which changes nothing when it is combined with another), how rows are added, and how records are combined. Parts that
several aggregates need are kept once: `avg` is the `sum` and the `count` that others may ask for too.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from headwater.operators.columns.vectors import GroupedRows, Vector
from headwater.operators.functions import WrongResult

Records = npt.NDArray[np.void]
Starts = npt.NDArray[np.intp]

INT64: Final = np.dtype("i8")
FLOAT64: Final = np.dtype("f8")
_FLAG: Final = np.dtype("u1")
_INT64_MAX: Final = (1 << 63) - 1

UNSEEN: Final = 0  # the flag of a first or last value: no row yet,
SEEN: Final = 1  # a value,
NULL: Final = 2  # or a null


class Field(NamedTuple):
    """A number of a record, and what it is before the first row."""

    name: str
    dtype: np.dtype[Any]
    at_first: Any = 0


@dataclass(frozen=True)
class AggregatePart(ABC):
    """Something to remember about a column: the same for all that ask for an equal one."""

    column: str | None

    @cached_property
    @abstractmethod
    def fields(self) -> tuple[Field, ...]:
        """What of a record is ours."""

    @abstractmethod
    def add(self, records: Records, rows: GroupedRows) -> None:
        """Add rows to the records of their groups."""

    @abstractmethod
    def combine(self, into: Records, records: Records, starts: Starts) -> None:
        """Fill `into` with the records of each run taken together; runs begin at `starts`."""


@dataclass(frozen=True)
class Count(AggregatePart):
    """How many rows, or how many in which the column is not null."""

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return (Field(f"count {self.column}" if self.column is not None else "count", INT64),)

    def add(self, records: Records, rows: GroupedRows) -> None:
        records[self.fields[0].name] += rows.sizes_of(self.column)

    def combine(self, into: Records, records: Records, starts: Starts) -> None:
        name = self.fields[0].name
        into[name] = np.add.reduceat(records[name], starts)


@dataclass(frozen=True)
class FloatSum(AggregatePart):
    """The sum as a double; nulls count for nothing."""

    column: str

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return (Field(f"float sum {self.column}", FLOAT64),)

    def add(self, records: Records, rows: GroupedRows) -> None:
        groups, values = rows.present(self.column)
        records[self.fields[0].name] += np.bincount(groups, weights=values, minlength=rows.count)

    def combine(self, into: Records, records: Records, starts: Starts) -> None:
        name = self.fields[0].name
        into[name] = np.add.reduceat(records[name], starts)


@dataclass(frozen=True)
class IntSum(AggregatePart):
    """The sum as a 64-bit integer, which raises rather than wraps around, as Spark's does."""

    column: str

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return (Field(f"sum {self.column}", INT64),)

    def add(self, records: Records, rows: GroupedRows) -> None:
        groups, values = rows.present(self.column)
        sums = records[self.fields[0].name]
        if _largest(values) * len(values) + _largest(sums) <= _INT64_MAX:
            np.add.at(sums, groups, values.astype(np.int64, copy=False))
            return
        exact = sums.astype(object)
        np.add.at(exact, groups, values.astype(object))
        sums[:] = self._held(exact)

    def combine(self, into: Records, records: Records, starts: Starts) -> None:
        name = self.fields[0].name
        sums = records[name]
        if _largest(sums) * len(sums) <= _INT64_MAX:
            into[name] = np.add.reduceat(sums, starts)
        else:
            into[name] = self._held(np.add.reduceat(sums.astype(object), starts))

    def _held(self, exact: Vector) -> Vector:
        if any(not -_INT64_MAX - 1 <= total <= _INT64_MAX for total in exact):
            raise WrongResult(f"the sum of column {self.column!r} exceeds 64 bits; make it a double or a decimal first")
        return exact.astype(np.int64)


def _largest(values: Vector) -> int:
    """Return the largest magnitude."""
    return max(-int(values.min()), int(values.max()), 0) if len(values) else 0


@dataclass(frozen=True)
class Extreme(AggregatePart):
    """The smallest or largest number; NaN is larger than any other, as in Spark."""

    column: str
    largest: bool
    dtype: np.dtype[Any]

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return (Field(f"{'max' if self.largest else 'min'} {self.column}", self.dtype, self._least()),)

    def _least(self) -> Any:
        if self.dtype.kind == "f":
            return -np.inf if self.largest else np.nan  # what `fmin` passes over
        limits = np.iinfo(self.dtype)
        return limits.min if self.largest else limits.max

    @property
    def _better(self) -> np.ufunc:
        if self.largest:
            return np.maximum  # NaN wins
        return np.fmin if self.dtype.kind == "f" else np.minimum

    def add(self, records: Records, rows: GroupedRows) -> None:
        groups, values = rows.present(self.column)
        self._better.at(records[self.fields[0].name], groups, values)

    def combine(self, into: Records, records: Records, starts: Starts) -> None:
        name = self.fields[0].name
        into[name] = self._better.reduceat(records[name], starts)


@dataclass(frozen=True)
class Moments(AggregatePart):
    """Number, mean and squared distance from the mean, combined as Chan, Golub and LeVeque do (1983)."""

    column: str

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return tuple(Field(f"{what} {self.column}", FLOAT64) for what in ("n", "mean", "m2"))

    def add(self, records: Records, rows: GroupedRows) -> None:
        groups, values = rows.floats(self.column)
        n = np.bincount(groups, minlength=rows.count).astype(np.float64)
        mean = _quotient(np.bincount(groups, weights=values, minlength=rows.count), n)
        m2 = np.bincount(groups, weights=(values - mean[groups]) ** 2, minlength=rows.count)
        n_field, mean_field, m2_field = (field.name for field in self.fields)
        n_before, apart = records[n_field].copy(), mean - records[mean_field]
        apart[n == 0] = 0.0
        share = _quotient(n, n + n_before)
        records[n_field] += n
        records[mean_field] += apart * share
        records[m2_field] += m2 + apart**2 * n_before * share

    def combine(self, into: Records, records: Records, starts: Starts) -> None:
        n_field, mean_field, m2_field = (field.name for field in self.fields)
        n, mean = records[n_field], records[mean_field]
        total = np.add.reduceat(n, starts)
        middle = _quotient(np.add.reduceat(n * mean, starts), total)
        apart = mean - np.repeat(middle, np.diff(starts, append=len(records)))
        into[n_field], into[mean_field] = total, middle
        into[m2_field] = np.add.reduceat(records[m2_field] + n * apart**2, starts)


def _quotient(above: Vector, below: Vector) -> Vector:
    """Divide; nothing by nothing is zero here."""
    return np.divide(above, below, out=np.zeros(len(below)), where=below != 0)


@dataclass(frozen=True)
class Edge(AggregatePart):
    """The first or the last number to arrive, null or not."""

    column: str
    last: bool
    ignore_nulls: bool
    dtype: np.dtype[Any]

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        what = f"{'last' if self.last else 'first'}{' not null' if self.ignore_nulls else ''} {self.column}"
        return (
            Field(what, self.dtype),
            Field(f"{what} arrival", INT64, -1 if self.last else _INT64_MAX),
            Field(f"{what} flag", _FLAG, UNSEEN),
        )

    def add(self, records: Records, rows: GroupedRows) -> None:
        values, valid = rows.numbers(self.column)
        chosen = np.arange(len(values))
        if self.ignore_nulls and valid is not None:
            chosen = chosen[valid]
        edge = np.full(rows.count, -1)
        backwards = chosen if self.last else chosen[::-1]
        edge[rows.groups[backwards]] = backwards  # of several for one place, the last one stays
        value, arrival, flag = (field.name for field in self.fields)
        wanted = np.flatnonzero((edge >= 0) & (self.last | (records[flag] == UNSEEN)))
        row = edge[wanted]
        records[value][wanted] = values[row]
        records[arrival][wanted] = rows.arrivals[row]
        records[flag][wanted] = SEEN if valid is None else np.where(valid[row], SEEN, NULL)

    def combine(self, into: Records, records: Records, starts: Starts) -> None:
        value, arrival, flag = (field.name for field in self.fields)
        edge = (np.maximum if self.last else np.minimum).reduceat(records[arrival], starts)
        run = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(records)))
        at = np.flatnonzero((records[arrival] == edge[run]) & (records[flag] != UNSEEN))
        for name in (value, arrival, flag):
            into[name][run[at]] = records[name][at]


def record_dtype(parts: Sequence[AggregatePart], first: str) -> np.dtype[Any]:
    """Return what a record looks like: a number of 8 bytes, then the widest fields first, so that all are aligned."""
    fields = sorted((field for part in parts for field in part.fields), key=lambda field: -field.dtype.itemsize)
    names, formats = [field.name for field in fields], [field.dtype for field in fields]
    return np.dtype({"names": [first, *names], "formats": ["<u8", *formats]}, align=True)


def empty_records(parts: Sequence[AggregatePart], dtype: np.dtype[Any], count: int) -> Records:
    """Return records as they are before the first row."""
    records = np.zeros(count, dtype=dtype)
    for part in parts:
        for field in part.fields:
            if field.at_first != 0:
                records[field.name] = field.at_first
    return records
