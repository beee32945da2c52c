"""What happens when rows arrive faster than they are processed: pause, then spill, then shed.

There is no backpressure to sensors at the edge. Up to the memory budget rows flow freely. Beyond it, sources that can
wait are paused; rows of the others wait on disk, in the store, whose memory the kernel can reclaim (store and forward).
Beyond the disk budget the oldest rows are shed and counted. An app's own sources that can wait are also paused when the
app alone has many rows waiting, so that one fast file does not fill the node, and rows do not grow old in a queue.
"""

from dataclasses import dataclass
from enum import StrEnum

from headwater.model.errors import ConfigError


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
    resume_share: float = 0.5  # of a limit, at which paused sources go on

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
    """Measures what waits, and decides what sources may do."""

    def __init__(self, config: PressureConfig) -> None:
        self.config = config
        self.bytes_held = 0
        self._memory_full = False
        self._apps_full: set[int] = set()
        self._spilling = False
        self._shedding = False

    def measure(self, bytes_held: int, rows_of_app: dict[int, int]) -> None:
        """Update what waits."""
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
        """Whether a source of this app may bring rows."""
        if can_wait:
            return not self._memory_full and app not in self._apps_full
        self._spilling = self._memory_full
        return True

    def to_shed(self, bytes_coming: int) -> int:
        """Return how many bytes of the oldest rows must go before so many new ones can be stored."""
        return max(0, self.bytes_held + bytes_coming - self.config.disk_bytes)

    def correct(self, bytes_held: int) -> None:
        """Set the bytes that wait, as counted in the store."""
        self.bytes_held = bytes_held

    def shed(self, freed: int) -> bool:
        """Subtract shed bytes; return whether shedding has just begun."""
        begins = freed > 0 and not self._shedding
        self.bytes_held -= freed
        self._shedding = self._shedding or begins
        return begins

    @property
    def level(self) -> Level:
        """The level, for status and metrics."""
        if self._shedding or self.bytes_held >= self.config.disk_bytes:
            return Level.SHEDDING
        if self._memory_full:
            return Level.SPILLING if self._spilling else Level.PAUSING
        return Level.PAUSING if self._apps_full else Level.FLOWING

    def check(self) -> None:
        """Raise if the level and what it allows disagree."""
        assert not (self._memory_full and self.may_read(0, can_wait=True))
        assert self.to_shed(0) == 0 or self.level is Level.SHEDDING
