"""Where a model comes from: it travels with the flow, or it lies in a file, which the connectors know how to read."""

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Protocol

import cloudpickle

from headwater.model.errors import FlowError

VersionedModel = tuple[Any, str]


class ModelSpec(Protocol):
    """Where a model comes from. Frozen, and pickled with the flow."""

    @property
    def name(self) -> str:
        """What a message calls it."""
        ...

    @property
    def refresh_us(self) -> int | None:
        """After how long it is looked for again; None if never."""
        ...

    def load(self, known: str | None) -> VersionedModel | None:
        """Return the model (ONNX as bytes) and its version, or None if that is still the version `known`."""
        ...


@dataclass(frozen=True)
class FixedModel:
    """A model that travels with the flow: an object of its author, or ONNX as bytes."""

    model: Any
    version: str = field(default="")

    def __post_init__(self) -> None:
        """Name the version after the content, unless it was given."""
        if not self.version:
            object.__setattr__(self, "version", digest_of(_pickled(self.model)))

    @property
    def name(self) -> str:
        """Its class."""
        return f"the {'ONNX model' if isinstance(self.model, bytes) else type(self.model).__name__}"

    @property
    def refresh_us(self) -> int | None:
        """It stays as it is."""
        return None

    def load(self, known: str | None) -> VersionedModel | None:
        """Return it."""
        return None if known == self.version else (self.model, self.version)


def _pickled(model: Any) -> bytes:
    if isinstance(model, bytes):
        return model
    try:
        pickled: bytes = cloudpickle.dumps(model)
    except Exception as failure:  # pickling calls into whatever the model refers to
        raise FlowError(
            f"a {type(model).__name__} cannot be sent to workers ({type(failure).__name__}: {failure}); "
            "save it to a file and use model_file, or give ONNX as bytes"
        ) from failure
    return pickled


def digest_of(content: bytes) -> str:
    """Return the version of a model that has no other name."""
    return blake2b(content, digest_size=8).hexdigest()


def model_spec(given: Any) -> ModelSpec:
    """Return where a model comes from: what says so itself, else the model itself, which travels with the flow."""
    if isinstance(given, type):
        raise FlowError(f"model needs a trained model, not the class {given.__name__}")
    if callable(getattr(given, "load", None)) and hasattr(given, "refresh_us"):
        spec: ModelSpec = given
        return spec
    if isinstance(given, bytes) or any(hasattr(given, name) for name in ("predict", "predict_one", "score_one")):
        return FixedModel(given)
    raise FlowError(
        f"a {type(given).__name__} is not a model; give a scikit-learn estimator, a river model, ONNX as bytes, "
        "an object with predict(), or model_file(path)"
    )
