"""Act on what has arrived, in short rounds on the event loop, so that the loop never works long for one connection.

A round takes messages for `ROUND_S` at most, then lets the loop serve its sockets and tasks. `rounds.py` chooses the
next connection. A connection with more than `READ_AHEAD_BYTES` waiting is not read from, so that TCP holds its sender
back.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from headwater.links.rounds import Rounds
from headwater.links.shares import Holder

ROUND_S: Final = 0.005  # the longest that other tasks of the loop wait for a round, whose overhead is 1 %
TURN_S: Final = 0.001  # of one connection: some hundred control messages, or one with rows
TURN_MESSAGES: Final = 256  # a bound if the clock does not advance
MESSAGE_S: Final = 1e-6  # the least that a message is charged, likewise
ROUND_TURNS: Final = 64  # likewise
READ_AHEAD_BYTES: Final = 64 << 10  # that wait; the loop may read 256 KB beyond it at a time


class MessageSource(Protocol):
    """A connection whose messages wait for their turn."""

    def take(self) -> bool:
        """Act on one message; False if there is no complete one."""


class Taking:
    """The connections with messages that wait, on the running event loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._rounds: Rounds[MessageSource] = Rounds()
        self._resting: dict[MessageSource, asyncio.TimerHandle] = {}
        self._comes = False

    def __contains__(self, item: object) -> bool:
        """Whether this connection has something that waits."""
        return item in self._rounds or item in self._resting

    def put(self, item: MessageSource, holder: Holder) -> None:
        """Act on what has arrived there when its turn comes."""
        if item not in self._resting:
            self._rounds.put(item, holder)
            self._come_soon()

    def rest(self, item: MessageSource, holder: Holder, seconds: float) -> None:
        """Pause a connection for some seconds."""
        self.drop(item)
        self._resting[item] = asyncio.get_running_loop().call_later(seconds, self._rested, item, holder)

    def _rested(self, item: MessageSource, holder: Holder) -> None:
        del self._resting[item]
        self.put(item, holder)

    def drop(self, item: MessageSource) -> None:
        """Discard what waits of a connection."""
        self._rounds.drop(item)
        if (timer := self._resting.pop(item, None)) is not None:
            timer.cancel()

    def _come_soon(self) -> None:
        if not self._comes:
            self._comes = True
            asyncio.get_running_loop().call_soon(self._round)

    def _round(self) -> None:
        self._comes = False
        end = self._clock() + ROUND_S
        try:
            for _ in range(ROUND_TURNS):
                if not self._rounds or self._clock() >= end:
                    break
                self._turn()
        finally:  # even after an exception the others get their turn
            if self._rounds:
                self._come_soon()

    def _turn(self) -> None:
        item, begin, taken = self._rounds.next(), self._clock(), 0
        is_left = True
        while is_left and taken < TURN_MESSAGES and item in self._rounds and self._clock() - begin < TURN_S:
            is_left = item.take()
            taken += 1
        self._rounds.charge(item, max(self._clock() - begin, taken * MESSAGE_S))
        if not is_left:
            self._rounds.drop(item)
