"""What happens when rows arrive faster than they are processed: pause, then spill, then shed.

There is no back-pressure to sensors at the edge. Up to the memory budget rows flow freely. Past it, sources that can
wait are paused; the others go on and their rows wait on disk, where the store keeps them and from where the kernel
takes back the memory (store and forward). When the disk budget is gone too, the oldest rows are shed and counted. An
app's own sources that can wait also pause when their app alone has much waiting, so that one fast file does not fill
the node, and so that its rows do not grow old in a queue.

What waits is more than the scheduler has counted: rows that a source has brought are first in its hands, then in the
store, and only then told of. A bound that left them out would be passed several times over before it is felt.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from headwater.engine.events import RowsPut
from headwater.engine.queues import Queues
from headwater.model.errors import ConfigError
from headwater.model.ids import AppId, InstanceId

MEMORY_BYTES: Final = 256 << 20  # rows waiting on a gateway with 1 GB
DISK_BYTES: Final = 2 << 30


class Level(StrEnum):
    """How hard a node is pressed."""

    FLOWING = "flowing"
    PAUSING = "pausing"
    SPILLING = "spilling"
    SHEDDING = "shedding"


@dataclass(frozen=True, slots=True, kw_only=True)
class PressureConfig:
    """The budgets of a node."""

    memory_bytes: int = MEMORY_BYTES
    disk_bytes: int = DISK_BYTES
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


class Underway:
    """What sources have brought and the scheduler has not counted: in their hands, or stored a moment ago."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._in_hand: dict[int, tuple[int, int, int]] = {}  # by source: app, rows, bytes
        self._stored: dict[InstanceId, RowsPut] = {}  # how much was put into a queue, as of our last commit

    def brought(self, source: int, app: int, rows: int, size: int) -> None:
        """A source has rows in its hands; it has no others until it lets go of these."""
        self._in_hand[source] = (app, rows, size)

    def let_go(self, source: int) -> None:
        """What the source had in its hands is stored, or is not wanted any more."""
        self._in_hand.pop(source, None)

    def stored(self, put: RowsPut) -> None:
        """A queue has got rows, and the scheduler is about to hear so."""
        self._stored[put.instance] = put

    def in_hand(self) -> int:
        """Return how many bytes are in the hands of sources."""
        return sum(size for _, _, size in self._in_hand.values())

    def uncounted(self, queues: Queues) -> int:
        """Return how many bytes are stored that these counts do not have; what they have is forgotten here."""
        for instance in list(self._stored):
            queue = queues.find(instance)
            if queue is None or queue.put_bytes >= self._stored[instance].put_bytes:
                del self._stored[instance]
        return sum(put.put_bytes - self._counted(queues, put)[1] for put in self._stored.values())

    def rows_of_app(self, queues: Queues) -> dict[int, int]:
        """Return how many rows of each app wait, all that are under way among them."""
        rows = Counter(queues.rows_of_app)
        for put in self._stored.values():
            rows[put.instance.app] += max(0, put.put_rows - self._counted(queues, put)[0])
        for app, count, _ in self._in_hand.values():
            rows[app] += count
        return rows

    def _counted(self, queues: Queues, put: RowsPut) -> tuple[int, int]:
        """Return how many rows and bytes of a queue are counted; of one that is gone meanwhile nothing is missing."""
        queue = queues.find(put.instance)
        return (put.put_rows, put.put_bytes) if queue is None else (queue.put_rows, min(queue.put_bytes, put.put_bytes))


class Pressure:
    """Measures what waits, and decides what sources may do."""

    def __init__(self, config: PressureConfig) -> None:
        self.config = config
        self.bytes_held = 0
        self._bytes_in_hand = 0  # brought by sources, and not stored yet
        self._rows_of_app: dict[int, int] = {}
        self._memory_full = False
        self._apps_full: set[int] = set()
        self._spilling = False
        self._shedding = False

    def measure(self, bytes_held: int, rows_of_app: dict[int, int], bytes_in_hand: int = 0) -> None:
        """Take note of what waits now: in the store, and in the hands of sources that are about to store it."""
        config = self.config
        self.bytes_held, self._bytes_in_hand = bytes_held, bytes_in_hand
        self._shedding &= bytes_held >= config.disk_bytes * config.resume_share
        self._fill_memory()
        self._rows_of_app = dict(rows_of_app)
        for app in rows_of_app:
            self._fill_app(app)
        self._apps_full &= rows_of_app.keys()

    def brought(self, app: int, rows: int, size: int) -> None:
        """Take note of rows that a source has in its hands since the latest measure."""
        self._bytes_in_hand += size
        self._rows_of_app[app] = self._rows_of_app.get(app, 0) + rows
        self._fill_memory()
        self._fill_app(app)

    def _fill_memory(self) -> None:
        mark = self.config.memory_bytes * (self.config.resume_share if self._memory_full else 1.0)
        self._memory_full = self.bytes_held + self._bytes_in_hand >= mark

    def _fill_app(self, app: int) -> None:
        mark = self.config.app_rows * (self.config.resume_share if app in self._apps_full else 1.0)
        (self._apps_full.add if self._rows_of_app[app] >= mark else self._apps_full.discard)(app)

    def may_read(self, app: int, can_wait: bool) -> bool:
        """Whether a source of this app may bring rows."""
        if can_wait:
            return not self._memory_full and app not in self._apps_full
        self._spilling = self._memory_full
        return True

    def room(self) -> int:
        """Return how many bytes may still be brought before the memory budget is used up."""
        return max(0, self.config.memory_bytes - self.bytes_held - self._bytes_in_hand)

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


def room_left(queues: Queues, app: AppId, here: Iterable[int], bytes_max: int) -> int:
    """Return how many bytes of rows may still be taken from other nodes for an app of which `here` runs.

    Rows on their way elsewhere are not counted: were they, two nodes could wait for each other for ever.
    """
    found = (queues.find(InstanceId(app, number)) for number in here)
    return max(0, bytes_max - sum(queue.bytes_held for queue in found if queue is not None))
