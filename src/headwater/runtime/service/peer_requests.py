"""How a node answers requests of other nodes, which make them on behalf of their users."""

import asyncio
import logging
from typing import TYPE_CHECKING, assert_never

from headwater.client.questions import (
    Acknowledged,
    Adopt,
    AnswerKind,
    DrainHere,
    EndHere,
    ExplainHere,
    Find,
    FlowHere,
    Forget,
    Greet,
    Greeted,
    HoldApp,
    KeepAccount,
    LogsHere,
    Look,
    Looked,
    NameHere,
    NameTold,
    NodeRoom,
    PartHere,
    PartTold,
    Publish,
    QuestionKind,
    StatusHere,
    SubmitHere,
    UpgradeHere,
)
from headwater.client.requests import LogsTold, NodeLine, PartLine
from headwater.client.signing import UntrustedFlow
from headwater.links.refusals import Reason
from headwater.links.requests import RequestRefused
from headwater.links.speech import Refusal
from headwater.model.peers import Peer
from headwater.runtime.service.app_status import part_line, parts_in_short, unopened_line
from headwater.runtime.service.recent_log import recent_lines
from headwater.workers.clock import now_us

if TYPE_CHECKING:
    from headwater.runtime.service.service import NodeService

log = logging.getLogger(__name__)


class Replies:
    """One node's answers to other nodes."""

    def __init__(self, node: "NodeService") -> None:
        self._node = node

    async def answer(self, asker: Peer, question: QuestionKind) -> AnswerKind:
        """Answer another node; a flow without a trusted signature is reported as refused."""
        try:
            return await self._answer(asker, question)
        except UntrustedFlow as refusal:
            self._node.wire.refused(Reason.UNTRUSTED_FLOW, str(asker), str(refusal))
            raise

    async def _answer(self, asker: Peer, question: QuestionKind) -> AnswerKind:
        node = self._node
        match question:
            case Look():
                return await self.look()
            case Greet():
                return Greeted(node.own, node.keeping.is_draining)
            case Publish():
                return await node.directory.published(question)
            case Find():
                return await node.directory.sought(question)
            case NameHere(name):
                return NameTold(node.ownership.has_name(name))
            case SubmitHere():
                return await node.ownership.take(question)
            case StatusHere(app):
                return await node.ownership.status(app)
            case ExplainHere(app):
                return await node.ownership.explained(app)
            case PartHere(app):
                hosting = node.machine.hosting
                return PartTold(await self._part(app), NodeRoom(hosting.load, hosting.capacity))
            case EndHere(app, whose):
                await node.ownership.end(app, whose)
                return Acknowledged()
            case FlowHere(app, wish):
                return node.upgrades.flow_told(app, wish)
            case UpgradeHere():
                return await node.upgrades.begin(question)
            case LogsHere(lines):
                return LogsTold(recent_lines(node.own.address, node.voice, lines), [])
            case DrainHere(wish):
                return await node.draining.asked(wish)
            case KeepAccount(app, store, ledger):
                node.ownership.keep_account(app, asker, store, ledger)
                return Acknowledged()
            case Forget() | Adopt() | HoldApp():
                return await self._change(question)
        assert_never(question)

    async def _change(self, wanted: Forget | Adopt | HoldApp) -> Acknowledged:
        """Change this node's part of an app, after the effects that are queued already."""
        node = self._node
        match wanted:
            case Forget(app):
                if app in node.keeping.owned or self.runs(app):
                    raise RequestRefused(Refusal(f"{app} has not ended here", node.own.address, "stop it"))
                await node.in_turn(lambda: node.plant.forget(app))
            case HoldApp(app, is_held):
                await node.in_turn(lambda: node.holding.hold(app, is_held=is_held))
            case Adopt(only_check=True):
                await node.holding.check(wanted)
            case Adopt():
                await node.in_turn(lambda: node.holding.adopt(wanted))
        return Acknowledged()

    def runs(self, app: str) -> bool:
        """Whether anything of an app is to run here."""
        hosting = self._node.machine.hosting
        return any(name == app for name, _ in (*hosting.hosted, *hosting.sourced))

    async def look(self) -> Looked:
        """Describe this node and its parts of apps."""
        node = self._node
        parts = await asyncio.to_thread(parts_in_short, node.plant, list(node.plant.parts.values()))
        owned = node.keeping.owned.values()
        return Looked(
            node.own,
            tuple(node.machine.ring.known.leaves),
            self._node_line(),
            [node.ownership.line(one) for one in owned],
            [one.upgrading.spec.name for one in owned if one.upgrading is not None],
            parts,
            sorted({name for name, _ in (*node.machine.hosting.hosted, *node.machine.hosting.sourced)}),
        )

    def _node_line(self) -> NodeLine:
        node, machine = self._node, self._node.machine
        return NodeLine(
            node.own.id.hex(),
            node.own.address,
            node.own.zone,
            machine.hosting.load,
            node.config.capacity,
            len(node.plant.parts),
            node.wire.status().refused,
            node.engine.news,
            node.keeping.is_draining,
        )

    async def _part(self, app: str) -> PartLine | None:
        node, plant = self._node, self._node.plant
        part = plant.parts.get(app)
        if part is not None:
            above = [peer.address for peer in node.above(part.key)]
            return await asyncio.to_thread(part_line, plant, part, node.rates, node.own, above)
        troubles = plant.troubles.of(app, now_us())
        return unopened_line(node.own, plant.name.hex(), troubles) if troubles else None
