"""PRED: RIoTBench's predictive analytics, with models that can be replaced while it runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

import headwater as hw

from .analytics import analytics
from .datasets import DatasetName, dataset
from .lines import MadeLines, real_lines
from .messages import PUBLISHED_SCHEMA, ParseMessage, published
from .models import MODEL_BYTES_MAX, Shipped, decoded
from .relative_errors import MODEL, PREDICTED, SENSOR, VALUE, BlockAverage, ErrorEstimate
from .senders import check_sensors
from .shipped import SHIPPED
from .updates import KIND, UPDATES_SCHEMA, ReadModels


@dataclass(frozen=True, kw_only=True)
class Pred(hw.App):
    """Classifies the readings of sensors by a decision tree, and tells how far a regression is off."""

    name: ClassVar[str] = "riotbench.pred"
    messages: ClassVar[Mapping[str, str]] = {"results": "message"}
    wire: ClassVar[hw.Wire] = "text"

    dataset: DatasetName = "city"
    sensors: int = 0
    models: str = ""
    directory: str = ""
    parsers: int = 1
    parallelism: int = 1
    publishers: int = 1
    seed: int = 1

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        check_sensors(self.sensors)

    def made(self) -> MadeLines:
        """Return a generator of messages."""
        return MadeLines(self.dataset, self.sensors, self.seed)

    @property
    def has_real_data(self) -> bool:
        """Whether messages of the data set are public."""
        return dataset(self.dataset).sample is not None

    def real(self, data: Path, *, rate: float | None, loop: bool) -> hw.Stream:
        """Read the real messages of the data set."""
        return real_lines(dataset(self.dataset), data, rate=rate, loop=loop)

    def build(self, rows: hw.Stream) -> hw.Stream:
        """Predict with the models that ship, until others come from where `models` says."""
        return self.predictions(rows, self.updates())

    def updates(self) -> hw.Stream | None:
        """Return the lines that bring models: of files that are put into a directory, or from a broker."""
        if self.models.startswith(("mqtt://", "mqtts://")):
            return hw.read.mqtt(
                self.models, format="text", payload_bytes_max=MODEL_BYTES_MAX, bad_messages="skip", name="models"
            )
        if not self.models:
            return None
        if not Path(self.models).is_dir():
            shown = self.models.partition("://")[0] if "://" in self.models else self.models  # it may hold a password
            raise hw.ConfigError(f"models={shown!r} is neither a directory nor the mqtt:// address of a topic")
        # A source that follows takes files in the order of their names: within one kind that is the order of time.
        trees, regressions = (
            hw.read.text(
                Path(self.models) / f"{self.dataset.upper()}-{kind}-*.model",
                follow=True,
                bad_lines="skip",
                name=f"{kind.lower()}_files",
            )
            for kind in ("DTC", "MLR")
        )
        return trees.union(regressions)

    def predictions(self, rows: hw.Stream, updates: hw.Stream | None) -> hw.Stream:
        """Ask the tree; ask the regression, and compare with the average; publish what both say."""
        what, many = analytics(self.dataset), self.parallelism
        size = what.dataset.average_window
        parse = ParseMessage(what)
        predictions = _with(parse.schema, PREDICTED)
        answers = _with(parse.schema, VALUE)

        parsed = rows.map(parse, schema=parse.schema, on_error="dead-letter", parallelism=self.parsers, name="parse")
        trees, regressions = self._models(updates)
        classified = parsed.model(
            Shipped(SHIPPED[self.dataset, "DTC"]), what.attributes, output=VALUE, **trees, name="decision_tree"
        )
        regressed = parsed.model(
            Shipped(SHIPPED[self.dataset, "MLR"]), what.attributes, output=PREDICTED, **regressions, name="regression"
        )
        averaged = parsed.key_by(SENSOR).stateful(
            BlockAverage(what.target, size, predictions), schema=predictions, parallelism=many, name="average"
        )
        compared = regressed.union(averaged).key_by(SENSOR)
        errors = compared.stateful(
            ErrorEstimate(what.target, size, answers), schema=answers, parallelism=many, name="error_estimate"
        )
        return classified.union(errors).map(
            published, schema=PUBLISHED_SCHEMA, parallelism=self.publishers, name="publish"
        )

    def _models(self, updates: hw.Stream | None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return how each of the two models is asked: with the updates of its kind, if there are any."""
        asked: dict[str, Any] = {"version_column": MODEL, "output_type": pa.float64()}
        if updates is None:
            return asked, asked
        place = str(Path(self.directory).absolute()) if self.directory else ""  # a worker may run elsewhere
        read = updates.map(
            ReadModels(analytics(self.dataset), place),
            schema=UPDATES_SCHEMA,
            on_error="dead-letter",
            name="model_read",
        )
        trees, regressions = read.split(kinds, into=("DTC", "MLR"), name="model_kind")
        return {**asked, "updates": trees, "decode": decoded}, {**asked, "updates": regressions, "decode": decoded}


def kinds(models: pa.RecordBatch) -> pa.Array:
    """Say for which operator each model is."""
    return models[KIND]


def _with(schema: pa.Schema, answer: str) -> pa.Schema:
    """Return the columns of a message that a model has answered."""
    return schema.append(pa.field(answer, pa.float64())).append(pa.field(MODEL, pa.string()))
