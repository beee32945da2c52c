"""Replacing a running app by another version of its flow, led by the app's owner.

    draining ──nothing waits anywhere──► ending ──all stopped──► adopting ──all nodes have it──► the next version begins
        └── given up: rows did not drain, or it failed ──► the old version goes on

While the app is **draining**, its sources are held and the old version processes the rows that are left; the upgrade
can still be revoked. Once nothing waits on any node, and nothing can come, the old version is **ended**, and every node
has the next one **adopt** its state. Each phase is written ahead of its steps, and each request repeated until it is
acknowledged, so any node, the owner included, may be killed at any moment.

An app that has failed cannot process its rows, nor can one with a part that cannot be opened, or with a sink whose
target is away. The next version then takes over the queued rows, if its structure is the same up to the sinks: that is
how a function or a sink is mended.
"""

import asyncio
import datetime as dt
import logging
import time
from typing import TYPE_CHECKING, Final

import msgspec

from headwater.client.app_options import options_in_common
from headwater.client.flow_text import built, read_flow
from headwater.client.questions import Adopt, HoldApp, QuestionKind, UpgradeHere
from headwater.client.requests import FlowTold, PartLine, StatusTold, UpgradeTold
from headwater.control.app_spec import app_spec
from headwater.control.messages.app_messages import AppSpec, Placed
from headwater.control.messages.events import AppSubmitted
from headwater.control.owner.succession_placement import carried_homes
from headwater.dataflow.graph import Graph
from headwater.dataflow.manifest import Manifest, manifest_of
from headwater.dataflow.succession import Succession, succession, takes_rows_of
from headwater.engine.status import AppState
from headwater.links.refusals import Reason
from headwater.model.errors import HeadwaterError
from headwater.model.peers import Peer
from headwater.runtime.service.questioner import LOOK_S, QuestionRefused, Silent
from headwater.runtime.service.records import OwnedRecord, UpgradePhase, Upgrading
from headwater.security.identity import Identity, Role

if TYPE_CHECKING:
    from headwater.runtime.service.service import NodeService

log = logging.getLogger(__name__)

LOOK_AGAIN_S: Final = 0.25
STEP_AGAIN_S: Final = 10.0  # after a mistake of ours, which may come again
ADOPTED_WITHIN_S: Final = 600.0  # as long as instances wait for a host that is away (`keeper_silence_max`)


class Upgrades:
    """The upgrades of one owner's apps."""

    def __init__(self, node: "NodeService") -> None:
        self._node = node
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def go_on(self) -> None:
        """Resume the upgrades that were in progress when this node was stopped."""
        for owned in self._node.keeping.owned.values():
            if owned.upgrading is not None:
                self._lead(owned)

    def _lead(self, owned: OwnedRecord) -> None:
        task = asyncio.get_running_loop().create_task(self._replace_or_tell(owned))
        self._tasks[owned.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(owned.id, None))

    async def stop(self) -> None:
        """Stop leading; a restart resumes each upgrade."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def may_end(self, owned: OwnedRecord) -> bool:
        """Whether an app can be ended now; this revokes an upgrade that is still draining."""
        if owned.upgrading is None:
            return True
        if owned.upgrading.phase is not UpgradePhase.DRAINING:
            return False
        task = self._tasks.get(owned.id)
        if task is not None:
            task.cancel()
        owned.upgrading = None
        return True

    # --- what was said ------------------------------------------------------------------------------------------------

    def flow_told(self, app: str, wish: bytes) -> FlowTold:
        """Return an app's flow to a user who may replace it, and who signs all of the new one, changed or not."""
        owned = self._node.ownership.find(app)
        signer = self._node.trust.asked(app, wish, dt.datetime.now(dt.UTC))
        self._refuse_others(owned, signer, "its flow is asked for by")
        return FlowTold(owned.name, owned.spec.flow)

    # --- beginning ----------------------------------------------------------------------------------------------------

    async def begin(self, wanted: UpgradeHere) -> UpgradeTold:
        """Check that a version can replace an app, then begin to, unless `only_check` is set."""
        ownership = self._node.ownership
        owned = ownership.find(wanted.app)
        self._refuse_busy(owned)
        trust = self._node.trust
        arrived, signer = trust.arrived(wanted.flow)
        self._refuse_others(owned, signer, "the new version is signed by")
        after, before = read_flow(arrived), read_flow(trust.kept(owned.spec.flow).flow)
        if after.name != before.name:
            raise ownership.refused(
                f"the new version is of flow {after.name!r}, not of {before.name!r}", "keep the name"
            )
        parts, silent = await ownership.parts(owned)
        if silent:
            raise ownership.refused(
                f"rows and state of {owned.name} are also on {', '.join(silent)}, which is silent", "start it first"
            )
        plan, kept = await asyncio.to_thread(self._plan, owned, wanted, parts)
        nodes = {part.node for part in parts}
        await asyncio.gather(
            *(self._ask(peer, _adopt(owned, plan, only_check=True)) for peer in owned.nodes if peer.address in nodes)
        )
        self._refuse_busy(owned)  # another request may have begun meanwhile
        if not wanted.only_check:
            owned.upgrading, owned.note = plan, ""
            self._node.keeping.keep(owned)
            log.info("%s is being replaced by version %d", owned.id, owned.version + 1)
            self._lead(owned)
        return UpgradeTold(
            owned.name,
            owned.id,
            "" if wanted.only_check else plan.spec.name,
            owned.version + 1,
            kept.kept,
            kept.begun,
            kept.given_up,
            plan.takes_rows,
            options_in_common(before, after),
        )

    def _refuse_busy(self, owned: OwnedRecord) -> None:
        if owned.is_ending or owned.upgrading is not None:
            what = f"{owned.name} is being ended or upgraded already"
            raise self._node.ownership.refused(what, "wait until that is done")

    def _refuse_others(self, owned: OwnedRecord, signer: Identity | None, what: str) -> None:
        """Refuse a signer who neither submitted the app nor may operate all; the node that asks does not matter."""
        if signer is not None and not signer.role.includes(Role.OPERATE) and signer.name != owned.submitter:
            self._node.wire.refused(Reason.ROLE, str(signer), f"{owned.id} was submitted by {owned.submitter}")
            raise self._node.ownership.refused(
                f"{owned.name} was submitted by {owned.submitter!r}, and {what} {signer.name!r}",
                "ask for a certificate with the role 'operate'",
            )

    async def _ask(self, peer: Peer, question: QuestionKind) -> None:
        await self._node.asking.ask(peer, question)

    def _plan(self, owned: OwnedRecord, wanted: UpgradeHere, parts: list[PartLine]) -> tuple[Upgrading, Succession]:
        flows, trust = self._node.settings.flows, self._node.trust
        fingerprint, before = self._before(owned)
        with built(wanted.flow, flows, trust.arrived) as after:
            self._node.engine.check_code(after)
        kept = succession(owned.name, before, manifest_of(after), wanted.given_up)
        has_failed = any(part.state == AppState.FAILED for part in parts)
        can_take = takes_rows_of(fingerprint, after, kept)
        if has_failed and not can_take:
            raise self._node.ownership.refused(
                f"{owned.name} has failed, so the rows that wait for it cannot be let through, and only a version of "
                "the same structure can take them",
                "mend what failed and change nothing else but sinks, then upgrade it again (with --discard NAME rows "
                "that wait for a sink go to the new one of that name); or stop it, and submit it anew",
            )
        takes_rows = can_take and (has_failed or any(part.troubles for part in parts))
        homes = _homes(owned, after, kept, takes_rows=takes_rows)
        spec = self._spec(owned, wanted, after, kept)
        names = tuple(after.sources)
        return Upgrading(spec, names, homes, kept.given_up, takes_rows, wanted.patience_s, can_take=can_take), kept

    def _homes_now(self, owned: OwnedRecord, plan: Upgrading) -> tuple[Placed, ...]:
        """Return the homes of the next version's instances, by where those of the old one are placed now."""
        _, before = self._before(owned)
        with built(plan.spec.flow, self._node.settings.flows, self._node.trust.kept) as after:
            pass
        kept = succession(owned.name, before, manifest_of(after), plan.given_up)
        return _homes(owned, after, kept, takes_rows=plan.takes_rows)

    def _before(self, owned: OwnedRecord) -> tuple[str, Manifest]:
        """Return an app's structure and manifest, from the registry if it is there: the flow may not build any more."""
        record = self._node.engine.registry.find(owned.id)
        if record is not None and record.manifest is not None:
            return record.fingerprint, record.manifest
        with built(owned.spec.flow, self._node.settings.flows, self._node.trust.kept) as graph:
            return graph.fingerprint, manifest_of(graph)

    def _spec(self, owned: OwnedRecord, wanted: UpgradeHere, after: Graph, kept: Succession) -> AppSpec:
        """Return the spec of the next version: a source whose position is kept stays on its node."""
        ownership = self._node.ownership
        ownership.refuse_unknown(wanted.at, after.sources, after.name)
        before = dict(zip(owned.source_names, owned.spec.sources, strict=True))
        places = []
        for name in after.sources:
            at = wanted.at.get(name)
            if name in kept.kept and at is not None and at.id != before[name].id:
                raise ownership.refused(
                    f"source {name!r} goes on where it stands, on {before[name].address}",
                    f"leave out --at {name}=..., or give up its position with --discard {name}",
                )
            places.append(before[name] if name in kept.kept else at or self._node.own)
        spec = app_spec(after, places, wanted.flow, owned.spec.key)
        return msgspec.structs.replace(spec, name=self._node.new_id(owned.name))

    # --- step by step -------------------------------------------------------------------------------------------------

    async def _replace_or_tell(self, owned: OwnedRecord) -> None:
        """Replace it; a step that fails by a mistake of ours is taken back, or if it is too late for that, again."""
        while True:
            try:
                await self._replace(owned)
                return
            except Exception as mistake:
                self._node.mistakes.note("a step of an upgrade", mistake)
                if owned.upgrading is None:
                    return
                if owned.upgrading.phase is UpgradePhase.DRAINING:  # sources must not stay held for it
                    await self._give_up(owned, str(mistake))
                    return
                owned.note = f"a step of it has failed, and is taken again ({type(mistake).__name__}: {mistake})"
                await asyncio.sleep(STEP_AGAIN_S)

    async def _replace(self, owned: OwnedRecord) -> None:
        plan = owned.upgrading
        assert plan is not None
        if plan.phase is UpgradePhase.DRAINING:
            try:
                why = await self._drained(owned, plan)
                plan.homes = await asyncio.to_thread(self._homes_now, owned, plan)
            except HeadwaterError as failure:
                why = str(failure)
            if why:
                await self._give_up(owned, why)
                return
            self._reach(owned, UpgradePhase.ENDING)
        if plan.phase is UpgradePhase.ENDING:
            await self._node.end(owned.id).wait()
            self._reach(owned, UpgradePhase.ADOPTING)
        away = await self._adopted(owned, plan)
        await self._succeed(owned, plan, away)

    def _reach(self, owned: OwnedRecord, phase: UpgradePhase) -> None:
        assert owned.upgrading is not None
        owned.upgrading.phase = phase
        self._node.keeping.keep(owned)
        log.info("%s: the upgrade is %s", owned.id, phase)

    async def _drained(self, owned: OwnedRecord, plan: Upgrading) -> str:
        """Hold all sources and wait until no row waits anywhere; return why that is not possible, if it is not.

        One look is not a consistent snapshot. But if nothing can enter from outside, and no counter has changed
        anywhere between two looks, then nothing was on its way between nodes either.
        """
        gives_up = time.monotonic() + plan.patience_s
        before: int | None = None
        while True:
            are_held = await self._hold_all(owned, is_held=True)
            status = await self._node.ownership.status(owned.id)
            if plan.takes_rows and are_held and not status.silent:
                return ""
            if not plan.takes_rows and any(part.state == AppState.FAILED for part in status.parts):
                return f"it failed before all rows were through ({'; '.join(status.errors)})"
            is_quiet = are_held and _is_quiet(status) and _has_arrived(owned, status)
            is_still = status.activity == before and not plan.takes_rows
            if is_still and is_quiet:
                return ""
            waits_for_sinks = plan.can_take and are_held and not status.silent and _waits_for_sinks(owned, status)
            if is_still and waits_for_sinks:
                plan.takes_rows = True
                return ""
            if time.monotonic() > gives_up:
                return _hindrance(status, plan.patience_s)
            before = status.activity if is_quiet or waits_for_sinks else None
            await asyncio.sleep(LOOK_AGAIN_S)

    async def _hold_all(self, owned: OwnedRecord, *, is_held: bool) -> bool:
        """Have all nodes hold an app, or release it; return whether all nodes with a part of it have done so."""
        nodes, wanted = owned.nodes, HoldApp(owned.id, is_held)
        told = await asyncio.gather(
            *(self._node.asking.ask(peer, wanted, LOOK_S) for peer in nodes), return_exceptions=True
        )
        failed = {peer.id for peer, one in zip(nodes, told, strict=True) if isinstance(one, BaseException)}
        return failed.isdisjoint(peer.id for peer in _needed(owned))

    async def _give_up(self, owned: OwnedRecord, why: str) -> None:
        """Let the old version go on; a node that misses this finds out by its garbage collection."""
        owned.upgrading = None
        owned.note = f"the upgrade was given up: {why}; version {owned.version} goes on"
        self._node.keeping.keep(owned)
        log.warning("%s: %s", owned.id, owned.note)
        await self._hold_all(owned, is_held=False)

    async def _adopted(self, owned: OwnedRecord, plan: Upgrading) -> set[Peer]:
        """Have every node pass its part to the next version; return the nodes that have not.

        Waits up to `ADOPTED_WITHIN_S` for nodes that hold required state, and skips the others.
        """
        gives_up = time.monotonic() + ADOPTED_WITHIN_S
        needed, waited = {peer.id for peer in _needed(owned)}, list(owned.nodes)
        away: set[Peer] = set()
        while waited:
            told = await asyncio.gather(*(self._adopts(peer, owned, plan) for peer in waited))
            lacking = {peer: why for peer, why in zip(waited, told, strict=True) if why}
            away = (away - set(waited)) | set(lacking)
            waited = [peer for peer in lacking if peer.id in needed]
            owned.note = "; ".join(f"{peer.address}: {lacking[peer]}" for peer in waited)
            if waited and time.monotonic() > gives_up:
                log.error("%s goes on without what is on: %s", owned.id, owned.note)
                break
            await asyncio.sleep(LOOK_AGAIN_S if waited else 0)
        return away

    async def _adopts(self, peer: Peer, owned: OwnedRecord, plan: Upgrading) -> str:
        """Return why a node has not done so yet; empty: it has."""
        try:
            await self._node.asking.ask(peer, _adopt(owned, plan))
        except QuestionRefused as refusal:
            return refusal.what  # the address is put before it already
        except HeadwaterError as failure:  # our own node's failures arrive as they are
            return "is silent" if isinstance(failure, Silent) else str(failure)
        return ""

    async def _succeed(self, owned: OwnedRecord, plan: Upgrading, away: set[Peer]) -> None:
        node = self._node
        successor = OwnedRecord(
            plan.spec,
            owned.name,
            owned.submitter,
            plan.source_names,
            plan.homes,
            has_run=bool(plan.homes),
            accounts=owned.accounts if plan.takes_rows else {},
            version=owned.version + 1,
            nodes=owned.nodes,
            note=f"took the place of version {owned.version}",
        )
        successor.note_nodes()
        node.keeping.succeed(owned.id, successor)
        log.info("%s %s", successor.id, successor.note)
        node.handle(AppSubmitted(successor.spec, successor.placed, successor.has_run))
        await node.directory.publish(node.ownership.whereabouts(successor), owned.id)
        await node.ownership.forgotten(owned, away)


def _needed(owned: OwnedRecord) -> tuple[Peer, ...]:
    """Return the nodes that hold an app's sources and instances."""
    return (*owned.spec.sources, *(placed.host for placed in owned.placed))


def _adopt(owned: OwnedRecord, plan: Upgrading, *, only_check: bool = False) -> Adopt:
    spec = plan.spec
    return Adopt(spec.name, spec.key, spec.flow, owned.id, plan.given_up, plan.takes_rows, only_check)


def _homes(owned: OwnedRecord, after: Graph, kept: Succession, *, takes_rows: bool) -> tuple[Placed, ...]:
    if takes_rows:
        return owned.placed
    return carried_homes(owned.spec, after, kept, {one.instance: one for one in owned.placed})


def _has_arrived(owned: OwnedRecord, status: StatusTold) -> bool:
    """Whether every migrating instance has arrived at its new host."""
    moved = [one for one in owned.placed if one.whence is not None]
    return all(status.homes.get(str(one.instance)) == one.host.address for one in moved)


def _is_quiet(status: StatusTold) -> bool:
    """Whether no row waits anywhere, as far as this one look shows."""
    idle = all(part.is_idle and part.is_held for part in status.parts)
    return idle and not status.silent and status.waiting == 0 and status.is_balanced


def _waits_for_sinks(owned: OwnedRecord, status: StatusTold) -> bool:
    """Whether all rows that wait are in queues of sinks, which do not take them."""
    numbers = {str(number) for number, chain in enumerate(owned.spec.chains) if not chain.operators}
    held = sum(sink.waiting for part in status.parts for sink in part.sinks)
    outside = sum(rows for part in status.parts for number, rows in part.leaving.items() if number in numbers)
    return status.is_balanced and status.waiting == held + outside > 0


def _hindrance(status: StatusTold, patience_s: float) -> str:
    """Return what kept the rows from draining in time."""
    if status.silent:
        return f"{', '.join(status.silent)} was silent for {patience_s:g} s"
    lacking = f" ({'; '.join(status.errors)})" if status.errors else ""
    if status.waiting or status.is_balanced or lacking:
        return f"{status.waiting:,} rows still waited after {patience_s:g} s{lacking}"
    return f"after {patience_s:g} s the ledger did not balance, so rows are on a node that is away, or lost"
