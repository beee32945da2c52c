"""A node's part in an upgrade: to hold an app so that its rows drain, and to pass what it keeps to its next version.

Both are durable before they are acknowledged, repeated until they are, and idempotent: a node that is killed in between
goes on where it was.
"""

import asyncio

from headwater.client.flow_text import built
from headwater.client.questions import Adopt
from headwater.model.store_contract import Transaction
from headwater.runtime.registry import Upgrade
from headwater.runtime.service.engine_shell import EngineShell, HoldReason, KeptFlow, flow_key


class Holding:
    """The upgrades of a node's apps. Its methods run one after the other, as those of the engine shell do."""

    def __init__(self, plant: EngineShell) -> None:
        self._plant = plant

    async def hold(self, app: str, *, is_held: bool) -> None:
        """Stop an app's sources and timers, or start them again."""
        part = self._plant.parts.get(app)
        if part is None or part.is_held == is_held:
            return
        self._plant.hold(part, HoldReason.HELD if is_held else HoldReason.NONE)
        for number in list(part.sources) if is_held else ():
            await self._plant.stop_reading(part, number)
        for wanted in () if is_held else list(part.to_read.values()):
            await self._plant.start(wanted)

    async def begun(self, app: str) -> None:
        """Record that the next version of an app has begun, even if no instance of it runs here."""
        part = self._plant.parts.get(app)
        if part is not None and part.kept.hold is HoldReason.ADOPTED:
            self._plant.hold(part, HoldReason.NONE)

    async def check(self, wanted: Adopt) -> None:
        """Raise if the next version of an app could not run here."""
        await asyncio.to_thread(self._check, wanted)

    def _check(self, wanted: Adopt) -> None:
        engine = self._plant.engine
        with built(wanted.flow, self._plant.flows, self._plant.trust.arrived) as graph:
            engine.check_code(graph)
            if engine.registry.find(wanted.predecessor) is not None:
                engine.registry.check(graph, _upgrade(wanted), wanted.app)

    async def adopt(self, wanted: Adopt) -> None:
        """Pass what is here of an app to its next version; without a part here this does nothing."""
        plant = self._plant
        is_there = plant.engine.registry.find(wanted.predecessor) is not None
        if wanted.app in plant.parts or not is_there:
            return
        plant.trust.arrived(wanted.flow)  # before anything is changed
        await plant.close(wanted.predecessor)
        plant.troubles.forget(wanted.predecessor)
        kept = KeptFlow(wanted.app, wanted.key, wanted.flow, HoldReason.ADOPTED)
        await asyncio.to_thread(self._adopt, wanted, kept)
        await plant.open(kept)

    def _adopt(self, wanted: Adopt, kept: KeptFlow) -> None:
        def settle(txn: Transaction) -> None:
            txn.delete(flow_key(wanted.predecessor))
            kept.keep(txn)

        with built(wanted.flow, self._plant.flows, self._plant.trust.arrived) as graph:
            self._plant.engine.registry.upgrade(graph, _upgrade(wanted), wanted.app, also=settle)


def _upgrade(wanted: Adopt) -> Upgrade:
    return Upgrade(wanted.given_up, wanted.predecessor, wanted.takes_rows)
