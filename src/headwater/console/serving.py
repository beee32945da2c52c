"""How a command serves until it is told to stop, and what it prints meanwhile."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

import uvloop

from headwater.console.screen import print_object, screen

T = TypeVar("T")
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Sayer:
    """Prints events, for people or as JSON."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._console = screen()

    def __call__(self, what: str, **facts: object) -> None:
        """Print one event."""
        if self._as_json:
            print_object({"event": what, **facts})
            return
        told = "  ".join(f"{name}={value}" for name, value in facts.items())
        self._console.print(f"{what}  {told}".rstrip(), soft_wrap=True, highlight=False, markup=False)


async def any_of(*waits: Coroutine[Any, Any, object]) -> None:
    """Wait until one of these has ended, and cancel the others; raises what that one raises."""
    tasks = [asyncio.create_task(one) for one in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def serve_until_told(serve: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Serve until a signal: the first one asks for a stop in order, the second one interrupts."""

    async def until_told() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        serving = asyncio.ensure_future(serve(stop))

        def note() -> None:
            if stop.is_set():
                serving.cancel()
            stop.set()

        for number in SIGNALS:
            loop.add_signal_handler(number, note)
        try:
            await serving
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(until_told())


def run_unless_told(doing: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end. A signal cancels it, and a second one its clean-up; it raises KeyboardInterrupt."""

    async def until_told() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(doing)
        for number in SIGNALS:
            loop.add_signal_handler(number, task.cancel)
        try:
            return await task
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(until_told())
