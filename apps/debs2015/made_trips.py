"""Made taxi trips, with the statistics of the real ones that ended in 2013 from 0:35 to 0:56.

Of those, and so of these: 270 end in a minute, 99.3% of them at its full minute (one of the two makers of taximeters
tells no seconds); pick-ups lie along Manhattan, the busiest of the cells of 500 m having 2% of them; half of the trips
are shorter than 11 minutes and 2.1 miles, and the two go together; 1.8% have no place (0, 0) for an end or both; 40%
are paid by card, with a tip of a fifth; some 4,600 taxis take turns, each ending a trip every 9 to 26 minutes.
"""

from dataclasses import dataclass
from functools import lru_cache
from hashlib import md5
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..chance import normal, uniform, whole
from .trips import Numbers

Floats = npt.NDArray[np.float64]

BEGIN_S: Final = 1_356_998_400  # 2013-01-01 00:00:00, as the taxis' clocks say
PER_MINUTE: Final = 270
WITH_SECONDS: Final = 2  # of the trips of a minute: 0.7%
SHIFT: Final = 2_304  # taxis that take turns in an order drawn anew each time
SHIFTS: Final = 2
TAXIS: Final = SHIFT * SHIFTS

CENTRE: Final = (-73.9795, 40.7495)  # of the pick-ups
AVENUES: Final = np.radians(29)  # east of north: the way Manhattan lies
METRES_EAST: Final = 84_300.0  # of a degree of longitude there
METRES_NORTH: Final = 111_200.0
METRES_IN_MILE: Final = 1_609.0
DETOUR: Final = 1.37  # how much longer the way is than the line


@dataclass(frozen=True)
class TripLines:
    """Makes the lines of trips, in order of drop-off."""

    seed: int = 1

    def __call__(self, first: int, count: int) -> pa.RecordBatch:
        """Make rows `first` to `first + count - 1`."""
        rows = np.arange(first, first + count)
        seed = self.seed
        miles, seconds = _lengths(rows, seed)
        dropoff = _dropoffs(rows, seed)
        full_minute = dropoff % 60 == 0
        seconds = np.where(full_minute, seconds // 60 * 60, seconds)
        taxi = _taxis_in_turn(rows, seed)
        medallions, licences = _taxis()
        places = _places(rows, seed, miles)
        columns = [
            medallions.take(pa.array(taxi)),
            licences.take(pa.array(taxi)),
            _times(dropoff - seconds),
            _times(dropoff),
            pc.cast(pa.array(seconds), pa.string()),
            _decimals(miles, 2),
            *(_decimals(place, 6) for place in places),
            *_payments(rows, seed, miles, seconds),
        ]
        return pa.record_batch([pc.binary_join_element_wise(*columns, ",")], names=["line"])


def _taxis_in_turn(rows: Numbers, seed: int) -> Numbers:
    """Return which taxi each trip is of: shift by shift, every taxi of it once, so that few trips of one overlap."""
    round_, turn = np.divmod(rows, SHIFT)
    step = 6 * whole(round_, SHIFT // 6, seed, 1) + 1  # has no factor in common with 2,304, which has 2 and 3 only
    taxis: Numbers = round_ % SHIFTS * SHIFT + (turn * step + whole(round_, SHIFT, seed, 2)) % SHIFT
    return taxis


def _dropoffs(rows: Numbers, seed: int) -> Numbers:
    """Return when trips end: at the full minute, but the last few of a minute some seconds later, in order."""
    minute, place = np.divmod(rows, PER_MINUTE)
    late = place - (PER_MINUTE - WITH_SECONDS)
    step = 59 // WITH_SECONDS
    seconds = 1 + late * step + whole(rows, step, seed, 20)
    return BEGIN_S + minute * 60 + np.where(late >= 0, seconds, 0)


def _lengths(rows: Numbers, seed: int) -> tuple[Floats, Numbers]:
    """Return how far and how long trips are: both log-normal, with a correlation of 0.9."""
    far = normal(rows, seed, 3)
    slow = 0.9 * far + np.sqrt(1 - 0.9**2) * normal(rows, seed, 4)
    miles = np.round(np.clip(2.11 * np.exp(0.84 * far), 0.02, 31.0), 2)
    seconds = np.clip(690 * np.exp(0.64 * slow), 60, 5_400).astype(np.int64)  # a minute is cut, half of one on average
    nowhere = uniform(rows, seed, 5) < 0.0066  # the meter was switched on and off
    return np.where(nowhere, 0.0, miles), np.where(nowhere, 0, seconds)


def _places(rows: Numbers, seed: int, miles: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the longitudes and latitudes of pick-up and drop-off, of some trips 0."""
    outskirts = uniform(rows, seed, 6) < 0.04
    along = normal(rows, seed, 7) * np.where(outskirts, 4_000.0, 3_000.0)
    across = normal(rows, seed, 8) * np.where(outskirts, 4_000.0, 650.0)
    downtown = normal(rows, seed, 10) * 2_500.0 < along  # the further north it begins, the more likely it goes south
    heading = AVENUES + normal(rows, seed, 9) * 0.35 + np.pi * downtown
    there_and_back = uniform(rows, seed, 21) < 0.02
    line = miles * METRES_IN_MILE / np.where(there_and_back, 10 * DETOUR, DETOUR)
    east = along * np.sin(AVENUES) + across * np.cos(AVENUES)
    north = along * np.cos(AVENUES) - across * np.sin(AVENUES)
    start_known = uniform(rows, seed, 11) >= 0.0160
    end_known = np.where(start_known, uniform(rows, seed, 12) >= 0.0016, uniform(rows, seed, 12) >= 0.92)
    return (
        np.where(start_known, CENTRE[0] + east / METRES_EAST, 0.0),
        np.where(start_known, CENTRE[1] + north / METRES_NORTH, 0.0),
        np.where(end_known, CENTRE[0] + (east + line * np.sin(heading)) / METRES_EAST, 0.0),
        np.where(end_known, CENTRE[1] + (north + line * np.cos(heading)) / METRES_NORTH, 0.0),
    )


def _payments(rows: Numbers, seed: int, miles: Floats, seconds: Numbers) -> list[pa.Array]:
    """Return how trips are paid, then fare, surcharge, tax, tip, tolls and their sum, in cents exactly."""
    chance = uniform(rows, seed, 13)
    by_card = chance < 0.4
    kinds = pa.array(["CRD", "CSH", "UNK"]).take(pa.array(np.where(by_card, 0, np.where(chance < 0.9998, 1, 2))))
    fare = np.maximum(np.rint((1.67 + 2.23 * miles + 0.33 * seconds / 60) * 2) * 50, 250)
    surcharge = np.where(uniform(rows, seed, 14) < 0.9925, 50, 0)
    tax = np.where(uniform(rows, seed, 15) < 0.9977, 50, 0)
    toll_road = (miles > 6) & (uniform(rows, seed, 16) < 0.15)
    tolls = np.where(toll_road, np.where(uniform(rows, seed, 17) < 0.85, 480, 1_025), 0)
    share = np.clip(0.21 + 0.06 * normal(rows, seed, 18), 0.02, 0.6)
    tips = by_card & (uniform(rows, seed, 19) >= 0.055)
    tip = np.where(tips, np.rint(share * (fare + surcharge)), 0)
    amounts = (fare, surcharge, tax, tip, tolls, fare + surcharge + tax + tip + tolls)
    return [kinds, *(_decimals(cents / 100, 2) for cents in amounts)]


def _decimals(values: Floats, places: int) -> pa.Array:
    """Write numbers with so many places."""
    return pa.array(values).cast(pa.decimal128(18, places)).cast(pa.string())


def _times(seconds: Numbers) -> pa.Array:
    return pa.array(seconds).cast(pa.timestamp("s")).cast(pa.string())


@lru_cache(maxsize=1)
def _taxis() -> tuple[pa.Array, pa.Array]:
    """Return the medallion and the driver's licence of every taxi: hashes, as in the challenge."""

    def hashes(kind: str) -> Any:
        return pa.array([md5(f"{kind} {number}".encode()).hexdigest().upper() for number in range(TAXIS)])

    return hashes("medallion"), hashes("licence")
