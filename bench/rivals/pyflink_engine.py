"""PyFlink under measurement: jobs on a session cluster of this machine.

Results leave by Flink's own socket sink and are noted here as they arrive; what this process does is not counted as
Flink's. There are no checkpoints: nothing survives a crash, which is the faster way to run it.
"""

import os
import socket
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyflink.common import Configuration
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.java_gateway import get_gateway

from bench.rivals.pyflink_cluster import cluster
from bench.rivals.pyflink_jobs import JOBS
from bench.rivals.recording import Recorder, told_items, write_recording
from bench.rivals.serving import Recording, Request, serve

READ_BYTES = 1 << 18
JOB_SETTINGS = {
    "parallelism.default": "1",
    "pipeline.object-reuse": "true",
    "execution.buffer-timeout.interval": "1 ms",
    "pipeline.auto-watermark-interval": "1 ms",
    "python.executable": sys.executable,
    "python.client.executable": sys.executable,
}
MODES = {
    "thread": {"python.execution-mode": "thread"},
    # Bundles as short as the buffers: by default rows wait for a second, or until there are a thousand.
    "process": {
        "python.execution-mode": "process",
        "python.fn-execution.bundle.size": "1000",
        "python.fn-execution.bundle.time": "5",
    },
}


class SocketRecorder:
    """Takes results from a socket, a line each."""

    def __init__(self, recorder: Recorder) -> None:
        """Listen."""
        self._recorder = recorder
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._thread = threading.Thread(target=self._receive, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until Flink has closed the connection."""
        self._thread.join(timeout=10)

    def write(self, path: Path) -> None:
        """Write results down."""
        batches = [
            (arrived_us, told_items(line.decode() for line in lines)) for arrived_us, lines in self._recorder.batches
        ]
        write_recording(path, self._recorder.count, self._recorder.last_us, batches)

    def _receive(self) -> None:
        connection, _ = self._server.accept()
        self._server.close()
        rest = b""
        while data := connection.recv(READ_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            if lines:
                self._recorder.note(lines)
        connection.close()


def environment(rest_port: int, mode: str) -> StreamExecutionEnvironment:
    """Return an environment whose jobs run on the cluster."""
    configuration = Configuration()
    for name, value in {**JOB_SETTINGS, **MODES[mode]}.items():
        configuration.set_string(name, value)
    gateway = get_gateway()
    no_jars = gateway.new_array(gateway.jvm.java.lang.String, 0)
    environments: Any = gateway.jvm.org.apache.flink.streaming.api.environment.StreamExecutionEnvironment
    return StreamExecutionEnvironment(
        environments.createRemoteEnvironment("127.0.0.1", rest_port, configuration._j_configuration, no_jars)
    )


def run(rest_port: int, request: Request) -> Sequence[Recording]:
    """Run copies of an application, a job each, until their inputs end."""
    recorders, jobs = [], []
    for copy, port in enumerate(request.ports):
        recorder = SocketRecorder(request.recorder(copy))
        job_environment = environment(rest_port, request.settings.get("mode", "thread"))
        JOBS[request.contest](job_environment, port, recorder.port, request.settings)
        jobs.append(job_environment.execute_async(request.contest))
        recorders.append(recorder)
    for job in jobs:
        _finish(job)
    for recorder in recorders:
        recorder.wait()
    return recorders


def _finish(job: Any) -> None:
    """Wait for the end of a job; of a Java failure only its first cause is told."""
    try:
        job.get_job_execution_result().result()
    except Py4JError as failure:
        causes = [line for line in str(failure).splitlines() if line.startswith("Caused by: ")]
        raise RuntimeError(causes[-1] if causes else str(failure)) from failure


def main(answers: str, slots: str) -> None:
    """Start a cluster with room for so many jobs, and serve."""
    os.environ.pop("FLINK_CONF_DIR", None)
    place = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    with (
        tempfile.TemporaryDirectory(prefix="flink-", dir=place) as scratch,
        cluster(Path(scratch), int(slots)) as (flink, pids),
    ):
        get_gateway()
        serve(int(answers), lambda request: run(flink.rest_port, request), roots=pids)


if __name__ == "__main__":
    main(*sys.argv[1:])
