"""The queues of an app in a store, loaded into a scheduler."""

from collections.abc import Container

from headwater.dataflow.graph import Graph
from headwater.engine.queue_records import read_queue
from headwater.engine.queues import Queue
from headwater.engine.times import read_times
from headwater.model.ids import AppId, InstanceId
from headwater.model.store_contract import Snapshot
from headwater.operators.watermarks import WithWatermark


def queues_of(
    snapshot: Snapshot,
    graph: Graph,
    app: AppId,
    now_us: int,
    *,
    on_driver: Container[int] = (),
    here: Container[int] | None = None,
) -> tuple[Queue, ...]:
    """Return all queues of a graph; workers run those of chains, and of these only the ones that are here, if given."""
    stages = {number: (chain.stage, True) for chain in graph.chains for number in chain.instances}
    stages |= {sink.instance: (sink.stage, False) for sink in graph.sinks}
    below = _below(graph, app)
    queues = []
    for number, (stage, runs) in sorted(stages.items()):
        instance = InstanceId(app, number)
        record = read_queue(snapshot, instance)
        queues.append(
            Queue(
                instance,
                stage,
                below.get(number, ()),
                runs and (here is None or number in here),
                put_rows=record.put_rows,
                taken_rows=record.taken_rows + record.shed_rows,
                put_bytes=record.put_bytes,
                gone_bytes=record.gone_bytes,
                on_driver=number in on_driver,
                put_marks=record.put_marks,
                taken_marks=record.taken_marks,
                wake_us=wake_us_of(snapshot, graph, instance, now_us),
            )
        )
    return tuple(queues)


def _below(graph: Graph, app: AppId) -> dict[int, tuple[InstanceId, ...]]:
    """Return the downstream instances of each instance."""
    below: dict[int, tuple[InstanceId, ...]] = {}
    for chain in graph.chains:
        targets = [
            number
            for name in chain.operators
            for route in graph.routes_from(name)
            for number in graph.targets(route.target)
        ]
        for number in chain.instances:
            below[number] = tuple(InstanceId(app, target) for target in dict.fromkeys(targets))
    return below


def wake_us_of(snapshot: Snapshot, graph: Graph, instance: InstanceId, now_us: int) -> int | None:
    """Return when an instance wants a turn; one that watches the clock and has never run is given one at once."""
    wake_us = read_times(snapshot, instance, 0).wake_us
    if wake_us is not None:
        return wake_us
    parts = (
        graph.operator(name) for chain in graph.chains if instance.number in chain.instances for name in chain.operators
    )
    watches = any(isinstance(part, WithWatermark) and part.needs_clock for part in parts)
    return now_us if watches else None
