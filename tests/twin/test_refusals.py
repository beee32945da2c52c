"""What Structured Streaming cannot express is refused before anything starts."""

from collections.abc import Callable
from typing import Any

import pytest

from headwater.connectors import read, to
from headwater.dataflow.compile import compile_flow
from headwater.dataflow.stream import Stream, Vertex, flow
from headwater.model.errors import ConfigError, FlowError
from headwater.operators.base import Operator
from headwater.operators.windows.window_specs import Aggregate, CountWindow, SessionWindow, TimeWindow
from headwater.twin.query import run_structured
from headwater.twin.refusals import refusals
from tests.twin.readings import stream_of

SECOND = 1_000_000
COUNT = Aggregate("count", None, "n")
MINUTE = TimeWindow("ts", 60 * SECOND, 60 * SECOND)


def rows(delay: str = "5 seconds", **how: Any) -> Stream:
    """Return rows with a watermark."""
    return stream_of([("a", 1, 1.0)]).with_watermark("ts", delay, name="marks", **how)


def refused(stream: Stream) -> list[str]:
    """Return why a flow is refused."""
    return refusals(compile_flow(flow("f", stream.sink(to.nothing()))))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: rows().window(MINUTE, early="1 second").agg(COUNT, name="w"), "window 'w' fires early"),
        (lambda: rows().window(MINUTE, early_rows=1).agg(COUNT, name="w"), "window 'w' fires early"),
        (lambda: rows().window(MINUTE, lateness="1 second").agg(COUNT, name="w"), "window 'w' fires again"),
        (
            lambda: rows().key_by("key").window(SessionWindow(None, SECOND)).agg(COUNT, name="w"),
            "window 'w' goes by the clock",
        ),
        (lambda: rows().window(MINUTE).agg(COUNT, name="w").late, "reads the late rows of 'w'"),
        (lambda: rows(idle="1 second"), "with_watermark 'marks' goes on without an idle input"),
        (lambda: rows(heartbeat="1 second"), "with_watermark 'marks' goes on with the clock"),
        (lambda: rows("5 us"), "with_watermark 'marks' has a delay in microseconds"),
        (lambda: rows().with_watermark("ts", "1 second", name="again"), "with_watermark 'again' follows"),
        (
            lambda: rows().window(MINUTE).agg(COUNT, name="w", on_error="dead-letter"),
            "window 'w' makes dead letters",
        ),
        (lambda: rows().distinct("key", method="bloom", name="d"), "distinct 'd' uses a bloom filter"),
    ],
)
def test_what_cannot_be_expressed_is_refused_with_the_operators_name(make: Callable[[], Stream], told: str) -> None:
    [sentence] = refused(make())
    assert told in sentence
    assert "Structured Streaming" in sentence


def test_a_source_that_acknowledges_to_its_sender_is_refused() -> None:
    [sentence] = refused(read.mqtt("mqtt://user:hidden@host/city/dust", name="in"))
    assert "source 'in' reads from an mqtt broker" in sentence
    assert "Structured Streaming" in sentence
    assert "hidden" not in sentence


def test_everything_that_is_wrong_is_told_at_once_and_nothing_starts() -> None:
    window = rows(idle="1 second").window(MINUTE, early_rows=1).agg(COUNT, name="w")
    with pytest.raises(FlowError, match=r"idle input.*; window 'w' fires early"):
        run_structured(flow("f", window.sink(to.nothing())))


def test_an_operator_that_nobody_knows_is_refused() -> None:
    class Unheard(Operator):
        kind = "unheard"

        def open(self) -> Any:
            raise NotImplementedError

    [sentence] = refused(Stream(Vertex(Unheard(), (rows(),), "u")))
    assert sentence == "operator 'u' is a unheard, for which Structured Streaming has no counterpart"


@pytest.mark.parametrize(
    "make",
    [
        lambda: rows().key_by("key").window(CountWindow(3, 1)).agg(COUNT),
        lambda: rows().window(MINUTE).top_k(3, "value"),
        lambda: rows().join(rows_of_another(), "key", window=MINUTE, how="full"),
        lambda: rows().dedup("key", event_time="ts", within="1 minute"),
        lambda: rows().key_by("key").reduce(lambda before, row: row),
        lambda: rows().transform(lambda frame: frame),
    ],
)
def test_what_can_be_expressed_is_not_refused(make: Callable[[], Stream]) -> None:
    assert refused(make()) == []


def rows_of_another() -> Stream:
    """Return a second stream."""
    return stream_of([("a", 1, 1.0)]).with_watermark("ts", "1 second")


def test_a_cluster_needs_a_directory_that_its_workers_see() -> None:
    with pytest.raises(ConfigError, match="needs a directory that all workers see"):
        run_structured(flow("f", rows().sink(to.nothing())), master="spark://elsewhere:7077")
