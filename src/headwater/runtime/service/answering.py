"""How a node answers users, and other nodes who ask on behalf of theirs.

A user asks any node. What it does not know itself it asks of the others; what another has to do (only the node that an
app was submitted to can end it) it asks of that one.
"""

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final, assert_never

import msgspec

from headwater.engine.ledger import Ledger
from headwater.model.peers import NodeId, Peer
from headwater.node.events import AppSubmitted
from headwater.node.messages import AppSpec
from headwater.node.specs import app_spec
from headwater.runtime.identity import Role
from headwater.runtime.links.requests import Caller, RequestRefused
from headwater.runtime.links.speech import Refusal
from headwater.runtime.logs import TextLines
from headwater.runtime.service.flow_text import built, read_flow
from headwater.runtime.service.keeping import Owned
from headwater.runtime.service.looking import owned_app, part_line, status_told, unopened_line
from headwater.runtime.service.requests import (
    LOG_LINES_MAX,
    AnswerKind,
    AppLine,
    AppsTold,
    Done,
    Drain,
    DrainHere,
    DrainTold,
    EndHere,
    Forget,
    GetLogs,
    GetStatus,
    KeepAccount,
    ListApps,
    ListNodes,
    LogLine,
    LogsHere,
    LogsTold,
    Look,
    Looked,
    NodeLine,
    NodesTold,
    OwnedLine,
    PartLine,
    QuestionKind,
    StatusTold,
    StopApp,
    Stopped,
    Submit,
    SubmitHere,
    Submitted,
)

if TYPE_CHECKING:
    from headwater.runtime.service.service import NodeService

log = logging.getLogger(__name__)

ACCOUNTS_MAX: Final = 10_000  # of nodes that left, for one app


class Desk:
    """Where one node answers."""

    def __init__(self, node: "NodeService") -> None:
        """Answer for this node."""
        self._node = node

    # --- users --------------------------------------------------------------------------------------------------------

    async def requested(self, caller: Caller, request: Any) -> Any:
        """Answer a user's request."""
        if not self._node.machine.is_active:
            raise self._refused("this node is not in the ring yet", "ask again in a moment, or another node")
        match request:
            case Submit():
                return await self._submit(caller, request)
            case ListApps():
                return await self._apps()
            case ListNodes():
                looked, silent = await self._look_around()
                return NodesTold(sorted((one.node for one in looked), key=lambda one: one.address), silent)
            case GetStatus(app):
                return await self._status(app)
            case StopApp(app):
                return await self._stop(caller, app)
            case GetLogs():
                return await self._logs(request)
            case Drain(name):
                return await self._drain(name)
        raise AssertionError(request)

    def _refused(self, what: str, remedy: str) -> RequestRefused:
        return RequestRefused(Refusal(what, self._node.own.address, remedy))

    async def _look_around(self, app: str = "") -> tuple[list[Looked], list[str]]:
        return await self._node.asking.look_around(self._node.machine.ring.known.leaves, app)

    async def _submit(self, caller: Caller, request: Submit) -> Submitted:
        """Find the node that is to answer for an app, and those at which its sources are; then have it run."""
        text = read_flow(request.flow)
        looked, silent = await self._look_around()
        if any(owned.name == text.app for look in looked for owned in look.owned):
            raise self._refused(
                f"there is an app {text.app!r} already", "stop it first, or give this one another name (--name)"
            )
        peers = [look.peer for look in looked if not look.node.is_draining]
        at = {source: self._named(place, peers, silent) for source, place in request.at.items()}
        owner = self._node.own if not request.zone else self._in_zone(request.zone, peers)
        answer: Submitted = await self._node.asking.ask(owner, SubmitHere(request.flow, caller.name, at))
        return answer

    def _named(self, place: str, peers: list[Peer], silent: list[str]) -> Peer:
        """Return the node that a user means by an address, or by the first digits of an id."""
        found = [
            peer for peer in peers if peer.address == place or (len(place) >= 4 and peer.id.hex().startswith(place))
        ]
        if len(found) == 1:
            return found[0]
        why = "is silent" if place in silent else "is not known here" if not found else "may be one of several"
        raise self._refused(f"node {place!r} {why}", "`headwater nodes` lists them")

    def _in_zone(self, zone: str, peers: list[Peer]) -> Peer:
        if self._node.own.zone == zone:
            return self._node.own
        found = sorted(peer for peer in peers if peer.zone == zone)
        if not found:
            known = ", ".join(sorted({peer.zone for peer in peers}))
            raise self._refused(f"no node is in zone {zone!r}", f"there are: {known}")
        return found[0]

    async def _apps(self) -> AppsTold:
        looked, silent = await self._look_around()
        apps = [
            AppLine(
                one.name,
                one.id,
                one.owner.address,
                one.submitter,
                "running" if one.runs else "deploying",
                sum(one.id in look.parts for look in looked),
            )
            for owner in looked
            for one in owner.owned
        ]
        return AppsTold(sorted(apps, key=lambda app: app.name), silent)

    async def _status(self, name: str) -> StatusTold:
        looked, silent = await self._look_around()
        app = owned_app(name, looked, silent, self._node.own.address)
        looked, silent = await self._look_around(app.id)
        return status_told(owned_app(app.id, looked, silent, self._node.own.address), looked, silent)

    async def _stop(self, caller: Caller, name: str) -> Stopped:
        looked, silent = await self._look_around()
        app = owned_app(name, looked, silent, self._node.own.address)
        if not caller.role.includes(Role.OPERATE) and caller.name != app.submitter:
            raise self._refused(
                f"{app.name} was submitted by {app.submitter!r}, not by {caller.name!r}",
                "ask for a certificate with the role 'operate'",
            )
        await self._node.asking.ask(app.owner, EndHere(app.id))
        await asyncio.gather(
            *(self._node.asking.ask(look.peer, Forget(app.id)) for look in looked), return_exceptions=True
        )
        return Stopped(app.name)

    async def _drain(self, name: str) -> DrainTold:
        looked, silent = await self._look_around()
        peer = self._named(name, [look.peer for look in looked], silent)
        told: DrainTold = await self._node.asking.ask(peer, DrainHere())
        return told

    async def _logs(self, request: GetLogs) -> LogsTold:
        looked, silent = await self._look_around()
        peers = [look.peer for look in looked]
        if request.node:
            peers = [self._named(request.node, peers, silent)]
        told = await asyncio.gather(
            *(self._node.asking.ask(peer, LogsHere(request.lines)) for peer in peers), return_exceptions=True
        )
        lines = [line for one in told if isinstance(one, LogsTold) for line in one.lines]
        return LogsTold(sorted(lines, key=lambda line: line.at_us)[-request.lines :], silent)

    # --- nodes --------------------------------------------------------------------------------------------------------

    async def answer(self, asker: Peer, question: QuestionKind) -> AnswerKind:
        """Answer another node."""
        match question:
            case Look(app):
                return await self._look(app)
            case SubmitHere():
                return await self._take(question)
            case EndHere(app):
                if app in self._node.keeping.owned:
                    await self._node.end(app).wait()
                return Done()
            case Forget(app):
                if app in self._node.keeping.owned or self._runs(app):
                    raise self._refused(f"{app} has not ended here", "stop it")
                await self._node.forget(app)
                return Done()
            case LogsHere(lines):
                return LogsTold(recent_lines(self._node.own.address, lines), [])
            case DrainHere():
                return self._node.draining.begin()
            case KeepAccount(app, store, ledger):
                return self._keep_account(app, store, ledger)
        assert_never(question)

    def _keep_account(self, app: str, store: str, ledger: Ledger) -> Done:
        owned = self._node.keeping.owned.get(app)
        if owned is not None and (store in owned.accounts or len(owned.accounts) < ACCOUNTS_MAX):
            owned.accounts[store] = ledger
            self._node.keeping.keep(owned)
        return Done()

    def _runs(self, app: str) -> bool:
        hosting = self._node.machine.hosting
        return any(name == app for name, _ in (*hosting.hosted, *hosting.sourced))

    async def forget_orphans(self) -> None:
        """Delete what is here of apps that ended while this node was away: nobody owns them, and they run nowhere."""
        node = self._node
        idle = [app for app in node.plant.parts if app not in node.keeping.owned and not self._runs(app)]
        if not idle or not node.machine.is_active:
            return
        looked, silent = await self._look_around()
        wanted = {app for look in looked for app in (*look.runs, *(owned.id for owned in look.owned))}
        for app in idle:
            if app not in wanted and not silent and not self._runs(app):
                log.info("%s has ended, and what was left of it here is deleted", app)
                await node.forget(app)

    async def _look(self, app: str) -> Looked:
        node = self._node
        return Looked(
            node.own,
            tuple(node.machine.ring.known.leaves),
            self._node_line(),
            [self._owned_line(owned) for owned in node.keeping.owned.values()],
            sorted({*node.plant.parts, *node.plant.troubles}),
            sorted({name for name, _ in (*node.machine.hosting.hosted, *node.machine.hosting.sourced)}),
            await self._part_line(app) if app else None,
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
            tuple(node.engine.notes),
            node.keeping.is_draining,
        )

    def _owned_line(self, owned: Owned) -> OwnedLine:
        return OwnedLine(
            owned.name,
            owned.spec.name,
            self._node.own,
            owned.submitter,
            owned.has_run,
            {name: peer.address for name, peer in zip(owned.source_names, owned.spec.sources, strict=True)},
            owned.placed,
            owned.accounts,
        )

    async def _part_line(self, app: str) -> PartLine | None:
        plant, address = self._node.plant, self._node.own.address
        part = plant.parts.get(app)
        if part is not None:
            return await asyncio.to_thread(part_line, plant, part, self._node.rates, address)
        return unopened_line(address, plant.troubles[app]) if app in plant.troubles else None

    async def _take(self, wanted: SubmitHere) -> Submitted:
        """Answer for an app from now on: build it once to see that it can be, and have a steward found for it."""
        node = self._node
        if node.keeping.is_draining:
            raise self._refused("this node is to leave for good", "submit to another")
        text = read_flow(wanted.flow)
        identity = node.new_id(text.app)
        spec, names = await asyncio.to_thread(self._spec, wanted, identity)
        node.keeping.keep(Owned(spec, text.app, wanted.submitter, names))
        node.handle(AppSubmitted(spec))
        return Submitted(text.app, identity, node.own.address)

    def _spec(self, wanted: SubmitHere, identity: str) -> tuple[AppSpec, tuple[str, ...]]:
        own = self._node.own
        with built(wanted.flow, self._node.settings.flows) as graph:
            unknown = sorted(set(wanted.at) - set(graph.sources))
            if unknown:
                known = ", ".join(graph.sources)
                raise self._refused(f"flow {graph.name!r} has no source {unknown[0]!r}", f"it has: {known}")
            self._node.engine.check_spark(graph)
            sources = [wanted.at.get(name, own) for name in graph.sources]
            spec = app_spec(graph, sources, wanted.flow, NodeId(own.id))
            return msgspec.structs.replace(spec, name=identity), tuple(graph.sources)


# --- the log ----------------------------------------------------------------------------------------------------------


class _RecentLines(logging.Handler):
    """The last lines of the log, in memory."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.records: deque[logging.LogRecord] = deque(maxlen=LOG_LINES_MAX)

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


_recent: Final = _RecentLines()


def remember_log() -> None:
    """Keep the last lines of this process's log, for those who ask for them."""
    ours = logging.getLogger("headwater")
    if _recent not in ours.handlers:
        ours.addHandler(_recent)
        ours.setLevel(logging.INFO)


def recent_lines(node: str, count: int) -> list[LogLine]:
    """Return the last lines."""
    form = TextLines()
    return [
        LogLine(node, int(record.created * 1e6), record.levelname.lower(), form.format(record)[:2_000])
        for record in list(_recent.records)[-count:]
    ]
