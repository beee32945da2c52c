"""Headwater's side of the comparison: latency of flows, saturated throughput, and what a lost worker costs.

Every function takes a running node, so that several measurements can share one start of Spark.
"""

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from bench.arrivals import Arrivals, Summary, join, middle, percentiles, summarize
from bench.feeds import CountingSink, EndlessSource, MeasuringSink, PacedSource, Shape
from bench.watching import Figures, Window, look, rest_ms
from bench.workload import KEPT, add_fahrenheit, add_muggy, in_range, parse, sliding_average
from headwater.dataflow.stream import Flow, Sink, Stream, flow, source
from headwater.engine.status import AppState
from headwater.model.errors import EngineError
from headwater.runtime.app import NodeApp
from headwater.runtime.node import Node
from headwater.workers.clock import now_us

DRAIN_S: Final = 20.0  # for the last rows of a window to arrive
RECOVERY_S: Final = 30.0
POLL_S: Final = 0.001


@dataclass(frozen=True, slots=True)
class Spans:
    """How long a latency is measured: a warm-up, then windows whose median is told."""

    warmup_s: float = 3.0
    measure_s: float = 8.0
    windows: int = 1


@dataclass(frozen=True, slots=True)
class Measured:
    """The latency of one configuration."""

    summary: Summary  # the median of the windows
    windows: tuple[Summary, ...]
    percentiles: dict[str, float]
    costs: Figures
    breakdown: Figures
    by_chain: dict[str, Figures]  # of the first app
    rest_ms: float  # of the mean latency, outside queues and functions


def chained(stream: Stream, parallelism: int = 1) -> Stream:
    """Append the five operators of the stateless chain."""
    return (
        stream.map(parse, name="parse", parallelism=parallelism)
        .filter(in_range, name="in-range", parallelism=parallelism)
        .map(add_fahrenheit, name="fahrenheit", parallelism=parallelism)
        .map(add_muggy, name="muggy", parallelism=parallelism)
        .select(*KEPT, name="project")
    )


def chain_flow(name: str, rate: float, sink: MeasuringSink, rows: int | None = None) -> Flow:
    """Return the chain fed at a pace."""
    return flow(name, chained(source(PacedSource(rate, Shape.LINES, rows))).sink(sink))


def average_flow(name: str, rate: float, sink: MeasuringSink, rows: int | None = None) -> Flow:
    """Return the keyed sliding average fed at a pace."""
    averaged = source(PacedSource(rate, Shape.READINGS, rows)).key_by("sensor").stateful(sliding_average)
    return flow(name, averaged.sink(sink))


MakeFlow = Callable[[str, float, MeasuringSink], Flow]


class Fleet:
    """Copies of one flow on a node; more can be added while the others run."""

    def __init__(self, node: Node, make: MakeFlow, rate: float) -> None:
        """Begin without copies."""
        self._node, self._make, self._rate = node, make, rate
        self._apps: list[NodeApp] = []
        self.sinks: list[MeasuringSink] = []

    def grow(self, count: int) -> None:
        """Have so many copies."""
        while len(self._apps) < count:
            sink = MeasuringSink()
            self._apps.append(self._node.deploy(self._make(f"copy-{len(self._apps)}", self._rate, sink)))
            self.sinks.append(sink)

    def remove(self) -> None:
        """Take all copies off the node."""
        for app in self._apps:
            self._node.remove(app.name)
        self._apps.clear()
        self.sinks.clear()

    def measure(self, spans: Spans) -> Measured:
        """Measure the latency of all rows that are due in the windows."""
        time.sleep(spans.warmup_s)
        before = look(self._node)
        edges = [now_us()]
        for _ in range(spans.windows):
            time.sleep(spans.measure_s)
            edges.append(now_us())
        window = Window(before, look(self._node))
        self._drain(edges[-1])
        arrivals = self.arrivals().between(edges[0], edges[-1])
        pairs = pairwise(edges)
        return _measured(arrivals, [summarize(arrivals.between(*pair)) for pair in pairs], window)

    def arrivals(self) -> Arrivals:
        """Return every row that any copy has delivered."""
        return join([sink.arrivals() for sink in self.sinks])

    def _drain(self, end_us: int) -> None:
        """Wait until every sink has seen a row that was due after the window: a flow keeps the order of its rows."""
        deadline = time.monotonic() + DRAIN_S
        while any(sink.latest_us < end_us for sink in self.sinks):
            self.check()
            if time.monotonic() > deadline:
                raise EngineError(
                    f"rows were still on their way {DRAIN_S:.0f} s after the window; the node is overloaded"
                )
            time.sleep(POLL_S)

    def check(self) -> None:
        """Raise if a copy has failed."""
        for app in self._apps:
            if app.state is AppState.FAILED:
                raise EngineError(f"flow {app.name!r} failed while it was measured: {app.error}")


def _measured(arrivals: Arrivals, windows: Sequence[Summary], window: Window) -> Measured:
    first = window.after.status.apps[0].name
    by_chain = window.breakdown_of(first)
    mean_ms = float(np.mean(arrivals.latency_ms))
    return Measured(
        summary=middle(windows),
        windows=tuple(windows),
        percentiles=percentiles(arrivals),
        costs=window.costs(),
        breakdown=window.breakdown_of_all(),
        by_chain=by_chain,
        rest_ms=rest_ms(mean_ms, by_chain),
    )


@dataclass(frozen=True, slots=True)
class Throughput:
    """How fast a saturated flow ran."""

    rows_per_s: float
    rows_per_turn: float  # of one queue: the batch size that the functions really saw
    costs: Figures
    breakdown: Figures


def throughput(node: Node, parallelism: int, warmup_s: float, measure_s: float) -> Throughput:
    """Run the chain on an endless source and count what it takes once it is warm."""
    sink = CountingSink()
    app = node.deploy(flow("saturated", _to_sink(parallelism, sink)))
    time.sleep(warmup_s)
    before = look(node)
    time.sleep(measure_s)
    window = Window(before, look(node))
    if app.state is AppState.FAILED:
        raise EngineError(f"the saturated flow failed: {app.error}")
    node.remove(app.name)
    heads = [part for part in window.chains() if part.name.startswith("parse")]
    rows = sum(part.rows_in for part in heads)
    return Throughput(
        rows_per_s=round(rows / window.seconds, 1),
        rows_per_turn=round(rows / max(1, sum(part.turns for part in heads)), 1),
        costs=window.costs(),
        breakdown=window.breakdown_of_all(),
    )


def _to_sink(parallelism: int, sink: CountingSink) -> Sink:
    return chained(source(EndlessSource()), parallelism).sink(sink)


def most_turns(node: Node, measure_s: float) -> Figures:
    """Return what turns cost when rows always wait, nothing is computed, and the node lets a turn take one row."""
    for number in range(node.config.workers):
        node.deploy(flow(f"turns-{number}", source(EndlessSource()).select("line").sink(CountingSink())))
    time.sleep(measure_s / 4)
    before = look(node)
    time.sleep(measure_s)
    return Window(before, look(node)).costs()


def recovery(node: Node, fleet: Fleet, settle_s: float) -> Figures:
    """Kill a worker and return how long the scheduler was short of one, and the longest silence at the sinks."""
    wanted = set(node.dispatcher.worker_pids())
    victim = min(wanted)
    killed_us, began = now_us(), time.monotonic()
    os.kill(victim, signal.SIGKILL)
    while victim in (pids := set(node.dispatcher.worker_pids())) or len(pids) < len(wanted):
        if time.monotonic() - began > RECOVERY_S:
            raise EngineError(f"a killed worker was not replaced within {RECOVERY_S:.0f} s")
        time.sleep(POLL_S)
    replaced_ms = (time.monotonic() - began) * 1_000
    time.sleep(settle_s)
    fleet.check()
    around = fleet.arrivals().between(killed_us - 100_000, killed_us + int(settle_s * 1e6))
    return {
        "worker_replaced_ms": round(replaced_ms, 1),
        "longest_gap_ms": round(around.longest_gap_ms(), 1),
        "slowest_row_ms": round(float(around.latency_ms.max(initial=0.0)), 1),
    }
