"""Lines from a TCP connection as a source of Headwater: text or JSON, as an application's `wire` says.

It never blocks: many such sources share a thread, and what they have is committed together.
"""

import socket
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headwater.connectors.application import Wire
from headwater.connectors.columns import KnownColumns
from headwater.connectors.files.decoding import BadLine, Decoder
from headwater.connectors.files.formats import JsonFormat, TextFormat
from headwater.connectors.files.lines import Cut
from headwater.dataflow.connectors import Ended, Idle, Poll, Position, Rows
from headwater.model.errors import ConnectorError

READ_BYTES: Final = 1 << 20
LOOK_US: Final = 50_000  # until the next look, where nothing has come; what comes is heard at once
LINE_BYTES_MAX: Final = 1 << 24


@dataclass(frozen=True, slots=True)
class SocketLines:
    """The lines that a server on this machine sends; its end is the end of the source."""

    port: int
    wire: Wire
    schema: pa.Schema
    kind: str = "socket"
    can_wait: bool = True  # what is not read waits in the connection, and then at the sender
    blocking: bool = False
    guarantee: str = "at-most-once"

    def open(self, position: Position | None) -> "SocketReader":
        """Connect; a connection cannot be gone back in."""
        return SocketReader(self)


class SocketReader:
    """Reads what has come."""

    def __init__(self, spec: SocketLines) -> None:
        """Connect."""
        self._connection = socket.create_connection(("127.0.0.1", spec.port))
        self._connection.setblocking(False)
        form = TextFormat() if spec.wire == "text" else JsonFormat()
        self._decoder = Decoder(form, KnownColumns(spec.schema), skip_bad=False)
        self._data = b""
        self._ended = False
        self._rows = 0

    def poll(self, rows_max: int, now_us: int) -> Poll:
        """Return the whole lines that are there."""
        if not self._ended:
            self._receive()
        cut = self._first(rows_max)
        if len(cut.ends) == 0:
            return Ended() if self._ended else Idle(now_us + LOOK_US)
        decoded = self._decoder.decode(self._data, cut)
        if isinstance(decoded, BadLine):
            raise ConnectorError(f"line {self._rows + 1} from the socket {decoded.reason}")
        self._data = self._data[decoded.consumed :]
        self._rows += decoded.batch.num_rows
        return Rows(decoded.batch, {"rows": self._rows})

    def fileno(self) -> int:
        """Return the connection's descriptor: the node asks when something has come."""
        return self._connection.fileno()

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()

    def _receive(self) -> None:
        """Take what has come, unless enough for a poll or two is here already."""
        if len(self._data) > LINE_BYTES_MAX:
            raise ConnectorError(f"a line from the socket is longer than {LINE_BYTES_MAX >> 20} MiB")
        if len(self._data) >= READ_BYTES and b"\n" in self._data:
            return
        try:
            data = self._connection.recv(READ_BYTES)
        except BlockingIOError:
            return
        self._ended = not data
        self._data += data

    def _first(self, rows_max: int) -> Cut:
        """Cut off at most so many lines."""
        cut = self._decoder.form.cut(self._data, self._ended)
        if len(cut.ends) <= rows_max:
            return cut
        return Cut(cut.starts[:rows_max], cut.ends[:rows_max], int(cut.ends[rows_max - 1]))
