"""RIoTBench's operators row by row, as users of Bytewax and PyFlink write them: plain Python, one value at a time.

The libraries are those that Headwater's applications use: orjson, rbloom, datasketches. What is kept for a key is an
object that a row updates. Messages are numbered as they come, as the benchmark's own source does.
"""

import json
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson

MEASURED = ("temperature", "humidity", "light", "dust", "airquality_raw")
TOPIC = "citydata"


class Message(NamedTuple):
    """A line, taken apart."""

    number: int
    timestamp: int
    source: str
    longitude: float
    latitude: float
    values: list[float]  # of what is measured


def message(number: int, line: bytes) -> Message:
    """Parse `<time>,<SenML>`."""
    told = orjson.loads(line[line.index(b",") + 1 :])
    source, longitude, latitude, *measured = told["e"]
    values = [float(entry["v"]) for entry in measured]
    return Message(number, told["bt"], source["sv"], float(longitude["v"]), float(latitude["v"]), values)


def known_senders(path: str) -> dict[str, list[str]]:
    """Read what is known of the senders."""
    found: dict[str, list[str]] = json.loads(Path(path).read_text(encoding="utf-8"))
    return found


def bloom_of(senders: dict[str, list[str]]) -> Any:
    """Return a Bloom filter of the senders, of the size that the applications have."""
    from rbloom import Bloom

    bloom = Bloom(1_000_000, 0.01)
    bloom.update(senders)
    return bloom


# An observation on its way through STATS: number and time of the message, which sensor, which observable, what value.
Observed = tuple[int, int, str, str, float]


def observed(message: Message) -> Iterator[Observed]:
    """Take a message apart into what was measured."""
    for observable, value in zip(MEASURED, message.values, strict=True):
        yield message.number, message.timestamp, message.source, observable, value


class Kalman:
    """Smooths the values of one observable of one sensor."""

    __slots__ = ("error", "estimate")

    def __init__(self) -> None:
        """Begin with no idea."""
        self.estimate, self.error = 0.0, 30.0

    def smoothed(self, value: float) -> float:
        """Take in a value."""
        expected = self.error + 0.125
        gain = expected / (expected + 0.32)
        self.estimate += gain * (value - self.estimate)
        self.error = (1.0 - gain) * expected
        return self.estimate


class Regression:
    """Predicts the next ten values by a line through the last ten."""

    __slots__ = ("last", "seen")

    def __init__(self) -> None:
        """Begin without values."""
        self.last: deque[float] = deque(maxlen=10)
        self.seen = 0

    def predicted(self, value: float) -> list[float] | None:
        """Take in a value; there are predictions from the eleventh on."""
        self.last.append(value)
        self.seen += 1
        if self.seen <= 10:
            return None
        mean = sum(self.last) / 10
        slope = sum((place - 4.5) * one for place, one in enumerate(self.last)) / 82.5
        return [mean + slope * (4.5 + ahead) for ahead in range(1, 11)]


class SecondMoment:
    """Estimates the second moment of the values' frequencies from ten values."""

    __slots__ = ("counts", "seen", "values")

    def __init__(self) -> None:
        """Begin without values."""
        self.values: list[float] = []
        self.counts: list[int] = []
        self.seen = 0

    def estimated(self, value: float) -> float:
        """Take in a value."""
        self.seen += 1
        if value in self.values:
            self.counts[self.values.index(value)] += 1
        elif len(self.values) < 10:
            self.values.append(value)
            self.counts.append(1)
        else:
            place = _replaced(self.seen)
            self.values[place], self.counts[place] = value, 1
        different = len(self.values)
        return self.seen * (2 * sum(self.counts) - different) / different


_PLACES: list[int] = []


def _replaced(seen: int) -> int:
    """Return which of ten places the value with this number takes: by chance, the same as in the application.

    Each place is drawn once: looking it up is cheaper than any generator of random numbers.
    """
    while len(_PLACES) <= seen:
        _PLACES.append(int(_uniform(len(_PLACES), seed=1) * 10))
    return _PLACES[seen]


def _uniform(number: int, seed: int) -> float:
    """Return the number in [0, 1) that `apps.chance.uniform` draws."""
    start = (seed * 0x1_0000_0001) % 2**64
    golden = 0x9E3779B97F4A7C15
    return (_mixed((number * golden + _mixed((start + golden) % 2**64)) % 2**64) >> 11) * 2.0**-53


def _mixed(bits: int) -> int:
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB % 2**64
    return bits ^ (bits >> 31)


class Summary:
    """What STATS keeps of a sensor."""

    __slots__ = ("observables",)

    def __init__(self) -> None:
        """Begin without values."""
        self.observables = [(Kalman(), Regression(), SecondMoment()) for _ in MEASURED]

    def statistics(self, message: Message) -> list[str]:
        """Take in a message; return its statistics as they are published."""
        told = []
        for part, (kalman, regression, moment) in zip(observed(message), self.observables, strict=True):
            told.append(statistic(part, "second_moment", [moment.estimated(part[4])]))
            predicted = regression.predicted(kalman.smoothed(part[4]))
            if predicted is not None:
                told.append(statistic(part, "regression", predicted))
        return told


class DistinctCount:
    """How many different sensors have sent an observable."""

    __slots__ = ("sketch",)

    def __init__(self) -> None:
        """Begin with none."""
        import datasketches

        self.sketch = datasketches.hll_sketch(10, datasketches.HLL_8)

    @classmethod
    def opened(cls, kept: bytes | None) -> "DistinctCount":
        """Go on with what was kept of a sketch."""
        import datasketches

        count = cls()
        if kept is not None:
            count.sketch = datasketches.hll_sketch.deserialize(kept)
        return count

    def closed(self) -> bytes:
        """Return what has to be kept, where the sketch itself cannot be."""
        kept: bytes = self.sketch.serialize_updatable()
        return kept

    def counted(self, sensor: str) -> float:
        """Take in a sensor."""
        self.sketch.update(sensor)
        return float(round(self.sketch.get_estimate()))


def counted(message: Message, counts: list[DistinctCount]) -> list[str]:
    """Take in a message; return how many sensors have sent each observable, as it is published."""
    return [
        statistic(part, "distinct_count", [count.counted(part[2])])
        for part, count in zip(observed(message), counts, strict=True)
    ]


def statistic(observed: Observed, kind: str, values: list[float]) -> str:
    """Write a statistic as it is published."""
    number, timestamp, sensor, observable, _ = observed
    return (
        f'{{"msgid":{number},"timestamp":{timestamp},"sensor":"{sensor}","obs":"{observable}",'
        f'"{kind}":[{",".join(map(repr, values))}]}}'
    )


TREE_MODEL = "CITY-DTC-1422748810000.model"
REGRESSION_MODEL = "CITY-MLR-1422748810000.model"
CLASSES = ("BAD", "GOOD", "VERYGOOD")
AVERAGED = 5  # readings of a sensor


def classified(message: Message) -> int:
    """Ask the decision tree."""
    quality = message.values[4]
    return 0 if quality <= 22.0 else 1 if quality <= 29.0 else 2


def regressed(message: Message) -> float:
    """Ask the regression what the air quality should be."""
    temperature, humidity, _, dust, _ = message.values
    predicted = 37.442739000196276 - 0.5106896760749683 * temperature
    return predicted + 0.1550345386077423 * humidity - 0.0043941074441107295 * dust


class ErrorEstimate:
    """How far predictions for a sensor are off, in proportion to the average of its last full block of readings."""

    __slots__ = ("average", "count", "total")

    def __init__(self) -> None:
        """Begin without an average."""
        self.average: float | None = None
        self.total, self.count = 0.0, 0

    def estimated(self, actual: float, predicted: float) -> float | None:
        """Take in a reading and its prediction."""
        error = (actual - predicted) / self.average if self.average else None
        self.total += actual
        self.count += 1
        if self.count == AVERAGED:
            self.average, self.total, self.count = self.total / AVERAGED, 0.0, 0
        return error


def answered(message: Message, kind: str, value: float | None) -> list[Any]:
    """Write an answer as it is published."""
    if kind == "DTC":
        assert value is not None
        model, result = TREE_MODEL, f"RES:{CLASSES[int(value)]}"
    else:
        model, result = REGRESSION_MODEL, f"ERROR:{'null' if value is None else value}"
    text = (
        f"{message.number},{message.timestamp},{message.source},{message.longitude},{message.latitude},"
        f"{kind},obsVal:{','.join(map(str, message.values))},{result}"
    )
    return [message.number, message.source, message.timestamp, kind, model, value, text]


RANGES = {
    "temperature": (-12.5, 43.1),
    "humidity": (10.7, 95.2),
    "light": (1345.0, 26282.0),
    "dust": (186.61, 5188.21),
    "airquality_raw": (17.0, 363.0),
}
SOURCE = "source"
OBSERVED = (SOURCE, *MEASURED)
ROWS_PER_INSERT = 100


def believed(observable: str, value: float) -> float | None:
    """Take out a value that cannot be true."""
    low, high = RANGES[observable]
    return value if low <= value <= high else None


class Interpolation:
    """Estimates missing values of one observable of one sensor as the mean of the last five."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        """Begin without values."""
        self.last: deque[float] = deque(maxlen=5)

    def completed(self, value: float | None) -> float | None:
        """Take in a value, or estimate it."""
        if value is not None:
            self.last.append(value)
            return value
        return sum(self.last) / len(self.last) if self.last else None


class Loaded:
    """What ETL keeps of a sensor: how to complete its messages, and how many rows of it were inserted."""

    __slots__ = ("inserted", "interpolations")

    def __init__(self) -> None:
        """Begin without values."""
        self.interpolations = [Interpolation() for _ in MEASURED]
        self.inserted = 0

    def rows(self, message: Message, bloom: Any, known: dict[str, list[str]]) -> tuple[list[Any], list[Any]]:
        """Clean, complete and annotate a message; return it as it is published, and as it is inserted."""
        sender = message.source if message.source in bloom else None
        values = [
            one.completed(believed(name, value))
            for one, name, value in zip(self.interpolations, MEASURED, message.values, strict=True)
        ]
        annotations = known.get(sender, (None, None)) if sender is not None else (None, None)
        place = (message.longitude, message.latitude)
        row = [message.number, message.timestamp, sender, *place, *values, *annotations]
        number, self.inserted = self.inserted, self.inserted + 1
        return row, [*row, number, number // ROWS_PER_INSERT]


def senml(row: list[Any]) -> str:
    """Write an annotated message as SenML; a missing value is the text null."""
    _, timestamp, source, longitude, latitude, temperature, humidity, light, dust, quality, location, kind = (
        "null" if value is None else value for value in row
    )
    return (
        f'{{"e":[{{"u":"string","n":"source","sv":"{source}"}},{{"v":"{longitude}","u":"lon","n":"longitude"}},'
        f'{{"v":"{latitude}","u":"lat","n":"latitude"}},{{"v":"{temperature}","u":"far","n":"temperature"}},'
        f'{{"v":"{humidity}","u":"per","n":"humidity"}},{{"v":"{light}","u":"per","n":"light"}},'
        f'{{"v":"{dust}","u":"per","n":"dust"}},{{"v":"{quality}","u":"per","n":"airquality_raw"}},'
        f'{{"u":"string","n":"location","sv":"{location}"}},{{"u":"string","n":"type","sv":"{kind}"}}],'
        f'"bt":"{timestamp}"}}'
    )
