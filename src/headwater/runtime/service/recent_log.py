"""The last lines of this process's log, in memory, for those who ask for them."""

import logging
from collections import deque
from typing import Final

from headwater.runtime.logs import TextLines
from headwater.runtime.service.requests import LOG_LINES_MAX, LogLine
from headwater.runtime.voices import Voice, speaking

LINE_CHARS_MAX: Final = 2_000


class _RecentLines(logging.Handler):
    """Keeps the last lines."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.said: deque[tuple[Voice | None, logging.LogRecord]] = deque(maxlen=LOG_LINES_MAX)

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append((speaking(), record))


_recent: Final = _RecentLines()


def remember_log() -> None:
    """Keep the last lines from now on."""
    ours = logging.getLogger("headwater")
    if _recent not in ours.handlers:
        ours.addHandler(_recent)
        ours.setLevel(logging.INFO)


def recent_lines(node: str, voice: Voice, count: int) -> list[LogLine]:
    """Return the last lines of a node, and those of nobody in particular."""
    form = TextLines()
    said = [record for speaker, record in list(_recent.said) if speaker in (voice, None)]
    return [
        LogLine(node, int(record.created * 1e6), record.levelname.lower(), form.format(record)[:LINE_CHARS_MAX])
        for record in said[-count:]
    ]
