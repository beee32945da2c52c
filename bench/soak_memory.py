"""The memory of every process of a cluster over time, and whether it stays where it is.

Counted is anonymous memory: what a process has allocated. Pages of files are left out, since the operating system takes
them back when it likes. Workers come and go with the nodes, so they are judged together; so is everything.

The first third is warm-up. Of the rest the slope is the median of the slopes between all pairs of looks (Theil and
Sen): a few looks that fall into a garbage collection, or between a node that joins and one that leaves, do not move it.
Growth is that slope times the time it was judged over, as a share of the median.
"""

import re
import time
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.processes import family
from bench.regularly import Regularly

LOOK_S: Final = 5.0
WARM_UP: Final = 1 / 3  # of the time
LOOKS_MAX: Final = 300  # of which pairs are made

Looks = dict[str, list[float]]


class MemoryWatch(Regularly):
    """Looks at processes and all their descendants, every few seconds, from a thread of its own."""

    def __init__(self, pids: Sequence[int], every_s: float = LOOK_S) -> None:
        """Begin with nothing seen; the pids are those of the processes that run nodes."""
        super().__init__("memory", every_s)
        self._pids, self._began = pids, time.monotonic()
        self._at_s: list[float] = []
        self._looks: list[dict[str, float]] = []

    def look(self) -> None:
        """Look now."""
        self._at_s.append(round(time.monotonic() - self._began, 1))
        self._looks.append(_look(self._pids))

    def told(self) -> dict[str, Any]:
        """Return all looks: megabytes of each process, of all workers, and of all together."""
        names = {name: None for look in self._looks for name in look}
        return {"at_s": self._at_s, "mb": {name: [look.get(name, 0.0) for look in self._looks] for name in names}}


def _look(pids: Sequence[int]) -> dict[str, float]:
    found: dict[str, float] = {}
    for number, root in enumerate(pids):
        for pid in family(root):
            name = f"nodes {number}" if pid == root else f"JVM {number}" if _is_java(pid) else "workers"
            found[name] = found.get(name, 0.0) + _anonymous_mb(pid)
    found["all"] = sum(found.values())
    return {name: round(size, 1) for name, size in found.items()}


def _is_java(pid: int) -> bool:
    return _read(f"/proc/{pid}/comm").strip() == "java"


def _anonymous_mb(pid: int) -> float:
    found = re.search(r"^RssAnon:\s+(\d+) kB", _read(f"/proc/{pid}/status"), re.MULTILINE)
    return int(found[1]) / 1_000 if found else 0.0


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:  # the process is gone
        return ""


def growth(memory: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Return by how much each process has grown since the warm-up, as a share of what it has."""
    return {name: _growth(memory["at_s"], sizes) for name, sizes in memory["mb"].items()}


def _growth(at_s: Sequence[float], sizes: Sequence[float]) -> dict[str, float]:
    first = int(len(at_s) * WARM_UP)
    step = max(1, (len(at_s) - first) // LOOKS_MAX)
    looks = list(zip(at_s[first::step], sizes[first::step], strict=True))
    slopes = [(after[1] - before[1]) / (after[0] - before[0]) for before, after in combinations(looks, 2)]
    middle = median(size for _, size in looks) if looks else 0.0
    slope = median(slopes) if slopes else 0.0
    grown = slope * (looks[-1][0] - looks[0][0]) if looks else 0.0
    return {
        "median_mb": round(middle, 1),
        "mb_per_hour": round(3_600 * slope, 2),
        "growth": round(grown / middle, 4) if middle else 0.0,
    }
