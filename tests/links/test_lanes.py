"""The queue to one node and the frames that leave it: whatever is offered, taken, dropped or cut, the sums hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headwater.links.lanes import BULKY, GATHER_BYTES, PIECE_BYTES, URGENT, Lanes
from headwater.model.frames import HEADER_BYTES, BrokenFrame, FrameTooLong, Inbox, pieces_of


class Queue(RuleBasedStateMachine):
    """Messages are offered and written in any order; what arrives is what was taken, in order on each lane."""

    def __init__(self) -> None:
        super().__init__()
        self.lanes = Lanes(bytes_max=200_000, messages_max=20)
        self.inbox = Inbox(200_000, lanes=2)
        self.now = 0.0
        self.number = 0
        self.taken: tuple[list[bytes], list[bytes]] = ([], [])
        self.arrived: tuple[list[bytes], list[bytes]] = ([], [])

    @rule(lane=st.sampled_from([URGENT, BULKY]), size=st.integers(0, 60_000))
    def offer(self, lane: int, size: int) -> None:
        self.number += 1
        message = bytes([lane]) + self.number.to_bytes(4, "big") + bytes(size)
        held = self.lanes.bytes_held
        if self.lanes.offer(message, lane, self.now):
            self.taken[lane].append(message)
        else:
            assert held + len(message) > 200_000 or len(self.taken[lane]) >= 20

    @rule()
    def write(self) -> None:
        written = self.lanes.gather()
        assert len(written) < GATHER_BYTES + PIECE_BYTES[URGENT] + HEADER_BYTES
        for message in self.inbox.put(written):
            self.arrived[message[0]].append(message)

    @rule()
    def lose_the_connection(self) -> None:
        """What was begun is gone at both ends; everything else goes over the next connection."""
        dropped = self.lanes.drop_begun()
        self.inbox = Inbox(200_000, lanes=2)
        assert 0 <= dropped <= 2

    @rule(seconds=st.floats(0, 2))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def drop_stale(self) -> None:
        self.lanes.drop_begun()
        self.inbox = Inbox(200_000, lanes=2)
        self.lanes.drop_older(self.now - 1.0)

    @invariant()
    def sums_are_right(self) -> None:
        self.lanes.check()

    @invariant()
    def each_arrives_once_and_in_order(self) -> None:
        for taken, arrived in zip(self.taken, self.arrived, strict=True):
            assert len(set(arrived)) == len(arrived)
            places = [taken.index(message) for message in arrived]
            assert places == sorted(places)


TestQueue = Queue.TestCase


def test_an_urgent_message_overtakes_the_pieces_of_a_bulky_one() -> None:
    lanes = Lanes(bytes_max=10 << 20, messages_max=10)
    lanes.offer(bytes(1 << 20), BULKY, 0.0)
    first = lanes.gather()
    lanes.offer(b"urgent", URGENT, 0.0)
    inbox = Inbox(10 << 20, lanes=2)
    assert inbox.put(first) == []
    assert inbox.put(lanes.gather()) == [b"urgent"]
    rest = []
    while written := lanes.gather():
        rest += inbox.put(written)
    assert rest == [bytes(1 << 20)]


def test_what_a_message_brings_is_known_until_it_has_left_or_is_dropped() -> None:
    lanes = Lanes(bytes_max=10 << 20, messages_max=10)
    for brings, size in (("sent", GATHER_BYTES), ("begun", 2 * GATHER_BYTES), ("stale", 10)):
        assert lanes.offer(bytes(size), BULKY, 0.0, brings)
    lanes.gather()
    lanes.gather()
    lanes.check()
    assert [lanes.will_bring(one) for one in ("sent", "begun", "stale", None)] == [False, True, True, False]
    lanes.drop_begun()
    lanes.check()
    assert [lanes.will_bring(one) for one in ("begun", "stale")] == [False, True]
    lanes.drop_older(1.0)
    lanes.check()
    assert not lanes.will_bring("stale")


@given(
    messages=st.lists(st.tuples(st.binary(max_size=3_000), st.sampled_from([0, 1])), max_size=20),
    piece_bytes=st.integers(1, 500),
    cuts=st.integers(1, 700),
)
def test_messages_survive_any_cutting(messages: list[tuple[bytes, int]], piece_bytes: int, cuts: int) -> None:
    travelling = b"".join(piece for message, lane in messages for piece in pieces_of(message, piece_bytes, lane))
    inbox = Inbox(3_000, lanes=2)
    arrived = [
        message for start in range(0, len(travelling), cuts) for message in inbox.put(travelling[start : start + cuts])
    ]
    assert arrived == [message for message, _ in messages]
    assert inbox.bytes_held == 0


@given(st.lists(st.binary(max_size=2_000), max_size=20))
def test_whatever_arrives_is_bounded(garbage: list[bytes]) -> None:
    """Either it is put together or refused; nothing longer than allowed is ever held."""
    inbox = Inbox(1_000, lanes=2)
    try:
        for data in garbage:
            assert all(len(message) <= 1_000 for message in inbox.put(data))
            assert inbox.bytes_held <= 3_000 + 2 * HEADER_BYTES
    except BrokenFrame:
        pass


def test_a_lane_that_a_connection_does_not_have_is_refused() -> None:
    with pytest.raises(BrokenFrame, match="a lane that this connection does not have"):
        Inbox(1_000).put(b"".join(pieces_of(b"x", 100, lane=1)))
    with pytest.raises(FrameTooLong):
        Inbox(1_000).put((1_001).to_bytes(4, "little"))
