"""Models on a stream: what they are given, what comes out, and how one replaces another while rows go on."""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.model.errors import FlowError
from headwater.operators.base import Effect, Moment, TimedLogic
from headwater.operators.functions import WrongResult
from headwater.operators.learning.model_specs import FixedModel, digest_of, model_spec
from headwater.operators.learning.models import Model, ModelWithUpdates
from headwater.operators.learning.predictors import library
from headwater.operators.state import OperatorState
from tests.operators.timed_bench import DictStore, Row, TimedBench

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is optional: pip install 'headwater[models]'")
pytest.importorskip("onnxruntime", reason="onnxruntime is optional: pip install 'headwater[models]'")
pytest.importorskip("river", reason="river is optional: pip install 'headwater[models]'")
anomaly = pytest.importorskip("river.anomaly")
linear_model = pytest.importorskip("river.linear_model")
naive_bayes = pytest.importorskip("river.naive_bayes")
preprocessing = pytest.importorskip("river.preprocessing")

X = np.random.default_rng(7).normal(size=(60, 2))
ROWS = [{"id": number, "a": float(a), "b": float(b)} for number, (a, b) in enumerate(X)]
LABELS = np.where(X[:, 0] + X[:, 1] > 0, "good", "bad")


class Weighted:
    """A model of the user's own: a weighted sum that counts NaN as nothing."""

    def __init__(self, *weights: float) -> None:
        """Keep the weights."""
        self.weights = np.array(weights)

    def predict(self, matrix: Any) -> Any:
        """Add up."""
        return np.nansum(matrix * self.weights, axis=1)


class Answering:
    """A model that answers the same whatever it is asked."""

    def __init__(self, answer: Any) -> None:
        """Keep the answer."""
        self.answer = answer

    def predict(self, matrix: Any) -> Any:
        """Answer."""
        return self.answer


def model(given: Any, features: Sequence[str] = ("a", "b"), **options: Any) -> Model:
    """Return the operator."""
    return Model(model=model_spec(given), features=tuple(features), **options)


def predictions(operator: Model, rows: Sequence[Row] = ROWS) -> list[Any]:
    """Return what is predicted for these rows."""
    return [row[operator.output] for row in TimedBench(operator).rows(rows)]


def regression(*weights: float) -> Any:
    """Return a trained linear regression."""
    from sklearn.linear_model import LinearRegression

    return LinearRegression().fit(X, X @ np.array(weights))


def classifier() -> Any:
    """Return a trained logistic regression of texts."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression().fit(X, LABELS)


def onnx(trained: Any, **options: Any) -> bytes:
    """Return a scikit-learn model as ONNX."""
    from skl2onnx import to_onnx

    content: bytes = to_onnx(trained, X[:1].astype(np.float32), **options).SerializeToString()
    return content


def test_rows_leave_with_all_their_columns_and_the_prediction_behind_them() -> None:
    """In order, and none is lost."""
    made = TimedBench(model(Weighted(1, 10))).rows([{"a": 1.0, "id": "x", "b": 2.0}, {"a": 3.0, "id": "y", "b": 0.0}])
    assert made == [
        {"a": 1.0, "id": "x", "b": 2.0, "prediction": 21.0},
        {"a": 3.0, "id": "y", "b": 0.0, "prediction": 3.0},
    ]
    assert Model.effect is Effect.KEEPS


def test_a_scikit_learn_estimator_predicts_what_it_predicts_by_itself() -> None:
    """One call for the whole batch."""
    trained = regression(2, -1)
    assert predictions(model(trained)) == pytest.approx(trained.predict(X).tolist())


def test_features_are_taken_in_the_order_they_are_named() -> None:
    """Not in the order of the columns."""
    assert predictions(model(Weighted(1, 10), ("b", "a")), [{"a": 1.0, "b": 2.0}]) == [12.0]


@pytest.mark.parametrize(
    ("column", "number"),
    [
        (pa.array([3], pa.int8()), 3.0),
        (pa.array([True]), 1.0),
        (pa.array(["2.5"]).cast(pa.decimal128(5, 2)), 2.5),
        (pa.array([2**53 + 1]), float(2**53)),
        (pa.array([4.0]).dictionary_encode(), 4.0),
        (pa.array([None]), 0.0),  # NaN, which Weighted counts as nothing
        (pa.array([None], pa.int64()), 0.0),
    ],
)
def test_every_kind_of_number_is_a_feature_and_null_is_nan(column: pa.Array, number: float) -> None:
    """Whole numbers, booleans, decimals, dictionaries, nulls."""
    made = TimedBench(model(Weighted(1), ("a",))).rows(pa.RecordBatch.from_arrays([column], names=["a"]))
    assert [row["prediction"] for row in made] == [number]


def test_an_estimator_trained_on_a_data_frame_gets_one_with_texts_and_in_its_own_order() -> None:
    """The features may be named in any order; the names decide."""
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    frame = pd.DataFrame({"kind": ["x", "y", "x", "y"], "a": [1.0, 2.0, 3.0, 4.0]})
    encode = make_column_transformer((OneHotEncoder(), ["kind"]), remainder="passthrough")
    trained = make_pipeline(encode, LinearRegression()).fit(frame, [11.0, 22.0, 13.0, 24.0])
    rows = [{"a": 5.0, "kind": "x"}, {"a": 5.0, "kind": "y"}]
    assert predictions(model(trained, ("a", "kind")), rows) == pytest.approx([15.0, 25.0])


@pytest.mark.parametrize("as_onnx", [False, True])
def test_a_classifier_answers_with_its_labels(as_onnx: bool) -> None:
    """Texts stay texts, also from ONNX."""
    trained = classifier()
    found = predictions(model(onnx(trained) if as_onnx else trained))
    assert found == trained.predict(X).tolist()


@pytest.mark.parametrize("how", ["scikit-learn", "onnx", "onnx without labels"])
def test_probabilities_are_a_list_in_the_order_of_the_classes(how: str) -> None:
    """Whether ONNX gives a matrix or a dict per row."""
    trained = classifier()
    content = onnx(trained, options={"zipmap": how == "onnx"})
    found = predictions(model(trained if how == "scikit-learn" else content, proba=True))
    assert np.array(found) == pytest.approx(trained.predict_proba(X), abs=1e-6)


def test_an_onnx_model_predicts_what_the_model_it_was_made_of_predicts() -> None:
    """To the precision of 32 bits."""
    trained = regression(2, -1)
    assert predictions(model(onnx(trained))) == pytest.approx(trained.predict(X).tolist(), abs=1e-5)


def test_an_onnx_model_with_an_input_for_each_column_finds_them_by_name() -> None:
    """As made of a pipeline over a DataFrame; texts are tensors too."""
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    frame = pd.DataFrame({"kind": ["x", "y", "x", "y"], "a": [1.0, 2.0, 3.0, 4.0]})
    encode = make_column_transformer((OneHotEncoder(), ["kind"]), remainder="passthrough")
    trained = make_pipeline(encode, LinearRegression()).fit(frame, [11.0, 22.0, 13.0, 24.0])
    kinds = [("kind", StringTensorType([None, 1])), ("a", FloatTensorType([None, 1]))]
    content = convert_sklearn(trained, initial_types=kinds).SerializeToString()
    rows = [{"a": 5.0, "kind": "x"}, {"a": 5.0, "kind": "y"}]
    assert predictions(model(content, ("a", "kind")), rows) == pytest.approx([15.0, 25.0], abs=1e-4)
    with pytest.raises(WrongResult, match="takes kind, a, but the features are a, b"):
        predictions(model(content), ROWS)


def river_regression() -> Any:
    """Return a river pipeline that can predict whole batches."""
    trained = preprocessing.StandardScaler() | linear_model.LinearRegression()
    for a, b in X.tolist():
        trained.learn_one({"a": a, "b": b}, 3 * a - b)
    return trained


def test_a_river_regressor_predicts_alike_in_whole_batches_and_row_by_row() -> None:
    """A null among the rows makes it go row by row, and is absent from the row's dict."""
    trained = river_regression()
    expected = [trained.predict_one({"a": a, "b": b}) for a, b in X.tolist()]
    assert predictions(model(trained)) == pytest.approx(expected)
    found = predictions(model(trained), [*ROWS, {"a": 1.0, "b": None}, {"a": float("nan"), "b": 2.0}])
    assert found == pytest.approx([*expected, trained.predict_one({"a": 1.0}), trained.predict_one({"b": 2.0})])


def test_a_river_classifier_answers_with_labels_and_with_a_map_of_probabilities() -> None:
    """River names the classes anew for every row, so a list would not say which is which."""
    trained = naive_bayes.GaussianNB()
    for (a, b), label in zip(X.tolist(), LABELS.tolist(), strict=True):
        trained.learn_one({"a": a, "b": b}, label)
    rows = ROWS[:5]
    assert predictions(model(trained), rows) == [trained.predict_one({"a": r["a"], "b": r["b"]}) for r in rows]
    for row, shares in zip(rows, predictions(model(trained, proba=True), rows), strict=True):
        expected = trained.predict_proba_one({"a": row["a"], "b": row["b"]})
        assert dict(shares) == pytest.approx({"bad": expected["bad"], "good": expected["good"]})


def test_a_river_model_may_take_texts() -> None:
    """Its dicts hold whatever a row holds."""
    trained = preprocessing.OneHotEncoder() | linear_model.LinearRegression()
    for kind, truth in [("x", 1.0), ("y", 5.0)] * 200:
        trained.learn_one({"kind": kind}, truth)
    assert predictions(model(trained, ("kind",)), [{"kind": "y"}])[0] == pytest.approx(5.0, abs=0.5)


def test_a_river_anomaly_detector_answers_with_its_score() -> None:
    """A number, also where river gives a whole one."""
    trained = anomaly.HalfSpaceTrees(n_trees=3, height=3, window_size=20, seed=1)
    for a, b in X.tolist():
        trained.learn_one({"a": a, "b": b})
    found = predictions(model(trained), [{"a": 0.0, "b": 0.0}, {"a": 0.1, "b": 0.9}])
    assert found == [trained.score_one({"a": 0.0, "b": 0.0}), trained.score_one({"a": 0.1, "b": 0.9})]
    fresh = TimedBench(model(anomaly.HalfSpaceTrees(seed=1))).rows([{"a": 0.0, "b": 0.0}])
    assert isinstance(fresh[0]["prediction"], float)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (np.array([[1.0], [2.0]]), [1.0, 2.0]),
        (np.array([[1, 2], [3, 4]]), [[1.0, 2.0], [3.0, 4.0]]),
        (np.array([1, 2], dtype=np.uint8), [1, 2]),
        (np.array([1.5, float("nan")], dtype=np.float32), [1.5, "nan"]),
        ([True, False], [True, False]),
        (["x", None], ["x", None]),
        (pd.Series([1.0, 2.0]), [1.0, 2.0]),
        (pa.chunked_array([["x"], ["y"]]), ["x", "y"]),
    ],
)
def test_answers_of_many_shapes_become_a_column(answer: Any, expected: list[Any]) -> None:
    """Numbers are 64 bits wide whatever the library computes in; NaN is a number and stays."""
    found = predictions(model(Answering(answer)), ROWS[:2])
    assert [str(one) if one != one else one for one in found] == expected


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ([1.0], "answered 1 times for 2 rows"),
        (np.zeros((2, 2, 2)), "3 dimensions"),
        (np.zeros((3, 2)), "answered 3 times"),
        (3.0, "0 dimensions"),
        (np.array(["x", 1.0], dtype=object), "do not make a column"),
    ],
)
def test_an_answer_that_is_not_one_per_row_is_refused(answer: Any, sentence: str) -> None:
    """With a sentence."""
    with pytest.raises(WrongResult, match=sentence):
        predictions(model(Answering(answer)), ROWS[:2])


@pytest.mark.parametrize(
    ("operator", "row", "sentence"),
    [
        (lambda: model(Weighted(1, 1)), {"a": 1.0}, "lack feature 'b'; they have a"),
        (lambda: model(Weighted(1, 1)), {"a": 1.0, "b": "x"}, "feature 'b' is a string"),
        (lambda: model(Weighted(1, 1)), {"a": 1.0, "b": 2.0, "prediction": 0}, "already have a column 'prediction'"),
        (lambda: model(Weighted(1, 1), proba=True), {"a": 1.0, "b": 2.0}, "a Weighted knows no probabilities"),
        (lambda: model(river_regression(), proba=True), {"a": 1.0, "b": 2.0}, "a Pipeline knows no probabilities"),
        (lambda: model(onnx(regression(1, 1)), proba=True), {"a": 1.0, "b": 2.0}, "one output and no probabilities"),
        (lambda: model(onnx(regression(1, 1)), ("a",)), {"a": 1.0}, "takes 2 features, but 1 are named"),
        (lambda: model(b"not onnx"), {"a": 1.0, "b": 2.0}, "8 bytes are not a model in ONNX"),
    ],
)
def test_rows_and_models_that_do_not_fit_are_refused_with_a_sentence(operator: Any, row: Row, sentence: str) -> None:
    """Which feature, which model, what to do."""
    with pytest.raises(WrongResult, match=sentence):
        predictions(operator(), [row])


def test_an_estimator_trained_on_other_columns_is_refused_when_the_flow_is_compiled() -> None:
    """Where the columns of the input are known."""
    trained = sklearn.linear_model.LinearRegression().fit(pd.DataFrame(X, columns=["p", "q"]), X[:, 0])
    with pytest.raises(FlowError, match="trained on columns p, q, but the features are a, b"):
        model(trained).output_schema([pa.schema({"a": pa.float64(), "b": pa.float64()})])


@pytest.mark.parametrize(
    ("given", "options", "kind"),
    [
        (lambda: regression(1, 1), {}, pa.float64()),
        (lambda: onnx(regression(1, 1)), {}, pa.float64()),
        (classifier, {}, pa.string()),
        (classifier, {"proba": True}, pa.list_(pa.float64())),
        (river_regression, {}, pa.float64()),
        (lambda: Answering([None]), {}, None),
        (lambda: Answering([]), {"output_type": pa.float32()}, pa.float32()),
    ],
)
def test_the_type_of_the_prediction_is_known_before_it_runs(given: Any, options: Any, kind: Any) -> None:
    """Of a model that travels with the flow, or where it is declared."""
    known = pa.schema({"a": pa.float64(), "b": pa.int64(), "t": pa.timestamp("us")})
    operator = model(given(), version_column="v", **options)
    made = operator.output_schema([known])
    assert made == (None if kind is None else known.append(pa.field("prediction", kind)).append(pa.field("v", "str")))
    assert operator.output_schema([None]) is None
    assert operator.columns_needed == ("a", "b")


def test_a_feature_of_a_wrong_type_is_refused_when_the_flow_is_compiled() -> None:
    """So is an output that is there already."""
    with pytest.raises(FlowError, match="feature 'b' is a timestamp"):
        model(Weighted(1, 1)).output_schema([pa.schema({"a": pa.float64(), "b": pa.timestamp("us")})])
    with pytest.raises(FlowError, match="already have a column 'prediction'"):
        model(Weighted(1)).output_schema([pa.schema({"a": "f8", "b": "f8", "prediction": "f8"})])


def test_a_declared_type_is_kept_or_refused() -> None:
    """It holds for every model that may follow."""
    assert predictions(model(Weighted(1, 1), output_type=pa.int64()), [{"a": 1.0, "b": 2.0}]) == [3]
    with pytest.raises(WrongResult, match="answers with string, which is not the declared double"):
        predictions(model(Answering(["x"]), output_type=pa.float64()), ROWS[:1])


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: model("model.onnx"), r"a str is not a model; .* model_file\(path\)"),
        (lambda: model(Weighted), "not the class Weighted"),
        (lambda: model(Weighted(1), ()), "needs the columns"),
        (lambda: model(Weighted(1), ("a", "a")), "named twice"),
        (lambda: model(Weighted(1), ("a",), output="a"), "both a feature and an output"),
        (lambda: model(Weighted(1), ("a",), version_column="prediction"), "two outputs"),
        (lambda: model(Answering(answer for answer in (1, 2))), "cannot be sent to workers"),
    ],
)
def test_a_flow_that_cannot_be_is_refused_while_it_is_written(make: Any, sentence: str) -> None:
    """Before anything runs."""
    with pytest.raises(FlowError, match=sentence):
        make()


def test_a_library_that_is_missing_is_named_with_the_way_to_get_it() -> None:
    """They are optional."""
    with pytest.raises(WrongResult, match=r"nonexistent is not installed.*headwater\[models\]"):
        library("nonexistent")


def test_the_operator_travels_though_a_session_does_not() -> None:
    """The configuration holds bytes; the session is opened where it runs."""
    operator = model(onnx(regression(1, 2)))
    assert pickle.loads(pickle.dumps(operator)) == operator
    assert predictions(pickle.loads(pickle.dumps(operator))) == predictions(operator)


def test_a_model_has_the_version_of_its_content_and_the_rows_can_say_it() -> None:
    """Equal content is one version."""
    content = onnx(regression(1, 2))
    [row] = TimedBench(model(content, version_column="model_version")).rows(ROWS[:1])
    assert row["model_version"] == FixedModel(content).version == digest_of(content)
    assert FixedModel(Weighted(1)).version != FixedModel(Weighted(2)).version
    assert FixedModel(Weighted(1), "v1").version == "v1"


@settings(max_examples=25, deadline=None)
@given(cuts=st.sets(st.integers(1, len(ROWS) - 1), max_size=8))
def test_predictions_do_not_depend_on_the_batches(cuts: set[int]) -> None:
    """Any cutting of the rows gives the same."""
    bench = TimedBench(model(Weighted(3, 1)))
    edges = [0, *sorted(cuts), len(ROWS)]
    for start, stop in pairwise(edges):
        bench.rows(ROWS[start:stop])
    assert [row["prediction"] for row in bench.out["out"]] == predictions(model(Weighted(3, 1)))
    assert bench.kept == {}


# A model that is looked for again while the flow runs.


@dataclass
class Shelf:
    """A place where models lie, as a file would be: its owner may put another one there."""

    model: Any = None
    version: str = ""
    refresh_us: int | None = 10
    looks: list[str | None] = field(default_factory=list)
    name: str = "the model on the shelf"

    def put(self, model: Any, version: str) -> None:
        """Replace what lies there."""
        self.model, self.version = model, version

    def load(self, known: str | None) -> tuple[Any, str] | None:
        """Give out what lies there, if it is new."""
        self.looks.append(known)
        if isinstance(self.model, Exception):
            raise self.model
        return None if known == self.version else (self.model, self.version)


class Workers:
    """Several workers that take turns on one instance: each has opened the operator, and they share its state."""

    def __init__(self, operator: Model, count: int = 1) -> None:
        """Open the operator in each."""
        self.store = DictStore({})
        self.logics: list[TimedLogic] = [operator.open() for _ in range(count)]

    def turn(self, worker: int, now_us: int, rows: Sequence[Row] = ({"a": 1.0},), source: int = 0) -> list[Row]:
        """Run one turn and commit it."""
        moment = Moment(OperatorState(self.store), now_us=now_us)
        [made] = self.logics[worker].rows(pa.RecordBatch.from_pylist(list(rows)), source, moment)
        self.store.kept |= {entry: value for entry, value in moment.state.changes.items() if value is not None}
        return [] if made is None else made.to_pylist()


def shelved(count: int = 1, refresh_us: int | None = 10) -> tuple[Shelf, Workers]:
    """Return workers whose model lies on a shelf."""
    shelf = Shelf(Weighted(1), "v1", refresh_us)
    return shelf, Workers(Model(model=shelf, features=("a",), version_column="v"), count)


def test_a_new_model_is_used_from_the_first_batch_after_the_refresh() -> None:
    """And not before, since nobody looks."""
    shelf, workers = shelved()
    workers.turn(0, 100)
    shelf.put(Weighted(2), "v2")
    assert workers.turn(0, 109) == [{"a": 1.0, "prediction": 1.0, "v": "v1"}]
    assert workers.turn(0, 110) == [{"a": 1.0, "prediction": 2.0, "v": "v2"}]
    assert workers.turn(0, 120) == [{"a": 1.0, "prediction": 2.0, "v": "v2"}]
    assert shelf.looks == [None, "v1", "v2"]


def test_without_a_refresh_the_model_is_loaded_once() -> None:
    """When the operator is opened."""
    shelf, workers = shelved(refresh_us=None)
    shelf.put(Weighted(2), "v2")
    assert workers.turn(0, 10**9)[0]["v"] == "v1"
    assert shelf.looks == [None]


@pytest.mark.parametrize("broken", [OSError("it is gone"), b"half of an ONNX file"])
def test_a_broken_model_leaves_the_one_before_it_in_use(broken: Any, caplog: pytest.LogCaptureFixture) -> None:
    """With a warning; and the next that is whole is taken."""
    shelf, workers = shelved()
    workers.turn(0, 0)
    shelf.put(broken, "v2")
    assert workers.turn(0, 10)[0]["v"] == "v1"
    assert "the model on the shelf cannot be used, so the model before it stays" in caplog.text
    shelf.put(Weighted(3), "v3")
    assert workers.turn(0, 20)[0] == {"a": 1.0, "prediction": 3.0, "v": "v3"}


def test_a_model_that_cannot_be_loaded_at_first_keeps_the_operator_from_opening() -> None:
    """The rows are not to blame, so they must not become dead letters."""
    with pytest.raises(OSError, match="it is gone"):
        Model(model=Shelf(OSError("it is gone")), features=("a",)).open()


def test_no_row_meets_the_old_model_after_a_row_that_met_the_new_one() -> None:
    """Though turns change workers, and each worker looks at its own time."""
    shelf, workers = shelved(count=2)
    workers.turn(0, 0)
    workers.turn(1, 9)
    shelf.put(Weighted(2), "v2")
    assert workers.turn(0, 10)[0]["v"] == "v2"
    assert workers.turn(1, 11)[0]["v"] == "v2"  # before its own refresh, at 19
    looks = len(shelf.looks)
    assert [workers.turn(worker, 12)[0]["v"] for worker in (0, 1, 0, 1)] == ["v2"] * 4
    assert len(shelf.looks) == looks


# Models that rows bring.

A_ROW = [{"a": 1.0, "b": 1.0}]


def updated() -> ModelWithUpdates:
    """Return a model that updates may replace; it begins with 1 * a + 1 * b."""
    return ModelWithUpdates(model=FixedModel(Weighted(1, 1), "v0"), features=("a", "b"), version_column="v")


def answer_of(bench: TimedBench) -> tuple[float, str]:
    """Return prediction and version for one row."""
    [row] = bench.rows(A_ROW)
    return round(row["prediction"], 3), row["v"]


def test_a_row_that_brings_a_model_replaces_it_and_goes_no_further() -> None:
    """From the next batch on; the version is the row's, else of the content."""
    bench = TimedBench(updated())
    assert answer_of(bench) == (2.0, "v0")
    assert bench.rows([{"model": onnx(regression(2, 3)), "version": "v1"}], source=1) == []
    assert answer_of(bench) == (5.0, "v1")
    content = onnx(regression(4, 4))
    bench.rows([{"model": content}], source=1)
    assert answer_of(bench) == (8.0, digest_of(content))


def test_a_model_that_a_row_brought_survives_a_restart_and_moves_along() -> None:
    """It is state for all keys together."""
    bench = TimedBench(updated())
    bench.rows([{"model": onnx(regression(2, 3)), "version": "v1"}], source=1)
    assert answer_of(TimedBench(updated(), bench.kept)) == (5.0, "v1")
    other = bench.cut(range(512))
    assert answer_of(other) == answer_of(bench) == (5.0, "v1")
    bench.merge(other)
    assert answer_of(bench) == (5.0, "v1")


def test_a_worker_that_did_not_see_the_update_uses_it_all_the_same() -> None:
    """And one that has it open opens it once."""
    workers = Workers(updated(), 2)
    assert [workers.turn(worker, 0, A_ROW)[0]["v"] for worker in (0, 1)] == ["v0", "v0"]
    content = onnx(regression(2, 3))
    workers.turn(0, 0, [{"model": content, "version": "v1"}], source=1)
    assert [workers.turn(worker, 0, A_ROW)[0]["v"] for worker in (0, 1)] == ["v1", "v1"]
    workers.turn(1, 0, [{"model": content, "version": "the same again"}], source=1)
    assert [workers.turn(worker, 0, A_ROW)[0]["v"] for worker in (0, 1)] == ["the same again"] * 2


@pytest.mark.parametrize(
    ("update", "sentence"),
    [
        ({"model": b"half of an ONNX file"}, "not a model in ONNX"),
        ({"model": pickle.dumps(Weighted(9, 9))}, "not a model in ONNX"),
        ({"model": "text"}, "holds its bytes in column 'model'; this one has a string there"),
        ({"bytes": b""}, "this one lacks it"),
    ],
)
def test_an_update_that_is_not_onnx_is_refused_and_changes_nothing(update: Row, sentence: str) -> None:
    """Least of all a pickle, which would run code."""
    bench = TimedBench(updated())
    with pytest.raises(WrongResult, match=sentence):
        bench.rows([update], source=1)
    assert answer_of(bench) == (2.0, "v0")


def weighted(content: bytes) -> Weighted:
    """Make a model of two numbers."""
    return Weighted(*map(float, content.split(b",")))


def test_an_update_may_bring_whatever_the_author_can_make_a_model_of() -> None:
    """His function opens it, also after a restart; what it refuses is refused, and changes nothing."""
    operator = replace(updated(), decode=weighted)
    bench = TimedBench(operator)
    bench.rows([{"model": b"2,3", "version": "v1"}], source=1)
    assert answer_of(bench) == answer_of(TimedBench(operator, bench.kept)) == (5.0, "v1")
    with pytest.raises(ValueError, match="could not convert"):
        bench.rows([{"model": b"two,three"}], source=1)
    assert answer_of(bench) == (5.0, "v1")


def test_the_last_of_several_updates_counts_and_a_broken_one_among_them_is_refused() -> None:
    """Whether it comes last or not: what is refused must not depend on the batch. A null brings nothing."""
    first, second = ({"model": onnx(regression(w, w)), "version": f"v{w}"} for w in (1, 2))
    bench = TimedBench(updated())
    bench.rows([first, second, {"model": None, "version": "none"}], source=1)
    assert answer_of(bench) == (4.0, "v2")
    with pytest.raises(WrongResult, match="not a model in ONNX"):
        bench.rows([{"model": b"broken"}, first], source=1)


def test_a_model_with_updates_says_what_each_input_needs() -> None:
    """And that the rows of the second end in it."""
    operator = updated()
    assert (operator.inputs, model(Weighted(1)).inputs) == (2, 1)
    assert (operator.columns_needed_of(0), operator.columns_needed_of(1)) == (("a", "b"), ("model",))
    assert ModelWithUpdates.effect is Effect.CHANGES
    bench = TimedBench(operator)
    assert bench.clock(10**9) == bench.end() == []
