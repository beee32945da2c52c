"""The queue of effects for the engine, carried out one after the other. Remote peers can fill it, so it is bounded."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from headwater.control.messages.events import AwaitInstance, EmptyInstance, StartInstance, StopInstance
from headwater.runtime.service.engine_shell import KeptFlow, Startable

FLOWS_BYTES_MAX: Final = 64 << 20  # of flows in the queue, counted once per entry
WISH_BYTES: Final = 1 << 10  # that an entry takes besides

Wish = Startable | EmptyInstance | StopInstance | Callable[[], Awaitable[None]]


class Wishes:
    """Effects that wait to be carried out, first in, first out."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Wish] = asyncio.Queue()
        self._bytes = 0

    def are_too_many(self) -> bool:
        """Whether the queue is full; further StartAsked messages are then refused."""
        return self._bytes >= FLOWS_BYTES_MAX

    def put(self, wish: Wish) -> None:
        """Add an effect, even if the queue is full: the state machines rely on it from here on."""
        self._bytes += _size_of(wish)
        self._queue.put_nowait(wish)

    async def next(self) -> Wish:
        """Wait for the next effect."""
        wish = await self._queue.get()
        self._bytes -= _size_of(wish)
        return wish


def _size_of(wish: Wish) -> int:
    return WISH_BYTES + len(wish.flow) if isinstance(wish, StartInstance | AwaitInstance | KeptFlow) else 0
