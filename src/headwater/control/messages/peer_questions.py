"""Requests between nodes on behalf of users, and their replies (RPC); the payloads are opaque here."""

from typing import Annotated, Final

from msgspec import Meta

from headwater.model.ids import Number
from headwater.overlay.messages import Message

PAYLOAD_BYTES_MAX: Final = 15 << 20  # a message has 16 MiB

Payload = Annotated[bytes, Meta(max_length=PAYLOAD_BYTES_MAX)]


class PeerQuestion(Message, frozen=True, tag="qa"):
    """A request. Retransmissions carry the same number and get the same answer."""

    number: Number
    payload: Payload


class Answer(Message, frozen=True, tag="qt"):
    """The reply to the question of this number; or, refused, the reason."""

    number: Number
    payload: Payload
    is_refused: bool = False


AnyAsking = PeerQuestion | Answer
