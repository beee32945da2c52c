"""The worker's loop: get a turn, run it, report. On Spark it is the body of a task; in the other pool, of a thread."""

import contextlib
import os
import socket
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from headwater.engine.keyed_state import StateMemory
from headwater.engine.plans import ChainPlan
from headwater.engine.reports import RowTrouble, TurnReport
from headwater.engine.schemas import Schemas
from headwater.engine.turn import Assignment, TurnRunner
from headwater.model.errors import HeadwaterError
from headwater.model.ids import AppId, InstanceId
from headwater.model.store_contract import Store
from headwater.operators.chain import OpenChain
from headwater.operators.users_lines import NO_LINE
from headwater.spark.address import NodeAddress
from headwater.storage.lmdb_store import LmdbStore
from headwater.workers.clock import now_us
from headwater.workers.local.code import CodeShelf
from headwater.workers.local.wire import Done, Goodbye, Hello, Line, NodeAlive, Turn, TurnPart
from headwater.workers.remote.remote_line import NodeOutOfReach, RemoteLine, connect
from headwater.workers.remote.store_client import RemoteStore, companions_of

RETRY_S: Final = 1.0


def spark_task(address: NodeAddress, epoch: int, spare: bool, partition: Iterable[int]) -> Iterator[int]:
    """Serve as a worker until dismissed: the body of the pool's Spark job."""
    for _ in partition:
        pass
    try:
        serve(address, epoch, spare)
    except NodeOutOfReach:
        time.sleep(RETRY_S)  # a pause, since Spark restarts the task at once
        raise
    return iter(())


def serve(
    address: NodeAddress, epoch: int, spare: bool, *, store: LmdbStore | None = None, on_driver: bool = False
) -> None:
    """Run turns until the node dismisses us; raises if the node is lost, silent or cannot be reached.

    On the node's machine the worker opens the store itself (or gets it as `store` in the node's process), elsewhere it
    uses it through the node.
    """
    hello = Hello(os.getpid(), epoch, spare, on_driver)
    if on_driver or address.is_here():
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.connect(address.socket)
            line = Line(sock)
            line.send(hello)
            with contextlib.nullcontext(store) if store is not None else _opened(address) as found:
                _Worker(found).serve(line)
    elif address.door is not None:
        with contextlib.closing(connect(address.door, hello)) as far_line:
            _Worker(RemoteStore(far_line)).serve(far_line)
    else:
        raise NodeOutOfReach("this worker is not on its node's machine, and the node has remote_port='never'")


def _opened(address: NodeAddress) -> contextlib.closing[LmdbStore]:
    """Open a node's store until the worker ends: Spark reuses this process for other nodes."""
    store = LmdbStore(Path(address.store), disk_bytes=address.disk_bytes, power_safe=address.power_safe)
    return contextlib.closing(store)


class _Worker:
    """One worker of a node, with its caches of the node's store."""

    def __init__(self, store: Store) -> None:
        """Begin with empty caches; chains are opened per worker, since a processor serves one at a time."""
        self._store = store
        self._shelf, self._schemas, self._memory = CodeShelf(), Schemas(), StateMemory()

    def serve(self, line: Line | RemoteLine) -> None:
        while True:
            match line.receive():
                case Turn(term, parts):
                    line.send(Done(self._run_turn(term, parts)))
                case NodeAlive():
                    pass
                case Goodbye():
                    return
                case None:  # the pool restarts us
                    raise ConnectionResetError("the node hung up or has been silent for too long")

    def _run_turn(self, term: bytes, parts: list[TurnPart]) -> list[TurnReport]:
        """Run one turn; a chain that cannot even be loaded is reported like one that raised."""
        store = self._store
        chains: dict[InstanceId, tuple[ChainPlan, OpenChain]] = {}
        reports: list[TurnReport] = []
        assignments = []
        with store.read() as snapshot:
            for part in parts:
                instance = InstanceId(AppId(part.app), part.instance)
                try:
                    chains[instance] = self._shelf.find(snapshot, instance.app, part.code)
                except HeadwaterError as failure:
                    reports.append(_not_run(part, failure))
                else:
                    assignments.append(Assignment(instance, part.rows_max, part.condemn))
        if isinstance(store, RemoteStore):
            store.companions = companions_of({instance: plan for instance, (plan, _) in chains.items()})
        return reports + TurnRunner(store, term, chains, now_us, self._schemas, self._memory).run(assignments)


def _not_run(part: TurnPart, failure: HeadwaterError) -> TurnReport:
    trouble = RowTrouble(f"code {part.code}", str(failure), NO_LINE, "")
    return TurnReport(part.app, part.instance, 0, 0, 0, [], 0, 0, 0, 0, 0, trouble)
