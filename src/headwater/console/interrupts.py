"""Ctrl-C and SIGTERM.

While a node starts, either interrupts. Once it runs, the first one is a request, which the watching loop follows, so
that the node stops in order and the summary is printed; a second one interrupts. Spark installs its own handler for
Ctrl-C when it starts, which cancels the pool's jobs, so our handlers are installed after that.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

INTERRUPTED_EXIT: Final = 130  # what a shell expects after Ctrl-C

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class StopWish:
    """Whether a signal has asked to stop."""

    def __init__(self) -> None:
        self.given = False

    def listen(self) -> None:
        """Treat the first signal from here on as a request."""
        for number in _SIGNALS:
            signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.given = True
        for one in _SIGNALS:
            signal.signal(one, _interrupt)


@contextmanager
def stop_wish() -> Iterator[StopWish]:
    """Handle both signals inside the block, and restore the previous handlers."""
    wish = StopWish()
    kept = [signal.signal(number, _interrupt) for number in _SIGNALS]
    try:
        yield wish
    finally:
        for number, handler in zip(_SIGNALS, kept, strict=True):
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
