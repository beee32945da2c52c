"""What `/proc` says of processes and of the machine: CPU time, memory, cores."""

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Machine:
    """What the figures were measured on."""

    cores: int
    memory_gb: float
    cpu: str
    system: str
    python: str

    def __str__(self) -> str:
        """Fit for a caption."""
        return f"{self.cores} cores, {self.memory_gb:.0f} GB, {self.cpu}, {self.system}, Python {self.python}"


def this_machine() -> Machine:
    """Look at the machine."""
    information = _read("/proc/cpuinfo")
    model = re.search(r"^(?:model name|Model|Hardware)\s*:\s*(.+)$", information, re.MULTILINE)
    memory = re.search(r"^MemTotal:\s+(\d+) kB", _read("/proc/meminfo"), re.MULTILINE)
    return Machine(
        cores=len(os.sched_getaffinity(0)),
        memory_gb=round(int(memory[1]) / 1e6, 1) if memory else 0.0,
        cpu=model[1].strip() if model else platform.machine(),
        system=f"{platform.system()} {platform.release().split('-')[0]}",
        python=platform.python_version(),
    )


def cpu_s(pid: int) -> float:
    """Return the CPU time a process has used, in user and kernel mode; 0 if it is gone."""
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S if fields else 0.0


def started_at(pid: int) -> int:
    """Return when a process began, in ticks of the machine's clock: with its number, that names it for good."""
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return int(fields[19]) if fields else 0


def tree_cpu_s(root: int) -> float:
    """Return the CPU time of a process and of all its living descendants."""
    return sum(map(cpu_s, family(root)))


def family(*roots: int) -> set[int]:
    """Return processes and all their living descendants. One look at all of them: each costs milliseconds."""
    parents = {pid: parent for pid in _pids() if (parent := _parent(pid)) is not None}
    members = set(roots)
    while found := {pid for pid, parent in parents.items() if parent in members} - members:
        members |= found
    return members


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _parent(pid: int) -> int | None:
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return int(fields[1]) if fields else None


@dataclass(frozen=True, slots=True)
class Usage:
    """What this process tree and the whole machine have used so far."""

    own_cpu_s: float
    machine_busy_s: float
    machine_all_s: float

    def busy_share_since(self, before: "Usage") -> float:
        """Return which share of the machine was busy."""
        return (self.machine_busy_s - before.machine_busy_s) / max(1e-6, self.machine_all_s - before.machine_all_s)

    def others_since(self, before: "Usage", seconds: float) -> float:
        """Return how many cores the other processes of the machine used: what disturbs a measurement."""
        own = self.own_cpu_s - before.own_cpu_s
        return max(0.0, (self.machine_busy_s - before.machine_busy_s - own) / seconds)


def usage() -> Usage:
    """Look at this process tree and at the machine."""
    fields = [int(field) for field in _read("/proc/stat").splitlines()[0].split()[1:9]]
    whole, idle = sum(fields), fields[3] + fields[4]
    return Usage(tree_cpu_s(os.getpid()), (whole - idle) / TICKS_PER_S, whole / TICKS_PER_S)


def memory_mb(pid: int) -> dict[str, float]:
    """Return the resident memory of a process and its proportional share of pages that others share."""
    told = _read(f"/proc/{pid}/smaps_rollup")
    found = {name: int(size) for name, size in re.findall(r"^(Rss|Pss):\s+(\d+) kB", told, re.MULTILINE)}
    return {name.lower(): round(size / 1_000, 1) for name, size in found.items()}


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:  # the process is gone, or the system has no /proc
        return ""
