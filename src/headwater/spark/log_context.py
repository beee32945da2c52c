"""Which node of a process is speaking: nodes that share one share its log, and each line is of one of them.

A voice is part of the context in which something runs, so what a node begins on its loop has it by itself; threads do
not inherit a context, and are made here. What nobody in particular does (a Spark that nodes share) has none.
"""

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from typing import Any, Final


class Voice:
    """One node's."""


_SPEAKING: Final[ContextVar[Voice | None]] = ContextVar("speaking", default=None)


def speak_with(voice: Voice) -> None:
    """Let this voice speak in what is begun from here on."""
    _SPEAKING.set(voice)


def speaking() -> Voice | None:
    """Return who speaks."""
    return _SPEAKING.get()


def tell_death(task: "asyncio.Task[Any]", on_death: Callable[[BaseException], object]) -> None:
    """Tell of what a task dies that is to go on until it is cancelled."""

    def ended(task: "asyncio.Task[Any]") -> None:
        if not task.cancelled() and (failure := task.exception()) is not None:
            on_death(failure)

    task.add_done_callback(ended)


def thread_of(
    run: Callable[..., object], *args: object, name: str, on_death: Callable[[BaseException], object]
) -> threading.Thread:
    """Return a thread, not started yet, that has the voice of its maker; it does not keep the process alive.

    What it dies of `on_death` is told, whatever it is: no thread of a node ends unnoticed.
    """

    def told() -> None:
        try:
            run(*args)
        except BaseException as failure:
            on_death(failure)

    return threading.Thread(target=copy_context().run, args=(told,), name=name, daemon=True)
