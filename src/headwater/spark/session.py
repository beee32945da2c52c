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
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from headwater.model.errors import EngineError
from headwater.spark.java import find_java
from headwater.spark.jvm import START_S, Jvm, StartCutShort, how_it_ended, limited_start
from headwater.spark.standalone import SECRET_FILE, cluster_secret
from headwater.storage.temporary import Temporary, keep

log = logging.getLogger(__name__)

SLOTS: Final = 64  # tasks at the same time: two overlapping epochs, spares, one worker per operator; a slot is free
CALLBACK_KEPT_S: Final = 30  # an idle connection of the JVM to our callback port, as PySpark has it
FAILURES_MAX: Final = 1_000_000  # plain local[k] ends the job with the first lost Python worker
HEAP_MB: Final = 512
LOG: Final = "spark.log"
JVM_END_S: Final = 10.0
ENDING_S: Final = 0.5  # between the last word of a JVM that was killed and the end of its process
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


def start_spark(directory: Path, conf: SparkConf, unwanted: threading.Event | None = None) -> SparkSession:
    """Start the session of this process; what Spark and its workers print goes to spark.log in the directory.

    A start that takes too long is given up, and one that is not wanted any more is cut short.
    """
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
    if SparkContext._active_spark_context is not None:
        raise EngineError("this process has a Spark session already; stop it first, since a node starts its own")
    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = conf.get("spark.driver.host", "127.0.0.1")
    shutil.rmtree(conf.get("spark.local.dir", ""), ignore_errors=True)  # what a JVM has left that was killed
    try:
        session = _session_of_a_new_jvm(conf, directory / LOG, unwanted or threading.Event())
    except BaseException as failure:  # py4j raises many kinds, and all mean the same to a user; or we are interrupted
        why = _why_not_started(failure)
        kill_jvm()
        if isinstance(failure, StartCutShort) or not isinstance(failure, Exception):
            raise
        raise SparkNotStarted(why, directory) from failure
    _quieten(session)
    return session


class SparkNotStarted(EngineError):
    """Spark could not be started: says why, and where its log is."""

    def __init__(self, why: str, directory: Path) -> None:
        """Keep the reason apart, for whoever tells it among others."""
        self.why = why
        super().__init__(f"Spark could not be started ({why}); {see_log(directory)}")


def see_log(directory: Path) -> str:
    """Point to what Spark has printed; it is kept from now on, for somebody who looks when this process has ended."""
    return f"see {keep(directory / LOG)}"


def _session_of_a_new_jvm(conf: SparkConf, output: Path, unwanted: threading.Event) -> SparkSession:
    master = conf.get("spark.master", "")
    secret = _secret_for(master)
    if not _of_us:  # else the twin has stopped its session, and left the JVM for the next one
        _of_us.append(_launched(conf, output))
    ours = _of_us[0]
    with limited_start(ours.jvm.process, START_S, f"it had not started after {START_S:.0f} s", unwanted):
        if SparkContext._gateway is None:
            SparkContext._ensure_initialized(gateway=ours.jvm.gateway())
            _guard_callbacks()
        builder = SparkSession.builder.config(conf=conf)
        with _registering(ours.jvm, master, unwanted):
            session = (builder if secret is None else builder.config(_SECRET, secret)).getOrCreate()
        _process_of[session.sparkContext] = ours.jvm.process
        return session


def _why_not_started(failure: BaseException) -> str:
    """Return why, in a line: what became of the JVM tells more than how our calls into it failed."""
    if isinstance(failure, EngineError):
        return str(failure)
    if isinstance(failure, Exception) and _of_us and (ending := _ending(_of_us[0].jvm.process)) is not None:
        return f"its JVM {ending}"
    return f"{type(failure).__name__}: {next(iter(str(failure).splitlines()), '')}"


class _Ours(NamedTuple):
    """The JVM of this process, and its temporary directory."""

    jvm: Jvm
    directory: Temporary


_of_us: list[_Ours] = []  # at most one
_called_back: WeakSet[Any] = WeakSet()  # gateways whose callback port is open, and shown the secret
_process_of: WeakKeyDictionary[SparkContext, "subprocess.Popen[bytes]"] = WeakKeyDictionary()  # PySpark knows the last


def _launched(conf: SparkConf, output: Path) -> _Ours:
    """Launch the JVM; its temporary directory, with its sockets, is private."""
    SparkContext._gateway = SparkContext._jvm = None  # of somebody else's session that was stopped
    directory = Temporary("spark", has_sockets=True)
    options = conf.get("spark.driver.extraJavaOptions", "")
    launch = SparkConf(loadDefaults=False).setAll(conf.getAll())
    launch.set("spark.driver.extraJavaOptions", f"{options} -Djava.io.tmpdir={directory.path}".strip())
    try:
        return _Ours(Jvm(launch, directory.path, output), directory)
    except BaseException:
        directory.delete()
        raise


@atexit.register
def _delete_directory_of_the_jvm() -> None:
    while _of_us:
        _of_us.pop().directory.delete()


def _guard_callbacks() -> None:
    """Have PySpark's callback port, over which the JVM calls our functions, require the gateway's secret.

    PySpark does not ask for it. Whoever wants to be called has to `open_callbacks`, else the JVM is refused, too.
    """
    gateway: Any = SparkContext._gateway
    gateway.callback_server_parameters.auth_token = gateway.gateway_parameters.auth_token


def open_callbacks() -> None:
    """Open the callback port of a Spark of ours, and have the JVM show the secret on it.

    Py4J's client in the JVM begins with the secret and forgets it when PySpark tells it the port
    (`py4j.PythonClient.copyWith`). Another that has it is put in its place, where only reflection reaches.
    """
    gateway: Any = SparkContext._gateway
    secret = gateway.callback_server_parameters.auth_token
    if secret is None or gateway in _called_back:  # without a secret it is somebody else's JVM: neither side asks
        return
    start: Any = ensure_callback_server_started  # PySpark has no types for it
    start(gateway)
    jvm, server = gateway.jvm, JavaObject("GATEWAY_SERVER", gateway._gateway_client)
    served, client = server.getGateway(), server.getCallbackClient()
    place = jvm.java.lang.Class.forName("py4j.Gateway").getDeclaredField("cbClient")
    place.setAccessible(True)
    seconds, sockets = jvm.java.util.concurrent.TimeUnit.SECONDS, jvm.javax.net.SocketFactory.getDefault()
    where = client.getPort(), client.getAddress()
    with_secret = jvm.py4j.PythonClient(
        served, None, *where, CALLBACK_KEPT_S, seconds, sockets, server, True, client.getReadTimeout(), secret
    )
    place.set(served, with_secret)
    client.shutdown()
    _called_back.add(gateway)


def _registering(jvm: Jvm, master: str, unwanted: threading.Event) -> AbstractContextManager[None]:
    """Give up on a master that does not answer."""
    if not master.startswith("spark://"):
        return nullcontext()
    too_late = (
        f"{master} does not answer as a Spark master does, and was given up after {REGISTER_S:.0f} s; look whether it "
        "is one, of Spark's version here, and "
        + (f"has the secret in {os.environ[SECRET_FILE]}" if is_authenticated(master) else WITHOUT_SECRET)
    )
    return limited_start(jvm.process, REGISTER_S, too_late, unwanted)


def stop_session(session: SparkSession) -> None:
    """Stop a session in good order, if its JVM is there to do so."""
    try:
        if has_jvm(session):
            session.stop()
    except (Py4JError, OSError) as failure:
        log.warning("Spark did not stop in order: %s", failure)


def end_jvm() -> None:
    """Close the JVM's standard input, at which it ends; one that does not is killed."""
    if not _of_us:
        return
    process = _of_us[0].jvm.process
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(timeout=JVM_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    forget_dead_session()


def kill_jvm() -> None:
    """End a JVM that has not started, and so has nothing to bring to an end."""
    if _of_us:
        _of_us[0].jvm.process.kill()
    end_jvm()


def has_jvm(session: SparkSession) -> bool:
    """Whether the process of a session's JVM is there; it may still be of no use."""
    return _process_of[session.sparkContext].poll() is None


def how_jvm_ended(session: SparkSession) -> str | None:
    """Return how a session's JVM has ended, in words; None if it runs. One that was just killed may be ending still."""
    return _ending(_process_of[session.sparkContext])


def _ending(process: "subprocess.Popen[bytes]") -> str | None:
    with suppress(subprocess.TimeoutExpired):
        process.wait(ENDING_S)
    return how_it_ended(process)


def is_usable(session: SparkSession) -> bool:
    """Whether the JVM of a session is there and has not stopped it."""
    context: Any = session.sparkContext
    if not has_jvm(session) or context._jsc is None:
        return False
    try:
        return not context._jsc.sc().isStopped()
    except (Py4JError, OSError):
        return False


def _quieten(session: SparkSession) -> None:
    """Keep PySpark's accumulator server, which we do not use, from printing a traceback when its JVM goes."""
    server: Any = session.sparkContext._accumulatorServer
    server.handle_error = lambda request, client: log.debug("the accumulator connection of Spark broke")


def forget_dead_session() -> None:
    """Make PySpark forget a JVM that was killed, so that a new one can be started in this process."""
    if _of_us and _of_us[0].jvm.process.poll() is not None:
        updates = getattr(SparkContext._active_spark_context, "_accumulatorServer", None)
        if updates is not None:
            updates.shutdown()  # a thread and a socket, which would stay; the gateway has such, too
        if SparkContext._gateway is not None:
            with suppress(Py4JError, OSError):
                SparkContext._gateway.shutdown()
        SparkSession._instantiatedSession = None
        SparkContext._active_spark_context = None
        SparkContext._gateway = None
        SparkContext._jvm = None
        _delete_directory_of_the_jvm()
