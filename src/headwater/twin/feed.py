"""From Headwater's sources to files that Spark reads: every file is one micro-batch.

A feeder reads a source as a node would and writes its rows as numbered Parquet files into a folder that a query
watches. Spark takes files in the order of their modification times, so these increase. Its progress tells how many
files it has taken: while it is behind, rows are gathered into larger files, and in the end the source has to wait;
files that every query has read are deleted.
"""

import logging
import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.connectors.times import in_one_zone
from headwater.dataflow.connectors import Ended, Idle, Rows, SourceSpec
from headwater.model.errors import FlowError, SchemaMismatch
from headwater.model.time import SECOND
from headwater.operators.chain import unite
from headwater.operators.watermarks import OperatorTime, WithWatermark
from headwater.twin.columns import aligned, conformed, spark_form

log = logging.getLogger(__name__)

SAMPLE_ROWS: Final = 1_000  # read ahead if the columns must be inferred
FILES_AHEAD: Final = 16  # unread by Spark; with more the source waits
REST_S: Final = 0.02
_MILLISECOND_NS: Final = 1_000_000  # file times are compared in milliseconds


class Feeder:
    """Reads one source into files."""

    def __init__(
        self, name: str, spec: SourceSpec, directory: Path, *, file_rows: int, cut: WithWatermark | None, gather: bool
    ) -> None:
        """Open the source; `cut` starts a new file before each row that is late for this watermark."""
        self.name = name
        self.spec = spec
        self.directory = directory
        self.rows = 0
        self.staged = 0
        self.consumed = 0  # files that every query has read; set from outside
        self.has_ended = False
        self._file_rows = file_rows
        self._gather = gather
        self._cut = None if cut is None else cut.open()
        self._cut_time = OperatorTime()
        self._schema = spec.schema
        self._form: pa.Schema | None = None
        self._ahead: deque[pa.RecordBatch] = deque()  # read to find out the columns, and not staged yet
        self._parts: deque[pa.RecordBatch] = deque()  # of a batch, one file each
        self._sampled = False
        self._over = False
        self._pending: list[pa.RecordBatch] = []
        self._latest_ns = 0
        self._forgotten = 0
        directory.mkdir(parents=True)
        self._reader = spec.open(None)

    def schema(self, is_wanted: Callable[[], bool]) -> pa.Schema:
        """Return the columns of the source, as declared or as the first rows have them."""
        if self._schema is None:
            first = self.first(is_wanted)
            if first is None:
                raise FlowError(
                    f"source {self.name!r} has {'no' if self._over else 'given no'} rows and declares no schema=; "
                    "Structured Streaming must know the columns before it starts"
                )
            self._schema = first.schema
        return self._schema

    def first(self, is_wanted: Callable[[], bool]) -> pa.RecordBatch | None:
        """Return the first rows, waiting while they are wanted; None if there are none."""
        if not self._sampled:
            self._sample(is_wanted)
            self._sampled = True
        return unite(in_one_zone(self._ahead)) if self._ahead else None

    def _sample(self, is_wanted: Callable[[], bool]) -> None:
        rows = 0
        while rows < SAMPLE_ROWS and is_wanted():
            now_us = _now_us()
            match self._reader.poll(self._file_rows, now_us):
                case Rows(batch=batch):
                    if batch.num_rows:
                        self._ahead.append(batch)
                        rows += batch.num_rows
                case Idle(until_us=until_us):
                    if rows:
                        return
                    time.sleep(_rest_s(until_us, now_us))
                case Ended():
                    self._over = True
                    return

    def turn(self) -> float:
        """Move some rows from the source to at most one file; return how long to rest before the next turn."""
        self._forget()
        if self._unread >= FILES_AHEAD:
            return REST_S
        if self._parts:
            self._stage(self._parts.popleft())
            return 0.0
        if self._ahead:
            self._take(self._ahead.popleft())
            return 0.0
        if self._over:
            return self._end()
        now_us = _now_us()
        match self._reader.poll(self._file_rows, now_us):
            case Rows(batch=batch):
                self._take(batch)
                return 0.0
            case Idle(until_us=until_us):
                if self._unread < 2:
                    self._stage_pending()
                return _rest_s(until_us, now_us)
            case Ended():
                self._over = True
        return 0.0

    def close(self) -> None:
        self._reader.close()

    @property
    def is_consumed(self) -> bool:
        """Whether the source has ended and every query has read all of it."""
        return self.has_ended and self.consumed >= self.staged

    @property
    def _unread(self) -> int:
        return self.staged - self.consumed

    def _end(self) -> float:
        self._stage_pending()
        self.has_ended = True
        return 0.0

    def _take(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        self.rows += batch.num_rows
        if not self._gather:
            self._parts.extend(self._parted(batch))
            return
        self._pending.append(batch)
        if self._unread == 0 or sum(rows.num_rows for rows in self._pending) >= self._file_rows:
            self._stage_pending()

    def _parted(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Split the rows before each late one, so that Spark finds it late too."""
        if self._cut is None:
            return [batch]
        stretches = self._cut.stretches(batch, self._cut_time, 0)
        return [stretch.rows for stretch in stretches if stretch.rows is not None and stretch.rows.num_rows]

    def _stage_pending(self) -> None:
        if self._pending:
            self._stage(unite(in_one_zone(self._pending)))
            self._pending.clear()

    def _stage(self, batch: pa.RecordBatch) -> None:
        """Write a file under a hidden name, then rename it."""
        hidden = self.directory / f"_{self.staged:09}.parquet"
        pq.write_table(pa.Table.from_batches([self._in_form(batch)]), hidden)
        self._latest_ns = max(time.time_ns(), self._latest_ns + _MILLISECOND_NS)
        os.utime(hidden, ns=(self._latest_ns, self._latest_ns))
        hidden.rename(self._file(self.staged))
        self.staged += 1

    def _in_form(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        assert self._schema is not None, "rows were staged before their columns were known"
        if self._form is None:
            form = spark_form(self._schema, f"source {self.name!r}")
            self._form = pa.schema([one.with_name(f"c{at}") for at, one in enumerate(form)])
        try:
            return conformed(aligned(batch, self._schema), self._form)
        except (ValueError, pa.ArrowException) as failure:
            raise SchemaMismatch(
                f"source {self.name!r}: rows do not have the columns of the first ones ({failure}); declare schema="
            ) from failure

    def _forget(self) -> None:
        """Delete what every query has read, but the last files, which Spark may still look at."""
        while self._forgotten < self.consumed - 2:
            self._file(self._forgotten).unlink()
            self._forgotten += 1

    def _file(self, number: int) -> Path:
        return self.directory / f"{number:09}.parquet"


def _now_us() -> int:
    return time.time_ns() // 1_000


def _rest_s(until_us: int, now_us: int) -> float:
    return min(max((until_us - now_us) / SECOND, 0.001), REST_S)
