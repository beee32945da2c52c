"""One Spark session for several nodes of one process, so that a cluster for trying things out fits a small machine.

The first node that needs it starts it, the last one ends it. When its JVM is lost, the first that notices starts
another, and the others find it there; if that fails, it has failed for all who have waited for it, so that however many
nodes there are, one tries.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from headwater.model.errors import EngineError
from headwater.spark.jvm import StartCutShort
from headwater.spark.session import end_jvm, is_usable, spark_conf, start_spark, stop_session
from headwater.storage.temporary import Temporary
from headwater.workers.config import cores_here

LOOK_S: Final = 0.05  # how soon one who waits for another's start notices that nobody wants it any more


class SharedSpark:
    """A session, and the number of its users."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._session: SparkSession | None = None
        self._users = 0
        self._failure: EngineError | None = None  # of the last try to start it that failed
        self._tries = 0  # that failed
        self._directory: Temporary | None = None

    @property
    def directory(self) -> Path | None:
        """Where its log is; none before it was started first."""
        return None if self._directory is None else self._directory.path

    def take(self, unwanted: threading.Event) -> SparkSession:
        """Return the session and be one who uses it; the first who asks starts it."""
        session = self.found(unwanted)
        self._users += 1
        return session

    def found(self, unwanted: threading.Event) -> SparkSession:
        """Return a session that is of use, which is started if there is none; not if it is unwanted meanwhile."""
        before = self._tries
        with self._held(unwanted):
            if self._session is not None and is_usable(self._session):
                return self._session
            if self._failure is not None and self._tries != before:  # somebody has just tried it for us
                raise self._failure
            try:
                self._session = self._started(unwanted)
            except StartCutShort:  # of one node; the others still want it
                raise
            except EngineError as failure:
                self._failure = failure
                self._tries += 1
                raise
            return self._session

    @contextmanager
    def _held(self, unwanted: threading.Event) -> Iterator[None]:
        while not self._lock.acquire(timeout=LOOK_S):
            if unwanted.is_set():
                raise StartCutShort
        try:
            yield
        finally:
            self._lock.release()

    def _started(self, unwanted: threading.Event) -> SparkSession:
        end_jvm()
        if self._directory is None:
            self._directory = Temporary("spark")
        place = self._directory.path
        return start_spark(place, spark_conf(place, cores_here()), unwanted)

    def let_go(self) -> None:
        """Release the session; after the last release it is stopped."""
        with self._lock:
            self._users -= 1
            if self._users > 0:
                return
            if self._session is not None:
                stop_session(self._session)
                self._session = None
            end_jvm()
            if self._directory is not None:
                self._directory.delete()
                self._directory = None
