"""Made-up taxi trips, distributed as those of RIoTBench's TAXI sample (New York, January 2013).

The sample: 1,000 trips in 274 minutes, of 782 of 9,302 taxis, one of which (surely a placeholder) made 61 of them.
Fares follow distance (2.50 dollars, and as much a mile), cards are half of the payments and alone have tips, tolls come
with distance, and two in a hundred trips have no coordinates.
"""

from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..chance import normal, uniform, whole
from .datasets import TAXI
from .identities import hexadecimal_ids, made_ids, strangers
from .made_city import who_sends

Numbers = npt.NDArray[np.float64]

BEGIN_MS: Final = 1_358_101_800_000
TRIPS_PER_HOUR: Final = 219
BUSIEST_SHARE: Final = 0.06
DRIVERS_PER_TAXI: Final = 3
SKEW: Final = 2.5  # of the taxis' shares: 1,000 trips are made by about 780 of them
CLOCK_AHEAD_S: Final = 19_800  # the sample's local times are ahead of its timestamps

_SHARES: Final = np.array([0, 0.01, 0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99, 1.0])
_MILES: Final = (0, 0, 0.59, 0.83, 1.47, 2.9, 5.89, 10.57, 16.68, 19.53, 22.3)
_MINUTES: Final = (0, 0, 2, 3, 6, 10, 16, 23, 27, 33, 51)
_TIME_WITHOUT_DISTANCE: Final = 0.3  # how far a trip's share among durations may be from that among distances
_EXTRA_DOLLARS: Final = (-6.25, -3.0, 0, 0.3, 0.5, 1.05, 1.95, 3.5, 6.0, 12.0, 60.0)  # over 2.50 and 2.50 a mile


def made_taxi(first: int, count: int, sensors: int, seed: int) -> dict[str, pa.Array]:
    """Return the fields of messages `first` to `first + count - 1`."""
    numbers = np.arange(first, first + count)
    taxi = who_sends(numbers, sensors, strangers(TAXI, sensors), seed, SKEW)
    taxi = np.where(uniform(numbers, seed, 71) < BUSIEST_SHARE, 0, taxi)
    driver = taxi * DRIVERS_PER_TAXI + whole(numbers, DRIVERS_PER_TAXI, seed, 72)
    arrival_s = BEGIN_MS // 1000 + numbers * 60 // TRIPS_PER_HOUR * 60
    length = uniform(numbers, seed, 73)
    miles = np.round(np.interp(length, _SHARES, _MILES), 2)
    duration = _reflected(length + _TIME_WITHOUT_DISTANCE * (uniform(numbers, seed, 75) - 0.5))
    seconds = np.round(np.interp(duration, _SHARES, _MINUTES)).astype(np.int64) * 60
    lost = uniform(numbers, seed, 74) < 0.02
    return {
        "timestamp": pa.array(arrival_s * 1000),
        "taxi_identifier": made_ids(TAXI, sensors, seed).take(taxi),
        "hack_license": _licences(sensors, seed).take(driver),
        "pickup_datetime": _local_time(arrival_s - seconds),
        "trip_time_in_secs": pa.array(seconds),
        "trip_distance": _fixed(miles, 2),
        "pickup_longitude": _coordinate(numbers, -73.978, 0.03, lost, seed, 81),
        "pickup_latitude": _coordinate(numbers, 40.750, 0.03, lost, seed, 82),
        "dropoff_longitude": _coordinate(numbers, -73.974, 0.04, lost, seed, 83),
        "dropoff_latitude": _coordinate(numbers, 40.752, 0.04, lost, seed, 84),
        **_bill(numbers, miles, seed),
    }


def _bill(numbers: npt.NDArray[np.int64], miles: Numbers, seed: int) -> dict[str, pa.Array]:
    """Return what the trips cost, in dollars."""
    extra = np.interp(uniform(numbers, seed, 91), _SHARES, _EXTRA_DOLLARS)
    fare = np.maximum(2.5, np.round((2.5 + 2.5 * miles + extra) * 2) / 2)
    by_card = uniform(numbers, seed, 92) < 0.489
    surcharge = np.where(uniform(numbers, seed, 93) < 0.95, 0.5, 0.0)
    tax = np.where(uniform(numbers, seed, 94) < 0.997, 0.5, 0.0)
    tip = np.where(by_card, np.round(fare * np.clip(0.2 + 0.08 * normal(numbers, seed, 95), 0.0, 0.5), 1), 0.0)
    tolls = np.where(uniform(numbers, seed, 96) < np.interp(miles, [4, 9, 25], [0.003, 0.4, 0.4]), 4.8, 0.0)
    return {
        "payment_type": pa.array(("CSH", "CRD")).take(pa.array(by_card.astype(np.int8))),
        "fare_amount": _fixed(fare, 2),
        "surcharge": _fixed(surcharge, 2),
        "mta_tax": _fixed(tax, 2),
        "tip_amount": _fixed(tip, 2),
        "tolls_amount": _fixed(tolls, 2),
        "total_amount": _fixed(fare + surcharge + tax + tip + tolls, 2),
    }


@lru_cache(maxsize=4)
def _licences(sensors: int, seed: int) -> pa.Array:
    return hexadecimal_ids((sensors + strangers(TAXI, sensors)) * DRIVERS_PER_TAXI, seed, salt=101)


def _reflected(shares: Numbers) -> Numbers:
    """Bring shares back to 0..1 at whose ends they went out; what was evenly distributed stays so."""
    inside: Numbers = 1.0 - np.abs(1.0 - np.abs(shares))
    return inside


def _coordinate(
    numbers: npt.NDArray[np.int64], middle: float, spread: float, lost: npt.NDArray[np.bool_], seed: int, salt: int
) -> pa.Array:
    degrees = np.clip(middle + spread * normal(numbers, seed, salt), middle - 0.2, middle + 0.2)
    return _fixed(np.where(lost, 0.0, degrees), 6)


def _local_time(seconds: npt.NDArray[np.int64]) -> pa.Array:
    return pc.strftime(pa.array(seconds + CLOCK_AHEAD_S).cast(pa.timestamp("s")), "%Y-%m-%d %H:%M:%S")


def _fixed(values: Numbers, decimals: int) -> pa.Array:
    """Write numbers with so many decimals, zeros and all."""
    scaled = np.round(values * 10**decimals) / 10**decimals
    return pa.array(scaled).cast(pa.decimal128(20, decimals)).cast(pa.string())
