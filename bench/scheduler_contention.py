"""What the operating system's scheduler did with some processes: time on a core, time in want of one, switches."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NANOSECONDS: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Contention:
    """Sums over all threads so far."""

    ran_s: float = 0.0
    waited_s: float = 0.0  # could have run, and another had the core
    yields: int = 0  # switches because there was nothing to do
    preemptions: int = 0  # switches because it was another's turn

    def since(self, before: "Contention") -> "Contention":
        """Return what happened in between."""
        return Contention(
            self.ran_s - before.ran_s,
            self.waited_s - before.waited_s,
            self.yields - before.yields,
            self.preemptions - before.preemptions,
        )


def contention(pids: Iterable[int]) -> Contention:
    """Add up the threads of these processes; one that has just ended counts nothing."""
    ran = waited = 0.0
    yields = preemptions = 0
    for thread in (task for pid in pids for task in _threads(pid)):
        times, status = _read(thread / "schedstat").split(), _read(thread / "status")
        if len(times) >= 2:
            ran += int(times[0]) * NANOSECONDS
            waited += int(times[1]) * NANOSECONDS
        yields += _figure(status, "voluntary_ctxt_switches:")
        preemptions += _figure(status, "nonvoluntary_ctxt_switches:")
    return Contention(ran, waited, yields, preemptions)


def _threads(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:  # the process is gone, or the system has no /proc
        return []


def _figure(status: str, name: str) -> int:
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith(name)), 0)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
