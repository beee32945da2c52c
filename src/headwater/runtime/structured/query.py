"""Running a flow as Structured Streaming: a query for each sink, fed from the flow's own sources.

The driver reads the sources and writes the sinks, as a Headwater node does; in between everything is Spark's. A run
begins anew every time: sources at their start, checkpoints in a directory of its own.
"""

import logging
import re
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final
from uuid import uuid4

import orjson
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headwater.dataflow.compile import compile_flow
from headwater.dataflow.graph import Graph
from headwater.dataflow.stream import Flow
from headwater.model.errors import ConfigError, EngineError, FlowError
from headwater.operators.base import Operator
from headwater.operators.processing import Process
from headwater.runtime.structured.compile import Compiler, Ground, first_line
from headwater.runtime.structured.drain import Drain
from headwater.runtime.structured.feed import Feeder
from headwater.runtime.structured.paths import has_watermark, sources_of, upstream, watermark_on
from headwater.runtime.structured.pickling import users_code_by_value
from headwater.runtime.structured.refusals import is_behind, keeps_state, refusals
from headwater.runtime.structured.rehearsal import Rehearsal
from headwater.runtime.structured.session import beside, is_elsewhere, start_structured_session
from headwater.runtime.structured.settings import StructuredSettings
from headwater.runtime.structured.trouble import TroubleBox
from headwater.runtime.structured.watermarks import endings_of

log = logging.getLogger(__name__)

LOOK_S: Final = 0.05  # how soon a query's progress, an error or a wish to stop is noticed
SHOW_S: Final = 0.5
DRAIN_S: Final = 10.0  # for rows under way when the time is up: several micro-batches
_RAISED: Final = re.compile(r"^(\w[\w.]*(?:Error|Exception): .*)$", re.MULTILINE)  # the last line of a traceback
_SEVERAL: Final = "spark.sql.streaming.statefulOperator.allowMultiple"


class Ending(StrEnum):
    """Why a run ended."""

    FINISHED = "finished"
    TIME_UP = "time-up"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class StructuredStatus:
    """A run, while it goes on and at its end."""

    flow: str
    seconds: float
    rows_in: Mapping[str, int]  # by source
    rows_out: Mapping[str, int]  # by sink
    micro_batches: Mapping[str, int]  # by sink
    ending: Ending | None = None  # None while it runs


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
    and Spark's log lie in a new directory inside `directory`, which workers elsewhere must see under the same path;
    without one they are temporary. Raises a FlowError for what Structured Streaming cannot do, before anything starts.
    """
    graph = compile_flow(flow)
    refused = refusals(graph)
    if refused:
        raise FlowError("; ".join(refused))
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
        temporary = tempfile.TemporaryDirectory(prefix="headwater-structured-", ignore_cleanup_errors=True)
        return Path(closing.enter_context(temporary))
    place = directory / f"{flow}-{uuid4().hex[:8]}"
    place.mkdir(parents=True)
    return place.resolve()


def _stop_session(session: SparkSession) -> None:
    try:
        session.stop()
    except (Py4JError, OSError) as failure:
        log.warning("Spark did not stop in order: %s", failure)


class _Wish:
    """When to end before the flow does: somebody says so, or the time is up."""

    def __init__(self, stop: threading.Event, limit_s: float | None) -> None:
        self.stop = stop
        self._ends = None if limit_s is None else time.monotonic() + limit_s

    def ending(self) -> Ending | None:
        """Return why to end now; None to go on."""
        if self.stop.is_set():
            return Ending.STOPPED
        return Ending.TIME_UP if self._ends is not None and time.monotonic() >= self._ends else None


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
        self._wish = wish
        self._halt = threading.Event()  # for the feeders, in any case
        self._closing = closing
        self._began = time.monotonic()
        self._feeders: dict[str, Feeder] = {}
        self._drains: dict[str, Drain] = {}
        self._queries: dict[str, StreamingQuery] = {}
        self._failures: list[Exception] = []
        self._endings = endings_of(graph, place / "ends")
        self._told: set[str] = set()
        self._readers = {
            source: [sink.name for sink in graph.sinks if source in sources_of(graph, sink.name)]
            for source in graph.sources
        }
        (place / "trouble").mkdir()
        self._trouble = TroubleBox(str(place / "trouble"))

    def to_end(self, on_progress: Callable[[StructuredStatus], None]) -> StructuredStatus:
        """Run, and return how it went."""
        self._open_sources()
        self._open_sinks()
        self._start_queries()
        self._start_feeding()
        ending = self._watch(on_progress)
        self._halt.set()
        if ending is not Ending.STOPPED:
            ends = time.monotonic() + DRAIN_S
            self._settle(lambda: ending is Ending.TIME_UP and time.monotonic() >= ends)
        self._stop_queries()
        self._raise_trouble()
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
            drain = self._drains[name] = Drain(name, self._graph.sink(name), stream)
            self._closing.callback(drain.close)

    def _ground(self) -> Ground:
        return Ground(
            session=self._session,
            staging=self._place / "rows",
            endings=self._endings,
            trouble=self._trouble,
            schemas={name: feeder.schema(self._is_wanted) for name, feeder in self._feeders.items()},
            rehearsal=Rehearsal(self._graph, lambda name: self._feeders[name].first(self._is_wanted)),
        )

    def _is_wanted(self) -> bool:
        return self._wish.ending() is None

    def _start_queries(self) -> None:
        self._closing.callback(self._stop_queries)
        for name, drain in self._drains.items():
            # With one stateful operator Spark can judge a row by the micro-batch right before it; with several it is
            # one behind, unless each micro-batch is worked off before the next one comes.
            at_once = self._settings.exact_lateness and len(self._stateful_before(name)) <= 1
            self._session.conf.set(_SEVERAL, "false" if at_once else "true")
            try:
                self._queries[name] = drain.start(self._place / "checkpoints" / name, self._settings.trigger_s)
            except PySparkException as failure:
                raise FlowError(f"sink {name!r} cannot run as Structured Streaming: {first_line(failure)}") from failure

    def _stateful_before(self, sink: str) -> list[Operator]:
        parts = [one.part for one in upstream(self._graph, sink)]
        return [part for part in parts if isinstance(part, Operator) and keeps_state(part)]

    def _needs_steps(self, sink: str) -> bool:
        """Whether a query must have worked off one file before the next comes, to do just as Headwater does."""
        stateful = self._stateful_before(sink)
        return len(stateful) > 1 or any(is_behind(operator) for operator in stateful)

    def _start_feeding(self) -> None:
        feeders = list(self._feeders.values())
        if self._settings.exact_lateness:  # in turn, so that the order of files is the same every time
            stepping = any(self._needs_steps(name) for name in self._drains)
            self._start_thread("feed", feeders, stepping=stepping)
            return
        for feeder in feeders:
            self._start_thread(f"feed-{feeder.name}", [feeder], stepping=False)

    def _start_thread(self, name: str, feeders: list[Feeder], *, stepping: bool) -> None:
        thread = threading.Thread(target=self._feed, args=(feeders, stepping), name=name, daemon=True)
        self._closing.callback(thread.join, DRAIN_S)
        self._closing.callback(self._halt.set)
        thread.start()

    def _feed(self, feeders: list[Feeder], stepping: bool) -> None:
        """Feed until all sources have ended; stepping waits after each file until the queries have digested it."""
        try:
            while not self._halt.is_set() and (running := [one for one in feeders if not one.has_ended]):
                rests = [self._turn(feeder, stepping) for feeder in running]
                if min(rests) > 0:
                    self._halt.wait(min(rests))
        except Exception as failure:  # a source may raise anything; the main thread raises it again
            self._failures.append(failure)

    def _turn(self, feeder: Feeder, stepping: bool) -> float:
        before = feeder.staged
        rest_s = feeder.turn()
        if stepping and feeder.staged > before:
            self._settle(self._halt.is_set)
        return rest_s

    def _watch(self, on_progress: Callable[[StructuredStatus], None]) -> Ending:
        show_at = 0.0
        while True:
            self._raise_trouble()
            self._note_progress()
            if self._has_finished():
                return Ending.FINISHED
            ending = self._wish.ending()
            if ending is not None:
                return ending
            if time.monotonic() >= show_at:
                show_at = time.monotonic() + SHOW_S
                on_progress(self._status(None))
            self._wish.stop.wait(LOOK_S)

    def _note_progress(self) -> None:
        """Note which files the queries have read, and tell of the end of inputs that are through."""
        read = {name: _files_read(query) for name, query in self._queries.items()}
        for source, sinks in self._readers.items():
            feeder = self._feeders[source]
            feeder.consumed = min((_read_of(read[sink], feeder.directory) for sink in sinks), default=feeder.staged)
        for name, ending in self._endings.items():
            through = all(self._feeders[source].is_consumed for source in sources_of(self._graph, name))
            if through and name not in self._told:
                ending.tell()
                self._told.add(name)

    def _has_finished(self) -> bool:
        return len(self._told) == len(self._endings) and all(feeder.is_consumed for feeder in self._feeders.values())

    def _settle(self, is_enough: Callable[[], bool]) -> None:
        """Wait until the queries have worked off all there is, windows that became final among it."""
        threads = [
            threading.Thread(target=self._work_off, args=(query,), daemon=True)
            for name, query in self._queries.items()
            if not self._goes_by_clock(name)
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            if self._wish.stop.is_set() or self._has_trouble() or is_enough():
                return
            threads[0].join(LOOK_S)
            threads = [thread for thread in threads if thread.is_alive()]

    def _work_off(self, query: StreamingQuery) -> None:
        try:
            query.processAllAvailable()
        except (PySparkException, Py4JError) as failure:
            log.debug("a query ended while it was waited for: %s", failure)

    def _goes_by_clock(self, sink: str) -> bool:
        """Whether timers of the clock keep a query busy for ever."""
        parts = [one.part for one in upstream(self._graph, sink)]
        return any(isinstance(part, Process) and part.time_mode == "processingtime" for part in parts)

    def _has_trouble(self) -> bool:
        return bool(self._failures) or any(drain.error for drain in self._drains.values()) or self._broken() is not None

    def _broken(self) -> Exception | None:
        told = self._trouble.first()
        if told is not None:
            return told
        for name, query in self._queries.items():
            if not query.isActive and (failure := query.exception()) is not None:
                return EngineError(f"the query of sink {name!r} failed: {_cause(failure)}")
        return None

    def _raise_trouble(self) -> None:
        """Raise what went wrong first, as it was where it went wrong."""
        raised = [drain.error for drain in self._drains.values() if drain.error is not None]
        for failure in [*self._failures, *raised, self._broken()]:
            if failure is not None:
                raise failure

    def _stop_queries(self) -> None:
        for query in self._queries.values():
            try:
                query.stop()
            except (PySparkException, Py4JError, OSError) as failure:
                log.warning("a query did not stop in order: %s", failure)

    def _status(self, ending: Ending | None) -> StructuredStatus:
        return StructuredStatus(
            flow=self._graph.name,
            seconds=time.monotonic() - self._began,
            rows_in={name: feeder.rows for name, feeder in self._feeders.items()},
            rows_out={name: drain.rows for name, drain in self._drains.items()},
            micro_batches={name: drain.batches for name, drain in self._drains.items()},
            ending=ending,
        )


def _cause(failure: Exception) -> str:
    """Return what Python raised, if it was Python, else the first line of what Spark says."""
    raised = _RAISED.findall(str(failure))
    return str(raised[-1]) if raised else first_line(failure)


def _files_read(query: StreamingQuery) -> list[tuple[str, int]]:
    """Return how many files a query has read of each directory, as it told last."""
    progress = query.lastProgress
    if progress is None:
        return []
    return [(source.description, _number(source.endOffset)) for source in progress.sources]


def _number(offset: str) -> int:
    told = orjson.loads(offset)
    return 0 if told is None else int(told["logOffset"]) + 1


def _read_of(read: Sequence[tuple[str, int]], directory: Path) -> int:
    return min((files for description, files in read if description.endswith(f"{directory}]")), default=0)
