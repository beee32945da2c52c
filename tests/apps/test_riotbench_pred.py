"""RIoTBench's PRED against a message at a time in plain Python, and its models replaced while it runs."""

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Condition
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headwater as hw
from apps.riotbench.lines import MadeLines
from apps.riotbench.pred import Pred
from apps.riotbench.train import Train
from headwater.connectors.files.formats import TextFormat
from headwater.dataflow.stream import flow, source
from headwater.engine.policies import Consumption
from headwater.model.errors import ConfigError
from headwater.runtime.node import Node
from headwater.twin.refusals import refusals
from headwater.workers.local.pool import SparkPool
from tests.apps.app_results import Row, made_rows, results_of, twin_results_of
from tests.apps.riotbench_pred_oracle import CLASSES, OBSERVED, SENDER, Prediction, message_of, said
from tests.connectors.polls import polled
from tests.dataflow.specs import Closed, Wall
from tests.engine.small_node import SmallNode

DATASETS = ("city", "taxi", "fit", "grid")
SENSORS = 20  # few enough for many blocks of each
COMPARED = ("sensor", "timestamp", "kind", "model", "value")


def expected(dataset: str, lines: Sequence[str]) -> list[Row]:
    prediction = Prediction(dataset)
    return [answer for line in lines for answer in prediction.answers(line)]


def by_kind_and_sensor(rows: Sequence[Row]) -> dict[tuple[str, str], list[tuple[Any, ...]]]:
    """Return what was said of each sensor's messages, in order."""
    found: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
    for row in rows:
        found.setdefault((row["kind"], row["sensor"]), []).append(tuple(row[name] for name in COMPARED))
    return found


def lines_of(app: hw.App, count: int) -> list[str]:
    return [row["line"] for row in made_rows(app, count)]


@pytest.mark.parametrize("dataset", DATASETS)
def test_the_answers_are_those_of_the_oracle(dataset: Any) -> None:
    app = Pred(dataset=dataset, sensors=SENSORS)
    found = results_of(app, 1_500)["results"]
    assert by_kind_and_sensor(found) == by_kind_and_sensor(expected(dataset, lines_of(app, 1_500)))
    errors = [row["value"] for row in found if row["kind"] == "MLR"]
    assert len(errors) * 2 == len(found)
    assert sum(error is not None for error in errors) > 1_000, "most messages come after a first average"


@pytest.mark.parametrize("dataset", ["city", "taxi", "fit"])
def test_real_messages_get_the_answers_of_the_oracle(dataset: Any, data: Path) -> None:
    app = Pred(dataset=dataset)
    out = hw.to.memory()
    hw.run(app.flow(app.source(data=data), lambda name: out), spark=False)
    place = {"city": "sys/SYS", "taxi": "taxi/TAXI", "fit": "fit/FIT"}[dataset]
    lines = (data / f"{place}_sample_data_senml.csv").read_text().splitlines()
    assert by_kind_and_sensor(out.rows()) == by_kind_and_sensor(expected(dataset, lines))


def test_tiny_turns_and_several_instances_change_nothing() -> None:
    """Nor does it matter which of the two inputs of the error estimate runs ahead."""
    whole = by_kind_and_sensor(expected("city", lines_of(Pred(sensors=4), 120)))
    for app, turn in ((Pred(sensors=4), "1"), (Pred(sensors=4, parallelism=3), "7")):
        found = results_of(app, 120, consumption=Consumption.parse(turn))["results"]
        assert by_kind_and_sensor(found) == whole
    overtaken = results_of(Pred(sensors=4, parallelism=2, publishers=3), 120)["results"]
    assert {key: sorted(rows, key=repr) for key, rows in by_kind_and_sensor(overtaken).items()} == {
        key: sorted(rows, key=repr) for key, rows in whole.items()
    }


@pytest.mark.parametrize("dataset", DATASETS)
def test_a_published_message_is_written_as_in_the_benchmark(dataset: Any) -> None:
    app = Pred(dataset=dataset, sensors=SENSORS)
    rows = results_of(app, 200)["results"]
    lines = lines_of(app, 200)
    meta = [name for name in message_of(lines[0]) if name not in OBSERVED[dataset]]
    trees = [row for row in rows if row["kind"] == "DTC"]
    for line, row in zip(lines, trees, strict=True):
        message, published = message_of(line), said(row["message"], len(meta))
        assert published["id"] == row["msgid"]
        assert published["RES"] == CLASSES[int(row["value"])]
        assert published["observed"] == [float(message[name]) for name in OBSERVED[dataset]]
        assert sorted(map(str, published["meta"])) == sorted(shortened(message[name]) for name in meta)
        assert message[SENDER[dataset]] in published["meta"]
    for row in rows:
        if row["kind"] == "MLR":
            error = said(row["message"], len(meta))["ERROR"]
            assert (None if error == "null" else float(error)) == row["value"]


def shortened(value: Any) -> str:
    """Return a number without the zeros at its end; whatever is not written as a number stays."""
    written = str(value)
    if "." not in written or not written.replace(".", "").replace("-", "").isdigit():
        return written
    return written if len(written.split(".")[1]) == 6 else repr(float(written)).removesuffix(".0")


def test_a_line_that_is_no_message_is_set_aside() -> None:
    lines = lines_of(Pred(), 3)
    lines[1:1] = ["1422748800000,{", "no message", '1,{"e":[],"bt":1}']
    app, out = Pred(), hw.to.memory()
    status = hw.run(app.flow(hw.read.iterable([{"line": line} for line in lines]), lambda name: out), spark=False)
    assert status.ledger is not None
    assert status.ledger.balanced
    assert len(out.rows()) == 6


# The error estimate, whose two inputs may interleave in any way.


def node_of(app: Pred, *, with_updates: bool = False) -> SmallNode:
    """Return the app on a node that runs a turn when a test says so."""
    rows = source(Closed(TextFormat.schema), name="input")
    updates = source(Closed(TextFormat.schema), name="models") if with_updates else None
    return SmallNode(flow("pred", app.predictions(rows, updates).sink(Wall(), name="results")))


def test_rows_wait_for_the_average_that_they_need_and_for_no_other() -> None:
    """Here the average has not run when the estimate does: of each sensor only the first block can be answered."""
    node = node_of(Pred(dataset="fit", sensors=2))
    lines = lines_of(Pred(dataset="fit", sensors=2), 64)
    node.feed([{"line": line} for line in lines])
    for name in ("parse", "regression", "error_estimate", "publish"):
        node.turn(name)
    first = node.write_out("results")
    assert len(first) == 20
    assert {row["value"] for row in first} == {None}
    for name in ("average", "error_estimate", "publish"):
        node.turn(name)
    rest = node.write_out("results")
    wanted = [row for row in expected("fit", lines) if row["kind"] == "MLR"]
    assert by_kind_and_sensor([*first, *rest]) == by_kind_and_sensor(wanted)
    assert node.ledger().balanced


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["regression", "average", "error_estimate"]), st.integers(1, 40)), max_size=40)
)
def test_the_errors_do_not_depend_on_which_input_runs_ahead(turns: list[tuple[str, int]]) -> None:
    app = Pred(sensors=4)
    lines = lines_of(app, 120)
    node = node_of(app)
    for first in range(0, 120, 30):
        node.feed([{"line": line} for line in lines[first : first + 30]])
        node.turn("parse")
    for name, rows_max in turns:
        node.turn(name, rows_max)
    node.settle()
    assert by_kind_and_sensor(node.write_out("results")) == by_kind_and_sensor(expected("city", lines))


def test_a_reading_that_is_missing_counts_for_nothing() -> None:
    """Neither in the average nor in the number of a block's readings; its own row has no error."""
    lines = lines_of(Pred(sensors=1), 40)
    sender = message_of(lines[0])["source"]
    lines = [line for line in lines if message_of(line)["source"] == sender]
    holed = [line.replace(',{"v":"' + message_of(line)["airquality_raw"], ',{"v":"null') for line in lines[::3]]
    mixed = [line for pair in zip(holed, lines, strict=False) for line in pair] + lines[len(holed) :]
    app, out = Pred(sensors=1), hw.to.memory()
    hw.run(app.flow(hw.read.iterable([{"line": line} for line in mixed]), lambda name: out), spark=False)
    ids = {json.dumps(message_of(line)): None for line in holed}
    assert len(ids) > 5
    whole = [row["value"] for row in expected("city", lines) if row["kind"] == "MLR"]
    found = [row["value"] for row in out.rows() if row["kind"] == "MLR" and "null,ERROR" not in row["message"]]
    assert found == whole
    missing = [row for row in out.rows() if ",null," in row["message"]]
    assert len(missing) == 2 * len(holed)
    assert {row["value"] for row in missing} == {None}


# Models that replace the ones before them.


def trained(dataset: Any, directory: Path | None = None) -> list[str]:
    """Return what TRAIN publishes when its timer goes off once; the models have other names than those that ship."""
    app = Train(dataset=dataset, directory=str(directory or ""), span_ms=20_000, seed=9)
    return [row["message"] for row in results_of(app, 1)["results"]]


@pytest.mark.parametrize("by_name", [False, True])
def test_a_model_that_train_has_trained_counts_from_the_next_row_on(tmp_path: Path, by_name: bool) -> None:
    """Whether the message is the model itself or names its file."""
    app = Pred(sensors=SENSORS, directory=str(tmp_path) if by_name else "")
    messages = trained("city", tmp_path if by_name else None)
    models = [json.loads((tmp_path / one).read_text() if by_name else one) for one in messages]
    assert sorted(model["type"] for model in models) == ["DTC", "MLR"]
    lines, oracle, wanted = lines_of(app, 200), Prediction("city"), []
    node = node_of(app, with_updates=True)
    for number, first in enumerate((0, 80, 120)):
        node.feed([{"line": line} for line in lines[first : (80, 120, 200)[number]]], source="input")
        wanted += [answer for line in lines[first : (80, 120, 200)[number]] for answer in oracle.answers(line)]
        node.settle()
        if number < 2:  # first one of the models, after some more rows the other
            node.feed([{"line": messages[number]}], source="models")
            node.settle()
            oracle.replace(models[number])
    found = node.write_out("results")
    assert by_kind_and_sensor(found) == by_kind_and_sensor(wanted)
    assert len({row["model"] for row in found}) == 4
    assert node.ledger().balanced


def test_a_result_of_train_as_a_sink_writes_it_is_a_model_too() -> None:
    app = Train(span_ms=20_000, seed=9)
    written = [{"line": json.dumps(row)} for row in results_of(app, 1)["results"]]
    node = node_of(Pred(sensors=SENSORS), with_updates=True)
    node.feed(written, source="models")
    node.settle()
    node.feed([{"line": line} for line in lines_of(Pred(sensors=SENSORS), 10)], source="input")
    node.settle()
    assert {row["model"] for row in node.write_out("results")} == {
        "CITY-DTC-1422748820000.model",
        "CITY-MLR-1422748820000.model",
    }


def test_an_update_that_is_no_model_is_set_aside_and_the_model_stays(tmp_path: Path) -> None:
    """A name that is none, a file that is not there, a model of another data set, bytes that are nothing."""
    [*taxi] = trained("taxi")
    bad = ["../../etc/passwd", "CITY-DTC-7.model", *taxi, '{"type": "DTC"}', "", "{}"]
    node = node_of(Pred(sensors=SENSORS, directory=str(tmp_path)), with_updates=True)
    node.feed([{"line": line} for line in bad], source="models")
    node.settle()
    lines = lines_of(Pred(sensors=SENSORS), 30)
    node.feed([{"line": line} for line in lines], source="input")
    node.settle()
    assert by_kind_and_sensor(node.write_out("results")) == by_kind_and_sensor(expected("city", lines))
    assert node.ledger().balanced


class Feed:
    """Lines that go on until an answer of each new model has come; these are trained on the way."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.changed = Condition()
        self.lines: list[str] = []
        self.is_over = False
        self.rows: list[Row] = []

    def __call__(self) -> Iterator[Row]:
        made = MadeLines("city", SENSORS)
        for number in itertools.count():  # a test that never comes to an end is ended by its timeout
            if number == 5:
                trained("city", self.directory)
            with self.changed:
                if number > 5 and self.changed.wait_for(self.is_replaced, 0.01):
                    break
            for line in made(10 * number, 10)["line"].to_pylist():
                self.lines.append(line)
                yield {"line": line}
        with self.changed:
            self.is_over = True
            self.changed.notify_all()

    def take(self, answers: pa.RecordBatch) -> None:
        with self.changed:
            self.rows += answers.to_pylist()
            self.changed.notify_all()

    def is_replaced(self) -> bool:
        return len({row["model"] for row in self.rows}) == 4

    def is_answered(self) -> bool:
        return self.is_over and len(self.rows) == 2 * len(self.lines)


def test_a_running_flow_takes_up_the_models_that_are_put_into_its_directory(tmp_path: Path, thread_node: Node) -> None:
    """From some message on, all answers are those of the new model, and what it says is what the oracle says."""
    models = tmp_path / "models"
    models.mkdir()
    feed, app = Feed(models), Pred(sensors=SENSORS, models=str(models))
    lines = hw.read.iterable(feed, schema=TextFormat.schema)
    running = thread_node.deploy(app.flow(lines, lambda name: hw.to.call(feed.take)))
    with feed.changed:
        assert feed.changed.wait_for(feed.is_answered, 120), running.error
    thread_node.remove(app.name)
    assert feed.is_replaced()
    new = [json.loads(path.read_text()) for path in models.iterdir()]
    answered = {one["type"]: [row["model"] for row in feed.rows].count(one["name"]) for one in new}
    oracle, wanted = Prediction("city"), []
    for number, line in enumerate(feed.lines):
        for model in new:
            if number == len(feed.lines) - answered[model["type"]]:
                oracle.replace(model)
        wanted += oracle.answers(line)
    assert by_kind_and_sensor(feed.rows) == by_kind_and_sensor(wanted)


@pytest.mark.spark
@pytest.mark.parametrize("dataset", ["city", "taxi", "fit", "grid"])
def test_the_twin_gives_the_same(spark_node: Node, tmp_path: Path, dataset: Any) -> None:
    """Errors too, though there the two inputs of the estimate meet in another order."""
    assert isinstance(spark_node.pool, SparkPool)
    app = Pred(dataset=dataset, sensors=5)
    found = twin_results_of(app, 150, spark_node.pool.session, tmp_path)["results"]
    wanted = by_kind_and_sensor(expected(dataset, lines_of(app, 150)))
    assert {key: sorted(rows, key=repr) for key, rows in by_kind_and_sensor(found).items()} == {
        key: sorted(rows, key=repr) for key, rows in wanted.items()
    }


@pytest.mark.spark
def test_spark_tasks_give_the_same(spark_node: Node) -> None:
    """Its functions and models travel to other processes."""
    app, out = Pred(sensors=SENSORS), hw.to.memory()
    running = spark_node.deploy(app.flow(app.source(rows=300), lambda name: out))
    assert spark_node.wait(running, 120)
    assert running.error is None
    spark_node.remove(app.name)
    assert by_kind_and_sensor(out.rows()) == by_kind_and_sensor(expected("city", lines_of(app, 300)))


def test_the_twin_refuses_models_that_are_replaced(tmp_path: Path) -> None:
    app = Pred(models=str(tmp_path))
    graph = hw.compile_flow(app.flow(app.source(), lambda name: hw.to.nothing()))
    assert [sentence.split(";")[0] for sentence in refusals(graph)] == [
        "model 'decision_tree' is replaced by rows of a second stream",
        "model 'regression' is replaced by rows of a second stream",
    ]


def test_a_data_set_that_is_none_is_named_with_those_that_are() -> None:
    for app in (Pred(dataset="sys"), Train(dataset="sys")):  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="there is no data set 'sys'; there are city, taxi, fit, grid"):
            app.build(hw.read.iterable([], schema=app.schema))


def test_models_must_come_from_somewhere() -> None:
    with pytest.raises(ConfigError, match="is neither a directory nor the mqtt:// address of a topic"):
        Pred(models="nowhere").build(Pred().source())


def test_a_file_of_a_model_that_is_no_text_is_counted_and_the_next_one_read(tmp_path: Path) -> None:
    (tmp_path / "CITY-DTC-1.model").write_bytes(b"\xff\xfe\n")
    (tmp_path / "CITY-DTC-2.model").write_text("a model\n")
    app = Pred(models=str(tmp_path))
    graph = hw.compile_flow(app.flow(app.source(), lambda name: hw.to.nothing()))
    reader = graph.sources["dtc_files"].open(None)
    bad, good = polled(reader), polled(reader)
    reader.close()
    assert (bad.unparsable, good.batch.to_pylist()) == (1, [{"line": "a model"}])


def test_models_may_come_from_a_broker() -> None:
    app = Pred(models="mqtt://broker/models")
    graph = hw.compile_flow(app.flow(app.source(), lambda name: hw.to.nothing()))
    assert set(graph.sources) == {"input", "models"}
    assert {"model_read", "model_kind"} <= {declared.name for declared in graph.declarations}
