"""The apps that were submitted to this node, which is their owner: it answers for each until the app has ended.

The owner is the root of the app's tree, and has recorded every node with a part of the app, so for a status it asks
exactly those. It asks directly, not along the tree: the answer lists each part, so there is nothing to sum up on the
way, and a host need not be a member of the tree.
"""

import asyncio
import logging
from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from headwater.client.flow_text import built, read_flow
from headwater.client.questions import (
    Forget,
    NameHere,
    NameTold,
    PartHere,
    PartTold,
    SubmitHere,
    Whereabouts,
)
from headwater.client.requests import ExplainTold, OwnedLine, PartLine, StatusTold, Submitted
from headwater.control.app_spec import app_spec
from headwater.control.messages.app_messages import AppSpec
from headwater.control.messages.events import AppSubmitted
from headwater.dataflow.explained import explained
from headwater.dataflow.graph import Graph
from headwater.engine.ledger import Ledger
from headwater.links.refusals import Reason
from headwater.links.requests import RequestRefused
from headwater.links.speech import Refusal
from headwater.model.errors import HeadwaterError
from headwater.model.peers import NodeId, Peer
from headwater.runtime.service.app_status import settled, status_told
from headwater.runtime.service.questioner import LOOK_S, QuestionRefused, Silent
from headwater.runtime.service.records import OwnedRecord
from headwater.workers.clock import now_us

if TYPE_CHECKING:
    from headwater.runtime.service.service import NodeService

log = logging.getLogger(__name__)

ACCOUNTS_MAX: Final = 10_000  # of nodes that left, for one app
ACCOUNT_BYTES_MAX: Final = 4 << 10  # of one: some numbers, and reasons for which rows were dropped
END_S: Final = 35.0  # that a user who stops an app waits for it, before they hear what is in the way
CLAIMS_MAX: Final = 3  # of a name: the first meets an app that has ended, the second another that was quicker


class Ownership:
    """The apps of one owner."""

    def __init__(self, node: "NodeService") -> None:
        self._node = node
        self.end_s = END_S
        self._taking: set[str] = set()  # names of apps that are being built
        self._silent_since: dict[NodeId, int] = {}  # of nodes that did not answer when they were last asked

    def find(self, app: str) -> OwnedRecord:
        """Return an app of this owner by its name or id."""
        owned = self._node.keeping.owned
        found = owned.get(app) or next((one for one in owned.values() if one.name == app), None)
        if found is None:
            raise self.refused(f"there is no app {app!r} here", "`headwater apps` lists them")
        return found

    def refused(self, what: str, remedy: str) -> RequestRefused:
        """Return a refusal in this node's name."""
        return RequestRefused(Refusal(what, self._node.own.address, remedy))

    # --- beginning and end --------------------------------------------------------------------------------------------

    async def take(self, wanted: SubmitHere) -> Submitted:
        """Become the owner of an app: build it once as a check, record it, and have a steward found for it."""
        node = self._node
        flow, signer = node.trust.arrived(wanted.flow)
        if node.keeping.is_draining or node.has_left:
            raise self.refused("this node is to leave for good", "submit to another")
        name = read_flow(flow).app
        if self.has_name(name):
            raise self.taken(name)
        self._taking.add(name)
        try:
            spec, names = await asyncio.to_thread(self._spec, wanted, node.new_id(name))
            owned = OwnedRecord(spec, name, wanted.submitter if signer is None else signer.name, names)
            await self._claim(self.whereabouts(owned))
            node.keeping.keep(owned)
        finally:
            self._taking.discard(name)
        node.handle(AppSubmitted(spec))
        return Submitted(name, owned.id, node.own.address)

    def has_name(self, name: str) -> bool:
        """Whether an app of this owner has the name, or one being submitted."""
        return name in self._taking or self._is_kept(name)

    def names(self) -> list[str]:
        """Return the names of this owner's apps, with those being submitted, in order."""
        return sorted(self._taking | {owned.name for owned in self._node.keeping.owned.values()})

    def _is_kept(self, name: str) -> bool:
        return any(owned.name == name for owned in self._node.keeping.owned.values())

    def taken(self, name: str) -> RequestRefused:
        """Return the refusal of a name that another app has."""
        return self.refused(
            f"there is an app {name!r} already", "stop it first, or give this one another name (--name)"
        )

    async def _claim(self, app: Whereabouts) -> None:
        """Claim the name of a new app in the directory; raises if another app has it.

        The directory does not hear of an app's end, so an entry whose owner says that the app has ended is replaced. If
        the directory is unreachable the app begins without a claim: being able to submit while nodes are away matters
        more than unique names, and ids still tell the apps apart.
        """
        ended = ""
        for _ in range(CLAIMS_MAX):
            holder = await self._node.directory.publish(app, ended)
            if holder is None or holder.id == app.id:
                return
            if await self.is_there(holder):
                break
            ended = holder.id
        raise self.taken(app.name)

    async def is_there(self, app: Whereabouts) -> bool:
        """Ask the owner whether an app in the directory still exists."""
        if app.owner.id == self._node.own.id:
            return self._is_kept(app.name)  # being submitted does not count: that may be this very request
        try:
            told: NameTold = await self._node.asking.ask(app.owner, NameHere(app.name), LOOK_S)
        except Silent:
            return True  # the owner may return, with the app
        return told.is_taken

    def _spec(self, wanted: SubmitHere, identity: str) -> tuple[AppSpec, tuple[str, ...]]:
        own = self._node.own
        with built(wanted.flow, self._node.settings.flows, self._node.trust.arrived) as graph:
            self.refuse_unknown(wanted.at, graph.sources, graph.name)
            self._node.engine.check_code(graph)
            sources = [wanted.at.get(name, own) for name in graph.sources]
            spec = app_spec(graph, sources, wanted.flow, NodeId(own.id))
            return msgspec.structs.replace(spec, name=identity), tuple(graph.sources)

    def refuse_unknown(self, at: Iterable[str], sources: Iterable[str], flow: str) -> None:
        """Refuse a place for a source that a flow does not have."""
        unknown = sorted(set(at) - set(sources))
        if unknown:
            raise self.refused(f"flow {flow!r} has no source {unknown[0]!r}", f"it has: {', '.join(sources)}")

    def of_another(self, name: str, submitter: str, user: str) -> RequestRefused:
        """Return the refusal of a change to another user's app."""
        return self.refused(
            f"{name} was submitted by {submitter!r}, not by {user!r}", "ask for a certificate with the role 'operate'"
        )

    async def end(self, app: str, whose: str) -> None:
        """End an app, and delete it on all nodes; a user (`whose`, empty for an operator) may end only their own."""
        owned = self.find(app)
        if whose not in ("", owned.submitter):
            self._node.wire.refused(Reason.ROLE, f"user {whose}", f"{owned.id} was submitted by {owned.submitter}")
            raise self.of_another(owned.name, owned.submitter, whose)
        if not self._node.upgrades.may_end(owned):
            raise self.refused(f"{owned.name} is being replaced by another version", "stop it when that is done")
        owned.is_ending = True  # before the first await, so that no upgrade can begin
        self._node.keeping.keep(owned)
        away = {peer for peer, told in (await self._ask_parts(owned)).items() if told is None}
        if owned.id in self._node.keeping.owned:  # else it was stopped twice, and has ended by now
            await self._ended(owned)
        await self.forgotten(owned, away)

    async def _ended(self, owned: OwnedRecord) -> None:
        """Wait until an app has ended everywhere; whoever asks for it hears after a while what is in the way."""
        try:
            async with asyncio.timeout(self.end_s):
                await self._node.end(owned.id).wait()
        except TimeoutError:
            told = await self._ask_parts(owned)
            lacking = [
                f"{peer.address} {_how(one)}" for peer, one in told.items() if one is None or one.part is not None
            ]
            waits_for = ", ".join(lacking) or "no node says why"
            raise self.refused(
                f"{owned.name} is being stopped, and has not ended after {self.end_s:g} s: {waits_for}",
                f"nothing more has to be done, it ends as soon as that can be; `headwater status {owned.name}` tells",
            ) from None

    async def forgotten(self, owned: OwnedRecord, away: Container[Peer]) -> None:
        """Have every node delete its part of an app that has ended; one that is away does so when it is back."""
        asked = [peer for peer in owned.nodes if peer not in away]
        await asyncio.gather(*(self._node.asking.ask(peer, Forget(owned.id)) for peer in asked), return_exceptions=True)

    def keep_account(self, app: str, leaves: Peer, store: str, ledger: Ledger) -> None:
        """Record the ledger of a node that leaves for good, and ask that node no more."""
        owned = self._node.keeping.owned.get(app)
        if len(msgspec.msgpack.encode(ledger)) > ACCOUNT_BYTES_MAX:
            self._node.wire.refused(Reason.UNUSABLE, str(leaves), f"its account of {app} is too long")
            raise self.refused(f"the account of {app} is too long", f"at most {ACCOUNT_BYTES_MAX} bytes are kept")
        if owned is None:
            return
        is_new = any(peer.id == leaves.id for peer in owned.nodes) and len(owned.accounts) < ACCOUNTS_MAX
        if is_new or store in owned.accounts:  # told again, if the answer was lost
            owned.accounts = {**owned.accounts, store: ledger}
            owned.nodes = tuple(peer for peer in owned.nodes if peer.id != leaves.id)
            self._node.keeping.keep(owned)

    # --- telling ------------------------------------------------------------------------------------------------------

    def whereabouts(self, owned: OwnedRecord) -> Whereabouts:
        """Return the directory entry of an app."""
        return Whereabouts(owned.name, owned.id, self._node.own, owned.submitter)

    async def publish_all(self) -> None:
        """Publish the directory entries of all apps."""
        owned = list(self._node.keeping.owned.values())
        await asyncio.gather(*(self._node.directory.publish(self.whereabouts(one)) for one in owned))

    def line(self, owned: OwnedRecord) -> OwnedLine:
        """Return an app's line in a list."""
        upgrading = "" if owned.upgrading is None else str(owned.upgrading.phase)
        own = self._node.own
        return OwnedLine(
            owned.name,
            owned.id,
            own,
            owned.submitter,
            owned.has_run,
            owned.version,
            upgrading,
            owned.placed,
            owned.spec.sources,
        )

    async def parts(self, owned: OwnedRecord) -> tuple[list[PartLine], list[str]]:
        """Ask every node that may have a part of an app; return the parts, and which of its hosts are silent."""
        told = await self._ask_parts(owned)
        return _parts(told), sorted(_silent(told) & {peer.address for peer in owned.places})

    async def _ask_parts(self, owned: OwnedRecord) -> dict[Peer, PartTold | None]:
        nodes = owned.nodes  # a copy: it may be placed elsewhere during the await
        told = await asyncio.gather(*(self._part(owned.id, peer) for peer in nodes))
        return dict(zip(nodes, told, strict=True))

    async def _part(self, app: str, peer: Peer) -> PartTold | None:
        try:
            told: PartTold = await self._node.asking.ask(peer, PartHere(app), LOOK_S)
        except QuestionRefused:
            raise
        except HeadwaterError:
            self._silent_since.setdefault(peer.id, self._node.heard_us(peer) or now_us())
            return None
        self._silent_since.pop(peer.id, None)
        return told

    async def explained(self, app: str) -> ExplainTold:
        """Describe what an app's flow compiles to."""
        owned = self.find(app)
        graph = await asyncio.to_thread(self._graph, owned)
        return ExplainTold(
            **msgspec.structs.asdict(explained(graph)),
            app=owned.name,
            id=owned.id,
            version=owned.version,
            owner=self._node.own.address,
        )

    def _graph(self, owned: OwnedRecord) -> Graph:
        """Return the graph of an app: that of the part running here, or else a new build."""
        part = self._node.plant.parts.get(owned.id)
        if part is not None:
            return part.graph
        with built(owned.spec.flow, self._node.settings.flows, self._node.trust.kept) as graph:
            return graph

    async def status(self, app: str) -> StatusTold:
        """Tell how an app is, over all its nodes."""
        return await settled(lambda: self._look(app))

    async def _look(self, app: str) -> StatusTold:
        owned = self.find(app)
        told = await self._ask_parts(owned)
        rooms = {peer.address: one.room for peer, one in told.items() if one is not None}
        since = {peer.address: self._silent_since.get(peer.id, now_us()) for peer, one in told.items() if one is None}
        return status_told(owned, self._node.own.address, _parts(told), since, rooms)


def _how(told: PartTold | None) -> str:
    if told is None:
        return "is silent"
    assert told.part is not None
    return told.part.waits_for or "runs something of it still"


def _parts(told: Mapping[Peer, PartTold | None]) -> list[PartLine]:
    return [one.part for one in told.values() if one is not None and one.part is not None]


def _silent(told: Mapping[Peer, PartTold | None]) -> set[str]:
    return {peer.address for peer, one in told.items() if one is None}
