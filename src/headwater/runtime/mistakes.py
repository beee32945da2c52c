"""Unexpected exceptions in this node: each is counted, and each kind is logged once, with its traceback.

A peer may be able to provoke one as often as it likes, so repeated ones must not fill the log.
"""

import logging
import threading
from traceback import extract_tb
from typing import Final

log = logging.getLogger(__name__)

KINDS_MAX: Final = 100  # distinct kinds to log; the code has not many more places that can fail


class Mistakes:
    """The mistakes of one node."""

    def __init__(self) -> None:
        self.count = 0
        self._told: set[tuple[str, str, int]] = set()
        self._noting = threading.Lock()  # every thread of a node may make one

    def note(self, where: str, mistake: BaseException) -> None:
        """Count a mistake, and log it if it is of a new kind."""
        if self._is_news(where, mistake):
            log.error(
                "%s was not done: a mistake of Headwater's, please report it; all else goes on, and the next ones of "
                "its kind are counted (`headwater nodes`)",
                where,
                exc_info=mistake,
            )
        else:
            log.debug("%s was not done, again: %s", where, mistake)

    def _is_news(self, where: str, mistake: BaseException) -> bool:
        frames = extract_tb(mistake.__traceback__)
        kind = (where, type(mistake).__name__, (frames[-1].lineno or 0) if frames else 0)
        with self._noting:
            self.count += 1
            if kind in self._told or len(self._told) >= KINDS_MAX:
                return False
            self._told.add(kind)
            return True

    def notes(self) -> tuple[str, ...]:
        """Return the notes for operators."""
        if not self.count:
            return ()
        return (f"{self.count:,} things were not done, by a mistake of Headwater's: see its log",)
