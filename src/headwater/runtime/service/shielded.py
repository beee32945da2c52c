"""Awaiting without being cancelled in the middle: a thread runs on even if its awaiter has been cancelled."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def uncut(doing: Awaitable[T], *, hurry: Callable[[], None] = lambda: None) -> T:
    """Wait for something to its end; whoever is cancelled meanwhile is so at their next wait, and can undo it.

    `hurry` is called then, to have it end soon.
    """
    task, us = asyncio.ensure_future(doing), asyncio.current_task()
    assert us is not None
    is_cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            is_cancelled = True
            hurry()
    if is_cancelled:
        us.cancel()
    return task.result()
