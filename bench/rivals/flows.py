"""An application as a flow under measurement: from a socket into sinks that only look at the clock."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from bench.rivals.contests import CONTESTS, Contest, Result
from bench.rivals.recording import Recorder, told_items, write_recording
from bench.rivals.serving import Request
from bench.rivals.socketlines import SocketLines
from headwater.dataflow.connectors import Position
from headwater.dataflow.stream import Flow, Stream, flow, source


class RecordingSink:
    """Notes when results come, and keeps some; its own writer, as it lives in the process that measures."""

    kind: ClassVar[str] = "record"
    guarantee: ClassVar[str] = "at-most-once"
    blocking: ClassVar[bool] = False

    def __init__(self, contest: Contest, name: str, recorder: Recorder) -> None:
        """Note results of this kind."""
        self._contest, self._name, self._recorder = contest, name, recorder

    def open(self, position: Position | None) -> "RecordingSink":
        """Return the writer."""
        return self

    def write(self, batches: list[pa.RecordBatch]) -> Position:
        """Look at the clock; what is kept is copied, since a batch lies in the store's memory."""
        for batch in batches:
            kept = np.arange(batch.num_rows)[self._recorder.came(batch.num_rows)]
            self._recorder.batches.append((self._recorder.last_us, batch.take(pa.array(kept))))
        return {"rows": self._recorder.count}

    def close(self) -> None:
        """Nothing is open."""

    def record(self, path: Path) -> None:
        """Write down what came, in the form that is compared."""
        batches = [(arrived_us, self._items(batch)) for arrived_us, batch in self._recorder.batches]
        write_recording(path, self._recorder.count, self._recorder.last_us, batches)

    def _items(self, batch: pa.RecordBatch) -> list[Result]:
        """Return results: a query written by hand tells them as texts."""
        if batch.schema.names == ["told"]:
            return told_items(batch["told"].to_pylist())
        return self._contest.items(self._name, batch)


class SinkRecording:
    """The recording of a sink."""

    def __init__(self, sink: RecordingSink) -> None:
        """Wrap it: a sink's `write` takes batches, a recording's a path."""
        self._sink = sink

    def write(self, path: Path) -> None:
        """Write it to a file."""
        self._sink.record(path)


Build = Callable[[Stream], Stream | Mapping[str, Stream]]


def measured_flow(request: Request, copy: int, build: Build | None = None) -> tuple[Flow, list[RecordingSink]]:
    """Return one copy of an application, built as it is or in another way, and its sinks."""
    contest = CONTESTS[request.contest]
    app = contest.app()
    rows = source(SocketLines(request.ports[copy], app.wire, app.schema), name="input")
    built = app.build(rows) if build is None else build(rows)
    named = built if isinstance(built, Mapping) else {"results": built}
    sinks = {name: RecordingSink(contest, name, request.recorder(copy)) for name in named}
    parts = [stream.sink(sinks[name], name=f"to-{name}") for name, stream in named.items()]
    return flow(f"{request.contest}-{copy}", *parts), list(sinks.values())
