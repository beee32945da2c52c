"""Where Bytewax's flows begin and end: lines from a socket, results into a recorder."""

import socket
from collections.abc import Callable, Sequence
from typing import Any

from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.operators import StatefulBatchLogic
from bytewax.outputs import DynamicSink, StatelessSinkPartition

from bench.rivals.recording import Recorder

READ_BYTES = 1 << 18


class SocketPartition(StatelessSourcePartition[bytes]):
    """Gives all lines that have come as one batch."""

    def __init__(self, port: int) -> None:
        """Connect."""
        self._connection = socket.create_connection(("127.0.0.1", port))
        self._connection.setblocking(False)
        self._rest = b""

    def next_batch(self) -> list[bytes]:
        """Return what has come; Bytewax asks again after a millisecond if that is nothing."""
        try:
            data = self._connection.recv(READ_BYTES)
        except BlockingIOError:
            return []
        if not data:
            raise StopIteration
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()


class SocketSource(DynamicSource[bytes]):
    """Lines that a server on this machine sends."""

    def __init__(self, port: int) -> None:
        """Connect later, where the flow runs."""
        self._port = port

    def build(self, step_id: str, worker_index: int, worker_count: int) -> SocketPartition:
        """Connect."""
        return SocketPartition(self._port)


class RecordingPartition(StatelessSinkPartition[Any]):
    """Hands results to the recorder."""

    def __init__(self, recorder: Recorder) -> None:
        """Wrap it."""
        self._recorder = recorder

    def write_batch(self, items: list[Any]) -> None:
        """Note a batch."""
        self._recorder.note(items)


class RecordingSink(DynamicSink[Any]):
    """The end of a flow."""

    def __init__(self, recorder: Recorder) -> None:
        """Note all results there."""
        self._recorder = recorder

    def build(self, step_id: str, worker_index: int, worker_count: int) -> RecordingPartition:
        """Return the sink of a worker."""
        return RecordingPartition(self._recorder)


class ByKey(StatefulBatchLogic[Any, Any, None]):
    """A key's state and what to do with the key's values of a batch: a loop in Python rather than a call a value."""

    def __init__(self, state: Any, step: Callable[[Any, Sequence[Any]], list[Any]]) -> None:
        """Begin with this state."""
        self._state, self._step = state, step

    def on_batch(self, values: list[Any]) -> tuple[list[Any], bool]:
        """Work on a batch."""
        return self._step(self._state, values), StatefulBatchLogic.RETAIN

    def snapshot(self) -> None:
        """Keep nothing: there is no recovery store."""


def by_key(make: Callable[[], Any], step: Callable[[Any, Sequence[Any]], list[Any]]) -> Callable[[Any], ByKey]:
    """Return what builds the logic of a key."""
    return lambda _: ByKey(make(), step)
