"""The protocol between the node and its workers: small typed messages, each after its length.

Rows never travel here: they are in the store, which both have open. A worker says hello, then gets turns one at a time
and answers each with its reports. The node sends heartbeats, so that a worker whose node is lost frees its slot.
"""

import socket
from typing import Final

import msgspec

from headwater.engine.reports import TurnReport
from headwater.model.frames import BrokenFrame

FRAME_BYTES_MAX: Final = 8 << 20  # reports are counts; a larger frame is not one of ours
HEARTBEAT_S: Final = 2.0
SILENCE_S: Final = 10.0  # without a message from the node; then a waiting worker leaves
WAITS: Final = 4  # into which that time is split


class Hello(msgspec.Struct, array_like=True, tag="hello", frozen=True):
    """A worker has connected."""

    pid: int
    epoch: int
    spare: bool
    on_driver: bool = False


class TurnPart(msgspec.Struct, array_like=True, frozen=True):
    """One instance's part of a turn: the code, how many rows, and a reason if they are to be dropped."""

    app: int
    instance: int
    code: int
    rows_max: int
    condemn: str = ""


class Turn(msgspec.Struct, array_like=True, tag="turn", frozen=True):
    """Asks a worker to run these parts as one turn."""

    term: bytes
    parts: list[TurnPart]


class NodeAlive(msgspec.Struct, array_like=True, tag="beat", frozen=True):
    """The node's heartbeat."""


class Goodbye(msgspec.Struct, array_like=True, tag="bye", frozen=True):
    """Dismisses a worker: the epoch is over or the node stops."""


class Done(msgspec.Struct, array_like=True, tag="done", frozen=True):
    """A turn has ended; the worker is ready for the next."""

    reports: list[TurnReport]


FromWorker = Hello | Done
FromNode = Turn | NodeAlive | Goodbye

_ENCODER: Final = msgspec.msgpack.Encoder()
from_worker: Final = msgspec.msgpack.Decoder(FromWorker)
from_node: Final = msgspec.msgpack.Decoder(FromNode)


def frame(message: FromWorker | FromNode) -> bytes:
    """Return the message after its length."""
    encoded = _ENCODER.encode(message)
    return len(encoded).to_bytes(4, "little") + encoded


def cut_frames(buffer: bytearray) -> list[bytes]:
    """Take the complete frames off the front of the buffer."""
    frames = []
    at = 0
    while len(buffer) - at >= 4:
        size = int.from_bytes(buffer[at : at + 4], "little")
        if size > FRAME_BYTES_MAX:
            raise BrokenFrame(f"a frame of {size} bytes was announced; at most {FRAME_BYTES_MAX} are allowed")
        if len(buffer) - at - 4 < size:
            break
        frames.append(bytes(buffer[at + 4 : at + 4 + size]))
        at += 4 + size
    del buffer[:at]
    return frames


def arrived(sock: socket.socket, bytes_max: int) -> bytes:
    """Wait for bytes; none if the other side has closed the connection or has been silent for too long.

    The wait is split: after the whole machine was suspended, one long timeout would expire at once, although the other
    side could not have sent anything.
    """
    sock.settimeout(SILENCE_S / WAITS)
    try:
        for _ in range(WAITS):
            try:
                return sock.recv(bytes_max)
            except TimeoutError:
                continue
            except ConnectionError:
                break
        return b""
    finally:
        sock.settimeout(SILENCE_S)


class Line:
    """A worker's end of the connection: blocking, one message at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sock.settimeout(SILENCE_S)
        self._buffer = bytearray()
        self._frames: list[bytes] = []

    def send(self, message: FromWorker) -> None:
        self._sock.sendall(frame(message))

    def receive(self) -> FromNode | None:
        """Wait for a message; None if the node has closed the connection or has been silent for too long."""
        while not self._frames:
            data = arrived(self._sock, 65_536)
            if not data:
                return None
            self._buffer += data
            self._frames = cut_frames(self._buffer)
        message: FromNode = from_node.decode(self._frames.pop(0))
        return message
