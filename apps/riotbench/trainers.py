"""The operators of TRAIN. A row holds all that one model is trained on: the values of many messages, in a list.

So the rows of a batch are few, and are worked on one after the other; what is in a row is worked on at once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .analytics import Analytics
from .models import Floats, Ints, Model, decoded, encoded, kind_of, write_model
from .tables import Table
from .training import classes_by_percentile, trained_regression, trained_tree

_ABOUT: Final = [("msgId", pa.int64()), ("rowend", pa.int64())]

TRAINING_SCHEMA: Final = pa.schema([*_ABOUT, ("values", pa.list_(pa.float64()))])  # all of a message, then the next's
ANNOTATED_SCHEMA: Final = TRAINING_SCHEMA.append(pa.field("classes", pa.list_(pa.int64())))  # one for each message
MODELS_SCHEMA: Final = pa.schema(
    [("msgId", pa.int64()), ("name", pa.string()), ("rows", pa.int64()), ("model", pa.string())]
)
PUBLISHED_SCHEMA: Final = pa.schema(
    [
        ("msgId", pa.int64()),
        ("name", pa.string()),
        ("kind", pa.string()),  # DTC or MLR
        ("rows", pa.int64()),  # how many it was trained on
        ("message", pa.string()),  # the model, or where there are files its name
    ]
)


@dataclass(frozen=True)
class TableRead:
    """Reads the rows of each stretch of time; one without rows is left out, since it teaches nothing."""

    table: Table

    def __call__(self, timer: pa.RecordBatch) -> pa.RecordBatch:
        """Return what to train on."""
        stretches = zip(timer["rowstart"].to_pylist(), timer["rowend"].to_pylist(), strict=True)
        read = [self.table.read(start_ms, end_ms).ravel() for start_ms, end_ms in stretches]
        filled = pa.array([len(values) > 0 for values in read])
        columns = [timer["msgId"], timer["rowend"], _lists(read, pa.float64())]
        return pa.RecordBatch.from_arrays(columns, schema=TRAINING_SCHEMA).filter(filled)


@dataclass(frozen=True)
class Annotate:
    """Says of each message which class it is in, by where its target lies among all of them."""

    analytics: Analytics

    def __call__(self, training: pa.RecordBatch) -> pa.RecordBatch:
        """Add the classes."""
        place = self.analytics.attributes.index(self.analytics.target)
        classes = [classes_by_percentile(rows[:, place]) for rows in _matrices(training, self.analytics)]
        columns = [*training.columns, _lists(classes, pa.int64())]
        return pa.RecordBatch.from_arrays(columns, schema=ANNOTATED_SCHEMA)


@dataclass(frozen=True)
class TrainTree:
    """Trains a decision tree on each row."""

    analytics: Analytics

    def __call__(self, annotated: pa.RecordBatch) -> pa.RecordBatch:
        """Return the trees."""
        classes = _arrays(annotated["classes"])
        return _models(annotated, self.analytics, "DTC", lambda name, rows: self._tree(name, rows, next(classes)))

    def _tree(self, name: str, rows: Floats, classes: Ints) -> Model:
        return trained_tree(name, self.analytics.attributes, rows, classes)


@dataclass(frozen=True)
class TrainRegression:
    """Trains a regression on each row."""

    analytics: Analytics

    def __call__(self, training: pa.RecordBatch) -> pa.RecordBatch:
        """Return the regressions."""
        return _models(training, self.analytics, "MLR", self._regression)

    def _regression(self, name: str, rows: Floats) -> Model:
        return trained_regression(name, self.analytics.attributes, rows, self.analytics.target)


@dataclass(frozen=True)
class WriteModel:
    """Writes each model to a file of its name; written again it is the same file."""

    directory: str

    def __call__(self, models: pa.RecordBatch) -> pa.RecordBatch:
        """Pass the models on once they are on disk."""
        for model in models["model"].to_pylist():
            write_model(Path(self.directory), decoded(model.encode()))
        return models


@dataclass(frozen=True)
class Publish:
    """Says which model there is: by its name where it lies in a file, else by the model itself."""

    by_name: bool

    def __call__(self, models: pa.RecordBatch) -> pa.RecordBatch:
        """Return what is published."""
        kinds = pa.array([kind_of(name) for name in models["name"].to_pylist()], pa.string())
        message = models["name" if self.by_name else "model"]
        columns = [models["msgId"], models["name"], kinds, models["rows"], message]
        return pa.RecordBatch.from_arrays(columns, schema=PUBLISHED_SCHEMA)


def _models(
    training: pa.RecordBatch, analytics: Analytics, kind: str, train: Callable[[str, Floats], Model]
) -> pa.RecordBatch:
    """Return the model that is trained on each row."""
    names = [analytics.model_name(kind, end_ms) for end_ms in training["rowend"].to_pylist()]
    matrices = list(_matrices(training, analytics))
    trained = [encoded(train(name, rows)).decode() for name, rows in zip(names, matrices, strict=True)]
    columns = [training["msgId"], pa.array(names), pa.array([len(rows) for rows in matrices]), pa.array(trained)]
    return pa.RecordBatch.from_arrays(columns, schema=MODELS_SCHEMA)


def _matrices(training: pa.RecordBatch, analytics: Analytics) -> Iterator[Floats]:
    for values in _arrays(training["values"]):
        yield values.reshape(-1, len(analytics.attributes))


def _arrays(lists: pa.ListArray) -> Iterator[npt.NDArray[Any]]:
    for one in lists:
        yield one.values.to_numpy()


def _lists(arrays: list[npt.NDArray[Any]], kind: pa.DataType) -> pa.ListArray:
    ends = np.cumsum([0, *map(len, arrays)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(np.concatenate(arrays), kind))
