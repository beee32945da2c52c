"""What happens when rows come faster than they go: pause, then spill, then shed.

There is no back-pressure to sensors at the edge. Up to the memory budget rows flow freely. Past it, sources that can
wait are paused; the others go on and their rows wait on disk, where the store keeps them and from where the kernel
takes back the memory (store and forward). When the disk budget is gone too, the oldest rows are shed and counted. An
app's own sources that can wait also pause when their app alone has much waiting, so that one fast file does not fill
the node, and so that its rows do not grow old in a queue.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from headwater.engine.queues import Queues
from headwater.model.errors import ConfigError
from headwater.model.ids import AppId, InstanceId


class Level(StrEnum):
    """How hard a node is pressed."""

    FLOWING = "flowing"
    PAUSING = "pausing"
    SPILLING = "spilling"
    SHEDDING = "shedding"


@dataclass(frozen=True, slots=True, kw_only=True)
class PressureConfig:
    """The budgets of a node."""

    memory_bytes: int = 256 << 20  # rows waiting on a gateway with 1 GB
    disk_bytes: int = 2 << 30
    app_rows: int = 20_000  # waiting rows of one app at which its sources that can wait are paused
    resume_share: float = 0.5  # of a limit, at which what was paused goes on

    def __post_init__(self) -> None:
        """Refuse budgets that contradict one another."""
        if not 0 < self.memory_bytes <= self.disk_bytes:
            raise ConfigError(
                f"the memory budget ({self.memory_bytes} B) must be above 0 "
                f"and within the disk budget ({self.disk_bytes} B)"
            )
        if self.app_rows < 1 or not 0 < self.resume_share <= 1:
            raise ConfigError("app_rows must be at least 1 and resume_share above 0 and at most 1")


class Pressure:
    """Knows how much waits, and says what sources may do."""

    def __init__(self, config: PressureConfig) -> None:
        """Begin at ease."""
        self.config = config
        self.bytes_held = 0
        self._memory_full = False
        self._apps_full: set[int] = set()
        self._spilling = False
        self._shedding = False

    def measure(self, bytes_held: int, rows_of_app: dict[int, int]) -> None:
        """Take note of what waits now."""
        config = self.config
        self.bytes_held = bytes_held
        self._shedding &= bytes_held >= config.disk_bytes * config.resume_share
        mark = config.memory_bytes * (config.resume_share if self._memory_full else 1.0)
        self._memory_full = bytes_held >= mark
        for app, rows in rows_of_app.items():
            full = rows >= config.app_rows * (config.resume_share if app in self._apps_full else 1.0)
            (self._apps_full.add if full else self._apps_full.discard)(app)
        self._apps_full &= rows_of_app.keys()

    def may_read(self, app: int, can_wait: bool) -> bool:
        """Whether a source of this app may bring rows now."""
        if can_wait:
            return not self._memory_full and app not in self._apps_full
        self._spilling = self._memory_full
        return True

    def to_shed(self, bytes_coming: int) -> int:
        """Return how many bytes of the oldest rows must go before so many new ones can be stored."""
        return max(0, self.bytes_held + bytes_coming - self.config.disk_bytes)

    def correct(self, bytes_held: int) -> None:
        """Take note of what really waits, by one who has looked."""
        self.bytes_held = bytes_held

    def shed(self, freed: int) -> bool:
        """Take note that so many bytes were shed, and return whether that is new."""
        begins = freed > 0 and not self._shedding
        self.bytes_held -= freed
        self._shedding = self._shedding or begins
        return begins

    @property
    def level(self) -> Level:
        """The level, for people."""
        if self._shedding or self.bytes_held >= self.config.disk_bytes:
            return Level.SHEDDING
        if self._memory_full:
            return Level.SPILLING if self._spilling else Level.PAUSING
        return Level.PAUSING if self._apps_full else Level.FLOWING

    def check(self) -> None:
        """Raise if the level and what it allows disagree."""
        assert not (self._memory_full and self.may_read(0, can_wait=True))
        assert self.to_shed(0) == 0 or self.level is Level.SHEDDING


def room_left(queues: Queues, app: AppId, here: Iterable[int], bytes_max: int) -> int:
    """Return how many bytes of rows may still be taken from other nodes for an app of which `here` runs.

    Rows on their way elsewhere are not counted: were they, two nodes could wait for each other for ever.
    """
    found = (queues.find(InstanceId(app, number)) for number in here)
    return max(0, bytes_max - sum(queue.bytes_held for queue in found if queue is not None))
