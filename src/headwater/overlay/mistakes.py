"""Contain a bug of ours to the timer, message, entry or app in which it raised, and report it as an effect.

The others go on. The driver logs and counts the mistake; simulations and tests fail on it. What was half done is not
rolled back: requests are retransmitted until they are answered, and stored data is checked when it is read.
"""

from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple


class NoteMistake(NamedTuple):
    """Take note that a part of a machine raised: a bug of ours."""

    where: str  # the kind of message, or the name of a timer
    mistake: Exception


class Apart:
    """Turns an exception in its block into a NoteMistake: `with Apart("deploy", emit): ...`."""

    __slots__ = ("_emit", "_where", "failed")

    def __init__(self, where: str, emit: Callable[[NoteMistake], None]) -> None:
        self._where, self._emit = where, emit
        self.failed = False

    def __enter__(self) -> "Apart":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, mistake: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Report and suppress an Exception; KeyboardInterrupt and SystemExit pass."""
        self.failed = isinstance(mistake, Exception)
        if isinstance(mistake, Exception):
            self._emit(NoteMistake(self._where, mistake))
        return self.failed
