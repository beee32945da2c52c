"""The events and effects of the scheduler: past tense in, imperative out, all frozen."""

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.engine.queues import Queue
from headwater.engine.reports import RowTrouble, TurnReport
from headwater.engine.turn import Assignment
from headwater.model.ids import AppId, InstanceId, WorkerId


@dataclass(frozen=True, slots=True)
class AppAdded:
    """An app has begun, with these queues."""

    app: AppId
    queues: tuple[Queue, ...]


@dataclass(frozen=True, slots=True)
class AppRemoved:
    """An app was removed."""

    app: AppId


@dataclass(frozen=True, slots=True)
class AppHalted:
    """An app must run no further; its rows stay in their queues."""

    app: AppId


@dataclass(frozen=True, slots=True)
class AppQuieted:
    """An app's timers are stopped, so that it comes to rest once its rows have drained; or started again."""

    app: AppId
    is_quiet: bool


@dataclass(frozen=True, slots=True)
class InstanceGained:
    """An instance runs here from now on."""

    instance: InstanceId


@dataclass(frozen=True, slots=True)
class InstanceGivenUp:
    """An instance is to run elsewhere: workers begin no turn of it, or only until what waits now is taken."""

    instance: InstanceId
    when_taken: bool = False


@dataclass(frozen=True, slots=True)
class RowsPut:
    """A queue has got rows from outside a turn."""

    instance: InstanceId
    put_rows: int
    put_bytes: int
    put_marks: int = 0


@dataclass(frozen=True, slots=True)
class RowsGone:
    """A queue has lost rows outside a turn: a sink took them, or they were shed."""

    instance: InstanceId
    taken_rows: int
    gone_bytes: int
    taken_marks: int = 0


@dataclass(frozen=True, slots=True)
class WakeWanted:
    """An instance wants a turn at this instant, even without new rows."""

    instance: InstanceId
    wake_us: int | None


@dataclass(frozen=True, slots=True)
class WorkerJoined:
    """A worker has connected and waits for a turn."""

    worker: WorkerId
    spare: bool = False
    on_driver: bool = False  # it serves beside the Spark session, for operators that need one


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """A worker's connection broke."""

    worker: WorkerId
    with_pool: bool = False  # all of them are lost, which is not the fault of the rows it had


@dataclass(frozen=True, slots=True)
class WorkerDismissed:
    """A worker is to leave after its turn: its epoch is over."""

    worker: WorkerId


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """A worker has finished a turn and asks for the next."""

    worker: WorkerId
    reports: Sequence[TurnReport]


@dataclass(frozen=True, slots=True)
class SchedulerTicked:
    """Time has passed."""


Event = (
    AppAdded
    | AppRemoved
    | AppHalted
    | AppQuieted
    | InstanceGained
    | InstanceGivenUp
    | RowsPut
    | RowsGone
    | WakeWanted
    | WorkerJoined
    | WorkerLost
    | WorkerDismissed
    | TurnEnded
    | SchedulerTicked
)


@dataclass(frozen=True, slots=True)
class RunTurn:
    """Give this turn to this worker."""

    worker: WorkerId
    assignments: tuple[Assignment, ...]


@dataclass(frozen=True, slots=True)
class Dismiss:
    """Dismiss this worker."""

    worker: WorkerId


@dataclass(frozen=True, slots=True)
class Recount:
    """Read these queues' records from the store: a worker was lost, which may or may not have committed."""

    instances: tuple[InstanceId, ...]


@dataclass(frozen=True, slots=True)
class HireSpare:
    """Start one more worker: all others are held up."""


@dataclass(frozen=True, slots=True)
class ReportTrouble:
    """A user's function raised and its flow must stop."""

    app: AppId
    trouble: RowTrouble


@dataclass(frozen=True, slots=True)
class ReportStoreFull:
    """A turn could not commit for want of room; it will be retried."""

    app: AppId
    message: str


@dataclass(frozen=True, slots=True)
class RowsPassed:
    """Queues without a worker have rows: those of sinks, and outboxes."""

    instances: tuple[InstanceId, ...]


@dataclass(frozen=True, slots=True)
class LetGo:
    """No worker runs this instance, which was given up, any more."""

    instance: InstanceId


Effect = RunTurn | Dismiss | Recount | HireSpare | ReportTrouble | ReportStoreFull | RowsPassed | LetGo
