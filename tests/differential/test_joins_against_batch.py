"""Joins over bounded input, against plain Spark batch joins."""

from typing import Literal

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from headwater import functions as F
from headwater.dataflow.stream import Stream
from tests.differential.rows import batches, tables, unordered
from tests.differential.small_runs import run_small

pytestmark = pytest.mark.spark

NEVER_LATE = "5000 days"
FEW = settings(max_examples=8, deadline=None, phases=[Phase.explicit, Phase.generate])
COLUMNS = ("n", "key", "ts", "value")
How = Literal["inner", "left", "full"]
pairs = {
    "left": tables(rows_max=25, keys=("a", "b", "😀", None), nulls=False),
    "right": tables(rows_max=25, keys=("a", "b", "c", None), nulls=False),
}


def marked(*streams: Stream) -> list[Stream]:
    """Give both sides a watermark that nothing is ever behind."""
    return [stream.select(*COLUMNS).with_watermark("ts", NEVER_LATE) for stream in streams]


def sides(spark: SparkSession, left: pa.Table, right: pa.Table) -> tuple[DataFrame, DataFrame]:
    """Return both tables, the columns of the second under other names."""
    one = spark.createDataFrame(left.select(COLUMNS))
    other = spark.createDataFrame(right.select(COLUMNS))
    return one, other.select([sf.col(name).alias(f"{name}_right") for name in COLUMNS])


@pytest.mark.parametrize("how", ["inner", "left", "full"])
@FEW
@given(left=pairs["left"], right=pairs["right"], sizes=st.lists(st.integers(1, 9), min_size=1, max_size=3))
def test_windowed_joins(spark: SparkSession, how: How, left: pa.Table, right: pa.Table, sizes: list[int]) -> None:
    """Rows of equal key in the same window; null is equal to nothing."""
    window = ("30 seconds", "10 seconds")

    def build(*streams: Stream) -> dict[str, Stream]:
        one, other = marked(*streams)
        return {"out": one.join(other, "key", window=F.window("ts", *window), how=how)}

    ours = run_small(build, batches(left, sizes), batches(right, sizes))["out"]
    one, other = sides(spark, left, right)
    one = one.withColumn("window", sf.window("ts", *window))
    other = other.withColumn("window_right", sf.window("ts_right", *window))
    same = (sf.col("key") == sf.col("key_right")) & (sf.col("window") == sf.col("window_right"))
    both = one.join(other, same, how).select(
        sf.coalesce("window", "window_right").alias("window"),
        sf.coalesce("key", "key_right").alias("key"),
        "n",
        "ts",
        "value",
        "n_right",
        "ts_right",
        "value_right",
    )
    assert unordered(_laid_out(ours)) == unordered(both.toArrow().to_pylist())


@pytest.mark.parametrize("how", ["inner", "left", "full"])
@FEW
@given(left=pairs["left"], right=pairs["right"], sizes=st.lists(st.integers(1, 9), min_size=1, max_size=3))
def test_interval_joins(spark: SparkSession, how: How, left: pa.Table, right: pa.Table, sizes: list[int]) -> None:
    """Rows of equal key whose times are so near to one another, both ends included."""

    def build(*streams: Stream) -> dict[str, Stream]:
        one, other = marked(*streams)
        near = ("-5 seconds", "20 seconds")
        return {"out": one.join(other, "key", between=near, event_time="ts", how=how)}

    ours = run_small(build, batches(left, sizes), batches(right, sizes))["out"]
    one, other = sides(spark, left, right)
    near = sf.expr("ts_right BETWEEN ts - INTERVAL 5 SECONDS AND ts + INTERVAL 20 SECONDS")
    both = one.join(other, (sf.col("key") == sf.col("key_right")) & near, how).select(
        sf.coalesce("key", "key_right").alias("key"), "n", "ts", "value", "n_right", "ts_right", "value_right"
    )
    assert unordered(_laid_out(ours)) == unordered(both.toArrow().to_pylist())


def _laid_out(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    wanted = ("window", "key", "n", "ts", "value", "n_right", "ts_right", "value_right")
    return [{name: row[name] for name in wanted if name in row} for row in rows]
