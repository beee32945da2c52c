"""What a sink has measured can be looked at while it goes on measuring."""

import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.model.ids import AppId, InstanceId
from headwater.runtime.sinks import SinkTask

LOOKS = 300
SPREAD = 400  # latencies that differ so much that nearly each has a bucket of its own


@pytest.fixture
def hurry() -> Iterator[None]:
    """Threads that take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("hurry")
def test_latencies_are_looked_at_while_rows_arrive() -> None:
    """A status that was asked for in that instant used to end with an error of the node."""
    nobody: Any = SimpleNamespace()
    task = SinkTask(
        app=AppId(1),
        name="out",
        number=0,
        instance=InstanceId(AppId(1), 0),
        writer=nobody,
        spec=nobody,
        locks=nobody,
    )
    is_over = threading.Event()

    def arrive() -> None:
        while not is_over.is_set():
            for number in range(SPREAD):
                task.measured(int(1.05**number), 1)
            task.forget_old()

    pump = threading.Thread(target=arrive)
    pump.start()
    try:
        looks = [(task.recent.total, task.latency.total) for _ in range(LOOKS)]
    finally:
        is_over.set()
        pump.join()
    totals = [everything for _, everything in looks]
    assert totals == sorted(totals)
    assert all(recent <= 2 * SPREAD for recent, _ in looks)
    assert task.latency.total >= totals[-1]
