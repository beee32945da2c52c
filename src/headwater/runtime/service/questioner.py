"""Request/response between nodes, with retransmission: a question is executed at most once, and its reply cached."""

import asyncio
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from random import Random
from typing import Any, Final, NamedTuple

import msgspec

from headwater.client.questions import (
    AnswerKind,
    Look,
    Looked,
    QuestionKind,
    answer_decoder,
    encoder,
    question_decoder,
)
from headwater.control.messages.peer_questions import Answer, PeerQuestion
from headwater.links.requests import RequestRefused, refusal_of
from headwater.links.speech import Refusal
from headwater.model.decoding import UNDECODABLE
from headwater.model.errors import HeadwaterError
from headwater.model.peers import NodeId, Peer

log = logging.getLogger(__name__)

RESEND_S: Final = 1.0  # a round trip over a bad link, and a bit
LOOK_S: Final = 4.0  # then a node counts as silent
PATIENCE_S: Final = 50.0  # for slow requests; a user's own timeout is a minute
ANSWERED_MAX: Final = 1_000  # questions in progress, and cached answers in case the first copy is lost
ANSWERED_BYTES_MAX: Final = 32 << 20  # of both: one of the greatest length, and a thousand of the usual
ANSWERED_S: Final = 120.0  # that an answer is cached: longer than any retransmission
UNDER_WAY_OF_ONE_MAX: Final = 250  # questions of one node: a user asks 32 at once, and four floods leave none out
PLACE_BYTES: Final = ANSWERED_BYTES_MAX // ANSWERED_MAX  # an entry's price when shares are compared
NODES_MAX: Final = 2_000  # that one request visits


class Silent(HeadwaterError):
    """A node has not answered in time."""


class QuestionRefused(RequestRefused):
    """A node has refused; the user gets its words."""


class _InProgress(NamedTuple):
    """A question that is being answered."""

    task: "asyncio.Task[Answer]"
    size_bytes: int  # of the question


class _Cached(NamedTuple):
    """The answer to a question, without its task, which would keep its whole context alive."""

    answer: Answer | None  # None if the task was cancelled
    size_bytes: int
    answered_at_s: float


_Place = tuple[NodeId, int]  # who asks, and the number of the question
Sending = Callable[[str, PeerQuestion | Answer], None]
Answering = Callable[[Peer, QuestionKind], Awaitable[AnswerKind]]


class Asking:
    """The questions of one node, and its answers to others."""

    def __init__(
        self, own: Peer, send: Sending, answer: Answering, rng: Random, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._own, self._send, self._answer, self._rng, self._clock = own, send, answer, rng, clock
        self._open: dict[tuple[NodeId, int], asyncio.Future[Answer]] = {}  # by the node asked
        self._in_progress: dict[_Place, _InProgress] = {}
        self._cached: OrderedDict[_Place, _Cached] = (
            OrderedDict()
        )  # in the order in which they were answered, and expire
        self._heard_bytes = 0  # of both
        self._of_one: Counter[NodeId] = Counter()  # each node's share of both: bytes, and entries priced in bytes
        self._under_way: Counter[NodeId] = Counter()

    async def ask(self, to: Peer, question: QuestionKind, patience_s: float = PATIENCE_S) -> Any:
        """Ask until there is an answer, and return it; raises Silent or QuestionRefused."""
        if to.id == self._own.id:
            return await self._answer(self._own, question)
        number = self._rng.getrandbits(62)
        asked = PeerQuestion(self._own, number, encoder.encode(question))
        answered = self._open[to.id, number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(patience_s):
                while True:
                    self._send(to.address, asked)
                    done, _ = await asyncio.wait({answered}, timeout=RESEND_S)
                    if done:
                        return _read(answered.result())
        except TimeoutError:
            raise Silent(f"the node at {to.address} does not answer; see `headwater nodes`") from None
        finally:
            del self._open[to.id, number]

    def hear(self, message: PeerQuestion | Answer) -> None:
        """Take a question or an answer off the wire."""
        if isinstance(message, Answer):
            waits = self._open.get((message.sender.id, message.number))
            if waits is not None and not waits.done():
                waits.set_result(message)
            return
        place = (message.sender.id, message.number)
        cached = self._cached.get(place)
        if cached is not None:
            if cached.answer is not None:
                self._send(message.sender.address, cached.answer)
        elif place not in self._in_progress:
            self._begin(message)

    def _begin(self, question: PeerQuestion) -> None:
        """Begin to answer a new question; beyond the limits it is dropped, and the asker retransmits it."""
        size, sender = len(question.payload), question.sender.id
        self._forget_old()
        if self._under_way[sender] >= UNDER_WAY_OF_ONE_MAX:
            return
        self._make_room(size)
        if not self._has_room(size):
            return
        place = (question.sender.id, question.number)
        task = asyncio.get_running_loop().create_task(self._answered(question))
        self._in_progress[place] = _InProgress(task, size)
        self._heard_bytes += size
        self._of_one[sender] += size + PLACE_BYTES
        self._under_way[sender] += 1
        task.add_done_callback(lambda done: self._done(place, question.sender, done))

    def _done(self, place: _Place, to: Peer, done: "asyncio.Task[Answer]") -> None:
        asked_bytes = self._in_progress.pop(place).size_bytes
        answer = None if done.cancelled() else done.result()
        size = 0
        if answer is not None:
            self._send(to.address, answer)
            size = len(answer.payload)
        self._heard_bytes += size - asked_bytes
        self._of_one[to.id] += size - asked_bytes
        _subtract(self._under_way, to.id, 1)
        self._cached[place] = _Cached(answer, size, self._clock())
        self._make_room(0)

    def _forget_old(self) -> None:
        """Evict expired answers: otherwise the cache would always be as full as it may be."""
        gone = self._clock() - ANSWERED_S
        while self._cached and self._cached[oldest := next(iter(self._cached))].answered_at_s <= gone:
            self._forget(oldest)

    def _forget(self, place: _Place) -> None:
        size = self._cached.pop(place).size_bytes
        self._heard_bytes -= size
        _subtract(self._of_one, place[0], size + PLACE_BYTES)

    def _make_room(self, size: int) -> None:
        """Evict answers until there is room for `size` bytes: the oldest of the node with the largest share.

        A question in progress is never forgotten, or it could be executed twice.
        """
        while self._cached and not self._has_room(size):
            self._forget(max(self._cached, key=lambda place: self._of_one[place[0]]))

    def _has_room(self, size: int) -> bool:
        return (
            len(self._in_progress) + len(self._cached) < ANSWERED_MAX and self._heard_bytes + size <= ANSWERED_BYTES_MAX
        )

    async def _answered(self, question: PeerQuestion) -> Answer:
        try:
            asked = question_decoder.decode(question.payload)
            answer = await self._answer(question.sender, asked)
            return Answer(self._own, question.number, encoder.encode(answer))
        except (HeadwaterError, *UNDECODABLE) as failure:
            return self._refusal(question, failure)
        except Exception as failure:  # our mistake: the asker must not wait for the timeout
            log.exception("a question of %s was not answered", question.sender)
            return self._refusal(question, failure)

    def _refusal(self, question: PeerQuestion, failure: Exception) -> Answer:
        told = encoder.encode(refusal_of(failure, self._own.address))
        return Answer(self._own, question.number, told, is_refused=True)

    async def ask_all(self, peers: Sequence[Peer], question: QuestionKind) -> tuple[list[Any], list[str]]:
        """Return the answers of these nodes, and the addresses of those that refuse or do not answer."""
        answers = await asyncio.gather(*(self.ask(peer, question, LOOK_S) for peer in peers), return_exceptions=True)
        told, silent = [], []
        for peer, answer in zip(peers, answers, strict=True):
            if isinstance(answer, HeadwaterError):
                silent.append(peer.address)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                told.append(answer)
        return told, silent

    async def look_around(self, leaves: Iterable[Peer]) -> tuple[list[Looked], list[str]]:
        """Ask every node of the ring what it has; return the answers, and which nodes are silent.

        No node knows all others, so this walks the ring: each answer names the neighbours of the node that gave it.
        """
        known: dict[NodeId, Peer] = {self._own.id: self._own, **{peer.id: peer for peer in leaves}}
        waiting = list(known.values())
        looked: list[Looked] = []
        silent: list[str] = []
        while waiting:
            answers, unheard = await self.ask_all(waiting, Look())
            silent += unheard
            waiting = []
            for answer in answers:
                looked.append(answer)
                fresh = [one for one in answer.leaves if one.id not in known]
                room = NODES_MAX - len(known)
                known.update((one.id, one) for one in fresh[:room])
                waiting += fresh[:room]
        return looked, silent


def _subtract(counter: Counter[NodeId], node: NodeId, number: int) -> None:
    counter[node] -= number
    if not counter[node]:
        del counter[node]


def _read(answer: Answer) -> AnswerKind:
    try:
        if answer.is_refused:
            raise QuestionRefused(msgspec.msgpack.decode(answer.payload, type=Refusal))
        return answer_decoder.decode(answer.payload)
    except UNDECODABLE as damage:
        what = Refusal("it answered what is not understood", answer.sender.address, "is its version ours?")
        raise QuestionRefused(what) from damage
