"""The sensor of all engines: a process that sends lines made beforehand over TCP, each when it is due.

Every copy of an application has a port. A stage has a pace, or none: then lines go out as fast as they are taken, for
as long as the stage lasts. A row of a paced stage is due at an instant that is known beforehand, and stays so when the
engine does not take it in time; who measures from there misses no wait. It costs next to nothing: lines are slices of
one mapped file.

    python -m bench.rivals.feeding LINES OFFSETS '{"copies": 1, "stages": [{"name": "a", "rate": 100, "seconds": 1}]}'
"""

import json
import select
import socket
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

TICK_S: Final = 0.001  # between looks at what is due
CONNECT_S: Final = 120.0  # until all copies must have connected
BURST_BYTES: Final = 1 << 18  # in one go, where there is no pace
TRICKLE: Final = 0.05  # of the pace, while an engine starts that has rows enough
LATE_HERE_S: Final = 0.1  # a send that takes so long waits for an engine that is not ready yet
LATE_S_MAX: Final = 6.0  # behind the pace: then the engine cannot hold it, and the rest is left out

Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Stage:
    """So many rows a second, for so long; without a rate, as many as are taken, up to `rows`.

    One that waits ends when a line comes on standard input, and not before so many `rows` are sent; then it goes on as
    a trickle. What an engine does not take in time while it starts is not sent later all at once.
    """

    name: str
    rate: float | None
    seconds: float
    rows: int | None = None
    waits: bool = False


@dataclass(frozen=True)
class Fed:
    """A stage as it went: row `first + n` of copy `c` was due at `began_us + (n + c / copies) / rate`."""

    name: str
    rate: float | None
    first: int
    rows: int
    began_us: int
    ended_us: int


class Feeder:
    """Sends the same lines to every copy."""

    def __init__(self, lines: Path, offsets: Path, copies: int) -> None:
        """Listen, on a port for each copy."""
        self._lines = np.memmap(lines, np.uint8, "r").data
        self._offsets: Offsets = np.load(offsets)
        self._servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(copies)]
        self._copies: list[socket.socket] = []
        self._sent = np.zeros(copies, np.int64)
        self.ports = [server.getsockname()[1] for server in self._servers]

    def wait(self) -> None:
        """Wait until every copy has connected."""
        for server in self._servers:
            server.settimeout(CONNECT_S)
            copy, _ = server.accept()
            copy.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            copy.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BURST_BYTES)  # what waits here, waits for the engine
            self._copies.append(copy)

    def feed(self, stages: list[Stage]) -> list[Fed]:
        """Send all stages, one behind the other; stop where the engine falls too far behind."""
        fed: list[Fed] = []
        begin = time.time()
        for stage in stages:
            first = int(self._sent[0])
            if stage.rate is None or stage.waits:
                begin = time.time()  # what was late before must not shorten it
            _say(stage=stage.name)
            end = self._sent_all(stage, begin)
            rows = int(self._sent.min()) - first
            fed.append(Fed(stage.name, stage.rate, first, rows, int(begin * 1e6), int(time.time() * 1e6)))
            if end is None:
                break
            begin = end
        return fed

    def close(self) -> None:
        """End the input of every copy."""
        for end in (*self._copies, *self._servers):
            end.close()

    def _sent_all(self, stage: Stage, begin: float) -> float | None:
        """Send a stage; return when the next one begins, None if this one was not held."""
        if stage.rate is None:
            return self._burst(begin, stage)
        if stage.waits:
            return self._wait(begin, stage)
        return self._pace(begin, stage.rate, stage.seconds)

    def _pace(self, begin: float, rate: float, seconds: float) -> float | None:
        """Send rows when they are due."""
        first = self._sent.copy()
        last = min(int(first.max()) + round(rate * seconds), len(self._offsets) - 1)
        while self._sent.min() < last:
            elapsed = time.time() - begin
            self._send_due(np.minimum(first + self._due(elapsed, rate), last))
            if elapsed - float((self._sent - first).min()) / rate > LATE_S_MAX:
                return None
            time.sleep(TICK_S)
        return begin + (last - int(first.max())) / rate

    def _wait(self, begin: float, stage: Stage) -> float | None:
        """Send so many rows at a pace, then a trickle, until somebody says that it is enough."""
        assert stage.rate is not None
        first, began, rate = self._sent.copy(), begin, stage.rate
        while not select.select([sys.stdin], [], [], TICK_S)[0] or self._sent.min() < (stage.rows or 1):
            now = time.time()
            if now > begin + stage.seconds:
                return None
            if rate == stage.rate and self._sent.min() >= (stage.rows or 1):
                first, began, rate = self._sent.copy(), now, stage.rate * TRICKLE
            self._send_due(np.minimum(first + self._due(now - began, rate), len(self._offsets) - 1))
            if time.time() - now > LATE_HERE_S:
                first, began = self._sent.copy(), time.time()
        self._send_due(np.full(len(first), self._sent.max()))
        return time.time()

    def _due(self, elapsed: float, rate: float) -> Offsets:
        """Return how many rows of each copy are due: copies are evenly out of step."""
        phases = np.arange(len(self._copies)) / len(self._copies)
        return np.maximum(np.floor(elapsed * rate - phases).astype(np.int64) + 1, 0)

    def _send_due(self, due: Offsets) -> None:
        for copy in np.flatnonzero(due > self._sent).tolist():
            self._send(copy, int(due[copy]))

    def _burst(self, begin: float, stage: Stage) -> float:
        """Send as much as is taken until the time is up or nothing is left; return when that was."""
        last = len(self._offsets) - 1
        if stage.rows is not None:
            last = min(last, int(self._sent[0]) + stage.rows)
        while time.time() < begin + stage.seconds and self._sent[0] < last:
            reached = self._offsets[self._sent[0]] + BURST_BYTES
            rows = int(np.searchsorted(self._offsets, reached, "right")) - 1
            self._send(0, min(last, max(int(self._sent[0]) + 1, rows)))
        return time.time()

    def _send(self, copy: int, until: int) -> None:
        begin, end = self._offsets[self._sent[copy]], self._offsets[until]
        self._copies[copy].sendall(self._lines[begin:end])
        self._sent[copy] = until


def main(lines: str, offsets: str, asked: str) -> None:
    """Say the ports, wait for all copies, say when it begins, feed, and say how it went."""
    wanted = json.loads(asked)
    feeder = Feeder(Path(lines), Path(offsets), wanted["copies"])
    _say(ports=feeder.ports)
    try:
        feeder.wait()
        _say(begun=True)
        fed = feeder.feed([Stage(**stage) for stage in wanted["stages"]])
        _say(fed=[asdict(stage) for stage in fed])
    except OSError as failure:  # the engine has gone away, or never came
        _say(failed=f"{type(failure).__name__}: {failure}")
    finally:
        feeder.close()


def _say(**told: Any) -> None:
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
