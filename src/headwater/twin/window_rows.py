"""Results of all rows of a window together: a function of the user's, or a ranking.

Spark collects the rows, with their places in the order of arrival, and they are processed when the window is final.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from headwater.operators.functions import Form, call_for_rows, to_batch
from headwater.operators.windows.windows import SessionWindow, TimeWindow, WindowApply, WindowOperator, WindowTopK
from headwater.twin.columns import conformed, quoted, spark_form
from headwater.twin.places import with_places
from headwater.twin.stateless import Chained
from headwater.twin.streams import Site, TwinStream, computed

_ROWS: Final = "rows"

Grouped = Callable[[TwinStream, WindowOperator, list[Column]], DataFrame]


def over_rows(site: Site, operator: WindowOperator, grouped: Grouped) -> TwinStream:
    """Return the result for every window and key."""
    rows = site.inputs[0]
    placed = with_places(rows, site.where)
    columns = [quoted(name).alias(f"c{at}") for at, name in enumerate(placed.schema.names)]
    frame = grouped(placed, operator, [sf.collect_list(sf.struct(*columns)).alias(_ROWS)])
    form = spark_form(placed.schema, site.where)
    gathered = pa.field(_ROWS, pa.list_(pa.struct([one.with_name(f"c{at}") for at, one in enumerate(form)])))
    head = pa.schema(
        [_window_field(rows.schema, operator), *(rows.schema.field(name) for name in operator.key_columns)]
    )
    chained = site.chained()
    step = _WindowStep(operator, head, rows.schema, chained)
    return computed(frame, pa.schema([*head, gathered]), site.where).mapped(step, chained.made, site.where)


def _window_field(schema: pa.Schema, operator: WindowOperator) -> pa.Field:
    window = operator.window
    assert isinstance(window, TimeWindow | SessionWindow)
    assert window.time is not None, "windows of the clock are refused"
    instant = pa.timestamp("us", schema.field(window.time).type.tz)
    return pa.field("window", pa.struct([("start", instant), ("end", instant)]))


@dataclass(frozen=True)
class _WindowStep:
    """Computes the result for the rows of every window."""

    operator: WindowOperator
    head: pa.Schema  # window and key
    schema: pa.Schema  # of the rows
    chained: Chained

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the result of each window."""
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
        order = pc.sort_indices(columns[-1])
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
    """Return the rows with window and key before the other columns."""
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
