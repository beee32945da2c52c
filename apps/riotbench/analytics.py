"""What is predicted of each data set: from which fields, and which of them the regression predicts from the others.

The benchmark lists a message's observations in the order of its schema, except that the models of FIT were trained on
them in another order; here a model names its attributes, and the order is that of the schema for all.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from .datasets import CITY, FIT, GRID, TAXI, Dataset, dataset


@dataclass(frozen=True)
class Analytics:
    """What PRED and TRAIN do with the messages of a data set."""

    dataset: Dataset
    attributes: tuple[str, ...]  # what the models see, in the order of the schema
    target: str  # what the regression predicts, the average is of, and the classes are made by

    @property
    def meta(self) -> tuple[str, ...]:
        """All other fields: they go along with the results."""
        return tuple(field.name for field in self.dataset.fields if field.name not in self.attributes)

    def model_name(self, kind: str, end_ms: int) -> str:
        """Return what a model is called that was trained on rows from before this time."""
        return f"{self.dataset.name.upper()}-{kind}-{end_ms}.model"


ANALYTICS: Final[Mapping[str, Analytics]] = {
    "city": Analytics(CITY, ("temperature", "humidity", "light", "dust", "airquality_raw"), "airquality_raw"),
    "taxi": Analytics(TAXI, ("trip_time_in_secs", "trip_distance", "fare_amount"), "fare_amount"),
    "fit": Analytics(
        FIT,
        (
            *("acc_chest_x", "acc_chest_y", "acc_chest_z", "ecg_lead_1"),
            *("acc_ankle_x", "acc_ankle_y", "acc_ankle_z", "acc_arm_x", "acc_arm_y", "acc_arm_z"),
        ),
        "ecg_lead_1",
    ),
    "grid": Analytics(GRID, ("energyconsumed",), "energyconsumed"),
}


def analytics(name: str) -> Analytics:
    """Return what is predicted of the data set of this name."""
    return ANALYTICS[dataset(name).name]
