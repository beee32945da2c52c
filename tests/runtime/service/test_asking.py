"""Questions between nodes: answered once however often they are asked, and remembered within bounds."""

import asyncio
import math
from random import Random

import msgspec
import pytest

from headwater.client.questions import (
    AnswerKind,
    LogsHere,
    Look,
    QuestionKind,
    StatusHere,
    UpgradeHere,
    encoder,
    question_decoder,
)
from headwater.client.requests import LOG_LINES_MAX, PATIENCE_S_MAX, LogsTold
from headwater.control.messages.peer_questions import Answer, PeerQuestion
from headwater.links.requests import RequestRefused, refusal_of
from headwater.links.speech import Refusal
from headwater.model.peers import Peer, key_of
from headwater.runtime.service import questioner as room
from headwater.runtime.service.questioner import Asking, _read

OWN = Peer(key_of("own"), "here", "zone")
OTHER = Peer(key_of("other"), "there", "zone")


class Desk:
    """A node that is asked, and what it has answered."""

    def __init__(self) -> None:
        """Begin with nothing asked."""
        self.sent: list[Answer] = []
        self.asked = 0
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.told = ""
        self.now_s = 0.0
        self.asking = Asking(OWN, self._send, self._answer, Random(1), clock=lambda: self.now_s)

    def _send(self, address: str, message: PeerQuestion | Answer) -> None:
        assert isinstance(message, Answer)
        self.sent.append(message)

    async def _answer(self, sender: Peer, question: QuestionKind) -> AnswerKind:
        self.asked += 1
        await self.go_on.wait()
        return LogsTold([], [self.told])

    async def hear(self, number: int, sender: Peer = OTHER) -> None:
        """Hear a question, and give its answer time."""
        self.asking.hear(PeerQuestion(sender, number, encoder.encode(Look())))
        for _ in range(5):
            await asyncio.sleep(0)


def upgrade(patience_s: float = 1.0, given_up: int = 0) -> UpgradeHere:
    """An owner is asked to replace an app."""
    return UpgradeHere("app", b"", ("name",) * given_up, {}, patience_s, only_check=True)


@pytest.mark.parametrize(
    ("within", "beyond"),
    [
        (upgrade(PATIENCE_S_MAX), upgrade(PATIENCE_S_MAX + 1)),
        (upgrade(0.001), upgrade(0.0)),
        (upgrade(), upgrade(math.nan)),
        (upgrade(), upgrade(math.inf)),
        (upgrade(given_up=1_000), upgrade(given_up=1_001)),
        (LogsHere(LOG_LINES_MAX), LogsHere(LOG_LINES_MAX + 1)),
        (LogsHere(1), LogsHere(0)),
        (StatusHere("a" * 300), StatusHere("a" * 301)),
    ],
)
def test_nodes_ask_within_the_limits_of_users(within: QuestionKind, beyond: QuestionKind) -> None:
    """They ask on behalf of one, or say so."""
    assert question_decoder.decode(encoder.encode(within)) == within
    with pytest.raises(msgspec.ValidationError):
        question_decoder.decode(encoder.encode(beyond))


def test_who_passes_on_a_refusal_passes_on_all_that_it_says() -> None:
    """One address, of the node that refuses; what to do; and whether it is worth asking again."""
    refusal = Refusal("no room", OTHER.address, "stop another app first", may_pass=True)

    async def refuses(sender: Peer, question: QuestionKind) -> AnswerKind:
        raise RequestRefused(refusal)

    async def story() -> RequestRefused:
        both: dict[str, Asking] = {}
        for peer in (OWN, OTHER):
            both[peer.address] = Asking(peer, lambda to, message: both[to].hear(message), refuses, Random(1))
        with pytest.raises(RequestRefused) as told:
            await both[OWN.address].ask(OTHER, Look())
        return told.value

    told = asyncio.run(story())
    assert refusal_of(told, OWN.address) == refusal
    assert str(told) == "there: no room; stop another app first"


def test_who_of_several_refuses_is_named_and_the_others_answers_are_there() -> None:
    """A list in which somebody is missing without a word would be taken for the whole."""

    async def answers(sender: Peer, question: QuestionKind) -> AnswerKind:
        return LogsTold([], ["mine"])

    async def refuses(sender: Peer, question: QuestionKind) -> AnswerKind:
        raise RequestRefused(Refusal("no", OTHER.address, ""))

    async def story() -> tuple[list[AnswerKind], list[str]]:
        both: dict[str, Asking] = {}
        for peer, answering in ((OWN, answers), (OTHER, refuses)):
            both[peer.address] = Asking(peer, lambda to, message: both[to].hear(message), answering, Random(1))
        return await both[OWN.address].ask_all([OTHER, OWN], Look())

    assert asyncio.run(story()) == ([LogsTold([], ["mine"])], [OTHER.address])


@pytest.mark.parametrize("told", [encoder.encode("no"), b"\x91" * 100_000 + b"\xc0"])
@pytest.mark.parametrize("is_refused", [True, False])
def test_an_answer_that_is_not_understood_is_refused_with_whose_it_is(told: bytes, is_refused: bool) -> None:
    """As of a node of another version."""
    with pytest.raises(RequestRefused, match=r"^there: it answered what is not understood; is its version ours\?$"):
        _read(Answer(OTHER, 1, told, is_refused))


def test_nobody_answers_but_who_was_asked() -> None:
    """A node in wrong hands may guess at what others ask."""
    stranger = Peer(key_of("stranger"), "elsewhere", "zone")
    told = encoder.encode(LogsTold([], ["asked"]))

    async def story() -> AnswerKind:
        def send(to: str, message: PeerQuestion | Answer) -> None:
            own.hear(Answer(stranger, message.number, encoder.encode(LogsTold([], ["guessed"]))))
            own.hear(Answer(OTHER, message.number, told))

        async def nothing(sender: Peer, question: QuestionKind) -> AnswerKind:
            raise AssertionError

        own = Asking(OWN, send, nothing, Random(1))
        found: AnswerKind = await own.ask(OTHER, Look())
        return found

    assert asyncio.run(story()) == LogsTold([], ["asked"])


def test_a_question_that_is_asked_again_is_answered_the_same() -> None:
    async def story() -> None:
        desk = Desk()
        await desk.hear(1)
        await desk.hear(1)
        assert (desk.asked, len(desk.sent)) == (1, 2)
        assert desk.sent[0] == desk.sent[1]

    asyncio.run(story())


def test_long_answers_are_remembered_only_as_long_as_they_fit() -> None:
    """A thousand of any size would be gigabytes: whoever lost one of the oldest asks anew."""

    async def story() -> None:
        desk = Desk()
        desk.told = "x" * (room.ANSWERED_BYTES_MAX // 4)
        for number in range(8):
            await desk.hear(number)
        assert 0 < desk.asking._heard_bytes <= room.ANSWERED_BYTES_MAX
        await desk.hear(7)
        assert desk.asked == 8, "the latest are remembered"
        await desk.hear(0)
        assert desk.asked == 9, "the oldest are not"
        assert [one.number for one in desk.sent] == [*range(8), 7, 0]

    asyncio.run(story())


def test_answers_that_nobody_asks_for_any_more_are_forgotten() -> None:
    """Nodes look at each other all the time: a thousand of what they tell would be tens of megabytes on each."""

    async def story() -> None:
        desk = Desk()
        for number in range(50):
            await desk.hear(number)
        desk.now_s += room.PATIENCE_S
        await desk.hear(0)
        assert desk.asked == 50, "whoever is patient may still ask for the first"
        desk.now_s += room.ANSWERED_S
        await desk.hear(50)
        assert list(desk.asking._cached) == [(OTHER.id, 50)]
        assert desk.asking._heard_bytes == len(desk.sent[-1].payload)

    asyncio.run(story())


def test_answers_are_forgotten_while_a_question_from_before_takes_its_time() -> None:
    """An upgrade may take an hour, in which all that was answered meanwhile would be kept."""

    async def story() -> None:
        desk = Desk()
        desk.go_on.clear()
        await desk.hear(0)
        desk.go_on = asyncio.Event()
        desk.go_on.set()
        for number in range(1, 50):
            await desk.hear(number)
        assert len(desk.sent) == 49
        desk.now_s += room.ANSWERED_S + 1
        await desk.hear(50)
        await desk.hear(0)
        assert desk.asked == 51, "it is still being answered"
        await desk.hear(1)
        assert desk.asked == 52, "the others are forgotten"

    asyncio.run(story())


def test_what_is_being_answered_is_not_forgotten_and_what_is_too_much_is_not_begun() -> None:
    """Forgotten, it would be done twice."""

    async def story() -> None:
        desk = Desk()
        desk.go_on.clear()
        peers = [Peer(key_of(f"peer {number}"), "there", "zone") for number in range(10)]
        for number in range(room.ANSWERED_MAX + 1):
            await desk.hear(number, peers[number % 10])
        await desk.hear(0, peers[0])
        assert desk.asked == room.ANSWERED_MAX
        desk.go_on.set()
        await desk.hear(room.ANSWERED_MAX)
        await desk.hear(room.ANSWERED_MAX)
        assert desk.asked == room.ANSWERED_MAX + 1
        assert desk.sent[-1].number == room.ANSWERED_MAX

    asyncio.run(story())


def test_a_node_that_asks_too_much_keeps_no_other_from_being_answered() -> None:
    """Neither with questions that take their time, nor with answers that are to be remembered."""

    async def story() -> None:
        desk, honest = Desk(), Peer(key_of("honest"), "there", "zone")
        await desk.hear(0, honest)
        desk.go_on.clear()
        for number in range(room.ANSWERED_MAX):
            await desk.hear(number)
        assert desk.asked == 1 + room.UNDER_WAY_OF_ONE_MAX
        await desk.hear(1, honest)
        assert desk.asked == 2 + room.UNDER_WAY_OF_ONE_MAX
        desk.go_on.set()
        for number in range(room.ANSWERED_MAX, 3 * room.ANSWERED_MAX):
            await desk.hear(number)
        asked = desk.asked
        await desk.hear(0, honest)
        await desk.hear(1, honest)
        assert desk.asked == asked, "what was answered to others is remembered"
        assert [one.number for one in desk.sent[-2:]] == [0, 1]

    asyncio.run(story())
