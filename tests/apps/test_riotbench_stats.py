"""RIoTBench's STATS, as EdgeWise runs it, against the same computed row by row in plain Python."""

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from apps.riotbench.stats import Stats
from headwater.connectors.files.formats import TextFormat
from headwater.engine.policies import Consumption
from headwater.runtime.node import Node
from headwater.workers.local.pool import SparkPool
from tests.apps import riotbench_oracle as oracle
from tests.apps.app_results import Row, made_rows, results_of, twin_results_of

KINDS = ("regression", "second_moment", "distinct_count")
HLL_ERROR = 0.1  # three times what 1,024 registers have
FEW = 20

Results = dict[str, dict[tuple[str, str], list[list[float]]]]


def by_kind(rows: Sequence[Row]) -> Results:
    """Return what was published: the values of each kind, by sensor and observable, in order."""
    found: Results = {kind: defaultdict(list) for kind in KINDS}
    for row in rows:
        message = json.loads(row["payload"])
        kind = next(kind for kind in KINDS if kind in message)
        sensor = "" if kind == "distinct_count" else message["sensor"]
        found[kind][sensor, message["obs"]].append(message[kind])
    return found


def flattened(lists: Sequence[list[float]]) -> list[float]:
    return [value for one in lists for value in one]


def check(app: Stats, lines: Sequence[str], rows: Sequence[Row]) -> None:
    """Check that all statistics are those expected, in order unless several instances publish them."""
    known = app.known_senders[app.described.id_field].to_pylist()
    wanted, found = oracle.statistics(app.dataset, lines, set(known), app.seed), by_kind(rows)
    assert {row["topic"] for row in rows} == {oracle.TOPIC[app.dataset]}
    for kind in ("regression", "second_moment"):
        assert found[kind].keys() == wanted[kind].keys()
        for key, values in wanted[kind].items():
            come = found[kind][key] if app.publishers == 1 else sorted(found[kind][key])
            due = values if app.publishers == 1 else sorted(values)
            assert flattened(come) == pytest.approx(flattened(due), rel=1e-9, abs=1e-9), (kind, key)
    for key, counts in wanted["distinct_count"].items():
        come = found["distinct_count"][key]
        if app.parallelism == 1:
            assert flattened(come) == pytest.approx(flattened(counts), rel=HLL_ERROR), key
        else:  # sensors overtake one another, and the counts on the way are others
            assert len(come) == len(counts), key
            assert max(come) == pytest.approx(counts[-1], rel=HLL_ERROR), key


@pytest.mark.parametrize("dataset", ["city", "taxi", "fit", "grid"])
def test_statistics_are_those_of_the_formulas(dataset: Any) -> None:
    app = Stats(dataset=dataset, sensors=FEW)
    lines = [row["line"] for row in made_rows(app, 600)]
    check(app, lines, results_of(app, 600)["results"])


def test_on_several_instances_and_in_tiny_turns_the_same_comes_out() -> None:
    app = Stats(sensors=FEW, parallelism=3, publishers=3)
    lines = [row["line"] for row in made_rows(app, 400)]
    check(app, lines, results_of(app, 400, chaining=False, consumption=Consumption.parse("11"))["results"])


def test_real_messages_give_the_statistics_of_the_formulas(data: Path) -> None:
    """Looped four times over the thousand messages, as EdgeWise does: then some sensors have trends."""
    app, out = Stats().with_data(data), hw.to.memory()
    lines = (data / "sys/SYS_sample_data_senml.csv").read_text(encoding="utf-8").splitlines() * 4
    rows = hw.read.iterable([{"line": line} for line in lines], schema=TextFormat.schema)
    hw.run(app.flow(rows, lambda name: out), spark=False)
    check(app, lines, out.rows())
    assert by_kind(out.rows())["regression"], "some sensors have sent more than ten messages"


@pytest.mark.spark
@pytest.mark.parametrize("dataset", ["city", "taxi", "fit", "grid"])
def test_the_twin_gives_the_same(spark_node: Node, tmp_path: Path, dataset: Any) -> None:
    assert isinstance(spark_node.pool, SparkPool)
    app = Stats(dataset=dataset, sensors=2)
    lines = [row["line"] for row in made_rows(app, 40)]
    check(app, lines, twin_results_of(app, 40, spark_node.pool.session, tmp_path)["results"])


def test_what_an_unknown_sensor_sends_is_not_counted() -> None:
    app = Stats(sensors=FEW)
    lines = [line.replace('"ci4', '"xx4') for line in (row["line"] for row in made_rows(app, 50))]
    out = hw.to.memory()
    rows = hw.read.iterable([{"line": line} for line in lines], schema=TextFormat.schema)
    status = hw.run(app.flow(rows, lambda name: out), spark=False)
    assert (status.rows_in, out.rows()) == (50, [])


def test_a_message_makes_almost_fifteen_results() -> None:
    """EdgeWise counts 14.8 for each message: three for each of five observables, but trends only after ten values."""
    app = Stats(sensors=3)
    assert len(results_of(app, 1000)["results"]) / 1000 == pytest.approx(14.8 * 0.98, abs=0.25), "2 % are strangers'"


def test_a_missing_reading_is_passed_over() -> None:
    app = Stats(dataset="grid", sensors=FEW)
    lines = [row["line"] for row in made_rows(app, 300)]
    gaps = [
        line.replace('{"v":"', '{"v":"null","x":"') if number % 7 == 0 else line for number, line in enumerate(lines)
    ]
    out = hw.to.memory()
    rows = hw.read.iterable([{"line": line} for line in gaps], schema=TextFormat.schema)
    hw.run(app.flow(rows, lambda name: out), spark=False)
    check(app, [line for number, line in enumerate(lines) if number % 7], out.rows())


def test_the_count_of_many_sensors_is_near() -> None:
    app = Stats(dataset="grid", sensors=5000, log2_registers=12)
    counts = by_kind(results_of(app, 5000)["results"])["distinct_count"]
    assert counts["", "energyconsumed"][-1][0] == pytest.approx(4900, rel=0.05)
    assert counts["", "energyconsumed"][0] == [1]
