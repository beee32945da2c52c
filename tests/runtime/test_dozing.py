"""A pump's sleep ends when it is called or when something has come; a source that is watched need not be asked."""

import socket
from dataclasses import dataclass, field

import pyarrow as pa

import headwater as hw
from headwater.dataflow.connectors import Ended, Idle, Poll, Position, Rows
from headwater.runtime.node import Node
from headwater.runtime.wakeup import Doze
from headwater.workers.config import NodeConfig

FOREVER_S = 60.0
NEVER_US = 1 << 60


def test_a_call_before_the_sleep_is_not_lost() -> None:
    """Nobody can say when the thread falls asleep."""
    doze = Doze()
    for _ in range(100_000):  # more than it can keep, and it must not block
        doze.call()
    assert doze.wait(FOREVER_S) == frozenset()
    doze.close()


def test_a_watched_descriptor_wakes_once() -> None:
    """Whoever does not read from it must not be woken for ever."""
    here, there = socket.socketpair()
    doze = Doze()
    doze.watch(here.fileno())
    doze.watch(here.fileno())
    there.send(b"x")
    assert doze.wait(FOREVER_S) == {here.fileno()}
    assert doze.wait(0.0) == frozenset()
    doze.watch(here.fileno())
    assert doze.wait(FOREVER_S) == {here.fileno()}
    doze.close()


def test_the_number_of_a_closed_descriptor_may_come_again() -> None:
    """What is opened next often gets the number of what was closed last."""
    doze = Doze()
    here, _ = socket.socketpair()
    doze.watch(here.fileno())
    doze.forget(here.fileno())
    doze.forget(here.fileno())
    here.close()
    again, there = socket.socketpair()
    doze.watch(again.fileno())
    there.send(b"x")
    assert doze.wait(FOREVER_S) == {again.fileno()}
    doze.close()


@dataclass(frozen=True)
class Heard:
    """A source that wants to be asked only when something has come; a byte is a row."""

    connection: socket.socket = field(compare=False)
    kind: str = "heard"
    schema: pa.Schema | None = None
    can_wait: bool = True
    blocking: bool = False
    guarantee: str = "at-most-once"

    def open(self, position: Position | None) -> "Heard":
        """Read where it is."""
        self.connection.setblocking(False)
        return self

    def poll(self, rows_max: int, now_us: int) -> Poll:
        """Return a row for each byte; say that there will never be any, where there is none."""
        try:
            came = self.connection.recv(rows_max)
        except BlockingIOError:
            return Idle(NEVER_US)
        return Rows(pa.record_batch({"byte": list(came)}), {}) if came else Ended()

    def fileno(self) -> int:
        """Return what to watch."""
        return self.connection.fileno()

    def close(self) -> None:
        """Let go."""
        self.connection.close()


def test_a_source_is_asked_when_its_descriptor_has_something() -> None:
    """However long it said to wait, and again each time; with its end it ends."""
    here, there = socket.socketpair()
    sink = hw.to.memory()
    with Node(NodeConfig(spark=False)) as node:
        app = node.deploy(hw.flow("heard", hw.source(Heard(here)).sink(sink)))
        for byte in (b"a", b"b", b"c"):
            there.send(byte)
            while len(sink.rows()) == 0 or sink.rows()[-1] != {"byte": byte[0]}:
                assert not node.wait(app, 0.01), app.error
        there.close()
        assert node.wait(app, FOREVER_S)
        assert app.error is None
    assert sink.rows() == [{"byte": 97}, {"byte": 98}, {"byte": 99}]
