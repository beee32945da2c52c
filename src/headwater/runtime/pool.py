"""The pool: where workers come from.

On Spark, hiring n workers is a Spark job of n tasks, each of which serves until it is dismissed; Spark starts a task
again when its Python worker dies. The twin hires threads of this process. Neither knows what workers do.
"""

import functools
import itertools
import logging
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from headwater.runtime.spark import forget_dead_session, start_spark
from headwater.runtime.store import LmdbStore
from headwater.runtime.wire import BrokenFrame
from headwater.runtime.worker import serve, spark_task

log = logging.getLogger(__name__)

JVM_END_S: Final = 10.0
THREAD_END_S: Final = 10.0  # a user's function may compute for long; then the thread is left behind


class Pool(Protocol):
    """Where workers come from."""

    def start(self, on_broken: Callable[[str], None]) -> None:
        """Get ready to hire; `on_broken` is called, from any thread, when the pool is lost as a whole."""
        ...

    def hire(self, count: int, epoch: int, *, spare: bool = False) -> None:
        """Start so many workers; they will say hello to the node. One that dies is started again."""
        ...

    def restart(self) -> None:
        """Come back after being lost as a whole."""
        ...

    def expect_end(self) -> None:
        """Do not start again what is lost from now on: the node is about to hang up."""
        ...

    def stop(self) -> None:
        """End it."""
        ...


class SparkPool:
    """Workers as tasks of Spark jobs."""

    def __init__(self, directory: Path, store: LmdbStore, address: str, *, cores: int, power_safe: bool) -> None:
        """Remember where the workers will find the node and the store."""
        self._directory, self._address, self._cores = directory, address, cores
        self._task_facts = (str(store.directory), store.disk_bytes, power_safe)
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
        """The process of the JVM."""
        gateway: Any = self.session.sparkContext._gateway
        return int(gateway.proc.pid)

    def start(self, on_broken: Callable[[str], None]) -> None:
        """Start Spark."""
        self._on_broken = on_broken
        self._session = start_spark(self._directory, self._cores)

    def hire(self, count: int, epoch: int, *, spare: bool = False) -> None:
        """Submit a job of so many tasks from a thread of its own: the call that runs a job blocks until its end."""
        context = self.session.sparkContext
        task = functools.partial(spark_task, self._address, *self._task_facts, epoch, spare)
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
        except Exception as failure:  # py4j raises all sorts of things when its JVM goes; they mean the same here
            if not self._stopping and self._session is not None and self._session.sparkContext is context:
                reason = next(iter(str(failure).splitlines()), type(failure).__name__)
                log.warning("a job of the worker pool ended: %s", reason)
                self._on_broken(reason)

    def restart(self) -> None:
        """Start a new JVM in place of the one that was lost."""
        self._end_jvm()
        self._session = start_spark(self._directory, self._cores)

    def expect_end(self) -> None:
        """Take no lost job for trouble any more."""
        self._stopping = True

    def stop(self) -> None:
        """Stop Spark and wait for the JVM to be gone."""
        self._stopping = True
        if self._session is None:
            return
        try:
            self._session.stop()
        except (Py4JError, OSError) as failure:
            log.warning("Spark did not stop in order: %s", failure)
        self._end_jvm()
        self._session = None

    def _end_jvm(self) -> None:
        """Close the JVM's standard input, at which it ends; one that does not is killed."""
        process: Any = SparkContext._gateway.proc if SparkContext._gateway is not None else None
        if process is None:
            return
        process.stdin.close()
        try:
            process.wait(timeout=JVM_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        forget_dead_session()


class ThreadPool:
    """Workers as threads of this process: the twin, for tests and for trying things without Java."""

    def __init__(self, store: LmdbStore, address: str) -> None:
        """Remember where the workers find the node and the store."""
        self._store, self._address = store, address
        self._stopping = False
        self._threads: list[threading.Thread] = []

    def start(self, on_broken: Callable[[str], None]) -> None:
        """Nothing has to be got ready; threads are not lost as a whole."""

    def hire(self, count: int, epoch: int, *, spare: bool = False) -> None:
        """Start threads."""
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
                serve(self._address, self._store, epoch, spare)
                return
            except (OSError, BrokenFrame) as failure:
                if not self._stopping:
                    log.warning("worker thread starts again: %s", failure)

    def restart(self) -> None:
        """Nothing was lost."""

    def expect_end(self) -> None:
        """Start no thread again."""
        self._stopping = True

    def stop(self) -> None:
        """Wait for the threads, so that none uses the store after it is closed."""
        self._stopping = True
        for thread in self._threads:
            thread.join(timeout=THREAD_END_S)
