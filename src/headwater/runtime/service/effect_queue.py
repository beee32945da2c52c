"""What the machines want of the engine, one after the other. Any node may have asked for it, so it can be too much."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from headwater.control.messages.events import AwaitInstance, EmptyInstance, StartInstance, StopInstance
from headwater.runtime.service.engine_shell import KeptFlow, Startable

FLOWS_BYTES_MAX: Final = 64 << 20  # of flows that wait to be started, each counted as often as it waits
WISH_BYTES: Final = 1 << 10  # that one takes besides

Wish = Startable | EmptyInstance | StopInstance | Callable[[], Awaitable[None]]


class Wishes:
    """What waits to be done, in its order."""

    def __init__(self) -> None:
        """Wait for nothing."""
        self._queue: asyncio.Queue[Wish] = asyncio.Queue()
        self._bytes = 0

    def are_too_many(self) -> bool:
        """Whether so much waits to be started that nobody should be heard who wants more."""
        return self._bytes >= FLOWS_BYTES_MAX

    def put(self, wish: Wish) -> None:
        """Have something done: whatever it is, as the machines count on it from here on."""
        self._bytes += _size_of(wish)
        self._queue.put_nowait(wish)

    async def next(self) -> Wish:
        """Wait for something to do."""
        wish = await self._queue.get()
        self._bytes -= _size_of(wish)
        return wish


def _size_of(wish: Wish) -> int:
    return WISH_BYTES + len(wish.flow) if isinstance(wish, StartInstance | AwaitInstance | KeptFlow) else 0
