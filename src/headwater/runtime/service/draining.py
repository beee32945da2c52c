"""A node that leaves for good: its instances move elsewhere, and its ledgers stay with the owners of the apps.

The state machines move the instances (`control/host/migration.py`). This module decides whether a node may leave, and
when nothing is left on it. It asks the owners of the apps, who know where every instance is: a node restarted in the
middle does not know what others have yet to fetch from its store.
"""

import asyncio
import functools
import logging
from typing import TYPE_CHECKING, assert_never

from headwater.client.questions import KeepAccount, Looked
from headwater.client.requests import DrainTold, DrainWish, OwnedLine
from headwater.control.messages.events import DrainRevoked, DrainWanted
from headwater.control.messages.row_messages import RowsCut
from headwater.model.errors import HeadwaterError
from headwater.model.peers import Peer
from headwater.runtime.service.engine_shell import AppPart, HoldReason
from headwater.runtime.service.garbage import has_answered

if TYPE_CHECKING:
    from headwater.runtime.service.service import NodeService

log = logging.getLogger(__name__)


class Draining:
    """One node's leaving."""

    def __init__(self, node: "NodeService") -> None:
        self._node = node
        self._leaving: asyncio.Task[None] | None = None
        self.done = asyncio.Event()  # nothing is left here, and this node has left the ring
        self.waits_for = ""

    async def asked(self, wish: DrainWish) -> DrainTold:
        """Begin to leave, revoke that, or only report progress."""
        match wish:
            case DrainWish.LEAVE:
                return await self.begin()
            case DrainWish.STAY:
                return self.stay()
            case DrainWish.TELL:
                return self.told()
        assert_never(wish)

    async def begin(self) -> DrainTold:
        """Begin to move everything elsewhere, then leave; raises if something here cannot move."""
        node = self._node
        if not node.keeping.is_draining and not node.has_left:
            await self._check()
            node.keeping.drain(True)
            log.info("this node is to leave for good: what runs here moves elsewhere")
            node.handle(DrainWanted())
        return self.told()

    def stay(self) -> DrainTold:
        """Revoke the drain; what has moved stays where it is. Raises once the store is being deleted.

        The owners count this store's ledger as that of a node that has left, so it must not be used again under its
        name.
        """
        node = self._node
        if node.has_left or node.keeping.is_clearing:
            raise HeadwaterError(
                f"all that was at {node.own.address} is with others, and it ends: start it again, and it is a new node"
            )
        if node.keeping.is_draining:
            if self._leaving is not None:
                self._leaving.cancel()
            node.keeping.drain(False)
            self.waits_for = ""
            log.info("this node is to stay after all")
            node.handle(DrainRevoked())
        return self.told()

    async def _check(self) -> None:
        """Refuse if this node owns an app or reads a source, or if the owner of an app with a part here is silent."""
        node = self._node
        if not node.machine.ring.known.leaves:
            raise HeadwaterError(f"{node.own.address} knows no other node that could take what runs there")
        looked, _ = await node.asking.look_around(node.machine.ring.known.leaves)
        owned = node.ownership.names()  # from here to the end there is no await, so no further app can come
        if owned:
            raise HeadwaterError(
                f"{', '.join(owned)} were submitted to {node.own.address}, and their sinks are there: stop them, or "
                "submit them to another node, before this one can leave for good"
            )
        read = self._read_here(looked)
        if read:
            raise HeadwaterError(
                f"sources of {', '.join(read)} are read at {node.own.address}, where their devices are: stop these "
                "apps, or submit them with their sources elsewhere, before this node can leave for good"
            )
        away = sorted(_name(part.id) for part in node.plant.parts.values() if not has_answered(part.key, looked))
        if away:
            raise HeadwaterError(
                f"something of {', '.join(away)} is at {node.own.address}, and the nodes that answer for these apps do "
                "not answer: start them first, since nobody else knows whether it is needed"
            )

    def _read_here(self, looked: list[Looked]) -> list[str]:
        """Name the apps with a source here; right after a restart only their owners know."""
        own = self._node.own
        told = {line.name for look in looked for line in look.owned if _reads_at(line, own)}
        return sorted(told | {_name(app) for app, _ in self._node.machine.hosting.sourced})

    def told(self) -> DrainTold:
        """Report what is left."""
        node = self._node
        left = sorted(f"{app} {number}" for app, number in node.machine.hosting.hosted)
        is_leaving = node.keeping.is_draining or node.has_left
        kept = self._kept_by() if is_leaving else ""
        held = kept or self.waits_for
        waits_for = node.engine.workforce.waits_for if left else held  # rows run out here before they move
        return DrainTold(node.own.address, left, waits_for, is_leaving)

    def _kept_by(self) -> str:
        """Say what here can never move; something may have come in the moment in which the drain began."""
        submitted, read = self._node.ownership.names(), self._read_here([])
        if submitted:
            return f"{', '.join(submitted)} were submitted there: stop these apps, or let it stay (--cancel)"
        return _held_by(read) if read else ""

    def nothing_runs(self) -> None:
        """Leave if nothing here is needed by others; does nothing while this node is outside the ring."""
        is_looking = self._leaving is not None and not self._leaving.done()
        if self._node.machine.is_active and not is_looking:
            self._leaving = asyncio.get_running_loop().create_task(self._leave())

    async def _leave(self) -> None:
        node = self._node
        try:
            looked, silent = await node.asking.look_around(node.machine.ring.known.leaves)
            needed = self._needed(looked, silent)
            if needed:
                self._wait_for(needed)
                return
            await self._give_accounts(looked)
            await self._clear_out()
            node.leave()
            self.done.set()
        except HeadwaterError as failure:
            self._wait_for(str(failure))
        except Exception as mistake:  # ours; it is tried again when the machines say again that nothing runs here
            node.mistakes.note("the leaving of this node", mistake)
            self._wait_for(f"a mistake of Headwater's ({type(mistake).__name__}: {mistake}); see its log")

    def _wait_for(self, what: str) -> None:
        if what != self.waits_for:
            log.info("waiting before leaving: %s", what)
        self.waits_for = what

    def _needed(self, looked: list[Looked], silent: list[str]) -> str:
        """Say what in this store is needed, or may be; empty if nothing."""
        plant = self._node.plant
        if kept := self._kept_by():
            return kept
        unopened = sorted(set(plant.troubles.apps()) - set(plant.parts))
        if unopened:
            return (
                f"{', '.join(unopened)} cannot be opened here, so what they keep cannot move; stop them, or mend that"
            )
        held = sorted(app for app, part in plant.parts.items() if part.kept.hold is not HoldReason.NONE)
        if held:
            return f"{', '.join(held)} are being upgraded"
        if silent:
            return f"{', '.join(silent)} do not answer, and may own apps of which something is here"
        owned = _owned(looked)
        needs = (self._need_of(part, owned.get(app), looked) for app, part in plant.parts.items())
        return next((need for need in needs if need), "")

    def _need_of(self, part: AppPart, owned: OwnedLine | None, looked: list[Looked]) -> str:
        """Say what of an app is needed here; only its owner knows, and it may be away."""
        if owned is None:
            is_over = has_answered(part.key, looked)
            return "" if is_over else f"the owner of {_name(part.id)} is away, and may need what is here of it"
        if _reads_at(owned, self._node.own):
            return _held_by([owned.name])
        lots = self._node.plant.lots(part)
        needed = [one for one, lot in lots.items() if _is_needed(owned, one, lot)]
        if needed:
            return f"instances {needed} of {owned.name} have yet to be fetched by other nodes"
        return self._doubt_of(owned, looked)

    def _doubt_of(self, owned: OwnedLine, looked: list[Looked]) -> str:
        """Tell who has rows of an app that may have been taken here, before this node was passed over as lost.

        Who still takes it for the host of what others run by now is told, since from then on it sends nothing here.
        """
        own = self._node.own
        cuts = {one.instance: one.cuts for one in owned.placed}
        asking = set()
        for look in looked:
            for part in (part for part in look.parts if part.id == owned.id and look.peer.id != own.id):
                behind = part.unsettled.behind(own.id, cuts)
                for number in behind:
                    self._node.wire.send(look.peer.address, RowsCut(own, owned.id, number, cuts[number]))
                if behind or own.id in part.unsettled.hosts:
                    asking.add(look.peer.address)
        where = ", ".join(sorted(asking))
        return (
            f"rows of {owned.name} at {where} may have been taken here, which only this node can say" if asking else ""
        )

    async def _give_accounts(self, looked: list[Looked]) -> None:
        """Give the ledger of each app that has a part here to its owner."""
        node, owned = self._node, _owned(looked)
        for app, part in list(node.plant.parts.items()):
            if app in owned:
                ledger = await asyncio.to_thread(node.engine.ledger, part.app)
                await node.asking.ask(owned[app].owner, KeepAccount(app, node.plant.name.hex(), ledger))

    async def _clear_out(self) -> None:
        """Delete everything in the store. The drain cannot be revoked after this."""
        node = self._node
        node.keeping.clear()
        for app in list(node.plant.parts):
            await node.in_turn(functools.partial(node.plant.forget, app))
        node.plant.forget_name()
        node.keeping.drain(False)


def _name(app: str) -> str:
    """Return the app's name, which is the first part of its id."""
    return app.partition("@")[0]


def _held_by(apps: list[str]) -> str:
    return f"sources of {', '.join(apps)} are read there: stop these apps, or let it stay (--cancel)"


def _owned(looked: list[Looked]) -> dict[str, OwnedLine]:
    return {line.id: line for look in looked for line in look.owned}


def _reads_at(app: OwnedLine, node: Peer) -> bool:
    return any(peer.id == node.id for peer in app.sources)


def _is_needed(owned: OwnedLine, instance: int, lot: tuple[int, int]) -> bool:
    return any(lot in one.lots() for one in owned.placed if one.instance == instance)
