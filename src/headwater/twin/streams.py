"""A stream of the twin: a streaming DataFrame, and what Headwater knows of its rows.

A `Site` is a vertex of the graph as those see it that turn it into a stream: its operator, the port wanted, the streams
it reads, and what they need to run it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema

from headwater.operators.base import Operator
from headwater.twin.columns import quoted, spark_form, struct_of
from headwater.twin.stateless import Chained
from headwater.twin.trouble import TroubleBox

EVENT_TIME: Final = "__event_time"  # beside the columns of the rows, as long as an operator needs it

# What Spark looks for on a column that it compares with the watermark. `withWatermark` puts it there, and whatever
# makes new columns, such as mapInArrow, loses it; the watermark itself goes on through the plan.
_WATERMARKED: Final = "spark.watermarkDelayMs"

ArrowStep = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]  # runs in a task, on rows in Spark form


@dataclass(frozen=True)
class TwinStream:
    """Rows on their way through the twin. The frame has the columns of the schema, in Spark form."""

    frame: DataFrame
    schema: pa.Schema

    def mapped(self, step: ArrowStep, schema: pa.Schema, where: str) -> "TwinStream":
        """Return what a function makes of the rows."""
        plain = self.frame.toDF(*(f"c{number}" for number in range(len(self.schema))))  # it reads `a.b` as b inside a
        return TwinStream(plain.mapInArrow(step, struct_of(spark_form(schema, where))), schema)

    def with_event_time(self, column: str, delay_ms: int = 0) -> DataFrame:
        """Return the rows that have an event time, in one more column, which Spark compares with the watermark."""
        marked = quoted(column).cast("timestamp").alias(EVENT_TIME, metadata={_WATERMARKED: delay_ms})
        return self.frame.withColumn(EVENT_TIME, marked).filter(sf.col(EVENT_TIME).isNotNull())

    def marked(self, column: str) -> DataFrame:
        """Return all rows, with a column of theirs marked as the one that Spark compares with the watermark."""
        event_time = quoted(column).cast("timestamp").alias(column, metadata={_WATERMARKED: 0})
        return self.frame.select(*(event_time if name == column else quoted(name) for name in self.schema.names))


def computed(frame: DataFrame, schema: pa.Schema | None, where: str) -> TwinStream:
    """Return columns that Spark computed as a stream with the schema that Headwater has there, cast where need be."""
    if schema is None:
        return TwinStream(frame, to_arrow_schema(frame.schema, timezone="UTC"))
    wanted = struct_of(spark_form(schema, where))
    columns = [sf.col(f"c{number}").cast(one.dataType).alias(one.name) for number, one in enumerate(wanted)]
    return TwinStream(frame.toDF(*(f"c{number}" for number in range(len(wanted)))).select(*columns), schema)


@dataclass(frozen=True)
class Site:
    """A vertex of the graph that is to become a stream."""

    session: SparkSession
    flow: str
    name: str
    operator: Operator
    port: str
    inputs: tuple[TwinStream, ...]
    schema: pa.Schema | None  # of what comes out, where Headwater knows it
    trouble: TroubleBox
    chained: Callable[[], Chained]  # the operator by itself, to be run as it is

    @property
    def where(self) -> str:
        """What an error calls it."""
        return f"{self.operator.kind} {self.name!r}"
