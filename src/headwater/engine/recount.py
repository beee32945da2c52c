"""What the store says of queues whose turn was lost with its worker: it may have committed, or not.

Counts are absolute, so telling the scheduler once too often does no harm.
"""

from collections.abc import Iterable

from headwater.engine.events import Event, RowsGone, RowsPut, WakeWanted
from headwater.engine.queue_records import read_queue
from headwater.engine.queues import Queue
from headwater.engine.times import read_times
from headwater.model.ids import AppId, InstanceId
from headwater.model.store_contract import Snapshot


def queues_in_doubt(queues: Iterable[Queue], lost: Iterable[InstanceId]) -> list[Queue]:
    """Return the queues that a lost turn may have changed: those of its apps, since its outputs lie in others."""
    apps: set[AppId] = {instance.app for instance in lost}
    return [queue for queue in queues if queue.instance.app in apps]


def recounted(snapshot: Snapshot, queues: Iterable[Queue]) -> list[Event]:
    """Return what the scheduler is to know of these queues."""
    events: list[Event] = []
    for queue in queues:
        instance, record = queue.instance, read_queue(snapshot, queue.instance)
        events += [
            RowsPut(instance, record.put_rows, record.put_bytes, record.put_marks),
            RowsGone(instance, record.taken_rows + record.shed_rows, record.gone_bytes, record.taken_marks),
            WakeWanted(instance, read_times(snapshot, instance, 0).wake_us),
        ]
    return events
