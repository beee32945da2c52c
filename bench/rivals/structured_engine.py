"""Structured Streaming under measurement: stock queries in one Spark session, fed as the twin of a flow is.

RIoTBench's applications run as queries written by hand, the others as their twins. The session is set as
`bench/README.md` says for the engine benchmark: Unix sockets to Python, all files in memory, one shuffle partition, no
wait between micro-batches. Copies are queries side by side in this one session.
"""

import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from bench.rivals.flows import Build, SinkRecording, measured_flow
from bench.rivals.serving import Recording, Request, serve
from bench.rivals.structured_queries import QUERIES, TOLD
from headwater.dataflow.stream import Flow
from headwater.twin.query import run_structured
from headwater.twin.session import start_structured_session
from headwater.twin.settings import StructuredSettings

MEMORY_BACKED: Final = Path("/dev/shm")
SETTINGS: Final = StructuredSettings(
    spark={"spark.sql.shuffle.partitions": "1", "spark.sql.streaming.metricsEnabled": "false"}
)


def _by_hand(request: Request) -> Build | None:
    """Return the query as it is written by hand, if there is one; else the application's twin runs."""
    query = QUERIES.get(request.contest)
    if query is None:
        return None
    return lambda rows: rows.transform(lambda frame: query(frame, request.settings), schema=TOLD, name="query")


class _Copy(threading.Thread):
    """One copy of an application, run to its end."""

    def __init__(self, session: SparkSession, flow: Flow, place: Path) -> None:
        super().__init__(daemon=True)
        self._session, self._flow, self._place = session, flow, place
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            run_structured(self._flow, session=self._session, directory=self._place, settings=SETTINGS)
        except Exception as failure:  # of any kind: it is raised again where the copies are waited for
            self.failure = failure


def run(session: SparkSession, place: Path, request: Request) -> Sequence[Recording]:
    """Run copies of an application side by side until their inputs end."""
    flows = [measured_flow(request, copy, _by_hand(request)) for copy in range(len(request.ports))]
    copies = [_Copy(session, one, place) for one, _ in flows]
    for copy in copies:
        copy.start()
    for copy in copies:
        copy.join()
        if copy.failure is not None:
            raise copy.failure
    return [SinkRecording(sink) for _, sinks in flows for sink in sinks]


def main(answers: str) -> None:
    """Start a session, and serve."""
    scratch = MEMORY_BACKED if MEMORY_BACKED.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="structured-", dir=scratch, ignore_cleanup_errors=True) as place:
        session = start_structured_session(Path(place))
        serve(int(answers), lambda request: run(session, Path(place), request))
        session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
