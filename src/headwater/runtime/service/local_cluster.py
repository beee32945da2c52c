"""Several nodes in one process, for trying things out. They share one Spark session and nothing else.

Each has its own store, port and place on the ring, and they exchange rows over local sockets.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from headwater.control.messages.events import MachineConfig
from headwater.model.errors import ConfigError
from headwater.runtime.service.service import NodeService
from headwater.runtime.service.shielded import uncut
from headwater.runtime.settings import NodeSettings
from headwater.workers.config import NodeConfig
from headwater.workers.local.shared_session import SharedSpark

NODES_MAX: Final = 32  # their workers have to find slots in one Spark session


def few_spares(engine: NodeConfig) -> NodeConfig:
    """Limit an engine to one spare worker, since its neighbours in the process have spares too."""
    return replace(engine, spares_max=1)


class LocalNodes:
    """Some nodes in this process."""

    def __init__(
        self,
        data: Path,
        *,
        spark: bool = True,
        capacity: int = 8,
        links: Path | None = None,
        join: Sequence[str] = (),
        tuned: Callable[[NodeConfig], NodeConfig] = few_spares,
        machine: MachineConfig | None = None,
        kind: type[NodeService] = NodeService,
        settings: Callable[[int], Mapping[str, Any]] = lambda number: {},
    ) -> None:
        """Begin without nodes; each keeps its data in a folder below `data`.

        They join others of this machine that are named, or else begin a ring. Experiments tune their engines and
        machines, or have nodes of a kind that watches itself; `settings` returns further ones of a node by its number.
        """
        self._data, self._links, self._capacity, self._join = data, links, capacity, tuple(join)
        self._tuned, self._machine, self._kind = tuned, machine, kind
        self._settings = settings
        self._spark = SharedSpark() if spark else None
        self._made = 0
        self.nodes: list[NodeService] = []

    async def start(self, zones: Sequence[str], *, first_port: int = 0) -> None:
        """Start one node per zone, the first alone and the rest at once, and wait until all are in the ring."""
        if not 1 <= len(zones) <= NODES_MAX:
            raise ConfigError(f"{len(zones)} nodes are not possible in one process; use 1 to {NODES_MAX}")
        ports = [0 if first_port == 0 else first_port + number for number in range(len(zones))]
        await self.add(zones[0], port=ports[0])
        others = (self.add(zone, port=port) for zone, port in zip(zones[1:], ports[1:], strict=True))
        for failure in await asyncio.gather(*others, return_exceptions=True):
            if isinstance(failure, BaseException):
                raise failure
        self.nodes.sort(key=lambda node: node.settings.data)

    async def add(self, zone: str, *, port: int = 0) -> NodeService:
        self._made += 1
        settings = NodeSettings(
            listen=f"127.0.0.1:{port}",
            join=self._join or tuple(node.own.address for node in self.nodes[:2]),
            zone=zone,
            capacity=self._capacity,
            data=self._data / f"node-{self._made:02}",
            insecure=True,
            links=self._links,
            workers=1,
            no_spark=self._spark is None,
            **self._settings(self._made),
        )
        node = self._kind(settings, engine=self._tuned(settings.engine()), machine=self._machine, spark=self._spark)
        try:
            await node.start()
        except BaseException:  # interrupted, too: only we can stop what it has started by now
            await uncut(node.stop())
            raise
        self.nodes.append(node)
        await node.joined()
        return node

    async def remove(self, node: NodeService) -> None:
        """Stop a node in good order."""
        self.nodes.remove(node)
        await node.stop()

    async def drain(self, node: NodeService) -> None:
        """Drain a node: its instances move to the others, then it stops."""
        await node.draining.begin()
        await node.draining.done.wait()
        await self.remove(node)

    async def stop(self) -> None:
        await asyncio.gather(*(node.stop() for node in self.nodes))
        self.nodes.clear()
