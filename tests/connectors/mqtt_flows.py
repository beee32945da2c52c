"""Driving a reader of a broker as the engine does, with a store that is a variable."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

import headwater as hw
from headwater.connectors.mqtt.source import MqttReader
from headwater.dataflow.connectors import Idle, Position, Rows, SinkSpec
from tests.connectors.brokers import Broker, eventually
from tests.connectors.polls import spec_of, stored_form


def numbers(first: int, last: int) -> list[bytes]:
    """Return messages with a number each."""
    return [b'{"n": %d}' % n for n in range(first, last)]


class Drive:
    """A reader, and what is committed of it."""

    def __init__(self, stream: hw.Stream) -> None:
        """Open it for the first time."""
        self._spec = spec_of(stream)
        self.position: Position | None = None
        self.rows: list[dict[str, Any]] = []
        self.refused = self.unparsable = 0
        self.reader: MqttReader
        self.open()

    @property
    def client_id(self) -> str:
        """The name that the broker knows."""
        assert self.position is not None
        name: str = self.position["client"]
        return name

    @property
    def numbers(self) -> list[int]:
        """The numbers that are committed."""
        return [row["n"] for row in self.rows]

    def open(self) -> None:
        """Go on behind the committed position."""
        reader = self._spec.open(self.position)
        assert isinstance(reader, MqttReader)
        self.reader = reader

    def reopen(self) -> None:
        """Leave the broker and come back; what was polled and not committed is forgotten here."""
        self.close()
        self.open()

    def poll(self, rows_max: int = 1_000) -> Rows:
        """Return the next rows, or the next position without any."""
        while isinstance(answer := self.reader.poll(rows_max, 0), Idle):
            pass
        assert isinstance(answer, Rows)
        return answer

    def commit(self, rows: Rows) -> None:
        """Keep rows and position together; the reader does not hear of it yet."""
        self.rows += rows.batch.to_pylist()
        self.position = stored_form(rows.position)
        self.refused += rows.refused
        self.unparsable += rows.unparsable

    def step(self, rows_max: int = 1_000) -> Rows:
        """Poll, commit and tell the reader."""
        rows = self.poll(rows_max)
        self.commit(rows)
        self.reader.stored(rows.position)
        return rows

    def turn(self) -> None:
        """Poll once, and commit what there is."""
        answer = self.reader.poll(1_000, 0)
        if isinstance(answer, Rows):
            self.commit(answer)
            self.reader.stored(answer.position)

    def until(self, holds: Callable[["Drive"], object]) -> "Drive":
        """Go on until this holds."""
        while not holds(self):
            self.turn()
        return self

    def until_rows(self, count: int) -> list[int]:
        """Go on until there are so many rows, and return their numbers."""
        return self.until(lambda drive: len(drive.rows) >= count).numbers

    def close(self) -> None:
        """Leave the broker."""
        self.reader.close()


def sent(sink: SinkSpec, *batches: pa.RecordBatch) -> Position:
    """Write batches one by one to a new sink and return the last position; leave the broker whatever happens."""
    writer = sink.open(None)
    try:
        return [writer.write([batch]) for batch in batches][-1]
    finally:
        writer.close()


@contextmanager
def reading(broker: Broker, topic: str, **how: Any) -> Iterator[Drive]:
    """A reader that has subscribed."""
    drive = Drive(hw.read.mqtt(f"{broker.url}/{topic}", **how))
    try:
        drive.step()
        eventually(lambda: broker.logged("Sending SUBACK to", drive.client_id), "the reader has subscribed")
        yield drive
    finally:
        drive.close()
