"""Readings of imaginary city sensors, in the shape of the Sense Your City data (Data Canvas, 2015).

Each row is a pure function of the seed and its number: the noise of a reading is a hash of both, so any row can be
generated again, alone or among a million. Levels and spreads per city are those of the RIoTBench sample at midnight UTC
of 1 February 2015 and of the hourly means of that spring; the daily cycle follows the city's own clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.model.errors import FlowError

Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]

CITY_SCHEMA: Final = pa.schema(
    [
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("city", pa.string()),
        ("sensor", pa.string()),
        *((name, pa.float64()) for name in ("longitude", "latitude", "temperature", "humidity", "light", "dust")),
        *((name, pa.float64()) for name in ("airquality_raw", "sound")),
    ]
)

START_MS: Final = 1_422_748_800_000  # 2015-02-01T00:00:00Z, where the RIoTBench sample starts
INTERVAL_MS: Final = 60_000  # each sensor reports once a minute
DAY_MS: Final = 86_400_000
MISSING: Final = 0.002  # readings that a sensor failed to take
BROKEN: Final = 0.003  # dust readings of -1, and readings far off


@dataclass(frozen=True, slots=True)
class City:
    """Where a city is, how its day runs, and what its sensors read on average."""

    name: str
    share: int  # sensors out of 788 in the sample
    longitude: float
    latitude: float
    hours_ahead: float  # of UTC
    temperature: float
    swing: float  # degrees between the mean and the warmest hour
    humidity: float
    noon_light: float
    dust: float
    airquality: float
    sound: float


CITIES: Final[Sequence[City]] = (
    City("Geneva", 123, 6.1668, 46.1928, 1, 10.5, 2.5, 44, 1100, 1330, 38, 1400),
    City("Bangalore", 80, 77.6000, 12.9600, 5.5, 26.0, 3.5, 48, 1500, 1900, 21, 1600),
    City("Boston", 66, -71.1000, 42.3650, -5, 0.5, 3.0, 36, 1100, 800, 17, 1350),
    City("Rio de Janeiro", 138, -43.2300, -22.9300, -2, 34.0, 3.0, 51, 1800, 900, 33, 1700),
    City("San Francisco", 112, -122.4238, 37.7700, -8, 20.5, 3.2, 37, 2600, 810, 25, 1550),
    City("Shanghai", 97, 121.4488, 31.2300, 8, 13.5, 2.5, 45, 1250, 1470, 28, 1500),
    City("Singapore", 163, 103.8200, 1.3400, 8, 29.0, 2.0, 68, 1350, 905, 24, 1450),
)


@dataclass(frozen=True)
class CityRows:
    """Generates the rows from a number on: sensor after sensor, minute after minute."""

    schema: ClassVar[pa.Schema] = CITY_SCHEMA

    sensors: int = 500
    seed: int = 7

    def __post_init__(self) -> None:
        """Refuse a world without sensors."""
        if self.sensors < 1:
            raise FlowError(f"cities needs at least one sensor, not {self.sensors}")

    def __call__(self, first: int, count: int) -> pa.RecordBatch:
        """Return rows `first` to `first + count - 1`."""
        rows = np.arange(first, first + count, dtype=np.int64)
        minute, sensor = np.divmod(rows, self.sensors)
        at_ms = START_MS + minute * INTERVAL_MS + sensor * INTERVAL_MS // self.sensors
        place = _places(self.sensors, self.seed)
        draw = _Draw(rows.astype(np.uint64), self.seed)
        day = (at_ms % DAY_MS) / DAY_MS + place.ahead[sensor]
        arrays = [
            pa.array(at_ms).cast(pa.timestamp("ms", "UTC")),
            place.cities.take(pa.array(sensor)),
            place.ids.take(pa.array(sensor)),
            pa.array(place.longitude[sensor]),
            pa.array(place.latitude[sensor]),
            *_readings(place, sensor, day, draw),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=CITY_SCHEMA)


def _readings(place: "_Places", sensor: npt.NDArray[np.int64], day: Floats, draw: "_Draw") -> list[pa.Array]:
    """Return temperature, humidity, light, dust, air quality and sound."""
    warmth = np.cos((day - 15 / 24) * (2 * np.pi))
    height = np.sin((day - 6.5 / 24) * (2 * np.pi))  # of the sun; below 0 at night
    temperature = place.temperature[sensor] + place.swing[sensor] * warmth + draw.normal(1) * 0.8
    humidity = place.humidity[sensor] - 5 * warmth + draw.normal(2) * 3
    light = place.light[sensor] * np.maximum(height, 0) * draw.exponential(3)
    dust = np.where(draw.chance(4, BROKEN), -1, place.dust[sensor] * draw.exponential(5))
    air = place.airquality[sensor] * (1 + 0.2 * draw.normal(6)) + draw.chance(7, 0.012) * draw.exponential(8) * 130
    sound = place.sound[sensor] * (1 + 0.08 * draw.normal(9)) + draw.chance(10, BROKEN) * 900
    return [
        _array(np.rint(np.clip(temperature, -12, 45) * 10) / 10, draw.chance(11, MISSING)),
        _array(np.rint(np.clip(humidity, 12, 99.9) * 10) / 10, draw.chance(12, MISSING)),
        _array(np.rint(np.minimum(light, 26_000)), None),
        _array(np.rint(np.minimum(dust, 20_000) * 100) / 100, draw.chance(13, MISSING)),
        _array(np.rint(np.clip(air, 4, 1_000)), None),
        _array(np.rint(np.maximum(sound, 70)), None),
    ]


def _array(values: Floats, missing: npt.NDArray[np.bool_] | None) -> pa.Array:
    return pa.array(values, mask=missing)


class _Draw:
    """Random numbers as a function of seed, row and column."""

    def __init__(self, rows: Words, seed: int) -> None:
        self._rows = _mixed(rows + np.uint64(seed * 0x9E3779B97F4A7C15 % 2**64))

    def word(self, column: int) -> Words:
        return _mixed(self._rows + np.uint64(column * 0xD1342543DE82EF95 % 2**64))

    def uniform(self, column: int) -> Floats:
        """Uniform between 0 and 1, both excluded."""
        return ((self.word(column) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52

    def normal(self, column: int) -> Floats:
        """Approximately normal with mean 0 and deviation 1: the sum of the four quarters of a word."""
        quarters = self.word(column).view(np.uint16).reshape(-1, 4)
        total = quarters[:, 0].astype(np.float64) + quarters[:, 1] + quarters[:, 2] + quarters[:, 3]
        return (total * 2.0**-16 - 2 + 2.0**-15) * 3**0.5

    def exponential(self, column: int) -> Floats:
        """Exponential with mean 1."""
        return -np.log(self.uniform(column))

    def chance(self, column: int, share: float) -> npt.NDArray[np.bool_]:
        """True for so large a share of the rows."""
        return self.word(column) < np.uint64(share * 2.0**64)


def _mixed(words: Words) -> Words:
    """Mix the bits (the finisher of SplitMix64)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


@dataclass(frozen=True, slots=True)
class _Places:
    """The constants of each sensor."""

    ids: pa.Array
    cities: pa.Array
    longitude: Floats
    latitude: Floats
    ahead: Floats  # part of a day ahead of UTC
    temperature: Floats
    swing: Floats
    humidity: Floats
    light: Floats
    dust: Floats
    airquality: Floats
    sound: Floats


@lru_cache(maxsize=16)
def _places(sensors: int, seed: int) -> _Places:
    numbers = np.arange(sensors, dtype=np.uint64)
    draw = _Draw(numbers, seed ^ 0x5E4504)
    shares = np.cumsum([city.share for city in CITIES]) / sum(city.share for city in CITIES)
    city = np.searchsorted(shares, draw.uniform(0))
    if sensors >= len(CITIES):
        city[: len(CITIES)] = np.arange(len(CITIES))

    def of(attribute: str) -> Floats:
        return np.array([getattr(each, attribute) for each in CITIES], np.float64)[city]

    return _Places(
        ids=pa.array([_sensor_id(int(word), number) for number, word in enumerate(draw.word(1))]),
        cities=pa.array([CITIES[index].name for index in city]),
        longitude=np.round(of("longitude") + draw.normal(2) * 0.04, 6),
        latitude=np.round(of("latitude") + draw.normal(3) * 0.04, 6),
        ahead=of("hours_ahead") / 24,
        temperature=of("temperature") + draw.normal(4) * 3,
        swing=of("swing") * (0.5 + draw.uniform(5)),
        humidity=of("humidity") + draw.normal(6) * 9,
        light=of("noon_light") * (0.3 + 1.4 * draw.uniform(7)),
        dust=of("dust") * (0.4 + 1.2 * draw.uniform(8)),
        airquality=of("airquality") * (0.6 + 0.7 * draw.uniform(9)),
        sound=of("sound") * (0.7 + 0.6 * draw.uniform(10)),
    )


def _sensor_id(word: int, number: int) -> str:
    letters = "0123456789abcdefghijklmnopqrstuvwxyz"
    return "ci4" + "".join(letters[word // 36**place % 36] for place in range(12)) + f"000802ypo{number}"
