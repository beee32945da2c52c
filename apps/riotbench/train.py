"""TRAIN: RIoTBench's training of the models that PRED predicts with."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

import pyarrow as pa

import headwater as hw

from .analytics import analytics
from .datasets import DatasetName, dataset
from .senders import check_sensors
from .tables import table_of
from .timer import TIMER_SCHEMA, MadeTimer, timer_file
from .trainers import (
    ANNOTATED_SCHEMA,
    MODELS_SCHEMA,
    PUBLISHED_SCHEMA,
    TRAINING_SCHEMA,
    Annotate,
    Publish,
    TableRead,
    TrainRegression,
    TrainTree,
    WriteModel,
)


@dataclass(frozen=True, kw_only=True)
class Train(hw.App):
    """Trains a decision tree and a regression on the messages of a stretch of time, whenever a timer says so."""

    name: ClassVar[str] = "riotbench.train"

    dataset: DatasetName = "city"
    sensors: int = 0
    table: str = ""
    span_ms: int = 0
    directory: str = ""
    readers: int = 1
    trainers: int = 1
    seed: int = 1

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        check_sensors(self.sensors)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the benchmark's timer files."""
        return TIMER_SCHEMA

    def made(self) -> MadeTimer:
        """Return a generator of a timer's rows."""
        return MadeTimer(self.dataset, self.span_ms)

    def with_data(self, data: Path) -> Self:
        """Train on the real messages, unless another table is named or there are none."""
        sample = dataset(self.dataset).sample
        return self if self.table or sample is None else replace(self, table=str(data / sample))

    def real(self, data: Path, *, rate: float | None, loop: bool) -> hw.Stream:
        """Read the timer file of the data set."""
        path = timer_file(self.dataset, data)
        return hw.read.csv(path, schema=TIMER_SCHEMA, rate=rate, loop=loop, bad_lines="skip", name="input")

    def build(self, rows: hw.Stream) -> hw.Stream:
        """Read what to train on, train both models on it, and publish them."""
        what, table = analytics(self.dataset), table_of(self.dataset, self.table, self.sensors, self.seed)
        read = rows.flat_map(
            TableRead(table),
            schema=TRAINING_SCHEMA,
            on_error="dead-letter",
            parallelism=self.readers,
            name="table_read",
        )
        regressions = read.map(
            TrainRegression(what), schema=MODELS_SCHEMA, parallelism=self.trainers, name="regression_train"
        )
        trees = read.map(Annotate(what), schema=ANNOTATED_SCHEMA, name="annotate").map(
            TrainTree(what), schema=MODELS_SCHEMA, parallelism=self.trainers, name="tree_train"
        )
        models = regressions.union(trees)
        if self.directory:
            models = models.map(WriteModel(self._existing_directory()), schema=MODELS_SCHEMA, name="write")
        return models.map(Publish(by_name=bool(self.directory)), schema=PUBLISHED_SCHEMA, name="publish")

    def _existing_directory(self) -> str:
        place = Path(self.directory).absolute()  # a worker's working directory is not the author's
        if not place.is_dir():
            raise hw.ConfigError(f"there is no directory {place} to write models to; make it, or leave directory= away")
        return str(place)
