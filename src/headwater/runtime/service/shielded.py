"""What is not to be cut off in the middle: a thread goes on whoever has given up waiting for it."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def uncut(doing: Awaitable[T]) -> T:
    """Wait for something to its end; whoever is cancelled meanwhile is so at their next wait, and can undo it."""
    task, us = asyncio.ensure_future(doing), asyncio.current_task()
    assert us is not None
    is_cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            is_cancelled = True
    if is_cancelled:
        us.cancel()
    return task.result()
