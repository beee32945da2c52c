"""A node runs flows: the same on Spark tasks and on threads."""

import asyncio
import functools
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headwater as hw
from headwater.dataflow.connectors import Poll, Position, Rows
from headwater.engine.status import AppState
from headwater.model.errors import EngineError, FlowError, StoreError
from headwater.model.store_layout import TERM_KEY
from headwater.runtime.node import Node
from headwater.workers.config import NodeConfig
from tests.runtime.flows import by_sensor, expected_sums, made_rows, running_sums
from tests.runtime.gates import Gate, passing

PATIENCE_S = 120.0


def test_a_flow_gives_what_plain_python_gives(node: Node) -> None:
    """Filter, flat map and keyed state, spread over two instances: every row once, in order per key."""
    sink = hw.to.memory()
    app = node.deploy(running_sums("plain", 5_000, sink))
    assert node.wait(app, PATIENCE_S)
    assert app.error is None
    assert by_sensor(sink.rows()) == expected_sums(5_000)
    assert node.ledger(app).balanced


def test_many_flows_run_at_once_and_come_and_go_while_others_run(node: Node) -> None:
    """Removing one flow in mid-run and adding others disturbs nobody."""
    steady = hw.to.memory()
    long_one = node.deploy(running_sums("steady", 4_000, steady, rate=4_000))
    endless = node.deploy(running_sums("endless", 10**9, hw.to.nothing(), rate=500))
    sinks = [hw.to.memory() for _ in range(10)]
    short = [node.deploy(running_sums(f"short-{number}", 500, sink)) for number, sink in enumerate(sinks)]
    assert all(node.wait(app, PATIENCE_S) for app in short)
    node.remove("endless")
    assert node.wait(long_one, PATIENCE_S)
    assert endless.state is AppState.STOPPED
    assert [by_sensor(sink.rows()) for sink in sinks] == [expected_sums(500)] * 10
    assert by_sensor(steady.rows()) == expected_sums(4_000)


def test_a_removed_flow_leaves_nothing_in_the_store_and_its_name_is_free(node: Node) -> None:
    """A second flow of the same name starts from the first row."""
    first = node.deploy(running_sums("again", 200, hw.to.memory()))
    assert node.wait(first, PATIENCE_S)
    node.remove("again")
    sink = hw.to.memory()
    second = node.deploy(running_sums("again", 300, sink))
    assert node.wait(second, PATIENCE_S)
    assert by_sensor(sink.rows()) == expected_sums(300)


def test_the_ledger_balances_at_every_moment(node: Node) -> None:
    """Read again and again while rows flow, it never misses one."""
    app = node.deploy(running_sums("audited", 6_000, hw.to.memory(), rate=6_000))
    readings = 0
    while not node.wait(app, 0.01):
        ledger = node.ledger(app)
        assert ledger.balanced, ledger
        readings += 1
    ledger = node.ledger(app)
    assert readings > 10
    assert (ledger.rows_in, ledger.waiting, ledger.balanced) == (6_000, 0, True)
    assert ledger.rows_out == sum(len(rows) for rows in expected_sums(6_000).values())


def test_a_function_that_raises_stops_its_flow_and_names_the_row(node: Node) -> None:
    """The error tells flow, operator, row and the user's line; other flows run on."""

    def divide(row: hw.Row) -> hw.Row:
        return {"n": row["n"], "q": 100 / (row["n"] - 777)}  # the user's line

    sink = hw.to.memory()
    other = node.deploy(running_sums("bystander", 3_000, sink, rate=6_000))
    flow = hw.flow("raising", hw.read.generator(made_rows, rows=2_000).map(divide, name="divide").sink(hw.to.memory()))
    app = node.deploy(flow)
    assert node.wait(app, PATIENCE_S)
    assert app.state is AppState.FAILED
    assert isinstance(app.error, hw.UserCodeError)
    assert (app.error.flow, app.error.operator) == ("raising", "divide")
    assert "ZeroDivisionError" in app.error.error
    assert '"n":777' in app.error.row
    assert "test_node.py" in app.error.line
    assert node.ledger(app).balanced
    assert node.wait(other, PATIENCE_S)
    assert by_sensor(sink.rows()) == expected_sums(3_000)


def test_dead_letters_go_to_a_stream_of_their_own(node: Node) -> None:
    """With on_error="dead-letter" the bad rows leave with their error and all others get through."""

    def picky(row: hw.Row) -> hw.Row:
        if row["n"] % 100 == 50:
            raise ValueError(f"no {row['n']}")
        return {"n": row["n"]}

    good, bad = hw.to.memory(), hw.to.memory()
    picked = hw.read.generator(made_rows, rows=1_000).map(picky, name="picky", on_error="dead-letter")
    app = node.deploy(hw.flow("letters", picked.sink(good), picked.errors.sink(bad)))
    assert node.wait(app, PATIENCE_S)
    assert [row["n"] for row in good.rows()] == [n for n in range(1_000) if n % 100 != 50]
    assert [row["error"] for row in bad.rows()] == [f"ValueError: no {n}" for n in range(50, 1_000, 100)]
    assert {row["operator"] for row in bad.rows()} == {"picky"}
    assert node.ledger(app).balanced


def test_operators_that_compute_for_long_do_not_stall_the_others(node: Node, tmp_path: Path) -> None:
    """Both workers are held by operators that wait at a gate, which opens only once another flow has finished."""
    gate = Gate(tmp_path)
    wait_for_gate = functools.partial(passing, gate.path)
    held = [
        node.deploy(hw.flow(f"held-{n}", hw.read.generator(made_rows, rows=1).map(wait_for_gate).sink(hw.to.memory())))
        for n in range(3)
    ]
    sink = hw.to.memory()
    quick = node.deploy(running_sums("quick", 2_000, sink))
    assert node.wait(quick, PATIENCE_S)
    assert [app.state for app in held] == [AppState.RUNNING] * 3
    gate.open()
    assert all(node.wait(app, PATIENCE_S) for app in held)
    assert by_sensor(sink.rows()) == expected_sums(2_000)


@pytest.mark.spark
def test_a_row_that_kills_its_worker_is_found_and_set_aside(spark_node: Node) -> None:
    """The worker dies a bounded number of times; then the row is a dead letter and all others have got through."""

    def fatal(row: hw.Row) -> hw.Row:
        if row["n"] == 321:
            os._exit(9)
        return {"n": row["n"]}

    good, bad = hw.to.memory(), hw.to.memory()
    run = hw.read.generator(made_rows, rows=600).map(fatal, name="fatal", on_error="dead-letter")
    lost_before = spark_node.dispatcher.workers_lost
    app = spark_node.deploy(hw.flow("poison", run.sink(good), run.errors.sink(bad)))
    assert spark_node.wait(app, PATIENCE_S)
    assert [row["n"] for row in good.rows()] == [n for n in range(600) if n != 321]
    assert ['"n":321' in row["row"] for row in bad.rows()] == [True]
    assert "died" in bad.rows()[0]["error"]
    assert spark_node.dispatcher.workers_lost - lost_before < 25
    assert spark_node.ledger(app).balanced


def test_a_node_goes_on_where_another_stopped(tmp_path: Path) -> None:
    """Half-way rows, state and positions are in the store; the second node finishes the work exactly once."""
    out = tmp_path / "out.jsonl"
    config = NodeConfig(store=tmp_path / "store", spark=False)
    rows_before = 0
    with Node(config) as first:
        app = first.deploy(running_sums("relay", 4_000, hw.to.json(str(out)), rate=4_000))
        while rows_before < 1_000 and not first.wait(app, 0.01):
            rows_before = first.status().apps[0].rows_in
    with Node(config) as second:
        app = second.deploy(running_sums("relay", 4_000, hw.to.json(str(out))))
        assert second.wait(app, PATIENCE_S)
        assert second.ledger(app).balanced
    assert 1_000 <= rows_before < 4_000
    assert by_sensor([dict(zip(row, row.values(), strict=True)) for row in _json_rows(out)]) == expected_sums(4_000)


def _json_rows(path: Path) -> list[dict[str, object]]:
    import orjson

    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def test_a_store_refuses_a_flow_of_another_structure(tmp_path: Path) -> None:
    """State of one graph is never read as that of another."""
    config = NodeConfig(store=tmp_path / "store", spark=False)
    with Node(config) as node:
        node.wait(node.deploy(running_sums("shape", 10, hw.to.memory())), PATIENCE_S)
    with Node(config) as node, pytest.raises(FlowError, match=r"another version of flow 'shape' .*would run 3 times"):
        node.deploy(running_sums("shape", 10, hw.to.memory(), parallelism=3))


def test_two_nodes_cannot_own_one_store(thread_node: Node) -> None:
    """The second says who is in the way."""
    with pytest.raises(StoreError, match="in use by another node"):
        Node(thread_node.config)


def test_a_store_of_another_version_is_refused(tmp_path: Path) -> None:
    """Its format is named; nothing is changed."""
    store = tmp_path / "store"
    with Node(NodeConfig(store=store, spark=False)):
        pass
    import lmdb

    with lmdb.open(str(store)) as env, env.begin(write=True) as txn:
        txn.put(b"!format", b"headwater store 99")
    with pytest.raises(StoreError, match=r"another version .*headwater store 99"):
        Node(NodeConfig(store=store, spark=False))


def test_a_directory_with_something_else_is_refused(tmp_path: Path) -> None:
    """A file that is no store is named as such."""
    (tmp_path / "data.mdb").write_bytes(b"no store " * 10_000)
    with pytest.raises(StoreError, match="no store that can be read"):
        Node(NodeConfig(store=tmp_path, spark=False))


def test_a_store_that_another_node_has_taken_over_ends_apps_with_a_sentence(thread_node: Node) -> None:
    """It was told as a full disk, and tried again for ever."""
    app = thread_node.deploy(running_sums("fenced", 10**9, hw.to.nothing(), rate=100))
    with thread_node.store.write() as txn:
        txn.put(TERM_KEY, b"another node's")
    assert thread_node.wait(app, PATIENCE_S)
    assert app.state is AppState.FAILED
    assert "another node has taken over this node's store" in str(app.error)
    with pytest.raises(EngineError, match="another node has taken over"):
        thread_node.deploy(running_sums("next", 10, hw.to.nothing()))


def test_code_that_cannot_travel_is_refused_before_anything_runs(thread_node: Node) -> None:
    """A lock in a closure cannot be sent to a worker: the sentence says so and what to do."""
    import threading

    lock = threading.Lock()

    def guarded(batch: pa.RecordBatch) -> pa.RecordBatch:
        with lock:
            return batch

    flow = hw.flow("locked", hw.read.generator(made_rows, rows=1).map(guarded).sink(hw.to.memory()))
    with pytest.raises(FlowError, match="cannot be sent to workers"):
        thread_node.deploy(flow)


def test_code_travels_also_from_a_module_that_is_known_under_two_names(
    thread_node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the main module is in a process that multiprocessing has started."""
    monkeypatch.setitem(sys.modules, "another_name", sys.modules[made_rows.__module__])
    sink = hw.to.memory()
    app = thread_node.deploy(running_sums("twice", 100, sink))
    assert thread_node.wait(app, PATIENCE_S)
    assert by_sensor(sink.rows()) == expected_sums(100)


def test_a_flow_already_running_is_not_started_twice(thread_node: Node) -> None:
    """Names are unique among running flows."""
    thread_node.deploy(running_sums("one", 10**9, hw.to.nothing(), rate=10))
    with pytest.raises(FlowError, match="already running"):
        thread_node.deploy(running_sums("one", 10, hw.to.nothing()))


def test_fan_out_split_and_union_meet_again(node: Node) -> None:
    """Both branches of a split, joined again beside a copy of the stream, hold every row once per way."""
    made = hw.read.generator(made_rows, rows=1_000)
    even, odd = made.split(lambda batch: pc.equal(pc.bit_wise_and(batch["n"], 1), 0), into=("even", "odd"))
    sink, copy = hw.to.memory(), hw.to.memory()
    app = node.deploy(hw.flow("ways", even.union(odd).sink(sink, name="joined"), made.select("n").sink(copy)))
    assert node.wait(app, PATIENCE_S)
    assert sorted(row["n"] for row in sink.rows()) == list(range(1_000))
    assert [row["n"] for row in copy.rows()] == list(range(1_000))
    ledger = node.ledger(app)
    assert (ledger.copied, ledger.rows_out, ledger.balanced) == (1_000, 2_000, True)


def test_code_is_read_once_by_a_worker_and_not_per_turn(spark_node: Node) -> None:
    """A function's module-level cost is paid once per worker process, however many turns there are."""
    sink = hw.to.memory()
    made = hw.read.generator(made_rows, rows=3_000, rate=6_000)
    app = spark_node.deploy(hw.flow("shipped", made.map(LoadCounter()).sink(sink)))
    assert spark_node.wait(app, PATIENCE_S)
    loads = {row["loaded_in"] for row in sink.rows()}
    turns = next(part.turns for one in spark_node.status().apps if one.name == "shipped" for part in one.operators[1:2])
    assert turns > 5, "more than there are workers"
    assert len(loads) <= len({row["pid"] for row in sink.rows()})


class LoadCounter:
    """A function that knows when it was unpickled."""

    def __init__(self) -> None:
        """Made here."""
        self.loaded_in = "here"

    def __setstate__(self, state: dict[str, str]) -> None:
        """Unpickled in a worker."""
        self.loaded_in = os.urandom(8).hex()

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Tell where and by which copy each row was seen."""
        rows = batch.num_rows
        return pa.record_batch({"pid": [os.getpid()] * rows, "loaded_in": [self.loaded_in] * rows})


def test_a_source_may_lead_straight_to_a_sink(node: Node) -> None:
    """No turn tells the sink of its rows, so the source has to."""
    for number in range(5):
        one, both = hw.to.memory(), hw.to.memory()
        left, right = (hw.read.iterable([{"a": value}]) for value in (1, 2))
        app = node.deploy(hw.flow(f"straight-{number}", left.sink(one), left.union(right).sink(both)))
        assert node.wait(app, PATIENCE_S)
        assert (len(one.rows()), len(both.rows())) == (1, 2)


def test_a_sink_gets_rows_that_are_too_large_to_be_taken_together(thread_node: Node) -> None:
    """A look at the queue ends at so many bytes; the rows behind are not forgotten."""
    sink = hw.to.memory()
    rows = hw.read.iterable([pa.record_batch({"blob": [b"x" * 11_000_000]}) for _ in range(5)])
    app = thread_node.deploy(hw.flow("large", rows.map(lambda batch: batch).sink(sink)))
    assert thread_node.wait(app, PATIENCE_S)
    assert [len(row["blob"]) for row in sink.rows()] == [11_000_000] * 5


@dataclass
class Torn:
    """A source that raises at the first look, and whose end takes as long as a test wants."""

    may_close: threading.Event
    schema: pa.Schema = field(default_factory=lambda: pa.schema([("n", pa.int64())]))
    kind: str = "torn"
    can_wait: bool = True
    blocking: bool = False
    guarantee: str = "exactly-once"

    def open(self, position: Position | None) -> "Torn":
        return self

    def poll(self, rows_max: int, now: int) -> Poll:
        raise RuntimeError("the cable is torn")

    def close(self) -> None:
        self.may_close.wait()


def test_an_app_whose_source_fails_has_failed_however_long_it_takes_to_close(thread_node: Node) -> None:
    """All its sources have ended and no rows wait, as where everything went well."""
    source = Torn(threading.Event())
    app = thread_node.deploy(hw.flow("torn", hw.source(source).sink(hw.to.nothing())))
    while app.state is AppState.RUNNING:
        pass
    source.may_close.set()
    assert (app.state, "the cable is torn" in str(app.error)) == (AppState.FAILED, True)


def test_a_source_whose_rows_cannot_be_spread_fails_alone(thread_node: Node) -> None:
    """Which type a column has shows when rows come; the sources of other apps are read by the same thread."""
    sink = hw.to.memory()
    steady = thread_node.deploy(running_sums("steady", 400, sink, rate=2_000))
    listed = hw.read.iterable([{"key": [1]}, {"key": [2]}]).key_by("key")
    broken = thread_node.deploy(hw.flow("listed", listed.map(lambda batch: batch, parallelism=2).sink(hw.to.nothing())))
    assert thread_node.wait(broken, PATIENCE_S)
    assert str(broken.error) == (
        "source 'iterable' cannot go on: column 'key' is a list<item: int64> and cannot be a key; "
        "use numbers, texts, bytes, dates or times"
    )
    assert thread_node.wait(steady, PATIENCE_S)
    assert steady.error is None
    assert by_sensor(sink.rows()) == expected_sums(400)


@dataclass
class Tables(Torn):
    """A source of somebody's own that answers with what is no batch."""

    may_close: threading.Event = field(default_factory=threading.Event)

    def poll(self, rows_max: int, now: int) -> Poll:
        return Rows(pa.table({"n": [1]}), {})

    def close(self) -> None:
        """Be done at once."""


def test_a_source_that_brings_what_is_no_batch_fails_alone(thread_node: Node) -> None:
    """Whatever is wrong with the rows of one, another is read on by the same thread."""
    sink = hw.to.memory()
    steady = thread_node.deploy(running_sums("steady", 400, sink, rate=2_000))
    broken = thread_node.deploy(hw.flow("tables", hw.source(Tables()).sink(hw.to.nothing())))
    assert thread_node.wait(broken, PATIENCE_S)
    assert "source 'torn' cannot go on: " in str(broken.error)
    assert thread_node.wait(steady, PATIENCE_S)
    assert by_sensor(sink.rows()) == expected_sums(400)


def test_a_node_one_of_whose_threads_broke_takes_no_further_app(thread_node: Node) -> None:
    """It would never read it, and say that it runs."""
    flow = hw.flow("late", hw.read.iterable([{"n": 1}]).sink(hw.to.nothing()))
    thread_node.broke(RuntimeError("a mistake of ours"))
    with pytest.raises(EngineError, match=r"internal error .*a mistake of ours.*start it again and report it"):
        thread_node.deploy(flow)


def by_category(first: int, count: int) -> pd.DataFrame:
    """Return rows with a category each, as many per batch as pandas numbers with a byte."""
    return pd.DataFrame({"word": pd.Categorical([f"w{number}" for number in range(first, first + count)])})


def test_batches_whose_categories_are_too_many_for_a_byte_together_run_through(thread_node: Node) -> None:
    """Which of them are taken together depends on what else is going on."""
    sink = hw.to.memory()
    words = hw.read.generator(by_category, rows=600, batch_rows=100)
    app = thread_node.deploy(hw.flow("words", words.map(lambda batch: batch).dedup("word", parallelism=2).sink(sink)))
    assert thread_node.wait(app, PATIENCE_S)
    assert app.error is None
    assert sorted(row["word"] for row in sink.rows()) == sorted(f"w{number}" for number in range(600))


def test_a_source_may_bring_more_categories_in_one_batch_than_in_those_before(thread_node: Node) -> None:
    """Pandas numbers them with two bytes then."""
    sink = hw.to.memory()
    frames = hw.read.iterable([by_category(0, 100), by_category(0, 200)])
    app = thread_node.deploy(hw.flow("more", frames.sink(sink)))
    assert thread_node.wait(app, PATIENCE_S)
    assert app.error is None
    assert len(sink.rows()) == 300


def leave(row: hw.Row) -> hw.Row:
    """End the process, as a library may that finds its settings wrong."""
    sys.exit("settings are wrong")


def two_rows_and_leave() -> Iterator[hw.Row]:
    """Break off without an error that programs catch."""
    yield from ({"n": 1}, {"n": 2})
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("stream", "sink", "said"),
    [
        (hw.read.iterable([{"n": 1}]).map(leave), hw.to.nothing(), "SystemExit: settings are wrong"),
        (hw.read.iterable(two_rows_and_leave), hw.to.nothing(), "its iterable broke off with CancelledError"),
        (hw.read.generator(lambda first, count: leave({})), hw.to.nothing(), "SystemExit: settings are wrong"),
        (hw.read.iterable([{"n": 1}]), hw.to.call(leave), "SystemExit: settings are wrong"),
    ],
    ids=["operator", "iterable", "generator", "sink"],
)
def test_code_that_ends_its_thread_has_failed_like_any_other(
    thread_node: Node, stream: hw.Stream, sink: Any, said: str
) -> None:
    """An operator and a sink would leave their rows waiting for ever, a source would seem to have no more."""
    app = thread_node.deploy(hw.flow("leaves", stream.sink(sink)))
    assert thread_node.wait(app, PATIENCE_S)
    assert said in str(app.error)
    thread_node.remove("leaves")
