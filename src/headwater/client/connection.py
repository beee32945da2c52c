"""A user's connection to a node: a request returns an answer, or raises an error that says what to do.

`connect` is blocking, for commands and notebooks; `connect_async` is for programs with an event loop. Both drive one
`Conversation`, the protocol without IO.
"""

import asyncio
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final

import msgspec

from headwater.links.credentials import Credentials, Unwelcome, refuse_insecure_beyond_loopback
from headwater.links.distrust import why_not_secure
from headwater.links.limits import WireLimits
from headwater.links.requests import RequestRefused, RequestTable
from headwater.links.speech import (
    Answered,
    Asked,
    NotDone,
    Refusal,
    TooLong,
    Welcome,
    encoder,
    packed,
    to_dialler,
    unpacked,
)
from headwater.model.decoding import UNDECODABLE
from headwater.model.errors import ConfigError, HeadwaterError
from headwater.model.frames import BrokenFrame, Inbox, pieces_of
from headwater.security.identity import Role
from headwater.spark.address import ADDRESS_FORM, host_and_port

CONNECT_S: Final = 10.0
# A node lets so many handshakes begin in a second, whoever asks for them, and hangs up on the others of an address that
# has had its share: somebody else there may flood it. Nothing has been asked by then, so it is tried again.
TURNED_AWAY: Final = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError, ssl.SSLEOFError)
PAUSES_S: Final = (0.1, 0.2, 0.4, 0.8, 1.6)
ANSWER_S: Final = 75.0  # a little longer than the node takes to give up
_RECEIVE_BYTES: Final = 256 << 10
_PIECE_BYTES: Final = 1 << 20
_LIMITS: Final = WireLimits()
_ANSWERED_BYTES_MAX: Final = _LIMITS.answer_bytes + (1 << 10)  # the answer, and the number of its request


class NodeLost(HeadwaterError):
    """A node cannot be reached, does not answer, or refuses the connection."""


class Conversation:
    """The protocol between a user and a node, without IO."""

    def __init__(self, address: str, credentials: Credentials, table: RequestTable) -> None:
        place = host_and_port(address)
        if place is None:
            raise ConfigError(f"{address!r} is not the address of a node; {ADDRESS_FORM}")
        self.host, self.port = place
        self.address = address
        self.is_welcome = False
        self._credentials = credentials
        self._table = table
        self._inbox = Inbox(_ANSWERED_BYTES_MAX)
        self._number = 0
        if not credentials.is_secure:
            refuse_insecure_beyond_loopback("the node at", self.host)

    def greeting(self, connection: ssl.SSLObject | ssl.SSLSocket | None) -> bytes:
        """Return the greeting; raises NodeLost unless the other end has proven to be a node."""
        try:
            other = self._credentials.recognise(connection, None)  # type: ignore[arg-type]  # a socket shows the same
        except Unwelcome as unwelcome:
            raise NodeLost(f"what listens at {self.address} is not a node of ours: {unwelcome.reason.value}") from None
        if other.role is not Role.NODE:
            raise NodeLost(f"what listens at {self.address} is not a node: {other}")
        return _framed(self._credentials.greeting("user"))

    def ask(self, request: msgspec.Struct) -> tuple[int, bytes]:
        """Return the number of a request, and its bytes; raises ConfigError if a node would not understand it."""
        if type(request) not in self._table.roles:
            raise ConfigError(f"{type(request).__name__} is not a request")
        self._number += 1
        encoded = encoder.encode(request)
        try:
            framed = _framed(Asked(self._number, msgspec.Raw(encoded)))
            self._table.read_request(msgspec.Raw(encoded))
            return self._number, framed
        except msgspec.ValidationError as wrong:
            raise ConfigError(f"{type(request).__name__} cannot be asked so: {wrong}") from wrong
        except TooLong:
            raise RequestRefused(
                Refusal(
                    f"{type(request).__name__} has {len(encoded)} bytes",
                    self.address,
                    f"at most {_LIMITS.request_bytes} are allowed",
                )
            ) from None

    def hear(self, data: bytes) -> list[tuple[int, Any]]:
        """Return the answers that have arrived, by the numbers of their requests; errors as exceptions."""
        try:
            heard = [to_dialler.decode(unpacked(one, _ANSWERED_BYTES_MAX)) for one in self._inbox.put(data)]
            return [answer for message in heard if (answer := self._answer(message)) is not None]
        except (BrokenFrame, *UNDECODABLE) as damage:
            raise NodeLost(
                f"what {self.address} answers is not understood ({damage}); is its version ours?"
            ) from damage

    def _answer(self, message: Any) -> tuple[int, Any] | None:
        match message:
            case Welcome():
                self.is_welcome = True
                return None
            case Refusal():
                raise NodeLost(f"the node at {self.address} does not let us in: {message.what}")
            case NotDone(number, refusal):
                return number, RequestRefused(refusal)
            case Answered(number, answer):
                return number, self._table.read_answer(answer)
        raise AssertionError(message)

    def lost(self, failure: BaseException | None) -> NodeLost:
        """Return the error for a connection that could not be made or was lost."""
        match failure:
            case ssl.SSLError():
                why = why_not_secure(failure, self.host)
            case TimeoutError() if self.is_welcome:
                why = "it does not answer in time; ask again, or another node of its cluster"
            case TimeoutError():
                why = (
                    f"it does not answer in time; does its machine run, and do firewalls let port {self.port} through?"
                )
            case ConnectionRefusedError():
                why = f"{failure.strerror}: nothing listens there; start the node, or give the address of one that runs"
            case OSError():
                why = f"{failure.strerror or failure}; is this its address, and can it be reached from here?"
            case _ if self.is_welcome:
                why = "it hung up; ask again, or another node of its cluster"
            case _ if not self._credentials.is_secure:
                why = "it hung up without a word; it seems to want certificates: give --certs instead of --insecure"
            case _:
                why = "it hung up without a word; is our certificate of its cluster, and still valid?"
        return NodeLost(f"the node at {self.address} cannot be asked: {why}")


def _framed(message: Any) -> bytes:
    said = packed(message, _LIMITS.compress_bytes, _LIMITS.request_bytes)
    return b"".join(pieces_of(said, _PIECE_BYTES))


# --- blocking ---------------------------------------------------------------------------------------------------------


class NodeClient:
    """A blocking client, one request at a time. Made by `connect`."""

    def __init__(self, talk: Conversation, sock: socket.socket, answer_s: float) -> None:
        self._talk = talk
        self._sock = sock
        self._sock.settimeout(answer_s)
        self._ended: NodeLost | None = None

    def ask(self, request: msgspec.Struct) -> Any:
        """Return the answer; raises RequestRefused, or NodeLost, after which the client cannot be used."""
        if self._ended is not None:
            raise self._ended
        number, asked = self._talk.ask(request)
        try:
            self._sock.sendall(asked)
            while True:
                arrived = self._sock.recv(_RECEIVE_BYTES)
                if not arrived:
                    raise self._talk.lost(None)
                for answered, answer in self._talk.hear(arrived):
                    if answered == number:
                        return _or_raise(answer)
        except OSError as failure:
            lost = self._talk.lost(failure)
            self._end(lost)
            raise lost from failure
        except NodeLost as lost:
            self._end(lost)
            raise

    def close(self) -> None:
        """Close the connection."""
        self._end(NodeLost(f"the connection to the node at {self._talk.address} was closed here; make a new one"))

    def _end(self, why: NodeLost) -> None:
        """Close the connection, and remember why: later requests raise the same error."""
        self._ended = self._ended or why
        self._sock.close()

    def __enter__(self) -> "NodeClient":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def connect(address: str, credentials: Credentials, table: RequestTable, *, answer_s: float = ANSWER_S) -> NodeClient:
    """Reach a node as a user, and greet it."""
    talk = Conversation(address, credentials, table)
    context = credentials.dialling()
    pauses = iter(PAUSES_S)
    while True:
        try:
            with ExitStack() as undo:
                sock = undo.enter_context(socket.create_connection((talk.host, talk.port), timeout=CONNECT_S))
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if context is not None:
                    sock = undo.enter_context(context.wrap_socket(sock, server_hostname=talk.host))
                sock.sendall(talk.greeting(sock if isinstance(sock, ssl.SSLSocket) else None))
                undo.pop_all()
            return NodeClient(talk, sock, answer_s)
        except OSError as failure:
            time.sleep(_pause_after(failure, pauses, talk))


def _pause_after(failure: OSError, pauses: Iterator[float], talk: Conversation) -> float:
    """Return how long to wait before dialling again; raises NodeLost if that is no use."""
    pause_s = next(pauses, None) if isinstance(failure, TURNED_AWAY) else None
    if pause_s is None:
        raise talk.lost(failure) from failure
    return pause_s


# --- asyncio ----------------------------------------------------------------------------------------------------------


class AsyncNodeClient:
    """A client for an event loop, several requests at once. Made by `connect_async`."""

    def __init__(
        self, talk: Conversation, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer_s: float
    ) -> None:
        """Begin to read answers."""
        self._talk = talk
        self._reader, self._writer = reader, writer
        self._answer_s = answer_s
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._ended: NodeLost | None = None
        self._listening = asyncio.get_running_loop().create_task(self._listen())

    async def ask(self, request: msgspec.Struct) -> Any:
        """Return the answer; raises RequestRefused or NodeLost."""
        if self._ended is not None:
            raise self._ended
        number, asked = self._talk.ask(request)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self._answer_s):
                self._writer.write(asked)
                await self._writer.drain()
                return _or_raise(await answer)
        except OSError as failure:  # TimeoutError is one
            raise self._talk.lost(failure) from failure
        finally:
            del self._waiting[number]

    async def _listen(self) -> None:
        try:
            while arrived := await self._reader.read(_RECEIVE_BYTES):
                for number, answer in self._talk.hear(arrived):
                    if (waits := self._waiting.get(number)) is not None and not waits.done():
                        waits.set_result(answer)
            self._ended = self._talk.lost(None)
        except NodeLost as lost:
            self._ended = lost
        except OSError as failure:
            self._ended = self._talk.lost(failure)
        for waits in self._waiting.values():
            if not waits.done():
                waits.set_result(self._ended)

    async def close(self) -> None:
        """Close the connection."""
        self._listening.cancel()
        self._writer.close()
        await asyncio.gather(self._listening, self._writer.wait_closed(), return_exceptions=True)

    async def __aenter__(self) -> "AsyncNodeClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()


async def connect_async(
    address: str, credentials: Credentials, table: RequestTable, *, answer_s: float = ANSWER_S
) -> AsyncNodeClient:
    """Reach a node as a user, and greet it."""
    talk = Conversation(address, credentials, table)
    context = credentials.dialling()
    named = None if context is None else talk.host
    pauses = iter(PAUSES_S)
    while True:
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await asyncio.open_connection(talk.host, talk.port, ssl=context, server_hostname=named)
            break
        except OSError as failure:
            await asyncio.sleep(_pause_after(failure, pauses, talk))
    try:
        writer.write(talk.greeting(writer.get_extra_info("ssl_object")))
    except NodeLost:
        writer.close()
        raise
    return AsyncNodeClient(talk, reader, writer, answer_s)


def _or_raise(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer
