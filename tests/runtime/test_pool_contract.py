"""What both pools promise: workers come when hired, come back when lost, and hand over between epochs without a gap."""

import threading
from pathlib import Path

import pytest

import headwater as hw
from headwater.engine.policies import Consumption, PolicyName
from headwater.engine.status import AppState
from headwater.runtime.node import Node
from headwater.workers.config import NodeConfig
from tests.runtime.flows import by_sensor, expected_sums, running_sums

PATIENCE_S = 120.0


def wait_for(node: Node, workers: int) -> None:
    """Wait until the pool has so many workers of the current epoch."""
    assert node.dispatcher.wait_for_workers(workers, PATIENCE_S), node.status()


def test_the_hired_workers_are_there(node: Node) -> None:
    """Two were asked for; each has a process. While one epoch hands over to the next there are more for a moment."""
    wait_for(node, 2)
    while (status := node.status()).workers - status.spares != 2:
        pass
    assert len(node.dispatcher.worker_pids()) >= 2


def test_a_worker_that_loses_its_connection_is_replaced(node: Node) -> None:
    """The pool is whole again, and a flow that ran meanwhile gives what it should."""
    wait_for(node, 2)
    sink = hw.to.memory()
    app = node.deploy(running_sums("cut-off", 3_000, sink, rate=3_000))
    lost_before = node.dispatcher.workers_lost
    node.dispatcher.drop_workers()
    wait_for(node, 2)
    assert node.wait(app, PATIENCE_S)
    assert node.dispatcher.workers_lost >= lost_before + 2
    assert by_sensor(sink.rows()) == expected_sums(3_000)


def test_an_epoch_hands_over_to_the_next_while_rows_flow(node: Node) -> None:
    """The old workers leave only when the new ones are there; no turn is lost or run twice."""
    sink = hw.to.memory()
    app = node.deploy(running_sums("epochs", 6_000, sink, rate=3_000))
    first = node.dispatcher.epoch
    lost_before = node.dispatcher.workers_lost
    for _ in range(3):
        node.dispatcher.begin_epoch(2)
        wait_for(node, 2)
    assert node.dispatcher.epoch == first + 3
    assert node.wait(app, PATIENCE_S)
    assert node.dispatcher.workers_lost == lost_before
    assert by_sensor(sink.rows()) == expected_sums(6_000)


@pytest.mark.parametrize("policy", list(PolicyName))
@pytest.mark.parametrize("consume", ["adaptive", "all", "half", "7"])
def test_every_policy_gives_the_same_rows(tmp_path: Path, policy: PolicyName, consume: str) -> None:
    """Scheduling decides when, never what."""
    config = NodeConfig(
        store=tmp_path / "store", spark=False, policy=policy, consumption=Consumption.parse(consume), chaining=False
    )
    sink = hw.to.memory()
    with Node(config) as node:
        app = node.deploy(running_sums("policies", 1_000, sink))
        assert node.wait(app, PATIENCE_S)
        assert node.ledger(app).balanced
    assert by_sensor(sink.rows()) == expected_sums(1_000)


def test_with_one_worker_per_operator_the_pool_grows_with_the_flows(tmp_path: Path) -> None:
    """Each instance of each chain has a worker of its own, as in Storm or Flink."""
    config = NodeConfig(
        store=tmp_path / "store", spark=False, policy=PolicyName.ONE_WORKER_PER_OPERATOR, chaining=False
    )
    with Node(config) as node:
        app = node.deploy(running_sums("dedicated", 10**9, hw.to.nothing(), rate=500))
        wait_for(node, 4)  # filter, flat map and two of stateful
        bound = node.dispatcher.ask(
            lambda: {worker.bound_to.number for worker in node.dispatcher.scheduler.workers.values() if worker.bound_to}
        )
        while len(bound) < 4:
            assert not node.wait(app, 0.01)
            bound = node.dispatcher.ask(
                lambda: {one.bound_to.number for one in node.dispatcher.scheduler.workers.values() if one.bound_to}
            )
        assert bound == {0, 1, 2, 3}


def test_a_node_that_is_stopped_leaves_no_thread_behind(tmp_path: Path) -> None:
    """Everything it started ends with it."""
    before = {thread.name for thread in threading.enumerate()}
    with Node(NodeConfig(store=tmp_path / "store", spark=False)) as node:
        app = node.deploy(running_sums("gone", 10**9, hw.to.nothing(), rate=500))
    assert app.state is AppState.STOPPED
    left = {thread.name for thread in threading.enumerate() if not thread.name.startswith("ThreadPoolExecutor")}
    assert left <= before
