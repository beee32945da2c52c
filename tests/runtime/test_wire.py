"""A worker that waits for its node leaves when nothing comes for long, and not because its machine stood still."""

import socket
from collections.abc import Callable
from typing import cast

import pytest

from headwater.workers.local.wire import SILENCE_S, WAITS, Goodbye, Line, NodeAlive, arrived, frame


class Scripted:
    """A socket on which one thing after the other happens: bytes come, time is up, the other side is gone."""

    def __init__(self, *happens: bytes | type[OSError]) -> None:
        self._happens = list(happens)
        self.timeouts: list[float] = []

    def settimeout(self, seconds: float) -> None:
        self.timeouts.append(seconds)

    def recv(self, bytes_max: int) -> bytes:
        happens = self._happens.pop(0)
        if isinstance(happens, bytes):
            return happens[:bytes_max]
        raise happens


Make = Callable[..., socket.socket]


@pytest.fixture
def scripted() -> Make:
    return lambda *happens: cast("socket.socket", Scripted(*happens))


def test_one_wait_that_is_over_is_no_silence(scripted: Make) -> None:
    """A machine that stood still for minutes wakes with one timeout, and then the node speaks."""
    assert arrived(scripted(TimeoutError, b"here"), 10) == b"here"


def test_a_node_that_says_nothing_for_all_waits_is_silent(scripted: Make) -> None:
    assert arrived(scripted(*[TimeoutError] * WAITS, b"too late"), 10) == b""


@pytest.mark.parametrize("end", [b"", ConnectionResetError])
def test_a_node_that_is_gone_is_not_waited_for(scripted: Make, end: bytes | type[OSError]) -> None:
    assert arrived(scripted(TimeoutError, end, b"nobody"), 10) == b""


def test_what_is_sent_may_take_as_long_as_a_silence() -> None:
    sock = Scripted(b"here")
    arrived(cast("socket.socket", sock), 10)
    assert sock.timeouts == [SILENCE_S / WAITS, SILENCE_S]


def test_messages_are_received_one_by_one_however_they_come(scripted: Make) -> None:
    sent = frame(NodeAlive()) + frame(Goodbye())
    line = Line(scripted(sent[:3], TimeoutError, sent[3:], b""))
    assert [line.receive(), line.receive(), line.receive()] == [NodeAlive(), Goodbye(), None]
