"""The JVM of this process: launched here rather than by PySpark, so that its start can be watched and cut short.

PySpark keeps the process to itself until it has started, waits for it without a limit, and has no way to let it write
to a log of ours. What is said to a JVM that is started is PySpark's own (`pyspark.java_gateway.launch_gateway`), and so
is the gateway: it is told where ours listens.
"""

import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from pyspark import SparkConf
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int

from headwater.model.errors import EngineError
from headwater.spark.log_context import thread_of

START_S: Final = (
    180.0  # for the JVM and its session; six seconds on two cores, a minute on a small board that is booting
)
LOOK_S: Final = 0.05
LOG_BYTES_MAX: Final = 1 << 20  # of the log of the JVMs before; a larger one is put aside when another JVM is started
_IGNORING_INTERRUPTS: Final = ("/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh")  # Ctrl-C is for us, who end it in order
_PORT: Final = "PYSPARK_GATEWAY_PORT"
_SECRET: Final = "PYSPARK_GATEWAY_SECRET"


class StartCutShort(EngineError):
    """Spark was not started because nobody wants it any more."""

    def __init__(self) -> None:
        """Say so."""
        super().__init__("Spark was not started: the node is being stopped")


class Jvm:
    """A JVM that was launched; it ends with us, as its standard input does."""

    def __init__(self, conf: SparkConf, directory: Path, log: Path) -> None:
        """Launch it; what it needs to tell us goes through the directory, which must be ours alone."""
        self._told = directory / "gateway"
        settings = [word for name, value in conf.getAll() for word in ("--conf", f"{name}={value}")]
        submit = [str(Path(_find_spark_home()) / "bin" / "spark-submit"), *settings]
        rest = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        environment = {
            **{name: value for name, value in os.environ.items() if name not in (_PORT, _SECRET)},
            "SPARK_CONNECT_MODE": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._told),
        }
        with opened_log(log) as output:
            self.process = subprocess.Popen(
                [*_IGNORING_INTERRUPTS, *submit, *rest],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=environment,
            )

    def gateway(self) -> Any:
        """Wait until it listens, and return PySpark's gateway to it; raises EngineError if it ends before."""
        while not self._told.exists():  # it is moved there whole
            if (ending := how_it_ended(self.process)) is not None:
                raise EngineError(f"its JVM {ending}")
            time.sleep(LOOK_S)
        with self._told.open("rb") as told:
            port, secret = read_int(told), UTF8Deserializer().loads(told)  # type: ignore[no-untyped-call]
        with _in_environment({_PORT: str(port), _SECRET: secret}):
            gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
        gateway.proc = self.process  # where PySpark has the process that it has launched itself
        return gateway


@contextmanager
def _in_environment(said: dict[str, str]) -> Iterator[None]:
    """Say something to PySpark, which reads it in this process's environment."""
    before = {name: os.environ.get(name) for name in said}
    os.environ.update(said)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def how_it_ended(process: "subprocess.Popen[bytes]") -> str | None:
    """Return how a process has ended, in words; None if it runs."""
    code = process.poll()
    if code is None:
        return None
    return f"ended with exit code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"


@contextmanager
def opened_log(log: Path) -> Iterator[int]:
    """Open the log for one more JVM; only we may read it."""
    with suppress(FileNotFoundError):
        if log.stat().st_size > LOG_BYTES_MAX:
            log.replace(log.with_suffix(".before.log"))
    opened = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        yield opened
    finally:
        os.close(opened)


@contextmanager
def limited_start(
    process: "subprocess.Popen[bytes]", limit_s: float, too_late: str, unwanted: threading.Event
) -> Iterator[None]:
    """Kill the JVM if what is done inside takes too long, or is not wanted any more.

    Calls into a JVM that does not answer cannot be cut short otherwise.
    """
    done = threading.Event()
    causes: list[EngineError] = []

    def watch() -> None:
        deadline = time.monotonic() + limit_s
        while not done.wait(LOOK_S):
            if unwanted.is_set() or time.monotonic() > deadline:
                causes.append(StartCutShort() if unwanted.is_set() else EngineError(too_late))
                process.kill()
                return

    def unwatched(failure: BaseException) -> None:
        causes.append(EngineError(f"its start could not be watched: {type(failure).__name__}: {failure}"))
        process.kill()

    watcher = thread_of(watch, name="spark-start", on_death=unwatched)
    watcher.start()
    try:
        yield
    except Exception as failure:
        if causes:
            raise causes[0] from failure
        raise
    finally:
        done.set()
        watcher.join()
    if causes:  # it was killed just when it was through
        raise causes[0]
