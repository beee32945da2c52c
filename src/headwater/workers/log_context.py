"""Which node of a process has written a log line: nodes that share a process share its log.

A voice is a context variable, so tasks that a node starts on its loop inherit it; threads do not inherit a context, so
`thread_of` passes it on. Lines of what nodes share, such as Spark, have no voice.
"""

import threading
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from typing import Final


class Voice:
    """The identity of one node in the log."""


_SPEAKING: Final[ContextVar[Voice | None]] = ContextVar("speaking", default=None)


def speak_with(voice: Voice) -> None:
    """Set the voice of this context and of all that is started in it."""
    _SPEAKING.set(voice)


def speaking() -> Voice | None:
    """Return the voice of this context."""
    return _SPEAKING.get()


def thread_of(run: Callable[..., object], *args: object, name: str) -> threading.Thread:
    """Return a daemon thread, not started, that inherits the voice of its creator."""
    return threading.Thread(target=copy_context().run, args=(run, *args), name=name, daemon=True)
