"""Online learning: predict, then learn, per key; the same whatever the batches and wherever the state goes."""

import contextlib
import os
import pickle
import random
import subprocess
import sys
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cache, partial
from itertools import pairwise
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.model.entries import ALL_GROUPS, group_of_entry
from headwater.model.errors import FlowError, StoreError
from headwater.model.keys import encode_key, group_of
from headwater.operators.base import Effect, Moment
from headwater.operators.functions import WrongResult
from headwater.operators.learning import learner_bytes
from headwater.operators.learning.learner_bytes import LEARNING_PACKAGES, LearnerBytes
from headwater.operators.learning.online import Learn, LearnLogic
from headwater.operators.state import OperatorState
from headwater.operators.state_values import WrongState
from tests.operators.timed_bench import DictStore, Row, TimedBench

river = pytest.importorskip("river", reason="river is optional: pip install 'headwater[models]'")
anomaly = pytest.importorskip("river.anomaly")
base = pytest.importorskip("river.base")
cluster = pytest.importorskip("river.cluster")
compose = pytest.importorskip("river.compose")
ensemble = pytest.importorskip("river.ensemble")
linear_model = pytest.importorskip("river.linear_model")
metrics = pytest.importorskip("river.metrics")
naive_bayes = pytest.importorskip("river.naive_bayes")
neighbors = pytest.importorskip("river.neighbors")
optim = pytest.importorskip("river.optim")
preprocessing = pytest.importorskip("river.preprocessing")
stats = pytest.importorskip("river.stats")
tree = pytest.importorskip("river.tree")
utils = pytest.importorskip("river.utils")


Regressor: Any = base.Regressor


class LastSeen(Regressor):  # type: ignore[misc]
    """A model of the user's own: it predicts the target it saw last."""

    def __init__(self) -> None:
        """Have seen nothing."""
        self.last = 0.0

    def learn_one(self, x: dict[str, Any], y: float) -> None:
        """Remember it."""
        self.last = y

    def predict_one(self, x: dict[str, Any]) -> float:
        """Recall it."""
        return self.last


def doubled(x: dict[str, Any]) -> dict[str, Any]:
    """Double the features, as a function of the user's own in a pipeline."""
    return {name: 2 * value for name, value in x.items()}


REGRESSORS: dict[str, Callable[[], Any]] = {
    "scaled linear": lambda: preprocessing.StandardScaler() | linear_model.LinearRegression(),
    "seeded weights": lambda: linear_model.LinearRegression(
        optimizer=optim.Adam(0.01), initializer=optim.initializers.Normal(seed=3)
    ),
    "passive-aggressive": linear_model.PARegressor,  # holds a method of its own
    "tree": lambda: tree.HoeffdingTreeRegressor(grace_period=10),  # comes to hold functions of river's
    "adaptive tree": lambda: tree.HoeffdingAdaptiveTreeRegressor(grace_period=10, seed=1),
    "neighbours": lambda: neighbors.KNNRegressor(n_neighbors=3),
    "bagging": lambda: ensemble.BaggingRegressor(linear_model.LinearRegression(), n_models=3, seed=5),
    "a function of the user's": lambda: compose.FuncTransformer(doubled) | linear_model.LinearRegression(),
    "a lambda": lambda: (lambda x: {"sum": sum(x.values())}) | preprocessing.MinMaxScaler() | LastSeen(),
    "a class of the user's": LastSeen,
    "bayesian": linear_model.BayesianLinearRegression,  # keeps NumPy arrays
}


def data(count: int, keys: int = 3, seed: int = 1) -> list[Row]:
    """Return rows of several keys whose target is a line that differs from key to key."""
    rng = random.Random(seed)
    rows = []
    for number in range(count):
        key, a, b = rng.randrange(keys), rng.gauss(0, 1), rng.random()
        y = (key + 1) * a - b
        label = "high" if y > 0.5 else "low" if y < -0.5 else "middle"
        rows.append({"n": number, "k": f"key-{key}", "a": a, "b": b, "y": y, "label": label})
    return rows


ROWS = data(60)


def learn(model: Any, target: str | None = "y", **options: Any) -> Learn:
    """Return the operator."""
    return Learn(**{"key_columns": ("k",), "model": model, "features": ("a", "b"), "target": target} | options)


def regression(**options: Any) -> Learn:
    """Return a linear regression per key."""
    return learn(REGRESSORS["scaled linear"](), **options)


def by_hand(model: Any, rows: Sequence[Row], target: str = "y") -> list[Any]:
    """Return the predictions of plain river, a copy for each key: the oracle."""
    models: dict[str, Any] = defaultdict(lambda: deepcopy(model))
    found = []
    for row in rows:
        features = {name: row[name] for name in ("a", "b")}
        found.append(models[row["k"]].predict_one(features))
        models[row["k"]].learn_one(features, row[target])
    return found


def outputs(bench: TimedBench, column: str = "prediction") -> list[Any]:
    """Return what has come out so far."""
    return [row[column] for row in bench.out["out"]]


def in_pieces(bench: TimedBench, rows: Sequence[Row], cuts: Sequence[int]) -> None:
    """Hand in the rows, cut at these places."""
    edges = [0, *sorted(cuts), len(rows)]
    for start, stop in pairwise(edges):
        if start < stop:
            bench.rows(rows[start:stop])


@pytest.mark.parametrize("name", REGRESSORS)
def test_every_key_learns_as_a_model_of_its_own_would(name: str) -> None:
    """The oracle is plain river, which was never turned into bytes; here that happens after every fifth row."""
    model = REGRESSORS[name]()
    bench = TimedBench(learn(model))
    in_pieces(bench, ROWS, range(5, 60, 5))
    assert outputs(bench) == by_hand(model, ROWS)
    assert [row["n"] for row in bench.out["out"]] == list(range(60))
    assert list(bench.out["out"][0]) == ["n", "k", "a", "b", "y", "label", "prediction"]


@settings(max_examples=30, deadline=None)
@given(
    name=st.sampled_from(["scaled linear", "tree", "seeded weights", "a lambda"]),
    cuts=st.sets(st.integers(1, 59), max_size=12),
)
def test_predictions_do_not_depend_on_the_batches(name: str, cuts: set[int]) -> None:
    """Bit for bit."""
    bench, whole = (TimedBench(learn(REGRESSORS[name]())) for _ in range(2))
    in_pieces(bench, ROWS, list(cuts))
    whole.rows(ROWS)
    assert outputs(bench) == outputs(whole)


@settings(max_examples=15, deadline=None)
@given(name=st.sampled_from(["scaled linear", "tree", "a class of the user's"]), cut=st.integers(0, 60))
def test_a_snapshot_restored_elsewhere_goes_on_as_if_nothing_had_happened(name: str, cut: int) -> None:
    """In the middle of the stream, with another copy of the same flow."""
    bench = TimedBench(learn(REGRESSORS[name]()))
    in_pieces(bench, ROWS[:cut], [])
    restored = TimedBench(learn(REGRESSORS[name]()), bench.kept)
    in_pieces(restored, ROWS[cut:], [])
    assert outputs(bench) + outputs(restored) == by_hand(REGRESSORS[name](), ROWS)


@settings(max_examples=15, deadline=None)
@given(border=st.integers(1, 1023), first=st.integers(0, 40), second=st.integers(40, 60))
def test_keys_cut_off_learn_on_in_two_places_and_come_back(border: int, first: int, second: int) -> None:
    """Every key's predictions are as if it had stayed."""
    rows = data(60, keys=8)
    bench = TimedBench(regression())
    in_pieces(bench, rows[:first], [])
    other = bench.cut(range(border))
    for row in rows[first:second]:
        (other if group_of(encode_key(row["k"])) < border else bench).rows([row])
    assert all(group_of_entry(entry) < border for entry in other.kept)
    bench.merge(other)
    in_pieces(bench, rows[second:], [])
    found = sorted(bench.out["out"] + other.out["out"], key=lambda row: row["n"])
    assert [row["prediction"] for row in found] == by_hand(REGRESSORS["scaled linear"](), rows)


@pytest.mark.parametrize("name", ["a lambda", "a function of the user's", "a class of the user's"])
def test_a_model_of_the_users_own_code_is_restored_with_the_code_that_came_with_the_flow(name: str) -> None:
    """As workers get it: by value, so that its classes are others than those which wrote the state."""
    own = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(own)
    try:
        sent = cloudpickle.dumps(learn(REGRESSORS[name]()))
    finally:
        cloudpickle.unregister_pickle_by_value(own)
    first, second = (TimedBench(cloudpickle.loads(sent)) for _ in range(2))
    first.rows(ROWS[:30])
    second.kept = first.kept
    second.rows(ROWS[30:])
    assert outputs(first) + outputs(second) == by_hand(REGRESSORS[name](), ROWS)


def test_state_is_one_entry_for_each_key_and_stays() -> None:
    """A model is what was learned; it does not end with the stream. A key too long for a name is remembered."""
    bench = TimedBench(regression())
    bench.rows(ROWS)
    bench.end()
    assert len(bench.kept) == 3
    long = TimedBench(regression())
    long.rows([ROWS[0] | {"k": "long" * 500}])
    held = list(OperatorState(DictStore(long.kept), ALL_GROUPS).held(1))
    assert [one.key for one in held] == [encode_key("long" * 500)]


def test_a_row_without_a_target_is_predicted_and_teaches_nothing() -> None:
    """Null or NaN; a NaN learned would never be forgotten."""
    bench, without = (TimedBench(regression()) for _ in range(2))
    missing = [ROWS[0] | {"y": truth} for truth in (None, float("nan"))]
    bench.rows(ROWS[:30])
    bench.rows(missing)
    bench.rows(ROWS[30:])
    without.rows(ROWS)
    assert outputs(bench)[:30] + outputs(bench)[32:] == outputs(without)
    assert outputs(bench)[30] == outputs(bench)[31] != 0.0


def test_keys_that_have_only_been_asked_keep_no_state() -> None:
    """There is nothing to keep."""
    bench = TimedBench(regression())
    assert [row["prediction"] for row in bench.rows([{"k": "x", "a": 1.0, "b": 1.0, "y": None}])] == [0.0]
    assert bench.kept == {}


def test_a_missing_feature_is_absent_and_teaches_no_nan() -> None:
    """Null and NaN alike, as river has it."""
    rows = [ROWS[0] | {"a": None}, ROWS[1] | {"b": float("nan")}, *ROWS[2:]]
    bench = TimedBench(regression())
    bench.rows(rows)
    assert np.isfinite(outputs(bench)).all()


def test_learning_first_is_there_for_those_who_ask() -> None:
    """The prediction then knows the row."""
    bench = TimedBench(learn(LastSeen(), predict_first=False))
    bench.rows(ROWS)
    assert outputs(bench) == [row["y"] for row in ROWS]


def test_a_factory_makes_one_model_and_all_keys_begin_with_a_copy_of_it() -> None:
    """Made once, so that chance in it is the same for all workers. What the model knew before, every key knows."""
    operator = learn(lambda: ensemble.BaggingRegressor(linear_model.LinearRegression(), n_models=2))
    assert pickle.loads(pickle.dumps(operator.model)) is not None
    trained = LastSeen()
    trained.learn_one({}, 7.5)
    bench = TimedBench(learn(trained))
    assert {row["k"]: row["prediction"] for row in bench.rows(ROWS[:10])}.keys() == {"key-0", "key-1", "key-2"}
    first = {row["k"]: row["prediction"] for row in reversed(bench.out["out"])}
    assert set(first.values()) == {7.5}
    assert trained.last == 7.5


def test_without_a_key_all_rows_teach_one_model() -> None:
    """As if all had the same key."""
    bench = TimedBench(regression(key_columns=()))
    in_pieces(bench, ROWS, [10, 20])
    assert outputs(bench) == by_hand(REGRESSORS["scaled linear"](), [row | {"k": "one"} for row in ROWS])


def test_keys_of_several_columns_and_of_odd_values_are_kept_apart() -> None:
    """Unicode, null, and NaN, which is one key."""
    keys = [("ä", 1), ("ä", 2), (None, 1), ("日本", None)]
    rows = [row | {"k": key[0], "l": key[1]} for row in ROWS[:10] for key in keys]
    bench = TimedBench(learn(LastSeen(), key_columns=("k", "l")))
    bench.rows(rows)
    assert outputs(bench) == [0.0] * 4 + [row["y"] for row in ROWS[:9] for _ in keys]
    nans = TimedBench(learn(LastSeen()))
    nans.rows([ROWS[0] | {"k": float("nan")}])
    assert nans.rows([ROWS[1] | {"k": float("nan")}])[0]["prediction"] == ROWS[0]["y"]


def test_a_classifier_predicts_labels_of_the_targets_type_and_null_before_it_knows_one() -> None:
    """Texts here."""
    bench = TimedBench(learn(naive_bayes.GaussianNB(), "label"))
    in_pieces(bench, ROWS, [1, 7, 30])
    assert outputs(bench) == by_hand(naive_bayes.GaussianNB(), ROWS, "label")
    assert outputs(bench)[0] is None


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        ([True, False], pa.bool_()),
        ([1, 0], pa.int64()),
        ([1.0, 0.0], pa.float64()),
        (["x", "y"], pa.dictionary(pa.int32(), pa.string())),
    ],
)
def test_labels_come_in_the_type_of_the_target(labels: list[Any], kind: pa.DataType) -> None:
    """Also where river answers True for a 1."""
    binary = labels[0] == 1
    operator = learn(linear_model.LogisticRegression() if binary else naive_bayes.GaussianNB(), "t")
    column = pa.array([labels[row["a"] < 0] for row in ROWS]).cast(kind)
    batch = pa.RecordBatch.from_pylist([{"k": "x", "a": row["a"], "b": row["b"]} for row in ROWS])
    batch = batch.append_column("t", column)
    bench = TimedBench(operator)
    bench.rows(batch)
    [made] = operator.open().rows(batch, 0, Moment(OperatorState(DictStore({}))))
    assert made is not None
    assert operator.output_schema([batch.schema]) == made.schema
    right = [found == truth for found, truth in zip(outputs(bench), column.to_pylist(), strict=True)]
    assert sum(right[20:]) > 30


def test_a_target_that_is_all_null_in_a_batch_hides_no_label() -> None:
    """Its column then has no type of its own."""
    bench = TimedBench(learn(naive_bayes.GaussianNB(), "label"))
    bench.rows(ROWS)
    made = bench.rows([row | {"label": None} for row in ROWS[:5]])
    assert {row["prediction"] for row in made} <= {"high", "low", "middle"}


@pytest.mark.parametrize("model", [anomaly.HalfSpaceTrees(n_trees=3, height=3, window_size=10, seed=1), None])
def test_an_anomaly_detector_scores_and_learns_without_a_target(model: Any) -> None:
    """Alone or behind a scaler."""
    model = model or preprocessing.MinMaxScaler() | anomaly.HalfSpaceTrees(n_trees=3, height=3, window_size=10, seed=1)
    expected = []
    own = deepcopy(model)
    for row in ROWS:
        features = {"a": row["a"], "b": row["b"]}
        expected.append(own.score_one(features))
        own.learn_one(features)
    bench = TimedBench(learn(model, None, key_columns=()))
    in_pieces(bench, ROWS, range(7, 60, 7))
    assert outputs(bench) == expected
    assert len(set(expected)) > 1


def test_an_anomaly_detector_that_judges_the_target_scores_it() -> None:
    """And not a row without one."""
    bench = TimedBench(learn(anomaly.GaussianScorer(grace_period=5), key_columns=()))
    bench.rows([row | {"y": 1.0 + row["b"] / 100} for row in ROWS])
    [odd, none] = bench.rows([ROWS[0] | {"y": 50.0}, ROWS[0] | {"y": None}])
    assert odd["prediction"] > 0.99
    assert none["prediction"] is None


def test_a_clusterer_answers_with_the_number_of_the_cluster() -> None:
    """As plain river does; it learns without a target."""
    model = cluster.KMeans(n_clusters=3, halflife=0.4, sigma=1, seed=2)
    bench = TimedBench(learn(model, None, key_columns=()))
    in_pieces(bench, ROWS, range(10, 60, 10))
    own, expected = deepcopy(model), []
    for row in ROWS:
        expected.append(own.predict_one({"a": row["a"], "b": row["b"]}))
        own.learn_one({"a": row["a"], "b": row["b"]})
    assert outputs(bench) == expected
    assert len(set(expected)) > 1


def test_the_metric_of_every_key_goes_along_with_its_model() -> None:
    """It is updated with the prediction made before the row was learned, and cut and kept like the model."""
    operator = regression(metric=metrics.MAE(), metric_output="mae")
    bench = TimedBench(operator)
    in_pieces(bench, ROWS, [11, 12, 40])
    errors: dict[str, list[float]] = defaultdict(list)
    expected = []
    for row, found in zip(ROWS, by_hand(operator.model, ROWS), strict=True):
        errors[row["k"]].append(abs(row["y"] - found))
        expected.append(float(np.mean(errors[row["k"]])))
    assert outputs(bench, "mae") == pytest.approx(expected)
    [unlabelled] = bench.rows([ROWS[-1] | {"y": None}])
    assert unlabelled["mae"] == outputs(bench, "mae")[-2]


@pytest.mark.parametrize("metric", [metrics.LogLoss(), metrics.Accuracy()])
def test_a_metric_is_given_labels_or_probabilities_as_it_asks_for(metric: Any) -> None:
    """And nothing as long as the model knows no class."""
    rows = [row | {"t": row["a"] > 0} for row in ROWS]
    bench = TimedBench(learn(naive_bayes.GaussianNB(), "t", metric=metric, key_columns=()))
    in_pieces(bench, rows, [10, 20])
    model, own, expected = naive_bayes.GaussianNB(), deepcopy(metric), []
    for row in rows:
        features = {"a": row["a"], "b": row["b"]}
        answer = model.predict_one(features) if metric.requires_labels else model.predict_proba_one(features)
        if answer is not None and answer != {}:
            own.update(row["t"], answer)
        model.learn_one(features, row["t"])
        expected.append(own.get())
    assert outputs(bench, "metric") == expected


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: learn("a text"), "a str cannot learn here"),
        (lambda: learn(preprocessing.StandardScaler()), "a StandardScaler cannot learn here"),
        (lambda: learn(tree.ISOUPTreeRegressor()), "for one target"),
        (lambda: learn(LastSeen(), None), "a LastSeen needs a target"),
        (lambda: learn(anomaly.HalfSpaceTrees(), None, metric=metrics.ROCAUC()), "a metric needs a target"),
        (lambda: learn(LastSeen(), metric=metrics.Accuracy()), "Accuracy does not measure a LastSeen"),
        (lambda: learn(LastSeen(), "a"), "target 'a' is also a feature"),
        (lambda: learn(LastSeen(), features=()), "needs the columns"),
        (lambda: learn(LastSeen(), features=("a", "a")), "named twice"),
        (lambda: learn(LastSeen(), output="a"), "both a feature and an output"),
        (lambda: learn(lambda: holding(subprocess.Popen)), r"holds subprocess\.Popen, which cannot be kept"),
        (lambda: learn(lambda: holding(getattr)), r"holds builtins\.getattr"),
        (lambda: learn(lambda: holding(n for n in (1, 2))), "cannot be kept as state"),
    ],
)
def test_a_flow_that_cannot_be_is_refused_while_it_is_written(make: Any, sentence: str) -> None:
    """Before anything runs."""
    with pytest.raises(FlowError, match=sentence):
        make()


def holding(thing: Any) -> LastSeen:
    """Return a model that holds something."""
    model = LastSeen()
    model.last = thing
    return model


def test_rows_that_do_not_fit_are_refused_with_a_sentence() -> None:
    """Which column, and why."""
    with pytest.raises(WrongResult, match="target 'label' is a string, and a regressor learns numbers"):
        TimedBench(learn(LastSeen(), "label")).rows(ROWS)
    with pytest.raises(WrongResult, match="lack feature 'b'"):
        TimedBench(regression()).rows([{"k": "x", "a": 1.0, "y": 1.0}])
    with pytest.raises(WrongResult, match="already have a column 'prediction'"):
        TimedBench(regression()).rows([ROWS[0] | {"prediction": 1}])
    with pytest.raises(WrongResult, match="a LogisticRegression tells true from false"):
        TimedBench(learn(linear_model.LogisticRegression(), "label")).rows(ROWS)
    with pytest.raises(FlowError, match="a LogisticRegression tells true from false"):
        learn(linear_model.LogisticRegression(), "label").output_schema([pa.RecordBatch.from_pylist(ROWS).schema])
    taught = TimedBench(learn(naive_bayes.GaussianNB(), "label"))
    taught.rows(ROWS)
    with pytest.raises(WrongResult, match="what a GaussianNB predicts does not fit target 'label', which is a int64"):
        taught.rows([ROWS[0] | {"label": 1}])


def test_the_operator_says_what_it_needs_and_what_comes_out() -> None:
    """The key, the features, the target; and types where they are known."""
    operator = regression(metric=metrics.MAE())
    assert (operator.key, operator.columns_needed) == (("k",), ("k", "a", "b", "y"))
    assert (Learn.effect, operator.inputs) == (Effect.KEEPS, 1)
    known = pa.schema({"k": "str", "a": "f8", "b": "f8", "y": "f8"})
    added = pa.schema([*known, pa.field("prediction", "f8"), pa.field("metric", "f8")])
    assert operator.output_schema([known]) == added
    assert operator.output_schema([None]) is None
    with pytest.raises(FlowError, match="already have a column 'prediction'"):
        operator.output_schema([added])
    clusters = learn(cluster.KMeans(seed=1), None).output_schema([known])
    assert clusters is not None
    assert clusters.field("prediction").type == pa.int64()


class Workers:
    """Workers that share an instance's state; each keeps its operator open from turn to turn."""

    def __init__(self, operator: Learn, count: int) -> None:
        """Open the operator in each."""
        self.store = DictStore({})
        self.logics: list[LearnLogic] = [LearnLogic(operator) for _ in range(count)]

    def turn(self, worker: int, rows: Sequence[Row], *, commit: bool = True) -> list[Any]:
        """Run a turn, and commit it or lose it."""
        moment = Moment(OperatorState(self.store))
        [made] = self.logics[worker].rows(pa.RecordBatch.from_pylist(list(rows)), 0, moment)
        assert made is not None
        if commit:
            self.store.kept |= {entry: value for entry, value in moment.state.changes.items() if value is not None}
        return [row["prediction"] for row in made.to_pylist()]


@settings(max_examples=25, deadline=None)
@given(turns=st.lists(st.tuples(st.integers(0, 1), st.booleans()), max_size=25))
def test_models_kept_alive_never_differ_from_the_state(turns: list[tuple[int, bool]]) -> None:
    """Turns change workers, and some are lost after they ran: what counts is what was committed."""
    workers = Workers(regression(), 2)
    found, taught = [], []
    for (worker, commit), row in zip(turns, ROWS, strict=False):
        made = workers.turn(worker, [row], commit=commit)
        if commit:
            found += made
            taught.append(row)
    assert found == by_hand(REGRESSORS["scaled linear"](), taught)


def test_a_row_on_which_the_model_raises_leaves_no_trace() -> None:
    """The rows before it in the batch had already been learned, by a model that was alive."""
    workers = Workers(regression(), 1)
    workers.turn(0, ROWS[:20])
    with pytest.raises(TypeError):
        workers.turn(0, [*({**row, "a": str(row["a"])} for row in ROWS[20:30])])
    assert workers.turn(0, ROWS[20:]) == by_hand(REGRESSORS["scaled linear"](), ROWS)[20:]


# What bytes can be a learner.


class Evil:
    """Pickles as the call of something."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        """Call this with that."""
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        """Say so."""
        return self.call


def named(module: str, name: str) -> bytes:
    """Return a pickle that is nothing but a name."""
    return (
        b"\x80\x04\x8c"
        + bytes([len(module)])
        + module.encode()
        + b"\x8c"
        + bytes([len(name)])
        + name.encode()
        + b"\x93."
    )


@pytest.mark.parametrize(
    "evil",
    [
        Evil(os.system, "exit 1"),
        Evil(subprocess.Popen, ["true"]),
        Evil(eval, "1 + 1"),
        Evil(exec, "pass"),
        Evil(getattr, (), "__class__"),
        Evil(open, "/etc/hostname"),
        Evil(__import__, "os"),
        Evil(np.frombuffer, b"12345678"),
        Evil(np.dtype, "f8"),
        Evil(pickle.loads, b"N."),
        Evil(deepcopy, 1),
        LastSeen(),  # the user's own class, but not one of this flow's model
        doubled,
    ],
)
def test_bytes_that_name_anything_but_a_learners_parts_are_refused(evil: Any) -> None:
    """Before it is called."""
    codec = LearnerBytes((linear_model.LinearRegression(),))
    with pytest.raises(StoreError, match="which no learner is made of"):
        codec.decode(pickle.dumps((evil,)))


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("river.datasets", "Phishing"),
        ("river.stream.cache", "Cache"),
        ("river.stream.iter_csv", "iter_csv"),
        ("river.linear_model.lin_reg", "numbers"),  # a module that river imports
        ("river.base.base", "inspect.os.system"),
        ("river.base.base", "Base.clone.__globals__"),
        ("river.utils.rolling", "collections"),
        ("river.linear_model", "LinearRegression"),  # not the name by which it calls itself
        ("river.linear_model.lin_reg", "LinearRegression.__init__.__class__"),
        ("headwater.operators.learning.learner_bytes", "io"),
        ("headwater.operators.learning.learner_bytes", "LearnerBytes"),
        ("builtins", "object.__subclasses__"),
        ("functools", "reduce"),
        ("rivers.linear_model", "LinearRegression"),
    ],
)
def test_what_river_merely_imports_or_does_beside_learning_is_refused(module: str, name: str) -> None:
    """A name is given out only if river defines it, for learning, under just that name."""
    with pytest.raises(StoreError):
        LearnerBytes((linear_model.LinearRegression(),)).decode(named(module, name))


def test_the_refusals_refuse_by_the_name_and_not_by_the_form() -> None:
    """The same bytes with a name that is allowed get through to the next check."""
    codec = LearnerBytes((linear_model.LinearRegression(),))
    with pytest.raises(StoreError, match="something else than the flow's model"):
        codec.decode(named("river.linear_model.lin_reg", "LinearRegression"))


def twice(depth: int) -> Any:
    """A tuple that holds another twice, which does so itself, and so on: to hash it takes 2 to the power of that."""
    made: Any = ()
    for _ in range(depth):
        made = (made, made)
    return made


def hashed(before: bytes, after: bytes) -> bytes:
    """A learner that has such a tuple where it is hashed: here it must not be."""
    return b"\x80\x04" + before + pickle.dumps(twice(60), protocol=2)[2:-1] + after + b"\x85."


def in_a_place(place: int) -> bytes:
    """A learner that is remembered in a place far off, before which others would have room."""
    return b"\x80\x04)" + pickle.LONG_BINPUT + place.to_bytes(4, "little") + b"."


ENDLESS: list[Any] = [
    Evil(deque, Evil(range, 10**11), 1),
    Evil(list, Evil(range, 10**11)),
    Evil(set, Evil(range, 10**6)),
    Evil(bytes, 10**11),
    Evil(bytearray, 10**11),
    Evil(range, 10**11),
    Evil(deque, (), 10**11),
    Evil(Counter, Evil(range, 10**6)),
    Evil(defaultdict, Evil(partial, list), 1),
    partial(bytes, 10**11),
    partial(deque, range(10**6)),
    Evil(learner_bytes._objects, (1,), Evil(range, 10**6)),
    partial(stats.Mean().update, 10**11),
    partial(b"".zfill, 10**11),
    Evil(stats.RollingQuantile, 0.5, 10**11),
    Evil(utils.Rolling, stats.Mean(), 10**11),
    [Evil(Counter, one) for one in [dict.fromkeys(range(30_000))] * 1_000],
]


@pytest.mark.parametrize("evil", ENDLESS, ids=[str(place) for place in range(len(ENDLESS))])
def test_bytes_that_take_any_time_or_memory_are_refused(evil: Any) -> None:
    """Nothing but plain classes, called with what makes them endless."""
    codec = LearnerBytes((linear_model.LinearRegression(),))
    with pytest.raises(StoreError, match="the bytes of a learner are refused"):
        codec.decode(pickle.dumps((evil,), protocol=4))


@pytest.mark.parametrize(
    "encoded",
    [
        hashed(b"}", b"K\x01s"),
        hashed(b"}(", b"K\x01u"),
        hashed(b"(", b"K\x01d"),
        hashed(b"\x8f(", b"\x90"),
        hashed(b"(", b"\x91"),
        in_a_place(1 << 31),
        b"\x80\x05\x96" + (1 << 40).to_bytes(8, "little") + b".",
        b"\x80\x02\x82\x01.",
        named("river.stats.mean", "Mean")[:-1] + b"}\x8c\x03get\x4bas" + b"b.",
    ],
    ids=[
        "a key",
        "keys",
        "a dictionary",
        "a set",
        "a frozen set",
        "a place far off",
        "bytes that do not follow",
        "an extension",
        "a class changed",
    ],
)
def test_bytes_that_no_learner_has_are_refused(encoded: bytes) -> None:
    before = dict(vars(stats.Mean))
    with pytest.raises(StoreError, match="the bytes of a learner are refused"):
        LearnerBytes((linear_model.LinearRegression(),)).decode(encoded)
    assert dict(vars(stats.Mean)) == before


@cache
def sound(name: str) -> tuple[LearnerBytes, bytes]:
    """A model that has learnt a little, as bytes."""
    model = REGRESSORS[name]()
    for row in ROWS[:20]:
        model.learn_one({"a": row["a"], "b": row["b"]}, row["y"])
    codec = LearnerBytes((model, None))
    return codec, codec.encode((model, None))


@given(name=st.sampled_from(list(REGRESSORS)), draw=st.data())
@settings(max_examples=150, deadline=None)
def test_a_damaged_learner_is_refused_or_is_one(name: str, draw: st.DataObject) -> None:
    codec, encoded = sound(name)
    damaged = bytearray(encoded)
    for _ in range(draw.draw(st.integers(1, 4))):
        damaged[draw.draw(st.integers(0, len(damaged) - 1))] = draw.draw(st.integers(0, 255))
    with contextlib.suppress(StoreError):
        assert isinstance(codec.decode(bytes(damaged)), tuple)


def test_what_was_written_here_is_read_without_being_watched() -> None:
    """It takes a third of the time; what another has written is watched once."""
    here, there = LearnerBytes((linear_model.LinearRegression(),)), LearnerBytes((linear_model.LinearRegression(),))
    model = linear_model.LinearRegression()
    model.learn_one({"x": 1.0}, 2.0)
    encoded = there.encode((model,))
    known = len(here._known)
    assert here.decode(encoded)[0].weights == model.weights
    assert len(here._known) == known + 1
    assert here.decode(encoded)[0].weights == model.weights


@pytest.mark.parametrize("owner", ["instance", "class"])
@pytest.mark.parametrize("name", ["__init__", "__reduce__", "__class__", "nothing", "n"])
def test_a_method_is_bound_only_by_a_plain_name_of_the_class(owner: str, name: str) -> None:
    """Bound methods are part of some models; attributes at large are a way out."""
    thing = stats.Mean()
    evil = Evil(learner_bytes._method, thing if owner == "instance" else type(thing), name)
    with pytest.raises(StoreError, match="they name a method"):
        LearnerBytes((linear_model.PARegressor(),)).decode(pickle.dumps((evil,)))


def test_a_text_formats_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reaches any attribute of what it is given: passwords in the environment would lie in the state."""
    from river.tree import utils

    monkeypatch.setenv("HEADWATER_MQTT_PASSWORD", "secret")
    text = "{0.__globals__[sys].modules[os].environ[HEADWATER_MQTT_PASSWORD]}"
    codec = LearnerBytes((linear_model.PARegressor(),))
    assert text.format(utils.do_naive_bayes_prediction) == "secret"
    for name in ("format", "format_map", "ljust"):
        evil = Evil(learner_bytes._method, text, name)
        with pytest.raises(StoreError, match="they name a method"):
            codec.decode(pickle.dumps((evil,)))


@pytest.mark.parametrize("dtype", ["O", "V8", "i4,O"])
def test_an_array_whose_bytes_would_be_pointers_is_refused(dtype: str) -> None:
    """NumPy would take them at their word."""
    evil = Evil(learner_bytes._array, dtype, (1,), "C", b"12345678")
    with pytest.raises(StoreError, match="hold an array of"):
        LearnerBytes((linear_model.LinearRegression(),)).decode(pickle.dumps((evil,)))


def test_a_random_generator_out_of_bounds_is_refused() -> None:
    """NumPy would read beyond its array."""
    evil = Evil(learner_bytes._random_state, ("MT19937", b"", 10**6, 0, 0.0))
    with pytest.raises(StoreError, match="a random generator out of bounds"):
        LearnerBytes((linear_model.LinearRegression(),)).decode(pickle.dumps((evil,)))


@pytest.mark.parametrize("encoded", [b"", b"nonsense", b"\x80\x05N.", pickle.dumps((1, 2)), pickle.dumps(())])
def test_bytes_that_are_not_this_flows_model_are_refused(encoded: bytes) -> None:
    """Half of a model, nothing, or another thing."""
    codec = LearnerBytes((linear_model.LinearRegression(),))
    with pytest.raises(StoreError, match="the bytes of a learner are refused"):
        codec.decode(encoded)
    with pytest.raises(StoreError, match="something else than the flow's model"):
        codec.decode(LearnerBytes((naive_bayes.GaussianNB(),)).encode((naive_bayes.GaussianNB(),)))


def test_arrays_numbers_and_generators_come_back_as_they_were() -> None:
    """In their type, shape and order."""
    generator = np.random.RandomState(3)
    generator.normal()
    things = {
        "matrix": np.arange(6.0).reshape(2, 3),
        "columns first": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "empty": np.empty((0, 2)),
        "objects": np.array([None, "x", (1, 2)], dtype=object),
        "number": np.float32(1.5),
        "day": np.datetime64("2026-01-01"),
        "generator": generator,
        "stats": stats.Mean(),
    }
    codec = LearnerBytes((holding(None),))
    [model] = codec.decode(codec.encode((holding(things),)))
    back = model.last
    for name in ("matrix", "columns first", "empty", "objects"):
        assert (back[name].dtype, back[name].tolist()) == (things[name].dtype, things[name].tolist()), name
    assert back["columns first"].flags.f_contiguous
    assert back["matrix"].flags.writeable
    assert (type(back["number"]), back["number"], back["day"]) == (np.float32, things["number"], things["day"])
    assert back["generator"].normal() == generator.normal()


def test_a_model_that_comes_to_hold_a_stranger_is_refused_when_it_is_kept() -> None:
    """What the flow's model did not hold at first has no name."""
    codec = LearnerBytes((holding(None),))
    with pytest.raises(WrongState, match=r"come to hold os\.getcwd|come to hold posix\.getcwd"):
        codec.encode((holding(os.getcwd),))
    with pytest.raises(WrongState, match="NumPy array of"):
        codec.encode((holding(np.zeros(1, dtype="i4,i4")),))


def test_a_model_too_deep_to_be_kept_is_refused_with_a_sentence() -> None:
    """Where pickle would overflow the stack."""
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    codec = LearnerBytes((holding(None),))
    with pytest.raises(WrongResult, match="too deep to be kept"):
        codec.encode((holding(deep),))


def test_the_packages_for_learning_are_rivers_and_leave_out_those_that_touch_the_world() -> None:
    """So a package that river renames, or one that reads files, is noticed here."""
    import pkgutil

    found = {module.name for module in pkgutil.iter_modules(river.__path__)}
    world = {"api", "bandit", "checks", "compat", "conf", "datasets", "evaluate", "stream"}
    assert found - LEARNING_PACKAGES - {"_river_rust", "test_"} <= world | {n for n in found if n.startswith("_")}
    assert not LEARNING_PACKAGES & world
