"""A pump of sinks, beside whatever else looks at them or stops them meanwhile."""

import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from headwater.connectors import to
from headwater.dataflow.connectors import Position
from headwater.engine.positions import read_record
from headwater.engine.queue_records import append
from headwater.engine.schemas import Schemas
from headwater.model.batch import encode_entry
from headwater.model.ids import AppId, InstanceId
from headwater.runtime.sinks import SinkPump, SinkTask
from headwater.storage.lmdb_store import LmdbStore
from headwater.storage.locks import Locks, this_process

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


class StuckWriter:
    """Does not return from a write until it may, and notes what happens to it."""

    def __init__(self) -> None:
        self.is_writing, self.may_return = threading.Event(), threading.Event()
        self.seen: list[str] = []

    def write(self, batches: Sequence[pa.RecordBatch]) -> Position:
        """Wait."""
        self.is_writing.set()
        self.may_return.wait()
        self.seen.append("written")
        return {"at": 2}

    def close(self) -> None:
        """Note it."""
        self.seen.append("closed")


def test_a_sink_is_not_closed_while_it_is_written(tmp_path: Path) -> None:
    """It is when its write returns, and what was written counts."""
    store = LmdbStore(tmp_path, disk_bytes=1 << 20)
    term, instance, batch = store.own(), InstanceId(AppId(1), 0), pa.record_batch({"n": [1, 2]})
    schemas = Schemas()
    known = schemas.known(batch.schema)
    with store.write() as txn:
        schemas.ensure(txn, instance.app, known)
        append(txn, instance, [(2, encode_entry(known.identity, 1, 2, (), known.encode(batch)))])
    writer, wrong = StuckWriter(), list[Any]()
    task = opened(instance, writer)
    pump = SinkPump(
        store,
        term,
        post=lambda events: None,
        on_failed=lambda task, failure: wrong.append(failure),
        on_store_full=wrong.append,
        on_crash=wrong.append,
        stop_s=0.0,
    )
    pump.start()
    pump.add(task)
    writer.is_writing.wait()
    pump.stop()
    assert (writer.seen, task.closed) == ([], False)
    writer.may_return.set()
    pump._thread.join()
    assert (writer.seen, task.closed, wrong) == (["written", "closed"], True, [])
    with store.read() as snapshot:
        assert read_record(snapshot, task.app, task.number).position == {"at": 2}
    store.close()


def opened(instance: InstanceId, writer: StuckWriter) -> SinkTask:
    """Return a sink that is open."""
    return SinkTask(
        app=instance.app,
        name="out",
        number=0,
        instance=instance,
        writer=writer,
        spec=to.nothing(),
        locks=Locks((), this_process("a test", 0)),
    )


def test_a_pump_that_never_started_closes_its_sinks(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, disk_bytes=1 << 20)
    writer, instance = StuckWriter(), InstanceId(AppId(1), 0)
    task = opened(instance, writer)
    ignore: Any = print
    pump = SinkPump(store, b"", post=ignore, on_failed=ignore, on_store_full=ignore, on_crash=ignore)
    pump.add(task)
    pump.stop()
    assert writer.seen == ["closed"]
    store.close()
