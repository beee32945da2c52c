"""One Spark session for several nodes of one process, so that a cluster for trying things out fits a small machine.

The first node that needs it starts it, the last one stops it (reference counting). When its JVM is lost, the first node
to notice starts another, which the others then get.
"""

import logging
import threading

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from headwater.spark.session import end_jvm, spark_conf, start_spark
from headwater.storage.temporary import Temporary
from headwater.workers.config import cores_here

log = logging.getLogger(__name__)


class SharedSpark:
    """A session, and the number of its users."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._session: SparkSession | None = None
        self._users = 0
        self._directory: Temporary | None = None

    def take(self) -> SparkSession:
        """Return the session; the first caller waits until it has started."""
        with self._lock:
            if self._session is None:
                self._start()
            self._users += 1
            assert self._session is not None
            return self._session

    def renewed(self, lost: SparkSession | None) -> SparkSession:
        """Return the session that replaces a lost one."""
        with self._lock:
            if self._session is lost:
                end_jvm()
                self._start()
            assert self._session is not None
            return self._session

    def _start(self) -> None:
        if self._directory is None:
            self._directory = Temporary("spark")
        place = self._directory.path
        self._session = start_spark(place, spark_conf(place, cores_here()))

    def let_go(self) -> None:
        """Release the session; after the last release it is stopped."""
        with self._lock:
            self._users -= 1
            if self._users > 0 or self._session is None:
                return
            try:
                self._session.stop()
            except (Py4JError, OSError) as failure:
                log.warning("Spark did not stop in order: %s", failure)
            end_jvm()
            self._session = None
            if self._directory is not None:
                self._directory.delete()
                self._directory = None
