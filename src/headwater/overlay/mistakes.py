"""What a machine could not do, by a mistake of ours: told like anything else, so that nothing else is lost by it.

One timer, message, entry or app is done apart from all others. What fails there is noted, and the others go on; whoever
drives the machine logs and counts it, and simulations and tests fail. What was half done stays so: everything is asked
for again until it is answered, and what is kept is checked when it is read.
"""

from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple


class NoteMistake(NamedTuple):
    """Take note that something was not done, which is our mistake."""

    where: str  # the kind of message, or the name of a timer
    mistake: Exception


class Apart:
    """Does something apart from all else: `with Apart("deploy", emit): ...`."""

    __slots__ = ("_emit", "_where", "failed")

    def __init__(self, where: str, emit: Callable[[NoteMistake], None]) -> None:
        """Note here what fails there."""
        self._where, self._emit = where, emit
        self.failed = False

    def __enter__(self) -> "Apart":
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, mistake: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Note what was raised, if anything was; what ends the process goes on to do so."""
        self.failed = isinstance(mistake, Exception)
        if isinstance(mistake, Exception):
            self._emit(NoteMistake(self._where, mistake))
        return self.failed
