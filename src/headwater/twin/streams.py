"""A stream of the twin: a streaming DataFrame, with the schema that Headwater has for its rows.

A `Site` is a vertex of the graph with what is needed to make it a stream: its operator, the wanted port, and its input
streams.
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

EVENT_TIME: Final = "__event_time"  # an additional column, while an operator needs it

# The metadata of the column that Spark compares with the watermark. `withWatermark` sets it, and whatever makes new
# columns, such as mapInArrow, loses it; the watermark itself is passed on through the plan.
_WATERMARKED: Final = "spark.watermarkDelayMs"

ArrowStep = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]  # runs in a task, on rows in Spark form


@dataclass(frozen=True)
class TwinStream:
    """A stream of rows. The frame has the columns of the schema, in Spark form."""

    frame: DataFrame
    schema: pa.Schema

    def mapped(self, step: ArrowStep, schema: pa.Schema, where: str) -> "TwinStream":
        """Return the result of a function of the rows."""
        plain = self.frame.toDF(*(f"c{number}" for number in range(len(self.schema))))  # `a.b` would be a field
        return TwinStream(plain.mapInArrow(step, struct_of(spark_form(schema, where))), schema)

    def with_event_time(self, column: str, delay_ms: int = 0) -> DataFrame:
        """Return the rows that have an event time, in one more column, which Spark compares with the watermark."""
        marked = quoted(column).cast("timestamp").alias(EVENT_TIME, metadata={_WATERMARKED: delay_ms})
        return self.frame.withColumn(EVENT_TIME, marked).filter(sf.col(EVENT_TIME).isNotNull())

    def marked(self, column: str) -> DataFrame:
        """Return all rows, with one of their columns marked for comparison with the watermark."""
        event_time = quoted(column).cast("timestamp").alias(column, metadata={_WATERMARKED: 0})
        return self.frame.select(*(event_time if name == column else quoted(name) for name in self.schema.names))


def computed(frame: DataFrame, schema: pa.Schema | None, where: str) -> TwinStream:
    """Return columns that Spark has computed as a stream with Headwater's schema, cast if needed."""
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
    schema: pa.Schema | None  # of the output, if Headwater knows it
    trouble: TroubleBox
    chained: Callable[[], Chained]  # the operator alone, with its own logic

    @property
    def where(self) -> str:
        """The name of the vertex in errors."""
        return f"{self.operator.kind} {self.name!r}"
