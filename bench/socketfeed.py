"""Feeds Spark's socket source: rows at a pace over TCP, one connection for each query, each row with its due time."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

TICK_S: Final = 0.001  # between looks at what is due; far below a micro-batch


@dataclass(slots=True)
class _Listener:
    connection: socket.socket
    began_us: int
    sent: int = 0


class SocketFeed:
    """Serves any number of connections with the same pace, each from its own beginning."""

    def __init__(self, rate: float, line: Callable[[int, int], str]) -> None:
        """Listen; `line` makes the text of a row from its number and its due time."""
        self._rate, self._line = rate, line
        self._server = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._server.setblocking(False)
        self.port: int = self._server.getsockname()[1]
        self._listeners: list[_Listener] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="socket-feed", daemon=True)

    def __enter__(self) -> "SocketFeed":
        """Begin to serve."""
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        """Close all connections."""
        self._stopping.set()
        self._thread.join()
        for listener in self._listeners:
            listener.connection.close()
        self._server.close()

    def _serve(self) -> None:
        while not self._stopping.wait(TICK_S):
            with contextlib.suppress(BlockingIOError):
                self._accept()
            for listener in list(self._listeners):
                self._send(listener)

    def _accept(self) -> None:
        connection, _ = self._server.accept()
        connection.setblocking(True)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._listeners.append(_Listener(connection, time.time_ns() // 1_000))

    def _send(self, listener: _Listener) -> None:
        due = int((time.time_ns() // 1_000 - listener.began_us) * self._rate / 1e6)
        if due <= listener.sent:
            return
        rows = range(listener.sent, due)
        text = "".join(f"{self._line(row, listener.began_us + int(row * 1e6 / self._rate))}\n" for row in rows)
        listener.sent = due
        try:
            listener.connection.sendall(text.encode())
        except OSError:  # the query was stopped
            self._listeners.remove(listener)
            listener.connection.close()
