"""RIoTBench's models as data: the published ones, asking them, and refusing what is none."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.riotbench.analytics import ANALYTICS
from apps.riotbench.models import (
    CLASSES,
    LEAF,
    MODEL_BYTES_MAX,
    DecisionTree,
    Model,
    Regression,
    WrongModel,
    decoded,
    encoded,
    kind_of,
    read_model,
    write_model,
)
from apps.riotbench.shipped import SHIPPED
from apps.riotbench.updates import check_fits
from tests.apps.riotbench_pred_oracle import walked

FIELDS = {  # what Weka's attributes are called in the messages
    "Temp": "temperature",
    "Humid": "humidity",
    "Light": "light",
    "Dust": "dust",
    "airquality": "airquality_raw",
    "triptimeInSecs": "trip_time_in_secs",
    "tripDistance": "trip_distance",
    "fareAmount": "fare_amount",
    "ecg1": "ecg_lead_1",
    **{f"Acc{part}{axis}": f"acc_{part}_{axis}" for part in ("ankle", "arm", "chest") for axis in "xyz"},
}


@pytest.mark.parametrize(
    "name",
    [
        "CITY-DTC-1422748810000.model",
        "CITY-MLR-1422748810000.model",
        "TAXI-DTC-1358102664000.model",
        "TAXI-MLR-1358102664000.model",
        "FIT-DTC-1417890600200.model",
    ],
)
def test_the_published_models_are_those_of_the_benchmark(name: str, data: Path) -> None:
    published = json.loads((data / "models" / "riotbench_models_decoded.json").read_text())[name]
    model = SHIPPED[name.split("-")[0].lower(), kind_of(name)]
    assert model.name == name
    assert set(model.attributes) == {FIELDS[one] for one in published["attributes"] if one != "result"}
    if isinstance(model, DecisionTree):
        assert nested(model, 0) == weka_tree(published["tree"])
        assert list(model.classes) == published["classes"]
    else:
        used = {name: one for name, one in zip(model.attributes, model.coefficients, strict=True) if one}
        assert used == {FIELDS[name]: one for name, one in published["coefficients"].items()}
        assert (model.target, model.intercept) == (FIELDS[published["target"]], published["intercept"])


def nested(tree: DecisionTree, node: int) -> Any:
    """Return a tree as nested tuples."""
    if tree.attribute[node] == LEAF:
        return tree.classes[tree.answer[node]]
    attribute = tree.attributes[tree.attribute[node]]
    return attribute, tree.threshold[node], nested(tree, tree.low[node]), nested(tree, tree.high[node])


def weka_tree(node: dict[str, Any]) -> Any:
    """Return a tree of the decoded file as nested tuples."""
    if "class" in node:
        return node["class"]
    assert node["op"] == "<="
    return FIELDS[node["attribute"]], node["threshold"], weka_tree(node["le"]), weka_tree(node["gt"])


def test_every_data_set_has_both_models_and_they_fit_it() -> None:
    assert sorted(SHIPPED) == [(dataset, kind) for dataset in sorted(ANALYTICS) for kind in ("DTC", "MLR")]
    for (dataset, kind), model in SHIPPED.items():
        check_fits(model, ANALYTICS[dataset])
        assert (kind_of(model.name), model.name.split("-")[0]) == (kind, dataset.upper())


@st.composite
def trees(draw: st.DrawFn) -> DecisionTree:
    """Draw a tree of up to 31 nodes over three attributes, by splitting leaves one after the other."""
    attribute, low, high = [LEAF], [0], [0]
    threshold: list[float] = [0.0]
    for _ in range(draw(st.integers(0, 15))):
        leaf = draw(st.sampled_from([node for node, asked in enumerate(attribute) if asked == LEAF]))
        attribute[leaf], threshold[leaf] = draw(st.integers(0, 2)), draw(st.integers(-3, 3)) / 2
        low[leaf], high[leaf] = len(attribute), len(attribute) + 1
        for column, value in ((attribute, LEAF), (threshold, 0.0), (low, 0), (high, 0)):
            column += [value, value]
    answer = [draw(st.integers(0, 3)) for _ in attribute]
    return DecisionTree(
        name="CITY-DTC-1.model",
        attributes=("x", "y", "z"),
        classes=CLASSES,
        attribute=tuple(attribute),
        threshold=tuple(threshold),
        low=tuple(low),
        high=tuple(high),
        answer=tuple(answer),
    )


HALVES = st.integers(-4, 4)


@settings(max_examples=60, deadline=None)
@given(trees(), st.lists(st.tuples(HALVES, HALVES, HALVES), min_size=1, max_size=30))
def test_a_tree_asked_for_all_rows_at_once_says_what_walking_it_says(
    tree: DecisionTree, rows: list[tuple[int, int, int]]
) -> None:
    answers = tree.predict(np.array(rows) / 2)
    said = json.loads(encoded(tree))
    assert answers.tolist() == [walked(said, dict(zip("xyz", (x / 2, y / 2, z / 2), strict=True))) for x, y, z in rows]
    assert decoded(encoded(tree)) == tree


def test_a_value_that_is_missing_matters_only_to_who_asks_for_it() -> None:
    missing = np.array([[np.nan, 1.0, 1.0, 1.0, 25.0], [20.0, 50.0, np.nan, 100.0, np.nan]])
    classes = SHIPPED["city", "DTC"].predict(missing)
    assert classes[0] == 1
    assert np.isnan(classes[1])
    predicted = SHIPPED["city", "MLR"].predict(missing)
    assert np.isnan(predicted[0])
    assert predicted[1] == pytest.approx(37.4427 - 0.51069 * 20 + 0.155035 * 50 - 0.0043941 * 100, abs=1e-3)


def test_a_prediction_does_not_depend_on_the_rows_beside_it() -> None:
    """To the last bit: results are compared exactly, however rows were cut into batches."""
    rows = np.random.default_rng(5).normal(size=(999, 5)) * 100
    whole = SHIPPED["city", "MLR"].predict(rows)
    assert whole.tolist() == [float(SHIPPED["city", "MLR"].predict(rows[n : n + 1])[0]) for n in range(len(rows))]


TREE = json.loads(encoded(SHIPPED["city", "DTC"]))
REGRESSION = json.loads(encoded(SHIPPED["city", "MLR"]))


def chain_of(questions: int) -> dict[str, Any]:
    """Return a tree that asks one question after the other."""
    nodes = range(2 * questions + 1)
    asks = [node % 2 == 0 and node < 2 * questions for node in nodes]
    return {
        **TREE,
        "attribute": [0 if ask else LEAF for ask in asks],
        "threshold": [0.0] * len(nodes),
        "low": [node + 1 if ask else 0 for node, ask in zip(nodes, asks, strict=True)],
        "high": [node + 2 if ask else 0 for node, ask in zip(nodes, asks, strict=True)],
        "answer": [0] * len(nodes),
    }


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (b"CITY-DTC", "are not a model: JSON is malformed"),
        (b"\x80\x04K\x01.", "are not a model: JSON is malformed"),  # a pickle
        (b"[1]", "are not a model: Expected `object`"),
        (b"{}", "a DecisionTree lacks the field 'answer'"),
        ({**TREE, "run": "rm"}, "a DecisionTree has no field 'run'"),
        ({**TREE, "low": [0, 0, 3, 0, 0]}, "the children of node 0 must follow it among the 5 nodes"),
        ({**TREE, "high": [5, 0, 4, 0, 0]}, "the children of node 0 must follow it"),
        ({**TREE, "attribute": [5, -1, 4, -1, -1]}, "node 0 asks for attribute 5, which does not exist"),
        ({**TREE, "answer": [0, 4, 0, 1, 2]}, "leaf 1 answers with class 4"),
        (chain_of(1_001), "asks up to 1001 questions; at most 1000 are asked"),
        ({**TREE, "threshold": [1.0]}, "have an entry for each node"),
        ({**TREE, "threshold": ["1"] * 5}, "Expected `float`, got `str`"),
        ({**TREE, "name": "../CITY-DTC-1.model"}, "a model's name is like CITY-DTC-"),
        ({**TREE, "name": "CITY-MLR-1.model"}, "a model's name is like CITY-DTC-"),
        ({**REGRESSION, "coefficients": [1.0]}, "5 attributes need as many coefficients"),
        ({**REGRESSION, "coefficients": [0, 0, 0, 0, 1.0]}, "nothing is concluded from itself"),
        (b'{"type": "DTC", "name": "' + b"x" * MODEL_BYTES_MAX + b'"}', "at most 8388608 are"),
    ],
)
def test_bytes_that_are_no_model_are_refused_with_the_reason(said: Any, sentence: str) -> None:
    content = said if isinstance(said, bytes) else json.dumps(said).encode()
    with pytest.raises(WrongModel, match=sentence):
        decoded(content)


@pytest.mark.parametrize(
    ("model", "dataset", "sentence"),
    [
        (SHIPPED["taxi", "DTC"], "city", "takes trip_time_in_secs, trip_distance, fare_amount; the messages of city"),
        (decoded(json.dumps({**TREE, "classes": ["A", "B", "C"]}).encode()), "city", "tells A, B, C apart"),
        (
            decoded(json.dumps({**REGRESSION, "coefficients": [0.0] * 5, "target": "dust"}).encode()),
            "city",
            "predicts dust, not airquality_raw",
        ),
    ],
)
def test_a_model_for_something_else_does_not_fit(model: Model, dataset: str, sentence: str) -> None:
    with pytest.raises(WrongModel, match=sentence):
        check_fits(model, ANALYTICS[dataset])


def test_a_model_lies_in_the_file_of_its_name_and_nowhere_else(tmp_path: Path) -> None:
    model = SHIPPED["city", "MLR"]
    assert isinstance(model, Regression)
    assert write_model(tmp_path, model) == tmp_path / model.name
    assert [place.name for place in tmp_path.iterdir()] == [model.name]
    assert read_model(tmp_path, model.name) == model
    other = tmp_path / "CITY-MLR-2.model"
    other.write_bytes(encoded(model))
    with pytest.raises(WrongModel, match=f"holds the model {model.name}"):
        read_model(tmp_path, other.name)
    with pytest.raises(WrongModel, match=r"cannot be read from .*: No such file"):
        read_model(tmp_path, "CITY-MLR-3.model")
    for name in ("../secret", "/etc/passwd", "CITY-MLR-1.model/..", ""):
        with pytest.raises(WrongModel, match="is no name of a model"):
            read_model(tmp_path, name)
