"""Frequent routes: query 1 of the DEBS 2015 Grand Challenge."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import pandas as pd
import pyarrow as pa

import headwater as hw

from .input import OfTrips
from .ranking import TOP, Entry, Ranking, Trips, arrivals, change_rows
from .trips import Grid, Numbers, TripFields, seconds_of

GRID: Final = Grid(side=300, per_500_m=1)
CELLS: Final = GRID.side**2
WINDOW_S: Final = 30 * 60
KEPT: Final = np.dtype([("ended", "i8"), ("route", "i8")])
ROUTE: Final = 2  # its place in an entry, behind the number of its trips and its latest trip

READ: Final = TripFields(
    (
        "pickup_datetime",
        "dropoff_datetime",
        "pickup_longitude",
        "pickup_latitude",
        "dropoff_longitude",
        "dropoff_latitude",
    )
)
TRIP: Final = pa.schema(
    [
        ("city", pa.string()),
        ("pickup_datetime", pa.timestamp("us")),
        ("dropoff_datetime", pa.timestamp("us")),
        ("route", pa.int64()),
    ]
)
CHANGE: Final = pa.schema(
    [
        ("pickup_datetime", pa.timestamp("us")),
        ("dropoff_datetime", pa.timestamp("us")),
        *((f"{end}_{rank}", pa.string()) for rank in range(1, TOP + 1) for end in ("start", "end")),
    ]
)
NO_CHANGE: Final = pa.RecordBatch.from_pylist([], schema=CHANGE)


@dataclass(frozen=True, kw_only=True)
class FrequentRoutes(OfTrips, hw.App):
    """DEBS 2015, query 1: the ten routes with the most taxi trips in the last 30 minutes, whenever they change."""

    name: ClassVar[str] = "debs2015.frequent_routes"

    def build(self, rows: hw.Stream) -> hw.Stream:
        """Read the trips, find their routes, and rank these."""
        return (
            rows.map(READ, schema=READ.schema, on_error="dead-letter", name="read")
            .flat_map(located, schema=TRIP, name="routes")
            .key_by("city")
            .stateful(top_routes, schema=CHANGE, name="top-ten")
        )


def located(trips: pa.RecordBatch) -> pa.RecordBatch:
    """Return the route of every trip that begins and ends on the grid: its two cells in one number."""
    starts, start_inside = GRID.cells(trips["pickup_longitude"], trips["pickup_latitude"])
    ends, end_inside = GRID.cells(trips["dropoff_longitude"], trips["dropoff_latitude"])
    columns = [
        pa.repeat("New York", len(trips)),  # all trips have one key: they meet in one ranking, in order
        trips["pickup_datetime"],
        trips["dropoff_datetime"],
        pa.array(starts * CELLS + ends),
    ]
    return pa.record_batch(columns, schema=TRIP).filter(pa.array(start_inside & end_inside))


def top_routes(trips: pa.RecordBatch, state: hw.KeyedState) -> pa.RecordBatch:
    """Return a row for every trip that changes the ten most frequent routes of its city."""
    arriving = np.empty(len(trips), KEPT)
    arriving["ended"] = seconds_of(trips["dropoff_datetime"])
    arriving["route"] = trips["route"].to_numpy()
    changed, tops = arrivals(arriving, state, WINDOW_S, changes)
    told = [[GRID.name(cell) for route in top for cell in route] for top in tops]
    return change_rows(trips, changed, told, NO_CHANGE)


def changes(trips: Trips, old: int) -> Iterator[tuple[int, list[Entry]]]:
    """Let the trips from the old-th on arrive one by one; yield which of them change the top ten, and the new ones.

    Routes that no trip of these joins or leaves keep their places, so that of all of them only the best ten matter.
    """
    codes, routes = pd.factorize(np.ascontiguousarray(trips["route"]))
    gone = np.searchsorted(trips["ended"], trips["ended"][old:] - WINDOW_S, side="right")  # by the time each arrives
    leaving, arriving = codes[: gone[-1]], codes[old:]
    counts = np.bincount(codes[:old], minlength=len(routes))
    latest = np.zeros(len(routes), np.int64)
    latest[codes[:old]] = np.arange(old)  # of equal indices the last one stays

    touched = np.unique(np.concatenate((leaving, arriving)))
    contenders = np.union1d(touched, _best(counts, latest, without=touched))
    count_of = dict(zip(contenders.tolist(), counts[contenders].tolist(), strict=True))
    latest_of = dict(zip(contenders.tolist(), latest[contenders].tolist(), strict=True))
    ranking = Ranking({route: (count, latest_of[route], route) for route, count in count_of.items() if count})

    to_leave, left_before = leaving.tolist(), 0
    best = ranking.best()
    for number, (route, left) in enumerate(zip(arriving.tolist(), gone.tolist(), strict=True)):
        for leaver in to_leave[left_before:left]:
            count = count_of[leaver] = count_of[leaver] - 1
            ranking.put(leaver, (count, latest_of[leaver], leaver) if count else None)
        left_before = left
        count_of[route] += 1
        latest_of[route] = old + number
        ranking.put(route, (count_of[route], latest_of[route], route))
        before, best = best, ranking.best()
        if best != before and [entry[ROUTE] for entry in best] != [entry[ROUTE] for entry in before]:
            yield number, [divmod(int(routes[entry[ROUTE]]), CELLS) for entry in best]


def _best(counts: Numbers, latest: Numbers, without: Numbers) -> Numbers:
    """Return the best ten routes besides some: those with most trips, of equal ones those with the latest trip."""
    score = (counts << 32) + latest  # there are fewer than 2**32 trips in 30 minutes
    score[without] = -1
    best: Numbers = np.argpartition(score, -TOP)[-TOP:] if len(score) > TOP else np.arange(len(score))
    return best
