"""Take what has arrived, round by round of the event loop, so that the loop never works long for one connection.

A round takes messages for `ROUND_S` at most and lets the loop look at its sockets and tasks before the next one. Whose
turn it is, `rounds.py` says. A connection that waits for its turn with more than `READ_AHEAD_BYTES` is not read from
meanwhile, so that TCP holds its sender back.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from headwater.links.rounds import Rounds
from headwater.links.shares import Holder

ROUND_S: Final = 0.005  # so that what else the loop has to do waits no longer; beside it a round costs 1 %
TURN_S: Final = 0.001  # of one connection: some hundred control messages, or one with rows
TURN_MESSAGES: Final = 256  # in case the clock stands still
MESSAGE_S: Final = 1e-6  # that one is charged at least, likewise
ROUND_TURNS: Final = 64  # likewise
READ_AHEAD_BYTES: Final = 64 << 10  # what waits to be taken; the loop reads 256 KB more at a time at most


class MessageSource(Protocol):
    """A connection from which messages are taken."""

    def take(self) -> bool:
        """Take one message; False if there is none that is whole."""


class Taking:
    """What has arrived and waits to be taken, on the event loop that runs."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin with nothing."""
        self._clock = clock
        self._rounds: Rounds[MessageSource] = Rounds()
        self._resting: dict[MessageSource, asyncio.TimerHandle] = {}
        self._comes = False

    def __contains__(self, item: object) -> bool:
        """Whether something that has arrived there waits."""
        return item in self._rounds or item in self._resting

    def put(self, item: MessageSource, holder: Holder) -> None:
        """Take what has arrived there when its turn comes."""
        if item not in self._resting:
            self._rounds.put(item, holder)
            self._come_soon()

    def rest(self, item: MessageSource, holder: Holder, seconds: float) -> None:
        """Take nothing from there for a while."""
        self.drop(item)
        self._resting[item] = asyncio.get_running_loop().call_later(seconds, self._rested, item, holder)

    def _rested(self, item: MessageSource, holder: Holder) -> None:
        del self._resting[item]
        self.put(item, holder)

    def drop(self, item: MessageSource) -> None:
        """Take nothing more from there."""
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
        finally:  # whatever one turn came to, the others want theirs
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
