"""What is on a node of apps that have ended, or whose upgrade is over, while it was away: nobody else tells it."""

import logging
from typing import TYPE_CHECKING

from headwater.client.questions import Looked
from headwater.model.peers import NodeId
from headwater.runtime.service.engine_shell import AppPart, HoldReason

if TYPE_CHECKING:
    from headwater.runtime.service.service import NodeService

log = logging.getLogger(__name__)


class Leftovers:
    """Looks around now and then for the sake of what does not run here."""

    def __init__(self, node: "NodeService") -> None:
        """Look for this node."""
        self._node = node

    async def look(self) -> None:
        """Ask around, if there is anything to ask for, and do what follows from the answers."""
        node = self._node
        parts = [
            part for part in node.plant.parts.values() if part.kept.hold is not HoldReason.NONE or self._is_idle(part)
        ]
        if not parts or not node.machine.is_active:
            return
        looked, silent = await node.asking.look_around(node.machine.ring.known.leaves)
        for part in parts:
            if part.id in node.plant.parts:
                await self._judge(part, looked, all_answered=not silent)

    def _is_idle(self, part: AppPart) -> bool:
        return part.id not in self._node.keeping.owned and not self._node.replies.runs(part.id)

    async def _judge(self, part: AppPart, looked: list[Looked], *, all_answered: bool) -> None:
        node = self._node
        owned = {line.id: line for look in looked for line in look.owned}
        wanted = {app for look in looked for app in (*look.runs, *look.awaited)} | set(owned)
        if part.is_held and part.id in owned and not owned[part.id].upgrading:
            log.info("%s is not upgraded any more, and goes on", part.id)
            await node.in_turn(lambda: node.holding.hold(part.id, is_held=False))
        if part.kept.hold is HoldReason.ADOPTED and part.id in owned:
            await node.in_turn(lambda: node.holding.begun(part.id))
        if part.id in wanted or not all_answered or not self._is_idle(part) or not has_answered(part.key, looked):
            return
        log.info("%s has ended, and what was left of it here is deleted", part.id)
        await node.in_turn(lambda: node.plant.forget(part.id))


def has_answered(owner: NodeId, looked: list[Looked]) -> bool:
    """Whether the node that answers for an app is there to say that it has it no more.

    While it is away nobody knows: after a power cut others may be back before it, and an app runs nowhere then, nor in
    the middle of an upgrade.
    """
    return any(look.peer.id == owner for look in looked)
