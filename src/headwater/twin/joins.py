"""Joins: of two streams as Spark's stream-stream joins, of a stream and a table as its stream-static join."""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from headwater.operators.enriching import Enrich
from headwater.operators.joins.interval_join import IntervalJoin
from headwater.operators.joins.joining import StreamJoin, free_name
from headwater.operators.joins.window_join import WindowJoin
from headwater.twin.columns import spark_form, table_in
from headwater.twin.streams import EVENT_TIME, Site, TwinStream, computed
from headwater.twin.windows import window_column

_MATCHES: Final = "matches"
_PLACE: Final = "place"
_HOW: Final = {"inner": "inner", "left": "left_outer", "full": "full_outer"}


def joined(site: Site) -> TwinStream:
    """Return the pairs of two streams: window, key, the other columns of the left, then those of the right."""
    operator = site.operator
    assert isinstance(operator, StreamJoin)
    left = _side(site.inputs[0], operator, 0)
    right = _side(site.inputs[1], operator, 1)
    keys = [
        (_place(site.inputs[0], 0, here), _place(site.inputs[1], 1, there))
        for here, there in zip(operator.left_key, operator.right_key, strict=True)
    ]
    condition = _in_time(operator) & (sf.col("lonely0") == sf.col("lonely1"))
    for here, there in keys:
        condition &= sf.col(here) == sf.col(there)
    both = left.join(right, condition, _HOW[operator.how])
    columns = [sf.coalesce(sf.col(here), sf.col(there)) for here, there in keys]
    if isinstance(operator, WindowJoin):
        columns.insert(0, sf.coalesce(sf.col("time0"), sf.col("time1")))
    columns += [sf.col(name) for name in _others(site.inputs[0], operator.left_key, 0)]
    columns += [sf.col(name) for name in _others(site.inputs[1], operator.right_key, 1)]
    return computed(both.select(*columns), site.schema, site.where)


def _side(rows: TwinStream, operator: StreamJoin, source: int) -> DataFrame:
    """Return the columns of one side under unique names, with the window or the event time.

    A null in a key equals nothing. In a full outer join of streams Spark pairs such rows nevertheless, so on each side
    they get a number that the other side does not have.
    """
    timed = rows.with_event_time(operator.time_of(source))
    time = window_column(operator.window) if isinstance(operator, WindowJoin) else sf.col(EVENT_TIME)
    names = [f"side{source}_{at}" for at in range(len(rows.schema))]
    lacks_key = sf.lit(False)
    for name in operator.key_of(source):
        lacks_key |= sf.col(_place(rows, source, name)).isNull()
    lonely = sf.when(lacks_key, sf.lit(1 + source)).otherwise(sf.lit(0))
    return timed.toDF(*names, EVENT_TIME).select(time.alias(f"time{source}"), lonely.alias(f"lonely{source}"), *names)


def _place(rows: TwinStream, source: int, name: str) -> str:
    return f"side{source}_{rows.schema.get_field_index(name)}"


def _others(rows: TwinStream, key: Sequence[str], source: int) -> list[str]:
    return [_place(rows, source, name) for name in rows.schema.names if name not in key]


def _in_time(operator: StreamJoin) -> Column:
    here, there = sf.col("time0"), sf.col("time1")
    if isinstance(operator, WindowJoin):
        return here == there
    assert isinstance(operator, IntervalJoin)
    return (there >= here + _interval(operator.lower_us)) & (there <= here + _interval(operator.upper_us))


def _interval(duration_us: int) -> Column:
    return sf.expr(f"INTERVAL '{duration_us}' MICROSECOND")


def enriched(site: Site, now_us: int) -> TwinStream:
    """Return every row with the columns that a table has for its key."""
    operator, rows = site.operator, site.inputs[0]
    assert isinstance(operator, Enrich)
    table = operator.table.load(now_us)
    names = [name for name in (operator.columns or table.column_names) if name not in operator.right_on]
    kept = table.select([*operator.right_on, *names])
    plain = rows.frame.toDF(*(f"row{at}" for at in range(len(rows.schema))))
    condition = sf.lit(True)
    for at, name in enumerate(operator.left_on):
        condition &= sf.col(f"row{rows.schema.get_field_index(name)}") == sf.col(f"table{at}")
    both = plain.join(sf.broadcast(_by_key(site, kept, len(operator.right_on))), condition, _HOW[operator.how])
    found = both.select(*plain.columns, sf.explode_outer(_MATCHES).alias(_MATCHES))
    looked_up = [sf.col(_MATCHES)[f"table{len(operator.right_on) + at}"] for at in range(len(names))]
    taken = set(rows.schema.names)
    added = [kept.schema.field(name).with_name(free_name(name, operator.suffix, taken)) for name in names]
    return computed(found.select(*plain.columns, *looked_up), pa.schema([*rows.schema, *added]), site.where)


def _by_key(site: Site, table: pa.Table, keys: int) -> DataFrame:
    """Return a row per key, with all the table's rows for it, in order; a plain join would reverse them."""
    form = spark_form(table.schema, f"the table of {site.where}")
    names = [f"table{at}" for at in range(len(form))]
    plain = (
        table_in(table, form).rename_columns(names).append_column(_PLACE, pa.array(range(table.num_rows), pa.int64()))
    )
    in_order = sf.sort_array(sf.collect_list(sf.struct(_PLACE, *names[keys:])))
    return site.session.createDataFrame(plain).groupBy(*names[:keys]).agg(in_order.alias(_MATCHES))
