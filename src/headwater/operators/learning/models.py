"""Applying a model to a stream, and replacing it while the stream runs.

Where a model comes from is a `ModelSpec`: a `FixedModel` that travels with the flow, or a file, which the connectors
know how to read. There are two ways to replace one. A spec with `refresh_us` is asked again once that much time has
passed, and a `ModelWithUpdates` has a second input whose rows bring models. In both a new model counts from the next
batch on. A file that is broken leaves the model before it in place; a row that brings a broken one is a row that
raises, as any other.

A row may only bring ONNX, which computes and nothing else, or bytes that a function of the flow's author makes a model
of: a pickle from a stream would run whatever its sender likes.
The model a row brought is kept in the operator's state for all keys together, so it survives a restart and moves along.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

import pyarrow as pa

from headwater.model.errors import FlowError
from headwater.operators.base import Effect, Moment, Outputs, TimedLogic, TimedOperator
from headwater.operators.functions import WrongResult
from headwater.operators.learning.model_columns import is_number
from headwater.operators.learning.model_specs import FixedModel, ModelSpec, digest_of
from headwater.operators.learning.predictors import Predictor, open_predictor
from headwater.operators.state import OperatorState
from headwater.operators.state_values import decode_value, encode_value

MODEL_COLUMN: Final = "model"  # of a row that brings a model: its bytes,
VERSION_COLUMN: Final = "version"  # and what it is called, if it has a name

_CONTENT: Final = "model"  # shared entries: the bytes of the model that a row brought last,
_CURRENT: Final = "current"  # its digest and version, which are read for every batch,
_FOUND: Final = "found"  # and the version that some worker found last where the model comes from

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Model(TimedOperator):
    """Adds what a model predicts to every row."""

    kind: ClassVar[str] = "model"
    effect: ClassVar[Effect] = Effect.KEEPS
    model: ModelSpec
    features: tuple[str, ...]
    output: str = "prediction"
    proba: bool = False  # how probable each class is, instead of the class
    version_column: str | None = None  # where the version of the model that answered is written
    output_type: pa.DataType | None = None  # of the predictions, where the flow has to know it before it runs

    def __post_init__(self) -> None:
        """Refuse columns that cannot be."""
        if not self.features:
            raise FlowError("model needs the columns that the model takes, such as features=('x', 'y')")
        check_names(self.features, self.added)

    @property
    def added(self) -> tuple[str, ...]:
        """The columns that come out beside those that went in."""
        return (self.output,) if self.version_column is None else (self.output, self.version_column)

    @property
    def columns_needed(self) -> tuple[str, ...]:
        """The features."""
        return self.features

    def open(self) -> TimedLogic:
        """Load the model: a flow whose model is missing cannot run, whatever its rows are."""
        return ModelLogic(self)

    def output_schema(self, inputs: Sequence[pa.Schema | None]) -> pa.Schema | None:
        """Return the input's columns, the prediction, and the version if asked for."""
        known = inputs[0]
        if known is None:
            return None
        check_clash(known, self.added)
        kind = self.output_type or self._answer_type(known)
        if kind is None:
            return None
        made = known.append(pa.field(self.output, kind))
        return made if self.version_column is None else made.append(pa.field(self.version_column, pa.string()))

    def _answer_type(self, known: pa.Schema) -> pa.DataType | None:
        """Ask the model about a row of zeros: no library says beforehand what type its answers have."""
        if not isinstance(self.model, FixedModel):
            return None
        fields = [known.field(name) for name in self.features]
        row = {one.name: pa.array([0 if is_number(one.type) else None]).cast(one.type) for one in fields}
        try:
            answer = ask(open_predictor(self.model.model), pa.RecordBatch.from_pydict(row), self)
        except WrongResult as failure:
            raise FlowError(str(failure)) from failure
        except Exception:  # a model that does not like zeros may like its rows
            return None
        return None if pa.types.is_null(answer.type) else answer.type


@dataclass(frozen=True, kw_only=True)
class ModelWithUpdates(Model):
    """A model with a second input, whose rows bring the models that replace it."""

    effect: ClassVar[Effect] = Effect.CHANGES  # the rows that bring a model end here
    decode: Callable[[bytes], Any] | None = None  # makes a model of the bytes that a row brings; None: they are ONNX

    @property
    def state_settings(self) -> Mapping[str, object]:
        """The model that was brought last is kept."""
        return {}

    @property
    def inputs(self) -> int:
        """The rows to predict for, and the models."""
        return 2

    def columns_needed_of(self, source: int) -> tuple[str, ...]:
        """The features; of an update, the model."""
        return self.features if source == 0 else (MODEL_COLUMN,)

    def open(self) -> TimedLogic:
        """Load the model that counts until another arrives."""
        return ModelLogic(self, self.brought)

    def brought(self, content: bytes) -> Predictor:
        """Open the model that a row brought."""
        return open_predictor(content if self.decode is None else self.decode(content))


def check_names(features: Sequence[str], added: Sequence[str]) -> None:
    """Refuse a feature named twice, and an output that is a feature or another output."""
    twice = next((name for name in features if features.count(name) > 1), None)
    if twice is not None:
        raise FlowError(f"feature {twice!r} is named twice")
    clash = next((name for name in added if name in features or added.count(name) > 1), None)
    if clash is not None:
        raise FlowError(f"{clash!r} cannot be both a feature and an output, or two outputs; give one another name")


def check_clash(schema: pa.Schema, added: Sequence[str]) -> None:
    """Refuse rows that already have a column of the output's name."""
    clash = next((name for name in added if name in schema.names), None)
    if clash is not None:
        raise FlowError(f"the rows already have a column {clash!r}; give the output another name")


def ask(predictor: Predictor, batch: pa.RecordBatch, config: Model) -> pa.Array:
    """Return what the model says, in the declared type if there is one."""
    answer = (predictor.predict_proba if config.proba else predictor.predict)(batch, config.features)
    if config.output_type is None:
        return answer
    try:
        return answer.cast(config.output_type)
    except pa.ArrowException as failure:
        raise WrongResult(
            f"the model answers with {answer.type}, which is not the declared {config.output_type}: {failure}"
        ) from failure


def with_columns(batch: pa.RecordBatch, added: dict[str, pa.Array]) -> pa.RecordBatch:
    """Return the rows with more columns."""
    try:
        check_clash(batch.schema, tuple(added))
    except FlowError as failure:
        raise WrongResult(str(failure)) from None
    fields = [pa.field(name, column.type) for name, column in added.items()]
    schema = pa.schema([*batch.schema, *fields], metadata=batch.schema.metadata)
    return pa.RecordBatch.from_arrays([*batch.columns, *added.values()], schema=schema)


class OpenModel(NamedTuple):
    """A model ready to run."""

    predictor: Predictor
    version: str
    digest: str = ""  # of one that a row brought


class ModelLogic:
    """Runs a model. What it remembers are the opened models: another worker opens the same ones."""

    def __init__(self, config: Model, opened: Callable[[bytes], Predictor] | None = None) -> None:
        """Load the model that the flow begins with; `opened` opens those that rows bring, if they may."""
        self._config = config
        self._opened = opened
        loaded = config.model.load(None)
        assert loaded is not None, "a model was not loaded, though none was known"
        self._loaded = OpenModel(open_predictor(loaded[0]), loaded[1])
        self._brought: OpenModel | None = None
        self._looked_us: int | None = None
        self._heard: bytes | None = None

    def rows(self, batch: pa.RecordBatch, source: int, moment: Moment) -> Outputs:
        """Predict for rows; take a model from an update."""
        if source == 1:
            assert self._opened is not None, "a model without updates got one"
            self._replace(batch, moment.state, self._opened)
            return (None,)
        current = self._current(moment)
        config = self._config
        added = {config.output: ask(current.predictor, batch, config)}
        if config.version_column is not None:
            added[config.version_column] = pa.repeat(current.version, batch.num_rows)
        return (with_columns(batch, added),)

    def advance(self, moment: Moment) -> Outputs:
        """Nothing waits for time to pass."""
        return (None,)

    def wake_us(self, moment: Moment) -> int | None:
        """A model is looked for when rows want one."""
        return None

    def _current(self, moment: Moment) -> OpenModel:
        """Return the model a row brought last, else the newest where models come from."""
        brought = None if self._opened is None else self._brought_last(moment.state, self._opened)
        if brought is not None:
            return brought
        if self._config.model.refresh_us is not None:
            self._refresh(self._config.model.refresh_us, moment)
        return self._loaded

    def _refresh(self, refresh_us: int, moment: Moment) -> None:
        """Look again when it is time, or when the worker of a turn before has found another version.

        Without the second, rows would meet the new model and then once more the old one, as turns change workers.
        """
        if self._looked_us is None:
            self._looked_us = moment.now_us
        heard = moment.state.shared(_FOUND)
        if moment.now_us - self._looked_us < refresh_us and heard == self._heard:
            return
        self._looked_us = moment.now_us
        self._look()
        self._heard = self._loaded.version.encode()
        moment.state.share(_FOUND, self._heard)

    def _look(self) -> None:
        spec = self._config.model
        try:
            loaded = spec.load(self._loaded.version)
            if loaded is not None:
                self._loaded = OpenModel(open_predictor(loaded[0]), loaded[1])
        except Exception as failure:  # loading runs the code of a library on bytes that may be half written
            log.warning("%s cannot be used, so the model before it stays: %s", spec.name, failure)

    def _replace(self, updates: pa.RecordBatch, state: OperatorState, opened: Callable[[bytes], Predictor]) -> None:
        """Keep the last model; all are opened, so that which ones are refused does not depend on the batch."""
        for content, version in _models_of(updates):
            digest = digest_of(content)
            self._brought = OpenModel(opened(content), version or digest, digest)
            state.share(_CONTENT, content)
            state.share(_CURRENT, encode_value([digest, self._brought.version]))

    def _brought_last(self, state: OperatorState, opened: Callable[[bytes], Predictor]) -> OpenModel | None:
        current = state.shared(_CURRENT)
        if current is None:
            return None
        digest, version = decode_value(current)
        if self._brought is None or self._brought.digest != digest:
            content = state.shared(_CONTENT)
            assert content is not None, "the state names a model that it does not hold"
            self._brought = OpenModel(opened(content), version, digest)
        return self._brought._replace(version=version)


def _models_of(updates: pa.RecordBatch) -> list[tuple[bytes, str | None]]:
    names = updates.schema.names
    kind = updates.schema.field(MODEL_COLUMN).type if MODEL_COLUMN in names else None
    if kind is None or not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_null(kind)):
        found = "lacks it" if kind is None else f"has a {kind} there"
        raise WrongResult(f"a row that brings a model holds its bytes in column {MODEL_COLUMN!r}; this one {found}")
    contents: list[bytes | None] = updates.column(MODEL_COLUMN).to_pylist()
    versions = updates.column(VERSION_COLUMN).to_pylist() if VERSION_COLUMN in names else [None] * len(contents)
    return [
        (content, None if version is None else str(version))
        for content, version in zip(contents, versions, strict=True)
        if content is not None
    ]
