"""The same flow on Headwater and on stock Structured Streaming: the same rows, per key in order, late ones included.

Event times are multiples of 250 ms and delays are not, so no row stands exactly at a watermark: there the two differ on
purpose (Spark's joins and deduplication drop it, Headwater keeps it).
"""

import datetime as dt
import os
import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import headwater as hw
from headwater import functions as F
from headwater.connectors import to
from tests.differential.conftest import RunFlow
from tests.differential.rows import KEYS, SCHEMA, START, by_key, unordered

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

SEEDS = range(1, 1 + int(os.environ.get("HEADWATER_TWIN_SEEDS", "1")))
DELAY = "10.1 seconds"


def readings(seed: int, *, lag: float, rows: int = 70) -> list[pa.RecordBatch]:
    """Return rows that mostly advance, some out of order by up to `lag` seconds, in batches of several sizes."""
    rng = random.Random(seed)
    made = []
    for number in range(rows):
        late = rng.choice([0.0, 0.0, 0.0, 3.0, 6.0, lag])
        seconds = max(0.0, number * 1.5 - late + rng.randrange(8) / 4)
        made.append(
            {
                "n": number,
                "key": rng.choice(KEYS[:5]),
                "ts": None if rng.random() < 0.04 else START + dt.timedelta(seconds=seconds),
                "value": rng.choice([None, float("nan"), *(number / 8 for number in range(-20, 20))]),
                "count": rng.choice([None, 1, 2, 3]),
                "text": rng.choice(KEYS),
            }
        )
    table = pa.Table.from_pylist(made, schema=SCHEMA)
    edges = sorted({0, rows, *rng.sample(range(rows), 5)})
    cut = [table.slice(start, end - start) for start, end in pairwise(edges)]
    return [batch for part in cut for batch in part.combine_chunks().to_batches()]


def source(seed: int, name: str = "readings", lag: float = 25.0) -> hw.Stream:
    """Return a stream of such rows; those that lag by more than the watermark's delay are late."""
    rows = hw.read.iterable(readings(seed, lag=lag), schema=SCHEMA)
    return hw.source(rows.vertex.part, name=name)  # type: ignore[arg-type]


class Both:
    """One flow for each engine, with sinks of the same names."""

    def __init__(self, name: str) -> None:
        """Begin without sinks."""
        self.name = name
        self.sinks: dict[str, tuple[Any, Any]] = {}

    def flow(self, side: int, outputs: dict[str, hw.Stream]) -> hw.Flow:
        """Return the flow of one side."""
        for name in outputs:
            self.sinks.setdefault(name, (to.memory(), to.memory()))
        ends = [stream.sink(self.sinks[name][side], name=name) for name, stream in outputs.items()]
        return hw.flow(f"{self.name}-{'ab'[side]}", *ends)

    def rows(self, name: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return what both sides gave a sink."""
        ours, theirs = self.sinks[name]
        return ours.rows(), theirs.rows()


def doubled(row: hw.Row) -> hw.Row:
    """A map by rows."""
    return {"n": row["n"], "key": row["key"], "double": None if row["value"] is None else row["value"] * 2}


def twice(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A flat map by batches: every row, and once more those of even number."""
    mask = pa.array([n % 2 == 0 for n in batch["n"].to_pylist()])
    return pa.concat_batches([batch, batch.filter(mask)])


@pytest.mark.parametrize("seed", SEEDS)
def test_expressions(on_headwater: RunFlow, on_structured: RunFlow, seed: int) -> None:
    """Computed, dropped and renamed columns, before a watermark and behind it; the first rows; distinct values."""

    def build() -> dict[str, hw.Stream]:
        rows = source(seed)
        half = hw.when(hw.col("count") != 0, hw.col("n") / hw.col("count")).otherwise(-1.0)
        made = rows.with_columns(half=half, upper=F.upper("text"), minute=F.minute("ts"))
        windows = (
            made.with_watermark("ts", DELAY)
            .with_column("even", hw.col("n") % 2 == 0)
            .rename({"key": "who"})
            .key_by("who")
            .window(F.window("ts", "10 seconds"))
            .agg(F.count_distinct("text").alias("texts"), F.count().alias("rows"))
        )
        return {
            "made": made.drop("ts", "value"),
            "picked": rows.select((hw.col("n") * 2).alias("twice"), F.coalesce("value", hw.lit(0.0)).alias("v")),
            "sql": rows.filter("n BETWEEN 5 AND 30 AND (text LIKE '%e%' OR count IN (1, 2))").select("n"),
            "first": rows.limit(7).select("n"),
            "windows": windows.select("window.start", "who", "texts", "rows"),
        }

    both = Both(f"expressions-{seed}")
    on_headwater(both.flow(0, build()))
    on_structured(both.flow(1, build()))
    for name in both.sinks:
        ours, theirs = both.rows(name)
        assert ours, name
        assert unordered(ours) == unordered(theirs), name


def inverse(row: hw.Row) -> hw.Row:
    """Raises on some rows."""
    return {"n": row["n"], "inverse": 1 / (row["n"] % 5)}


@pytest.mark.parametrize("seed", SEEDS)
def test_operators_without_state(on_headwater: RunFlow, on_structured: RunFlow, seed: int) -> None:
    """Map, flat map, filter, select, split, union and dead letters."""

    def build() -> dict[str, hw.Stream]:
        rows = source(seed)
        even, odd = rows.split(lambda batch: pa.array([n % 2 == 0 for n in batch["n"].to_pylist()]))
        tried = rows.map(
            inverse, schema=pa.schema([("n", pa.int64()), ("inverse", pa.float64())]), on_error="dead-letter"
        )
        return {
            "map": rows.map(
                doubled, schema=pa.schema([("n", pa.int64()), ("key", pa.string()), ("double", pa.float64())])
            ),
            "flat": rows.flat_map(twice, schema=SCHEMA).filter(hw.col("n") > 10).select("n", label="text"),
            "union": even.select("n").union(odd.select("n")),
            "tried": tried,
            "dead": tried.errors.select("operator", "row"),
        }

    both = Both(f"stateless-{seed}")
    on_headwater(both.flow(0, build()))
    on_structured(both.flow(1, build()))
    for name in both.sinks:
        ours, theirs = both.rows(name)
        assert unordered(ours) == unordered(theirs), name


def spread(rows: pd.DataFrame) -> pd.DataFrame:
    """What `apply` makes of a window."""
    return pd.DataFrame({"rows": [len(rows)], "first": [int(rows["n"].iloc[0])], "last": [int(rows["n"].iloc[-1])]})


SPREAD = pa.schema([("rows", pa.int64()), ("first", pa.int64()), ("last", pa.int64())])


@pytest.mark.parametrize("seed", SEEDS)
def test_windows(on_headwater: RunFlow, on_structured: RunFlow, seed: int) -> None:
    """Tumbling, sliding, session, of all rows, applied functions, the best of a window, and a window over windows."""

    def build() -> dict[str, hw.Stream]:
        rows = source(seed).with_watermark("ts", DELAY)
        keyed = rows.key_by("key")
        counted = (F.count().alias("rows"), F.sum("value").alias("sum"), F.max("value").alias("high"))
        tumbling = keyed.window(F.window("ts", "10 seconds")).agg(*counted, F.max("ts").alias("ts"))
        return {
            "tumbling": tumbling,
            "sliding": keyed.window(F.window("ts", "20 seconds", "5 seconds")).agg(*counted),
            "session": keyed.window(F.session_window("ts", "4 seconds")).agg(*counted),
            "all": rows.window(F.window("ts", "1 minute")).agg(*counted),
            "applied": keyed.window(F.window("ts", "30 seconds")).apply(spread, schema=SPREAD),
            "best": keyed.window(F.window("ts", "30 seconds"))
            .top_k(2, "count")
            .select("window", "key", "count", "rank"),
        }

    both = Both(f"windows-{seed}")
    on_headwater(both.flow(0, build()))
    on_structured(both.flow(1, build()))
    for name in both.sinks:
        ours, theirs = both.rows(name)
        assert unordered(ours) == unordered(theirs), name
        if name not in ("all",):
            windows = {key: sorted(rows) for key, rows in by_key(theirs, "key").items()}
            assert {key: sorted(rows) for key, rows in by_key(ours, "key").items()} == windows, name


@pytest.mark.parametrize("seed", SEEDS)
def test_joins(on_headwater: RunFlow, on_structured: RunFlow, seed: int) -> None:
    """Within windows and within an interval, inner and outer, and with a table.

    No row is late: of two inputs the slower one rules, so what is late depends on how they happen to interleave.
    """
    places = hw.table({"key": ["a", "b", "Zürich"], "place": ["one", "two", "three"]})

    def build() -> dict[str, hw.Stream]:
        left = source(seed, "here", lag=6.0).select("n", "key", "ts").with_watermark("ts", DELAY)
        right = source(seed + 100, "there", lag=6.0).select("key", "ts", m="n").with_watermark("ts", DELAY)
        near = {"between": ("-3 seconds", "4.3 seconds"), "event_time": "ts"}
        return {
            "inner": left.join(right, "key", window=F.window("ts", "10 seconds")),
            "left": left.join(right, "key", window=F.window("ts", "10 seconds"), how="left"),
            "full": left.join(right, "key", window=F.window("ts", "10 seconds"), how="full"),
            "near": left.join(right, "key", **near),  # type: ignore[arg-type]
            "near-left": left.join(right, "key", how="left", **near),  # type: ignore[arg-type]
            "places": left.enrich(places, "key"),
        }

    both = Both(f"joins-{seed}")
    on_headwater(both.flow(0, build()))
    on_structured(both.flow(1, build()))
    for name in both.sinks:
        ours, theirs = both.rows(name)
        assert unordered(ours) == unordered(theirs), name


def test_a_join_whose_one_side_ends_long_before_the_other(on_headwater: RunFlow, on_structured: RunFlow) -> None:
    """The end of one side may come in the same micro-batch as rows of the other, which are joined all the same."""

    def cut(seed: int, name: str, rows: int) -> hw.Stream:
        table = pa.Table.from_batches(readings(seed, lag=6.0)).combine_chunks()
        batches = hw.read.iterable(table.to_batches(max_chunksize=rows), schema=SCHEMA)
        return hw.source(batches.vertex.part, name=name)  # type: ignore[arg-type]

    def build() -> dict[str, hw.Stream]:
        left = cut(1, "here", 5).select("n", "key", "ts").with_watermark("ts", DELAY)
        right = cut(101, "there", 70).select("key", "ts", m="n").with_watermark("ts", DELAY)
        return {"inner": left.join(right, "key", window=F.window("ts", "10 seconds"))}

    both = Both("ends-early")
    on_headwater(both.flow(0, build()))
    on_structured(both.flow(1, build()))
    ours, theirs = both.rows("inner")
    assert unordered(ours) == unordered(theirs)


def running(row: hw.Row, value: list[int] | None) -> tuple[hw.Row, list[int]]:
    """A running count and sum by rows."""
    count, total = value or [0, 0]
    now = [count + 1, total + row["n"]]
    return {"key": row["key"], "n": row["n"], "rows": now[0], "sum": now[1]}, now


RUNNING = pa.schema([("key", pa.string()), ("n", pa.int64()), ("rows", pa.int64()), ("sum", pa.int64())])


def in_fours(row: hw.Row) -> hw.Row:
    """Give four rows in a row one id: they meet while the id is remembered, and never again."""
    return {"n": row["n"], "ts": row["ts"], "four": row["n"] // 4}


FOURS = pa.schema([("n", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("four", pa.int64())])


class Totals(StatefulProcessor):
    """A processor as one writes it for `transformWithStateInPandas`."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Keep a total."""
        self.total = handle.getValueState("total", "total bigint")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """Send the total on for every row."""
        for frame in rows:
            for number in frame["n"]:
                kept = self.total.get()
                before = 0 if kept is None else kept[0]
                self.total.update((before + int(number),))
                yield pd.DataFrame({"key": [key[0]], "total": [before + int(number)]})

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("seed", SEEDS)
def test_operators_with_state(on_headwater: RunFlow, on_structured: RunFlow, seed: int) -> None:
    """Stateful functions, processors, reduce, dedup and distinct: per key in order."""

    def larger(so_far: hw.Row, row: hw.Row) -> hw.Row:
        return row if row["n"] % 7 > so_far["n"] % 7 else so_far

    def build() -> dict[str, hw.Stream]:
        rows = source(seed)
        small = rows.select("n", "key").filter(
            lambda batch: pa.array([key is not None for key in batch["key"].to_pylist()])
        )
        marked = rows.with_watermark("ts", DELAY)
        return {
            "stateful": small.key_by("key").stateful(running, schema=RUNNING),
            "process": small.key_by("key").process(Totals(), "key string, total bigint"),
            "reduce": small.key_by("key").reduce(larger),
            "dedup": rows.select("text", "key").dedup("key", "text"),
            "recent": marked.map(in_fours, schema=FOURS).dedup("four", event_time="ts", within=DELAY),
            "distinct": rows.distinct("text"),
        }

    both = Both(f"state-{seed}")
    on_headwater(both.flow(0, build()))
    on_structured(both.flow(1, build()))
    for name in both.sinks:
        ours, theirs = both.rows(name)
        assert unordered(ours) == unordered(theirs), name
    for name in ("stateful", "process", "reduce"):
        ours, theirs = both.rows(name)
        assert by_key(ours, "key") == by_key(theirs, "key"), name


def as_it_came(batch: pa.RecordBatch, state: hw.KeyedState) -> pa.RecordBatch:
    """A function with state that leaves the rows alone."""
    return batch


def test_a_stream_behind_state_can_be_read_both_directly_and_in_windows(
    on_headwater: RunFlow, on_structured: RunFlow
) -> None:
    """Spark reads it twice; were the two to share a shuffle, one of them would have no watermark."""

    def build() -> dict[str, hw.Stream]:
        at_once = hw.read.iterable([pa.concat_batches(readings(1, lag=0.0))], schema=SCHEMA)
        rows = at_once.with_watermark("ts", DELAY).key_by("key").stateful(as_it_came, schema=SCHEMA)
        counts = rows.key_by("key").window(F.window("ts", "20 seconds")).agg(F.count().alias("n"))
        return {"both": rows.select("n", "key").union(counts.select("n", "key"))}

    both = Both("read-twice")
    on_headwater(both.flow(0, build()))
    on_structured(both.flow(1, build()))
    ours, theirs = both.rows("both")
    assert unordered(ours) == unordered(theirs)
    assert len(ours) > 70
