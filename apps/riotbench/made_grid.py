"""Made-up readings of electricity meters, shaped like the Irish CER trial, from which RIoTBench took GRID.

No sample of it is public. Here every meter reports once in half an hour, the meters one after the other; consumption
has a log-normal spread between meters and readings and a daily course, so that a few readings in a hundred lie outside
of the range that RIoTBench believes.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from ..chance import normal
from .datasets import GRID
from .identities import made_ids, strangers
from .made_city import who_sends

BEGIN_MS: Final = 1_247_511_001_000  # where the benchmark's own timer file for GRID begins
PERIOD_MS: Final = 1_800_000
DAY_MS: Final = 86_400_000
MEDIAN: Final = 8.2
SPREAD_OF_METERS: Final = 0.55
SPREAD_OF_READINGS: Final = 0.45
DAILY_SWING: Final = 0.35


def made_grid(first: int, count: int, sensors: int, seed: int) -> dict[str, pa.Array]:
    """Return the fields of messages `first` to `first + count - 1`."""
    numbers = np.arange(first, first + count)
    known_or_not = who_sends(numbers, sensors, strangers(GRID, sensors), seed)
    meter = np.where(known_or_not < sensors, numbers % sensors, known_or_not)
    at_ms = BEGIN_MS + numbers * PERIOD_MS // sensors
    daily = 1.0 - DAILY_SWING * np.cos(2 * np.pi * (at_ms % DAY_MS) / DAY_MS)
    spread = SPREAD_OF_METERS * normal(meter, seed, 151) + SPREAD_OF_READINGS * normal(numbers, seed, 152)
    return {
        "timestamp": pa.array(at_ms),
        "meterid": made_ids(GRID, sensors, seed).take(meter),
        "energyconsumed": pa.array(np.round(MEDIAN * daily * np.exp(spread), 3)),
    }
