"""Ctrl-C and SIGTERM.

While a node starts, either interrupts. Once it runs, the first is a wish that the watching loop grants, so that the
node stops in order and the summary is told; a second one interrupts. Spark puts its own handler for Ctrl-C in place
when it starts, and cancels the jobs of the pool in it, so the wish has to be listened for after that.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

INTERRUPTED_EXIT: Final = 130  # what a shell expects after Ctrl-C

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class StopWish:
    """Whether somebody asked to stop."""

    def __init__(self) -> None:
        """Begin without a wish."""
        self.given = False

    def listen(self) -> None:
        """From now on the first signal is a wish."""
        for number in _SIGNALS:
            signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.given = True
        for one in _SIGNALS:
            signal.signal(one, _interrupt)


@contextmanager
def stop_wish() -> Iterator[StopWish]:
    """Handle both signals inside the block, and put back what was there before."""
    wish = StopWish()
    kept = [signal.signal(number, _interrupt) for number in _SIGNALS]
    try:
        yield wish
    finally:
        for number, handler in zip(_SIGNALS, kept, strict=True):
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
