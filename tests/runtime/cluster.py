"""A real standalone Spark cluster on this machine: a master and workers as processes of their own.

`spark-class` of the PySpark wheel starts them; ports are chosen by the kernel and read from the logs. All of them end
with the fixture, also when a test fails, and with this process, should it be killed.
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyspark
import pytest

from headwater.spark.java import JavaNotFound, find_java

SPARK: Final = Path(pyspark.__file__).parent
START_S: Final = 60.0  # a JVM on a busy machine
LOOK_S: Final = 0.05
JVM_OPTIONS: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster."""

    master: str  # its URL
    master_pid: int
    worker_pids: tuple[int, ...]
    logs: Path


@contextmanager
def running_cluster(
    directory: Path, *, workers: int = 1, cores: int = 8, memory: str = "1g", secret: str | None = None
) -> Iterator[Cluster]:
    """Start a master and workers with so many cores and so much memory each, and end them afterwards.

    With a secret they authenticate by it, as docs/security.md says how to set a cluster up.
    """
    environment = _environment(directory)
    if secret is not None:
        settings = directory / "spark-defaults.conf"
        settings.touch(mode=0o600)
        settings.write_text(f"spark.authenticate true\nspark.authenticate.secret {secret}\n")
        environment = {**environment, "SPARK_CONF_DIR": str(directory)}
    with ExitStack() as running:
        master_log = directory / "master.log"
        listen = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        master = _start(running, "master.Master", listen, master_log, environment)
        url = _found(master, master_log, rb"Starting Spark master at (spark://\S+)")
        pids = []
        for number in range(workers):
            log, work = directory / f"worker-{number}.log", directory / f"work-{number}"
            offer = ["--cores", str(cores), "--memory", memory, "--work-dir", str(work)]
            worker = _start(running, "worker.Worker", [*listen, *offer, url], log, environment)
            _found(worker, log, rb"(Successfully registered with master)")
            pids.append(worker.pid)
        yield Cluster(url, master.pid, tuple(pids), directory)


def _environment(directory: Path) -> Mapping[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return inherited | {
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(directory / "scratch"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": JVM_OPTIONS,
    }


def _start(
    running: ExitStack, role: str, arguments: list[str], log: Path, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    end_with_us = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    command = [*end_with_us, str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}", *arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    running.callback(_end, process)
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process; a worker ends its executors, and executors end when their worker is gone."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _found(process: subprocess.Popen[bytes], log: Path, wanted: bytes) -> str:
    """Wait until the log says what is wanted, and return it."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        found = re.search(wanted, log.read_bytes())
        if found:
            return found[1].decode()
        if process.poll() is not None:
            break
        time.sleep(LOOK_S)
    raise AssertionError(f"no {wanted!r} in {log}:\n{log.read_text(errors='replace')[-2_000:]}")


@pytest.fixture(scope="session")
def standalone_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and a worker with eight cores, for the whole run."""
    try:
        find_java()
    except JavaNotFound as missing:
        pytest.skip(str(missing))
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def ancestors(pid: int) -> list[int]:
    """Return the parents of a process, up to the first of all."""
    found = []
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        found.append(pid)
    return found


def command_line(pid: int) -> str:
    """Return what every user of this machine can read of how a process was started."""
    return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
