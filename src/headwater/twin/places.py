"""The place of every row in the order of arrival, where an operator of Spark's would lose it."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark import TaskContext

from headwater.twin.streams import TwinStream

PLACE: Final = "__place"

_PARTITIONS: Final = 1 << 12
_ROWS: Final = 1 << 28  # of one partition of a micro-batch


def with_places(rows: TwinStream, where: str) -> TwinStream:
    """Return the rows with one more column: micro-batch, partition and row as one number that rises."""
    return rows.mapped(_number, rows.schema.append(pa.field(PLACE, pa.int64())), where)


def _number(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None, "rows are numbered inside tasks only"
    number = int(context.getLocalProperty("streaming.sql.batchId") or 0)
    place = (number * _PARTITIONS + context.partitionId()) * _ROWS
    for batch in batches:
        places = pa.array(range(place, place + batch.num_rows), pa.int64())
        place += batch.num_rows
        names = [*batch.schema.names, f"c{batch.num_columns}"]
        yield pa.RecordBatch.from_arrays([*batch.columns, places], names=names)
