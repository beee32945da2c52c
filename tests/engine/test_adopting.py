"""The next version of a flow goes on where the one before stood: what comes out is what either alone would give."""

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import headwater as hw
from headwater import functions as F
from headwater.dataflow.compile import compile_flow
from headwater.dataflow.manifest import manifest_of
from headwater.dataflow.stream import Stream
from headwater.dataflow.succession import succession
from headwater.engine.moving import begin_under, keep_lot
from headwater.engine.plans import plan_chain
from headwater.engine.state_adoption import SLICE, adopt, adopt_as_it_lies, copy_range, rows_waiting
from headwater.model.ids import AppId, InstanceId
from headwater.model.store_layout import app_prefixes
from headwater.storage.memory_store import MemoryStore
from tests.engine.small_node import Row, SmallNode

BEGAN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("sensor", pa.string()), ("v", pa.int64())])

TEN = F.window("at", "10 seconds")

Build = Callable[[Stream, Stream], Stream]


def reading(n: int) -> Row:
    """A row; every seventh comes some seconds late."""
    return {"at": BEGAN + dt.timedelta(seconds=n - (n % 7 == 0) * 5), "sensor": f"s{n % 5}", "v": n * 13 % 17}


def running_sum(row: hw.Row, total: int | None) -> tuple[hw.Row, int]:
    """The sum so far."""
    return {**row, "sum": (total or 0) + row["v"]}, (total or 0) + row["v"]


def added(so_far: hw.Row, row: hw.Row) -> hw.Row:
    """The sum so far, as a row."""
    return {**row, "v": so_far["v"] + row["v"]}


def summed(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of a window in one."""
    return pd.DataFrame({"sum": [int(rows["v"].sum())], "rows": [len(rows)]})


def keyed(readings: Stream) -> Any:
    """The rows by sensor, with a watermark."""
    return readings.with_watermark("at", "2 seconds", name="marked").key_by("sensor")


def both(readings: Stream, others: Stream) -> tuple[Stream, Stream]:
    """Two streams with watermarks so patient that no row is late, which for two depends on how they interleave."""
    marked = others.with_watermark("at", "20 seconds", name="others-marked")
    return readings.with_watermark("at", "20 seconds", name="marked"), marked


def interval_join(readings: Stream, others: Stream) -> Stream:
    """Rows of the two streams that are close to each other."""
    here, there = both(readings, others)
    between = ("-3 seconds", "2 seconds")
    return here.join(there, "sensor", between=between, event_time="at", how="left", name="op", parallelism=2)


def window_join(readings: Stream, others: Stream) -> Stream:
    """Rows of the two streams in the same window."""
    here, there = both(readings, others)
    return here.join(there, "sensor", window=F.window("at", "5 seconds"), how="full", name="op")


BUILDS: dict[str, Build] = {
    "stateful": lambda rows, _: rows.key_by("sensor").stateful(running_sum, name="op", parallelism=3),
    "reduce": lambda rows, _: rows.key_by("sensor").reduce(added, name="op"),
    "top_k": lambda rows, _: rows.key_by("sensor").top_k(3, "v", name="op"),
    "tumbling": lambda rows, _: keyed(rows).window(TEN).agg(F.count(), F.avg("v"), name="op", parallelism=2),
    "sliding": lambda rows, _: keyed(rows).window(F.window("at", "9 seconds", "4 seconds")).agg(F.max("v"), name="op"),
    "session": lambda rows, _: keyed(rows).window(F.session_window("at", "6 seconds")).agg(F.count(), name="op"),
    "count": lambda rows, _: rows.key_by("sensor").window(F.count_window(4, 2)).agg(F.sum("v"), name="op"),
    "apply": lambda rows, _: keyed(rows).window(F.window("at", "8 seconds")).apply(summed, form="pandas", name="op"),
    "window_top_k": lambda rows, _: keyed(rows).window(F.window("at", "8 seconds")).top_k(2, "v", name="op"),
    "lateness": lambda rows, _: keyed(rows).window(TEN, lateness="4 seconds").agg(F.count(), name="op"),
    "dedup": lambda rows, _: rows.dedup("sensor", "v", name="op"),
    "dedup_within": lambda rows, _: keyed(rows).dedup("sensor", "v", event_time="at", within="20 seconds", name="op"),
    "bloom": lambda rows, _: rows.distinct("sensor", "v", method="bloom", capacity=1_000, name="op"),
    "interval_join": interval_join,
    "window_join": window_join,
}  # fmt: skip


def versions(build: Build) -> tuple[hw.Flow, hw.Flow]:
    """A flow, and another version of it: the same, but every operator has another number and other neighbours."""
    readings, others = (hw.read.generator(lambda *_: [], schema=SCHEMA, name=name) for name in ("rows", "others"))
    first = build(readings, others)
    moved = readings.filter(hw.col("v") >= 0, name="all").map(lambda batch: batch, name="same", schema=SCHEMA)
    second = build(moved, others.filter(hw.col("v") >= 0, name="all-others"))
    return (
        hw.flow("f", first.sink(hw.to.nothing(), name="out"), others.sink(hw.to.nothing(), name="unread")),
        hw.flow("f", second.sink(hw.to.nothing(), name="out"), others.sink(hw.to.nothing(), name="unread")),
    )


def fed(node: SmallNode, numbers: Sequence[int]) -> list[Row]:
    """What comes out for these rows, a few at a time on each source."""
    out: list[Row] = []
    for start in range(0, len(numbers), 11):
        some = numbers[start : start + 11]
        node.feed([reading(n) for n in some], source="rows")
        node.feed([{**reading(n), "v": n} for n in some if n % 2 or len(some) == 1], source="others")
        node.settle(4)
        out += node.write_out("out")
        node.write_out("unread")
    return out


def ended(node: SmallNode) -> list[Row]:
    """What comes out when no more rows come."""
    node.end("rows")
    node.end("others")
    node.settle()
    return node.write_out("out")


def in_order(rows: list[Row], build: Build) -> list[str]:
    """Rows by sensor, those of a sensor as they came; of a join, in which two streams interleave, in any order."""
    of_one = build not in (interval_join, window_join)
    return [str(row) for row in sorted(rows, key=lambda row: str(row.get("sensor")) if of_one else str(row))]


@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_what_comes_out_over_an_upgrade_is_what_comes_out_without(build: Build) -> None:
    """State, watermarks and timers go on; nothing is lost, doubled or late that would not be."""
    first, second = versions(build)
    alone = SmallNode(first)
    expected = [*fed(alone, range(200)), *ended(alone)]
    before = SmallNode(first, store=MemoryStore())
    out = fed(before, range(90))
    kept = succession("f", manifest_of(before.graph), manifest_of(compile_flow(second)))
    assert "op" in kept.kept
    adopt(before.store, before.app, AppId(2), kept)
    after = SmallNode(second, store=before.store, number=2)
    out += fed(after, range(90, 200))
    out += ended(after)
    assert in_order(out, build) == in_order(expected, build)
    assert after.ledger().balanced


def test_a_stream_that_had_ended_is_heard_to_end_again() -> None:
    """What waits for both inputs must not wait for ever for the one that ended under the version before."""
    first, second = versions(window_join)
    before = SmallNode(first)
    out = fed(before, range(50))
    before.end("others")
    before.settle()
    out += before.write_out("out")
    kept = succession("f", manifest_of(before.graph), manifest_of(compile_flow(second)))
    adopt(before.store, before.app, AppId(2), kept)
    after = SmallNode(second, store=before.store, number=2)
    after.end("others")  # a reader that is opened at the end says so again
    after.feed([reading(n) for n in range(50, 120)], source="rows")
    after.settle()
    assert after.write_out("out"), "windows of rows that came long ago are still open"


def test_what_is_given_up_begins_with_nothing() -> None:
    first, second = versions(BUILDS["stateful"])
    before = SmallNode(first)
    fed(before, range(20))
    kept = succession("f", manifest_of(before.graph), manifest_of(compile_flow(second)), ["op"])
    adopt(before.store, before.app, AppId(2), kept)
    after = SmallNode(second, store=before.store, number=2)
    assert after.state_of("op") == {}
    assert [row["sum"] for row in fed(after, [1])] == [reading(1)["v"]]


def test_a_version_of_the_same_structure_takes_the_rows_that_wait() -> None:
    """As after a function has failed at one of them: queues, counts and state are where they were."""
    first, _ = versions(BUILDS["stateful"])
    before = SmallNode(first)
    fed(before, range(20))
    before.feed([reading(n) for n in range(20, 30)], source="rows")
    with before.store.read() as snapshot:
        assert rows_waiting(snapshot, before.app) == 10
    adopt_as_it_lies(before.store, before.app, AppId(2))
    after = SmallNode(first, store=before.store, number=2)
    after.fed = before.fed
    after.settle()
    assert len(after.write_out("out")) == 10
    assert after.ledger().balanced


def test_a_range_of_any_length_is_copied_whole() -> None:
    """In slices, whose edges must neither drop nor double anything."""
    for count in (0, 1, SLICE - 1, SLICE, SLICE + 1, 2 * SLICE):
        store = MemoryStore()
        entries = {b"a/" + n.to_bytes(4, "big"): str(n).encode() for n in range(count)}
        with store.write() as txn:
            txn.put_many([*entries.items(), (b"a0", b"another's"), (b"a.", b"another's")])
        copy_range(store, b"a/", b"other/")
        with store.read() as snapshot:
            copied = {bytes(key[6:]): bytes(value) for key, value in snapshot.scan(b"other/")}
        assert copied == {key[2:]: value for key, value in entries.items()}


def test_every_range_of_an_app_has_its_place_in_a_copy() -> None:
    """A kind of record that is added to the store must not be forgotten here."""
    assert [prefix[:1] for prefix in app_prefixes(AppId(1))] == [prefix[:1] for prefix in app_prefixes(AppId(2))]


def test_a_copy_of_the_state_that_was_left_behind_is_not_taken_for_it_after_an_upgrade() -> None:
    """An instance that went elsewhere without its state, and comes back, begins under a lot that the copy has not."""
    first, second = versions(BUILDS["stateful"])
    before = SmallNode(first)
    fed(before, range(20))
    with before.store.write() as txn:
        for number in range(before.graph.instance_count):
            keep_lot(txn, InstanceId(before.app, number), (7, number))
    kept = succession("f", manifest_of(before.graph), manifest_of(compile_flow(second)))
    adopt(before.store, before.app, AppId(2), kept)
    after = SmallNode(second, store=before.store, number=2)
    assert after.state_of("op") != {}
    [chain] = [one for one in after.graph.chains if "op" in one.operators]
    plan = plan_chain(after.graph, after.app, chain)
    old = before.graph.targets("op")
    with after.store.write() as txn:
        for index, number in enumerate(chain.instances):
            begin_under(txn, plan, InstanceId(after.app, number), (7, old[index]), ())
    assert after.state_of("op") != {}
    with after.store.write() as txn:
        for number in chain.instances:
            begin_under(txn, plan, InstanceId(after.app, number), (8, 0), ())
    assert after.state_of("op") == {}
