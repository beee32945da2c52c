"""Arrow columns as numpy sees them, and back: numbers, instants and booleans, apart from their nulls."""

from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.operators.functions import WrongResult
from headwater.operators.windows.panes import Instants

Vector = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

_NS: Final = "ns"


class Numbers(NamedTuple):
    """A column as numbers: anything at the places of nulls, and where there are none (None: nowhere is a null)."""

    values: Vector
    valid: Mask | None


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which the values of a column are kept: no dictionaries, and instants in microseconds."""
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    return pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else kind


def row_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which a column is kept as part of whole rows: as it is, but for dictionaries."""
    return row_type(kind.value_type) if pa.types.is_dictionary(kind) else kind


def plain(column: pa.Array) -> pa.Array:
    """Return the column in the type in which its values are kept; nanoseconds are cut off."""
    wanted = plain_type(column.type)
    if column.type == wanted:
        return column
    if pa.types.is_dictionary(column.type):
        return plain(column.cast(column.type.value_type))
    return column.cast(wanted, safe=column.type.unit != _NS)


def numbers_inside(kind: pa.DataType) -> pa.DataType | None:
    """Return the type of the numbers that the values of a (plain) type are inside; None if they are none."""
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return kind
    if pa.types.is_boolean(kind):
        return pa.uint8()
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return None


def to_numbers(column: pa.Array) -> Numbers:
    """Return the numbers inside a column."""
    kind, inside = column.type, numbers_inside(column.type)
    assert inside is not None, kind
    found = column if inside is kind else column.cast(inside) if pa.types.is_boolean(kind) else column.view(inside)
    if not found.null_count:
        return Numbers(found.to_numpy(zero_copy_only=False), None)
    valid = found.is_valid().to_numpy(zero_copy_only=False)
    return Numbers(found.fill_null(0).to_numpy(zero_copy_only=False), valid)


def from_numbers(values: Vector, missing: Mask | None, kind: pa.DataType) -> pa.Array:
    """Return a column of a type, made of the numbers inside it; null where they are missing."""
    if pa.types.is_boolean(kind):
        return pa.array(values.astype(np.bool_), mask=missing)
    made = pa.array(np.ascontiguousarray(values), mask=missing)
    return made.view(kind) if pa.types.is_temporal(kind) else made


def instants_of(name: str, column: pa.Array) -> Numbers:
    """Return the event times of rows in microseconds."""
    kind = column.type
    if pa.types.is_date(kind) or pa.types.is_null(kind):
        column = column.cast(pa.timestamp("us"))
    elif not pa.types.is_timestamp(kind):
        raise WrongResult(f"column {name!r} is a {kind} and cannot be the time of a window; make it a timestamp")
    try:
        return to_numbers(column if getattr(kind, "unit", None) == "us" else plain(column))
    except pa.ArrowInvalid:
        raise out_of_reach(name) from None


def out_of_reach(name: str) -> WrongResult:
    """Return the refusal of a time that cannot be reckoned with."""
    return WrongResult(f"column {name!r} has a time more than 70,000 years from now, which no window holds")


def window_type(time: pa.DataType | None) -> pa.DataType:
    """Return the type of a window's column, by the type of its time; None is the clock."""
    zone = "UTC" if time is None else getattr(time, "tz", None)
    instant = pa.timestamp("us", zone)
    return pa.struct([pa.field("start", instant), pa.field("end", instant)])


def window_column(starts: Instants, ends: Instants, kind: pa.DataType) -> pa.Array:
    """Return a column of windows."""
    instant = kind.field(0).type
    parts = [from_numbers(starts, None, instant), from_numbers(ends, None, instant)]
    return pa.StructArray.from_arrays(parts, fields=[kind.field(0), kind.field(1)])


class GroupedRows:
    """Rows, each of which belongs to one of `count` groups; their columns converted when asked for, and once."""

    def __init__(self, batch: pa.RecordBatch, groups: npt.NDArray[np.intp], count: int, arrivals: Instants) -> None:
        """Take rows, the group of each, and each one's place in the order of all arrivals."""
        self.batch = batch
        self.groups = groups
        self.count = count
        self.arrivals = arrivals
        self._numbers: dict[str, Numbers] = {}
        self._lists: dict[str, list[Any]] = {}

    def numbers(self, name: str) -> Numbers:
        """Return the numbers inside a column."""
        if name not in self._numbers:
            self._numbers[name] = to_numbers(self.batch.column(name))
        return self._numbers[name]

    def present(self, name: str) -> tuple[npt.NDArray[np.intp], Vector]:
        """Return the groups and the numbers of the rows in which the column is not null."""
        values, valid = self.numbers(name)
        return (self.groups, values) if valid is None else (self.groups[valid], values[valid])

    def floats(self, name: str) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float64]]:
        """Return the groups and the values as doubles of the rows in which the column is not null."""
        if pa.types.is_decimal(self.batch.column(name).type) and name not in self._numbers:
            self._numbers[name] = to_numbers(self.batch.column(name).cast(pa.float64()))
        groups, values = self.present(name)
        return groups, values.astype(np.float64, copy=False)

    def listed(self, name: str) -> list[Any]:
        """Return the values of a column as Python's; instants as the numbers inside them."""
        if name not in self._lists:
            column = self.batch.column(name)
            raw = column.view(numbers_inside(column.type)) if pa.types.is_temporal(column.type) else column
            self._lists[name] = raw.to_pylist()
        return self._lists[name]

    @cached_property
    def sizes(self) -> npt.NDArray[np.int64]:
        """How many rows each group has."""
        return np.bincount(self.groups, minlength=self.count)

    def sizes_of(self, name: str | None) -> npt.NDArray[np.int64]:
        """Return in how many rows of each group the column is not null."""
        column = None if name is None else self.batch.column(name)
        if column is None or not column.null_count:
            return self.sizes
        if pa.types.is_null(column.type):
            return np.zeros(self.count, dtype=np.int64)
        valid = pc.is_valid(column).to_numpy(zero_copy_only=False)
        return np.bincount(self.groups[valid], minlength=self.count)

    @cached_property
    def in_groups(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """The rows in order of group, within a group as they came, and where each group begins."""
        return np.argsort(self.groups, kind="stable"), np.cumsum(self.sizes) - self.sizes
