"""The workers of a node: hired at its start, anew with every epoch, and more of them when an app needs more.

When Spark is lost, so are all workers; it is restarted, while rows and state wait in the store.
"""

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from headwater.dataflow.graph import Graph
from headwater.engine.policies import PolicyName
from headwater.model.errors import EngineError, FlowError, HeadwaterError
from headwater.operators.sql import Transform
from headwater.spark.address import NodeAddress
from headwater.spark.sql import needs_driver
from headwater.storage.lmdb_store import LmdbStore
from headwater.workers.config import NodeConfig, cores_here
from headwater.workers.local.dispatcher import Dispatcher
from headwater.workers.local.pool import Pool, SparkPool, ThreadPool
from headwater.workers.local.shared_session import SharedSpark
from headwater.workers.log_context import thread_of

log = logging.getLogger(__name__)

START_S: Final = 120.0  # for Spark and the first workers, on a small board that is busy booting
RESTARTS_MAX: Final = 5  # of a lost JVM in a row; then the node fails its apps


class Workforce:
    """The workers of one node."""

    def __init__(
        self,
        config: NodeConfig,
        run_directory: Path,
        address: NodeAddress,
        store: LmdbStore,
        dispatcher: Dispatcher,
        *,
        spark: SharedSpark | None,
        on_note: Callable[[str], None],
        on_given_up: Callable[[HeadwaterError], None],
    ) -> None:
        """Begin without workers; `on_given_up` is called when Spark cannot be restarted."""
        self._config, self._run_directory, self._address, self._store = config, run_directory, address, store
        self._dispatcher, self._on_note, self._on_given_up = dispatcher, on_note, on_given_up
        self.pool: Pool = (
            SparkPool(run_directory, address, cores=cores_here(), cluster=config.cluster(), shared=spark)
            if config.spark
            else ThreadPool(store, address)
        )
        self._driver_pool: ThreadPool | None = None
        self._restarting = threading.Lock()
        self._restarts = 0
        self._epoch_ends = 0.0

    def start(self) -> None:
        """Start Spark, and wait for the first workers."""
        self._dispatcher.use(self.pool)
        self.pool.start(self._on_pool_broken)
        self._begin_epoch()
        self._epoch_ends = time.monotonic() + self._config.epoch_s

    def _begin_epoch(self) -> None:
        wanted = self._dispatcher.ask(self._dispatcher.workers_wanted)
        self._dispatcher.begin_epoch(wanted)
        if not self._dispatcher.wait_for_workers(wanted, START_S):
            raise EngineError(f"no {wanted} workers came up within {START_S:.0f} s; {self._where_to_look()}")

    def _where_to_look(self) -> str:
        if self._config.spark_master is None or self._address.door is None:
            return f"see {self._run_directory / 'spark.log'}"
        door = self._address.door
        return (
            f"the machines of {self._config.spark_master} need Headwater installed for {sys.executable}, and have to "
            f"reach {door.host}:{door.port}; the cluster's own logs tell more"
        )

    def look(self) -> None:
        """Begin a new epoch when the present one is over."""
        if time.monotonic() >= self._epoch_ends and not self._restarting.locked():
            self._epoch_ends = time.monotonic() + self._config.epoch_s
            self._restarts = 0
            self._dispatcher.begin_epoch(self._dispatcher.ask(self._dispatcher.workers_wanted))

    def hire_for(self, graph: Graph) -> None:
        """Hire the workers that an app needs: one per operator under that policy, one on the driver for a transform."""
        dispatcher = self._dispatcher
        wants_driver = any(needs_driver(graph.named_operators(one)) for one in graph.chains)
        if self._driver_pool is None and wants_driver:
            self._driver_pool = ThreadPool(self._store, self._address, on_driver=True)
            self._driver_pool.hire(1, dispatcher.epoch)
        missing = dispatcher.ask(lambda: dispatcher.workers_wanted() - len(dispatcher.scheduler.workers))
        if missing > 0:
            self.pool.hire(missing, dispatcher.epoch)

    def check(self, graph: Graph, others: Iterable[Graph]) -> None:
        """Refuse a flow that needs Spark on a node without it, or more slots than the cluster has."""
        slots = self.pool.slots
        if slots is not None and self._config.policy is PolicyName.ONE_WORKER_PER_OPERATOR:
            needed = sum(len(chain.instances) for one in (graph, *others) for chain in one.chains)
            if needed > slots // 2:
                raise FlowError(
                    f"one worker per operator needs {2 * needed} cores for two epochs, and the cluster has {slots}"
                )
        for declared in graph.declarations:
            if isinstance(declared.part, Transform) and not self._config.spark:
                raise FlowError(
                    f"{declared.part.kind} {declared.name!r} is run by Spark SQL, and this node runs without Spark"
                )
            if isinstance(declared.part, Transform) and slots == 1:
                raise FlowError(
                    f"{declared.part.kind} {declared.name!r} is run by Spark SQL, and the cluster's only core is taken "
                    "by a worker; give the cluster another"
                )

    def _on_pool_broken(self, reason: str) -> None:
        thread_of(self._restart, reason, name="restart").start()

    def _restart(self, reason: str) -> None:
        """Restart Spark; rows and state wait in the store."""
        if not self._restarting.acquire(blocking=False):
            return
        try:
            self._on_note(f"Spark was lost and is being started again ({reason})")
            self._dispatcher.drop_workers()
            self._restarts += 1
            if self._restarts > RESTARTS_MAX:
                raise EngineError(f"Spark was lost {self._restarts} times; see {self._run_directory / 'spark.log'}")
            self.pool.restart()
            self._begin_epoch()
        except HeadwaterError as failure:
            self._on_given_up(failure)
        finally:
            self._restarting.release()

    @property
    def _pools(self) -> list[Pool]:
        return [self.pool] if self._driver_pool is None else [self._driver_pool, self.pool]

    def expect_end(self) -> None:
        """Take lost workers for dismissed ones from here on."""
        for pool in self._pools:
            pool.expect_end()

    def stop(self) -> None:
        """End all workers, and Spark."""
        for pool in self._pools:
            pool.stop()
