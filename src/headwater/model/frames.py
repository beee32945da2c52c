"""Framing of messages on a connection: cut into pieces, each after its length.

The highest bit of a length says that the message goes on, the next one names its lane, of two: pieces of one lane may
come between those of the other, so that a short message need not wait for a long one. Bytes from the network are never
executed, and a message that announces too much ends the connection before it arrives.
"""

from collections.abc import Iterator
from typing import Final

PIECE_BYTES_MAX: Final = 8 << 20  # a longer one is refused
HEADER_BYTES: Final = 4
_GOES_ON: Final = 1 << 31
_LANE: Final = 1 << 30


class BrokenFrame(Exception):
    """The other side sent an invalid message."""


class FrameTooLong(BrokenFrame):
    """The other side announced more than it may send."""


def pieces_of(encoded: bytes, piece_bytes: int, lane: int = 0) -> Iterator[bytes]:
    """Cut a message into framed pieces."""
    flags = _LANE if lane else 0
    if len(encoded) <= piece_bytes:
        yield (len(encoded) | flags).to_bytes(HEADER_BYTES, "little") + encoded
        return
    for start in range(0, len(encoded), piece_bytes):
        piece = encoded[start : start + piece_bytes]
        goes_on = _GOES_ON if start + piece_bytes < len(encoded) else 0
        yield (len(piece) | goes_on | flags).to_bytes(HEADER_BYTES, "little") + piece


class Inbox:
    """Assembles messages from what arrives, none longer than allowed."""

    def __init__(self, bytes_max: int, lanes: int = 1) -> None:
        self.bytes_max = bytes_max
        self._arrived = bytearray()
        self._messages = [bytearray() for _ in range(lanes)]

    @property
    def bytes_held(self) -> int:
        """The bytes of incomplete messages."""
        return len(self._arrived) + sum(map(len, self._messages))

    @property
    def bytes_unread(self) -> int:
        """The bytes that were not parsed yet: perhaps complete messages, and the beginning of one."""
        return len(self._arrived)

    def clear(self) -> None:
        """Discard what has arrived."""
        self._arrived = bytearray()
        self._messages = [bytearray() for _ in self._messages]

    def put(self, data: bytes) -> list[bytes]:
        """Add data and return the messages that it completes."""
        self.add(data)
        return list(iter(self.next, None))

    def add(self, data: bytes) -> None:
        self._arrived += data

    def next(self) -> bytes | None:
        """Return the next complete message; one at a time, since it may change how later ones are read."""
        arrived = self._arrived
        while len(arrived) >= HEADER_BYTES:
            header = int.from_bytes(arrived[:HEADER_BYTES], "little")
            size = header & ~(_GOES_ON | _LANE)
            message = self._lane(header)
            if size > PIECE_BYTES_MAX or len(message) + size > self.bytes_max:
                raise FrameTooLong(f"a message of more than {len(message) + size} bytes was announced")
            end = HEADER_BYTES + size
            if len(arrived) < end:
                break
            message += arrived[HEADER_BYTES:end]
            del arrived[:end]  # constant time: a bytearray has an offset of its beginning
            if not header & _GOES_ON:
                whole = bytes(message)
                message.clear()
                return whole
        return None

    def _lane(self, header: int) -> bytearray:
        lane = 1 if header & _LANE else 0
        if lane >= len(self._messages):
            raise BrokenFrame("a piece of a message is on a lane that this connection does not have")
        return self._messages[lane]
