"""RIoTBench's PRED and TRAIN in plain Python, a message at a time, from the benchmark's description.

Nothing of the applications is used here: messages are taken apart by `json`, trees are nested dicts that are walked,
percentiles and the table of classes are written as commons-math and Java's TreeMap have them.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

Row = dict[str, Any]

# Of each data set: who sends, what the models see in the order of the schema, what is predicted, how many make a block.
SENDER: Final = {"city": "source", "taxi": "taxi_identifier", "fit": "subjectId", "grid": "meterid"}
OBSERVED: Final = {
    "city": ["temperature", "humidity", "light", "dust", "airquality_raw"],
    "taxi": ["trip_time_in_secs", "trip_distance", "fare_amount"],
    "fit": [
        *("acc_chest_x", "acc_chest_y", "acc_chest_z", "ecg_lead_1", "acc_ankle_x", "acc_ankle_y", "acc_ankle_z"),
        *("acc_arm_x", "acc_arm_y", "acc_arm_z"),
    ],
    "grid": ["energyconsumed"],
}
TARGET: Final = {"city": "airquality_raw", "taxi": "fare_amount", "fit": "ecg_lead_1", "grid": "energyconsumed"}
BLOCK: Final = {"city": 5, "taxi": 10, "fit": 10, "grid": 10}

# WORKLOADS 1.6; those of FIT's regression and of GRID are what training on made rows gave.
THRESHOLDS: Final = {
    "city": ("CITY-DTC-1422748810000.model", 22.0, 29.0),
    "taxi": ("TAXI-DTC-1358102664000.model", 10.0, 18.5),
    "fit": ("FIT-DTC-1417890600200.model", -0.054422, 0.016745),
    "grid": ("GRID-DTC-1247511061000.model", 7.055, 11.917),
}
FORMULAS: Final[dict[str, tuple[str, float, dict[str, float]]]] = {
    "city": (
        "CITY-MLR-1422748810000.model",
        37.442739000196276,
        {"temperature": -0.5106896760749683, "humidity": 0.1550345386077423, "dust": -0.0043941074441107295},
    ),
    "taxi": (
        "TAXI-MLR-1358102664000.model",
        3.574164844831282,
        {"trip_time_in_secs": 0.002167781090458324, "trip_distance": 2.347246557323501},
    ),
    "fit": (
        "FIT-MLR-1417890660000.model",
        0.05722392614840177,
        {
            "acc_ankle_x": 0.0011370143753864884,
            "acc_ankle_y": 0.001483651185895461,
            "acc_arm_y": -0.0010691603282434099,
        },
    ),
    "grid": ("GRID-MLR-1247511061000.model", 9.542316279069768, {}),
}
CLASSES: Final = ("BAD", "GOOD", "VERYGOOD", "EXCELLENT")


def message_of(line: str) -> dict[str, Any]:
    """Return the fields of a line: its base time as `timestamp`, and each entry by its name."""
    said = json.loads(line.partition(",")[2])
    return {"timestamp": int(said["bt"]), **{entry["n"]: entry.get("v", entry.get("sv")) for entry in said["e"]}}


class Prediction:
    """PRED, a message at a time. The error is by the sensor's last complete block before the message."""

    def __init__(self, dataset: str) -> None:
        self.dataset = dataset
        self.tree: Mapping[str, Any] | None = None  # as JSON, once one has replaced the benchmark's
        self.regression: Mapping[str, Any] | None = None
        self._blocks: dict[str, list[float]] = {}
        self._averages: dict[str, float] = {}

    def replace(self, model: Mapping[str, Any]) -> None:
        """Use another model from the next message on."""
        if model["type"] == "DTC":
            self.tree = model
        else:
            self.regression = model

    def answers(self, line: str) -> list[Row]:
        """Return what is said of a message: by the tree, then by the regression."""
        message = message_of(line)
        sensor = message[SENDER[self.dataset]]
        observed = {name: float(message[name]) for name in OBSERVED[self.dataset]}
        actual = observed[TARGET[self.dataset]]
        tree, number = self._class(observed)
        regression, predicted = self._predicted(observed)
        average = self._averages.get(sensor)
        error = (actual - predicted) / average if average else None
        block = self._blocks.setdefault(sensor, [])
        block.append(actual)
        if len(block) == BLOCK[self.dataset]:
            self._averages[sensor] = sum(block) / len(block)
            block.clear()
        about = {"sensor": sensor, "timestamp": message["timestamp"]}
        return [
            {**about, "kind": "DTC", "model": tree, "value": float(number)},
            {**about, "kind": "MLR", "model": regression, "value": error},
        ]

    def _class(self, observed: Mapping[str, float]) -> tuple[str, int]:
        if self.tree is not None:
            return self.tree["name"], walked(self.tree, observed)
        name, bad_up_to, good_up_to = THRESHOLDS[self.dataset]
        value = observed[TARGET[self.dataset]]
        return name, 0 if value <= bad_up_to else 1 if value <= good_up_to else 2

    def _predicted(self, observed: Mapping[str, float]) -> tuple[str, float]:
        if self.regression is None:
            name, predicted, coefficients = FORMULAS[self.dataset]
        else:
            name, predicted = self.regression["name"], self.regression["intercept"]
            coefficients = dict(zip(self.regression["attributes"], self.regression["coefficients"], strict=True))
        for attribute in OBSERVED[self.dataset]:
            if coefficients.get(attribute):
                predicted += coefficients[attribute] * observed[attribute]
        return name, predicted


def walked(tree: Mapping[str, Any], observed: Mapping[str, float]) -> int:
    """Go down a tree as a model file has it, and return the number of the class."""
    node = 0
    while tree["attribute"][node] >= 0:
        value = observed[tree["attributes"][tree["attribute"][node]]]
        node = tree["low" if value <= tree["threshold"][node] else "high"][node]
    answer: int = tree["answer"][node]
    return answer


def said(message: str, fields: int) -> Row:
    """Take a published message apart: its id, its meta fields, who says it, the observations and the result."""
    identity, *meta = message.split(",")
    assert meta[fields] in ("DTC", "MLR")
    observed, result = meta[fields + 1 : -1], meta[-1]
    assert observed[0].startswith("obsVal:")
    label, _, value = result.partition(":")
    return {
        "id": int(identity),
        "meta": meta[:fields],
        "kind": meta[fields],
        "observed": [float(one) for one in ",".join(observed)[len("obsVal:") :].split(",")],
        label: value,
    }


def percentile(values: Sequence[float], percent: float) -> float:
    """Return what commons-math's Percentile does, of estimation type LEGACY."""
    ordered, count = sorted(values), len(values)
    position = percent * (count + 1) / 100
    if position < 1:
        return ordered[0]
    if position >= count:
        return ordered[-1]
    below = int(position)
    return ordered[below - 1] + (position - below) * (ordered[below] - ordered[below - 1])


def annotated(values: Sequence[float]) -> list[str]:
    """Return the class of each value: that of the last of a TreeMap's keys that it reaches, else BAD."""
    tree_map = dict(zip((percentile(values, percent) for percent in (25, 50, 75, 100)), CLASSES, strict=True))
    floors = [max((key for key in tree_map if key <= value), default=None) for value in values]
    return ["BAD" if key is None else tree_map[key] for key in floors]
