"""Models in files: which are loaded, which are refused, and what happens when one is replaced under a running flow."""

import os
import pickle
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headwater.connectors.models import FileModel, model_file
from headwater.model.errors import ConnectorError, FlowError, HeadwaterError
from headwater.operators.base import Moment
from headwater.operators.learning.model_specs import model_spec
from headwater.operators.learning.models import Model
from headwater.operators.state import OperatorState
from tests.operators.timed_bench import DictStore, TimedBench

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is optional: pip install 'headwater[models]'")
pytest.importorskip("onnxruntime", reason="onnxruntime is optional: pip install 'headwater[models]'")

X = np.random.default_rng(7).normal(size=(40, 2))


class Times:
    """A model of the user's own."""

    def __init__(self, factor: float) -> None:
        """Keep the factor."""
        self.factor = factor

    def predict(self, matrix: Any) -> Any:
        """Multiply."""
        return matrix[:, 0] * self.factor


def trained(factor: float) -> Any:
    """Return a regression that multiplies the sum of two features."""
    from sklearn.linear_model import LinearRegression

    return LinearRegression().fit(X, factor * X.sum(axis=1))


def onnx(factor: float) -> bytes:
    """Return it as ONNX."""
    from skl2onnx import to_onnx

    content: bytes = to_onnx(trained(factor), X[:1].astype(np.float32)).SerializeToString()
    return content


def joblib_bytes(path: Path, factor: float) -> None:
    """Write it as scikit-learn's users do."""
    pytest.importorskip("joblib").dump(trained(factor), path)


class OneWorker:
    """A worker that has the operator open, and a clock."""

    def __init__(self, spec: FileModel) -> None:
        """Open it."""
        self._logic = Model(model=spec, features=("a", "b"), version_column="v").open()
        self._store = DictStore({})

    def answer(self, now_us: int) -> float:
        """Return what is predicted for one row at this time."""
        moment = Moment(OperatorState(self._store), now_us=now_us)
        [made] = self._logic.rows(pa.RecordBatch.from_pylist([{"a": 1.0, "b": 1.0}]), 0, moment)
        assert made is not None
        return round(float(made["prediction"][0].as_py()), 3)


def test_an_onnx_file_is_loaded_as_it_is(tmp_path: Path) -> None:
    """It computes and nothing else, so nobody has to vouch for it."""
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx(2.0))
    spec = model_file(path)
    loaded = spec.load(None)
    assert loaded is not None
    assert loaded[0] == path.read_bytes()
    assert spec.load(loaded[1]) is None
    assert model_spec(spec) is spec
    assert OneWorker(spec).answer(0) == pytest.approx(4.0, abs=1e-3)


@pytest.mark.parametrize("name", ["model.pkl", "model.pickle", "model.joblib"])
def test_a_pickle_is_loaded_only_on_the_authors_word(tmp_path: Path, name: str) -> None:
    """Loading one runs code."""
    path = tmp_path / name
    if name.endswith("joblib"):
        joblib_bytes(path, 3.0)
    else:
        path.write_bytes(pickle.dumps(trained(3.0)))
    with pytest.raises(FlowError, match=r"is a pickle, .* convert the model to ONNX, or pass trusted=True"):
        model_file(path)
    assert OneWorker(model_file(path, trusted=True)).answer(0) == pytest.approx(6.0)


def test_the_place_is_fixed_when_the_flow_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker's working directory is another; and nothing is opened yet."""
    monkeypatch.chdir(tmp_path)
    spec = model_file("not-there-yet.onnx", refresh="10 seconds")
    assert (spec.path, spec.refresh_us) == (str(tmp_path / "not-there-yet.onnx"), 10_000_000)
    assert model_file("x.onnx", refresh=timedelta(seconds=2)).refresh_us == 2_000_000
    assert pickle.loads(pickle.dumps(spec)) == spec


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: model_file("weights.h5"), r"weights.h5 does not look like a model; its name must end in \.onnx"),
        (lambda: model_file("model.onnx", refresh="0 seconds"), "no time at all"),
        (lambda: model_file("model.onnx", refresh="often"), "'often' is not a duration"),
        (lambda: model_file("model.onnx", refresh=10), "10 is not a duration"),  # type: ignore[arg-type]
    ],
)
def test_a_file_or_a_time_that_cannot_be_is_refused(make: Any, sentence: str) -> None:
    """While the flow is written."""
    with pytest.raises(HeadwaterError, match=sentence):
        make()


def test_a_model_that_is_not_there_or_not_a_model_keeps_the_operator_from_opening(tmp_path: Path) -> None:
    """With a sentence that names the file."""
    with pytest.raises(ConnectorError, match=r"nowhere\.onnx does not exist"):
        OneWorker(model_file(tmp_path / "nowhere.onnx"))
    (tmp_path / "model.pkl").write_bytes(b"not a pickle")
    with pytest.raises(ConnectorError, match=r"model\.pkl cannot be loaded as a model \(UnpicklingError"):
        OneWorker(model_file(tmp_path / "model.pkl", trusted=True))
    (tmp_path / "model.joblib").write_bytes(b"")
    with pytest.raises(ConnectorError, match=r"model\.joblib cannot be loaded as a model"):
        OneWorker(model_file(tmp_path / "model.joblib", trusted=True))


def replace(path: Path, content: bytes) -> None:
    """Put a file in the place of another, at once."""
    other = path.with_suffix(".new")
    other.write_bytes(content)
    os.replace(other, path)


def test_a_file_put_in_place_is_used_from_the_next_look_on(tmp_path: Path) -> None:
    """After the refresh, and not before."""
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx(1.0))
    worker = OneWorker(model_file(path, refresh="10 seconds"))
    assert worker.answer(0) == pytest.approx(2.0, abs=1e-3)
    replace(path, onnx(5.0))
    assert worker.answer(9_999_999) == pytest.approx(2.0, abs=1e-3)
    assert worker.answer(10_000_000) == pytest.approx(10.0, abs=1e-3)


@pytest.mark.parametrize("broken", ["half written", "gone", "another file's bytes"])
def test_a_file_that_is_broken_for_a_while_leaves_the_model_in_use(
    tmp_path: Path, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    """And is taken as soon as it is whole."""
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx(1.0))
    worker = OneWorker(model_file(path, refresh="10 seconds"))
    worker.answer(0)
    match broken:
        case "gone":
            path.unlink()
        case "half written":
            path.write_bytes(onnx(5.0)[:100])
        case _:
            path.write_bytes(pickle.dumps(Times(3.0)))
    assert worker.answer(10_000_000) == pytest.approx(2.0, abs=1e-3)
    assert f"the model in {path} cannot be used, so the model before it stays" in caplog.text
    replace(path, onnx(5.0))
    assert worker.answer(20_000_000) == pytest.approx(10.0, abs=1e-3)


def test_a_pickle_is_replaced_like_any_other(tmp_path: Path) -> None:
    """Of the same length, and even within the resolution of the file's time, if its inode is new."""
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps(Times(2.0)))
    worker = OneWorker(model_file(path, refresh="1 second", trusted=True))
    assert worker.answer(0) == 2.0
    replace(path, pickle.dumps(Times(3.0)))
    assert worker.answer(1_000_000) == 3.0


def test_a_file_touched_but_not_changed_is_the_same_version(tmp_path: Path) -> None:
    """The version is the content's, whoever writes it and when."""
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx(1.0))
    spec = model_file(path, refresh="1 second")
    loaded = spec.load(None)
    assert loaded is not None
    os.utime(path, ns=(1, 1))
    assert spec.load(loaded[1]) is None
    copy = tmp_path / "copy.onnx"
    copy.write_bytes(path.read_bytes())
    assert model_file(copy).load(loaded[1]) is None


def test_the_operator_runs_on_the_bench_as_any_other(tmp_path: Path) -> None:
    """Opened anew for every call."""
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx(1.0))
    bench = TimedBench(Model(model=model_file(path), features=("a", "b"), version_column="v"))
    [row] = bench.rows([{"a": 2.0, "b": 3.0}])
    assert row["prediction"] == pytest.approx(5.0, abs=1e-3)
    assert row["v"] == (model_file(path).load(None) or ("", ""))[1]
    assert bench.operator.output_schema([pa.schema({"a": "f8", "b": "f8"})]) is None
