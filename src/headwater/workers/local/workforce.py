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
from headwater.spark.jvm import StartCutShort
from headwater.spark.log_context import thread_of
from headwater.spark.outage import SparkOutage
from headwater.spark.session import SparkNotStarted, see_log
from headwater.spark.sql import needs_driver
from headwater.storage.lmdb_store import LmdbStore
from headwater.workers.config import NodeConfig, cores_here
from headwater.workers.local.dispatcher import Dispatcher
from headwater.workers.local.pool import Pool, SparkPool, ThreadPool
from headwater.workers.local.shared_session import SharedSpark

log = logging.getLogger(__name__)

LOOK_S: Final = 0.05
START_S: Final = 120.0  # for Spark and the first workers, on a small board that is busy booting
END_S: Final = 30.0  # for a start of Spark that is cut short; its JVM is killed within a tenth of a second


class LostAgain(EngineError):
    """Spark was lost before its first workers were there."""


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
        on_step: Callable[[str], None],
        on_note: Callable[[str], None],
        on_mistake: Callable[[BaseException], None],
    ) -> None:
        """Hire nobody yet; `on_step` hears what a start waits for."""
        self._config, self._run_directory, self._address, self._store = config, run_directory, address, store
        self._dispatcher, self._on_step = dispatcher, on_step
        self._on_note, self._on_mistake = on_note, on_mistake
        self.pool: Pool = (
            SparkPool(
                run_directory,
                address,
                cores=cores_here(),
                on_mistake=on_mistake,
                cluster=config.cluster(),
                shared=spark,
            )
            if config.spark
            else ThreadPool(store, address, on_mistake=on_mistake)
        )
        self._driver_pool: ThreadPool | None = None
        self._outage = SparkOutage()
        self._watching = threading.Lock()  # around what several threads tell and ask of the outage
        self._lost_again = ""  # why Spark was lost since it was started last
        self._told_why = ""
        self._reviver: threading.Thread | None = None
        self._ending = threading.Event()
        self._epoch_ends = 0.0

    def start(self) -> None:
        """Start Spark, and wait until the first workers are there; if it is lost before, it is started again."""
        self._dispatcher.use(self.pool)
        self._on_step(self._first_step())
        self.pool.start(self._lost)
        self._outage.back(time.monotonic())
        try:
            self._begin_epoch()
        except LostAgain:
            self._wait_for_reviver()
        self._epoch_ends = time.monotonic() + self._config.epoch_s

    def _wait_for_reviver(self) -> None:
        while self._outage.is_on:
            if self._ending.wait(LOOK_S):
                raise StartCutShort

    def _first_step(self) -> str:
        if not self._config.spark:
            return "starting worker threads"
        master = self._config.spark_master
        return "starting Spark: waiting for its JVM" if master is None else f"starting Spark: waiting for {master}"

    def _begin_epoch(self) -> None:
        wanted = self._dispatcher.ask(self._dispatcher.workers_wanted)
        if self._config.spark:
            self._on_step(f"starting Spark: waiting for {wanted} {'worker' if wanted == 1 else 'workers'}")
        self._dispatcher.begin_epoch(wanted)
        came = self._dispatcher.wait_for_workers(
            wanted, START_S, lambda: bool(self._lost_again) or self._ending.is_set()
        )
        if self._ending.is_set():
            raise StartCutShort
        if self._lost_again:
            raise LostAgain(f"it was lost again: {self._lost_again}")
        if not came:
            raise EngineError(f"no {wanted} workers came up within {START_S:.0f} s; {self._where_to_look()}")

    def _where_to_look(self) -> str:
        if self._config.spark_master is None or self._address.door is None:
            return see_log(self.pool.directory) if isinstance(self.pool, SparkPool) else ""
        door = self._address.door
        return (
            f"the machines of {self._config.spark_master} need Headwater installed for {sys.executable}, and have to "
            f"reach {door.host}:{door.port}; the cluster's own logs tell more"
        )

    def look(self) -> None:
        """Begin a new epoch, if it is time."""
        if time.monotonic() >= self._epoch_ends and not self._outage.is_on:
            self._epoch_ends = time.monotonic() + self._config.epoch_s
            self._dispatcher.begin_epoch(self._dispatcher.ask(self._dispatcher.workers_wanted))

    def hire_for(self, graph: Graph) -> None:
        """Hire the workers that an app needs: one per operator under that policy, one on the driver for a transform."""
        dispatcher = self._dispatcher
        wants_driver = any(needs_driver(graph.named_operators(one)) for one in graph.chains)
        if self._driver_pool is None and wants_driver:
            self._driver_pool = ThreadPool(self._store, self._address, on_mistake=self._on_mistake, on_driver=True)
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

    # --- when Spark is lost -------------------------------------------------------------------------------------------

    def _lost(self, reason: str) -> None:
        """Take note, on any thread, that Spark was lost, and have it started again."""
        with self._watching:
            if self._ending.is_set():
                return
            self._lost_again = reason
            is_news = not self._outage.is_on
            if is_news:
                self._outage.lost(reason, time.monotonic())
                self._reviver = thread_of(self._revive, name="spark-reviver", on_death=self._on_mistake)
                self._reviver.start()
        if is_news:
            log.warning("Spark was lost (%s) and is started again; rows and state wait", reason)
        self._dispatcher.look_again()

    def _revive(self) -> None:
        """Start Spark again for as long as it takes, or this node lives; rows and state are in the store and wait."""
        while not self._ending.wait(self._outage.wait_s(time.monotonic())):
            try:
                self._try_again()
            except StartCutShort:
                return
            except HeadwaterError as failure:
                self._failed(failure.why if isinstance(failure, SparkNotStarted) else str(failure))
            except Exception as mistake:  # ours: told, and no reason to stay without Spark
                self._on_mistake(mistake)
                self._failed(f"{type(mistake).__name__}: {mistake}")
            else:
                if self._is_back():
                    return

    def _try_again(self) -> None:
        self._outage.trying()
        self._dispatcher.drop_workers()
        self.pool.restart()
        self._lost_again = ""
        self._begin_epoch()

    def _failed(self, why: str) -> None:
        is_news = why != self._told_why
        self._told_why = why
        self._outage.failed(why, time.monotonic())
        log.log(logging.ERROR if is_news else logging.DEBUG, "%s", self.waits_for)

    def _is_back(self) -> bool:
        """Take note that Spark is back, unless it was lost again in this moment."""
        now_s = time.monotonic()
        with self._watching:
            if self._lost_again:
                self._outage.failed(f"it was lost again: {self._lost_again}", now_s)
                return False
            self._outage.back(now_s)
        self._told_why = ""
        self._epoch_ends = now_s + self._config.epoch_s
        self._on_note(self._outage.history(now_s))
        return True

    @property
    def waits_for(self) -> str:
        """Why nothing is computed here at the moment, and when that is to change; empty: it is."""
        told = self._outage.told(time.monotonic())
        return told and f"{told}; {self._where_to_look()}"

    @property
    def _pools(self) -> list[Pool]:
        return [self.pool] if self._driver_pool is None else [self._driver_pool, self.pool]

    def cut_short(self) -> None:
        """Have a start of Spark go no further: this node ends."""
        with self._watching:
            self._ending.set()
        for pool in self._pools:
            pool.expect_end()
        self._dispatcher.look_again()

    def expect_end(self) -> None:
        """Take nobody's leaving for a loss any more, and wait for the end of what starts Spark again."""
        self.cut_short()
        if self._reviver is not None:
            self._reviver.join(END_S)

    def stop(self) -> None:
        """End all workers, and Spark."""
        for pool in self._pools:
            pool.stop()
