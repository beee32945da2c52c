"""TopK in four stages: readings, the plausible ones, the best of each city, results."""

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa

import headwater as hw

from ..chance import normal, uniform, whole

READING_SCHEMA: Final = pa.schema([("city", pa.string()), ("sensor", pa.int64()), ("celsius", pa.float64())])

_MEANS_C: Final = {"Bern": 9.0, "Cairo": 22.0, "Lagos": 27.0, "Lima": 19.0, "Oslo": 6.0, "Pune": 25.0, "Turin": 13.0}
_SENSORS: Final = 1_000
_SPREAD_C: Final = 7.0
_FAULTY: Final = 0.01  # so many readings are what a sensor says that is broken
_FAULT_C: Final = 999.0
_PLAUSIBLE_C: Final = 60.0  # warmer than any shade on record


@dataclass(frozen=True)
class CityReadings:
    """Temperatures of a thousand sensors in seven cities, normal around each city's mean; one in a hundred is wrong."""

    seed: int = 1

    def __call__(self, first: int, count: int) -> pa.RecordBatch:
        """Make rows `first` to `first + count - 1`."""
        rows = np.arange(first, first + count)
        sensor = whole(rows, _SENSORS, self.seed, 1)
        city = sensor % len(_MEANS_C)
        celsius = np.array(list(_MEANS_C.values()))[city] + _SPREAD_C * normal(rows, self.seed, 2)
        faulty = uniform(rows, self.seed, 3) < _FAULTY
        columns = [
            pa.array(list(_MEANS_C)).take(pa.array(city)),
            pa.array(sensor),
            pa.array(np.where(faulty, _FAULT_C, celsius)),
        ]
        return pa.record_batch(columns, schema=READING_SCHEMA)


@dataclass(frozen=True, kw_only=True)
class TopK(hw.App):
    """Keeps the hottest readings of every city so far, and sends a ranking on when it changes."""

    name: ClassVar[str] = "scaling.top_k"

    k: int = 10
    parallelism: int = 2
    seed: int = 1

    @property
    def schema(self) -> pa.Schema:
        """A sensor's reading."""
        return READING_SCHEMA

    def made(self) -> CityReadings:
        """Return a generator of readings."""
        return CityReadings(self.seed)

    def build(self, rows: hw.Stream) -> hw.Stream:
        """Leave out faults, which would lead every ranking, and rank the rest by city."""
        plausible = rows.filter(hw.col("celsius") < _PLAUSIBLE_C, name="plausible", parallelism=self.parallelism)
        return plausible.key_by("city").top_k(self.k, by="celsius", name="rank", parallelism=self.parallelism)
