"""What nodes ask one another on behalf of users, and answer: opaque here, typed where it is answered."""

from typing import Annotated, Final

from msgspec import Meta

from headwater.model.ids import Number
from headwater.overlay.messages import Message

PAYLOAD_BYTES_MAX: Final = 15 << 20  # a message has 16 MiB

Payload = Annotated[bytes, Meta(max_length=PAYLOAD_BYTES_MAX)]


class PeerQuestion(Message, frozen=True, tag="qa"):
    """Answer this, by its number; asked again, answer the same."""

    number: Number
    payload: Payload


class Answer(Message, frozen=True, tag="qt"):
    """The answer to the question of this number; or, refused, why not."""

    number: Number
    payload: Payload
    is_refused: bool = False


AnyAsking = PeerQuestion | Answer
