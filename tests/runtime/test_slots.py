"""Few slots, as on a small Spark cluster: a worker that finds none waits, and nobody may wait for it in turn."""

import functools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import headwater as hw
from headwater.engine.events import SchedulerTicked
from headwater.runtime.node import Node
from headwater.spark.address import NodeAddress
from headwater.storage.lmdb_store import LmdbStore
from headwater.workers.config import NodeConfig
from headwater.workers.local.pool import ThreadPool
from tests.runtime.flows import by_sensor, expected_sums, running_sums
from tests.runtime.gates import Gate, passing

PATIENCE_S = 60.0


class SlottedPool(ThreadPool):
    """Threads that serve only while they have one of the slots."""

    def __init__(self, store: LmdbStore, address: NodeAddress, slots: int) -> None:
        """Have so many slots."""
        super().__init__(store, address)
        self.slots = slots
        self._free = threading.Semaphore(slots)

    def _serve(self, epoch: int, spare: bool) -> None:
        with self._free:
            super()._serve(epoch, spare)


@pytest.fixture(params=[1, 2, 3, 4, 5])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Node]:
    """A node that would like two workers, with so many slots."""
    node = Node(NodeConfig(store=tmp_path / "store", workers=2, spark=False))
    node.workforce.pool = SlottedPool(node.store, node._address, request.param)
    with node:
        yield node


def test_epochs_follow_one_another_however_few_slots_there_are(node: Node) -> None:
    """Two overlap where there is room for both; else the old one makes room first."""
    slots = node.pool.slots
    assert slots is not None
    wanted = node.dispatcher.ask(node.dispatcher.workers_wanted)
    assert wanted == max(1, min(2, slots // 2))
    sink = hw.to.memory()
    app = node.deploy(running_sums("slots", 3_000, sink, rate=6_000))
    for _ in range(4):
        node.dispatcher.begin_epoch(wanted)
        assert node.dispatcher.wait_for_workers(wanted, PATIENCE_S)
    assert node.wait(app, PATIENCE_S)
    assert node.dispatcher.workers_lost == 0
    assert by_sensor(sink.rows()) == expected_sums(3_000)


def test_spares_leave_a_slot_to_the_jobs_of_transforms(node: Node, tmp_path: Path) -> None:
    """Operators that wait hold all workers, and a spare is hired only while more than one slot is free."""
    slots = node.pool.slots
    assert slots is not None
    gate = Gate(tmp_path)
    wait_for_gate = functools.partial(passing, gate.path)
    made = [hw.read.generator(lambda first, count: {"n": list(range(first, first + count))}, rows=1) for _ in range(8)]
    apps = [
        node.deploy(hw.flow(f"held-{number}", one.map(wait_for_gate).sink(hw.to.nothing())))
        for number, one in enumerate(made)
    ]
    expected = max(1, slots - 1)
    while node.status().workers < expected:
        assert not node.wait(apps[-1], 0.02)
    for _ in range(3):  # all have been held up for long: each of these would hire another one
        node.dispatcher.ask(lambda: node.dispatcher.handle(SchedulerTicked()))
    assert node.status().workers == expected
    gate.open()
    assert all(node.wait(app, PATIENCE_S) for app in apps)
