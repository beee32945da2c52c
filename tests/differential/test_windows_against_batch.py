"""Windows over bounded input, against plain Spark batch queries: the same rows, whatever the data and the batches."""

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from headwater import functions as F
from headwater.dataflow.stream import Stream
from tests.differential.rows import SCHEMA, START, batches, tables, unordered
from tests.differential.small_runs import run_small

pytestmark = pytest.mark.spark

NEVER_LATE = "5000 days"
FEW = settings(max_examples=10, deadline=None, phases=[Phase.explicit, Phase.generate])

OURS = (
    F.count().alias("rows"),
    F.count("value").alias("known"),
    F.sum("value").alias("sum"),
    F.sum("count").alias("whole"),
    F.min("value").alias("low"),
    F.max("value").alias("high"),
    F.min("text").alias("first_text"),
    F.max("ts").alias("latest"),
    F.avg("count").alias("mean"),
)


def theirs() -> list[Column]:
    """The same as `OURS`; Spark makes columns only once it runs."""
    return [
        sf.count("*").alias("rows"),
        sf.count("value").alias("known"),
        sf.sum("value").alias("sum"),
        sf.sum("count").alias("whole"),
        sf.min("value").alias("low"),
        sf.max("value").alias("high"),
        sf.min("text").alias("first_text"),
        sf.max("ts").alias("latest"),
        sf.avg("count").alias("mean"),
    ]


WINDOWS: dict[str, tuple[Any, ...]] = {
    "tumbling": ("10 seconds",),
    "sliding": ("30 seconds", "10 seconds"),
    "odd": ("25 seconds", "10 seconds"),
    "shifted": ("1 minute", "1 minute", "15 seconds"),
    "day": ("1 day",),
    "week": ("7 days", "1 day", "6 hours"),
}


def answer(frame: DataFrame) -> list[str]:
    """Return a batch query's rows for a comparison."""
    return unordered(frame.toArrow().to_pylist())


@FEW
@given(
    name=st.sampled_from(sorted(WINDOWS)),
    table=tables(),
    sizes=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    rows_max=st.integers(1, 30),
)
def test_time_windows(spark: SparkSession, name: str, table: pa.Table, sizes: list[int], rows_max: int) -> None:
    """Tumbling, sliding, shifted, of seconds and of weeks; nulls, NaN and any unicode."""
    spec = WINDOWS[name]

    def build(rows: Stream) -> dict[str, Stream]:
        keyed = rows.with_watermark("ts", NEVER_LATE).key_by("key")
        return {"out": keyed.window(F.window("ts", *spec)).agg(*OURS)}

    ours = run_small(build, batches(table, sizes), rows_max=rows_max)["out"]
    expected = spark.createDataFrame(table).groupBy(sf.window("ts", *spec), "key").agg(*theirs())
    assert unordered(ours) == answer(expected)


@FEW
@given(table=tables(keys=("a", "b", None)), sizes=st.lists(st.integers(1, 20), min_size=1, max_size=4))
def test_session_windows(spark: SparkSession, table: pa.Table, sizes: list[int]) -> None:
    """Sessions merge across batches, also when the row between them comes last."""

    def build(rows: Stream) -> dict[str, Stream]:
        keyed = rows.with_watermark("ts", NEVER_LATE).key_by("key")
        return {"out": keyed.window(F.session_window("ts", "15 seconds")).agg(*OURS)}

    ours = run_small(build, batches(table, sizes))["out"]
    expected = spark.createDataFrame(table).groupBy(sf.session_window("ts", "15 seconds").alias("window"), "key")
    assert unordered(ours) == answer(expected.agg(*theirs()))


@FEW
@given(table=tables(far=True), size=st.sampled_from(["1 hour", "1 day"]))
def test_times_far_away(spark: SparkSession, table: pa.Table, size: str) -> None:
    """Before 1970, at its edge, beyond 2038, and in the years 1 and 9990."""

    def build(rows: Stream) -> dict[str, Stream]:
        keyed = rows.with_watermark("ts", "4000000 days").key_by("key")
        return {"out": keyed.window(F.window("ts", size)).agg(F.count().alias("rows"))}

    ours = run_small(build, batches(table))["out"]
    expected = spark.createDataFrame(table).groupBy(sf.window("ts", size), "key").agg(sf.count("*").alias("rows"))
    assert unordered(ours) == answer(expected)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"])
def test_daylight_saving_does_not_bend_windows(spark: SparkSession, zone: str) -> None:
    """A window is a span of instants: where clocks jump, rows are in the same windows as in UTC, and in Spark's."""
    times = [START + dt.timedelta(minutes=10 * number) for number in range(30)]
    table = pa.table(
        {"key": ["k"] * 30, "ts": pa.array(times, pa.timestamp("us", zone)), "value": [float(n) for n in range(30)]}
    )

    def build(rows: Stream) -> dict[str, Stream]:
        keyed = rows.with_watermark("ts", NEVER_LATE).key_by("key")
        return {"out": keyed.window(F.window("ts", "1 hour", "30 minutes")).agg(F.sum("value").alias("sum"))}

    ours = run_small(build, batches(table))["out"]
    expected = spark.createDataFrame(table).groupBy(sf.window("ts", "1 hour", "30 minutes"), "key")
    assert unordered(ours) == answer(expected.agg(sf.sum("value").alias("sum")))


def test_one_key_with_everything_and_windows_of_all_rows(spark: SparkSession) -> None:
    """Ten thousand rows of one key, and the same without a key."""
    times = [START + dt.timedelta(milliseconds=number * 37 % 60_000) for number in range(10_000)]
    table = pa.table(
        {
            "key": ["k"] * 10_000,
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "value": [n % 8 / 8 for n in range(10_000)],
        }
    )

    def build(rows: Stream) -> dict[str, Stream]:
        marked = rows.with_watermark("ts", NEVER_LATE)
        window = F.window("ts", "10 seconds")
        return {
            "keyed": marked.key_by("key").window(window).agg(F.sum("value").alias("sum"), F.count().alias("n")),
            "all": marked.window(window).agg(F.sum("value").alias("sum"), F.count().alias("n")),
        }

    ours = run_small(build, batches(table, [1_000]))
    frame = spark.createDataFrame(table)
    sums = (sf.sum("value").alias("sum"), sf.count("*").alias("n"))
    assert unordered(ours["keyed"]) == answer(frame.groupBy(sf.window("ts", "10 seconds"), "key").agg(*sums))
    assert unordered(ours["all"]) == answer(frame.groupBy(sf.window("ts", "10 seconds")).agg(*sums))


@FEW
@given(table=tables(nulls=False))
def test_variances_and_lists(spark: SparkSession, table: pa.Table) -> None:
    """The moments agree to twelve digits; lists in the order of arrival, sets in any."""

    def build(rows: Stream) -> dict[str, Stream]:
        keyed = rows.with_watermark("ts", NEVER_LATE).key_by("key")
        spread = (F.var_samp("value"), F.var_pop("value"), F.stddev("value"), F.avg("value"))
        return {"out": keyed.window(F.window("ts", "5 minutes")).agg(*spread, F.collect_list("n"))}

    ours = run_small(build, batches(table))["out"]
    frame = spark.createDataFrame(table.sort_by("n")).coalesce(1)
    moments = [sf.var_samp("value"), sf.var_pop("value"), sf.stddev("value"), sf.avg("value"), sf.collect_list("n")]
    expected = frame.groupBy(sf.window("ts", "5 minutes"), "key").agg(*moments).toArrow().to_pylist()
    assert len(ours) == len(expected)
    for one, other in zip(_sorted(ours), _sorted(expected), strict=True):
        assert list(one) == list(other)
        *ours_told, ours_list = list(one.values())[2:]
        *told, listed = list(other.values())[2:]
        assert [value is None for value in ours_told] == [value is None for value in told]
        assert [value or 0.0 for value in ours_told] == pytest.approx([value or 0.0 for value in told], rel=1e-9)
        assert sorted(ours_list) == sorted(listed)


def _sorted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["window"]["start"], repr(row["key"])))


def test_no_rows_make_no_windows() -> None:
    """An input that ends at once."""

    def build(rows: Stream) -> dict[str, Stream]:
        return {"out": rows.with_watermark("ts", "1 second").key_by("key").window(F.window("ts", "1 hour")).agg(*OURS)}

    empty = pa.RecordBatch.from_pylist([], schema=SCHEMA)
    assert run_small(build, [empty])["out"] == []
