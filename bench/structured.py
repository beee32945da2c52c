"""Stock Structured Streaming as the baseline, in a process and a Spark session of its own.

Tuned as README.md tells. The chain is tried as Spark SQL expressions and as the same Python functions in one
`mapInArrow`, the keyed average in several settings where there is time; the fastest counts. One more form goes beyond
the guide, with options that are internal to Spark and unsupported for this sink; it is told, but it does not count.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from pyspark import SparkConf
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from bench.arrivals import Arrivals, join, percentiles, summarize
from bench.keyedquery import sliding_averages
from bench.processes import memory_mb, usage
from bench.socketfeed import SocketFeed
from bench.workload import KEPT, Batch, json_line, run_chain, text_line
from headwater.model.errors import EngineError
from headwater.spark.session import AUTHENTICATED, start_spark
from headwater.workers.clock import now_us

BATCHES_WARM: Final = 10  # not measured, of every query: code generation, worker start, JIT
DRAIN_S: Final = 60.0
MEMORY_BACKED: Final = Path("/dev/shm")
CHAIN_SCHEMA: Final = "created_us long, sensor string, fahrenheit double, muggy boolean"
ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
IN_MEMORY: Final = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
AVERAGE_FORMS: Final = {  # what differs from the session's settings; the one with the lowest p99 counts
    "average": {},
    "average_state_in_memory": {"spark.sql.streaming.stateStore.providerClass": IN_MEMORY},
    "average_two_partitions": {"spark.sql.shuffle.partitions": "2"},
}
BEYOND_GUIDE_SESSION: Final = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}
BEYOND_GUIDE_QUERY: Final = {
    "asyncProgressTrackingEnabled": "true",
    "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
}


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure."""

    cores: int
    chain_rate: float = 1_000.0
    chain_measure_s: float = 7.0
    apps: int = 8
    app_rate: float = 100.0
    apps_measure_s: float = 12.0
    average_forms: tuple[str, ...] = ("average",)
    beyond_guide: bool = True
    warm_s_min: float = 5.0
    warm_s_max: float = 25.0


def measure(request: Request) -> dict[str, Any]:
    """Run the measurements in a process of its own and return its figures."""
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as scratch:
        result, log = Path(scratch, "result.json"), Path(scratch, "structured.log")
        asked = msgspec.json.encode(request).decode()
        with log.open("wb") as output:
            command = [sys.executable, "-m", "bench.structured", asked, str(result)]
            done = subprocess.run(
                command,
                cwd=Path(__file__).parents[1],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                check=False,
            )
        if done.returncode != 0 or not result.exists():
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
            raise EngineError(f"Structured Streaming ended with {done.returncode}; the end of its log:\n{tail}")
        figures: dict[str, Any] = json.loads(result.read_text())
        return figures


def settings(scratch: Path, cores: int) -> dict[str, str]:
    """Return the session's settings; README.md has the reasons."""
    return {
        **AUTHENTICATED,
        "spark.master": f"local[{cores}]",
        "spark.app.name": "structured-streaming-baseline",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.worker.reuse": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }


def chain_in_sql(lines: DataFrame) -> DataFrame:
    """Return the chain as Spark's own expressions, which compile to one stage of Java."""
    reading = sql.from_json("value", "created_us long, sensor string, celsius double, humidity double")
    celsius, humidity = sql.col("celsius"), sql.col("humidity")
    return (
        lines.select(reading.alias("reading"))
        .select("reading.*")
        .filter((celsius > -40.0) & (celsius < 60.0))
        .withColumn("fahrenheit", celsius * 1.8 + 32.0)
        .withColumn("muggy", (celsius > 24.0) & (humidity > 60.0))
        .select(*KEPT)
    )


def chain_in_arrow(lines: DataFrame) -> DataFrame:
    """Return the chain as the same Python functions, fused into one pass."""
    return lines.mapInArrow(_run_all, CHAIN_SCHEMA)


def _run_all(batches: Iterator[Batch]) -> Iterator[Batch]:
    for batch in batches:
        if batch.num_rows:
            yield run_chain(batch.rename_columns(["line"]))


@dataclass(slots=True)
class _Query:
    """A running query and what reached its sink."""

    arrivals: list[Arrivals]
    latest_us: int = 0
    handle: Any = None

    def take(self, frame: DataFrame, _: int) -> None:
        """Bring the rows' creation times to the driver: there they are at the sink."""
        created = np.array([row[0] for row in frame.select("created_us").collect()], dtype=np.int64)
        self.arrivals.append(Arrivals(created, np.full(len(created), now_us())))
        self.latest_us = max(self.latest_us, int(created.max(initial=0)))


class Session:
    """A Spark session that runs one measurement after another."""

    def __init__(self, scratch: Path, request: Request) -> None:
        """Start Spark."""
        began = time.monotonic()
        self._request = request
        conf = SparkConf(loadDefaults=False).setAll(list(settings(scratch, request.cores).items()))
        self.spark = start_spark(scratch, conf)
        self.start_s = time.monotonic() - began
        self._scratch = scratch
        self._queries = 0

    @contextmanager
    def set(self, changed: Mapping[str, str]) -> Iterator[None]:
        """Change settings for the queries started inside."""
        before = {name: self.spark.conf.get(name, None) for name in changed}
        for name, value in changed.items():
            self.spark.conf.set(name, value)
        yield
        for name, kept in before.items():
            if kept is None:
                self.spark.conf.unset(name)
            else:
                self.spark.conf.set(name, kept)

    def run(
        self,
        build: Callable[[DataFrame], DataFrame],
        copies: int,
        feed: SocketFeed,
        measure_s: float,
        options: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        """Start so many copies of a query, let them get warm, and measure."""
        with feed:
            queries = [self._start(build, feed.port, options or {}) for _ in range(copies)]
            time.sleep(self._request.warm_s_min)
            _wait(queries, lambda query: len(query.arrivals) > BATCHES_WARM, self._request.warm_s_max)
            before, begin_us = usage(), now_us()
            time.sleep(measure_s)
            end_us = now_us()
            others = usage().others_since(before, measure_s)
            _wait(queries, lambda query: query.latest_us >= end_us, DRAIN_S)
            durations = queries[0].handle.lastProgress["durationMs"]
            for query in queries:
                query.handle.stop()
        rows = join([part for query in queries for part in query.arrivals]).between(begin_us, end_us)
        batches = len(np.unique(rows.arrived_us)) / copies
        return {
            "summary": asdict(summarize(rows)),
            "percentiles": percentiles(rows),
            "batches_per_s_per_query": round(batches / measure_s, 2),
            "last_batch_ms": durations,
            "others_cores": round(others, 3),
        }

    def _start(self, build: Callable[[DataFrame], DataFrame], port: int, options: dict[str, str]) -> _Query:
        self._queries += 1
        query = _Query([])
        lines = self.spark.readStream.format("socket").option("host", "127.0.0.1").option("port", port).load()
        writer = build(lines).writeStream.option("checkpointLocation", str(self._scratch / f"query-{self._queries}"))
        query.handle = writer.options(**options).foreachBatch(query.take).start()
        return query


def _wait(queries: list[_Query], ready: Callable[[_Query], bool], timeout_s: float) -> None:
    """Wait until all queries are ready, or for as long as there is time; raise if one has failed."""
    deadline = time.monotonic() + timeout_s
    while not all(map(ready, queries)) and time.monotonic() < deadline:
        for query in queries:
            if query.handle.exception() is not None:
                raise EngineError(f"a query failed: {str(query.handle.exception())[:2_000]}")
        time.sleep(0.02)


def measure_here(request: Request, scratch: Path) -> dict[str, Any]:
    """Measure everything in this process, one after the other."""
    session = Session(scratch, request)
    found: dict[str, Any] = {"session_start_s": round(session.start_s, 2), "measurements": {}}
    told = found["measurements"]
    for name, build in (("chain_sql", chain_in_sql), ("chain_arrow", chain_in_arrow)):
        told[name] = session.run(build, 1, SocketFeed(request.chain_rate, json_line), request.chain_measure_s)
    for name in request.average_forms:
        with session.set(AVERAGE_FORMS[name]):
            feed = SocketFeed(request.app_rate, text_line)
            told[name] = session.run(sliding_averages, request.apps, feed, request.apps_measure_s)
    if request.beyond_guide:
        with session.set(BEYOND_GUIDE_SESSION):
            feed = SocketFeed(request.chain_rate, json_line)
            told["chain_sql_beyond_guide"] = session.run(
                chain_in_sql, 1, feed, request.chain_measure_s, BEYOND_GUIDE_QUERY
            )
    jvm: Any = session.spark.sparkContext._gateway
    found["jvm_memory_mb"] = memory_mb(int(jvm.proc.pid))
    session.spark.stop()
    return found


def _main(asked: str, result: str) -> None:
    from os import environ  # only here: nothing else in this module reads or changes the environment

    request = msgspec.json.decode(asked, type=Request)
    environ["PYTHONPATH"] = str(Path(__file__).parents[1])
    scratch = Path(tempfile.mkdtemp(prefix="structured-", dir=MEMORY_BACKED if MEMORY_BACKED.is_dir() else None))
    try:
        Path(result).write_text(json.dumps(measure_here(request, scratch)))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
