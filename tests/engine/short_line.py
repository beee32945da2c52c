"""The shortest line there is: questions to a node's store answered in this process, all bytes as they would travel."""

from collections.abc import Callable, Mapping, Sequence

from headwater.model.errors import StoreError
from headwater.model.frames import Inbox
from headwater.model.ids import InstanceId
from headwater.storage.lmdb_store import LmdbStore
from headwater.workers.local.wire import Done, Goodbye, NodeAlive, Turn, TurnPart
from headwater.workers.remote.store_server import StoreServer, commit, refused
from headwater.workers.remote.store_wire import (
    MESSAGE_BYTES_MAX,
    Along,
    Answer,
    CloseSnapshot,
    Commit,
    CommitsHeld,
    HoldCommits,
    Knock,
    OpenSnapshot,
    Reading,
    Release,
    Released,
    ToRemote,
    Writing,
    framed,
    from_remote,
    to_remote,
)


class ShortLine:
    """The way to a store that is in this process."""

    def __init__(self, store: LmdbStore) -> None:
        """Answer from this store."""
        self.questions = 0
        self.before_commit: Callable[[], None] = lambda: None
        self.along: Mapping[bytes, bytes | None] = {}
        self._store = store
        self._desk = StoreServer(store)
        self._untold: list[OpenSnapshot | CloseSnapshot] = []

    def bring_along(self, instances: Sequence[InstanceId], rows_max: int = 1_000) -> None:
        """Do as the node does when it gives a turn: send the rows along."""
        parts = [TurnPart(instance.app, instance.number, 0, rows_max) for instance in instances]
        [travelled] = Inbox(MESSAGE_BYTES_MAX).put(framed(self._desk.along(parts)))
        along = to_remote.decode(travelled)
        assert isinstance(along, Along)
        self.along = dict(along.values)

    def tell(self, message: OpenSnapshot | CloseSnapshot, *, now: bool = False) -> None:
        """Keep a message until the next question, unless it is urgent."""
        self._untold.append(message)
        if now:
            self._send()

    def untell(self, message: OpenSnapshot) -> bool:
        """Take a message back."""
        if message in self._untold:
            self._untold.remove(message)
            return True
        return False

    def ask(self, question: Reading | Writing) -> Answer:
        """Answer, with every byte encoded, cut, put together and decoded."""
        self.questions += 1
        [travelled] = Inbox(MESSAGE_BYTES_MAX).put(b"".join(map(framed, self._send(question))))
        answer: ToRemote = to_remote.decode(travelled)
        assert not isinstance(answer, Turn | Along | NodeAlive | Goodbye)
        return answer

    def _send(self, *questions: Reading | Writing) -> list[Answer]:
        untold, self._untold = self._untold, []
        arrived = Inbox(MESSAGE_BYTES_MAX).put(b"".join(map(framed, (*untold, *questions))))
        return [answer for encoded in arrived if (answer := self._answer(encoded)) is not None]

    def _answer(self, encoded: bytes) -> Answer | None:
        message = from_remote.decode(encoded)
        match message:
            case Knock() | Done():
                raise AssertionError(message)
            case HoldCommits():  # there is nobody to be held back
                return CommitsHeld()
            case Release():
                return Released()
            case Commit():
                self.before_commit()
                return self._commit(message)
            case _:
                return self._desk.answer(message)

    def _commit(self, wanted: Commit) -> Answer:
        try:
            return commit(self._store, wanted)
        except StoreError as refusal:
            return refused(refusal)
