"""Several nodes in one process, for trying things out: they share one Spark session, and nothing else.

Each has its own store, port and place on the ring, and rows go from one to another over sockets of this machine.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from headwater.model.errors import ConfigError
from headwater.runtime.service.service import NodeService
from headwater.runtime.settings import NodeSettings
from headwater.runtime.shared_spark import SharedSpark

NODES_MAX: Final = 32  # their workers have to find slots in one Spark session


class LocalNodes:
    """Some nodes of this machine."""

    def __init__(self, data: Path, *, spark: bool = True, capacity: int = 8, links: Path | None = None) -> None:
        """Begin without nodes; each keeps what it has below `data`."""
        self._data, self._links, self._capacity = data, links, capacity
        self._spark = SharedSpark() if spark else None
        self.nodes: list[NodeService] = []

    async def start(self, zones: Sequence[str], *, first_port: int = 0) -> None:
        """Start one node for each of these zones, and wait until all are in the ring."""
        if not 1 <= len(zones) <= NODES_MAX:
            raise ConfigError(f"{len(zones)} nodes are not possible in one process; use 1 to {NODES_MAX}")
        for number, zone in enumerate(zones):
            await self.add(zone, port=0 if first_port == 0 else first_port + number)

    async def add(self, zone: str, *, port: int = 0) -> NodeService:
        """Start one more."""
        settings = NodeSettings(
            listen=f"127.0.0.1:{port}",
            join=tuple(node.own.address for node in self.nodes[:2]),
            zone=zone,
            capacity=self._capacity,
            data=self._data / f"node-{len(self.nodes) + 1}",
            insecure=True,
            links=self._links,
            workers=1,
            no_spark=self._spark is None,
        )
        node = NodeService(settings, engine=replace(settings.engine(), spares_max=1), spark=self._spark)
        await node.start()
        self.nodes.append(node)
        await node.joined()
        return node

    async def remove(self, node: NodeService) -> None:
        """Stop one in good order."""
        self.nodes.remove(node)
        await node.stop()

    async def drain(self, node: NodeService) -> None:
        """Let one leave for good: what runs there moves to the others."""
        node.draining.begin()
        await node.draining.done.wait()
        await self.remove(node)

    async def stop(self) -> None:
        """Stop all."""
        await asyncio.gather(*(node.stop() for node in self.nodes))
        self.nodes.clear()
