"""A pump of sources that is stopped while one of them does not return."""

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.dataflow.connectors import Ended, Poll, Position
from headwater.dataflow.graph import Spread
from headwater.engine.plans import Outlet
from headwater.engine.pressure import Pressure, PressureConfig
from headwater.engine.queues import Queues
from headwater.model.ids import AppId
from headwater.runtime.sources import SourcePump, open_source
from headwater.storage.lmdb_store import LmdbStore


@dataclass(frozen=True)
class StuckSource:
    """A source that has said that it never blocks, and does; it is its own reader."""

    is_reading: threading.Event = field(default_factory=threading.Event)
    may_return: threading.Event = field(default_factory=threading.Event)
    seen: list[str] = field(default_factory=list)
    can_wait: bool = True
    kind: str = "stuck"
    schema: None = None
    blocking: bool = False
    guarantee: str = "exactly-once"

    def open(self, position: Position | None) -> "StuckSource":
        """Begin."""
        return self

    def poll(self, rows_max: int, now_us: int) -> Poll:
        """Wait."""
        self.is_reading.set()
        self.may_return.wait()
        self.seen.append("read")
        return Ended()

    def close(self) -> None:
        """Note it."""
        self.seen.append("closed")


def test_a_source_is_not_closed_while_it_is_read(tmp_path: Path) -> None:
    """It is when its reader returns, once."""
    store, stuck, wrong = LmdbStore(tmp_path, disk_bytes=1 << 20), StuckSource(), list[Any]()
    task = open_source(store, AppId(1), "app", "stuck", 0, stuck, (Outlet(Spread.BALANCE, (), (0,)),))
    pump = SourcePump(
        store,
        store.own(),
        Pressure(PressureConfig(memory_bytes=1 << 20, disk_bytes=1 << 20)),
        Queues(),
        sample_share=0.0,
        post=lambda events: None,
        on_failed=lambda task, failure: wrong.append(failure),
        on_store_full=wrong.append,
        on_crash=wrong.append,
        stop_s=0.0,
    )
    pump.start()
    pump.add(task)
    stuck.is_reading.wait()
    pump.stop()
    assert stuck.seen == []
    stuck.may_return.set()
    pump._thread.join()
    assert (stuck.seen, wrong) == (["read", "closed"], [])
    store.close()
