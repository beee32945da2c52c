"""Watermarks, and the end of the input.

In Headwater a watermark rises to the end of time when its input ends, so that every window fires. Structured Streaming
has no end: the watermark stays where the last row has left it. So each `with_watermark` of the twin also reads a
second, tiny source, in which one row with an event time in the far future appears once all rows of its input have been
processed. It moves the watermark, and is dropped right after it.

How far depends on the reader: windows may end after the last year of Python's dates, while a stateful processor is told
the watermark and may make a date of it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as sf
from pyspark.sql.types import StructField, StructType

from headwater.dataflow.graph import Graph
from headwater.model.time import MILLISECOND
from headwater.operators.processors.processing import LAST_WATERMARK_MS, Process
from headwater.operators.watermarks import WithWatermark
from headwater.twin.columns import quoted, struct_of
from headwater.twin.paths import upstream
from headwater.twin.streams import EVENT_TIME, Site, TwinStream

_FAR_US: Final = 1 << 61  # the year 75,039: after all rows, and far from the limit of Spark's own times
_ROW: Final = pa.schema([("at", pa.timestamp("us", "UTC"))])
_FILE: Final = "end.parquet"


@dataclass(frozen=True)
class InputEnding:
    """Where a watermark learns that its input has ended."""

    directory: Path
    at_us: int  # the event time of the row that signals it

    def tell(self) -> None:
        """Signal that no row will follow."""
        hidden = self.directory / f"_{_FILE}"
        pq.write_table(pa.table({"at": [self.at_us]}, schema=_ROW), hidden)
        hidden.rename(self.directory / _FILE)


def endings_of(graph: Graph, directory: Path) -> dict[str, InputEnding]:
    """Return the ending of each watermark of a graph."""
    watched = {
        before.name
        for declared in graph.declarations
        if isinstance(declared.part, Process)
        for before in upstream(graph, declared.name)
    }
    return {
        one.name: InputEnding(
            directory / one.name,
            LAST_WATERMARK_MS * MILLISECOND + one.part.delay_us if one.name in watched else _FAR_US,
        )
        for one in graph.declarations
        if isinstance(one.part, WithWatermark)
    }


def watermarked(site: Site, ending: InputEnding) -> TwinStream:
    """Return the rows with a watermark, which also rises when the ending is signalled."""
    operator, rows = site.operator, site.inputs[0]
    assert isinstance(operator, WithWatermark)
    ending.directory.mkdir(parents=True, exist_ok=True)
    # Columns that a file lacks are null, and so are the rows' columns in the end's row. If nulls were written here,
    # Spark would foresee that a join finds no pair for that row, and drop the other side's rows of its micro-batch too.
    lacking = [StructField(f"lacking{at}", one.dataType) for at, one in enumerate(rows.frame.schema)]
    form = StructType([*lacking, *struct_of(_ROW)])
    ends = site.session.readStream.schema(form).parquet(str(ending.directory))
    timed = rows.frame.withColumn(EVENT_TIME, quoted(operator.column).cast("timestamp"))
    both = timed.union(ends)
    marked = both.withWatermark(EVENT_TIME, f"{operator.delay_us // MILLISECOND} milliseconds")
    is_row = sf.col(EVENT_TIME).isNull() | (sf.col(EVENT_TIME) < sf.timestamp_micros(sf.lit(ending.at_us)))
    # Spark moves filters from after a watermark to before it, and joins add filters of their own. Rows dropped there,
    # such as the end's, would not count for the watermark. It moves no filter whose value it cannot foresee.
    unforeseeable = sf.spark_partition_id() >= 0
    return TwinStream(marked.filter(is_row & unforeseeable).drop(EVENT_TIME), rows.schema)
