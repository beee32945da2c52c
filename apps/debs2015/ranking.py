"""What both queries share: a clock made of the trips themselves, and the best ten of what they rank."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import headwater as hw

from .trips import Numbers

TOP: Final = 10
TRIPS_MAX: Final = 200_000  # that are kept, the latest: in New York's busiest half hour there are a tenth of that

Entry = tuple[Any, ...]  # what ranks an item, best last, and what else is told of it; no two entries are equal
Trips = npt.NDArray[np.void]  # records of trips in order, with a field `ended` in seconds
Changes = Callable[[Trips, int], Iterator[tuple[int, list[Entry]]]]


class Ranking:
    """Items in order of their entries."""

    def __init__(self, entries: Mapping[int, Entry]) -> None:
        """Rank these items."""
        self._entries = dict(entries)
        self._order = sorted(entries.values())

    def put(self, item: int, entry: Entry | None) -> None:
        """Give an item another entry, or none."""
        before = self._entries.pop(item, None)
        if before is not None:
            del self._order[bisect_left(self._order, before)]
        if entry is not None:
            self._entries[item] = entry
            insort(self._order, entry)

    def best(self) -> list[Entry]:
        """Return the best ten entries, the best one first."""
        return self._order[: -TOP - 1 : -1]


def arrivals(
    arriving: Trips, state: hw.KeyedState, span_s: int, changes: Changes
) -> tuple[list[int], list[list[Entry]]]:
    """Add trips to those that are kept for their keys; return which of them change the best ten, and the new ones.

    Kept are the trips of the last `span_s` seconds and nothing else: a query's figures follow from them. `changes` gets
    trips in order, and from the how-manieth on they are new.
    """
    changed: list[int] = []
    tops: list[list[Entry]] = []
    for key, rows in state.rows_of_keys():
        kept = np.frombuffer(state.get(key, b""), arriving.dtype)
        clock = int(kept["ended"][-1]) if len(kept) else None
        for spell, times, anew in spells(arriving["ended"][rows], clock, span_s):
            old = kept[:0] if anew else kept
            trips = np.concatenate((old, arriving[rows[spell]]))
            trips["ended"][len(old) :] = times
            for number, top in changes(trips, len(old)):
                changed.append(int(rows[spell][number]))
                tops.append(top)
            gone = np.searchsorted(trips["ended"], times[-1] - span_s, side="right")
            kept = trips[max(gone, len(trips) - TRIPS_MAX) :]
        state.put(key, kept.tobytes())
    return changed, tops


def spells(times: Numbers, clock: int | None, span_s: int) -> Iterator[tuple[slice, Numbers, bool]]:
    """Cut trips into spells in which time goes on, each with its trips' times and whether it begins anew.

    A trip that ended before the one in front of it counts as ended with that one: a clock does not run backwards. But
    if it ended as long as the whole window before, the input must have been started again (or the one in front of it
    was wrong), and everything begins anew: so a file can be replayed for ever, and one wrong time is soon forgotten.
    """
    start = 0
    while start < len(times):
        rest = times[start:]
        anew = clock is None
        clocks = np.maximum.accumulate(np.concatenate(([rest[0] if clock is None else clock], rest)))
        fallen_back = np.flatnonzero(rest <= clocks[:-1] - span_s)
        end = start + (int(fallen_back[0]) if len(fallen_back) else len(rest))
        if end > start:
            yield slice(start, end), clocks[1 : end - start + 1], anew
        start, clock = end, None


def change_rows(
    trips: pa.RecordBatch, changed: list[int], told: list[list[Any]], nothing: pa.RecordBatch
) -> pa.RecordBatch:
    """Return a row for each change: the times of the trip that made it, then what is told, and nulls for the rest."""
    if not changed:
        return nothing
    times = trips.select(["pickup_datetime", "dropoff_datetime"]).take(pa.array(changed)).to_pylist()
    names = nothing.schema.names[2:]
    rows = [trip | dict(zip(names, row, strict=False)) for trip, row in zip(times, told, strict=True)]
    return pa.RecordBatch.from_pylist(rows, schema=nothing.schema)
