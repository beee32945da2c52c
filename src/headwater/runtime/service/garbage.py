"""Garbage collection: delete parts of apps that ended, or whose upgrade finished, while this node was down."""

import logging
from typing import TYPE_CHECKING

from headwater.client.questions import Looked
from headwater.model.peers import NodeId
from headwater.runtime.service.engine_shell import AppPart, HoldReason

if TYPE_CHECKING:
    from headwater.runtime.service.service import NodeService

log = logging.getLogger(__name__)


class Leftovers:
    """Looks from time to time at the parts of apps that do not run here."""

    def __init__(self, node: "NodeService") -> None:
        self._node = node

    async def look(self) -> None:
        """If there are such parts, ask all nodes about them and act on the answers."""
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
    """Whether an app's owner has answered, so that its not listing the app means that it has ended.

    While the owner is away this is unknown: after a power cut other nodes may return first, and an app runs on none of
    them then, nor in the middle of an upgrade.
    """
    return any(look.peer.id == owner for look in looked)
