"""The pool: how workers are started.

On Spark, to hire n workers is to run a job of n tasks, each of which serves until it is dismissed; Spark restarts a
task whose Python worker dies. The other pool starts threads of this process. Neither knows what workers do.

A Spark of our own has slots for any number of tasks. A cluster has as many as its machines offer cores, and a task
without a slot waits: so `slots` is checked before workers are hired.
"""

import functools
import itertools
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from headwater.model.errors import EngineError
from headwater.model.frames import BrokenFrame
from headwater.spark.address import NodeAddress
from headwater.spark.jvm import StartCutShort
from headwater.spark.log_context import thread_of
from headwater.spark.session import end_jvm, has_jvm, how_jvm_ended, see_log, spark_conf, start_spark, stop_session
from headwater.spark.standalone import StandaloneCluster, reach_master
from headwater.storage.lmdb_store import LmdbStore
from headwater.workers.local.shared_session import SharedSpark
from headwater.workers.local.worker import RETRY_S, serve, spark_task

log = logging.getLogger(__name__)

EXECUTORS_S: Final = 30.0  # from the session's start to the first executor; a JVM on a busy machine takes ten
MORE_EXECUTORS_S: Final = 2.0  # for further executors after each one
LOOK_S: Final = 0.1
THREAD_END_S: Final = 10.0  # a user's function may compute for long; beyond this the thread is abandoned


class Pool(Protocol):
    """A source of workers."""

    @property
    def slots(self) -> int | None:
        """The most workers at the same time; None: no limit."""
        ...

    @property
    def is_up(self) -> bool:
        """Whether the pool as a whole is there; if not, who loses workers is not to blame."""
        ...

    def start(self, on_broken: Callable[[str], None]) -> None:
        """Get ready to hire; `on_broken` is called, from any thread, when the pool is lost as a whole."""
        ...

    def hire(self, count: int, epoch: int, *, spare: bool = False) -> None:
        """Start so many workers; they will say hello to the node. One that dies is started again.

        A pool that is lost hires nobody: once it is back, all are hired anew.
        """
        ...

    def restart(self) -> None:
        """Come back after being lost as a whole; raises EngineError if that cannot be done now."""
        ...

    def expect_end(self) -> None:
        """Do not start again what is lost from now on, nor go on starting: the node is about to hang up."""
        ...

    def stop(self) -> None:
        """End all workers and the pool."""
        ...


class SparkPool:
    """Workers as tasks of Spark jobs."""

    def __init__(
        self,
        directory: Path,
        address: NodeAddress,
        *,
        cores: int,
        on_mistake: Callable[[BaseException], None],
        cluster: StandaloneCluster | None = None,
        shared: SharedSpark | None = None,
    ) -> None:
        """Begin before Spark; `address` is where workers find the node, `shared` the Spark of several nodes."""
        self._directory, self._address, self._cores, self._cluster = directory, address, cores, cluster
        self._shared, self._on_mistake = shared, on_mistake
        self._slots: int | None = None
        self._session: SparkSession | None = None
        self._is_up = False
        self._on_broken: Callable[[str], None] = lambda reason: None
        self._ending = threading.Event()
        self._jobs = itertools.count()
        self._threads: list[threading.Thread] = []

    @property
    def session(self) -> SparkSession:
        """The node's Spark session."""
        assert self._session is not None, "the pool has not been started"
        return self._session

    @property
    def jvm_pid(self) -> int:
        """The process id of the JVM."""
        gateway: Any = self.session.sparkContext._gateway
        return int(gateway.proc.pid)

    @property
    def directory(self) -> Path:
        """Where the log of its Spark is."""
        shared = None if self._shared is None else self._shared.directory
        return shared or self._directory

    @property
    def is_up(self) -> bool:
        """Whether Spark is there."""
        return self._is_up and self._session is not None and has_jvm(self._session)

    def start(self, on_broken: Callable[[str], None]) -> None:
        self._on_broken = on_broken
        if self._shared is not None:
            self._session = self._shared.take(self._ending)
        else:
            self._start()
        self._is_up = True

    def _start(self) -> None:
        cluster = self._cluster
        if cluster is None:
            self._session = start_spark(self._directory, spark_conf(self._directory, self._cores), self._ending)
            return
        conf = spark_conf(
            self._directory,
            self._cores,
            cluster.master,
            host=reach_master(cluster.master),
            executor_mb=cluster.executor_mb,
            cores_max=cluster.slots_max,
        )
        self._session = start_spark(self._directory, conf, self._ending)
        self._wait_for_executors(cluster)

    def _wait_for_executors(self, cluster: StandaloneCluster) -> None:
        """Wait for the first executor and, while slots are too few, a moment for each further one."""
        self._slots = 0
        deadline = time.monotonic() + EXECUTORS_S
        while self._slots < cluster.slots_enough and time.monotonic() < deadline:
            if self._ending.wait(LOOK_S):
                raise StartCutShort
            slots = self._slots_unless_lost()
            if slots > self._slots:
                self._slots = slots
                deadline = time.monotonic() + MORE_EXECUTORS_S
        if self._slots == 0:
            raise EngineError(
                f"the Spark cluster at {cluster.master} gave no executor within {EXECUTORS_S:.0f} s; it needs a worker "
                f"with a free core and {cluster.executor_mb} MB of free memory"
            )

    def _slots_unless_lost(self) -> int:
        try:
            return self._count_slots()
        except (Py4JError, OSError) as failure:
            raise EngineError(f"Spark was lost while it waited for executors; {see_log(self._directory)}") from failure

    def _count_slots(self) -> int:
        """Return how many tasks the present executors can run at the same time."""
        context: Any = self.session.sparkContext._jsc.sc()
        return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))

    @property
    def slots(self) -> int | None:
        """The cluster's slots when they were last counted; None on a Spark of our own."""
        return self._slots

    def hire(self, count: int, epoch: int, *, spare: bool = False) -> None:
        """Submit a job of so many tasks from a thread of its own: the call that runs a job blocks until its end."""
        session = self._session
        if session is None or not self._is_up:
            return
        context = session.sparkContext
        try:
            if self._cluster is not None:
                self._slots = self._count_slots()
            task = functools.partial(spark_task, self._address, epoch, spare)
            job = context.parallelize(range(count), count).mapPartitions(task)
        except Exception as failure:  # py4j raises all sorts of things when its JVM goes; they mean the same here
            self._lost(session, failure)
            return
        name = f"spark-job-{next(self._jobs)}"
        thread = thread_of(self._run, job, session, name=name, on_death=self._on_mistake)
        self._threads = [one for one in self._threads if one.is_alive()]
        self._threads.append(thread)
        thread.start()

    def _run(self, job: Any, session: SparkSession) -> None:
        try:
            job.count()
        except Exception as failure:  # as above
            self._lost(session, failure)

    def _lost(self, session: SparkSession, failure: Exception) -> None:
        """Tell that Spark is lost, unless the session is one from before, or we are ending it ourselves."""
        if self._ending.is_set() or self._session is not session:
            return
        self._is_up = False
        ending = how_jvm_ended(session)
        said = next(iter(str(failure).splitlines()), type(failure).__name__)
        self._on_broken(said if ending is None else f"its JVM {ending}")

    def restart(self) -> None:
        """Start a new JVM in place of the one that was lost."""
        self._is_up = False
        if self._shared is not None:
            self._session = self._shared.found(self._ending)
        else:
            end_jvm()
            self._start()
        self._is_up = True

    def expect_end(self) -> None:
        """Take no lost job for trouble any more, and cut a start short."""
        self._ending.set()

    def stop(self) -> None:
        """Stop Spark and wait for the JVM to be gone."""
        self._ending.set()
        self._is_up = False
        if self._session is None:
            return
        if self._shared is not None:
            self._session = None
            self._shared.let_go()
            return
        stop_session(self._session)
        end_jvm()
        self._session = None


class ThreadPool:
    """Workers as threads of this process: beside Spark for operators that need its session, or in place of it."""

    slots: int | None = None
    is_up = True

    def __init__(
        self,
        store: LmdbStore,
        address: NodeAddress,
        *,
        on_mistake: Callable[[BaseException], None],
        on_driver: bool = False,
    ) -> None:
        """Remember where the workers find the node and the store."""
        self._store, self._address, self._on_driver, self._on_mistake = store, address, on_driver, on_mistake
        self._ending = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, on_broken: Callable[[str], None]) -> None:
        """Do nothing: threads need no preparation and are not lost as a whole."""

    def hire(self, count: int, epoch: int, *, spare: bool = False) -> None:
        for number in range(count):
            name = f"worker-{epoch}-{number}"
            thread = thread_of(self._serve, epoch, spare, name=name, on_death=self._on_mistake)
            self._threads = [one for one in self._threads if one.is_alive()]
            self._threads.append(thread)
            thread.start()

    def _serve(self, epoch: int, spare: bool) -> None:
        while not self._ending.is_set():
            try:
                self._work(epoch, spare)
                return
            except (OSError, BrokenFrame) as failure:
                if not self._ending.is_set():
                    log.warning("worker thread starts again: %s", failure)
            except BaseException as mistake:  # ours; the node takes it for a worker that was lost
                self._on_mistake(mistake)
                self._ending.wait(RETRY_S)

    def _work(self, epoch: int, spare: bool) -> None:
        serve(self._address, epoch, spare, store=self._store, on_driver=self._on_driver)

    def restart(self) -> None:
        """Do nothing: nothing was lost."""

    def expect_end(self) -> None:
        """Start no thread again."""
        self._ending.set()

    def stop(self) -> None:
        """Wait for the threads, so that none uses the store after it is closed."""
        self._ending.set()
        for thread in self._threads:
            thread.join(timeout=THREAD_END_S)
