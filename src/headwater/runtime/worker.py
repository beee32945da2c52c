"""The worker: asks for a turn, runs it, answers, asks again. Inside Spark it is a task; in the twin pool a thread."""

import os
import socket
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from headwater.engine.schemas import Schemas
from headwater.engine.store import Store
from headwater.engine.turn import Assignment, ChainPlan, Trouble, TurnReport, TurnRunner
from headwater.model.errors import HeadwaterError
from headwater.model.ids import AppId, InstanceId
from headwater.operators.chain import OpenChain
from headwater.runtime.code import CodeShelf
from headwater.runtime.store import LmdbStore
from headwater.runtime.wire import Done, Goodbye, Heartbeat, Hello, Line, Part, Turn

# A Spark Python worker is used for one task after another, and a process must not open an LMDB environment twice.
_open_stores: dict[tuple[str, int], LmdbStore] = {}
_shelf = CodeShelf()
_schemas: dict[bytes, Schemas] = {}  # by the term of the store they are known of


def now_us() -> int:
    """Return the wall clock in microseconds."""
    return time.time_ns() // 1_000


def spark_task(
    address: str,
    store_directory: str,
    disk_bytes: int,
    power_safe: bool,
    epoch: int,
    spare: bool,
    partition: Iterable[int],
) -> Iterator[int]:
    """Serve as a worker for as long as the node wishes: the body of the pool's Spark job."""
    for _ in partition:
        pass
    serve(address, _store(store_directory, disk_bytes, power_safe), epoch, spare)
    return iter(())


def _store(directory: str, disk_bytes: int, power_safe: bool) -> LmdbStore:
    key = (directory, os.getpid())
    if key not in _open_stores:
        _open_stores[key] = LmdbStore(Path(directory), disk_bytes=disk_bytes, power_safe=power_safe)
    return _open_stores[key]


def serve(address: str, store: Store, epoch: int, spare: bool) -> None:
    """Run turns until the node says goodbye; raises if the node is gone or falls silent."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.connect(address)
        line = Line(sock)
        line.send(Hello(os.getpid(), epoch, spare))
        while True:
            match line.receive():
                case Turn(term, parts):
                    line.send(Done(run_turn(store, term, parts)))
                case Heartbeat():
                    pass
                case Goodbye():
                    return
                case None:  # the pool starts another in our place
                    raise ConnectionResetError("the node hung up or has been silent for too long")


def run_turn(store: Store, term: bytes, parts: list[Part]) -> list[TurnReport]:
    """Run one turn; a chain that cannot even be loaded is reported like one that raised."""
    chains: dict[InstanceId, tuple[ChainPlan, OpenChain]] = {}
    reports: list[TurnReport] = []
    assignments = []
    with store.read() as snapshot:
        for part in parts:
            instance = InstanceId(AppId(part.app), part.instance)
            try:
                chains[instance] = _shelf.find(snapshot, term, instance.app, part.code)
            except HeadwaterError as failure:
                reports.append(_not_run(part, failure))
            else:
                assignments.append(Assignment(instance, part.rows_max, part.condemn))
    return reports + TurnRunner(store, term, chains, now_us, _schemas.setdefault(term, Schemas())).run(assignments)


def _not_run(part: Part, failure: HeadwaterError) -> TurnReport:
    trouble = Trouble(f"code {part.code}", str(failure), "no line of the flow's own code", "")
    return TurnReport(part.app, part.instance, 0, 0, 0, [], 0, 0, 0, 0, 0, trouble)
