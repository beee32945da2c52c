"""What this node could not do by a mistake of ours: all of it counted, each kind logged once with its trace.

A neighbour may have found words that bring it about as often as it likes, so a log must not fill with it.
"""

import logging
import threading
from traceback import extract_tb
from typing import Final

log = logging.getLogger(__name__)

KINDS_MAX: Final = 100  # that are told apart: there are not many more places in which something can fail


class Mistakes:
    """The mistakes of one node."""

    def __init__(self) -> None:
        """Begin without any."""
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
        """Return what operators have to know."""
        if not self.count:
            return ()
        return (f"{self.count:,} things were not done, by a mistake of Headwater's: see its log",)
