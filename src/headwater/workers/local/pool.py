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
from headwater.spark.session import end_jvm, spark_conf, start_spark
from headwater.spark.standalone import StandaloneCluster, reach_master
from headwater.storage.lmdb_store import LmdbStore
from headwater.workers.local.shared_session import SharedSpark
from headwater.workers.local.worker import serve, spark_task

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

    def start(self, on_broken: Callable[[str], None]) -> None:
        """Get ready to hire; `on_broken` is called, from any thread, when the pool is lost as a whole."""
        ...

    def hire(self, count: int, epoch: int, *, spare: bool = False) -> None:
        """Start so many workers, which connect to the node; one that dies is restarted."""
        ...

    def restart(self) -> None:
        """Start anew after the whole pool was lost."""
        ...

    def expect_end(self) -> None:
        """Restart nothing from here on: the node is about to close its connections."""
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
        cluster: StandaloneCluster | None = None,
        shared: SharedSpark | None = None,
    ) -> None:
        """Begin before Spark; `address` is where workers find the node, `shared` the Spark of several nodes."""
        self._directory, self._address, self._cores, self._cluster = directory, address, cores, cluster
        self._shared = shared
        self._slots: int | None = None
        self._session: SparkSession | None = None
        self._on_broken: Callable[[str], None] = lambda reason: None
        self._stopping = False
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

    def start(self, on_broken: Callable[[str], None]) -> None:
        self._on_broken = on_broken
        self._start()

    def _start(self) -> None:
        cluster = self._cluster
        if self._shared is not None:
            self._session = self._shared.take()
            return
        if cluster is None:
            self._session = start_spark(self._directory, spark_conf(self._directory, self._cores))
            return
        conf = spark_conf(
            self._directory,
            self._cores,
            cluster.master,
            host=reach_master(cluster.master),
            executor_mb=cluster.executor_mb,
            cores_max=cluster.slots_max,
        )
        self._session = start_spark(self._directory, conf)
        self._wait_for_executors(cluster)

    def _wait_for_executors(self, cluster: StandaloneCluster) -> None:
        """Wait for the first executor and, while slots are too few, a moment for each further one."""
        self._slots = 0
        deadline = time.monotonic() + EXECUTORS_S
        while self._slots < cluster.slots_enough and time.monotonic() < deadline:
            time.sleep(LOOK_S)
            slots = self._count_slots()
            if slots > self._slots:
                self._slots = slots
                deadline = time.monotonic() + MORE_EXECUTORS_S
        if self._slots == 0:
            raise EngineError(
                f"the Spark cluster at {cluster.master} gave no executor within {EXECUTORS_S:.0f} s; it needs a worker "
                f"with a free core and {cluster.executor_mb} MB of free memory"
            )

    def _count_slots(self) -> int:
        """Return how many tasks the present executors can run at the same time."""
        context: Any = self.session.sparkContext._jsc.sc()
        return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))

    @property
    def slots(self) -> int | None:
        """The cluster's slots when they were last counted; None on a Spark of our own."""
        return self._slots

    def hire(self, count: int, epoch: int, *, spare: bool = False) -> None:
        """Submit a job of `count` tasks from a thread of its own, since the call blocks until the job's end."""
        if self._cluster is not None:
            self._slots = self._count_slots()
        context = self.session.sparkContext
        task = functools.partial(spark_task, self._address, epoch, spare)
        job = context.parallelize(range(count), count).mapPartitions(task)
        thread = threading.Thread(
            target=self._run, args=(job, context), name=f"spark-job-{next(self._jobs)}", daemon=True
        )
        self._threads = [one for one in self._threads if one.is_alive()]
        self._threads.append(thread)
        thread.start()

    def _run(self, job: Any, context: Any) -> None:
        try:
            job.count()
        except Exception as failure:  # py4j raises many kinds of errors when its JVM is lost; all mean the same here
            if not self._stopping and self._session is not None and self._session.sparkContext is context:
                reason = next(iter(str(failure).splitlines()), type(failure).__name__)
                log.warning("a job of the worker pool ended: %s", reason)
                self._on_broken(reason)

    def restart(self) -> None:
        """Start a new JVM in place of the one that was lost."""
        if self._shared is not None:
            self._session = self._shared.renewed(self._session)
            return
        end_jvm()
        self._start()

    def expect_end(self) -> None:
        """Ignore lost jobs from here on."""
        self._stopping = True

    def stop(self) -> None:
        """Stop Spark and wait for the end of the JVM."""
        self._stopping = True
        if self._session is None:
            return
        if self._shared is not None:
            self._session = None
            self._shared.let_go()
            return
        try:
            self._session.stop()
        except (Py4JError, OSError) as failure:
            log.warning("Spark did not stop in order: %s", failure)
        end_jvm()
        self._session = None


class ThreadPool:
    """Workers as threads of this process: beside Spark for operators that need its session, or in place of it."""

    slots: int | None = None

    def __init__(self, store: LmdbStore, address: NodeAddress, *, on_driver: bool = False) -> None:
        self._store, self._address, self._on_driver = store, address, on_driver
        self._stopping = False
        self._threads: list[threading.Thread] = []

    def start(self, on_broken: Callable[[str], None]) -> None:
        """Do nothing: threads need no preparation and are not lost as a whole."""

    def hire(self, count: int, epoch: int, *, spare: bool = False) -> None:
        for number in range(count):
            thread = threading.Thread(
                target=self._serve, args=(epoch, spare), name=f"worker-{epoch}-{number}", daemon=True
            )
            self._threads = [one for one in self._threads if one.is_alive()]
            self._threads.append(thread)
            thread.start()

    def _serve(self, epoch: int, spare: bool) -> None:
        while not self._stopping:
            try:
                serve(self._address, epoch, spare, store=self._store, on_driver=self._on_driver)
                return
            except (OSError, BrokenFrame) as failure:
                if not self._stopping:
                    log.warning("worker thread starts again: %s", failure)

    def restart(self) -> None:
        """Do nothing: nothing was lost."""

    def expect_end(self) -> None:
        """Restart no thread from here on."""
        self._stopping = True

    def stop(self) -> None:
        """Wait for the threads, so that none uses the store after it is closed."""
        self._stopping = True
        for thread in self._threads:
            thread.join(timeout=THREAD_END_S)
