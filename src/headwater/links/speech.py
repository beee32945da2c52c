"""The protocol of a connection, besides the messages of nodes: greetings, requests of users, answers, refusals.

The connecting side greets first and says whether it is a node or a user; its certificate says which one. A node then
sends messages, and receives nothing but a welcome or a refusal. A user sends requests, and each answer carries the
number of its request.
"""

from typing import Annotated, Any, Final, Literal

import msgspec
import pyarrow as pa
from msgspec import Meta

from headwater.links.limits import NAME_CHARS_MAX, REFUSAL_CHARS_MAX
from headwater.model.frames import BrokenFrame
from headwater.model.ids import Number
from headwater.model.peers import ID_BYTES

VERSION: Final = 2  # raised when a message changes its form: a node of another version is refused at its greeting
Kind = Literal["node", "user"]
_SIZE_BYTES: Final = 4
_PLAIN: Final = b"\0"
_ZSTD: Final = b"\1"
_CODEC: Final = pa.Codec("zstd", compression_level=1)

Name = Annotated[str, Meta(max_length=NAME_CHARS_MAX)]
Told = Annotated[str, Meta(max_length=REFUSAL_CHARS_MAX)]


class Greeting(msgspec.Struct, array_like=True, tag="hello", frozen=True):
    """The first message: a node or a user connects; name and id count only without certificates."""

    version: Number
    kind: Kind
    name: Name = ""
    id: Annotated[bytes, Meta(max_length=ID_BYTES)] = b""


class Welcome(msgspec.Struct, array_like=True, tag="welcome", frozen=True):
    """The connection is accepted."""

    version: Number


class Refusal(msgspec.Struct, array_like=True, tag="refusal", frozen=True):
    """A refusal: what was refused, where, and what to do about it."""

    what: Told
    where: Told = ""
    remedy: Told = ""
    may_pass: bool = False  # a later attempt may succeed: a node is away, or not in the ring yet

    def __str__(self) -> str:
        """Return it as one sentence."""
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.what}{'; ' if self.remedy else ''}{self.remedy}"


class Asked(msgspec.Struct, array_like=True, tag="ask", frozen=True):
    """A user's request, under a number that the user chooses."""

    number: Number
    request: msgspec.Raw


class Answered(msgspec.Struct, array_like=True, tag="answer", frozen=True):
    """The answer to the request of this number."""

    number: Number
    answer: msgspec.Raw


class NotDone(msgspec.Struct, array_like=True, tag="not-done", frozen=True):
    """The request of this number is refused, or has failed."""

    number: Number
    refusal: Refusal


ToDialler = Welcome | Refusal | Answered | NotDone

encoder: Final = msgspec.msgpack.Encoder()
greeting_decoder: Final = msgspec.msgpack.Decoder(Greeting)
asked_decoder: Final = msgspec.msgpack.Decoder(Asked)
to_dialler: Final = msgspec.msgpack.Decoder(ToDialler)


def shortened(text: str) -> str:
    """Return a text, shortened to fit into a refusal."""
    return text if len(text) <= REFUSAL_CHARS_MAX else text[: REFUSAL_CHARS_MAX - 3] + "..."


class TooLong(Exception):
    """A message is longer than the other side accepts."""


def packed(message: Any, compress_from: int | None, bytes_max: int | None = None) -> bytes:
    """Return a message as bytes, compressed from `compress_from` bytes on (None: never) if that saves an eighth.

    `bytes_max` applies to the message before compression, as it does when the other side unpacks it.
    """
    encoded = encoder.encode(message)
    if bytes_max is not None and len(_PLAIN) + len(encoded) > bytes_max:
        raise TooLong(f"{type(message).__name__} of {len(encoded)} bytes, where {bytes_max} are allowed")
    if compress_from is not None and len(encoded) >= compress_from:
        smaller: bytes = _CODEC.compress(encoded, asbytes=True)
        if len(smaller) < len(encoded) - len(encoded) // 8:
            return _ZSTD + len(encoded).to_bytes(_SIZE_BYTES, "little") + smaller
    return _PLAIN + encoded


def unpacked(arrived: bytes, bytes_max: int) -> memoryview:
    """Return the bytes of a message; one that claims to be longer than allowed is not even tried."""
    if arrived[:1] == _PLAIN:
        return memoryview(arrived)[1:]
    if arrived[:1] != _ZSTD:
        raise BrokenFrame("a message of no known form")
    size = int.from_bytes(arrived[1 : 1 + _SIZE_BYTES], "little")
    if size > bytes_max:
        raise BrokenFrame(f"a message that unpacks to {size} bytes; at most {bytes_max} are allowed")
    try:
        return memoryview(_CODEC.decompress(memoryview(arrived)[1 + _SIZE_BYTES :], size))
    except (OSError, ValueError, pa.ArrowException) as damage:
        raise BrokenFrame("a message that cannot be unpacked") from damage
