"""The central engine of the latency benchmark: the same flow as a query of Structured Streaming, in one place.

When a result comes out is noted by the sink. Which rows it may be of is known from Spark's own logs: which file each
micro-batch has read, when the file was written, and so which rows were read into it. Any row of a micro-batch may be
the one that caused its results, so the latencies of all of them count.
"""

import bisect
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.connectors.pacing import Pace
from headwater.connectors.sources import GeneratorSource
from headwater.dataflow.connectors import Poll, Position, Rows, SourceReader
from headwater.dataflow.stream import flow, source
from headwater.loading.catalogue import shipped_app
from headwater.model.errors import EngineError
from headwater.twin.query import StructuredStatus, run_structured
from headwater.twin.session import start_structured_session
from headwater.twin.settings import StructuredSettings
from headwater.workers.clock import now_us

Micros = npt.NDArray[np.int64]

FIRST_S: Final = 90.0  # until the first result must be out
DRAIN_S: Final = 4.0  # for results of the last rows that are measured
SETTINGS: Final = StructuredSettings(
    spark={
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.sql.streaming.minBatchesToRetain": "100000",  # its logs are what we learn from
    }
)


@dataclass(frozen=True, slots=True)
class Read:
    """Rows that were read: when, how many, and when the first was due."""

    at_us: int
    rows: int
    due_us: int


@dataclass(slots=True)
class NotedSource:
    """A source whose reading is noted; its own reader, as there is one of it."""

    inner: GeneratorSource
    reads: list[Read] = field(default_factory=list)
    kind: str = "noted"
    can_wait: bool = True
    blocking: bool = False
    guarantee: str = "exactly-once"
    _reader: SourceReader | None = None

    @property
    def schema(self) -> pa.Schema | None:
        """The columns."""
        return self.inner.schema

    def open(self, position: Position | None) -> "NotedSource":
        """Open the source."""
        self._reader = self.inner.open(position)
        return self

    def poll(self, rows_max: int, now: int) -> Poll:
        """Read on."""
        assert self._reader is not None
        found = self._reader.poll(rows_max, now)
        if isinstance(found, Rows) and found.due_us is not None:
            self.reads.append(Read(now, found.batch.num_rows, found.due_us))
        return found

    def close(self) -> None:
        """Close the source."""
        if self._reader is not None:
            self._reader.close()


@dataclass(slots=True)
class NotedSink:
    """Notes when results come; its own writer."""

    written_us: list[int] = field(default_factory=list)
    kind: str = "noted"
    guarantee: str = "at-most-once"
    blocking: bool = False

    def open(self, position: Position | None) -> "NotedSink":
        """Return the writer."""
        return self

    def write(self, batches: list[pa.RecordBatch]) -> Position:
        """Look at the clock."""
        self.written_us.append(now_us())
        return {}

    def close(self) -> None:
        """Nothing is open."""


class Central:
    """A Spark session for queries, one after the other."""

    def __init__(self, place: Path) -> None:
        """Start the session."""
        place.mkdir(parents=True, exist_ok=True)
        self._place = place
        self._session = start_structured_session(place)

    def measure(self, app: str, result: str, rate: float, warm_s: float, measure_s: float) -> dict[str, Any]:
        """Run an application at a rate, and return the latencies of the rows that were due in the measured time."""
        one = shipped_app(app)()
        inner = GeneratorSource(function=one.made(), schema=one.schema, pace=Pace(rate=rate))
        rows, sink = NotedSource(inner), NotedSink()
        built = one.build(source(rows, name="input"))
        stream = built[result] if isinstance(built, Mapping) else built
        clock = _Clock(warm_s, measure_s)
        place = self._place / f"{app}-{rate:g}"
        run_structured(
            flow("measured", stream.sink(sink, name="out")),
            session=self._session,
            directory=place,
            settings=SETTINGS,
            stop=clock.stop,
            on_progress=clock.look,
        )
        if clock.begin_us is None:
            raise EngineError(f"{app} had no result within {FIRST_S:.0f} s at {rate:g} rows/s")
        [run] = place.iterdir()
        window = (clock.begin_us, clock.begin_us + int(1e6 * measure_s))
        return _told(_latencies(run, rows.reads, sink.written_us, rate), window)

    def close(self) -> None:
        """End Spark."""
        self._session.stop()


class _Clock:
    """Ends a run when enough was measured, counted from its first result."""

    def __init__(self, warm_s: float, measure_s: float) -> None:
        self._warm_s, self._measure_s = warm_s, measure_s
        self._gives_up = time.monotonic() + FIRST_S
        self._ends: float | None = None
        self.begin_us: int | None = None  # of what is measured
        self.stop = threading.Event()

    def look(self, status: StructuredStatus) -> None:
        now = time.monotonic()
        if self._ends is None and any(status.rows_out.values()):
            self._ends = now + self._warm_s + self._measure_s + DRAIN_S
            self.begin_us = now_us() + int(1e6 * self._warm_s)
        if now > (self._gives_up if self._ends is None else self._ends):
            self.stop.set()


def _latencies(run: Path, reads: list[Read], written_us: list[int], rate: float) -> tuple[Micros, Micros]:
    """Return when the rows were due that may have caused a result, and how long it took until that was out.

    Rows that are still under way count as well: they have taken at least as long as until now.
    """
    files, begun_us = _micro_batches(run / "checkpoints" / "out")
    file_ms, file_batches = [at_ms for at_ms, _ in files], [number for _, number in files]
    results: dict[int, int] = {}  # when the first results of a file's rows were out
    for at_us in written_us:
        batch = bisect.bisect_right(begun_us, at_us) - 1
        results.setdefault(bisect.bisect_right(file_batches, batch) - 1, at_us)  # some micro-batches only end windows
    last, now = max(results, default=-1), now_us()
    due, took = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for read in reads:
        file = bisect.bisect_left(file_ms, read.at_us // 1_000)
        out_us = now if file > last else results.get(file)
        if out_us is not None:
            rows_due = (read.due_us + np.arange(read.rows) * 1e6 / rate).astype(np.int64)
            due.append(rows_due)
            took.append(out_us - rows_due)
    return np.concatenate(due), np.concatenate(took)


def _micro_batches(checkpoint: Path) -> tuple[list[tuple[int, int]], list[int]]:
    """Return when each file was written and which micro-batch read it, and when each micro-batch began."""
    found: dict[str, tuple[int, int]] = {}
    for log in (checkpoint / "sources" / "0").iterdir():
        if not log.name.startswith("."):
            for line in log.read_text().splitlines()[1:]:
                entry = json.loads(line)
                found[entry["path"]] = (int(entry["timestamp"]), int(entry["batchId"]))
    offsets = [path for path in (checkpoint / "offsets").iterdir() if path.name.isdigit()]
    begun = sorted((int(path.name), path.stat().st_mtime_ns // 1_000) for path in offsets)
    assert [number for number, _ in begun] == list(range(len(begun))), "Spark has kept the logs of all micro-batches"
    return sorted(found.values()), [at_us for _, at_us in begun]


def _told(latencies: tuple[Micros, Micros], window: tuple[int, int]) -> dict[str, Any]:
    due, took = latencies
    inside = (due >= window[0]) & (due < window[1])
    if not inside.any():
        raise EngineError("no result came of the rows that were measured")
    first = took[inside & (due < sum(window) // 2)]
    second = took[inside & (due >= sum(window) // 2)]
    shares = {"p50": 50, "p90": 90, "p99": 99}
    told: dict[str, Any] = {
        name: round(float(np.percentile(took[inside], share)) / 1_000, 1) for name, share in shares.items()
    }
    halves = [round(float(np.median(half)) / 1_000, 1) for half in (first, second) if len(half)]
    return told | {"rows": int(inside.sum()), "p50_of_halves": halves}
