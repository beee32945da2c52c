"""Opening a model: whatever library it comes from, a whole batch goes in and one prediction per row comes out.

scikit-learn's estimators, and anything else with `predict`, get a matrix of numbers, or a DataFrame if they were
trained on one; ONNX gets the tensors that its inputs ask for; river gets one dict a row, as it is made for. The
libraries are optional, and imported by the first model that needs one.
"""

from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, Final, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa

from headwater.operators.functions import WrongResult
from headwater.operators.learning.model_columns import (
    Matrix,
    feature_column,
    feature_rows,
    is_number,
    list_column,
    numbers,
    plain,
    prediction_column,
)


class Predictor(Protocol):
    """A model ready to be asked."""

    def predict(self, batch: pa.RecordBatch, features: Sequence[str]) -> pa.Array:
        """Return a prediction for every row."""
        ...

    def predict_proba(self, batch: pa.RecordBatch, features: Sequence[str]) -> pa.Array:
        """Return how probable each class is, for every row: a list in the model's order, or river's map by label."""
        ...


def open_predictor(model: Any) -> Predictor:
    """Return the model ready to run; bytes are ONNX."""
    if isinstance(model, bytes):
        return OnnxPredictor(model)
    if hasattr(model, "predict_one") or hasattr(model, "score_one"):
        return RiverPredictor(model)
    if callable(getattr(model, "predict", None)):
        return EstimatorPredictor(model)
    raise WrongResult(
        f"a {type(model).__name__} is not a model; give a scikit-learn estimator, a river model, ONNX as bytes, "
        "or an object with predict()"
    )


def library(name: str, package: str | None = None) -> ModuleType:
    """Import an optional library, or say how to get it."""
    try:
        return import_module(name)
    except ModuleNotFoundError as failure:
        raise WrongResult(
            f"{package or name} is not installed, and this model needs it; pip install 'headwater[models]'"
        ) from failure


class EstimatorPredictor:
    """A scikit-learn estimator or pipeline, or whatever else has `predict`."""

    def __init__(self, model: Any) -> None:
        """Find out on what it was trained."""
        self._model = model
        names = getattr(model, "feature_names_in_", None)
        self._names = None if names is None else [str(name) for name in names]

    def predict(self, batch: pa.RecordBatch, features: Sequence[str]) -> pa.Array:
        """Call `predict` once."""
        return prediction_column(self._model.predict(self._given(batch, features)), batch.num_rows)

    def predict_proba(self, batch: pa.RecordBatch, features: Sequence[str]) -> pa.Array:
        """Call `predict_proba` once; the order is that of the model's `classes_`."""
        try:
            ask = self._model.predict_proba
        except AttributeError:
            raise _no_probabilities(self._model) from None
        return list_column(np.asarray(ask(self._given(batch, features))), batch.num_rows)

    def _given(self, batch: pa.RecordBatch, features: Sequence[str]) -> Any:
        if self._names is None:
            return np.column_stack([numbers(name, feature_column(batch, name)) for name in features])
        if sorted(self._names) != sorted(features):
            raise WrongResult(
                f"the model was trained on columns {', '.join(self._names)}, but the features are "
                f"{', '.join(features)}; name the same ones, with select if the rows call them otherwise"
            )
        return pd.DataFrame({name: _frame_column(name, feature_column(batch, name)) for name in self._names})


def _frame_column(name: str, column: pa.Array) -> Any:
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return column.to_numpy(zero_copy_only=False)
    return numbers(name, column)


class RiverPredictor:
    """A river model that is applied, not trained."""

    def __init__(self, model: Any) -> None:
        """Find out how it is asked, and whether it answers with numbers."""
        base = library("river.base", "river")
        last = last_step(model)
        self._model = model
        self._floats = isinstance(last, base.Regressor) or not hasattr(last, "predict_one")
        self._ask = model.predict_one if hasattr(last, "predict_one") else model.score_one
        self._whole = _predicts_many(model, base)

    def predict(self, batch: pa.RecordBatch, features: Sequence[str]) -> pa.Array:
        """Ask for the whole batch where the model offers it and no value is missing, else row by row."""
        whole = self._frame(batch, features) if self._whole else None
        if whole is not None:
            return prediction_column(self._model.predict_many(whole), batch.num_rows)
        found = pa.array([plain(self._ask(row)) for row in feature_rows(batch, features)])
        return found.cast(pa.float64()) if self._floats else found

    def predict_proba(self, batch: pa.RecordBatch, features: Sequence[str]) -> pa.Array:
        """Ask row by row; which classes there are river says anew for every row, so the answer is a map."""
        if not hasattr(last_step(self._model), "predict_proba_one"):
            raise _no_probabilities(self._model)
        answers = [self._model.predict_proba_one(row) for row in feature_rows(batch, features)]
        listed = [sorted((str(label), float(share)) for label, share in answer.items()) for answer in answers]
        return pa.array(listed, pa.map_(pa.string(), pa.float64()))

    def _frame(self, batch: pa.RecordBatch, features: Sequence[str]) -> pd.DataFrame | None:
        columns = {name: feature_column(batch, name) for name in features}
        if not all(is_number(column.type) for column in columns.values()):
            return None
        frame = pd.DataFrame({name: numbers(name, column) for name, column in columns.items()})
        return None if bool(frame.isna().to_numpy().any()) else frame


def last_step(model: Any) -> Any:
    """Return the part of a river pipeline that answers."""
    while hasattr(model, "steps"):
        model = list(model.steps.values())[-1]
    return model


def _predicts_many(model: Any, base: ModuleType) -> bool:
    """Whether a river regressor takes whole batches; a pipeline has the method whatever its steps can do."""
    steps = list(model.steps.values()) if hasattr(model, "steps") else [model]
    return isinstance(steps[-1], base.MiniBatchRegressor) and all(
        isinstance(step, base.MiniBatchTransformer) for step in steps[:-1]
    )


_TENSORS: Final[dict[str, Any]] = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
    "tensor(string)": np.object_,
}


class OnnxPredictor:
    """An ONNX model: either one input that takes all features as a matrix, or one input for each, by name."""

    def __init__(self, content: bytes) -> None:
        """Open a session on one thread: the pool's workers are the parallelism of a node."""
        runtime = library("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3  # errors come as exceptions; its warnings would go past our log
        try:
            self._session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as failure:  # onnxruntime has a class of its own for each way to be wrong
            raise WrongResult(f"these {len(content)} bytes are not a model in ONNX: {failure}") from failure
        self._inputs = self._session.get_inputs()
        self._outputs = [output.name for output in self._session.get_outputs()]

    def predict(self, batch: pa.RecordBatch, features: Sequence[str]) -> pa.Array:
        """Take the first output."""
        return prediction_column(self._run(self._outputs[0], batch, features), batch.num_rows)

    def predict_proba(self, batch: pa.RecordBatch, features: Sequence[str]) -> pa.Array:
        """Take the output that is called so, else the second."""
        named = [name for name in self._outputs if "prob" in name.lower()] or self._outputs[1:]
        if not named:
            raise WrongResult("the ONNX model has one output and no probabilities; leave proba=True away")
        answer = self._run(named[0], batch, features)
        if isinstance(answer, list):  # ZipMap: a dict for each row, with the same labels in the same order
            answer = np.array([list(shares.values()) for shares in answer])
        return list_column(answer, batch.num_rows)

    def _run(self, output: str, batch: pa.RecordBatch, features: Sequence[str]) -> Any:
        return self._session.run([output], self._tensors(batch, features))[0]

    def _tensors(self, batch: pa.RecordBatch, features: Sequence[str]) -> dict[str, Matrix]:
        if len(self._inputs) == 1:
            [single] = self._inputs
            width = single.shape[-1] if single.shape else None
            if isinstance(width, int) and width != len(features):
                raise WrongResult(f"the ONNX model takes {width} features, but {len(features)} are named")
            columns = [_tensor_column(name, feature_column(batch, name), single.type) for name in features]
            return {single.name: np.column_stack(columns)}
        wanted = [one.name for one in self._inputs]
        if sorted(wanted) != sorted(features):
            raise WrongResult(
                f"the ONNX model takes {', '.join(wanted)}, but the features are {', '.join(features)}; "
                "name the same ones, with select if the rows call them otherwise"
            )
        return {
            one.name: _tensor_column(one.name, feature_column(batch, one.name), one.type).reshape(-1, 1)
            for one in self._inputs
        }


def _tensor_column(name: str, column: pa.Array, tensor: str) -> Matrix:
    dtype = _TENSORS.get(tensor)
    if dtype is None:
        raise WrongResult(f"the ONNX model takes a {tensor}, which rows have nothing for")
    if dtype is np.object_:
        return np.array(["" if value is None else str(value) for value in column.to_pylist()], dtype=object)
    floats = numbers(name, column)
    if dtype not in (np.float32, np.float64) and bool(np.isnan(floats).any()):
        raise WrongResult(f"feature {name!r} has nulls, but the ONNX model takes whole numbers; fill them before")
    return floats.astype(dtype)


def _no_probabilities(model: Any) -> WrongResult:
    return WrongResult(f"a {type(model).__name__} knows no probabilities; leave proba=True away")
