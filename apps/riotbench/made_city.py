"""Made-up readings of city sensors, distributed as those of RIoTBench's CITY sample (Sense Your City, 2015).

The sample: 1,000 messages in a minute, from 788 of 2,162 sensors at 88 places. Its five observables are drawn by the
sample's quantiles and rank correlations; most of the spread is between sensors, little of it within one. The lamps of
half of the sensors are dark; dust and air quality have long tails, which the range filters catch.
"""

from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..chance import normal, uniform, whole
from .datasets import CITY
from .identities import SENSORS_PER_BOARD, STRANGER_SHARE, made_ids, strangers

Numbers = npt.NDArray[np.float64]

BEGIN_MS: Final = 1_422_748_800_000  # the first of February 2015
MESSAGES_PER_MINUTE: Final = 1000

_SHARES: Final = np.array([0, 0.01, 0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99, 0.999, 1.0])
_QUANTILES: Final[dict[str, tuple[float, ...]]] = {
    "temperature": (-8.1, -5.1, 2.9, 5.2, 11.4, 23.9, 28.4, 32.2, 34.4, 37.7, 39.5, 40.3),
    "humidity": (12.0, 17.4, 23.0, 30.3, 38.5, 48.0, 60.5, 70.4, 74.2, 86.6, 97.0, 99.9),
    "light": (0, 0, 0, 0, 0, 0, 322, 1129, 1949, 4574, 7700, 9800),
    "dust": (-1, 0.62, 75.6, 158.0, 398.1, 798.1, 1563.2, 2399.2, 3142.9, 4710.4, 7300.0, 10427.9),
    "airquality_raw": (4, 9, 13, 15, 19, 24, 30, 39, 53, 142, 420, 970),
}
_DECIMALS: Final = (1, 1, 0, 2, 0)
_OF_THE_SENSOR: Final = np.array([0.97, 0.90, 0.90, 0.75, 0.85])[:, None]  # how much of a reading is the sensor's own
_MIXED: Final = np.linalg.cholesky(
    np.array(  # rank correlations of temperature, humidity, light, dust and air quality in the sample
        [
            [1.00, 0.25, 0.13, -0.16, 0.20],
            [0.25, 1.00, 0.09, 0.05, 0.05],
            [0.13, 0.09, 1.00, -0.08, 0.01],
            [-0.16, 0.05, -0.08, 1.00, -0.16],
            [0.20, 0.05, 0.01, -0.16, 1.00],
        ]
    )
)


def made_city(first: int, count: int, sensors: int, seed: int) -> dict[str, pa.Array]:
    """Return the fields of messages `first` to `first + count - 1`."""
    numbers = np.arange(first, first + count)
    sender = who_sends(numbers, sensors, strangers(CITY, sensors), seed)
    places = _places(sensors, seed)[:, sender // SENSORS_PER_BOARD]
    latent = _OF_THE_SENSOR * _characters(sensors, seed)[:, sender]
    latent += np.sqrt(1 - _OF_THE_SENSOR**2) * (_MIXED @ np.stack([normal(numbers, seed, 40 + n) for n in range(5)]))
    readings = zip(_QUANTILES.items(), _share_below(latent), _DECIMALS, strict=True)
    return {
        "timestamp": pa.array(BEGIN_MS + numbers * 60 // MESSAGES_PER_MINUTE * 1000),
        "source": made_ids(CITY, sensors, seed).take(sender),
        "longitude": pa.array(places[0]),
        "latitude": pa.array(places[1]),
        **{
            name: pa.array(np.round(np.interp(share, _SHARES, quantiles), decimals))
            for (name, quantiles), share, decimals in readings
        },
    }


def who_sends(
    numbers: npt.NDArray[np.int64], known: int, unknown: int, seed: int, skew: float = 1.0
) -> npt.NDArray[np.int64]:
    """Say who sends each message: one of the known, or, rarely, one of those numbered behind them."""
    chosen = (uniform(numbers, seed, 31) ** skew * known).astype(np.int64)
    if unknown:
        strange = uniform(numbers, seed, 32) < STRANGER_SHARE
        chosen = np.where(strange, known + whole(numbers, unknown, seed, 33), chosen)
    return chosen


@lru_cache(maxsize=4)
def _characters(sensors: int, seed: int) -> Numbers:
    """Return where each sensor's readings lie among those of all, as normal scores of each observable."""
    everyone = np.arange(sensors + strangers(CITY, sensors))
    characters: Numbers = _MIXED @ np.stack([normal(everyone, seed, 50 + n) for n in range(5)])
    return characters


@lru_cache(maxsize=4)
def _places(sensors: int, seed: int) -> Numbers:
    """Return the longitude and latitude of each board."""
    boards = np.arange((sensors + strangers(CITY, sensors)) // SENSORS_PER_BOARD + 1)
    return np.stack(
        [
            np.round(uniform(boards, seed, 61) * 244.2 - 122.430467, 6),
            np.round(uniform(boards, seed, 62) * 117.3 - 71.1, 6),
        ]
    )


def _share_below(scores: Numbers) -> Numbers:
    """Return the standard normal distribution function, to 0.0002 (Page's logistic approximation)."""
    shares: Numbers = 1.0 / (1.0 + np.exp(-(1.5976 * scores + 0.07056 * scores**3)))
    return shares
