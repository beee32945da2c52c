"""What nodes ask one another on behalf of users, and answer: opaque here, typed where it is answered."""

from headwater.overlay.messages import Message


class Question(Message, frozen=True, tag="qa"):
    """Answer this, by its number; asked again, answer the same."""

    number: int
    payload: bytes


class Answer(Message, frozen=True, tag="qt"):
    """The answer to the question of this number; or, refused, why not."""

    number: int
    payload: bytes
    is_refused: bool = False


AnyAsking = Question | Answer
