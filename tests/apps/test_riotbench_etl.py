"""RIoTBench's ETL against the same computed row by row in plain Python."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headwater as hw
from apps.riotbench.cleaning import KnownTexts
from apps.riotbench.etl import Etl
from apps.riotbench.joining import JoinObservations
from apps.riotbench.parsing import ParseObservations
from headwater.connectors.files.formats import TextFormat
from headwater.engine.policies import Consumption
from headwater.runtime.node import Node
from headwater.workers.local.pool import SparkPool
from tests.apps import riotbench_oracle as oracle
from tests.apps.app_results import Row, made_rows, results_of
from tests.structured_runs import run_to_end

FEW = 20  # sensors: so that each of them has many messages
ONE = (
    '1422748800000,{"e":[{"u":"string","n":"source","sv":"%s"},{"v":"6.16","u":"lon","n":"longitude"},'
    '{"v":"46.19","u":"lat","n":"latitude"},{"v":"8","u":"far","n":"temperature"},{"v":"53.7","u":"per","n":"humidity"},'
    '{"v":"%s","u":"per","n":"light"},{"v":"411.02","u":"per","n":"dust"},{"v":"140","u":"per","n":"airquality_raw"}],'
    '"bt":1422748800000}'
)


def run_on(app: Etl, lines: Sequence[str], **settings: Any) -> dict[str, list[Row]]:
    """Run the application on lines and return its results by name."""
    sinks: dict[str, Any] = {}
    rows = hw.read.iterable([{"line": line} for line in lines], schema=TextFormat.schema)
    hw.run(app.flow(rows, lambda name: sinks.setdefault(name, hw.to.memory())), spark=False, **settings)
    return {name: sink.rows() for name, sink in sinks.items()}


def known_to(app: Etl) -> dict[str, list[Any]]:
    """Return what the application knows of its senders."""
    return {sender: values for sender, *values in zip(*app.known_senders.to_pydict().values(), strict=True)}


def expected(app: Etl, lines: Sequence[str]) -> list[Row]:
    etl = oracle.Etl(app.dataset, app.ranges, known_to(app))
    return [etl.cleaned(line) for line in lines]


def comparable(row: Row) -> tuple[Any, ...]:
    """Return a row as something to count: numbers to nine digits, without what only tells rows apart."""
    return tuple(
        (name, f"{value:.9g}" if isinstance(value, float) else str(value))
        for name, value in sorted(row.items())
        if name not in ("msgid", "row", "batch")
    )


def published(payload: str) -> Row:
    """Read a published message back."""
    message = json.loads(payload)
    assert isinstance(message["bt"], str), "as RIoTBench writes it"
    row: Row = {"timestamp": int(message["bt"])}
    for entry in message["e"]:
        written = entry["v"] if "v" in entry else entry["sv"]
        row[entry["n"]] = None if written == "null" else float(written) if "v" in entry else written
    return row


def check(app: Etl, lines: Sequence[str], results: dict[str, list[Row]]) -> list[Row]:
    """Check that both kinds of results are just what is expected, and return that."""
    rows = expected(app, lines)
    wanted = Counter(map(comparable, rows))
    assert Counter(map(comparable, results["inserted"])) == wanted
    assert {row["topic"] for row in results["published"]} == {oracle.TOPIC[app.dataset]}
    assert Counter(comparable(published(row["payload"])) for row in results["published"]) == wanted
    return rows


@pytest.mark.parametrize("dataset", ["city", "taxi", "fit", "grid"])
def test_messages_are_cleaned_completed_and_annotated_as_the_benchmark_says(dataset: Any) -> None:
    app = Etl(dataset=dataset, sensors=FEW)
    lines = [row["line"] for row in made_rows(app, 700)]
    rows = check(app, lines, results_of(app, 700))
    was = [oracle.parsed(line) for line in lines]
    changed = sum(row[name] != before[name] for row, before in zip(rows, was, strict=True) for name in before)
    assert changed > 20, "made messages have something to clean"


def test_on_several_instances_and_in_tiny_turns_the_same_comes_out() -> None:
    """Then messages are cut anywhere on their way, and the join waits for the rest of them."""
    app = Etl(sensors=FEW, ranges="edgewise", parallelism=3, publishers=2)
    lines = [row["line"] for row in made_rows(app, 300)]
    check(app, lines, results_of(app, 300, chaining=False, consumption=Consumption.parse("7")))


@pytest.mark.spark
@pytest.mark.parametrize("dataset", ["city", "taxi", "fit", "grid"])
def test_the_twin_gives_the_same(spark_node: Node, tmp_path: Path, dataset: Any) -> None:
    """What is inserted: that has passed all that has state. The other branch only writes it down."""
    assert isinstance(spark_node.pool, SparkPool)
    app, out = Etl(dataset=dataset, sensors=3), hw.to.memory()
    lines = [row["line"] for row in made_rows(app, 20)]
    flow = hw.flow(app.name, app.build(app.source(rows=20))["inserted"].sink(out))
    run_to_end(flow, spark_node.pool.session, tmp_path)
    assert Counter(map(comparable, out.rows())) == Counter(map(comparable, expected(app, lines)))


def test_of_the_real_city_sample_so_many_values_are_not_believed(data: Path) -> None:
    """The counts of RIoTBench's own ranges: 919 of 1,000 lamps, 163 of air quality, 120 of dust, 5 of humidity."""
    app = Etl().with_data(data)
    lines = (data / "sys/SYS_sample_data_senml.csv").read_text(encoding="utf-8").splitlines()
    sinks: dict[str, Any] = {}
    flow = app.flow(app.source(data=data), lambda name: sinks.setdefault(name, hw.to.memory()))
    hw.run(flow, spark=False)
    check(app, lines, {name: sink.rows() for name, sink in sinks.items()})
    kept = [json.loads(line.split(",", 1)[1]) for line in lines]
    ranges = oracle.RANGES["city", "riot"]
    outside = Counter(
        entry["n"]
        for message in kept
        for entry in message["e"]
        if entry["n"] in ranges and not ranges[entry["n"]][0] <= float(entry["v"]) <= ranges[entry["n"]][1]
    )
    assert outside == {"light": 919, "airquality_raw": 163, "dust": 120, "humidity": 5}
    assert all(row["location"] is not None for row in sinks["inserted"].rows()), "all real senders are known"


@pytest.mark.parametrize(("dataset", "sample"), [("taxi", "TAXI"), ("fit", "FIT")])
def test_the_other_real_samples_come_out_as_expected(dataset: Any, sample: str, data: Path) -> None:
    """That of FIT repeats three messages fifteen times: messages of one text are not mistaken for one."""
    app = Etl(dataset=dataset, parallelism=2).with_data(data)
    lines = (data / f"{dataset}/{sample}_sample_data_senml.csv").read_text(encoding="utf-8").splitlines()
    check(app, lines, run_on(app, lines))


def test_messages_of_one_text_that_are_under_way_together_stay_apart() -> None:
    app = Etl(sensors=FEW, parallelism=3)
    lines = [row["line"] for row in made_rows(app, 5)] * 8
    results = run_on(app, lines, chaining=False, consumption=Consumption.parse("4"))
    check(app, lines, results)


@pytest.mark.parametrize("rows_a_turn", ["all", "5"])
def test_observations_may_reach_the_join_in_any_order(rows_a_turn: str) -> None:
    """Also those of two messages of one text."""
    app, out = Etl(sensors=FEW), hw.to.memory()
    lines = [row["line"] for row in made_rows(app, 40)] * 2
    parse = ParseObservations(app.described, tuple(field.name for field in app.described.observed))
    rows = parse(pa.record_batch({"line": lines})).to_pylist()
    Random(7).shuffle(rows)
    joined = hw.read.iterable(rows, schema=parse.schema).key_by("msgid").stateful(JoinObservations(app.described))
    hw.run(hw.flow("join", joined.sink(out)), spark=False, consumption=Consumption.parse(rows_a_turn))
    wanted = Counter(comparable(oracle.parsed(line)) for line in lines)
    assert Counter(map(comparable, out.rows())) == wanted


def test_a_value_that_is_missing_before_there_was_any_stays_missing() -> None:
    app = Etl(sensors=FEW)
    sender = next(iter(known_to(app)))
    light = ["1", "2000", "null", "3000", "1"]
    results = run_on(app, [ONE % (sender, value) for value in light])
    assert [row["light"] for row in results["inserted"]] == [None, 2000.0, 2000.0, 3000.0, 2500.0]


def test_an_unknown_sender_is_taken_out_and_not_annotated() -> None:
    app = Etl(sensors=FEW)
    stranger, friend = "nobody", next(iter(known_to(app)))
    found = run_on(app, [ONE % (stranger, 2000), ONE % (friend, 2000)])["inserted"]
    assert {row["source"] for row in found} == {None, friend}
    assert [row["location"] is None for row in sorted(found, key=lambda row: row["source"] or "")] == [True, False]


def test_lines_that_are_no_messages_are_dead_letters_and_the_others_go_on() -> None:
    app = Etl(sensors=FEW)
    sender = next(iter(known_to(app)))
    bad = [
        "not a message",
        "1,{}",
        '1,{"e":[{"n":7}],"bt":1}',
        (ONE % (sender, 1)).replace('"v":"8"', '"v":"warm"'),
        (ONE % (sender, 1)).replace('"bt":1422748800000', '"bt":"noon"'),
        (ONE % (sender, 1)).replace('"n":"source"', '"n":"origin"'),
    ]
    sinks: dict[str, Any] = {}
    rows = hw.read.iterable([{"line": line} for line in [*bad, ONE % (sender, 1)]], schema=TextFormat.schema)
    status = hw.run(app.flow(rows, lambda name: sinks.setdefault(name, hw.to.memory())), spark=False)
    assert status.ledger is not None
    assert (status.ledger.dropped, status.ledger.balanced) == ({"dead-letter": len(bad)}, True)
    assert len(sinks["inserted"].rows()) == 1


def test_rows_are_numbered_by_sender_and_inserted_a_hundred_at_a_time() -> None:
    app = Etl(sensors=1, rows_per_insert=10)
    lines = [row["line"] for row in made_rows(app, 45)]
    numbers = [(row["row"], row["batch"]) for row in run_on(app, lines)["inserted"] if row["source"] is not None]
    assert numbers == [(number, number // 10) for number in range(len(numbers))]
    assert len(numbers) > 40


@pytest.mark.parametrize("length", [0, 3, 200])
def test_the_filter_knows_all_members_and_hardly_any_other(length: int) -> None:
    """As many false positives as RIoTBench allows: one in a hundred."""
    members = [f"{'x' * length}{number}" for number in range(1000)]
    known = KnownTexts(pa.array(members), capacity=100)
    assert known.knows(pa.array(members)).to_pylist() == [True] * 1000
    others = known.knows(pa.array([f"{'y' * length}{number}" for number in range(1000, 11_000)]))
    assert 0 < np.count_nonzero(others.to_numpy(zero_copy_only=False)) < 200
    assert known.knows(pa.array([None, members[0]], pa.string())).to_pylist() == [False, True]
