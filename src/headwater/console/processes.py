"""Several nodes on this machine, each a process with its own Spark, as on separate machines.

Every process has one end of a pipe of ours as its standard input, and stops in order when that is closed: when we close
it, and also when we are killed and can do nothing. Each is in a session of its own, so that Ctrl-C reaches only us, and
nothing that it has started outlives it.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import msgspec

from headwater.model.decoding import UNDECODABLE
from headwater.model.errors import ConfigError, EngineError
from headwater.storage.temporary import delete_left_by

PROCESSES_MAX: Final = 32  # each has a Java of about a gigabyte
LINE_BYTES_MAX: Final = 1 << 16  # of a node's output; longer ones come from a flow's code
STOP_S: Final = 60.0  # for a node to stop in order: its effect in progress, then its Spark

Say = Callable[..., None]


class Attached(StrEnum):
    """What becomes of a node's data when its standard input is closed, and it stops."""

    KEEP = "keep"
    DELETE = "delete"


async def end_of_input() -> None:
    """Wait until our standard input is closed, by the process that started us or by its death."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.read(1 << 10):
        pass


class Said(msgspec.Struct):
    """An event on a node's standard output (`headwater node --json`)."""

    event: str
    address: str = ""
    id: str = ""
    zone: str = ""


@dataclass(slots=True)
class NodeProcess:
    """One node, in a process of its own."""

    number: int
    process: asyncio.subprocess.Process
    address: str = ""
    is_in_ring: asyncio.Event = field(default_factory=asyncio.Event)
    has_ended: asyncio.Event = field(default_factory=asyncio.Event)
    reading: "asyncio.Task[None] | None" = None

    @property
    def name(self) -> str:
        """Its name in messages."""
        return self.address or f"number {self.number}"


class NodeProcesses:
    """Some nodes, from their start to their end."""

    def __init__(self, words: Callable[[int], Sequence[str]], say: Say) -> None:
        """Begin without nodes; `words` returns the command line of a node, without whom to join."""
        self._words, self._say = words, say
        self._is_stopping = False
        self.nodes: list[NodeProcess] = []
        self.all_ended = asyncio.Event()  # by themselves
        self.died = 0

    async def start(self, count: int) -> None:
        """Start so many, the first one alone and the rest at once, and wait until all are in the ring."""
        if not 1 <= count <= PROCESSES_MAX:
            raise ConfigError(f"{count} nodes are too many for one machine; use 1 to {PROCESSES_MAX}")
        first = await self._begin(1)
        await self._in_ring(first)
        others = [await self._begin(number, "--join", first.address) for number in range(2, count + 1)]
        await asyncio.gather(*(self._in_ring(node) for node in others))

    async def _begin(self, number: int, *words: str) -> NodeProcess:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "headwater", "node", "--json", *self._words(number), *words),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        node = NodeProcess(number, process)
        node.reading = asyncio.get_running_loop().create_task(self._read(node))
        self.nodes.append(node)
        return node

    async def _in_ring(self, node: NodeProcess) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in (node.is_in_ring, node.has_ended)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        if not node.is_in_ring.is_set():
            raise EngineError(f"node {node.name} could not start, and has said why above")

    async def _read(self, node: NodeProcess) -> None:
        """Read a node's output until its end, and report an unexpected end."""
        assert node.process.stdout is not None
        said = b""
        while piece := await node.process.stdout.read(LINE_BYTES_MAX):
            *lines, said = (said + piece).split(b"\n")
            for line in lines:
                self._heard(node, line)
            said = said if len(said) <= LINE_BYTES_MAX else b""
        code = await node.process.wait()
        _kill_all_of(node)
        delete_left_by(node.process.pid)
        node.has_ended.set()
        if not self._is_stopping and node.is_in_ring.is_set():
            self._tell_end(node, code)
        if all(one.has_ended.is_set() for one in self.nodes):
            self.all_ended.set()

    def _heard(self, node: NodeProcess, line: bytes) -> None:
        with suppress(*UNDECODABLE):  # not an event, but output of a flow's code
            said = msgspec.json.decode(line, type=Said)
            if said.event == "listening":
                node.address = said.address
                self._say("listening", address=said.address, id=said.id, zone=said.zone, pid=node.process.pid)
            elif said.event == "in the ring":
                node.is_in_ring.set()

    def _tell_end(self, node: NodeProcess, code: int) -> None:
        left = sum(not one.has_ended.is_set() for one in self.nodes)
        if code == 0:
            self._say("a node has left", address=node.address, nodes=left)
            return
        self.died += 1
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        self._say(f"a node has died ({how}); the others go on", address=node.address, nodes=left)

    async def stop(self) -> None:
        """Stop all in order; one that takes too long is killed."""
        self._is_stopping = True
        for node in self.nodes:
            if node.process.stdin is not None:
                node.process.stdin.close()
        reading = [node.reading for node in self.nodes if node.reading is not None]
        try:
            if reading:
                await asyncio.wait(reading, timeout=STOP_S)
        finally:
            for node in self.nodes:
                _kill_all_of(node)


def _kill_all_of(node: NodeProcess) -> None:
    """Kill the rest of a node's session."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(node.process.pid, signal.SIGKILL)
