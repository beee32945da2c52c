"""A query and the sink it feeds: every micro-batch is collected in the driver and written by Headwater's own sink."""

import logging
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from headwater.dataflow.connectors import SinkSpec, resources_of
from headwater.model.errors import EngineError, FlowError
from headwater.operators.functions import table_to_batch
from headwater.storage.locks import Locks, this_process
from headwater.twin.columns import conformed
from headwater.twin.streams import TwinStream
from headwater.workers.clock import now_us

log = logging.getLogger(__name__)

REVIVALS_MAX: Final = 5
LOOK_S: Final = 0.05

_WINDOW: Final = "window"
_SEVERAL: Final = "spark.sql.streaming.statefulOperator.allowMultiple"
_RAISED: Final = re.compile(r"^(\w[\w.]*(?:Error|Exception): .*)$", re.MULTILINE)  # the last line of a traceback

# Spark starts a Python process for each start of a transformWithState and gives it ten seconds to connect, which a busy
# machine may exceed. No row has been processed by then, so the query can resume from its checkpoint.
_TOO_BUSY: Final = ("Python worker failed to connect back", "Timed out while waiting for the Python worker")


class SinkQuery:
    """One sink, and the query that feeds it."""

    def __init__(self, flow: str, name: str, spec: SinkSpec, stream: TwinStream, checkpoint: Path) -> None:
        """Lock the sink's target, and open it as for a new app."""
        self.name = name
        self.rows = 0
        self.batches = 0
        self._stream = stream
        self._checkpoint = checkpoint
        self._locks = Locks(resources_of(spec), this_process(f"sink {name!r} of flow {flow!r}", now_us()))
        try:
            self._writer = spec.open(None)
        except BaseException:
            self._locks.release()
            raise
        self._error: Exception | None = None  # as raised by the sink; Spark returns only its text
        self._query: StreamingQuery | None = None
        self._start: Callable[[], StreamingQuery] | None = None
        self._revivals = 0
        self._lock = threading.Lock()

    def start(self, *, trigger_s: float, at_once: bool) -> None:
        """Start the query; with `at_once` rows are judged by the watermark of the previous micro-batch.

        Spark can do that with one stateful operator only; with several, an operator's watermark is one step behind.
        """

        def start() -> StreamingQuery:
            frame = self._stream.frame
            frame.sparkSession.conf.set(_SEVERAL, "false" if at_once else "true")
            writer = frame.writeStream.outputMode("append").option("checkpointLocation", str(self._checkpoint))
            if trigger_s:
                writer = writer.trigger(processingTime=f"{trigger_s} seconds")
            return writer.foreachBatch(self._write).start()

        try:
            self._query, self._start = start(), start
        except PySparkException as failure:
            raise FlowError(
                f"sink {self.name!r} cannot run as Structured Streaming: {first_line(failure)}"
            ) from failure

    def stop(self) -> None:
        try:
            if self._query is not None:
                self._query.stop()
        except (PySparkException, Py4JError, OSError) as failure:
            log.warning("the query of sink %s did not stop in order: %s", self.name, failure)

    def close(self) -> None:
        """Close the sink."""
        try:
            self._writer.close()
        finally:
            self._locks.release()

    def failure(self) -> Exception | None:
        """Return the error that ended the query; one whose Python worker was too slow to start is started again."""
        if self._error is not None:
            return self._error
        with self._lock:
            assert self._query is not None, "a query was asked before it was started"
            failed = None if self._query.isActive else self._query.exception()
            if failed is None:
                return None
            if self._revivals >= REVIVALS_MAX or not any(told in str(failed) for told in _TOO_BUSY):
                return EngineError(f"the query of sink {self.name!r} failed: {_cause(failed)}")
            self._revivals += 1
            log.warning("the query of sink %s could not start its Python worker and starts again", self.name)
            assert self._start is not None
            self._query = self._start()
            return None

    def files_read(self, directory: Path) -> int:
        """Return how many files of a folder have been read, by the query's progress."""
        assert self._query is not None
        progress = self._query.lastProgress
        if progress is None:
            return 0
        found = [one.endOffset for one in progress.sources if one.description.endswith(f"{directory}]")]
        return min((_files(offset) for offset in found), default=0)

    def work_off(self, is_wanted: Callable[[], bool]) -> None:
        """Wait until everything is processed, including windows that have become final."""
        while is_wanted():
            query = self._query
            assert query is not None
            try:
                query.processAllAvailable()
                return
            except (PySparkException, Py4JError) as failure:
                log.debug("the query of sink %s ended while it was waited for: %s", self.name, failure)
            if self.failure() is not None:
                return
            time.sleep(LOOK_S)

    def _write(self, frame: DataFrame, number: int) -> None:
        batch = table_to_batch(frame.toArrow())
        try:
            if batch.num_rows:
                self._writer.write([conformed(in_order(batch), self._stream.schema)])
        except Exception as failure:  # a sink may raise anything; the run raises it again
            self._error = failure
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


def first_line(failure: Exception) -> str:
    """Return the first line of a message of Spark's."""
    return str(failure).strip().splitlines()[0]


def _is_window(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) and [one.name for one in kind] == ["start", "end"]


def _files(offset: str) -> int:
    told = orjson.loads(offset)
    return 0 if told is None else int(told["logOffset"]) + 1


def _cause(failure: Exception) -> str:
    """Return the Python exception in an error, or else the first line of Spark's message."""
    raised = _RAISED.findall(str(failure))
    return str(raised[-1]) if raised else first_line(failure)
