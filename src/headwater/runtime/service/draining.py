"""A node that leaves for good: what runs there moves elsewhere, what it has done stays in the books of apps' owners.

The machines move the instances (`node/moving.py`). Here is decided whether a node can go at all, and when nothing is
left: a node that was restarted in the middle knows nothing of what its store has and others have yet to fetch, but the
apps' owners know where every instance is.
"""

import asyncio
import functools
import logging
from typing import TYPE_CHECKING

from headwater.model.errors import HeadwaterError
from headwater.node.events import DrainWanted
from headwater.runtime.service.plant import Hold
from headwater.runtime.service.questions import KeepAccount
from headwater.runtime.service.requests import DrainTold, OwnedLine

if TYPE_CHECKING:
    from headwater.runtime.service.service import NodeService

log = logging.getLogger(__name__)


class Draining:
    """One node's leaving."""

    def __init__(self, node: "NodeService") -> None:
        """Stay."""
        self._node = node
        self._leaving: asyncio.Task[None] | None = None
        self.done = asyncio.Event()  # nothing is left here, and this node is not in the ring any more
        self.waits_for = ""

    def begin(self) -> DrainTold:
        """Have all that runs here move elsewhere, and leave then; raises if something is here that cannot move."""
        node = self._node
        if not node.keeping.is_draining:
            self._check()
            node.keeping.drain(True)
            log.info("this node is to leave for good: what runs here moves elsewhere")
            node.handle(DrainWanted())
        return self.told()

    def _check(self) -> None:
        node = self._node
        owned = sorted(one.name for one in node.keeping.owned.values())
        if owned:
            raise HeadwaterError(
                f"{', '.join(owned)} were submitted to {node.own.address}, and their sinks are there: stop them, or "
                "submit them to another node, before this one can leave for good"
            )
        read = sorted({app for app, _ in node.machine.hosting.sourced})
        if read:
            raise HeadwaterError(
                f"sources of {', '.join(read)} are read at {node.own.address}, where their devices are: stop these "
                "apps, or submit them with their sources elsewhere, before this node can leave for good"
            )
        if not node.machine.ring.known.leaves:
            raise HeadwaterError(f"{node.own.address} knows no other node that could take what runs there")

    def told(self) -> DrainTold:
        """Tell what is left."""
        node = self._node
        left = sorted(f"{app} {number}" for app, number in node.machine.hosting.hosted)
        return DrainTold(node.own.address, left, self.waits_for)

    def nothing_runs(self) -> None:
        """See whether anything is left here that others need, and leave if not."""
        if self._leaving is None or self._leaving.done():
            self._leaving = asyncio.get_running_loop().create_task(self._leave())

    async def _leave(self) -> None:
        try:
            if await self._is_free():
                self._node.leave()
                self.done.set()
        except HeadwaterError as failure:
            self._wait_for(str(failure))

    def _wait_for(self, what: str) -> None:
        if what != self.waits_for:
            log.info("waiting before leaving: %s", what)
        self.waits_for = what

    async def _is_free(self) -> bool:
        """Whether nobody needs what the store has; then the owners have our accounts, and it is deleted."""
        node = self._node
        unopened = sorted(set(node.plant.troubles.apps()) - set(node.plant.parts))
        if unopened:
            names = ", ".join(unopened)
            self._wait_for(f"{names} cannot be opened here, so what they keep cannot move; stop them, or mend that")
            return False
        held = sorted(app for app, part in node.plant.parts.items() if part.kept.hold is not Hold.NONE)
        if held:
            self._wait_for(f"{', '.join(held)} are being upgraded")
            return False
        looked, silent = await node.asking.look_around(node.machine.ring.known.leaves)
        if silent:
            self._wait_for(f"{', '.join(silent)} do not answer, and may own apps of which something is here")
            return False
        owners = {owned.id: owned for look in looked for owned in look.owned}
        for app, part in list(node.plant.parts.items()):
            owned = owners.get(app)
            if owned is not None:
                needed = [one for one, lot in node.plant.lots(part).items() if _is_needed(owned, one, lot)]
                if needed:
                    self._wait_for(f"instances {needed} of {owned.name} have yet to be fetched by other nodes")
                    return False
                ledger = await asyncio.to_thread(node.engine.ledger, part.app)
                await node.asking.ask(owned.owner, KeepAccount(app, node.plant.name.hex(), ledger))
            await node.in_turn(functools.partial(node.plant.forget, app))
        node.plant.forget_name()
        node.keeping.drain(False)
        return True


def _is_needed(owned: OwnedLine, instance: int, lot: tuple[int, int]) -> bool:
    return any(lot in one.lots() for one in owned.placed if one.instance == instance)
