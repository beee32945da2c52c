"""A Flink session cluster on this machine: a JobManager and a TaskManager, as its guide starts a standalone one.

PyFlink's local mode starts a small cluster for every job; with a hundred jobs that would be a hundred of them.
"""

import contextlib
import os
import shutil
import site
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyflink
import yaml

START_S = 60.0
HOME = Path(pyflink.__file__).parent
REPOSITORY = Path(__file__).parents[2]


class Cluster:
    """Starts both processes, and ends them."""

    def __init__(self, place: Path, slots: int) -> None:
        """Write the configuration; the TaskManager's memory is divided by its slots, and a job takes one."""
        self._place, self._slots = place, slots
        self.rest_port, rpc_port = free_port(), free_port()
        self._environment = {
            **os.environ,
            "FLINK_CONF_DIR": str(place / "conf"),
            "FLINK_LIB_DIR": str(place / "lib"),
            "FLINK_LOG_DIR": str(place / "log"),
            "FLINK_PID_DIR": str(place / "pid"),
            # An interpreter inside the JVM is not started by the environment's `python`, so it has to be told.
            "PYTHONPATH": os.pathsep.join([*site.getsitepackages(), str(REPOSITORY)]),
        }
        (place / "log").mkdir()
        (place / "pid").mkdir()
        self._lay_out_libraries(place / "lib")
        self._configure(place / "conf", rpc_port)
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> list[int]:
        """Start, wait until the TaskManager has registered, and return the process ids."""
        for script in ("jobmanager.sh", "taskmanager.sh"):
            with (self._place / "log" / f"{script}.out").open("wb") as log:
                self._processes.append(
                    subprocess.Popen(
                        ["bash", str(HOME / "bin" / script), "start-foreground"],
                        env=self._environment,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                    )
                )
        self._wait()
        return [process.pid for process in self._processes]

    def stop(self) -> None:
        """End both."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()

    def _lay_out_libraries(self, lib: Path) -> None:
        """Put the Python library beside Flink's own: from a job's jar its native part could be loaded only once."""
        lib.mkdir()
        for jar in (*(HOME / "lib").glob("*.jar"), *(HOME / "opt").glob("flink-python*.jar")):
            (lib / jar.name).symlink_to(jar)

    def _configure(self, conf: Path, rpc_port: int) -> None:
        shutil.copytree(HOME / "conf", conf)
        shipped = yaml.safe_load((HOME / "conf" / "config.yaml").read_text(encoding="utf-8"))
        settings: dict[str, Any] = {
            "env": shipped["env"],
            "jobmanager": {"rpc": {"address": "127.0.0.1", "port": rpc_port}, "memory": {"process": {"size": "1024m"}}},
            "rest": {"address": "127.0.0.1", "port": self.rest_port, "bind-address": "127.0.0.1"},
            "taskmanager": {
                "host": "127.0.0.1",
                "numberOfTaskSlots": self._slots,
                "memory": {
                    "process": {"size": "4096m"},
                    "managed": {"size": "512m"},
                    "network": {"min": "512m", "max": "512m"},
                },
            },
            "web": {"submit": {"enable": False}},
        }
        (conf / "config.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")

    def _wait(self) -> None:
        ends = time.monotonic() + START_S
        while time.monotonic() < ends:
            if any(process.poll() is not None for process in self._processes):
                raise RuntimeError(f"Flink did not start: {self._tail()}")
            with contextlib.suppress(OSError):
                overview = urllib.request.urlopen(f"http://127.0.0.1:{self.rest_port}/taskmanagers", timeout=2)
                if b'"id"' in overview.read():
                    return
            time.sleep(0.1)
        raise RuntimeError(f"Flink's TaskManager did not come up within {START_S:.0f} s: {self._tail()}")

    def _tail(self) -> str:
        logs = "\n".join(path.read_text(errors="replace") for path in (self._place / "log").glob("*.out"))
        return logs[-1_000:]


@contextlib.contextmanager
def cluster(place: Path, slots: int) -> Iterator[tuple[Cluster, list[int]]]:
    """Run a cluster for as long as it is needed."""
    one = Cluster(place, slots)
    try:
        yield one, one.start()
    finally:
        one.stop()


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
