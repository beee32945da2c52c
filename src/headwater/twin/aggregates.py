"""Aggregates as Spark's own functions.

Sessions are an exception: Spark sorts the rows of a key by time before it merges them, so what depends on the order of
arrival is computed from a row's place in that order.
"""

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf

from headwater.operators.windows.window_specs import Aggregate
from headwater.twin.columns import quoted

_ORDERED: Final = frozenset({"first", "last", "collect_list", "collect_set"})
_ACCURACY: Final = 10_000


def depends_on_order(aggregate: Aggregate) -> bool:
    """Whether the result depends on the order of the rows."""
    return aggregate.function in _ORDERED


def aggregate_column(aggregate: Aggregate, place: str | None = None) -> Column:
    """Return the aggregate over the rows in Spark's order, or in that of a column `place`."""
    column = sf.lit(1) if aggregate.column is None else quoted(aggregate.column)
    if place is not None and depends_on_order(aggregate):
        made = _by_place(aggregate, column, sf.col(place))
    else:
        made = _as_they_come(aggregate, column)
    return made.alias(aggregate.name)


def _as_they_come(aggregate: Aggregate, column: Column) -> Column:
    option = aggregate.option
    match aggregate.function:
        case "first":
            return sf.first(column, ignorenulls=_ignores_nulls(aggregate))
        case "last":
            return sf.last(column, ignorenulls=_ignores_nulls(aggregate))
        case "collect_set":
            return sf.array_distinct(sf.collect_list(column))  # Spark's collect_set has no order
        case "count_distinct":  # Spark's own is not for streams
            return sf.size(sf.array_distinct(sf.collect_list(column))).cast("long")
        case "approx_count_distinct":
            return sf.approx_count_distinct(column, option.get("rsd"))
        case "approx_percentile":
            wanted = option["percentage"]
            percentage = list(wanted) if isinstance(wanted, tuple) else wanted
            return sf.percentile_approx(column, percentage, option.get("accuracy", _ACCURACY))
    named: Callable[[Column], Column] = getattr(sf, aggregate.function)
    return named(column)


def _by_place(aggregate: Aggregate, column: Column, place: Column) -> Column:
    if aggregate.function in ("first", "last"):
        at = sf.when(column.isNotNull(), place) if _ignores_nulls(aggregate) else place
        return sf.min_by(column, at) if aggregate.function == "first" else sf.max_by(column, at)
    placed = sf.when(column.isNotNull(), sf.struct(place.alias("place"), column.alias("value")))
    values = sf.transform(sf.sort_array(sf.collect_list(placed)), lambda one: one["value"])
    return sf.array_distinct(values) if aggregate.function == "collect_set" else values


def _ignores_nulls(aggregate: Aggregate) -> bool:
    return bool(aggregate.option.get("ignorenulls", False))
