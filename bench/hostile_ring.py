"""The nodes of the hostile benchmark, each a process with a certificate, and the honest users who ask them."""

import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.processes import family, memory_mb
from headwater.client.cluster import Cluster
from headwater.client.requests import StatusTold
from headwater.model.errors import EngineError, HeadwaterError
from headwater.security.authority import Authority, make_authority
from headwater.security.identity import Role

START_S: Final = 300.0  # of a node whose Spark starts beside others
END_S: Final = 60.0
LOOK_S: Final = 0.05
ASK_S: Final = 0.25  # between two requests of one user to one node
LARGE_BYTES: Final = 600_000  # of the text of an app that users submit: it comes in parts
APP: Final = "honest"
FLOW: Final = """
import headwater as hw
import pyarrow.compute as pc

def made_rows(first, count):
    return {{"n": list(range(first, first + count)), "sensor": [n % 10 for n in range(first, first + count)]}}

made = hw.read.generator(made_rows, rate={rate}, name="made")
flow = hw.flow("{name}", made.filter(lambda batch: pc.less(batch["sensor"], 5)).sink(hw.to.json({out!r})))
# {padding}
"""


@dataclass
class Ring:
    """Three nodes, their authority, and their users."""

    place: Path
    spark: bool
    authority: Authority = field(init=False)
    addresses: list[str] = field(default_factory=list)
    _nodes: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make the certificates; nothing runs yet."""
        self.authority = make_authority(self.place / "authority")
        self.user = self.authority.issue_user("ann", Role.OPERATE)

    def start(self, count: int) -> None:
        """Start nodes one after the other, each joining the first."""
        for number in range(count):
            self._start(number)
        deadline = time.monotonic() + START_S
        while len(self._known()) < count:
            if time.monotonic() > deadline:
                raise EngineError(f"the nodes do not find one another; see the logs in {self.place}")
            time.sleep(LOOK_S)

    def _start(self, number: int) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        certs = self.authority.issue_node(f"n{number}", ["127.0.0.1", "localhost"])
        words = ["--listen", address, "--data", self.data(number), "--certs", certs, "--workers", 1]
        words += ["--join", self.addresses[0]] if self.addresses else []
        words += [] if self.spark else ["--no-spark"]
        told = self.place / f"n{number}.log"
        with told.open("wb") as log:
            command = [sys.executable, "-m", "headwater", "node", *map(str, words), "--json"]
            self._nodes.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT))
        self.addresses.append(address)
        deadline = time.monotonic() + START_S
        while b"in the ring" not in told.read_bytes():
            if self._nodes[-1].poll() is not None or time.monotonic() > deadline:
                raise EngineError(f"a node does not start: {told.read_text()[-1_000:]}")
            time.sleep(LOOK_S)

    def _known(self) -> list[Any]:
        with Cluster(self.addresses[0], certs=self.user) as cluster:
            return cluster.nodes().nodes

    def data(self, number: int) -> Path:
        """Return where a node keeps what it keeps."""
        return self.place / f"n{number}"

    def memory_mb(self) -> list[float]:
        """Return the memory of each node's own process: its share of what it has in common with others counts once."""
        return [memory_mb(node.pid).get("pss", 0.0) for node in self._nodes]

    def store_mb(self) -> list[float]:
        """Return what each node has on the disk, in blocks that are really there."""
        return [
            sum(path.lstat().st_blocks * 512 for path in self.data(number).rglob("*") if path.is_file()) / 1e6
            for number in range(len(self._nodes))
        ]

    def spark_ports(self, number: int) -> tuple[int, ...]:
        """Return the ports on which the JVM of a node listens."""
        inodes = set()
        for pid in family(self._nodes[number].pid) - {self._nodes[number].pid}:
            for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
                with suppress(OSError):
                    inodes.add(descriptor.readlink().name)
        ports = set()
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            for line in Path(table).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == "0A" and f"socket:[{words[9]}]" in inodes:
                    ports.add(int(words[1].rpartition(":")[2], 16))
        return tuple(sorted(ports - {int(address.rpartition(":")[2]) for address in self.addresses}))

    def refused(self) -> dict[str, dict[str, int]]:
        """Return what each node has refused so far, by reason."""
        with Cluster(self.addresses[-1], certs=self.user) as cluster:
            return {node.address: node.refused for node in cluster.nodes().nodes}

    def stop(self) -> None:
        """Stop all that runs."""
        for node in self._nodes:
            node.terminate()
        for node in self._nodes:
            try:
                node.wait(END_S)
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()

    def submit(self, name: str, *, at: int, reads: int, rate: float, padding: int = 0) -> Path:
        """Submit an app to a node, whose rows are made at another one; return where they go."""
        out = self.place / f"{name}.json"
        file = self.place / f"{name}.py"
        file.write_text(FLOW.format(name=name, rate=rate, out=str(out), padding=os.urandom(padding // 2).hex()))
        with Cluster(self.addresses[at], certs=self.user) as cluster:
            cluster.submit(file, at={"made": self.addresses[reads]})
        return out

    def status(self, at: int = 0) -> StatusTold:
        """Return how the honest app is."""
        with Cluster(self.addresses[at], certs=self.user) as cluster:
            return cluster.status(APP)


@contextmanager
def running(place: Path, *, nodes: int, spark: bool) -> Iterator[Ring]:
    """A ring, until the end of the block."""
    ring = Ring(place, spark)
    try:
        ring.start(nodes)
        yield ring
    finally:
        ring.stop()


@dataclass(slots=True)
class Asked:
    """One request: of which kind, to which node, when, how long until it was answered, or why it was not."""

    kind: str
    node: int
    at_s: float
    took_s: float
    failure: str = ""


class Honest:
    """Users who ask every node a few times a second, each time over a connection of its own, and note what comes."""

    def __init__(self, ring: Ring) -> None:
        """Ask nothing yet."""
        self._ring, self._ended, self._began = ring, threading.Event(), time.monotonic()
        self.asked: list[Asked] = []
        self._threads = [
            threading.Thread(target=self._ask, args=(number,), name=f"user of {number}")
            for number in range(len(ring.addresses))
        ]

    def __enter__(self) -> "Honest":
        """Begin to ask."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        """Stop asking."""
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def now_s(self) -> float:
        """Return how long users have asked."""
        return time.monotonic() - self._began

    def _ask(self, node: int) -> None:
        kinds = ("status", "apps", "nodes")
        for number in range(1 << 30):
            self.timed(kinds[number % len(kinds)], node, self._request)
            if self._ended.wait(ASK_S):
                return

    def _request(self, kind: str, node: int) -> None:
        with Cluster(self._ring.addresses[node], certs=self._ring.user) as cluster:
            match kind:
                case "status":
                    cluster.status(APP)
                case "apps":
                    cluster.apps()
                case "nodes":
                    cluster.nodes()

    def submit_and_stop(self, name: str, node: int) -> None:
        """Submit an app whose text is large, and stop it."""
        reads = (node + 1) % len(self._ring.addresses)
        submitted = self.timed(
            "submit", node, lambda *_: self._ring.submit(name, at=node, reads=reads, rate=10, padding=LARGE_BYTES)
        )
        if submitted:
            self.timed("stop", node, lambda *_: self._stop(name, node))

    def _stop(self, name: str, node: int) -> None:
        with Cluster(self._ring.addresses[node], certs=self._ring.user) as cluster:
            cluster.stop(name)

    def timed(self, kind: str, node: int, request: Any) -> bool:
        """Ask once, and note how long it took or why it failed."""
        began = time.monotonic()
        failure = ""
        try:
            request(kind, node)
        except HeadwaterError as error:
            failure = str(error)
        at_s = began - self._began
        self.asked.append(Asked(kind, node, round(at_s, 2), round(time.monotonic() - began, 4), failure))
        return not failure

    def between(self, begin_s: float, end_s: float) -> list[Asked]:
        """Return what was asked within a stretch of time."""
        return [one for one in list(self.asked) if begin_s <= one.at_s < end_s]


def p99_s(asked: Sequence[Asked]) -> float:
    """Return the time within which 99 of 100 requests were answered; one that was not counts as long as it took."""
    times = sorted(one.took_s for one in asked)
    return times[min(len(times) - 1, int(0.99 * len(times)))] if times else 0.0


def answered(asked: Sequence[Asked]) -> float:
    """Return the share of requests that were answered."""
    return sum(not one.failure for one in asked) / len(asked) if asked else 0.0


def digits(text: str) -> str:
    """Return a sentence without what differs from one time to the next."""
    return re.sub(r"\d+", "#", text)
