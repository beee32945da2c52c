"""A million keys: every one is there, on Headwater as in Spark."""

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import headwater as hw
from headwater import functions as F
from headwater.connectors import to
from tests.differential.conftest import RunFlow

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

KEYS = 1_000_000
AGAIN = 50_000  # rows of keys that were seen before
BEGAN_US = 1_767_225_600_000_000


def rows_from(first: int, count: int) -> pa.RecordBatch:
    """Every key once, then some of them again, all within one hour."""
    numbers = np.arange(first, first + count)
    keys = numbers * 7919 % KEYS
    return pa.record_batch(
        {
            "key": pa.array(keys),
            "ts": pa.array(BEGAN_US + numbers * 1_000, pa.timestamp("us", "UTC")),
            "value": pa.array(numbers % 16 / 16),
        }
    )


def test_a_million_keys(spark: SparkSession, on_headwater: RunFlow) -> None:
    """A window and a deduplication over a million keys, checked by counts, sums and the number of distinct rows."""
    rows = hw.read.generator(rows_from, rows=KEYS + AGAIN)
    windows, first = to.memory(), to.memory()
    counted = rows.with_watermark("ts", "1 minute").key_by("key").window(F.window("ts", "1 hour"))
    on_headwater(
        hw.flow(
            "million",
            counted.agg(F.count().alias("rows"), F.sum("value").alias("sum"), parallelism=2).sink(windows),
            rows.dedup("key", parallelism=2).sink(first),
        )
    )
    ours = windows.table().select(["key", "rows", "sum"]).sort_by("key")
    frame = spark.range(KEYS + AGAIN).selectExpr("id * 7919 % 1000000 AS key", "CAST(id % 16 AS DOUBLE) / 16 AS value")
    expected = frame.groupBy("key").agg(sf.count("*").alias("rows"), sf.sum("value").alias("sum")).toArrow()
    assert ours.equals(expected.sort_by("key").cast(ours.schema))
    assert first.table().num_rows == KEYS
    assert len(first.table().column("key").unique()) == KEYS
