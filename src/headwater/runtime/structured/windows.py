"""Windows of event time, as Spark's own: `window` and `session_window`, in append mode.

Aggregates are Spark's functions. Where a function of the user's, or a ranking, needs the rows themselves, they are
collected natively, with their place in the order of arrival, and handed over when the window is final.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from headwater.operators.functions import Form, call_for_rows, to_batch
from headwater.operators.windows import (
    Aggregate,
    CountWindow,
    SessionWindow,
    TimeWindow,
    WindowAggregate,
    WindowApply,
    WindowOperator,
    WindowTopK,
)
from headwater.runtime.structured.columns import conformed, quoted, spark_form
from headwater.runtime.structured.keyed import per_key
from headwater.runtime.structured.stateless import Chained
from headwater.runtime.structured.streams import EVENT_TIME, Site, Stream, computed

WINDOW: Final = "window"
_PLACE: Final = "__place"
_ROWS: Final = "__rows"


def windowed(site: Site) -> Stream:
    """Return what a window operator yields."""
    operator = site.operator
    assert isinstance(operator, WindowOperator)
    if isinstance(operator.window, CountWindow):
        return per_key(site.inputs[0], operator.key_columns, site.chained())
    if isinstance(operator, WindowAggregate):
        frame = _grouped(site.inputs[0], operator, [aggregate_column(one) for one in operator.aggregates])
        return computed(frame, site.schema, site.where)
    return _over_rows(site, operator)


def window_column(window: TimeWindow | SessionWindow) -> Column:
    """Return the window of a row, made of its event time."""
    if isinstance(window, SessionWindow):
        return sf.session_window(EVENT_TIME, _micros(window.gap_us))
    size, slide, start = _micros(window.size_us), _micros(window.slide_us), _micros(window.offset_us)
    return sf.window(EVENT_TIME, size, slide, start)


def _micros(duration_us: int) -> str:
    return f"{duration_us} microseconds"


def aggregate_column(aggregate: Aggregate) -> Column:
    """Return Spark's own function for an aggregate."""
    column = sf.lit(1) if aggregate.column is None else quoted(aggregate.column)
    return _function(aggregate, column).alias(aggregate.name)


def _function(aggregate: Aggregate, column: Column) -> Column:
    option = aggregate.option
    named: Callable[..., Column] = getattr(sf, aggregate.function, sf.first)
    match aggregate.function:
        case "first" | "last":
            return named(column, ignorenulls=bool(option.get("ignorenulls", False)))
        case "approx_count_distinct":
            return sf.approx_count_distinct(column, option.get("rsd"))
        case "approx_percentile":
            wanted = option["percentage"]
            percentage = list(wanted) if isinstance(wanted, tuple) else wanted
            return sf.percentile_approx(column, percentage, option.get("accuracy", 10_000))
    return named(column)


def _grouped(rows: Stream, operator: WindowOperator, columns: list[Column]) -> DataFrame:
    """Return a row for each window and key: the window, the key, and these columns."""
    window = operator.window
    assert isinstance(window, TimeWindow | SessionWindow)
    assert window.time is not None, "windows of the clock are refused"
    keys = [quoted(name) for name in operator.key_columns]
    timed = rows.with_event_time(window.time).filter(sf.col(EVENT_TIME).isNotNull())
    grouped = timed.groupBy(window_column(window), *keys).agg(*columns)
    return grouped.withColumnRenamed("session_window", WINDOW) if isinstance(window, SessionWindow) else grouped


def _over_rows(site: Site, operator: WindowOperator) -> Stream:
    """Return what is made of all rows of a window and key together."""
    rows = site.inputs[0]
    placed = rows.schema.append(pa.field(_PLACE, pa.int64()))
    numbered = rows.mapped(_number, placed, site.where)
    names = [quoted(name).alias(f"c{number}") for number, name in enumerate(placed.names)]
    frame = _grouped(numbered, operator, [sf.collect_list(sf.struct(*names)).alias(_ROWS)])
    time = rows.schema.field(_time_of(operator)).type
    window = pa.field(WINDOW, pa.struct([("start", _instant(time)), ("end", _instant(time))]))
    keys = [rows.schema.field(name) for name in operator.key_columns]
    form = spark_form(placed, site.where)
    gathered = pa.field(_ROWS, pa.list_(pa.struct([one.with_name(f"c{at}") for at, one in enumerate(form)])))
    head = pa.schema([window, *keys])
    chained = site.chained()
    step = _WindowStep(operator, head, rows.schema, chained)
    return computed(frame, pa.schema([*head, gathered]), site.where).mapped(step, chained.made, site.where)


def _time_of(operator: WindowOperator) -> str:
    window = operator.window
    assert isinstance(window, TimeWindow | SessionWindow)
    assert window.time is not None
    return window.time


def _instant(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp("us", kind.tz)


def _number(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add the place of every row in the order of arrival: micro-batch, partition, row."""
    context = TaskContext.get()
    batch_number = int((context and context.getLocalProperty("streaming.sql.batchId")) or 0)
    partition = context.partitionId() if context else 0
    place = (batch_number << 40) + (partition << 28)
    for batch in batches:
        places = pa.array(range(place, place + batch.num_rows), pa.int64())
        place += batch.num_rows
        yield pa.RecordBatch.from_arrays([*batch.columns, places], names=[*batch.schema.names, f"c{batch.num_columns}"])


@dataclass(frozen=True)
class _WindowStep:
    """Hands the rows of every window to what is computed over them."""

    operator: WindowOperator
    head: pa.Schema  # window and key
    schema: pa.Schema  # of the rows
    chained: Chained

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return what comes out of each window."""
        form = spark_form(self.chained.made, self.operator.kind)
        with self.chained.trouble.watching():
            for batch in batches:
                head = conformed(batch.select(range(len(self.head))), self.head)
                contents = batch.column(len(self.head))
                for at in range(batch.num_rows):
                    made = self._of_window(head.slice(at, 1), contents[at].values)
                    if made.num_rows:
                        yield conformed(self.chained.fitting(made), form)

    def _of_window(self, head: pa.RecordBatch, gathered: pa.StructArray) -> pa.RecordBatch:
        columns = gathered.flatten()
        order = pa.compute.sort_indices(columns[-1])
        rows = pa.RecordBatch.from_arrays(columns[:-1], names=self.schema.names).take(order)
        rows = conformed(rows, self.schema)
        if isinstance(self.operator, WindowTopK):
            return _ranked(head, rows, self.operator)
        assert isinstance(self.operator, WindowApply)
        return _beside(head, self._applied(self.operator, rows))

    def _applied(self, operator: WindowApply, rows: pa.RecordBatch) -> pa.RecordBatch:
        with self.chained.blaming():
            if operator.form is Form.ROWS:
                return to_batch(operator.function(rows.to_pylist()), operator.schema)
            return call_for_rows(operator.function, operator.form, rows, operator.schema)


def _beside(head: pa.RecordBatch, made: pa.RecordBatch) -> pa.RecordBatch:
    """Return window and key in front of every row made."""
    repeated = head.take(pa.array([0] * made.num_rows, pa.int64()))
    names = [*head.schema.names, *made.schema.names]
    return pa.RecordBatch.from_arrays([*repeated.columns, *made.columns], names=names)


def _ranked(head: pa.RecordBatch, rows: pa.RecordBatch, operator: WindowTopK) -> pa.RecordBatch:
    """Return the best rows, each with its window and rank."""
    values = rows.column(operator.by).to_pylist()
    known = [at for at, value in enumerate(values) if value is not None]
    best = sorted(known, key=lambda at: _comparable(values[at]), reverse=operator.largest)
    best += [at for at, value in enumerate(values) if value is None]
    kept = rows.take(pa.array(best[: operator.k], pa.int64()))
    window = head.select([0]).take(pa.array([0] * kept.num_rows, pa.int64()))
    ranks = pa.array(range(1, kept.num_rows + 1), pa.int64())
    names = [*window.schema.names, *kept.schema.names, "rank"]
    return pa.RecordBatch.from_arrays([*window.columns, *kept.columns, ranks], names=names)


def _comparable(value: Any) -> tuple[bool, Any]:
    """NaN is larger than any number, as in Spark."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return is_nan, 0 if is_nan else value
