"""Watermarks, and the end of the input.

Headwater lets a watermark rise to the end of time when its input ends, so that every window fires. Structured Streaming
has no end: the watermark stays where the last row left it. So each `with_watermark` of the twin also reads a second,
tiny source, in which one row with an event time in the far future appears once all rows of its input are through. It
moves the watermark, and is dropped right behind it.

How far is a matter of who looks at it: windows may end after the last year that Python's dates can tell, while a
stateful processor is told the watermark and may make a date of it.
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

_FAR_US: Final = 1 << 61  # the year 75,039: behind all rows, and far enough from where Spark's own times run over
_ROW: Final = pa.schema([("at", pa.timestamp("us", "UTC"))])
_FILE: Final = "end.parquet"


@dataclass(frozen=True)
class InputEnding:
    """Where a watermark learns that its input has ended."""

    directory: Path
    at_us: int  # the event time of the row that says so

    def tell(self) -> None:
        """Say that no row will follow."""
        hidden = self.directory / f"_{_FILE}"
        pq.write_table(pa.table({"at": [self.at_us]}, schema=_ROW), hidden)
        hidden.rename(self.directory / _FILE)


def endings_of(graph: Graph, directory: Path) -> dict[str, InputEnding]:
    """Return how each watermark of a graph learns of the end."""
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
    """Return the rows with a watermark, which will also rise when the ending is told."""
    operator, rows = site.operator, site.inputs[0]
    assert isinstance(operator, WithWatermark)
    ending.directory.mkdir(parents=True, exist_ok=True)
    # The columns that the end lacks are null, as all are that a file lacks. Were they written as nulls here, Spark
    # would foresee that a join finds no pair for the end, and leave out the other side's rows of its micro-batch, too.
    lacking = [StructField(f"lacking{at}", one.dataType) for at, one in enumerate(rows.frame.schema)]
    form = StructType([*lacking, *struct_of(_ROW)])
    ends = site.session.readStream.schema(form).parquet(str(ending.directory))
    timed = rows.frame.withColumn(EVENT_TIME, quoted(operator.column).cast("timestamp"))
    both = timed.union(ends)
    marked = both.withWatermark(EVENT_TIME, f"{operator.delay_us // MILLISECOND} milliseconds")
    is_row = sf.col(EVENT_TIME).isNull() | (sf.col(EVENT_TIME) < sf.timestamp_micros(sf.lit(ending.at_us)))
    # Spark moves filters from behind a watermark to before it, and joins add filters of their own. Rows that it drops
    # there, the end among them, would not count for the watermark. It moves none past one that it cannot foresee.
    unforeseeable = sf.spark_partition_id() >= 0
    return TwinStream(marked.filter(is_row & unforeseeable).drop(EVENT_TIME), rows.schema)
