"""Driving sources and sinks as the engine does, with a clock that only the test moves."""

from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any

import msgspec
import pyarrow as pa

from headwater.dataflow.connectors import Ended, Idle, Position, Rows, SinkSpec, SourceReader, SourceSpec
from headwater.dataflow.stream import Stream

Row = dict[str, Any]


def spec_of(stream: Stream) -> SourceSpec:
    """Return the source that a stream begins with."""
    part = stream.vertex.part
    assert isinstance(part, SourceSpec)
    return part


def polled(reader: SourceReader, rows_max: int = 1000, now_us: int = 0) -> Rows:
    """Poll once, and expect rows."""
    answer = reader.poll(rows_max, now_us)
    assert isinstance(answer, Rows), answer
    return answer


def drained(stream: Stream, rows_max: int = 1000) -> list[Rows]:
    """Return everything that a source without a pace sends, to its end."""
    return rest_of(spec_of(stream).open(None), rows_max)


def rest_of(reader: SourceReader, rows_max: int = 1000) -> list[Rows]:
    """Return everything that a reader still sends."""
    answers = []
    while not isinstance(answer := reader.poll(rows_max, 0), Ended):
        if isinstance(answer, Rows):
            answers.append(answer)
    reader.close()
    return answers


def rows_in(answers: Iterable[Rows]) -> list[Row]:
    """Return the rows of several answers."""
    return [row for answer in answers for row in answer.batch.to_pylist()]


def stored_form(position: Position) -> Position:
    """Return a position as it comes back from the store."""
    kept: Position = msgspec.msgpack.decode(msgspec.msgpack.encode(position))
    return kept


def read_with_restarts(stream: Stream, steps: Sequence[tuple[int, bool, bool]]) -> list[Row]:
    """Return the rows that are committed when each step polls, commits or loses the rows, and perhaps restarts.

    A restart goes on behind the last committed position; the steps are repeated until the source ends.
    """
    spec, position = spec_of(stream), None
    stored: list[Row] = []
    reader = spec.open(None)
    for index in range(100_000):
        rows_max, is_committed, restarts = steps[index % len(steps)]
        answer = reader.poll(rows_max, 0)
        if isinstance(answer, Ended):
            reader.close()
            return stored
        if isinstance(answer, Rows) and is_committed:
            assert answer.batch.num_rows <= rows_max
            stored += answer.batch.to_pylist()
            position = stored_form(answer.position)
        if restarts or (isinstance(answer, Rows) and not is_committed):
            reader.close()
            reader = spec.open(position)
    raise AssertionError("the source does not end")


def sent_at(reader: SourceReader, now_us: int, rows_max: int = 1000) -> tuple[int, int | None]:
    """Return how many rows leave at an instant, and when the first was due; for none, when the next is due."""
    answer = reader.poll(rows_max, now_us)
    if isinstance(answer, Idle):
        return 0, answer.until_us
    assert isinstance(answer, Rows), answer
    return answer.batch.num_rows, answer.due_us


def written(sink: SinkSpec, *batches: pa.RecordBatch) -> Position:
    """Write batches one by one to a new sink and return the last position."""
    with closing(sink.open(None)) as writer:
        position = writer.write([])
        for batch in batches:
            position = writer.write([batch])
    return position


def batch_of(**columns: Any) -> pa.RecordBatch:
    """Return a batch of these columns."""
    return pa.RecordBatch.from_pydict(columns)
