"""The books on what a broker may forget, against a model of a broker, a wire that tears and a process that dies."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.connectors.mqtt.receipts import Receipt, Receipts, Reply, Verdict
from headwater.dataflow.connectors import Position
from tests.connectors.polls import stored_form

WINDOW = 4


@dataclass
class ModelBroker:
    """What MQTT asks of a broker, for one session."""

    qos: int
    waiting: deque[int]
    reuses_ids: bool = False  # gives the lowest free packet id, not the next one
    forgets: bool = False  # when it is restarted, that PUBREC has come, as mosquitto does
    sent: dict[int, int] = field(default_factory=dict)  # packet id, message: not acknowledged
    released: dict[int, int] = field(default_factory=dict)  # QoS 2: PUBREC has come, PUBCOMP has not
    last_id: int = 0
    saved: tuple[Any, ...] | None = None  # what it will come back with if it is killed

    @property
    def is_done(self) -> bool:
        """Whether it has nothing more to send."""
        return not (self.waiting or self.sent or self.released)

    def send(self) -> tuple[Any, ...] | None:
        """Send the next message, if the window has room."""
        if not self.waiting or len(self.sent) + len(self.released) >= WINDOW:
            return None
        packet_id = self._free_id()
        self.sent[packet_id] = self.waiting.popleft()
        return ("PUBLISH", packet_id, self.sent[packet_id], False)

    def resend(self) -> list[tuple[Any, ...]]:
        """Send again, over a new connection, what has no answer."""
        again = [("PUBLISH", packet_id, message, True) for packet_id, message in self.sent.items()]
        return again + [("PUBREL", packet_id) for packet_id in self.released]

    def restart(self) -> None:
        """Come back with what was kept."""
        if self.forgets:
            self.sent |= self.released
            self.released.clear()

    def save(self) -> None:
        """Write down all that is known now."""
        self.saved = (self.waiting.copy(), dict(self.sent), dict(self.released), self.last_id)

    def kill(self) -> None:
        """Come back with what was saved last."""
        assert self.saved is not None
        self.waiting, self.sent, self.released, self.last_id = self.saved
        self.save()

    def receive(self, reply: Reply, packet_id: int) -> tuple[Any, ...] | None:
        """Take an answer, and return what is to be sent for it."""
        match reply:
            case Reply.ACKNOWLEDGED:
                self.sent.pop(packet_id, None)
            case Reply.RECEIVED:
                if packet_id in self.sent:
                    self.released[packet_id] = self.sent.pop(packet_id)
                return ("PUBREL", packet_id)
            case Reply.COMPLETED:
                self.released.pop(packet_id, None)
        return None

    def _free_id(self) -> int:
        taken = self.sent.keys() | self.released.keys()
        if self.reuses_ids:
            return next(one for one in range(1, 100) if one not in taken)
        self.last_id = self.last_id % 50 + 1
        return self.last_id if self.last_id not in taken else self._free_id()


class World:
    """A broker, a reader with its store, and what is under way between them."""

    def __init__(self, broker: ModelBroker, *, equal: bool = False) -> None:
        """Begin with what the broker has."""
        self.broker = broker
        self._equal = equal  # whether all messages look the same
        self.stored: list[int] = []
        self.completed: set[int] = set()  # messages that a broker that was killed had been told to forget for good
        self._completed: set[int] = set()
        self._under: dict[int, int] = {}  # packet id, message that came under it last
        self.refused = 0
        broker.save()
        self._position: Position | None = None
        self.start()

    def start(self) -> None:
        """Open the reader where the store stands."""
        self.receipts = Receipts(self._position)
        self._backlog: deque[tuple[int, Receipt]] = deque()
        self._polled: tuple[list[int], Position] | None = None
        self.reconnect()

    def reconnect(self, *, kept: bool = True) -> None:
        """Lose what is under way, and connect again."""
        self._to_reader: deque[tuple[Any, ...]] = deque(self.broker.resend())
        self._to_broker: deque[tuple[Reply, int] | None] = deque()  # None is a ping
        self._has_pinged = False
        self.receipts.connected(kept=kept)

    def step(self, action: str) -> None:
        """Let one thing happen, if it can."""
        match action:
            case "send" if (packet := self.broker.send()) is not None:
                self._to_reader.append(packet)
            case "deliver" if self._to_reader:
                self._receive(*self._to_reader.popleft())
            case "answer" if self._to_broker:
                told = self._to_broker.popleft()
                packet = ("PONG", 0) if told is None else self.broker.receive(*told)
                self._to_reader.extend([packet] if packet is not None else [])
            case "ping" if not self._has_pinged:
                self._has_pinged = True
                self._to_broker.append(None)
                self.receipts.pinged()
            case "poll" if self._polled is None:
                taken = [self._backlog.popleft() for _ in range(min(2, len(self._backlog)))]
                position = self.receipts.polled(receipt for _, receipt in taken)
                self._polled = [message for message, _ in taken], stored_form(position)
            case "commit" if self._polled is not None:
                self.stored += self._polled[0]
                self._position, self._polled = self._polled[1], None
                self._reply(*self.receipts.committed())
            case "commit, die" if self._polled is not None:
                self.stored += self._polled[0]
                self._position = self._polled[1]
                self.start()
            case "die":
                self.start()
            case "tear":
                self.reconnect()
            case "restart":
                self.broker.restart()
                self.reconnect()
            case "save":
                self.broker.save()
            case "kill":
                self.broker.kill()
                self.completed |= self._completed
                self.reconnect()
        self.receipts.check()

    def finish(self) -> None:
        """Let all that is left happen."""
        for _ in range(1_000):
            for action in ("send", "deliver", "poll", "commit", "answer"):
                self.step(action)
            if self.broker.is_done:
                return
        raise AssertionError("the broker still waits for an answer")

    def _receive(self, kind: str, packet_id: int, message: int = 0, again: bool = False) -> None:
        if kind == "PONG":
            self._has_pinged = False
            self.receipts.answered()
            return
        if kind == "PUBREL":
            if self.receipts.released(packet_id):
                self._reply((Reply.COMPLETED, packet_id))
            return
        self._under[packet_id] = message
        check = 0 if self._equal else message
        verdict, receipt = self.receipts.arrived(packet_id, self.broker.qos, check, again=again)
        if verdict is Verdict.NEW:
            assert receipt is not None
            self._backlog.append((message, receipt))
            return
        self.refused += 1
        if verdict is Verdict.STORED:
            self._reply((Reply.RECEIVED if self.broker.qos == 2 else Reply.ACKNOWLEDGED, packet_id))

    def _reply(self, *replies: tuple[Reply, int]) -> None:
        self._completed |= {
            self._under[one] for reply, one in replies if reply is Reply.COMPLETED and one in self._under
        }
        self._to_broker += replies
        self.receipts.told(replies)


STEPS = ("send", "deliver", "poll", "commit", "answer")
PING = ("ping", "answer", "deliver")
FAULTS = ("commit, die", "die", "tear", "restart")
# Whole rounds among the single steps, so that ids are used up and given again, and faults meet all there can be.
ACTIONS = st.lists(
    st.one_of(
        st.sampled_from([*STEPS, *PING]).map(lambda step: (step,)),
        st.sampled_from([STEPS, (*STEPS, "deliver", "answer"), (*STEPS, *PING)]),
        st.sampled_from(FAULTS).map(lambda fault: (fault,)),
        st.sampled_from(FAULTS).map(lambda fault: ("send", fault)),
    ),
    max_size=60,
).map(lambda rounds: [step for one in rounds for step in one])


def run(world: World, actions: list[str]) -> World:
    """Let all this happen, and then whatever is left."""
    for action in actions:
        world.step(action)
    world.finish()
    return world


@settings(max_examples=200)
@given(actions=ACTIONS, qos=st.sampled_from([1, 2]), equal=st.booleans(), forgets=st.booleans())
def test_a_broker_that_numbers_consecutively_has_every_message_stored_once(
    actions: list[str], qos: int, equal: bool, forgets: bool
) -> None:
    """Whatever dies and tears, even if all messages look the same, and if the broker forgets what it heard of them."""
    world = run(World(ModelBroker(qos, deque(range(12)), forgets=forgets), equal=equal), actions)
    assert sorted(world.stored) == list(range(12))


def with_ids_reused(qos: int, *, equal: bool) -> World:
    """A broker that has given an id twice before the reader's eyes, and has twelve more messages."""
    world = World(ModelBroker(qos, deque(), reuses_ids=True), equal=equal)
    for some in ([0], [1], range(2, 14)):
        world.finish()
        world.broker.waiting.extend(some)
    return world


@settings(max_examples=200)
@given(actions=ACTIONS, equal=st.booleans())
def test_a_broker_that_reuses_ids_has_every_message_of_qos_2_stored_once(actions: list[str], equal: bool) -> None:
    """Even if all look the same: it is trusted by the protocol alone."""
    assert sorted(run(with_ids_reused(2, equal=equal), actions).stored) == list(range(14))


@settings(max_examples=200)
@given(actions=ACTIONS, equal=st.booleans())
def test_a_broker_that_reuses_ids_has_every_message_of_qos_1_stored_at_least_once(
    actions: list[str], equal: bool
) -> None:
    assert set(run(with_ids_reused(1, equal=equal), actions).stored) == set(range(14))


@settings(max_examples=200)
@given(before=ACTIONS, after=ACTIONS, qos=st.sampled_from([1, 2]))
def test_a_session_that_the_broker_lost_confuses_nothing_in_the_next(
    before: list[str], after: list[str], qos: int
) -> None:
    """Packet ids start over. What the broker lost is lost; what it sends from then on is stored, at QoS 2 once.

    At QoS 1 a reader that died before it committed anything of the new session takes its ids for reused ones.
    """
    world = World(ModelBroker(qos, deque(range(6))))
    for action in before:
        world.step(action)
    world.broker = ModelBroker(qos, deque(range(100, 112)))
    world.reconnect(kept=False)
    after_all = [one for one in run(world, after).stored if one >= 100]
    assert set(after_all) == set(range(100, 112))
    assert qos == 1 or len(after_all) == 12


@pytest.mark.parametrize("qos", [1, 2])
def test_what_the_broker_has_confirmed_is_remembered_no_longer(qos: int) -> None:
    world = World(ModelBroker(qos, deque(range(40))))
    world.finish()
    assert len(world.receipts.polled([])["done"]) == 40 * 6
    for action in PING:
        world.step(action)
    assert world.receipts.polled([])["done"] == b""


@pytest.mark.parametrize("qos", [1, 2])
def test_nothing_is_answered_before_it_is_committed(qos: int) -> None:
    receipts = Receipts(None)
    verdict, receipt = receipts.arrived(7, qos, 1, again=False)
    assert verdict is Verdict.NEW
    assert receipt is not None
    receipts.polled([receipt])
    assert receipts.arrived(7, qos, 1, again=True) == (Verdict.AGAIN, None)
    assert receipts.committed() == [(Reply.RECEIVED if qos == 2 else Reply.ACKNOWLEDGED, 7)]
    assert receipts.arrived(7, qos, 1, again=True) == (Verdict.STORED, None)


def test_a_packet_id_is_completed_only_when_no_committed_position_remembers_it() -> None:
    receipts = Receipts(None)
    _, receipt = receipts.arrived(7, 2, 1, again=False)
    assert receipt is not None
    receipts.polled([receipt])
    receipts.committed()
    assert not receipts.released(7)
    assert receipts.needs_commit
    assert receipts.polled([])["received"] == b""
    assert receipts.committed() == [(Reply.COMPLETED, 7)]
    assert receipts.released(7)


def open_receipt(receipts: Receipts, packet_id: int = 7, check: int = 1) -> Receipt:
    """Return the receipt of a new message."""
    verdict, receipt = receipts.arrived(packet_id, 1, check, again=False)
    assert verdict is Verdict.NEW
    assert receipt is not None
    return receipt


@pytest.mark.parametrize("kept", [True, False])
def test_what_came_over_a_connection_that_is_gone_is_not_acknowledged_over_the_next(kept: bool) -> None:
    """It comes again there; until it does, its packet id may mean nothing to the broker, or another message."""
    receipts = Receipts(None)
    receipts.polled([open_receipt(receipts)])
    receipts.connected(kept=kept)
    assert receipts.committed() == []


def test_an_id_that_a_broker_gives_away_too_early_acknowledges_only_the_message_that_has_it_now() -> None:
    receipts = Receipts(None)
    first, second = open_receipt(receipts), open_receipt(receipts)
    receipts.polled([first])
    assert receipts.committed() == []
    receipts.polled([second])
    assert receipts.committed() == [(Reply.ACKNOWLEDGED, 7)]


@pytest.mark.parametrize("is_committed", [True, False])
def test_when_the_broker_has_lost_the_session_an_equal_message_under_a_known_id_is_another(is_committed: bool) -> None:
    receipts = Receipts(None)
    receipts.polled([open_receipt(receipts)])
    if is_committed:
        receipts.committed()
    receipts.connected(kept=False)
    assert receipts.arrived(7, 1, 1, again=True)[0] is Verdict.NEW


KILLS = st.lists(
    st.one_of(
        st.sampled_from([STEPS, (*STEPS, "deliver", "answer"), (*STEPS, *PING), ("save",), ("send", "deliver")]),
        st.sampled_from(["kill", "save", "tear", "die", "commit, die"]).map(lambda one: (one,)),
    ),
    max_size=60,
).map(lambda rounds: [step for one in rounds for step in one])


@settings(max_examples=200)
@given(actions=KILLS)
def test_of_a_broker_that_is_killed_only_what_was_completed_since_it_saved_may_come_twice(actions: list[str]) -> None:
    """At QoS 2 a packet id stands for its message until PUBCOMP, with the mark of a duplicate or without."""
    messages = list(range(12))
    world = run(World(ModelBroker(2, deque(messages))), actions)
    assert set(world.stored) == set(messages)
    assert {one for one in messages if world.stored.count(one) > 1} <= world.completed


@pytest.mark.parametrize("stage", ["came", "stored", "released"])
def test_a_message_of_qos_2_is_the_same_until_it_is_completed_also_without_its_mark(stage: str) -> None:
    """As a broker sends it that was killed and does not know that it had sent it."""
    receipts = Receipts(None)
    _, receipt = receipts.arrived(7, 2, 1, again=False)
    assert receipt is not None
    if stage != "came":
        receipts.polled([receipt])
        assert receipts.committed() == [(Reply.RECEIVED, 7)]
    if stage == "released":
        assert not receipts.released(7)
    receipts.connected(kept=True)
    expected = Verdict.AGAIN if stage == "came" else Verdict.STORED
    assert receipts.arrived(7, 2, 1, again=False)[0] is expected
    assert receipts.arrived(7, 2, 2, again=False)[0] is Verdict.NEW, "with other contents it is another message"


def test_a_message_under_an_id_that_was_completed_is_new_whatever_it_looks_like() -> None:
    """So the protocol says; a broker that was killed sends again, as new, what it completed since it saved."""
    receipts = Receipts(None)
    _, receipt = receipts.arrived(7, 2, 1, again=False)
    assert receipt is not None
    receipts.polled([receipt])
    receipts.committed()
    receipts.released(7)
    receipts.polled([])
    assert receipts.committed() == [(Reply.COMPLETED, 7)]
    receipts.connected(kept=True)
    assert receipts.arrived(7, 2, 1, again=False)[0] is Verdict.NEW


def test_an_equal_message_of_qos_1_without_the_mark_is_another() -> None:
    """There an id is free with PUBACK, and brokers that reuse it at once are within their rights."""
    receipts = Receipts(None)
    receipts.polled([open_receipt(receipts)])
    receipts.committed()
    assert receipts.arrived(7, 1, 1, again=False)[0] is Verdict.NEW
