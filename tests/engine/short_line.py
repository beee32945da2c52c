"""The shortest line there is: questions to a node's store answered in this process, all bytes as they would travel."""

from headwater.model.errors import StoreError
from headwater.runtime.desk import Desk, commit, refused
from headwater.runtime.remote_wire import (
    MESSAGE_BYTES_MAX,
    Answer,
    Commit,
    Hold,
    Inbox,
    Knock,
    Look,
    LookAway,
    Reading,
    Release,
    Writing,
    framed,
    from_remote,
    to_remote,
)
from headwater.runtime.store import LmdbStore
from headwater.runtime.wire import Done, Goodbye, Heartbeat, Turn


class ShortLine:
    """The way to a store that is in this process."""

    def __init__(self, store: LmdbStore) -> None:
        """Answer from this store."""
        self.questions = 0
        self._store = store
        self._desk = Desk(store)
        self._untold: list[Look | LookAway] = []

    def tell(self, message: Look | LookAway) -> None:
        """Keep a message until the next question."""
        self._untold.append(message)

    def untell(self, message: Look) -> bool:
        """Take a message back."""
        if message in self._untold:
            self._untold.remove(message)
            return True
        return False

    def ask(self, question: Reading | Writing) -> Answer:
        """Answer, with every byte encoded, cut, put together and decoded."""
        self.questions += 1
        untold, self._untold = self._untold, []
        arrived = Inbox(MESSAGE_BYTES_MAX).put(b"".join(map(framed, (*untold, question))))
        answers = [self._answer(encoded) for encoded in arrived]
        [travelled] = Inbox(MESSAGE_BYTES_MAX).put(b"".join(framed(one) for one in answers if one is not None))
        answer = to_remote.decode(travelled)
        assert not isinstance(answer, Turn | Heartbeat | Goodbye)
        return answer

    def _answer(self, encoded: bytes) -> Answer | None:
        message = from_remote.decode(encoded)
        assert not isinstance(message, Knock | Done | Hold | Release), message
        if not isinstance(message, Commit):
            return self._desk.answer(message)
        try:
            return commit(self._store, message)
        except StoreError as refusal:
            return refused(refusal)
