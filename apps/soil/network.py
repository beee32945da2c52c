"""A made network of soil moisture sensors in the shape of SoilSCAPE's.

That network had up to 13 sites in four states, each with 6 to 27 nodes, over 200 in all; a node has EC-5 sensors at 5,
20 and 50 cm and reports every 20 minutes (Moghaddam et al. 2017, https://doi.org/10.3334/ORNLDAAC/1339). The soil here
is moistened by storms that come to a site every few days, and dries between the wilting point and the field capacity of
its texture: quickly and fully near the surface, slowly and less at depth. Readings go wrong as they do in the field:
packets without a value, spikes, sensors that are cut off or stuck for a day, batteries that run down.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..chance import normal, uniform

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]

DEPTHS_CM: Final = (5, 20, 50)
INTERVAL_MS: Final = 20 * 60_000
DAY_MS: Final = 86_400_000
BEGIN_MS: Final = 1_433_116_800_000  # 2015-06-01 00:00 UTC: the dry half of the year
STORM_DAYS: Final = 15  # for so long a storm is felt

READING: Final = pa.schema(
    [
        ("timestamp", pa.timestamp("us", "UTC")),
        ("site", pa.string()),
        ("node", pa.int64()),
        ("depth_cm", pa.int64()),
        ("raw_mv", pa.float64()),  # what the sensor puts out
        ("temperature", pa.float64()),  # of the soil, at the uppermost sensor only
        ("battery_v", pa.float64()),
    ]
)


@dataclass(frozen=True)
class Site:
    """A site: its nodes, its soil, and how its sensors were calibrated in that soil."""

    site: str
    nodes: int
    wilting_point: float  # water in a cubic metre of soil that plants cannot take up
    field_capacity: float  # water that the soil holds against gravity
    slope: float  # water per millivolt
    offset: float


SITES: Final[Sequence[Site]] = (
    Site("Tonzi Ranch", 27, 0.11, 0.26, 1.19e-3, -0.400),  # the maker's own calibration for mineral soils
    Site("Vaira Ranch", 14, 0.11, 0.26, 1.19e-3, -0.400),
    Site("New Hogan Lake 1", 19, 0.13, 0.28, 1.14e-3, -0.380),
    Site("New Hogan Lake 2", 18, 0.13, 0.28, 1.14e-3, -0.380),
    Site("Terra d'Oro", 25, 0.12, 0.27, 1.16e-3, -0.391),
    Site("BLM 1", 16, 0.09, 0.22, 1.21e-3, -0.412),
    Site("BLM 2", 16, 0.09, 0.22, 1.21e-3, -0.412),
    Site("BLM 3", 15, 0.09, 0.22, 1.21e-3, -0.412),
    Site("Canton", 20, 0.10, 0.24, 1.18e-3, -0.402),
    Site("Kendall", 10, 0.08, 0.19, 1.22e-3, -0.418),
    Site("Lucky Hills", 9, 0.07, 0.17, 1.22e-3, -0.421),
    Site("Matthaei Gardens", 11, 0.15, 0.32, 1.10e-3, -0.362),
    Site("Jacob Farm", 6, 0.14, 0.30, 1.12e-3, -0.370),
)


@dataclass(frozen=True)
class SoilReadings:
    """Makes readings: interval after interval, all sensors in turn."""

    scale: int = 1  # nodes at each site, times those of the network
    seed: int = 1

    def __call__(self, first: int, count: int) -> pa.RecordBatch:
        """Make rows `first` to `first + count - 1`."""
        rows = np.arange(first, first + count)
        sensors = _sensors(self.scale)
        interval, sensor = np.divmod(rows, len(sensors.site))
        at_ms = BEGIN_MS + interval * INTERVAL_MS + sensor * INTERVAL_MS // len(sensors.site)
        site, depth = sensors.site[sensor], sensors.depth[sensor]
        raw_mv, missing = self._raw(rows, at_ms, sensor, site, depth)
        warmth = 22.0 + 9.0 * np.sin((at_ms / DAY_MS - 0.4) * 2 * np.pi) + normal(rows, self.seed, 10)
        days_charged = (at_ms - BEGIN_MS) / DAY_MS + 60 * uniform(sensor // len(DEPTHS_CM), self.seed, 11)
        columns = [
            pa.array(at_ms * 1_000).cast(pa.timestamp("us", "UTC")),
            pa.array([place.site for place in SITES]).take(pa.array(site)),
            pa.array(sensors.node[sensor]),
            pa.array(np.array(DEPTHS_CM)[depth]),
            pa.array(np.round(raw_mv, 1), mask=missing),
            pa.array(np.round(warmth, 1), mask=depth > 0),
            pa.array(np.round(4.1 - 0.82 * (days_charged % 60) / 60, 2)),  # changed every 60 days
        ]
        return pa.record_batch(columns, schema=READING)

    def _raw(
        self, rows: Numbers, at_ms: Numbers, sensor: Numbers, site: Numbers, depth: Numbers
    ) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Return what the sensors put out in millivolts, and which of them put out nothing."""
        seed = self.seed
        day = at_ms // DAY_MS
        stuck = uniform(sensor * 100_003 + day, seed, 1) < 0.004
        seen_ms = np.where(stuck, day * DAY_MS, at_ms)
        water = self._water(seen_ms, site, depth) + 0.015 * normal(sensor, seed, 2)  # no two places are the same
        slope = np.array([place.slope for place in SITES])[site]
        offset = np.array([place.offset for place in SITES])[site]
        raw_mv = (water - offset) / slope + np.where(stuck, 0.0, 1.5 * normal(rows, seed, 3))
        chance = uniform(rows, seed, 4)
        spike = np.where(chance < 0.001, 160.0, np.where(chance < 0.002, -160.0, 0.0))
        cut_off = (chance >= 0.002) & (chance < 0.004)
        return np.where(cut_off, 0.0, raw_mv + spike), chance >= 0.99

    def _water(self, at_ms: Numbers, site: Numbers, depth: Numbers) -> Floats:
        """Return how much of a cubic metre of soil is water, from the storms that came before."""
        filled = np.full(len(at_ms), 0.12)
        for days_ago in range(STORM_DAYS):
            storm = site * 1_000_003 + at_ms // DAY_MS - days_ago
            hour = 24 * uniform(storm, self.seed, 5)
            age = (at_ms % DAY_MS) / DAY_MS + days_ago - hour / 24
            amount = np.where(uniform(storm, self.seed, 6) < 0.2, 0.4 + 0.6 * uniform(storm, self.seed, 7), 0.0)
            filled += np.where(age > 0, amount * _felt(np.maximum(age, 0), depth), 0.0)
        dry = np.array([place.wilting_point for place in SITES])[site]
        full = np.array([place.field_capacity for place in SITES])[site]
        water: Floats = dry + np.minimum(filled, 1.15) * (full - dry)
        return water


def _felt(age_days: Floats, depth: Numbers) -> Floats:
    """Return how much of a storm is felt: later, longer and less the deeper it is."""
    share = np.array([1.0, 0.8, 0.6])[depth]
    arrives = np.array([0.05, 0.3, 1.0])[depth]
    fades = np.array([3.0, 6.0, 12.0])[depth]
    forgotten = np.minimum(age_days / STORM_DAYS, 1)
    felt: Floats = share * (1 - np.exp(-age_days / arrives)) * np.exp(-age_days / fades) * (1 - forgotten)
    return felt


@dataclass(frozen=True)
class _Sensors:
    """Which site, node and depth each sensor has; a site's nodes are numbered from 1."""

    site: Numbers
    node: Numbers
    depth: Numbers


@lru_cache(maxsize=4)
def _sensors(scale: int) -> _Sensors:
    nodes = np.array([place.nodes * scale for place in SITES])
    site = np.repeat(np.arange(len(SITES)), nodes)
    node = np.arange(len(site)) - np.repeat(np.cumsum(nodes) - nodes, nodes) + 1
    depths = len(DEPTHS_CM)
    return _Sensors(np.repeat(site, depths), np.repeat(node, depths), np.tile(np.arange(depths), len(site)))
