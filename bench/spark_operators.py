"""Spark's own operators on the same rows: Structured Streaming on one core, in a process of its own.

The rows lie in Parquet files of 100,000, each a micro-batch, so Spark works on batches a hundred times as large as
Headwater's; a query is run once to warm up and once for the clock. Its time includes reading the files.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import SparkConf
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from bench.operator_cases import INSTANCES, SCHEMA, steps
from headwater.model.errors import EngineError
from headwater.spark.session import AUTHENTICATED, start_spark

FILE_ROWS: Final = 100_000
TIMEOUT_S: Final = 600.0
ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SETTINGS: Final = {
    **AUTHENTICATED,
    "spark.master": "local[1]",
    "spark.app.name": "spark-operators",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.sql.session.timeZone": "UTC",
}

Reader = Callable[[str], DataFrame]


def rates(rows: int, keys: int) -> dict[str, float]:
    """Return the rows per second of each operator, measured in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as place:
        command = [sys.executable, "-m", "bench.spark_operators", place, str(rows), str(keys)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        answer = Path(place) / "rates.json"
        if not answer.exists():
            last = "\n".join(done.stderr.splitlines()[-5:])
            raise EngineError(f"Spark's own operators could not be measured: {last}")
        measured: dict[str, float] = json.loads(answer.read_text(encoding="utf-8"))
        return measured


def _stage(place: Path, rows: int, keys: int) -> None:
    for side, seed in (("left", 7), ("right", 8)):
        (place / side).mkdir()
        for number, (_, batch) in enumerate(steps(max(1, rows // FILE_ROWS), FILE_ROWS, keys, 1, seed)):
            pq.write_table(pa.Table.from_batches([batch], SCHEMA), place / side / f"{number:06d}.parquet")


def _marked(frame: DataFrame) -> DataFrame:
    return frame.withWatermark("ts", "1 second")


def _summaries(frame: DataFrame, *window: str) -> DataFrame:
    grouped = _marked(frame).groupBy(sql.window("ts", *window), "sensor")
    return grouped.agg(sql.count("value"), sql.sum("value"), sql.max("value"))


def _join(read: Reader) -> DataFrame:
    left, right = (_windowed(read(side)) for side in ("left", "right"))
    named = right.select([sql.col(name).alias(f"{name}_right") for name in right.columns])
    return left.join(named, (left["sensor"] == named["sensor_right"]) & (left["w"] == named["w_right"]))


def _windowed(frame: DataFrame) -> DataFrame:
    """Put the window in the place of the event time: a stream may have only one column with a watermark."""
    return _marked(frame).withColumn("w", sql.window("ts", "2 seconds")).drop("ts")


QUERIES: Final[dict[str, Callable[[Reader], DataFrame]]] = {
    "map": lambda read: read("left").withColumn("fahrenheit", sql.col("value") * 1.8 + 32.0),
    "filter": lambda read: read("left").where("value > 20"),
    "key_by": lambda read: read("left").repartition(INSTANCES, "sensor"),
    "tumbling": lambda read: _summaries(read("left"), "10 seconds"),
    "sliding": lambda read: _summaries(read("left"), "10 seconds", "2 seconds"),
    "join": _join,
    "dedup": lambda read: _marked(read("left")).dropDuplicatesWithinWatermark(["id"]),
}


def _measure(session: SparkSession, place: Path, name: str, rows: int) -> float:
    """Run a query over all files twice and return the rows per second of the second run."""
    described = session.read.parquet(str(place / "left")).schema
    best_s = 0.0
    for attempt in range(2):

        def read(side: str) -> DataFrame:
            stream = session.readStream.schema(described).option("maxFilesPerTrigger", 1)
            return stream.parquet(str(place / side))

        began = time.perf_counter()
        writer = QUERIES[name](read).writeStream.format("noop").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(place / f"checkpoint-{name}-{attempt}")).start()
        query.awaitTermination()
        best_s = time.perf_counter() - began
    return rows * (2 if name == "join" else 1) / best_s


def main() -> None:
    """Measure all, and write the answer beside the rows."""
    place, rows, keys = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    rows = max(1, rows // FILE_ROWS) * FILE_ROWS
    _stage(place, rows, keys)
    session = start_spark(place, SparkConf(loadDefaults=False).setAll(list(SETTINGS.items())))
    session.sparkContext.setLogLevel("ERROR")
    measured = {name: _measure(session, place, name, rows) for name in QUERIES}
    (place / "rates.json").write_text(json.dumps(measured), encoding="utf-8")
    session.stop()


if __name__ == "__main__":
    main()
