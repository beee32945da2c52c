"""RIoTBench's ETL and STATS once more, row by row in plain Python, from the benchmark's description."""

import json
from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Any

ROUND_OFF = 1e-9

META = {
    "city": ["timestamp", "longitude", "latitude"],
    "taxi": [
        "pickup_datetime",
        "timestamp",
        "pickup_longitude",
        "pickup_latitude",
        "dropoff_longitude",
        "dropoff_latitude",
        "payment_type",
    ],
    "fit": [
        "subjectId",
        "timestamp",
        *(
            f"{what}_{where}_{axis}"
            for what in ("gyro", "magnetometer")
            for where in ("ankle", "arm")
            for axis in "xyz"
        ),
        "label",
    ],
    "grid": ["timestamp"],
}
ID = {"city": "source", "taxi": "taxi_identifier", "fit": "subjectId", "grid": "meterid"}
JOINED = {"city": 9, "taxi": 17, "fit": 26, "grid": 3}
FILTERED_BY_ID = {"city": True, "taxi": True, "fit": False, "grid": True}
WINDOW = {"city": 5, "taxi": 0, "fit": 5, "grid": 5}
HORIZON = {"city": 10, "taxi": 10, "fit": 10, "grid": 2}
AVERAGED = {"city": 5, "taxi": 10, "fit": 10, "grid": 10}
TOPIC = {"city": "citydata", "taxi": "taxidata", "fit": "fitdata", "grid": "griddata"}
ANNOTATED = {
    "city": ["location", "type"],
    "taxi": ["taxi_company", "drivername", "taxi_city"],
    "fit": ["age", "gender"],
    "grid": ["customer", "tariff"],
}
RANGES = {
    ("city", "riot"): {
        "temperature": (-12.5, 43.1),
        "humidity": (10.7, 95.2),
        "light": (1345, 26282),
        "dust": (186.61, 5188.21),
        "airquality_raw": (17, 363),
    },
    ("city", "edgewise"): {
        "temperature": (0.7, 35.1),
        "humidity": (20.3, 69.1),
        "light": (0, 5153),
        "dust": (83.36, 3322.67),
        "airquality_raw": (12, 49),
    },
    ("taxi", "riot"): {
        "trip_time_in_secs": (140, 3155),
        "trip_distance": (1.37, 29.86),
        "fare_amount": (6, 201),
        "tip_amount": (0.65, 38.55),
        "tolls_amount": (2.5, 18),
    },
    ("fit", "riot"): {
        "acc_chest_x": (-13.931, 4.123),
        "acc_chest_y": (-4.6376, 5.2361),
        "acc_chest_z": (-8.1881, 7.8786),
        "ecg_lead_1": (-4.9314, 6.1371),
        "ecg_lead_2": (-6.786, 6.6604),
        "acc_ankle_x": (-5.0006, 8.1472),
        "acc_ankle_y": (-14.303, 1.5909),
        "acc_ankle_z": (-8.6234, 8.6958),
        "acc_arm_x": (-9.824, 5.5778),
        "acc_arm_y": (-10.059, 8.506),
        "acc_arm_z": (-6.6739, 9.5725),
    },
    ("grid", "riot"): {"energyconsumed": (1.828, 36.658)},
}

Message = dict[str, Any]


def parsed(line: str) -> Message:
    """Return the fields of a message; entries with `v` are numbers, those with `sv` are texts."""
    found = json.loads(line.split(",", 1)[1])
    message: Message = {"timestamp": int(found["bt"])}
    for entry in found["e"]:
        message[entry["n"]] = float(entry["v"]) if "v" in entry else entry["sv"]
    return message


class Etl:
    """Extraction, transformation and loading of one message after the other."""

    def __init__(self, dataset: str, ranges: str, known: dict[str, list[Any]]) -> None:
        """Know some senders: their ids, and what is known of each."""
        self.dataset, self.ranges, self.known = dataset, RANGES[dataset, ranges], known
        self.last: dict[tuple[str, str], deque[float]] = defaultdict(lambda: deque(maxlen=WINDOW[dataset] or 1))

    def cleaned(self, line: str) -> Message:
        """Return what comes of one message: all of its fields, and the annotations."""
        message = parsed(line)
        sender = message[ID[self.dataset]]
        for name in [name for name in message if name not in META[self.dataset]]:
            message[name] = self._value(sender, name, message[name])
        if len(message) != JOINED[self.dataset]:
            raise AssertionError(f"a message of {self.dataset} has {JOINED[self.dataset]} fields, not {len(message)}")
        known = self.known.get(message[ID[self.dataset]], [None] * len(ANNOTATED[self.dataset]))
        return {**message, **dict(zip(ANNOTATED[self.dataset], known, strict=True))}

    def _value(self, sender: str, name: str, value: Any) -> Any:
        if name == ID[self.dataset]:
            return value if value in self.known or not FILTERED_BY_ID[self.dataset] else None
        if name in self.ranges and not self.ranges[name][0] <= value <= self.ranges[name][1]:
            value = None
        if name not in self.ranges or not WINDOW[self.dataset]:
            return value
        last = self.last[sender, name]
        if value is None:
            return sum(last) / len(last) if last else None
        last.append(value)
        return value


class Statistics:
    """The statistics of one observable of one sensor."""

    def __init__(self, horizon: int, seed: int) -> None:
        """Begin without a value."""
        self.horizon, self.seed = horizon, seed
        self.estimate, self.error = 0.0, 30.0
        self.smoothed: list[float] = []
        self.counts: list[list[float]] = []  # value, count
        self.items = 0

    def kalman(self, value: float) -> float:
        """Smooth a value."""
        self.error += 0.125
        gain = self.error / (self.error + 0.32)
        self.estimate += gain * (value - self.estimate)
        self.error *= 1 - gain
        return self.estimate

    def trend(self, value: float) -> list[float] | None:
        """Predict the values after this one."""
        self.smoothed.append(value)
        if len(self.smoothed) <= 10:
            return None
        last = list(enumerate(self.smoothed, start=1))[-10:]
        middle_x, middle_y = sum(x for x, _ in last) / 10, sum(y for _, y in last) / 10
        slope = sum((x - middle_x) * (y - middle_y) for x, y in last) / sum((x - middle_x) ** 2 for x, _ in last)
        return [middle_y + slope * (last[-1][0] + ahead - middle_x) for ahead in range(1, self.horizon + 1)]

    def second_moment(self, value: float) -> float:
        """Count a value, and estimate the second moment of all of them."""
        self.items += 1
        for cell in self.counts:
            if cell[0] == value:
                cell[1] += 1
                break
        else:
            if len(self.counts) < 10:
                self.counts.append([value, 1])
            else:
                self.counts[int(chance(self.items, self.seed) * 10)] = [value, 1]
        return sum(self.items * (2 * count - 1) for _, count in self.counts) / len(self.counts)


def chance(number: int, seed: int) -> float:
    """A number in [0, 1) by SplitMix64, as `apps/chance.py` documents it."""
    golden, word = 0x9E3779B97F4A7C15, 2**64

    def mixed(bits: int) -> int:
        bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 % word
        bits = (bits ^ bits >> 27) * 0x94D049BB133111EB % word
        return bits ^ bits >> 31

    start = mixed((seed * 0x1_0000_0001 + golden) % word)
    return (mixed((number * golden + start) % word) >> 11) * 2.0**-53


def statistics(
    dataset: str, lines: Iterable[str], known: set[str] | None, seed: int
) -> dict[str, dict[tuple[str, str], list[Any]]]:
    """Return the results of each kind, by sensor and observable, in order.

    Distinct counts are exact here, and listed by observable alone.
    """
    kept: dict[tuple[str, str], Statistics] = defaultdict(lambda: Statistics(HORIZON[dataset], seed))
    found: dict[str, dict[tuple[str, str], list[Any]]] = {
        "regression": defaultdict(list),
        "second_moment": defaultdict(list),
        "distinct_count": defaultdict(list),
    }
    seen: dict[str, set[str]] = defaultdict(set)
    for line in lines:
        message = parsed(line)
        sender = message[ID[dataset]]
        if known is not None and sender not in known:
            continue
        for name, value in message.items():
            if name in META[dataset] or not isinstance(value, float):
                continue
            one = kept[sender, name]
            predictions = one.trend(one.kalman(value))
            if predictions is not None:
                found["regression"][sender, name].append(predictions)
            found["second_moment"][sender, name].append([one.second_moment(value)])
            seen[name].add(sender)
            found["distinct_count"]["", name].append([len(seen[name])])
    return found
