"""Aggregates over the rows of a window: what each has to remember, and the column that comes of it.

Nothing keeps the rows: every aggregate is computed as they come. Result types are Spark's.
"""

from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import accumulate, chain
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.operators.columns.vectors import Vector, from_numbers, numbers_inside
from headwater.operators.functions import WrongResult
from headwater.operators.windows import sketches
from headwater.operators.windows.object_parts import (
    EXACTLY,
    Collected,
    DecimalSum,
    DistinctPart,
    EdgeObject,
    ExtremeObject,
    ObjectPart,
)
from headwater.operators.windows.packed_parts import (
    SEEN,
    AggregatePart,
    Count,
    Edge,
    Extreme,
    FloatSum,
    IntSum,
    Moments,
    Records,
)
from headwater.operators.windows.window_specs import Aggregate

_DIGITS: Final = 38  # of Spark's decimals


class FoundContents(NamedTuple):
    """What was remembered about groups: numbers in records, and for each other part its bytes."""

    records: Records
    objects: dict[ObjectPart, Sequence[bytes]]

    def numbers(self, part: AggregatePart, field: int = 0) -> Vector:
        """Return one number of each record."""
        return self.records[part.fields[field].name]

    def values(self, part: ObjectPart) -> list[Any]:
        """Return the values of a part that is not numbers."""
        return [part.value(kept) for kept in self.objects[part]]


class Result(NamedTuple):
    """An aggregate over a column of a known type: what it has to remember, its type, and how its column is made."""

    parts: tuple[AggregatePart | ObjectPart, ...]
    type: pa.DataType
    column: Callable[[FoundContents], pa.Array]


def result_of(aggregate: Aggregate, schema: pa.Schema) -> Result:
    """Return how an aggregate is computed over rows with these columns; refuse types that it cannot take."""
    if aggregate.column is None or aggregate.function == "count":
        count = Count(aggregate.column)
        return Result((count,), pa.int64(), lambda found: pa.array(found.numbers(count)))
    kind = schema.field(aggregate.column).type
    made = _RESULTS[aggregate.function](aggregate, aggregate.column, kind)
    if made is None:
        raise WrongResult(f"{aggregate.function} cannot be computed over column {aggregate.column!r}, a {kind}")
    return made


def _sum(_: Aggregate, column: str, kind: pa.DataType) -> Result | None:
    if pa.types.is_decimal(kind):
        return _decimal_sum(column, kind)
    if not (_is_number(kind) or pa.types.is_null(kind)):
        return None
    if pa.types.is_null(kind):
        return _nothing(column, pa.float64())
    total: AggregatePart = IntSum(column) if pa.types.is_integer(kind) else FloatSum(column)
    count, made = Count(column), pa.int64() if pa.types.is_integer(kind) else pa.float64()
    return Result(
        (total, count), made, lambda found: from_numbers(found.numbers(total), found.numbers(count) == 0, made)
    )


def _decimal_sum(column: str, kind: pa.DataType) -> Result:
    total, made = DecimalSum(column), _decimal(kind.precision + 10, kind.scale)
    return Result((total,), made, lambda found: _decimals(column, found.values(total), made))


def _decimal(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(min(precision, _DIGITS), min(scale, _DIGITS))


def _decimals(column: str, values: Sequence[Decimal | None], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, type=kind)
    except pa.ArrowException:
        raise WrongResult(f"a result over column {column!r} exceeds {kind}; make it a double first") from None


def _average(_: Aggregate, column: str, kind: pa.DataType) -> Result | None:
    if pa.types.is_null(kind):
        return _nothing(column, pa.float64())
    if pa.types.is_decimal(kind):
        return _decimal_average(column, kind)
    if not _is_number(kind):
        return None
    total, count = FloatSum(column), Count(column)
    return Result((total, count), pa.float64(), lambda found: _ratio(found.numbers(total), found.numbers(count)))


def _ratio(above: Vector, below: Vector) -> pa.Array:
    missing = below <= 0
    with np.errstate(invalid="ignore"):
        return pa.array(above / np.where(missing, 1, below), mask=missing)


def _decimal_average(column: str, kind: pa.DataType) -> Result:
    total, count = DecimalSum(column), Count(column)
    made = _decimal(kind.precision + 4, kind.scale + 4)

    def averages(found: FoundContents) -> pa.Array:
        pairs = zip(found.values(total), found.numbers(count).tolist(), strict=True)
        return _decimals(column, [None if one is None else _quotient(one, n, made.scale) for one, n in pairs], made)

    return Result((total, count), made, averages)


def _quotient(total: Decimal, count: int, scale: int) -> Decimal:
    """Divide as Spark does: to 38 places first, then to the wanted ones, halves always up."""
    exact = EXACTLY.quantize(EXACTLY.divide(total, Decimal(count)), Decimal((0, (1,), -_DIGITS)))
    return EXACTLY.quantize(exact, Decimal((0, (1,), -scale)))


def _variance(aggregate: Aggregate, column: str, kind: pa.DataType) -> Result | None:
    if pa.types.is_null(kind):
        return _nothing(column, pa.float64())
    if not (_is_number(kind) or pa.types.is_decimal(kind)):
        return None
    moments, less = Moments(column), 1 if aggregate.function.endswith("_samp") else 0

    def spread(found: FoundContents) -> pa.Array:
        variance = _ratio(found.numbers(moments, 2), found.numbers(moments, 0) - less)
        return pc.sqrt(variance) if aggregate.function.startswith("stddev") else variance

    return Result((moments,), pa.float64(), spread)


def _extreme(aggregate: Aggregate, column: str, kind: pa.DataType) -> Result | None:
    largest, inside = aggregate.function == "max", numbers_inside(kind)
    if pa.types.is_null(kind):
        return _nothing(column, kind)
    if inside is not None:
        extreme, count = Extreme(column, largest, np.dtype(inside.to_pandas_dtype())), Count(column)
        return Result(
            (extreme, count), kind, lambda found: from_numbers(found.numbers(extreme), found.numbers(count) == 0, kind)
        )
    if pa.types.is_nested(kind) or pa.types.is_interval(kind):
        return None
    best = ExtremeObject(column, largest)
    return Result((best,), kind, lambda found: pa.array(found.values(best), type=kind))


def _edge(aggregate: Aggregate, column: str, kind: pa.DataType) -> Result | None:
    last, inside = aggregate.function == "last", numbers_inside(kind)
    ignore_nulls = bool(aggregate.option.get("ignorenulls", False))
    if pa.types.is_null(kind):
        return _nothing(column, kind)
    if inside is None:
        edge = EdgeObject(column, last, ignore_nulls)
        return Result((edge,), kind, lambda found: pa.array(found.values(edge), type=kind))
    packed = Edge(column, last, ignore_nulls, np.dtype(inside.to_pandas_dtype()))
    return Result(
        (packed,), kind, lambda found: from_numbers(found.numbers(packed), found.numbers(packed, 2) != SEEN, kind)
    )


def _count_distinct(aggregate: Aggregate, column: str, kind: pa.DataType) -> Result | None:
    if pa.types.is_nested(kind):
        return None
    sketch = sketches.DistinctSketch(column, float(aggregate.option.get("rsd", sketches.RSD)))
    return Result((sketch,), pa.int64(), lambda found: pa.array(found.values(sketch), type=pa.int64()))


def _percentile(aggregate: Aggregate, column: str, kind: pa.DataType) -> Result | None:
    wanted = aggregate.option["percentage"]
    made = pa.list_(kind) if isinstance(wanted, tuple) else kind
    if pa.types.is_null(kind):
        return _nothing(column, made)
    inside = numbers_inside(kind)
    if (inside is None and not pa.types.is_decimal(kind)) or pa.types.is_boolean(kind):
        return None
    sketch = sketches.QuantileSketch(column, int(aggregate.option.get("accuracy", sketches.ACCURACY)))

    def one_each(found: FoundContents) -> pa.Array:
        filled = found.values(sketch)
        values = [None if one is None else one.get_quantile(wanted, True) for one in filled]
        return _from_floats(pa.array(values, pa.float64()), kind)

    def many_each(found: FoundContents) -> pa.Array:
        lists = [None if one is None else one.get_quantiles(list(wanted), True) for one in found.values(sketch)]
        flat = pa.array(list(chain.from_iterable(filter(None, lists))), pa.float64())
        return _lists_of([None if one is None else len(one) for one in lists], _from_floats(flat, kind), made)

    return Result((sketch,), made, many_each if isinstance(wanted, tuple) else one_each)


def _from_floats(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return doubles that stand for values of a type as that type."""
    inside = numbers_inside(kind)
    if inside is None:
        return values.cast(kind, safe=False)
    numbers = values.cast(inside, safe=False)
    return numbers.view(kind) if pa.types.is_temporal(kind) else numbers


def _collect(aggregate: Aggregate, column: str, kind: pa.DataType) -> Result:
    part: ObjectPart = Collected(column) if aggregate.function == "collect_list" else DistinctPart(column)
    made = pa.list_(kind)

    def lists(found: FoundContents) -> pa.Array:
        values = found.values(part)
        flat = list(chain.from_iterable(values))
        inside = numbers_inside(kind) if pa.types.is_temporal(kind) else None
        listed = pa.array(flat, type=kind) if inside is None else pa.array(flat, type=inside).view(kind)
        return _lists_of([len(one) for one in values], listed, made)

    return Result((part,), made, lists)


def _lists_of(lengths: Sequence[int | None], values: pa.Array, kind: pa.DataType) -> pa.Array:
    offsets = list(accumulate((length or 0 for length in lengths), initial=0))
    missing = pa.array([length is None for length in lengths], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=kind, mask=missing)


def _nothing(column: str, kind: pa.DataType) -> Result:
    """Return the aggregate of a column that has had nothing but nulls so far, and so no type of its own."""
    return Result((Count(column),), kind, lambda found: pa.nulls(len(found.records), kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


_RESULTS: Final[dict[str, Callable[[Aggregate, str, pa.DataType], Result | None]]] = {
    "sum": _sum,
    "avg": _average,
    "min": _extreme,
    "max": _extreme,
    "first": _edge,
    "last": _edge,
    "var_samp": _variance,
    "var_pop": _variance,
    "stddev_samp": _variance,
    "stddev_pop": _variance,
    "approx_count_distinct": _count_distinct,
    "approx_percentile": _percentile,
    "collect_list": _collect,
    "collect_set": _collect,
}
