"""The peers that one machine carries, in one process: they share its Spark, and nothing else."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from headwater.model.errors import EngineError
from headwater.runtime.service.local_cluster import few_spares
from headwater.runtime.service.service import NodeService
from headwater.runtime.settings import JOIN_MAX, NodeSettings
from headwater.workers.local.shared_session import SharedSpark


class PeersOfAMachine:
    """One peer or several."""

    def __init__(self, each: Sequence[NodeSettings]) -> None:
        self._each, self._is_shared = each, len(each) > 1
        self._spark = SharedSpark() if self._is_shared and not each[0].no_spark else None
        self.services: list[NodeService] = []

    async def start(self, enter: Callable[[NodeService], Awaitable[None]]) -> None:
        """Let one peer enter the ring, then all others at once, which join through it if no other node is reachable."""
        first, *others = self._each
        await enter(self._made(first))
        if not self.services[0].machine.is_active:
            return  # it was told to stop before it was in
        told = self.services[0].own.address
        made = [self._made(replace(one, join=(told, *one.join)[:JOIN_MAX])) for one in others]
        for failure in await asyncio.gather(*map(enter, made), return_exceptions=True):
            if isinstance(failure, BaseException):
                raise failure

    def _made(self, settings: NodeSettings) -> NodeService:
        engine = few_spares(settings.engine()) if self._is_shared else settings.engine()
        service = NodeService(settings, engine=engine, spark=self._spark)
        self.services.append(service)
        return service

    async def drained(self) -> None:
        """Wait until every peer has been drained and has left the ring."""
        await asyncio.gather(*(service.draining.done.wait() for service in self.services))

    async def broken(self) -> None:
        """Wait until a mistake of ours has ended what a peer needs, and raise what is to be told of it."""
        waits = [asyncio.create_task(service.broken.wait()) for service in self.services]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        raise EngineError(next(service.engine.broken for service in self.services if service.broken.is_set()))

    async def stop(self) -> None:
        """Stop all in good order."""
        await asyncio.gather(*(service.stop() for service in self.services))
