"""Running an engine on an input: its process, the feeder's, the clock, the CPU and the memory.

An engine is one process, or one for each copy of an application. Everything here is about time and processes; what the
applications do is in `contests`, and what an engine is in the `*_engine` modules.
"""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from bench.processes import Usage, cpu_s, family, memory_mb, usage
from bench.rivals.feeding import CONNECT_S, Fed, Stage

ROOT: Final = Path(__file__).parents[2]
START_S: Final = 120.0
STOP_S: Final = 5.0
WRITE_S: Final = 60.0
MEMORY_BACKED: Final = Path("/dev/shm")
LOG_LINES: Final = 12
LOOK_S: Final = 0.1  # while the feeder is waited for


class EngineFailed(Exception):
    """An engine did not do what was asked, for this reason."""


def scratch() -> "tempfile.TemporaryDirectory[str]":
    """Return a directory that is in memory where there is one, so that no disk is waited for."""
    place = MEMORY_BACKED if MEMORY_BACKED.is_dir() else None
    return tempfile.TemporaryDirectory(prefix="headwater-peers-", dir=place, ignore_cleanup_errors=True)


@dataclass(frozen=True)
class Command:
    """How an engine's process is started."""

    name: str
    python: Path
    module: str
    environment: Mapping[str, str]
    process_per_copy: bool = False
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Job:
    """What an engine is to run: a contest's input, in stages."""

    contest: str
    lines: Path
    offsets: Path
    settings: Mapping[str, Any]
    stages: tuple[Stage, ...]
    copies: int = 1
    whole: int = 200_000  # results to keep from the start on,
    stride: int = 1  # and then of so many the first
    start_limit_s: float = 60.0  # until every copy has given its first result
    limit_s: float = 60.0  # beyond what feeding takes


@dataclass(frozen=True)
class Results:
    """What one recording holds."""

    count: int
    last_us: int
    batches: list[tuple[int, list[Any]]]


@dataclass(frozen=True)
class Look:
    """The CPU that an engine had used at an instant, and everybody."""

    at_s: float
    cpu_s: float
    usage: Usage

    def cores_since(self, before: "Look") -> float:
        """Return how many cores the engine used."""
        return (self.cpu_s - before.cpu_s) / max(1e-3, self.at_s - before.at_s)

    def others_since(self, before: "Look") -> float:
        """Return how many cores were used by what has nothing to do with the measurement."""
        return self.usage.others_since(before.usage, max(1e-3, self.at_s - before.at_s))


@dataclass(frozen=True)
class Run:
    """What came of a job."""

    fed: list[Fed]
    results: list[list[Results]]  # of each copy, by sink
    looks: dict[str, Look]  # where each stage began, and when all was `drained`
    memory_mb: float

    def stage(self, name: str) -> Fed | None:
        """Return how a stage went, if it was reached."""
        return next((stage for stage in self.fed if stage.name == name), None)


class _Process:
    """One process of an engine, and the two pipes to it."""

    def __init__(self, command: Command, place: Path, number: int) -> None:
        self._name, self._log = command.name, place / f"{command.name}-{number}.log"
        answers, mine = os.pipe()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(command.python), "-m", command.module, str(mine), *command.arguments],
                cwd=ROOT,
                env={**os.environ, **command.environment},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=(mine,),
                start_new_session=True,  # so that it can be ended with all that it has started
            )
        os.close(mine)
        self._answers = _Lines(answers)
        self.roots: list[int] = []

    def wait_ready(self) -> None:
        self.roots = self.answer("ready", START_S)

    def ask(self, told: Mapping[str, Any] | None) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(told).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as failure:
            raise EngineFailed(self._ended()) from failure

    def answer(self, wanted: str, timeout_s: float) -> Any:
        line = self._answers.next(timeout_s)
        if line is None:
            raise EngineFailed(f"no answer within {timeout_s:.0f} s")
        if not line:
            raise EngineFailed(self._ended())
        told = json.loads(line)
        if "failed" in told:
            raise EngineFailed(told["failed"])
        return told[wanted]

    def check(self) -> None:
        """Raise if it has failed already."""
        line = self._answers.peek(0.0)
        if line is not None and (not line or b'"failed"' in line):
            self.answer("failed", 0.0)

    def stop(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_S)
        members = family(self._process.pid) if self._process.poll() is None else set()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for pid in members - {self._process.pid}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._answers.close()

    def _ended(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        tail = " | ".join(self._log.read_text(errors="replace").strip().splitlines()[-LOG_LINES:])
        return f"the process ended with {self._process.returncode}: {tail[-2_000:]}"


class Engine:
    """An engine at work; `with` starts it and ends it."""

    def __init__(self, command: Command, place: Path) -> None:
        """Start nothing yet; logs and results lie in a new directory at this place."""
        self.command = command
        self._place = Path(tempfile.mkdtemp(prefix=f"{command.name}-", dir=place))
        self._processes: list[_Process] = []
        self.start_s = 0.0
        self._spools = 0

    def __enter__(self) -> "Engine":
        """Start one process."""
        began = time.monotonic()
        self._grow(1)
        self.start_s = round(time.monotonic() - began, 2)
        return self

    def __exit__(self, *failure: object) -> None:
        """End all processes."""
        for process in self._processes:
            process.stop()
        self._processes.clear()

    def run(self, job: Job) -> Run:
        """Run a job to its end. After a failure the next one begins with new processes."""
        try:
            return self._run(job)
        except EngineFailed:
            self.__exit__()
            raise

    def _run(self, job: Job) -> Run:
        self._grow(job.copies if self.command.process_per_copy else 1)
        self._spools += 1
        spool = self._place / f"spool-{self._spools}"
        with _feeder(job) as feeder:
            ports = feeder.say("ports", START_S)
            asked = self._ask(job, ports, spool)
            feeder.say("begun", CONNECT_S, asked)
            self._warm_up(job, feeder, asked)
            fed, looks = self._watch(job, feeder, asked)
            ends = time.monotonic() + job.limit_s
            for process in asked:
                process.answer("drained", max(0.1, ends - time.monotonic()))
            looks["drained"] = self._look()
            memory = sum(memory_mb(pid).get("pss", 0.0) for pid in self._pids())
        for process in asked:
            process.ask(None)
            process.answer("written", WRITE_S)
        return Run(fed, _read(spool, job.copies), looks, round(memory, 1))

    def _warm_up(self, job: Job, feeder: "_FeederProcess", asked: Sequence[_Process]) -> None:
        """Let the first stage go on until every copy has given a result."""
        ends = time.monotonic() + job.start_limit_s
        for process in asked:
            process.answer("flowing", max(0.1, ends - time.monotonic()))
        feeder.go_on()

    def _watch(
        self, job: Job, feeder: "_FeederProcess", asked: Sequence[_Process]
    ) -> tuple[list[Fed], dict[str, Look]]:
        """Look at the CPU where stages begin, until all are fed."""
        looks: dict[str, Look] = {}
        ends = time.monotonic() + job.limit_s + sum(stage.seconds for stage in job.stages)
        while True:
            told = feeder.next(ends - time.monotonic(), asked)
            if "fed" in told:
                return [Fed(**stage) for stage in told["fed"]], looks
            looks[told["stage"]] = self._look()

    def _look(self) -> Look:
        return Look(time.monotonic(), sum(map(cpu_s, self._pids())), usage())

    def _grow(self, count: int) -> None:
        started = [_Process(self.command, self._place, number) for number in range(len(self._processes), count)]
        self._processes += started
        for process in started:
            process.wait_ready()

    def _ask(self, job: Job, ports: Sequence[int], spool: Path) -> list[_Process]:
        """Hand out the copies: all to one process, or one to each."""
        each = [[port] for port in ports] if self.command.process_per_copy else [list(ports)]
        processes = self._processes[: len(each)]
        for number, (process, own) in enumerate(zip(processes, each, strict=True)):
            directory = spool / str(number)
            directory.mkdir(parents=True)
            process.ask(
                {
                    "contest": job.contest,
                    "ports": own,
                    "spool": str(directory),
                    "whole": job.whole,
                    "stride": job.stride,
                    "settings": dict(job.settings),
                }
            )
        return processes

    def _pids(self) -> set[int]:
        return family(*(root for process in self._processes for root in process.roots))


def _read(spool: Path, copies: int) -> list[list[Results]]:
    """Read the recordings of all copies: those of one process are as many for each of its copies."""
    files = sorted(spool.glob("*/*.json"), key=lambda path: (int(path.parent.name), int(path.stem)))
    recordings = [Results(**json.loads(path.read_text(encoding="utf-8"))) for path in files]
    if not recordings or len(recordings) % copies:
        raise EngineFailed(f"{len(recordings)} recordings of {copies} copies were written")
    each = len(recordings) // copies
    for path in files:
        path.unlink()
    return [recordings[start : start + each] for start in range(0, len(recordings), each)]


class _FeederProcess:
    """The feeder, and what it says."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        assert process.stdin is not None
        self._lines, self._input = _Lines(process.stdout.fileno()), process.stdin

    def say(self, wanted: str, timeout_s: float, watched: Sequence[_Process] = ()) -> Any:
        """Return what the feeder says of this."""
        return self.next(timeout_s, watched)[wanted]

    def next(self, timeout_s: float, watched: Sequence[_Process]) -> dict[str, Any]:
        """Return what the feeder says next; an engine that fails meanwhile is not waited for."""
        ends = time.monotonic() + timeout_s
        while self._lines.peek(LOOK_S) is None and time.monotonic() < ends:
            for process in watched:
                process.check()
        line = self._lines.next(0.0)
        if not line:
            raise EngineFailed(f"it did not take its input within {timeout_s:.0f} s")
        told: dict[str, Any] = json.loads(line)
        if "failed" in told:
            raise EngineFailed(f"it did not take its input: {told['failed']}")
        return told

    def go_on(self) -> None:
        """End the stage that waits."""
        self._input.write(b"\n")
        self._input.flush()


@contextlib.contextmanager
def _feeder(job: Job) -> Iterator[_FeederProcess]:
    asked = json.dumps({"copies": job.copies, "stages": [asdict(stage) for stage in job.stages]})
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.rivals.feeding", str(job.lines), str(job.offsets), asked],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        yield _FeederProcess(process)
    finally:
        process.kill()
        process.wait()


class _Lines:
    """Lines from a pipe, with a limit to the wait."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._rest, self._ended = descriptor, b"", False

    def next(self, timeout_s: float) -> bytes | None:
        """Return the next line; b"" at the end, None if none came in time."""
        line = self.peek(timeout_s)
        if line:
            self._rest = self._rest[len(line) + 1 :]
        return line

    def peek(self, timeout_s: float) -> bytes | None:
        """Return the next line and leave it there."""
        ends = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._descriptor, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if self._ended:
                    return b""
                if not waiting.select(max(0.0, ends - time.monotonic())):
                    return None
                data = os.read(self._descriptor, 1 << 16)
                self._ended = not data
                self._rest += data
        return self._rest.partition(b"\n")[0]

    def close(self) -> None:
        """Let go of the pipe."""
        os.close(self._descriptor)
