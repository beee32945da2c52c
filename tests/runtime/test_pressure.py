"""Memory is bounded: pause, spill, shed, in that order, all visible and accounted for."""

import functools
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

import headwater as hw
from headwater.connectors.in_process import MemorySink
from headwater.dataflow.connectors import Ended, Poll, Position, Rows
from headwater.dataflow.graph import Spread
from headwater.engine.events import Event, RowsPut
from headwater.engine.plans import Outlet
from headwater.engine.pressure import Pressure, PressureConfig
from headwater.engine.queue_records import read_queue
from headwater.engine.queues import Queue, Queues
from headwater.engine.status import AppState
from headwater.model.ids import AppId, InstanceId
from headwater.runtime.app import NodeApp
from headwater.runtime.node import Node
from headwater.runtime.sources import SourcePump, open_source
from headwater.storage.lmdb_store import LmdbStore
from headwater.workers.config import NodeConfig
from tests.runtime.flows import made_rows
from tests.runtime.gates import Gate, passing

PATIENCE_S = 120.0
ROW_BYTES = 1_000


@dataclass(frozen=True)
class Sensor:
    """A source of wide rows that cannot wait."""

    rows: int
    can_wait: bool = False
    kind: str = "sensor"
    schema: None = None
    blocking: bool = False
    guarantee: str = "exactly-once"

    def open(self, position: Position | None) -> "SensorReader":
        """Go on behind the position."""
        return SensorReader(self.rows, 0 if position is None else position["n"])


class SensorReader:
    """Gives fifty rows at a time, as fast as it is asked."""

    def __init__(self, rows: int, at: int) -> None:
        """Stand at a row."""
        self._rows, self._at = rows, at

    def poll(self, rows_max: int, now_us: int) -> Poll:
        """Return the next rows."""
        count = min(50, rows_max, self._rows - self._at)
        if count == 0:
            return Ended()
        numbers = range(self._at, self._at + count)
        self._at += count
        batch = pa.record_batch({"n": pa.array(numbers, pa.int64()), "wide": ["x" * ROW_BYTES] * count})
        return Rows(batch, {"n": self._at})

    def close(self) -> None:
        """Nothing is open."""


def gated(name: str, source: hw.Stream, gate: Gate) -> tuple[hw.Flow, MemorySink]:
    """A flow whose one operator takes nothing before the gate is open."""
    collected = hw.to.memory()
    held = source.map(functools.partial(passing, gate.path)).select("n")
    return hw.flow(name, held.sink(collected)), collected


@contextmanager
def small_node(tmp_path: Path, **budgets: int) -> Iterator[Node]:
    """A node with little room."""
    config = NodeConfig(store=tmp_path / "store", spark=False, pressure=PressureConfig(**budgets))
    with Node(config) as node:
        yield node


def wait_until_paused(node: Node, app: NodeApp) -> None:
    """Wait until all sources of an app are paused."""
    while not all(source.paused for source in app.sources):
        assert not node.wait(app, 0.01), app.error


def test_a_source_that_can_wait_is_paused_when_its_app_has_enough_waiting(tmp_path: Path) -> None:
    """The queue stays near its bound although the generator could fill it for ever; then everything gets through."""
    gate = Gate(tmp_path)
    with small_node(tmp_path, app_rows=2_000) as node:
        flow, sink = gated("paused", hw.read.generator(made_rows, rows=20_000), gate)
        app = node.deploy(flow)
        wait_until_paused(node, app)
        status = node.status(ledgers=True)
        ledger = status.apps[0].ledger
        assert ledger is not None
        assert 2_000 <= ledger.waiting <= 3_000
        assert status.pressure == "pausing"
        assert status.apps[0].operators[0].note == "paused"
        gate.open()
        assert node.wait(app, PATIENCE_S)
        assert [row["n"] for row in sink.rows()] == list(range(20_000))


def test_a_sensor_that_cannot_wait_spills_and_loses_nothing_within_the_disk_budget(tmp_path: Path) -> None:
    """Past the memory budget a file would pause; the sensor's rows wait on disk instead."""
    gate = Gate(tmp_path)
    with small_node(tmp_path, memory_bytes=1 << 20, disk_bytes=64 << 20) as node:
        flow, sink = gated("spilling", hw.source(Sensor(10_000)), gate)
        app = node.deploy(flow)
        levels = set()
        while not app.sources[0].ended:
            levels.add(node.status().pressure)
            assert not node.wait(app, 0.01)
        levels.add(node.status().pressure)
        assert "spilling" in levels
        gate.open()
        assert node.wait(app, PATIENCE_S)
        assert [row["n"] for row in sink.rows()] == list(range(10_000))
        assert node.ledger(app).dropped == {}


def test_past_the_disk_budget_the_oldest_rows_are_shed_and_counted(tmp_path: Path) -> None:
    """What is left is the newest, in order; the ledger says how many went and balances."""
    gate = Gate(tmp_path)
    with small_node(tmp_path, memory_bytes=1 << 20, disk_bytes=4 << 20) as node:
        flow, sink = gated("shedding", hw.source(Sensor(20_000)), gate)
        app = node.deploy(flow)
        levels = set()
        while not app.sources[0].ended:
            levels.add(node.status().pressure)
            ledger = node.ledger(app)
            assert ledger.balanced, ledger
            assert not node.wait(app, 0.01)
        assert "shedding" in levels
        gate.open()
        assert node.wait(app, PATIENCE_S)
        ledger = node.ledger(app)
        kept = [row["n"] for row in sink.rows()]
        assert ledger.balanced
        assert ledger.dropped["shed"] == 20_000 - len(kept) > 10_000
        assert kept == sorted(kept)
        assert kept[-1_000:] == list(range(19_000, 20_000))


def test_what_was_shed_is_not_shed_again_while_the_scheduler_has_not_heard_of_it(tmp_path: Path) -> None:
    """A busy scheduler hears late that rows are gone; the budget stays full of rows all the same."""
    instance, budget = InstanceId(AppId(1), 0), 1 << 20
    queues, pressure = Queues(), Pressure(PressureConfig(memory_bytes=budget, disk_bytes=budget))
    queues.add(Queue(instance), 0)
    store = LmdbStore(tmp_path, disk_bytes=budget)
    task = open_source(store, instance.app, "app", "sensor", 0, Sensor(5_000), (Outlet(Spread.BALANCE, (), (0,)),))
    ended = threading.Event()
    troubles: list[object] = []

    def hear(events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, RowsPut):
                queues.put(event.instance, event.put_rows, event.put_bytes, 0, event.put_marks)

    def trouble(*what: object) -> None:
        troubles.append(what)
        ended.set()

    pump = SourcePump(
        store,
        store.own(),
        pressure,
        queues,
        sample_share=0.0,
        post=hear,
        on_failed=trouble,
        on_store_full=trouble,
        on_crash=trouble,
    )
    pump.start()
    pump.add(task)
    while not task.ended and not troubles:
        ended.wait(0.01)
    pump.stop()
    with store.read() as snapshot:
        record = read_queue(snapshot, instance)
    store.close()
    assert not troubles
    held = record.put_bytes - record.gone_bytes
    assert budget - 100 * ROW_BYTES < held <= budget
    assert record.shed_rows == 5_000 - record.waiting_rows > 0


def test_a_full_disk_stops_commits_and_loses_nothing(tmp_path: Path) -> None:
    """With no room left for the store's file the node says so and waits; given room, it finishes exactly once."""
    script = """
import resource, sys
from pathlib import Path
import headwater as hw
from headwater.workers.config import NodeConfig
from headwater.runtime.node import Node
from tests.runtime.gates import Gate
from tests.runtime.test_pressure import Sensor, gated

room = Path(sys.argv[1])
gate = Gate(room)  # the rows wait behind it until the disk is full
flow, sink = gated("full", hw.source(Sensor(20_000, can_wait=True)), gate)
with Node(NodeConfig(store=room / "store", spark=False)) as node:
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, resource.RLIM_INFINITY))
    app = node.deploy(flow)
    while not any("no space" in note for note in node.status().notes):
        assert not node.wait(app, 0.01), (app.state, app.error)
    assert node.ledger(app).balanced
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    gate.open()
    assert node.wait(app, 60)
    assert node.ledger(app).balanced
    assert [row["n"] for row in sink.rows()] == list(range(20_000)), app.error
"""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode()


def test_budgets_that_contradict_one_another_are_refused() -> None:
    """Memory beyond disk makes no sense."""
    with pytest.raises(hw.HeadwaterError, match="within the disk budget"):
        PressureConfig(memory_bytes=10, disk_bytes=5)


def test_a_stopped_app_is_told_apart_from_a_finished_one(tmp_path: Path) -> None:
    """Halting keeps what waits, for later."""
    gate = Gate(tmp_path)
    with small_node(tmp_path, app_rows=1_000) as node:
        flow, _ = gated("halted", hw.read.generator(made_rows, rows=5_000), gate)
        app = node.deploy(flow)
        wait_until_paused(node, app)
        gate.open()
        node.halt(app)
        assert app.state is AppState.STOPPED
        assert node.ledger(app).balanced
