"""The place of every row in the order of arrival, where an operator of Spark's would lose it.

Micro-batch, partition and row share one number of 63 bits. Beyond its share each would give rows the places of others,
and what depends on their order would be wrong without a word, so that ends the query.
"""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark import TaskContext

from headwater.model.errors import EngineError
from headwater.twin.streams import TwinStream

PLACE: Final = "__place"

MICRO_BATCHES_MAX: Final = 1 << 29  # three years of five a second
PARTITIONS_MAX: Final = 1 << 12
ROWS_MAX: Final = 1 << 22  # of one partition of a micro-batch, which reads one file, or some


def with_places(rows: TwinStream, where: str) -> TwinStream:
    """Return the rows with one more column: micro-batch, partition and row as one number that rises."""
    return rows.mapped(_number, rows.schema.append(pa.field(PLACE, pa.int64())), where)


def _number(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None, "rows are numbered inside tasks only"
    micro_batch = int(context.getLocalProperty("streaming.sql.batchId") or 0)
    return numbered(batches, micro_batch, context.partitionId())


def numbered(batches: Iterator[pa.RecordBatch], micro_batch: int, partition: int) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a partition with their places; raises EngineError if there is no number for one."""
    _check(micro_batch < MICRO_BATCHES_MAX, f"{MICRO_BATCHES_MAX} micro-batches; start it afresh")
    _check(partition < PARTITIONS_MAX, f"{PARTITIONS_MAX} partitions; set spark.sql.shuffle.partitions to fewer")
    begin = place = (micro_batch * PARTITIONS_MAX + partition) * ROWS_MAX
    for batch in batches:
        too_many = f"{ROWS_MAX} rows in one partition of a micro-batch; let it read fewer at a time"
        _check(place + batch.num_rows <= begin + ROWS_MAX, too_many)
        places = pa.array(range(place, place + batch.num_rows), pa.int64())
        place += batch.num_rows
        names = [*batch.schema.names, f"c{batch.num_columns}"]
        yield pa.RecordBatch.from_arrays([*batch.columns, places], names=names)


def _check(is_within: bool, limit: str) -> None:
    if not is_within:
        raise EngineError(f"the order of rows cannot be kept on Structured Streaming beyond {limit}")
