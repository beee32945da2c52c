"""Nodes of this process on an event loop of their own, so that a measurement can ask them things and wait."""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import Any, Final, TypeVar

import uvloop

from headwater.client.cluster import Cluster
from headwater.runtime.service.local_cluster import LocalNodes
from headwater.runtime.service.service import NodeService

START_S: Final = 120.0  # for Spark, and for all to find their places on the ring
Answer = TypeVar("Answer")


class Peers:
    """Some nodes; `with` starts them, and stops them at the end."""

    def __init__(self, nodes: LocalNodes, zones: Sequence[str]) -> None:
        """Start nothing yet; there will be one node for each of these zones."""
        self._local, self._zones = nodes, zones
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="peers", daemon=True)

    @property
    def nodes(self) -> list[NodeService]:
        """The nodes, in order of the zones."""
        return self._local.nodes

    def do(self, coroutine: Coroutine[Any, Any, Answer], patience_s: float = START_S) -> Answer:
        """Have something done on the loop of the nodes, and wait for it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(patience_s)

    def client(self, number: int) -> Cluster:
        """Ask a node, as a user of this machine."""
        return Cluster(self.nodes[number % len(self.nodes)].own.address, insecure=True)

    def __enter__(self) -> "Peers":
        """Start all."""
        self._thread.start()
        try:
            self.do(self._local.start(self._zones))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop all."""
        self._end()

    def _end(self) -> None:
        self.do(self._local.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
