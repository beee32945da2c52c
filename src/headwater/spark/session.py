"""Starts Spark for an edge machine: one small JVM, quiet, quick to start, with slots for the pool.

Each setting carries its measured effect, on two cores with Spark 4.3. On a cluster the driver is the same small JVM,
and the tasks run on the cluster's executors.

Other users of the machine can connect to every port on its loopback address, and Spark's RPC port deserialises Java
objects, for which it loads classes that the sender names. So every Spark that we start authenticates a connection
before it reads anything from it (`spark.authenticate`): a JVM of our own makes a secret at each start and keeps it in
memory. No secret is among the settings with which the JVM is launched: they are its command line, which all users can
read. Unix sockets, which have no secret, are in a directory that only our user can enter.
"""

import atexit
import logging
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from headwater.model.errors import EngineError
from headwater.spark.java import find_java
from headwater.spark.standalone import SECRET_FILE, cluster_secret
from headwater.storage.temporary import Temporary

log = logging.getLogger(__name__)

SLOTS: Final = 64  # tasks at once: two overlapping epochs, spares, one worker per operator; idle ones cost nothing
FAILURES_MAX: Final = 1_000_000  # plain local[k] ends the job with the first lost Python worker
HEAP_MB: Final = 512
JVM_END_S: Final = 10.0
EXECUTOR_MB: Final = 512
REGISTER_S: Final = 25.0  # to register with a reachable master; Spark's own timeout is a minute

_JVM_OPTIONS: Final = (
    "-XX:+UseSerialGC",  # with the next one: a session in 5.4 s instead of 7 to 9, and 360 to 400 MB
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-XX:-UsePerfData",
)

# A connection proves that it knows the secret before Spark reads anything else, and is encrypted from then on. A Spark
# of our own connects only to itself, in memory: measured alternately, a session starts in 6.2 s with these settings and
# in 6.0 s without, and jobs take the same time.
AUTHENTICATED: Final = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
}
WITHOUT_SECRET: Final = f"wants no secret (else name the file that holds it in {SECRET_FILE})"
_SECRET: Final = "spark.authenticate.secret"

_LOGGING: Final = """
rootLogger.level = error
rootLogger.appenderRef.stdout.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n
"""


def spark_conf(
    directory: Path,
    cores: int,
    master: str | None = None,
    *,
    host: str = "127.0.0.1",
    executor_mb: int = EXECUTOR_MB,
    cores_max: int | None = None,
) -> SparkConf:
    """Return the settings of a node's Spark: one of its own, or a cluster that sees this machine as `host`."""
    logging = directory / "log4j2.properties"
    logging.write_text(_LOGGING)
    scratch = directory / "spark"
    settings = {
        "spark.app.name": "headwater",
        "spark.ui.enabled": "false",
        "spark.driver.memory": f"{HEAP_MB}m",
        "spark.driver.extraJavaOptions": " ".join([*_JVM_OPTIONS, f"-Dlog4j2.configurationFile={logging}"]),
        "spark.driver.host": host,
        "spark.driver.bindAddress": host,
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.shuffle.partitions": str(cores),
        "spark.python.unix.domain.socket.enabled": "true",  # TCP costs 40 ms a task by delayed ACKs
        "spark.python.worker.reuse": "true",
        "spark.python.daemon.module": "headwater.workers.local.daemon",
        "spark.executor.heartbeatInterval": "10s",
        "spark.excludeOnFailure.enabled": "false",
        **(AUTHENTICATED if master is None or is_authenticated(master) else {}),
    }
    place = _embedded(cores) if master is None else _on_cluster(master, executor_mb, cores_max)
    return SparkConf(loadDefaults=False).setAll([*settings.items(), *place.items()])


def _embedded(cores: int) -> Mapping[str, str]:
    return {"spark.master": f"local[{SLOTS},{FAILURES_MAX}]", "spark.default.parallelism": str(cores)}


def _on_cluster(master: str, executor_mb: int, cores_max: int | None) -> Mapping[str, str]:
    settings = {
        "spark.master": master,
        "spark.task.maxFailures": str(FAILURES_MAX),
        "spark.executor.memory": f"{executor_mb}m",
        "spark.executor.extraJavaOptions": " ".join(_JVM_OPTIONS),
        "spark.executorEnv.PYSPARK_PYTHON": sys.executable,
        "spark.locality.wait": "0s",
    }
    return settings if cores_max is None else settings | {"spark.cores.max": str(cores_max)}


def is_authenticated(master: str) -> bool:
    """Whether connections to our JVM need a secret; on a standalone cluster only if we have the cluster's."""
    return not master.startswith("spark://") or cluster_secret(os.environ) is not None


def _secret_for(master: str) -> str | None:
    """Return the secret to pass to Spark; None: it makes one itself, or there is none."""
    if master.startswith("spark://"):
        return cluster_secret(os.environ)
    return secrets.token_hex(32) if master.startswith("local-cluster") else None


def start_spark(directory: Path, conf: SparkConf) -> SparkSession:
    """Start the session of this process; the output of Spark and its workers goes to spark.log in the directory."""
    forget_dead_session()
    master = conf.get("spark.master", "")
    if not is_authenticated(master):
        log.warning(
            "%s is used without spark.authenticate: who reaches the ports of this process at %s can run code as its "
            "user; see docs/security.md for how a cluster gets a secret, and name its file in %s",
            master,
            conf.get("spark.driver.host", ""),
            SECRET_FILE,
        )
    secret = _secret_for(master)
    if SparkContext._active_spark_context is not None:
        raise EngineError("this process has a Spark session already; stop it first, since a node starts its own")
    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = conf.get("spark.driver.host", "127.0.0.1")
    try:
        with _output_to(directory / "spark.log"):
            SparkContext._ensure_initialized(conf=_launched_with(conf))  # the JVM, without a context
            _guard_callbacks()
            with _registering(master):
                builder = SparkSession.builder.config(conf=conf)
                session = (builder if secret is None else builder.config(_SECRET, secret)).getOrCreate()
    except Exception as failure:  # py4j raises many kinds; all mean the same to a user
        end_jvm()
        if isinstance(failure, EngineError):
            raise
        raise EngineError(
            f"Spark could not be started ({type(failure).__name__}: {str(failure).splitlines()[0]}); "
            f"see {directory / 'spark.log'}"
        ) from failure
    _quieten(session)
    return session


_of_the_jvm: list[Temporary] = []  # at most one: this process has one JVM


def _launched_with(conf: SparkConf) -> SparkConf:
    """Return the settings for launching the JVM, with a private temporary directory for its sockets."""
    if not _of_the_jvm:
        _of_the_jvm.append(Temporary("spark", has_sockets=True))
    options = conf.get("spark.driver.extraJavaOptions", "")
    launch = SparkConf(loadDefaults=False).setAll(conf.getAll())
    return launch.set("spark.driver.extraJavaOptions", f"{options} -Djava.io.tmpdir={_of_the_jvm[0].path}".strip())


@atexit.register
def _delete_directory_of_the_jvm() -> None:
    while _of_the_jvm:
        _of_the_jvm.pop().delete()


def _guard_callbacks() -> None:
    """Have PySpark's callback port, over which the JVM calls our functions, require the gateway's secret.

    PySpark gives the secret to the JVM, which sends it on every such connection, but does not check it.
    """
    gateway: Any = SparkContext._gateway
    gateway.callback_server_parameters.auth_token = gateway.gateway_parameters.auth_token


@contextmanager
def _registering(master: str) -> Iterator[None]:
    """Give up on a master that does not answer, by killing our JVM: a call into it cannot be cut short otherwise."""
    given_up = threading.Event()
    timer = threading.Timer(REGISTER_S, _give_up, [given_up])
    if master.startswith("spark://"):
        timer.start()
    try:
        yield
    except Exception as failure:
        if given_up.is_set():
            raise EngineError(
                f"{master} does not answer as a Spark master does, and was given up after {REGISTER_S:.0f} s; "
                "look whether it is one, of Spark's version here, and "
                + (f"has the secret in {os.environ[SECRET_FILE]}" if is_authenticated(master) else WITHOUT_SECRET)
            ) from failure
        raise
    finally:
        timer.cancel()


def _give_up(given_up: threading.Event) -> None:
    given_up.set()
    gateway: Any = SparkContext._gateway
    gateway.proc.kill()


def end_jvm() -> None:
    """End the JVM by closing its standard input; kill it if that does not help."""
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
        _delete_directory_of_the_jvm()


@contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Redirect our output to a log file while the JVM starts and inherits it; PySpark offers no other way."""
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
