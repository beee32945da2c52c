"""The arithmetic of windows of a fixed size: which panes they are made of, and which windows a pane is part of.

Windows that overlap share work: time is cut wherever a window begins or ends, and what lies between two cuts is a pane.
Every row is in one pane and every window is some panes side by side, so a row is added once however many windows it is
in. Where the slide does not divide the size, two cuts are made in every slide ("paired windows", Krishnamurthy, Wu and
Franklin, SIGMOD 2006): never more, while the greatest common divisor may be a microsecond. A tumbling window is one
pane. The same arithmetic serves rows by time and rows by number.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

Instants = npt.NDArray[np.int64]
Number = TypeVar("Number", int, Instants)

FAR: Final = 1 << 61  # 73,000 years from 1970: sums of two such instants still fit 64 bits


def within_reach(time_us: int) -> int:
    """Return the instant, or the nearest one that can be reckoned with."""
    return max(-FAR, min(time_us, FAR))


@dataclass(frozen=True)
class Panes:
    """Windows of `size` that begin at `offset` and every `slide` before and after."""

    size: int
    slide: int
    offset: int = 0

    @cached_property
    def overlap(self) -> bool:
        """Whether a row can be in several windows."""
        return self.slide < self.size

    @cached_property
    def cut(self) -> int:
        """Where in a slide earlier windows end; 0 if just where others begin."""
        return self.size % self.slide

    @cached_property
    def per_window(self) -> int:
        """How many panes make a window."""
        whole = self.size // self.slide
        return 2 * whole + 1 if self.cut else whole

    def slide_of(self, instant: Number) -> Number:
        """Return the last beginning of a window at or before an instant."""
        return instant - (instant - self.offset) % self.slide

    def pane_of(self, instants: Instants) -> Instants:
        """Return where the pane of each instant begins."""
        past = (instants - self.offset) % self.slide
        return instants - (np.where(past >= self.cut, past - self.cut, past) if self.cut else past)

    def pane_at(self, instant: int) -> int:
        """Return where the pane of one instant begins."""
        past = (instant - self.offset) % self.slide
        return instant - (past - self.cut if past >= self.cut else past)

    def last_end(self, pane: Number) -> Number:
        """Return where the last window ends that a pane is part of."""
        return self.slide_of(pane) + self.size

    def first_end(self, pane: Number) -> Number:
        """Return where the first window ends that a pane is part of."""
        return self.end_after(pane)

    def end_after(self, instant: Number) -> Number:
        """Return the first end of a window after an instant."""
        return self.slide_of(instant - self.size) + self.slide + self.size

    def end_until(self, instant: Number) -> Number:
        """Return the last end of a window at or before an instant."""
        return self.slide_of(instant - self.size) + self.size

    def done_before(self, instant: int) -> int:
        """Return the first pane that is part of a window which ends after an instant: earlier ones are done with."""
        return self.slide_of(instant - self.size) + self.slide

    def panes_of(self, window: int) -> list[int]:
        """Return the panes of the window that begins here."""
        cuts = (0, self.cut) if self.cut else (0,)
        within = (step + cut for step in range(0, self.size, self.slide) for cut in cuts)
        return [window + place for place in within if place < self.size]

    def windows_of(self, panes: Instants, after: int, until: int) -> tuple[npt.NDArray[np.intp], Instants]:
        """Return which windows that end after one instant and until another the panes are part of.

        A pair for each: the index of the pane and where the window begins.
        """
        first = np.maximum(self.first_end(panes), self.end_after(within_reach(after)))
        last = np.minimum(self.last_end(panes), self.end_until(within_reach(until)))
        count = np.maximum((last - first) // self.slide + 1, 0)
        index = np.repeat(np.arange(len(panes)), count)
        nth = np.arange(len(index)) - np.repeat(np.cumsum(count) - count, count)
        return index, first[index] + nth * self.slide - self.size


def runs(*sorted_columns: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Return where runs of equal values begin in columns that are sorted together; each run is one group."""
    length = len(sorted_columns[0])
    changes = np.zeros(length, dtype=np.bool_)
    changes[:1] = True
    for column in sorted_columns:
        changes[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(changes)
