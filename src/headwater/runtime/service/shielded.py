"""Awaiting without being cancelled in the middle: a thread runs on even if its awaiter has been cancelled."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def uncut(doing: Awaitable[T]) -> T:
    """Await something to its end; a cancellation meanwhile is delivered at the caller's next await."""
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
