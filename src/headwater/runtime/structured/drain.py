"""From a query to one of Headwater's sinks: every micro-batch is collected in the driver and written there."""

from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from headwater.dataflow.connectors import SinkSpec
from headwater.operators.functions import table_to_batch
from headwater.runtime.structured.columns import conformed
from headwater.runtime.structured.streams import Stream

_WINDOW: Final = "window"


class Drain:
    """One sink, and the query that feeds it."""

    def __init__(self, name: str, spec: SinkSpec, stream: Stream) -> None:
        """Open the sink as for a new app."""
        self.name = name
        self.rows = 0
        self.batches = 0
        self.error: Exception | None = None  # as it was raised here; Spark gives back its text only
        self._stream = stream
        self._writer = spec.open(None)

    def start(self, checkpoint: Path, trigger_s: float) -> StreamingQuery:
        """Start the query."""
        writer = self._stream.frame.writeStream.outputMode("append").option("checkpointLocation", str(checkpoint))
        if trigger_s:
            writer = writer.trigger(processingTime=f"{trigger_s} seconds")
        return writer.foreachBatch(self._write).start()

    def close(self) -> None:
        """Finish what is open."""
        self._writer.close()

    def _write(self, frame: DataFrame, number: int) -> None:
        try:
            batch = table_to_batch(frame.toArrow())
            if batch.num_rows:
                self._writer.write([conformed(in_order(batch), self._stream.schema)])
        except Exception as failure:
            self.error = failure
            raise
        self.rows += batch.num_rows
        self.batches += 1


def in_order(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return windows that became final together in the order of their ends; Spark gives them in any order."""
    place = batch.schema.get_field_index(_WINDOW)
    if place < 0 or not _is_window(batch.schema.field(place).type):
        return batch
    start, end = batch.column(place).flatten()
    times = pa.RecordBatch.from_arrays([end, start], names=["end", "start"])
    return batch.take(pc.sort_indices(times, sort_keys=[("end", "ascending"), ("start", "ascending")]))


def _is_window(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) and [one.name for one in kind] == ["start", "end"]
