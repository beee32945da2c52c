"""Models that replace those of a running flow: read from a line, checked, and passed on to whom they are for.

A line is a model itself, as one line of JSON; or the name of its file, as TRAIN publishes it in the benchmark; or a
result row of `riotbench.train` as a sink writes it, whose `message` is one of the two.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

import headwater as hw

from .analytics import Analytics
from .models import CLASSES, DecisionTree, Model, WrongModel, decoded, encoded, kind_of, read_model

KIND: Final = "kind"
UPDATES_SCHEMA: Final = pa.schema([(KIND, pa.string()), ("version", pa.string()), ("model", pa.binary())])


@dataclass(frozen=True)
class ReadModels:
    """Makes of each line the model that it is or names."""

    analytics: Analytics
    directory: str = ""  # where files lie that messages name

    def __call__(self, row: hw.Row) -> hw.Row:
        """Return the model in a checked form; raises WrongModel if there is none, or if it is for something else."""
        model = self._model(row["line"])
        check_fits(model, self.analytics)
        return {KIND: kind_of(model.name), "version": model.name, "model": encoded(model)}

    def _model(self, line: str) -> Model:
        said = _said(line.strip())
        if said.startswith("{"):
            return decoded(said.encode())
        if not self.directory:
            raise WrongModel(f"a message names the model {said[:80]!r}, but no directory=... says where models lie")
        return read_model(Path(self.directory), said)


def check_fits(model: Model, analytics: Analytics) -> None:
    """Refuse a model that was trained for something else."""
    if model.attributes != analytics.attributes:
        raise WrongModel(
            f"model {model.name} takes {', '.join(model.attributes)}; the messages of {analytics.dataset.name} have "
            f"{', '.join(analytics.attributes)}"
        )
    if isinstance(model, DecisionTree):
        if model.classes != CLASSES:
            raise WrongModel(f"model {model.name} tells {', '.join(model.classes)} apart, not {', '.join(CLASSES)}")
    elif model.target != analytics.target:
        raise WrongModel(f"model {model.name} predicts {model.target}, not {analytics.target}")


def _said(line: str) -> str:
    """Return what a line says, taken out of a result row if it is one."""
    if not line.startswith("{"):
        return line
    try:
        message = msgspec.json.decode(line, type=dict[str, Any]).get("message")
    except msgspec.DecodeError:
        return line  # what is wrong with it is said where it is taken for a model
    return message if isinstance(message, str) else line
