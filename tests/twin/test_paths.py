"""What lies between a source and its watermark."""

import pytest

from headwater.connectors import to
from headwater.dataflow.compile import compile_flow
from headwater.dataflow.stream import Stream, flow
from headwater.twin.paths import has_watermark, sources_of, watermark_on
from tests.twin.readings import stream_of

ROWS = stream_of([("a", 1, 1.0)], name="rows")


def marked(stream: Stream) -> Stream:
    """Return the stream with a watermark."""
    return stream.with_watermark("ts", "1 second")


@pytest.mark.parametrize(
    ("stream", "is_known"),
    [
        (marked(ROWS), True),
        (marked(ROWS.filter(lambda batch: batch).select("ts", v="value")), True),
        (marked(ROWS.select(ts="ts")), True),
        (marked(ROWS.map(lambda batch: batch)), False),
        (ROWS, False),
    ],
)
def test_a_watermark_is_known_if_its_column_reaches_it_as_the_source_gave_it(stream: Stream, is_known: bool) -> None:
    graph = compile_flow(flow("f", stream.sink(to.nothing(), name="end")))
    assert (watermark_on(graph, "rows") is not None) == is_known
    assert has_watermark(graph, "rows") == (stream is not ROWS)
    assert sources_of(graph, "end") == ["rows"]


def test_two_different_watermarks_on_one_source_are_none() -> None:
    both = [marked(ROWS), ROWS.with_watermark("ts", "2 seconds")]
    graph = compile_flow(flow("f", *(stream.sink(to.nothing()) for stream in both)))
    assert watermark_on(graph, "rows") is None
