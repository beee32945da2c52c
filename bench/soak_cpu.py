"""What a cluster has used of the machine, also those of its processes that have ended meanwhile.

Spark's daemon does not wait for its workers, so nobody is told what they used when they end with their node or their
epoch. They are looked at every few seconds, and what was seen last of one that is gone still counts.
"""

import os
import threading
import time
from dataclasses import dataclass
from typing import Final

from bench.processes import cpu_s, family, started_at, usage
from bench.regularly import Regularly

LOOK_S: Final = 5.0

Process = tuple[int, int]  # its number, which another may have later, and when it began


@dataclass(frozen=True, slots=True)
class Looked:
    """What had been used at an instant."""

    at_s: float
    own_cpu_s: float
    machine_busy_s: float

    def cores_until(self, later: "Looked") -> float:
        """Return how many cores the cluster used between two looks."""
        return (later.own_cpu_s - self.own_cpu_s) / (later.at_s - self.at_s)

    def others_until(self, later: "Looked") -> float:
        """Return how many cores all others used."""
        busy = (later.machine_busy_s - self.machine_busy_s) / (later.at_s - self.at_s)
        return max(0.0, busy - self.cores_until(later))


class CpuWatch(Regularly):
    """Looks at a process and all its descendants, every few seconds, from a thread of its own."""

    def __init__(self, root: int | None = None) -> None:
        """Begin with nothing seen; without a root it is this process."""
        super().__init__("cpu", LOOK_S)
        self._root = os.getpid() if root is None else root
        self._seen: dict[Process, float] = {}
        self._lock = threading.Lock()

    def look(self) -> Looked:
        """Look now, and return what has been used so far."""
        with self._lock:
            for pid in family(self._root):
                used = cpu_s(pid)
                if used:
                    self._seen[pid, started_at(pid)] = used
            return Looked(time.monotonic(), sum(self._seen.values()), usage().machine_busy_s)
