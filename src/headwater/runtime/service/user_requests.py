"""How a node answers users.

A user may ask any node. What the node does not know itself it asks of the app's owner or, for lists, of all nodes.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final

from headwater.client.flow_text import read_flow
from headwater.client.questions import (
    DrainHere,
    EndHere,
    ExplainHere,
    FlowHere,
    Greet,
    Greeted,
    LogsHere,
    Looked,
    PartInShort,
    StatusHere,
    SubmitHere,
    UpgradeHere,
    Whereabouts,
)
from headwater.client.requests import (
    AppLine,
    AppsTold,
    Drain,
    DrainTold,
    DrainWish,
    ExplainApp,
    ExplainTold,
    FlowTold,
    GetFlow,
    GetLogs,
    GetStatus,
    ListApps,
    ListNodes,
    LogsTold,
    NodesTold,
    StatusTold,
    StopApp,
    Stopped,
    Submit,
    Submitted,
    UpgradeApp,
    UpgradeTold,
)
from headwater.client.signing import UntrustedFlow
from headwater.links.refusals import Reason
from headwater.links.requests import Caller, RequestRefused
from headwater.links.speech import Refusal
from headwater.model.peers import NodeId, Peer
from headwater.runtime.service.app_status import listed_state
from headwater.runtime.service.questioner import LOOK_S, Silent
from headwater.security.identity import Role

if TYPE_CHECKING:
    from headwater.runtime.service.service import NodeService


STATUS_S: Final = 3 * LOOK_S  # for an app's owner, which asks other nodes itself
ID_DIGITS_MIN: Final = 4  # by which a node may be called: fewer would soon mean several


class UserRequests:
    """One node's answers to users."""

    def __init__(self, node: "NodeService") -> None:
        self._node = node

    async def requested(self, caller: Caller, request: Any) -> Any:
        """Answer a user's request."""
        if not self._node.machine.is_active:
            raise self._refused("this node is not in the ring yet", "ask again in a moment, or another", may_pass=True)
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
            case ExplainApp(app):
                return await self._explain(app)
            case StopApp(app):
                return await self._stop(caller, app)
            case GetFlow(app, wish):
                return await self._flow(caller, app, wish)
            case UpgradeApp():
                return await self._upgrade(caller, request)
            case GetLogs():
                return await self._logs(request)
            case Drain(name, wish):
                return await self._drain(name, wish)
        raise AssertionError(request)

    def _refused(self, what: str, remedy: str, *, may_pass: bool = False) -> RequestRefused:
        return RequestRefused(Refusal(what, self._node.own.address, remedy, may_pass))

    async def _ask(self, peer: Peer, question: Any) -> Any:
        return await self._node.asking.ask(peer, question)

    async def _look_around(self) -> tuple[list[Looked], list[str]]:
        return await self._node.asking.look_around(self._node.machine.ring.known.leaves)

    # --- apps ---------------------------------------------------------------------------------------------------------

    async def _submit(self, caller: Caller, request: Submit) -> Submitted:
        """Choose the owner of an app, find the nodes of its sources, and hand it to the owner."""
        name = read_flow(self._brought(caller, request.flow)).app
        is_taken, at = await asyncio.gather(self._is_taken(name), self._places(request.at))
        if is_taken:
            raise self._node.ownership.taken(name)
        owner = self._node.own
        if request.zone not in ("", owner.zone):
            looked, _ = await self._look_around()
            owner = self._in_zone(request.zone, _staying(looked))
        answer: Submitted = await self._ask(owner, SubmitHere(request.flow, caller.name, at))
        return answer

    async def _is_taken(self, name: str) -> bool:
        """Whether the name is in use, as far as is known now; the owner claims it later, which decides."""
        known = await self._node.directory.find(name)
        return known is not None and await self._node.ownership.is_there(known)

    def _brought(self, caller: Caller, flow: bytes) -> bytes:
        """Return the flow that a user brings, which nobody else may have signed."""
        try:
            checked = self._node.trust.arrived(flow)
        except UntrustedFlow as refusal:
            self._node.wire.refused(Reason.UNTRUSTED_FLOW, caller.called, str(refusal))
            raise
        if checked.signer is not None and checked.signer.name != caller.name:
            self._node.wire.refused(Reason.UNTRUSTED_FLOW, caller.called, f"signed by {checked.signer}")
            raise self._refused(
                f"{caller.name!r} brings a flow that {checked.signer.name!r} has signed",
                "sign it with the certificate with which you come",
            )
        return checked.flow

    async def _places(self, at: dict[str, str]) -> dict[str, Peer]:
        """Return the nodes that a user means for sources; only if one is not known here, all are looked at."""
        places = sorted(set(at.values()))
        found = dict(zip(places, await asyncio.gather(*(self._known_place(place) for place in places)), strict=True))
        if None in found.values():
            looked, silent = await self._look_around()
            found = {place: peer or self._named(place, _staying(looked), silent) for place, peer in found.items()}
        return {source: peer for source, place in at.items() if (peer := found[place]) is not None}

    async def _known_place(self, place: str) -> Peer | None:
        """Return the node at an address, if it is known here, answers, and is not draining."""
        node = self._node
        known = [peer for peer in (node.own, *node.machine.ring.known.everybody()) if peer.address == place]
        if len({peer.id for peer in known}) != 1:
            return None
        try:
            told: Greeted = await node.asking.ask(known[0], Greet(), LOOK_S)
        except Silent:
            return None
        return None if told.is_draining else told.peer

    def _named(self, place: str, peers: list[Peer], silent: list[str]) -> Peer:
        """Return the node with an address, or with an id that begins so."""
        is_long = len(place) >= ID_DIGITS_MIN
        found = [peer for peer in peers if peer.address == place or (is_long and peer.id.hex().startswith(place))]
        if len(found) == 1:
            return found[0]
        why = "is silent" if place in silent else "is not known here" if not found else "may be one of several"
        remedy = "`headwater nodes` lists them"
        if not is_long:
            remedy = f"give its address, or at least the first {ID_DIGITS_MIN} digits of its id; {remedy}"
        raise self._refused(f"node {place!r} {why}", remedy)

    def _in_zone(self, zone: str, peers: list[Peer]) -> Peer:
        found = sorted(peer for peer in peers if peer.zone == zone)
        if not found:
            known = ", ".join(sorted({peer.zone for peer in peers}))
            raise self._refused(f"no node is in zone {zone!r}", f"there are: {known}")
        return found[0]

    async def _find(self, app: str) -> Whereabouts:
        """Return where the app with this name or id is."""
        known = await self._node.directory.find(app.partition("@")[0])
        if known is not None and app in (known.name, known.id):
            return known
        looked, silent = await self._look_around()
        lines = [line for look in looked for line in look.owned]
        for line in lines:
            if app in (line.name, line.id):
                return Whereabouts(line.name, line.id, line.owner, line.submitter)
        parts = [(look.peer.address, part) for look in looked for part in look.parts if part.is_open]
        on = [(address, part.owner) for address, part in parts if app in (part.id, part.id.partition("@")[0])]
        if on:
            raise self._away(app, f"node {on[0][1].hex()[:8]}", [address for address, _ in on])
        names = ", ".join(sorted({line.name for line in lines})) or "none"
        where = f"{len(silent)} nodes did not answer, and may know it" if silent else f"there are: {names}"
        raise self._refused(f"there is no app {app!r}", f"{where} (see `headwater apps --to NODE`)")

    async def _found_for(self, caller: Caller, app: str) -> Whereabouts:
        """Return where an app is that a user wants to change; only its submitter and operators may."""
        found = await self._find(app)
        if not caller.role.includes(Role.OPERATE) and caller.name != found.submitter:
            self._node.wire.refused(Reason.ROLE, caller.called, f"{found.id} was submitted by {found.submitter}")
            raise self._node.ownership.of_another(found.name, found.submitter, caller.name)
        return found

    async def _status(self, app: str) -> StatusTold:
        told: StatusTold = await self._ask_owner(app, StatusHere(app))
        return told

    async def _explain(self, app: str) -> ExplainTold:
        told: ExplainTold = await self._ask_owner(app, ExplainHere(app))
        return told

    async def _ask_owner(self, app: str, question: StatusHere | ExplainHere) -> Any:
        """Ask an app's owner; if it is silent, say which nodes go on without it."""
        found = await self._find(app)
        try:
            return await self._node.asking.ask(found.owner, question, STATUS_S)
        except Silent:
            looked, _ = await self._look_around()
            on = [look.peer.address for look in looked if any(part.id == found.id for part in look.parts)]
            raise self._away(found.name, found.owner.address, on) from None

    def _away(self, app: str, owner: str, on: list[str]) -> RequestRefused:
        goes_on = f"what is on {', '.join(on)} goes on" if on else "nothing of it is on any other node"
        what = f"{owner} answers for {app!r}, and does not answer; {goes_on}"
        return self._refused(what, f"start {owner} again: rows wait for it meanwhile", may_pass=True)

    async def _stop(self, caller: Caller, app: str) -> Stopped:
        found = await self._found_for(caller, app)
        await self._ask(found.owner, EndHere(app, "" if caller.role.includes(Role.OPERATE) else caller.name))
        return Stopped(found.name)

    async def _flow(self, caller: Caller, app: str, wish: bytes) -> FlowTold:
        found = await self._found_for(caller, app)
        told: FlowTold = await self._ask(found.owner, FlowHere(app, wish))
        return told

    async def _upgrade(self, caller: Caller, request: UpgradeApp) -> UpgradeTold:
        self._brought(caller, request.flow)
        found = await self._found_for(caller, request.app)
        at = await self._places(request.at)
        wanted = UpgradeHere(
            request.app, request.flow, request.given_up, at, request.patience_s, only_check=request.only_check
        )
        answer: UpgradeTold = await self._ask(found.owner, wanted)
        return answer

    # --- all nodes ----------------------------------------------------------------------------------------------------

    async def _apps(self) -> AppsTold:
        looked, silent = await self._look_around()
        there = {look.peer.id for look in looked}
        parts: dict[str, dict[NodeId, PartInShort]] = {}
        for look in looked:
            for part in look.parts:
                parts.setdefault(part.id, {})[look.peer.id] = part
        apps, unheard = [], set(silent)
        for one in (line for look in looked for line in look.owned):
            here = parts.pop(one.id, {})
            away = {peer.address for peer in one.places if peer.id not in there}
            unheard |= away
            state = listed_state(one, here, is_away=bool(away))
            apps.append(AppLine(one.name, one.id, one.owner.address, one.submitter, state, one.version, len(here)))
        others = [[part for part in here.values() if part.is_open] for here in parts.values()]  # unopened: unverified
        apps += [_without_owner(here) for here in others if here and here[0].owner not in there]
        return AppsTold(sorted(apps, key=lambda app: app.name), sorted(unheard))

    async def _drain(self, name: str, wish: DrainWish) -> DrainTold:
        looked, silent = await self._look_around()
        peer = self._named(name, [look.peer for look in looked], silent)
        told: DrainTold = await self._ask(peer, DrainHere(wish))
        return told

    async def _logs(self, request: GetLogs) -> LogsTold:
        looked, silent = await self._look_around()
        peers = [look.peer for look in looked]
        if request.node:
            one: LogsTold = await self._ask(self._named(request.node, peers, silent), LogsHere(request.lines))
            return one
        told, unheard = await self._node.asking.ask_all(peers, LogsHere(request.lines))
        lines = [line for one in told for line in one.lines]
        apart = {(line.at_us, line.text): line for line in reversed(lines)}  # nodes of one process share Spark's lines
        return LogsTold(sorted(apart.values(), key=lambda line: line.at_us)[-request.lines :], [*silent, *unheard])


def _without_owner(parts: list[PartInShort]) -> AppLine:
    """Return the line of an app whose owner is away; its instances elsewhere go on."""
    app = parts[0]
    return AppLine(app.id.partition("@")[0], app.id, f"{app.owner.hex()[:8]} (away)", "", "owner away", 0, len(parts))


def _staying(looked: list[Looked]) -> list[Peer]:
    """Return the nodes that are not draining."""
    return [look.peer for look in looked if not look.node.is_draining]
