"""A node's status: plain figures from the sums of the scheduler and the pumps."""

from typing import TYPE_CHECKING

from headwater.dataflow.connectors import told_by
from headwater.engine.queues import Queue
from headwater.engine.status import AppStatus, Latency, NodeStatus, OperatorStatus
from headwater.model.histogram import Histogram
from headwater.model.ids import InstanceId
from headwater.runtime.sinks import SinkTask
from headwater.runtime.sources import SourceTask
from headwater.workers.clock import now_us

if TYPE_CHECKING:
    from headwater.runtime.app import NodeApp
    from headwater.runtime.node import Node


def node_status(node: "Node", *, ledgers: bool) -> NodeStatus:
    """Return the status of a node."""
    dispatcher, config = node.dispatcher, node.config
    figures: dict[str, int] = dispatcher.ask(dispatcher.scheduler.status)
    apps = tuple(app_status(node, app, ledger=ledgers) for app in list(node.apps.values()))
    return NodeStatus(
        at_us=now_us(),
        apps=apps,
        workers=figures["workers"],
        spares=figures["spares"],
        idle=figures["idle"],
        turns=figures["turns"],
        pressure=node.pressure.level,
        bytes_held=node.pressure.bytes_held,
        memory_bytes=config.pressure.memory_bytes,
        disk_bytes=config.pressure.disk_bytes,
        policy=config.policy,
        epoch=dispatcher.epoch,
        workers_lost=dispatcher.workers_lost,
        notes=node.news,
    )


def app_status(node: "Node", app: "NodeApp", *, ledger: bool) -> AppStatus:
    """Return the status of one app."""
    now = now_us()
    parts = [_source(task) for task in app.sources]
    for chain in app.graph.chains:
        queues = [node.dispatcher.scheduler.queues.find(InstanceId(app.id, number)) for number in chain.instances]
        parts.append(_chain(chain.name, chain.stage, [queue for queue in queues if queue is not None], now))
    stages = {sink.instance: sink.stage for sink in app.graph.sinks}
    for task in app.sinks:
        queue = node.dispatcher.scheduler.queues.find(task.instance)
        parts.append(_sink(task, stages[task.instance.number], queue, now))
    return AppStatus(
        name=app.kept_as or app.name,
        state=app.state,
        error="" if app.error is None else str(app.error),
        started_us=app.started_us,
        ended_us=app.ended_us,
        rows_in=sum(task.rows for task in app.sources),
        rows_out=sum(task.rows for task in app.sinks),
        latency=latency_of([task.latency for task in app.sinks]),
        recent=latency_of([task.recent for task in app.sinks]),
        operators=tuple(parts),
        ledger=node.ledger(app) if ledger else None,
    )


def latency_of(histograms: list[Histogram]) -> Latency:
    """Return the percentiles of several histograms together."""
    together = Histogram()
    for histogram in histograms:
        together.merge(histogram)
    p50, p95, p99 = (_milliseconds(together.percentile(share)) for share in (0.5, 0.95, 0.99))
    return Latency(p50, p95, p99, rows=together.total)


def _milliseconds(duration_us: float | None) -> float | None:
    return None if duration_us is None else duration_us / 1_000


def _source(task: SourceTask) -> OperatorStatus:
    note = "ended" if task.ended else "paused" if task.paused else ""
    told = told_by(task.reader)
    return OperatorStatus(task.name, "source", 0, 1, task.rows, task.rows, 0, 0, 0, 0, 0, 0, 0, note, told)


def _chain(name: str, stage: int, queues: list[Queue], now: int) -> OperatorStatus:
    totals = [queue.totals for queue in queues]
    return OperatorStatus(
        name=name,
        kind="chain",
        stage=stage,
        instances=len(queues),
        rows_in=sum(one.rows_in for one in totals),
        rows_out=sum(one.rows_out for one in totals),
        waiting=sum(queue.waiting for queue in queues),
        empty_us=sum(queue.empty_total_us(now) for queue in queues),
        queue_us=sum(one.queue_us for one in totals),
        schedule_us=sum(one.schedule_us for one in totals),
        compute_us=sum(one.compute_us for one in totals),
        busy_us=sum(one.busy_us for one in totals),
        turns=sum(one.turns for one in totals),
    )


def _sink(task: SinkTask, stage: int, queue: Queue | None, now: int) -> OperatorStatus:
    waiting = 0 if queue is None else queue.waiting
    empty = 0 if queue is None else queue.empty_total_us(now)
    note = "failed" if task.failed else ""
    told = told_by(task.writer)
    return OperatorStatus(task.name, "sink", stage, 1, task.rows, task.rows, waiting, empty, 0, 0, 0, 0, 0, note, told)
