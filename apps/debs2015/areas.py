"""How profitable areas are, as taxi trips arrive one by one.

An area's profit is the median of what the trips earned that began there and ended in the last 15 minutes. A taxi is
empty where it was last left, for 30 minutes or until its next trip is known. Profitability is profit by empty taxis:
an area without either has none. Of equally profitable areas the one comes first that a trip touched last; of the two
that a trip touches, the one where it ended.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from .ranking import TOP, Entry, Ranking
from .trips import Numbers

EMPTY_S: Final = 30 * 60
PROFIT_S: Final = 15 * 60

KEPT: Final = np.dtype([("ended", "i8"), ("taxi", "i8"), ("start", "i4"), ("end", "i4"), ("earned", "i4")])
Trips = npt.NDArray[np.void]  # of KEPT, in order of their ends

CELL, EMPTY, PROFIT = 2, 3, 4  # what is where in the entry of an area, behind its profitability and latest touch


@dataclass
class Area:
    """An area that changes: what its trips earned, its empty taxis, and the latest touch."""

    earned: list[int]  # cents, sorted
    empty: int
    touched: int

    def entry(self, cell: int) -> Entry | None:
        """Return how it ranks, or None if it does not."""
        if not self.earned or not self.empty:
            return None
        half = len(self.earned) // 2
        profit = (self.earned[half] + self.earned[~half]) / 2
        return profit / self.empty, self.touched, cell, self.empty, profit


class Areas:
    """The areas between two trips: those that are to change, and the best of the others.

    Areas that none of the trips to come touches keep their figures, so that of all of them only the best ten matter;
    these are found in whole arrays.
    """

    def __init__(self, trips: Trips, old: int) -> None:
        """Know the first `old` trips, and which areas the others will touch."""
        codes, self.cells = pd.factorize(np.stack((trips["start"], trips["end"]), axis=1).ravel())
        self._start, self._end = codes[::2], codes[1::2]
        self._taxi, taxis = pd.factorize(np.ascontiguousarray(trips["taxi"]))
        self._earned = trips["earned"]
        ended = trips["ended"]
        self._arrived = old
        self._paid = int(np.searchsorted(ended[:old], ended[old - 1] - PROFIT_S, side="right")) if old else 0
        self._left = 0
        self._paid_by = np.searchsorted(ended, ended[old:] - PROFIT_S, side="right").tolist()
        self._left_by = np.searchsorted(ended, ended[old:] - EMPTY_S, side="right").tolist()
        self._last = np.full(len(taxis), -1)  # trip of each taxi
        self._last[self._taxi[:old]] = np.arange(old)  # of equal indices the last one stays
        self._areas: dict[int, Area] = {}
        self.ranking = self._ranked(codes[: 2 * old])

    def arrive(self, number: int) -> None:
        """Let the next trip arrive, the first one being number 0, and those go that are too old by then."""
        changed = [*self._forget_profits(self._paid_by[number]), *self._forget_taxis(self._left_by[number])]
        trip = self._arrived + number
        taxi, start, end = self._taxi[trip], int(self._start[trip]), int(self._end[trip])
        before = self._last[taxi]
        if before >= self._left:
            changed.append(self._drive_off(before))
        self._last[taxi] = trip
        insort(self._areas[start].earned, int(self._earned[trip]))
        self._areas[end].empty += 1
        self._areas[start].touched = 2 * trip
        self._areas[end].touched = 2 * trip + 1
        for cell in (*changed, start, end):
            self.ranking.put(cell, self._areas[cell].entry(cell))

    def _forget_profits(self, until: int) -> Iterator[int]:
        for trip in range(self._paid, until):
            cell = int(self._start[trip])
            earned = self._areas[cell].earned
            del earned[bisect_left(earned, self._earned[trip])]
            yield cell
        self._paid = until

    def _forget_taxis(self, until: int) -> Iterator[int]:
        for trip in range(self._left, until):
            if self._last[self._taxi[trip]] == trip:
                yield self._drive_off(trip)
        self._left = until

    def _drive_off(self, trip: int) -> int:
        cell = int(self._end[trip])
        self._areas[cell].empty -= 1
        return cell

    def _ranked(self, touches: Numbers) -> Ranking:
        """Work out the figures of all areas, and take those that change or are the best of the others."""
        old = self._arrived
        last_touch = np.zeros(len(self.cells), np.int64)
        last_touch[touches] = np.arange(len(touches))
        waiting = self._last[self._taxi[:old]] == np.arange(old)
        empty = np.bincount(self._end[:old][waiting], minlength=len(self.cells))
        earned, begins, counts = _sorted_by_area(
            self._start[self._paid : old], self._earned[self._paid : old], len(empty)
        )
        middle = np.stack((begins + (counts - 1) // 2, begins + counts // 2))
        ranks = (counts > 0) & (empty > 0)
        profit = earned[middle[:, ranks]].mean(axis=0)
        profitability = np.zeros(len(empty))
        profitability[ranks] = profit / empty[ranks]

        changing = self._changing()
        others = ranks.copy()
        others[changing] = False
        candidates = np.flatnonzero(others)
        best = candidates[np.lexsort((last_touch[candidates], profitability[candidates]))[-TOP:]]
        for cell in (*changing.tolist(), *best.tolist()):
            begin = begins[cell]
            own = earned[begin : begin + counts[cell]].tolist()
            self._areas[cell] = Area(own, int(empty[cell]), int(last_touch[cell]))
        entries = {cell: area.entry(cell) for cell, area in self._areas.items()}
        return Ranking({cell: entry for cell, entry in entries.items() if entry is not None})

    def _changing(self) -> Numbers:
        """Return the areas that the trips to come touch, by arriving or by making others go."""
        old = self._arrived
        before = self._last[self._taxi[old:]]
        changing: Numbers = np.unique(
            np.concatenate(
                (
                    self._start[old:],
                    self._end[old:],
                    self._start[self._paid : self._paid_by[-1]],
                    self._end[: self._left_by[-1]],
                    self._end[before[before >= 0]],
                )
            )
        )
        return changing


def _sorted_by_area(areas: Numbers, earned: Numbers, count: int) -> tuple[Numbers, Numbers, Numbers]:
    """Return what trips earned, sorted area by area, with where the part of each area begins and how long it is."""
    in_order = np.sort((areas.astype(np.int64) << 32) + earned)  # one sort for both: earnings are small
    counts = np.bincount(areas, minlength=count)
    begins = np.cumsum(counts) - counts
    return in_order - (np.repeat(np.arange(count), counts) << 32), begins, counts


def changes(trips: Trips, old: int) -> Iterator[tuple[int, list[Entry]]]:
    """Let the trips from the old-th on arrive one by one; yield which of them change what is told, and the new best."""
    areas = Areas(trips, old)
    best = areas.ranking.best()
    for number in range(len(trips) - old):
        areas.arrive(number)
        before, best = best, areas.ranking.best()
        if best != before and [entry[CELL:] for entry in best] != [entry[CELL:] for entry in before]:
            yield number, [(int(areas.cells[entry[CELL]]), entry[EMPTY], entry[PROFIT], entry[0]) for entry in best]
