"""Runs a flow as Structured Streaming: a query for each sink, fed from the flow's own sources.

The driver reads the sources and writes the sinks, as a Headwater node does; everything in between is Spark's. Every run
starts anew: sources at their beginning, checkpoints in a folder of its own.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from headwater.dataflow.compile import compile_flow
from headwater.dataflow.graph import Graph
from headwater.dataflow.stream import Flow
from headwater.model.errors import ConfigError, FlowError
from headwater.operators.base import Operator
from headwater.operators.processors.processing import Process
from headwater.storage.temporary import Temporary
from headwater.twin.compile import Compiler, TwinContext
from headwater.twin.feed import Feeder
from headwater.twin.feeding import Feeding
from headwater.twin.paths import has_watermark, sources_of, upstream, watermark_on
from headwater.twin.pickling import users_code_by_value
from headwater.twin.refusals import is_behind, keeps_state, refusals
from headwater.twin.rehearsal import Rehearsal
from headwater.twin.session import beside, is_elsewhere, start_structured_session
from headwater.twin.settings import StructuredSettings
from headwater.twin.sink_query import LOOK_S, SinkQuery
from headwater.twin.trouble import TroubleBox
from headwater.twin.watermarks import endings_of

log = logging.getLogger(__name__)

SHOW_S: Final = 0.5
DRAIN_S: Final = 10.0  # for rows under way when the time is up: several micro-batches


class QueryEnding(StrEnum):
    """Why a run ended."""

    FINISHED = "finished"
    TIME_UP = "time-up"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class StructuredStatus:
    """The status of a run."""

    flow: str
    seconds: float
    rows_in: Mapping[str, int]  # by source
    rows_out: Mapping[str, int]  # by sink
    micro_batches: Mapping[str, int]  # by sink
    ending: QueryEnding | None = None  # None while it runs


def check_expressible(flow: Flow) -> Graph:
    """Return the graph of a flow, or refuse what Structured Streaming cannot express."""
    graph = compile_flow(flow)
    refused = refusals(graph)
    if refused:
        raise FlowError("; ".join(refused))
    return graph


def run_structured(
    flow: Flow,
    *,
    master: str | None = None,
    session: SparkSession | None = None,
    directory: Path | None = None,
    settings: StructuredSettings | None = None,
    limit_s: float | None = None,
    stop: threading.Event | None = None,
    on_progress: Callable[[StructuredStatus], None] = lambda status: None,
) -> StructuredStatus:
    """Run a flow as stock Structured Streaming until it ends, the time is up or `stop` is set.

    It runs on a session of its own on `master`, by default this machine, or beside `session`. Staged rows, checkpoints
    and Spark's log are in a new folder inside `directory`, which workers elsewhere must see under the same path;
    without one they are temporary. Raises a FlowError, before anything starts, for what Structured Streaming cannot
    express.
    """
    graph = check_expressible(flow)
    if directory is None and is_elsewhere(master):
        raise ConfigError(f"a run on {master} needs a directory that all workers see under the same path")
    with ExitStack() as closing:
        place = _place(flow.name, directory, closing)
        if session is None:
            session = start_structured_session(place, master)
            closing.callback(_stop_session, session)
        settings = settings or StructuredSettings()
        own = beside(session, settings.spark)
        run = _Run(graph, own, place, settings, _Wish(stop or threading.Event(), limit_s), closing)
        return run.to_end(on_progress)


def _place(flow: str, directory: Path | None, closing: ExitStack) -> Path:
    if directory is None:
        return closing.enter_context(Temporary("structured"))
    place = directory / f"{flow}-{uuid4().hex[:8]}"
    place.mkdir(parents=True)
    return place.resolve()


def _stop_session(session: SparkSession) -> None:
    try:
        session.stop()
    except (Py4JError, OSError) as failure:
        log.warning("Spark did not stop in order: %s", failure)


class _Wish:
    """The reasons to end before the flow does: a request to stop, or the time limit."""

    def __init__(self, stop: threading.Event, limit_s: float | None) -> None:
        self.stop = stop
        self._ends = None if limit_s is None else time.monotonic() + limit_s

    def ending(self) -> QueryEnding | None:
        """Return the reason to end now; None to continue."""
        if self.stop.is_set():
            return QueryEnding.STOPPED
        return QueryEnding.TIME_UP if self._ends is not None and time.monotonic() >= self._ends else None


class _Run:
    """One run of a graph."""

    def __init__(
        self,
        graph: Graph,
        session: SparkSession,
        place: Path,
        settings: StructuredSettings,
        wish: _Wish,
        closing: ExitStack,
    ) -> None:
        self._graph, self._session, self._place, self._settings = graph, session, place, settings
        self._wish, self._closing = wish, closing
        self._began = time.monotonic()
        self._feeding = Feeding()
        self._feeders: dict[str, Feeder] = {}
        self._queries: dict[str, SinkQuery] = {}
        self._endings = endings_of(graph, place / "ends")
        self._told: set[str] = set()  # endings that have been signalled
        self._readers = {
            source: [sink.name for sink in graph.sinks if source in sources_of(graph, sink.name)]
            for source in graph.sources
        }
        (place / "trouble").mkdir()
        self._trouble = TroubleBox(str(place / "trouble"))

    def to_end(self, on_progress: Callable[[StructuredStatus], None]) -> StructuredStatus:
        """Run, and return the final status."""
        self._open_sources()
        self._open_sinks()
        self._start_queries()
        self._start_feeding()
        ending = self._watch(on_progress)
        self._feeding.halt()
        if ending is not QueryEnding.STOPPED:
            ends = time.monotonic() + DRAIN_S
            self._settle(lambda: ending is QueryEnding.FINISHED or time.monotonic() < ends)
        self._raise_trouble()  # before the queries stop: an interrupted micro-batch raises too
        for query in self._queries.values():
            query.stop()
        return self._status(ending)

    def _open_sources(self) -> None:
        exact = self._settings.exact_lateness
        for name, spec in self._graph.sources.items():
            cut = watermark_on(self._graph, name) if exact else None
            one_by_one = exact and cut is None and has_watermark(self._graph, name)
            feeder = Feeder(
                name,
                spec,
                self._place / "rows" / name,
                file_rows=1 if one_by_one else self._settings.file_rows,
                cut=cut,
                gather=not exact,
            )
            self._feeders[name] = feeder
            self._closing.callback(feeder.close)

    def _open_sinks(self) -> None:
        compiler = Compiler(self._graph, self._ground())
        with users_code_by_value():
            streams = {sink.name: compiler.sink(sink.name) for sink in self._graph.sinks}
        for name, stream in streams.items():
            query = SinkQuery(
                self._graph.name, name, self._graph.sink(name), stream, self._place / "checkpoints" / name
            )
            self._queries[name] = query
            self._closing.callback(query.close)

    def _ground(self) -> TwinContext:
        def is_wanted() -> bool:
            return self._wish.ending() is None

        return TwinContext(
            session=self._session,
            staging=self._place / "rows",
            endings=self._endings,
            trouble=self._trouble,
            schemas={name: feeder.schema(is_wanted) for name, feeder in self._feeders.items()},
            rehearsal=Rehearsal(self._graph, lambda name: self._feeders[name].first(is_wanted)),
        )

    def _start_queries(self) -> None:
        for name, query in self._queries.items():
            at_once = self._settings.exact_lateness and len(self._stateful_before(name)) <= 1
            self._closing.callback(query.stop)
            query.start(trigger_s=self._settings.trigger_s, at_once=at_once)

    def _start_feeding(self) -> None:
        feeders = list(self._feeders.values())
        self._closing.callback(self._feeding.join)
        self._closing.callback(self._feeding.halt)
        if not self._settings.exact_lateness:
            for feeder in feeders:
                self._feeding.start([feeder])
        elif any(self._needs_steps(name) for name in self._queries):
            self._feeding.start(feeders, lambda: self._settle(lambda: not self._feeding.is_halted))
        else:  # in one thread, so that the order of files is always the same
            self._feeding.start(feeders)

    def _stateful_before(self, sink: str) -> list[Operator]:
        parts = [one.part for one in upstream(self._graph, sink)]
        return [part for part in parts if isinstance(part, Operator) and keeps_state(part)]

    def _needs_steps(self, sink: str) -> bool:
        """Whether a query must finish one file before the next comes, to have exactly Headwater's result."""
        stateful = self._stateful_before(sink)
        return len(stateful) > 1 or any(is_behind(operator) for operator in stateful)

    def _watch(self, on_progress: Callable[[StructuredStatus], None]) -> QueryEnding:
        show_at = 0.0
        while True:
            self._raise_trouble()
            self._note_progress()
            if self._has_finished():
                return QueryEnding.FINISHED
            ending = self._wish.ending()
            if ending is not None:
                return ending
            if time.monotonic() >= show_at:
                show_at = time.monotonic() + SHOW_S
                on_progress(self._status(None))
            self._wish.stop.wait(LOOK_S)

    def _note_progress(self) -> None:
        """Update which files the queries have read, and signal the end of inputs that were read completely."""
        for source, sinks in self._readers.items():
            feeder = self._feeders[source]
            read = [self._queries[sink].files_read(feeder.directory) for sink in sinks]
            feeder.consumed = min(read, default=feeder.staged)
        for name, ending in self._endings.items():
            through = all(self._feeders[source].is_consumed for source in sources_of(self._graph, name))
            if through and name not in self._told:
                ending.tell()
                self._told.add(name)

    def _has_finished(self) -> bool:
        return len(self._told) == len(self._endings) and all(feeder.is_consumed for feeder in self._feeders.values())

    def _settle(self, is_wanted: Callable[[], bool]) -> None:
        """Wait until the queries have processed all there is."""

        def goes_on() -> bool:
            return is_wanted() and not self._wish.stop.is_set() and self._found_trouble() is None

        threads = [
            threading.Thread(target=query.work_off, args=(goes_on,), daemon=True)
            for name, query in self._queries.items()
            if not self._goes_by_clock(name)
        ]
        for thread in threads:
            thread.start()
        while (working := [thread for thread in threads if thread.is_alive()]) and goes_on():
            working[0].join(LOOK_S)

    def _goes_by_clock(self, sink: str) -> bool:
        """Whether processing-time timers keep a query busy for ever."""
        parts = [one.part for one in upstream(self._graph, sink)]
        return any(isinstance(part, Process) and part.time_mode == "processingtime" for part in parts)

    def _found_trouble(self) -> Exception | None:
        """Return the first error, as it was raised."""
        if self._feeding.failures:
            return self._feeding.failures[0]
        told = self._trouble.first()
        if told is not None:
            return told
        return next((failure for query in self._queries.values() if (failure := query.failure()) is not None), None)

    def _raise_trouble(self) -> None:
        trouble = self._found_trouble()
        if trouble is not None:
            raise trouble

    def _status(self, ending: QueryEnding | None) -> StructuredStatus:
        return StructuredStatus(
            flow=self._graph.name,
            seconds=time.monotonic() - self._began,
            rows_in={name: feeder.rows for name, feeder in self._feeders.items()},
            rows_out={name: query.rows for name, query in self._queries.items()},
            micro_batches={name: query.batches for name, query in self._queries.items()},
            ending=ending,
        )
