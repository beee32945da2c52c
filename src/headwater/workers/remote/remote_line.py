"""A worker's end of the connection to a node elsewhere: turns and questions about the store, over TLS."""

import socket
import ssl
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Final

from headwater.model.frames import BrokenFrame, Inbox
from headwater.spark.address import Door
from headwater.workers.local.wire import SILENCE_S, Done, Goodbye, Hello, NodeAlive, Turn, arrived
from headwater.workers.remote.store_wire import (
    MESSAGE_BYTES_MAX,
    Along,
    Answer,
    CloseSnapshot,
    Knock,
    OpenSnapshot,
    Reading,
    ToRemote,
    Writing,
    framed,
    to_remote,
)

_RECEIVE_BYTES: Final = 256 << 10


class NodeOutOfReach(ConnectionError):
    """This worker cannot reach its node."""


def connect(door: Door, hello: Hello) -> "RemoteLine":
    """Connect to the node, verify its certificate, and say hello."""
    try:
        plain = socket.create_connection((door.host, door.port), timeout=SILENCE_S)
    except OSError as failure:
        raise NodeOutOfReach(
            f"the node at {door.host}:{door.port} cannot be reached from this machine ({failure.strerror or failure})"
        ) from failure
    with ExitStack() as undo:
        undo.enter_context(plain)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line = RemoteLine(undo.enter_context(_trusting(door.certificate).wrap_socket(plain)))
        line.send(Knock(door.token, hello.pid, hello.epoch, hello.spare))
        undo.pop_all()
    return line


def _trusting(certificate: str) -> ssl.SSLContext:
    """Return a context that accepts this certificate and no other."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # it names no host: the node may have several addresses
    context.load_verify_locations(cadata=certificate)
    return context


class RemoteLine:
    """A worker's blocking connection; one message or question at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sock.settimeout(SILENCE_S)
        self._inbox = Inbox(MESSAGE_BYTES_MAX)
        self._messages: list[bytes] = []
        self._untold: list[OpenSnapshot | CloseSnapshot] = []
        self._sending = False
        self.along: Mapping[bytes, bytes | None] = {}

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()

    def tell(self, message: OpenSnapshot | CloseSnapshot, *, now: bool = False) -> None:
        """Send a message that is not answered, now or with the next one."""
        self._untold.append(message)
        if now and not self._sending:  # a forgotten iterator may be closed at any moment, even during a send
            self._send_all()

    def untell(self, message: OpenSnapshot) -> bool:
        """Take a message back that has not been sent; False if it has."""
        if message not in self._untold:
            return False
        self._untold.remove(message)
        return True

    def ask(self, question: Reading | Writing) -> Answer:
        """Send a question and wait for its answer; after a failure the connection is closed.

        Questions are asked inside users' functions, which may catch our exception; the turn must fail nevertheless.
        """
        try:
            return self._ask(question)
        except BaseException:
            self.close()
            raise

    def _ask(self, question: Reading | Writing) -> Answer:
        self.send(question)
        while True:
            match self._next():
                case NodeAlive():
                    pass
                case None | Goodbye():
                    raise ConnectionResetError("the node hung up, stopped or fell silent in the middle of a turn")
                case Turn() | Along():
                    raise BrokenFrame("the node gave a turn to a worker that has one")
                case answer:
                    return answer

    def send(self, message: Knock | Done | Reading | Writing) -> None:
        """Send a message, after those that wait for it."""
        self._send_all(message)

    def _send_all(self, *messages: Knock | Done | Reading | Writing) -> None:
        self._sending = True
        untold, self._untold = self._untold, []
        self._sock.sendall(b"".join(map(framed, (*untold, *messages))))
        self._sending = False

    def receive(self) -> Turn | NodeAlive | Goodbye | None:
        """Wait for a message; None if the node has closed the connection or has been silent for too long."""
        message = self._next()
        if isinstance(message, Along):
            self.along = dict(message.values)
            message = self._next()
        if not isinstance(message, Turn | NodeAlive | Goodbye | None):
            raise BrokenFrame(f"the node answered {type(message).__name__} though nothing was asked")
        return message

    def _next(self) -> ToRemote | None:
        while not self._messages:
            data = arrived(self._sock, _RECEIVE_BYTES)
            if not data:
                return None
            self._messages = self._inbox.put(data)
        message: ToRemote = to_remote.decode(self._messages.pop(0))
        return message
