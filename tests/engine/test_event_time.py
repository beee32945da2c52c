"""Event time in the engine: watermarks travel with the rows, the minimum rules, the end lets everything out."""

import datetime as dt
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.dataflow.compile import compile_flow
from headwater.dataflow.stream import Stream, flow, source
from headwater.model.errors import FlowError
from tests.dataflow.specs import Closed, Wall
from tests.engine.clockwork import hold
from tests.engine.small_node import SmallNode

Row = dict[str, Any]
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
SCHEMA = pa.schema([("k", pa.string()), ("t", pa.timestamp("us", "UTC"))])


def at(second: float, key: str = "a") -> Row:
    """Return a row of this event time."""
    return {"k": key, "t": EPOCH + dt.timedelta(seconds=second)}


def batch(*seconds: float, key: str = "a") -> pa.RecordBatch:
    """Return rows of these event times."""
    return pa.RecordBatch.from_pylist([at(second, key) for second in seconds], schema=SCHEMA)


def seconds(rows: Sequence[Row]) -> list[float]:
    """Return the event times of rows."""
    return [(row["t"] - EPOCH).total_seconds() for row in rows]


def rows_from(name: str = "source") -> Stream:
    """Return a source of such rows."""
    return source(Closed(SCHEMA), name=name)


def held_back(*, parallelism: int = 1, delay: str = "10 seconds", chaining: bool = True) -> SmallNode:
    """Return a node with: source, watermark, hold, and sinks for what is let out and what is late."""
    out = hold(rows_from().with_watermark("t", delay, name="marks"), parallelism=parallelism)
    return SmallNode(flow("held", out.sink(Wall(), name="out"), out.late.sink(Wall(), name="late")), chaining=chaining)


def drained(node: SmallNode, sink: str = "out") -> list[float]:
    """Let all turns run and return the event times that reach a sink."""
    node.settle()
    return seconds(node.write_out(sink))


def test_rows_come_out_once_the_watermark_has_passed_them() -> None:
    """The watermark is ten seconds behind the latest row."""
    node = held_back()
    node.feed(batch(1, 5, 3))
    assert drained(node) == []
    node.feed(batch(14))
    assert drained(node) == [1, 3]
    node.feed(batch(30))
    assert drained(node) == [5, 14]


def test_the_end_of_the_source_lets_everything_out() -> None:
    """No row will follow, so nothing is waited for."""
    node = held_back()
    node.feed(batch(1, 5, 3))
    node.end()
    assert drained(node) == [1, 3, 5]
    assert node.ledger().balanced


@pytest.mark.parametrize("chaining", [True, False])
@pytest.mark.parametrize("parallelism", [1, 3])
@given(
    times=st.lists(st.integers(0, 60), min_size=1, max_size=30),
    cuts=st.lists(st.integers(1, 30), max_size=5),
    rows_max=st.integers(1, 7),
)
def test_what_is_late_does_not_depend_on_how_rows_were_batched(
    chaining: bool, parallelism: int, times: list[int], cuts: list[int], rows_max: int
) -> None:
    """One row at a time, all at once, or anything between: the same rows are late."""
    late, latest = [], float("-inf")
    for time in times:
        late += [time] if time < latest - 10 else []
        latest = max(latest, time)
    node = held_back(chaining=chaining, parallelism=parallelism)
    edges = sorted({cut for cut in cuts if cut < len(times)} | {0, len(times)})
    for start, end in pairwise(edges):
        node.feed(batch(*times[start:end]))
        if start % 2:
            node.settle(rows_max)
    node.end()
    node.settle(rows_max)
    assert seconds(node.write_out("late")) == late
    expected = sorted(times)
    for time in late:
        expected.remove(time)
    assert sorted(seconds(node.write_out("out"))) == expected
    assert node.ledger().balanced


@pytest.mark.parametrize("chaining", [True, False])
def test_late_rows_that_nobody_reads_are_accounted_for_inside_a_chain_too(chaining: bool) -> None:
    out = hold(rows_from().with_watermark("t", "10 seconds", name="marks")).map(lambda rows: rows, name="behind")
    node = SmallNode(flow("held", out.sink(Wall(), name="out")), chaining=chaining)
    assert [chain.name for chain in node.graph.chains] == (
        ["marks → hold → behind"] if chaining else ["marks", "hold", "behind"]
    )
    node.feed(batch(1, 40, 2, 35, 3))
    node.end()
    assert drained(node) == [1, 35, 40]
    ledger = node.ledger()
    assert (ledger.dropped, ledger.balanced) == ({"late": 2}, True)


def test_rows_of_a_large_batch_are_not_late_by_the_time_of_its_end() -> None:
    """It lies in several entries, which may be taken in several turns; event time comes behind the last of them."""
    times, schema = [0, 20, 12, 25, 16, 24], SCHEMA.append(pa.field("text", pa.string()))
    out = hold(source(Closed(schema)).with_watermark("t", "10 seconds", name="marks"))
    node = SmallNode(flow("held", out.sink(Wall(), name="out"), out.late.sink(Wall(), name="late")), chaining=False)
    node.feed(pa.RecordBatch.from_pylist([{**at(time), "text": "x" * 600_000} for time in times], schema=schema))
    node.turn("marks")
    held = node.graph.chains[-1].head
    assert len(node.entries(held)) == len(times)
    node.end()
    node.settle(rows_max=1)
    assert node.write_out("late") == []
    assert seconds(node.write_out("out")) == sorted(times)


def test_of_several_inputs_the_slowest_rules() -> None:
    """One source runs ahead; what it brings waits for the other."""
    left, right = rows_from("left"), rows_from("right")
    marked = [stream.with_watermark("t", "0 seconds") for stream in (left, right)]
    node = SmallNode(flow("two", hold(*marked).sink(Wall(), name="out")))
    node.feed(batch(5, 50), source="left")
    assert drained(node) == []
    node.feed(batch(20), source="right")
    assert drained(node) == [5]
    node.end("left")
    assert drained(node) == []
    node.feed(batch(40), source="right")
    assert drained(node) == [20]
    node.end("right")
    assert drained(node) == [40, 50]


def test_a_union_waits_for_its_slowest_part_too() -> None:
    """Both ways lead into one input."""
    marked = [rows_from(name).with_watermark("t", "0 seconds") for name in ("one", "other")]
    node = SmallNode(flow("united", hold(marked[0].union(marked[1])).sink(Wall(), name="out")))
    node.feed(batch(5, 9), source="one")
    assert drained(node) == []
    node.feed(batch(7), source="other")
    assert drained(node) == [5]


def test_an_idle_input_holds_nothing_back() -> None:
    """After two seconds of silence by the clock the others go on; when it comes back, it counts again."""
    left = rows_from("left").with_watermark("t", "0 seconds", name="marks-left")
    right = rows_from("right").with_watermark("t", "0 seconds", idle="2 seconds", name="marks-right")
    node = SmallNode(flow("idle", hold(left, right).sink(Wall(), name="out")))
    node.now_us = 1_000_000
    assert node.turn("marks-right").wake_us == 3_000_000
    node.feed(batch(5, 50), source="left")
    assert drained(node) == []
    node.now_us = 3_000_000
    node.turn("marks-right")
    assert drained(node) == [5]
    node.feed(batch(60), source="right")
    node.feed(batch(70), source="left")
    assert drained(node) == [50]


def test_a_heartbeat_lets_event_time_go_on_with_the_clock() -> None:
    """No row comes, and yet what waits is let out, in steps of the heartbeat."""
    marked = rows_from().with_watermark("t", "10 seconds", heartbeat="5 seconds", name="marks")
    node = SmallNode(flow("beat", hold(marked).sink(Wall(), name="out")))
    node.now_us = 100_000_000
    node.feed(batch(1, 3))
    assert drained(node) == []
    for second, expected in [(104, []), (105, []), (110, [1]), (115, [3])]:
        node.now_us = second * 1_000_000
        node.turn("marks")
        assert drained(node) == expected, second


def test_an_operator_that_asks_for_the_clock_gets_a_turn() -> None:
    """The report says when; a turn at that time lets the rows out though nothing has arrived."""
    node = SmallNode(flow("clock", hold(rows_from(), by_clock_us=500).sink(Wall(), name="out")))
    node.now_us = 1_000
    node.feed(batch(5))
    assert node.turn("hold").wake_us == 1_500
    node.now_us = 1_499
    assert (node.turn("hold").note, drained(node)) == ("empty", [])
    node.now_us = 1_500
    node.turn("hold")
    assert drained(node) == [5]


def test_late_rows_that_nobody_reads_are_counted_as_late() -> None:
    """The ledger gives the reason."""
    node = SmallNode(flow("lost", hold(rows_from().with_watermark("t", "0 seconds")).sink(Wall(), name="out")))
    node.feed(batch(10, 5, 7))
    node.end()
    node.settle()
    assert node.ledger().dropped == {"late": 2}
    assert node.ledger().balanced


def test_time_without_a_watermark_is_refused() -> None:
    """It would wait for ever."""
    bare = rows_from("bare")
    with pytest.raises(FlowError, match=r"hold 'hold' works by event time, but what it reads from .* has no watermark"):
        compile_flow(flow("none", hold(bare).sink(Wall())))


def test_event_time_must_be_a_timestamp() -> None:
    """Known from the declared columns."""
    with pytest.raises(FlowError, match="takes event time from column 'k', a string; it must be a timestamp"):
        compile_flow(flow("text", rows_from().with_watermark("k", "1 second").sink(Wall())))


def test_an_input_that_ended_does_not_wait_for_an_idle_one() -> None:
    """Event time stands where the furthest has brought it; the end comes only once the idle one ends too."""
    busy = rows_from("busy").with_watermark("t", "2 seconds", name="marks-busy")
    silent = rows_from("silent").with_watermark("t", "2 seconds", idle="1 second", name="marks-silent")
    node = SmallNode(flow("ended", hold(busy.union(silent)).sink(Wall(), name="out")))
    node.now_us = 1_000_000
    node.turn("marks-silent")
    node.feed(batch(1, 9), source="busy")
    node.end("busy")
    assert drained(node) == []
    node.now_us = 2_000_000
    node.turn("marks-silent")
    assert drained(node) == [1]
    node.end("silent")
    assert drained(node) == [9]
