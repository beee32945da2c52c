"""Which node of a process is speaking: nodes that share one share its log, and each line is of one of them.

A voice is part of the context in which something runs, so what a node begins on its loop has it by itself; threads do
not inherit a context, and are made here. What nobody in particular does (a Spark that nodes share) has none.
"""

import threading
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from typing import Final


class Voice:
    """One node's."""


_SPEAKING: Final[ContextVar[Voice | None]] = ContextVar("speaking", default=None)


def speak_with(voice: Voice) -> None:
    """Let this voice speak in what is begun from here on."""
    _SPEAKING.set(voice)


def speaking() -> Voice | None:
    """Return who speaks."""
    return _SPEAKING.get()


def thread_of(run: Callable[..., object], *args: object, name: str) -> threading.Thread:
    """Return a thread, not started yet, that has the voice of whoever makes it; it does not keep the process alive."""
    return threading.Thread(target=copy_context().run, args=(run, *args), name=name, daemon=True)
