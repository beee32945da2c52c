"""The last lines of this process's log, kept in memory for `headwater logs`."""

import logging
from collections import deque
from typing import Final, NamedTuple

from headwater.client.requests import LOG_LINES_MAX, LogLine
from headwater.runtime.logs import TextLogLines
from headwater.spark.log_context import Voice, speaking

LINE_CHARS_MAX: Final = 2_000


class _Said(NamedTuple):
    """A line, and who said it."""

    voice: Voice | None
    at_us: int
    level: str
    text: str


class _RecentLines(logging.Handler):
    """Keeps lines as text: a log record with an exception would keep alive all that its traceback refers to."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.setFormatter(TextLogLines())
        self.said: deque[_Said] = deque(maxlen=LOG_LINES_MAX)

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)[:LINE_CHARS_MAX]
        self.said.append(_Said(speaking(), int(record.created * 1e6), record.levelname.lower(), text))


_recent: Final = _RecentLines()


def remember_log() -> None:
    """Begin to keep the last lines; idempotent."""
    ours = logging.getLogger("headwater")
    if _recent not in ours.handlers:
        ours.addHandler(_recent)
        ours.setLevel(logging.INFO)


def recent_lines(node: str, voice: Voice, count: int) -> list[LogLine]:
    """Return the last lines of a node, including those that no particular node of the process has logged."""
    said = [one for one in list(_recent.said) if one.voice in (voice, None)]
    return [LogLine(node, one.at_us, one.level, one.text) for one in said[-count:]]
