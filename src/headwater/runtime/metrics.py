"""Prometheus metrics of a node, read from its status at each scrape.

Nothing is counted here: the node's own sums are told under `headwater_*`. Sums end in `_total`, times are in seconds.
The endpoint listens on 127.0.0.1 unless another address is given, since it tells the names of flows and operators to
whoever asks. A node of a cluster tells what it has of each app, under the app's full id.
"""

from collections.abc import Callable, Iterable, Iterator
from threading import Thread
from typing import Any, Final
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headwater.engine.ledger import Ledger
from headwater.engine.pressure import Level
from headwater.engine.status import AppStatus, Latency, NodeStatus, OperatorStatus
from headwater.model.errors import ConfigError
from headwater.runtime.node import Node
from headwater.spark.address import address_of
from headwater.workers.sockets import why_not_bound

HOST: Final = "127.0.0.1"
LEVELS: Final = tuple(Level)  # the level as a number is its place here, from flowing (0) to shedding (3)

_OPERATOR_LABELS: Final = ("app", "operator", "kind")
_OPERATOR_COUNTERS: Final[tuple[tuple[str, str, Callable[[OperatorStatus], float]], ...]] = (
    ("operator_rows_in", "Rows an operator has taken.", lambda one: one.rows_in),
    ("operator_rows_out", "Rows an operator has passed on.", lambda one: one.rows_out),
    ("operator_turns", "Turns an operator has had.", lambda one: one.turns),
    (
        "operator_empty_seconds",
        "Time with an empty queue, over instances; utilisation is 1 - rate(this) / instances.",
        lambda one: one.empty_us / 1e6,
    ),
    ("operator_queue_seconds", "T_Q: waiting in the queue, over rows.", lambda one: one.queue_us / 1e6),
    ("operator_schedule_seconds", "T_S: being scheduled, over rows.", lambda one: one.schedule_us / 1e6),
    ("operator_compute_seconds", "T_C: being computed, over rows.", lambda one: one.compute_us / 1e6),
    ("operator_busy_seconds", "Time on a worker.", lambda one: one.busy_us / 1e6),
)
_NODE_GAUGES: Final[tuple[tuple[str, str, Callable[[NodeStatus], float]], ...]] = (
    ("workers", "Workers of the pool.", lambda node: node.workers),
    ("workers_idle", "Workers that wait for a turn.", lambda node: node.idle),
    ("workers_spare", "Workers hired because all others were held up.", lambda node: node.spares),
    (
        "pressure_level",
        "0 flowing, 1 pausing, 2 spilling, 3 shedding.",
        lambda node: LEVELS.index(Level(node.pressure)),
    ),
    ("waiting_bytes", "Bytes of waiting rows.", lambda node: node.bytes_held),
    ("memory_budget_bytes", "Bytes of waiting rows at which sources pause.", lambda node: node.memory_bytes),
    ("disk_budget_bytes", "Bytes of waiting rows at which the oldest are shed.", lambda node: node.disk_bytes),
    ("epoch", "The epoch of the pool.", lambda node: node.epoch),
    ("notes", "Things the node wants somebody to know.", lambda node: len(node.notes)),
)


class NodeCollector(Collector):
    """Exports a node's status as metrics."""

    def __init__(self, status: Callable[[], NodeStatus]) -> None:
        self._status = status

    def describe(self) -> Iterable[Metric]:
        """Return nothing: which metrics there are depends on the apps."""
        return []

    def collect(self) -> Iterator[Metric]:
        status = self._status()
        yield from _node_metrics(status)
        yield from _app_metrics(status.apps)
        yield from _operator_metrics(status.apps)
        yield from _latency_metrics(status.apps)
        yield from _ledger_metrics(status.apps)


class MetricsServer:
    """The endpoint of a node's metrics, until it is closed."""

    def __init__(self, server: WSGIServer, thread: Thread, host: str) -> None:
        """Hold a server that runs."""
        self._server, self._thread, self._host = server, thread, host

    @property
    def url(self) -> str:
        """Where to scrape."""
        return f"http://{address_of(self._host, self._server.server_port)}/metrics"

    def close(self) -> None:
        """Stop serving; when this returns, no scrape reads the node any more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def serve_metrics(node: Node, port: int, host: str = HOST) -> MetricsServer:
    """Serve a node's metrics on a port, of this machine alone unless `host` says otherwise; port 0 takes a free one."""
    registry = CollectorRegistry()
    registry.register(NodeCollector(lambda: node.status(ledgers=True)))
    try:
        server, thread = start_http_server(port, host, registry)
    except OverflowError as failure:
        raise ConfigError(
            f"metrics cannot be served on {address_of(host, port)}: {failure}; choose another port"
        ) from failure
    except OSError as failure:
        why = why_not_bound(failure, port)
        raise ConfigError(f"metrics cannot be served on {address_of(host, port)}: {why}") from failure
    return MetricsServer(server, thread, host)


def _node_metrics(node: NodeStatus) -> Iterator[Metric]:
    for name, meaning, read in _NODE_GAUGES:
        yield GaugeMetricFamily(f"headwater_{name}", meaning, value=read(node))
    yield CounterMetricFamily("headwater_turns", "Turns given to workers.", value=node.turns)
    yield CounterMetricFamily("headwater_workers_lost", "Workers that died.", value=node.workers_lost)
    told = GaugeMetricFamily(
        "headwater_node_info", "How the node is set up and how it is.", labels=("policy", "pressure")
    )
    told.add_metric([node.policy, node.pressure], 1)
    yield told


def _app_metrics(apps: Iterable[AppStatus]) -> Iterator[Metric]:
    rows_in = CounterMetricFamily("headwater_rows_in", "Rows that entered an app.", labels=("app",))
    rows_out = CounterMetricFamily("headwater_rows_out", "Rows that left an app.", labels=("app",))
    info = GaugeMetricFamily("headwater_app_info", "The state of an app.", labels=("app", "state"))
    for app in apps:
        rows_in.add_metric([app.name], app.rows_in)
        rows_out.add_metric([app.name], app.rows_out)
        info.add_metric([app.name, app.state.value], 1)
    yield from (rows_in, rows_out, info)


def _operator_metrics(apps: tuple[AppStatus, ...]) -> Iterator[Metric]:
    parts = [([app.name, one.name, one.kind], one) for app in apps for one in app.operators]
    for name, meaning, read in _OPERATOR_COUNTERS:
        counter = CounterMetricFamily(f"headwater_{name}", meaning, labels=_OPERATOR_LABELS)
        for labels, one in parts:
            counter.add_metric(labels, read(one))
        yield counter
    waiting = GaugeMetricFamily("headwater_operator_waiting_rows", "Rows in the queue.", labels=_OPERATOR_LABELS)
    instances = GaugeMetricFamily("headwater_operator_instances", "Instances.", labels=_OPERATOR_LABELS)
    for labels, one in parts:
        waiting.add_metric(labels, one.waiting)
        instances.add_metric(labels, one.instances)
    yield from (waiting, instances)


def _latency_metrics(apps: Iterable[AppStatus]) -> Iterator[Metric]:
    labels = ("app", "window", "quantile")
    gauge = GaugeMetricFamily("headwater_latency_seconds", "End-to-end latency of the sample.", labels=labels)
    sample = CounterMetricFamily("headwater_latency_sample_rows", "Rows in the sample.", labels=("app",))
    for app in apps:
        for window, latency in (("recent", app.recent), ("all", app.latency)):
            for quantile, value_ms in _quantiles(latency):
                gauge.add_metric([app.name, window, quantile], value_ms / 1_000)
        sample.add_metric([app.name], app.latency.rows)
    yield from (gauge, sample)


def _quantiles(latency: Latency) -> list[tuple[str, float]]:
    known = (("0.5", latency.p50), ("0.95", latency.p95), ("0.99", latency.p99))
    return [(quantile, value) for quantile, value in known if value is not None]


def _ledger_metrics(apps: Iterable[AppStatus]) -> Iterator[Metric]:
    rows = GaugeMetricFamily("headwater_ledger_rows", "Terms of an app's ledger.", labels=("app", "term"))
    balanced = GaugeMetricFamily("headwater_ledger_balanced", "Whether every row is accounted for.", labels=("app",))
    for app in apps:
        if app.ledger is not None:
            balanced.add_metric([app.name], app.ledger.balanced)
            for term, value in _terms(app.ledger).items():
                rows.add_metric([app.name, term], value)
    yield from (rows, balanced)


def _terms(ledger: Ledger) -> dict[str, Any]:
    return {
        "rows_in": ledger.rows_in,
        "rows_out": ledger.rows_out,
        "waiting": ledger.waiting,
        "made": ledger.made,
        "copied": ledger.copied,
        "merged": ledger.merged,
        "duplicates_refused": ledger.duplicates_refused,
        "arrived": ledger.arrived,
        "departed": ledger.departed,
        **{f"dropped_{reason}": count for reason, count in ledger.dropped.items()},
    }
