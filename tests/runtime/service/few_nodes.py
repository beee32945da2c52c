"""Real nodes in one process, on threads instead of Spark: started, stopped and started again on the same data."""

import asyncio
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import uvloop

from headwater.client.cluster import Cluster
from headwater.control.messages.events import NodeStarted
from headwater.model.peers import NodeId
from headwater.runtime.service.service import NodeService
from headwater.runtime.settings import NodeSettings
from headwater.security.authority import DENIED

PATIENCE_S: Final = 120.0


def free_port() -> int:
    """Return a port that nobody has at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def free_ports(count: int) -> int:
    """Return the first of so many ports in a row that nobody has at the moment."""
    while True:
        first = free_port()
        with ExitStack() as probes:
            try:
                for port in range(first, first + count):
                    probes.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first


class Loop:
    """A loop on a thread of its own."""

    def __init__(self) -> None:
        """Begin to run."""
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="few-nodes", daemon=True)
        self._thread.start()

    def do(self, coroutine: Any) -> Any:
        """Run something on it."""
        return self.begin(coroutine).result(PATIENCE_S)

    def begin(self, coroutine: Any) -> "Future[Any]":
        """Begin something."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def close(self) -> None:
        """End."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class FewNodes:
    """Some nodes on a loop of their own."""

    def __init__(self, directory: Path, certs: Callable[[], Path] | None = None) -> None:
        """Begin without nodes; `certs` makes the certificate of one."""
        self._directory, self._certs = directory, certs
        self._loop = Loop()
        self.nodes: list[NodeService] = []
        self._settings: list[NodeSettings] = []

    def do(self, coroutine: Any) -> Any:
        """Run something on the loop of the nodes."""
        return self._loop.do(coroutine)

    def begin(self, coroutine: Any) -> "Future[Any]":
        """Begin something on the loop of the nodes."""
        return self._loop.begin(coroutine)

    def add(self, zone: str = "here", **more: Any) -> NodeService:
        """Start one more, with what is said of its settings besides, and wait until it is in the ring."""
        number = len(self.nodes)
        settings = NodeSettings(
            listen=f"127.0.0.1:{0 if self._certs is None else free_port()}",
            join=tuple(node.own.address for node in self.nodes[:1]),
            zone=zone,
            data=self._directory / f"n{number}",
            certs=None if self._certs is None else self._certs(),
            insecure=self._certs is None,
            workers=1,
            no_spark=True,
            **more,
        )
        node = NodeService(settings)
        self.nodes.append(node)
        self._settings.append(settings)
        self.do(self._started(node))
        self._settings[number] = replace(settings, listen=node.own.address)
        return node

    async def _started(self, node: NodeService) -> None:
        await node.start()
        await node.joined()

    def stop(self, number: int) -> None:
        """Stop one in good order."""
        self.do(self.nodes[number].stop())

    def restart(self, number: int) -> None:
        """Start one again, with the data it had and at the address it had."""
        settings = self._settings[number]
        self.nodes[number] = NodeService(settings)
        self.do(self._started(self.nodes[number]))

    def restart_alone(self, number: int) -> None:
        """Start one again while nobody is there whom it knew: it begins a ring, as it does after some seconds."""
        settings = self._settings[number]
        assert not settings.join, "it would wait for these"
        node = self.nodes[number] = NodeService(settings)

        async def start() -> None:
            await node.start()
            node.handle(NodeStarted(()))
            await node.joined()

        self.do(start())

    def deny(self, identity: NodeId) -> None:
        """Have somebody's certificate count no longer, on all nodes that run."""
        for node in self.nodes:
            assert node.settings.certs is not None
            with (node.settings.certs / DENIED).open("a") as file:
                file.write(f"{identity.hex()}\n")
            self.do(self._reloaded(node))

    async def _reloaded(self, node: NodeService) -> None:
        node.wire.reload()

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds."""

        async def look() -> None:
            while not holds():  # noqa: ASYNC110 - what is waited for are many different things
                await asyncio.sleep(0.05)

        self.do(look())

    def client(self, number: int) -> Cluster:
        """Ask a node, as a user of this machine."""
        return Cluster(self.nodes[number].own.address, insecure=True)

    def __enter__(self) -> "FewNodes":
        """Stop all at the end of the block."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop all."""
        for node in self.nodes:
            self.do(node.stop())
        self._loop.close()
