"""Results as they come out of an engine: how many, when the last one came, and some of them with their instants.

All engines note their results with this, inside the process where their sink is. It needs nothing but Python, since
each peer lives in an environment of its own.
"""

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def now_us() -> int:
    """Return the wall clock, which feeder and engines share."""
    return time.time_ns() // 1_000


class Recorder:
    """Notes results and keeps some: the first `whole` of them, and then of each `stride` the first."""

    def __init__(self, whole: int, stride: int, tell_first: Callable[[], None]) -> None:
        """Begin with nothing; the first result is told."""
        self._whole, self._stride, self._tell_first = whole, stride, tell_first
        self.batches: list[tuple[int, Any]] = []  # what is kept, by when it came
        self.count = 0
        self.last_us = 0

    def note(self, items: list[Any]) -> None:
        """Note results that have come together."""
        kept = self.came(len(items))
        self.batches.append((self.last_us, items[kept]))

    def came(self, number: int) -> slice:
        """Look at the clock, since so many results have come; return which of them to keep."""
        before, self.count = self.count, self.count + number
        self.last_us = now_us()
        if not before and number:
            self._tell_first()
        if self.count <= self._whole:
            return slice(0, number)
        return slice(-before % self._stride, number, self._stride)

    def write(self, path: Path) -> None:
        """Write all that was noted."""
        write_recording(path, self.count, self.last_us, self.batches)


def told_items(texts: Iterable[str]) -> list[Any]:
    """Return results that were told as texts: an array as its values, anything else as the text that it is."""
    return [json.loads(text) if text.startswith("[") else text for text in texts]


def write_recording(path: Path, count: int, last_us: int, batches: list[tuple[int, list[Any]]]) -> None:
    """Write how many results there were, when the last one came, and those that were kept, with their instants."""
    told = {"count": count, "last_us": last_us, "batches": [batch for batch in batches if batch[1]]}
    path.write_text(json.dumps(told), encoding="utf-8")
