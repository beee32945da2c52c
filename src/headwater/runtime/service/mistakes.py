"""Unexpected exceptions in this node: each is counted, and each kind is logged once, with its traceback.

A peer may be able to provoke one as often as it likes, so repeated ones must not fill the log.
"""

import logging
from traceback import extract_tb
from typing import Final

log = logging.getLogger(__name__)

KINDS_MAX: Final = 100  # distinct kinds to log; the code has not many more places that can fail


class Mistakes:
    """The mistakes of one node."""

    def __init__(self) -> None:
        self.count = 0
        self._told: set[tuple[str, str, int]] = set()

    def note(self, where: str, mistake: Exception) -> None:
        """Count a mistake, and log it if it is of a new kind."""
        self.count += 1
        frames = extract_tb(mistake.__traceback__)
        kind = (where, type(mistake).__name__, (frames[-1].lineno or 0) if frames else 0)
        if kind in self._told or len(self._told) >= KINDS_MAX:
            log.debug("%s was not done, again: %s", where, mistake)
            return
        self._told.add(kind)
        log.error(
            "%s was not done: a mistake of Headwater's, please report it; all else goes on, and the next ones of its "
            "kind are counted (`headwater nodes`)",
            where,
            exc_info=mistake,
        )

    def notes(self) -> tuple[str, ...]:
        """Return the notes for operators."""
        if not self.count:
            return ()
        return (f"{self.count:,} things were not done, by a mistake of Headwater's: see its log",)
