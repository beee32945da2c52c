"""The two queries of the DEBS 2015 challenge, from their text: everything is computed anew for every trip."""

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from statistics import median
from typing import Any

Row = dict[str, Any]

HALF_HOUR = timedelta(minutes=30)
QUARTER = timedelta(minutes=15)


@dataclass
class Trip:
    """What a line says, and when it counts as ended."""

    taxi: str
    pickup: datetime
    dropoff: datetime
    start: str
    end: str
    cents: int
    counts_at: datetime


def cell(longitude: float, latitude: float, size_m: int) -> str | None:
    """Name the cell of a place, or None if it is outside of the grid of 150 by 150 km."""
    x = math.floor((longitude + 74.913585) / (0.005986 * size_m / 500) + 0.5) + 1
    y = math.floor((41.474937 - latitude) / (0.004491556 * size_m / 500) + 0.5) + 1
    side = 150_000 // size_m
    return f"{x}.{y}" if 1 <= x <= side and 1 <= y <= side else None


def trips_of(lines: Sequence[str], size_m: int) -> list[Trip]:
    """Read lines; trips with an end outside of the grid are left out."""
    trips = []
    for line in lines:
        fields = line.split(",")
        start = cell(float(fields[6]), float(fields[7]), size_m)
        end = cell(float(fields[8]), float(fields[9]), size_m)
        if start is not None and end is not None:
            pickup, dropoff = (datetime.fromisoformat(field) for field in fields[2:4])
            cents = int((Fraction(fields[11]) + Fraction(fields[14])) * 100)
            trips.append(Trip(fields[0], pickup, dropoff, start, end, cents, dropoff))
    return trips


def windows(trips: Sequence[Trip]) -> Iterator[tuple[Trip, list[Trip], bool]]:
    """Give each trip with all that count when it has arrived, oldest first, and whether the input was started anew."""
    seen: list[Trip] = []
    for trip in trips:
        anew = not seen or trip.dropoff <= seen[-1].counts_at - HALF_HOUR
        if anew:
            seen.clear()
        else:
            trip.counts_at = max(trip.dropoff, seen[-1].counts_at)
        while seen and seen[0].counts_at <= trip.counts_at - HALF_HOUR:
            del seen[0]
        seen.append(trip)
        yield trip, seen, anew


def frequent_routes(seen: Sequence[Trip]) -> list[Any]:
    """Return start and end of the ten most frequent routes, of equal ones the most recent first."""
    counts = Counter((trip.start, trip.end) for trip in seen)
    latest = {(trip.start, trip.end): number for number, trip in enumerate(seen)}
    best = sorted(counts, key=lambda route: (-counts[route], -latest[route]))[:10]
    cells: list[Any] = [one for route in best for one in route]
    return cells + [None] * (20 - len(cells))


def profitable_areas(seen: Sequence[Trip]) -> list[Any]:
    """Return cell, empty taxis, profit and profitability of the ten most profitable areas, ranked exactly."""
    now = seen[-1].counts_at
    last_of = {trip.taxi: trip for trip in seen}
    empty = Counter(trip.end for trip in last_of.values())
    earned: dict[str, list[int]] = defaultdict(list)
    latest: dict[str, tuple[int, str]] = {}
    for number, trip in enumerate(seen):
        latest[trip.start] = (number, "began")
        latest[trip.end] = (number, "ended")  # later than "began", also in the alphabet
        if trip.counts_at > now - QUARTER:
            earned[trip.start].append(trip.cents)
    ranked = []
    for area in earned.keys() & empty.keys():
        profit = Fraction(median(earned[area])) / 100
        ranked.append((profit / empty[area], latest[area], area, empty[area], profit))
    ranked.sort(reverse=True)
    figures = [
        figure
        for profitability, _, area, taxis, profit in ranked[:10]
        for figure in (area, taxis, float(profit), float(profitability))
    ]
    return figures + [None] * (40 - len(figures))


Query = Callable[[Sequence[Trip]], list[Any]]


def changes(lines: Sequence[str], size_m: int, query: Query) -> list[list[Any]]:
    """Return the times of every trip that changes the answer, with the new answer."""
    rows = []
    shown: list[Any] = []
    for trip, seen, anew in windows(trips_of(lines, size_m)):
        answer = query(seen)
        if answer != ([None] * len(answer) if anew else shown):
            rows.append([trip.pickup, trip.dropoff, *answer])
        shown = answer
    return rows


def final(lines: Sequence[str], size_m: int, query: Query) -> list[Any]:
    """Return the answer when trips that are in order have all arrived."""
    trips = trips_of(lines, size_m)
    return query([trip for trip in trips if trip.dropoff > trips[-1].dropoff - HALF_HOUR])


def unruly_lines(count: int, seed: int) -> list[str]:
    """Make trips among few places and taxis, so that much is equal; ends are out of order, and start over twice."""
    chance = random.Random(seed)
    lines = []
    now = datetime.fromisoformat("2013-01-01 00:00:00")
    for number in range(count):
        now += timedelta(seconds=chance.choice([0, 0, 20, 60]))
        if number in (count // 3, count // 2):
            now -= timedelta(minutes=chance.choice([30, 45, 600]))
        dropoff = now - timedelta(seconds=chance.choice([0, 0, 0, 90, 400]))
        pickup = dropoff - timedelta(minutes=chance.randrange(20))
        places = [chance.randrange(4) for _ in range(4)]
        longitudes = [-74.0 + 0.0031 * places[0], -74.0 + 0.0031 * places[1]]
        latitudes = [40.7 + 0.0023 * places[2] * (chance.random() > 0.02), 40.7 + 0.0023 * places[3]]
        fields: list[Any] = [f"TAXI{chance.randrange(25)}", "DRIVER", pickup, dropoff, 60, 1.0]
        fields += [longitudes[0], latitudes[0], longitudes[1], latitudes[1] if chance.random() > 0.05 else 0.0]
        fields += ["CSH", f"{chance.randrange(5, 9)}.50", "0.50", "0.50", f"{chance.randrange(3)}.00", "0.00", "9.00"]
        lines.append(",".join(map(str, fields)))
    return lines
