"""What the machines want of the engine, one after the other. Any node may have asked for it, so there is an end."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from headwater.node.events import AwaitInstance, EmptyInstance, StartInstance, StopInstance
from headwater.runtime.service.plant import KeptFlow, Startable

FLOWS_BYTES_MAX: Final = 64 << 20  # of flows that wait to be started, each counted as often as it waits
WISH_BYTES: Final = 1 << 10  # that one takes besides

Wish = Startable | EmptyInstance | StopInstance | Callable[[], Awaitable[None]]


class Wishes:
    """What waits to be done, in its order."""

    def __init__(self) -> None:
        """Wait for nothing."""
        self._queue: asyncio.Queue[Wish] = asyncio.Queue()
        self._bytes = 0

    def put(self, wish: Wish) -> bool:
        """Have something done; False, and it is not done, if too much is to be started before it.

        What ends something is taken always: there was a start before it.
        """
        size = _size_of(wish)
        if size and self._bytes + size > FLOWS_BYTES_MAX:
            return False
        self._bytes += size
        self._queue.put_nowait(wish)
        return True

    async def next(self) -> Wish:
        """Wait for something to do."""
        wish = await self._queue.get()
        self._bytes -= _size_of(wish)
        return wish


def _size_of(wish: Wish) -> int:
    return WISH_BYTES + len(wish.flow) if isinstance(wish, StartInstance | AwaitInstance | KeptFlow) else 0
