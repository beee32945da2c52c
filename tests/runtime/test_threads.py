"""No thread of a node ends unnoticed: what it dies of is told and counted, and it goes on or takes the node down."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.dataflow.connectors import Position
from headwater.engine.ledger import Ledger
from headwater.engine.status import AppState
from headwater.model.errors import EngineError
from headwater.runtime.app import NodeApp
from headwater.runtime.node import Node
from headwater.runtime.service.machine_peers import PeersOfAMachine
from headwater.runtime.service.service import NodeService
from headwater.runtime.settings import NodeSettings
from headwater.spark.log_context import tell_death, thread_of
from headwater.workers.config import NodeConfig
from headwater.workers.local.pool import ThreadPool
from tests.runtime.flows import by_sensor, expected_sums, running_sums

PATIENCE_S = 60.0
ROWS = 1_000
SOURCE = Path(hw.__file__).parent
ROOMS_OF_A_NODE = ("links", "loading", "runtime", "security", "spark", "storage", "workers")


def test_every_thread_of_a_node_is_made_by_the_one_function_that_says_who_hears_of_its_death() -> None:
    """Those of a twin, or of a connector, end with what they serve, which raises what they die of."""
    modules = (path for room in ROOMS_OF_A_NODE for path in (SOURCE / room).rglob("*.py"))
    made = [path.relative_to(SOURCE) for path in modules if "Thread(" in path.read_text()]
    assert made == [Path("spark/log_context.py")]


@pytest.mark.parametrize("cause", [AssertionError(), SystemExit(3), RuntimeError("no")])
def test_a_thread_tells_whatever_it_dies_of(cause: BaseException) -> None:
    def run() -> None:
        raise cause

    told: list[BaseException] = []
    thread = thread_of(run, name="mortal", on_death=told.append)
    thread.start()
    thread.join()
    assert told == [cause]


def test_a_task_tells_what_it_dies_of_and_not_that_it_was_cancelled() -> None:
    told: list[BaseException] = []

    async def fails() -> None:
        raise AssertionError

    async def story() -> None:
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(fails()), asyncio.create_task(asyncio.sleep(PATIENCE_S))]
        for task in tasks:
            tell_death(task, told.append)
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(story())
    assert [type(one) for one in told] == [AssertionError]


class _Clumsy(Node):
    """A node whose housekeeper makes a mistake at the first duty it has, time and again."""

    def _forget_old_latencies(self) -> None:
        raise AssertionError


def test_a_housekeeper_that_makes_mistakes_goes_on_with_its_other_duties(tmp_path: Path) -> None:
    """An app that has ended is noticed all the same, and who looks at the node hears of the mistakes."""
    sink = hw.to.memory()
    with _Clumsy(NodeConfig(store=tmp_path / "store", spark=False)) as node:
        app = node.deploy(running_sums("app", ROWS, sink))
        assert node.wait(app, PATIENCE_S)
        assert app.state is AppState.FINISHED
        assert node.mistakes.count > 0
        assert any("by a mistake of Headwater's" in note for note in node.status().notes)
    assert by_sensor(sink.rows()) == expected_sums(ROWS)


@dataclass(frozen=True)
class _SlamsTheDoor:
    """A sink that takes rows and raises when it is closed."""

    kind: str = "door"
    guarantee: str = "none"
    blocking: bool = False

    def open(self, position: Position | None) -> "_Slamming":
        return _Slamming()


class _Slamming:
    def write(self, batches: Sequence[pa.RecordBatch]) -> Position:
        return {}

    def close(self) -> None:
        raise ValueError("not now")


def test_a_users_sink_that_raises_when_it_is_closed_ends_no_thread(thread_node: Node) -> None:
    bad = thread_node.deploy(running_sums("bad", ROWS, _SlamsTheDoor()))
    assert thread_node.wait(bad, PATIENCE_S)
    sink = hw.to.memory()
    good = thread_node.deploy(running_sums("good", ROWS, sink))
    assert thread_node.wait(good, PATIENCE_S)
    assert (bad.state, good.state, thread_node.mistakes.count) == (AppState.FINISHED, AppState.FINISHED, 0)
    assert by_sensor(sink.rows()) == expected_sums(ROWS)


class _MortalPool(ThreadPool):
    """A pool whose workers die of mistakes: each as soon as it is hired, and then once more."""

    deaths_left = 3

    def _work(self, epoch: int, spare: bool) -> None:
        if self.deaths_left > 0:
            self.deaths_left -= 1
            raise AssertionError
        super()._work(epoch, spare)


def test_a_worker_thread_that_dies_of_a_mistake_is_replaced_and_told(tmp_path: Path) -> None:
    sink = hw.to.memory()
    node = Node(NodeConfig(store=tmp_path / "store", workers=1, spark=False))
    node.workforce.pool = _MortalPool(node.store, node._address, on_mistake=node.workforce._on_mistake)
    with node:
        app = node.deploy(running_sums("app", ROWS, sink))
        assert node.wait(app, PATIENCE_S)
        assert (app.state, node.mistakes.count) == (AppState.FINISHED, 3)
    assert by_sensor(sink.rows()) == expected_sums(ROWS)


class _Forgetful(Node):
    """A node of which a part breaks without which nothing runs."""

    def ledger(self, app: NodeApp) -> Ledger:
        self.dispatcher.post([object()])  # type: ignore[list-item]  # no event: the scheduler cannot go on
        return super().ledger(app)


def test_a_scheduler_that_breaks_takes_the_node_down_in_order(tmp_path: Path) -> None:
    """Its apps fail with a sentence, whoever put the node together is told, and it can be stopped."""
    told = threading.Event()
    with _Forgetful(NodeConfig(store=tmp_path / "store", spark=False), on_broken=told.set) as node:
        app = node.deploy(running_sums("app", 10**9, hw.to.nothing(), rate=500))
        node.ledger(app)
        assert told.wait(PATIENCE_S)
        assert node.wait(app, PATIENCE_S)
        assert app.state is AppState.FAILED
        assert any("start it again and report it" in note for note in node.status().notes)
        assert node.mistakes.count > 0


def test_a_node_of_a_cluster_that_breaks_ends_with_a_sentence(tmp_path: Path) -> None:
    """Whatever starts it at boot starts it again, and it goes on where it stood."""
    settings = NodeSettings(listen="127.0.0.1:0", insecure=True, data=tmp_path, workers=1, no_spark=True)

    async def story() -> None:
        machine = PeersOfAMachine([settings])
        await machine.start(NodeService.start)
        machine.services[0].engine.broke(RuntimeError("no"))
        with pytest.raises(
            EngineError, match=r"an internal error has stopped this node \(RuntimeError: no\); start it"
        ):
            await machine.broken()
        await machine.stop()

    asyncio.run(story())
