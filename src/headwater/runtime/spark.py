"""Starting Spark the way an edge machine needs it: one small JVM, quiet, quick to start, with room for the pool.

Each setting carries what it was measured to bring on two cores with Spark 4.3.
"""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from headwater.model.errors import EngineError
from headwater.runtime.java import find_java

log = logging.getLogger(__name__)

SLOTS: Final = 64  # tasks at the same time: two overlapping epochs, spares, one worker per operator; a slot is free
FAILURES_MAX: Final = 1_000_000  # plain local[k] ends the job with the first lost Python worker
HEAP_MB: Final = 512

_JVM_OPTIONS: Final = (
    "-XX:+UseSerialGC",  # with the next one: a session in 5.4 s instead of 7 to 9, and 360 to 400 MB
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-XX:-UsePerfData",
)

_LOGGING: Final = """
rootLogger.level = error
rootLogger.appenderRef.stdout.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n
"""


def spark_conf(directory: Path, cores: int) -> SparkConf:
    """Return the settings of a node's Spark."""
    logging = directory / "log4j2.properties"
    logging.write_text(_LOGGING)
    scratch = directory / "spark"
    settings = {
        "spark.master": f"local[{SLOTS},{FAILURES_MAX}]",
        "spark.app.name": "headwater",
        "spark.ui.enabled": "false",
        "spark.driver.memory": f"{HEAP_MB}m",
        "spark.driver.extraJavaOptions": " ".join([*_JVM_OPTIONS, f"-Dlog4j2.configurationFile={logging}"]),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.default.parallelism": str(cores),
        "spark.sql.shuffle.partitions": str(cores),
        "spark.python.unix.domain.socket.enabled": "true",  # TCP costs 40 ms a task by delayed ACKs
        "spark.python.worker.reuse": "true",
        "spark.python.daemon.module": "headwater.runtime.daemon",
        "spark.executor.heartbeatInterval": "10s",
        "spark.excludeOnFailure.enabled": "false",
    }
    return SparkConf(loadDefaults=False).setAll(list(settings.items()))


def start_spark(directory: Path, cores: int) -> SparkSession:
    """Start the session of this process; what Spark and its workers print goes to spark.log in the directory."""
    forget_dead_session()
    if SparkContext._active_spark_context is not None:
        raise EngineError("this process has a Spark session already; stop it first, since a node starts its own")
    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    try:
        with _output_to(directory / "spark.log"):
            session = SparkSession.builder.config(conf=spark_conf(directory, cores)).getOrCreate()
    except Exception as failure:  # py4j raises many kinds; all mean the same to a user
        raise EngineError(
            f"Spark could not be started ({type(failure).__name__}: {str(failure).splitlines()[0]}); "
            f"see {directory / 'spark.log'}"
        ) from failure
    _quieten(session)
    return session


def _quieten(session: SparkSession) -> None:
    """Keep PySpark's accumulator server, which we do not use, from printing a traceback when its JVM goes."""
    server: Any = session.sparkContext._accumulatorServer
    server.handle_error = lambda request, client: log.debug("the accumulator connection of Spark broke")


def forget_dead_session() -> None:
    """Make PySpark forget a JVM that was killed, so that a new one can be started in this process."""
    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if process is not None and process.poll() is not None:
        SparkSession._instantiatedSession = None
        SparkContext._active_spark_context = None
        SparkContext._gateway = None
        SparkContext._jvm = None


@contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Let the JVM inherit a log file instead of our terminal; PySpark offers no other way."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(target, 1)
        os.dup2(target, 2)
        yield
    finally:
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)
        for descriptor in (*kept, target):
            os.close(descriptor)
