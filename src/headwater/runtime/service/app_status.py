"""What a node tells of its part of an app: plain figures, with rates of the last seconds."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from headwater.client.questions import NodeRoom, PartInShort
from headwater.client.requests import (
    InstanceLine,
    OwnedLine,
    PartLine,
    SinkLine,
    SourceLine,
    StatusTold,
)
from headwater.control.host.instances import room_taken
from headwater.control.messages.app_messages import ChainSpec, Placed
from headwater.dataflow.connectors import told_by
from headwater.engine.cuts import Unsettled, unsettled
from headwater.engine.ledger import Ledger, whole_ledger
from headwater.engine.queues import Queue
from headwater.engine.status import AppState
from headwater.model.ids import AppId, InstanceId
from headwater.model.peers import NodeId, Peer
from headwater.model.quoting import abridged
from headwater.model.time import SECOND
from headwater.runtime.node_status import latency_of
from headwater.runtime.service.engine_shell import AppPart, EngineShell
from headwater.runtime.service.records import OwnedRecord, UpgradePhase
from headwater.runtime.sinks import SinkTask
from headwater.runtime.sources import SourceTask
from headwater.workers.clock import now_us

SPAN: Final = 5 * SECOND  # over which a rate is taken
LOOKS_MAX: Final = 3  # of an app whose rows move while it is read; one look in hundreds needs a second

Place = tuple[str, int]  # an app's id; an instance, or (negative) a source


@dataclass(slots=True)
class Rates:
    """Rows per second through every instance and source, over the last one or two spans."""

    _before: tuple[int, dict[Place, int]] = (0, {})
    _last: tuple[int, dict[Place, int]] = (0, {})
    _now: Callable[[], int] = field(default=now_us)

    def sample(self, plant: EngineShell) -> None:
        """Record the counts, once per span."""
        now = self._now()
        if now - self._last[0] >= SPAN:
            counts = {(part.id, place): rows for part in plant.parts.values() for place, rows in _counts(plant, part)}
            self._before, self._last = self._last, (now, counts)

    def of(self, place: Place, rows: int) -> float:
        """Return the rate of a place, given its count now."""
        since, counts = self._before if place in self._before[1] else self._last
        elapsed_s = (self._now() - since) / SECOND
        return 0.0 if place not in counts or elapsed_s <= 0 else (rows - counts[place]) / elapsed_s


def _counts(plant: EngineShell, part: AppPart) -> Iterator[tuple[int, int]]:
    for number, source in part.sources.items():
        yield -1 - number, source.rows
    for number in part.here:
        queue = _queue(plant, part, number)
        if queue is not None:
            yield number, queue.taken_rows


def _queue(plant: EngineShell, part: AppPart, number: int) -> Queue | None:
    return plant.engine.dispatcher.scheduler.queues.find(InstanceId(part.app.id, number))


def part_line(plant: EngineShell, part: AppPart, rates: Rates, own: Peer, above: list[str]) -> PartLine:
    """Describe this node's part of an app. Not on the event loop: the ledger is read from the store."""
    queues = {number: _queue(plant, part, number) for number in range(part.graph.instance_count)}
    found = {number: queue for number, queue in queues.items() if queue is not None}
    return PartLine(
        node=own.address,
        zone=own.zone,
        state=str(part.app.state),
        error="" if part.app.error is None else str(part.app.error),
        above=above,
        troubles=plant.troubles.of(part.id, now_us()),
        sources=[
            *(_source(part, number, task, rates) for number, task in sorted(part.sources.items())),
            *(_held_source(part, number) for number in sorted(part.to_read) if part.is_held),
        ],
        instances=[
            _instance(part, number, found[number], rates)
            for number in sorted(part.here & set(found))
            if part.sink_name(number) is None
        ],
        sinks=[_sink(part, task, found[task.instance.number], rates) for task in part.app.sinks],
        leaving={
            str(number): queue.waiting
            for number, queue in found.items()
            if number not in part.here and queue.waiting > 0
        },
        ledger=plant.engine.ledger(part.app),
        is_idle=_is_idle(plant, part),
        is_held=part.is_held,
        activity=sum(one.put_rows + one.taken_rows + one.put_marks + one.taken_marks for one in found.values()),
        store=plant.name.hex(),
        waits_for=plant.engine.workforce.waits_for if _computes(part) else "",
    )


def _computes(part: AppPart) -> bool:
    """Whether workers are needed for what is here of an app: sources and sinks do without."""
    return any(part.sink_name(number) is None for number in tuple(part.here))


def unopened_line(own: Peer, store: str, troubles: list[str]) -> PartLine:
    """Describe an app that should run here but could not be opened."""
    return PartLine(
        node=own.address,
        zone=own.zone,
        state=str(AppState.RUNNING),
        error="",
        above=[],
        troubles=troubles,
        sources=[],
        instances=[],
        sinks=[],
        leaving={},
        ledger=Ledger(0, 0, 0, 0, 0),
        is_idle=False,
        is_held=False,
        activity=0,
        store=store,
    )


def _is_idle(plant: EngineShell, part: AppPart) -> bool:
    return part.app.id not in _busy_apps(plant) and all(task.ended for task in part.sources.values())


def _busy_apps(plant: EngineShell) -> set[AppId]:
    dispatcher = plant.engine.dispatcher
    busy: set[AppId] = dispatcher.ask(
        lambda: {
            queue.instance.app
            for queue in dispatcher.scheduler.queues.all()
            if queue.has_work or queue.runs_on is not None
        }
    )
    return busy


def parts_in_short(plant: EngineShell, parts: list[AppPart]) -> list[PartInShort]:
    """Summarise every app that has a part here. Not on the event loop: the scheduler is asked."""
    busy = _busy_apps(plant) if parts else set()
    troubled = plant.troubles.apps()
    is_waiting = bool(plant.engine.workforce.waits_for)
    told = {
        part.id: _in_short(
            plant,
            part,
            is_busy=part.app.id in busy,
            is_troubled=part.id in troubled or (is_waiting and _computes(part)),
        )
        for part in parts
    }
    unopened = {
        app: PartInShort(app, NodeId(wanted.key), 0, False, is_troubled=True, is_idle=False, is_open=False)
        for app, wanted in troubled.items()
    }
    return [one for _, one in sorted((unopened | told).items())]


def _in_short(plant: EngineShell, part: AppPart, *, is_busy: bool, is_troubled: bool) -> PartInShort:
    left = _unsettled(plant, part)
    has_ended = all(task.ended for task in list(part.sources.values()))
    return PartInShort(
        part.id,
        part.key,
        len(part.sources),
        has_failed=part.app.state is AppState.FAILED,
        is_troubled=is_troubled,
        is_idle=has_ended and not is_busy and not left.hosts,
        is_open=True,
        unsettled=left,
    )


def _unsettled(plant: EngineShell, part: AppPart) -> Unsettled:
    with plant.store.read() as snapshot:
        return unsettled(snapshot, part.app.id, set(range(part.graph.instance_count)) - part.here)


def _source(part: AppPart, number: int, task: SourceTask, rates: Rates) -> SourceLine:
    rate = rates.of((part.id, -1 - number), task.rows)
    told = abridged(told_by(task.reader))
    return SourceLine(task.name, task.spec.kind, task.spec.guarantee, task.rows, rate, _source_state(task), told)


def _source_state(task: SourceTask) -> str:
    if task.ended:
        return "ended" if task.is_exhausted else "stopped"
    return "paused" if task.paused else "reading"


def _held_source(part: AppPart, number: int) -> SourceLine:
    name = part.source_name(number)
    spec = part.graph.sources[name]
    return SourceLine(name, spec.kind, spec.guarantee, 0, 0.0, "held")


def _instance(part: AppPart, number: int, queue: Queue, rates: Rates) -> InstanceLine:
    chain = next(chain for chain in part.graph.chains if number in chain.instances)
    rate = rates.of((part.id, number), queue.taken_rows)
    return InstanceLine(number, chain.name, queue.totals.rows_in, queue.totals.rows_out, queue.waiting, rate)


def _sink(part: AppPart, task: SinkTask, queue: Queue, rates: Rates) -> SinkLine:
    number = task.instance.number
    rate = rates.of((part.id, number), queue.taken_rows)
    return SinkLine(
        number,
        task.name,
        task.spec.kind,
        task.spec.guarantee,
        task.rows,
        queue.waiting,
        rate,
        latency_of([task.recent]),
        abridged(told_by(task.writer)),
    )


# --- over all nodes ---------------------------------------------------------------------------------------------------


async def settled(look: Callable[[], Awaitable[StatusTold]]) -> StatusTold:
    """Ask for an app's status until its ledger balances, at most `LOOKS_MAX` times.

    The nodes' answers are not a consistent snapshot: a batch on its way between two nodes is counted twice or not at
    all.
    """
    told = await look()
    for _ in range(LOOKS_MAX - 1):
        if told.is_balanced or told.silent or told.unaccounted:
            break
        told = await look()
    return told


def status_told(
    app: OwnedRecord,
    owner: str,
    parts: list[PartLine],
    silent: Mapping[str, int],
    rooms: Mapping[str, NodeRoom] | None = None,
) -> StatusTold:
    """Put together what all nodes tell of an app; `silent` are those who do not answer, and since when.

    A silent node on which nothing is placed any more is reported only if the ledger does not balance without it.
    """
    stores = {part.store for part in parts}
    left = [account for store, account in app.accounts.items() if store not in stores]
    ledger = whole_ledger([*(part.ledger for part in parts), *left])
    away = silent.keys() & {peer.address for peer in app.places}
    unaccounted = set() if ledger.balanced else silent.keys() - away
    is_whole = not away and not unaccounted
    waiting = ledger.waiting
    if not is_whole or waiting < 0:  # entries sent between nodes cancel out only if both ends have answered
        waiting = sum(part.ledger.waiting for part in parts)
    here = {number: part.node for part in parts for number in _numbers(part)}
    missing = _missing(app, parts, {node: silent[node] for node in away}, rooms or {})
    errors = [f"{part.node}: {part.error}" for part in parts if part.error]
    troubles = [f"{part.node}: {why}" for part in parts for why in (*part.troubles, part.waits_for) if why]
    return StatusTold(
        name=app.name,
        id=app.id,
        version=app.version,
        owner=owner,
        submitter=app.submitter,
        state=_state(app, parts, missing, is_away=bool(away), is_out=is_whole and ledger.waiting == 0),
        errors=[*errors, *troubles],
        notes=[*_notes(app, waiting), *_lost(app, {node: silent[node] for node in unaccounted})],
        parts=parts,
        homes={str(number): here[number] for number in sorted(here)},
        missing=missing,
        rows_in=ledger.rows_in,
        rows_out=ledger.rows_out,
        waiting=waiting,
        ledger=replace(ledger, waiting=waiting),
        is_balanced=ledger.balanced,
        activity=sum(part.activity for part in parts),
        silent=sorted(away),
        unaccounted=sorted(unaccounted),
    )


def _numbers(part: PartLine) -> Iterator[int]:
    yield from (line.number for line in part.instances)
    yield from (line.number for line in part.sinks)


def _missing(
    app: OwnedRecord, parts: list[PartLine], away: Mapping[str, int], rooms: Mapping[str, NodeRoom]
) -> list[str]:
    """Name what is not where it should be; an instance that no row has needed yet is nowhere, as it should be.

    An instance that is migrating may be on neither node for a moment; its rows wait, so it is not missing either.
    """
    by_node = {part.node: part for part in parts}
    here = {number for part in parts for number in _numbers(part)}
    lacking = [
        f"source {name} on {peer.address}"
        for name, peer in zip(app.source_names, app.spec.sources, strict=True)
        if not _reads(by_node.get(peer.address), name)
    ]
    unheard = [
        f"{_called(chain, one.instance)} on {one.host.address}{_why(app, one, away, rooms)}"
        for one in sorted(app.placed, key=lambda one: one.instance)
        for chain in (app.spec.chains[one.instance],)
        if one.host.address in away or (one.instance not in here and one.whence is None)
    ]
    if not app.placed:
        return [*lacking, "no instance is placed yet"]
    placed = {one.instance for one in app.placed}
    unplaced = [
        f"{_called(chain, number)}, which has no place yet"
        for number, chain in enumerate(app.spec.chains)
        if number not in placed and not chain.on_demand
    ]
    return [*lacking, *unplaced, *unheard]


def _called(chain: ChainSpec, number: int) -> str:
    return f"instance {number} ({chain.name})" if chain.operators else f"sink {chain.name}"


def _why(app: OwnedRecord, placed: Placed, away: Mapping[str, int], rooms: Mapping[str, NodeRoom]) -> str:
    """Say why an instance is not where it should be, and what becomes of it."""
    chain, host = app.spec.chains[placed.instance], placed.host.address
    if host not in away:
        return _if_full(chain, rooms.get(host))
    since = f", which has been silent since {_clock(away[host])}"
    if not app.has_run:
        return since
    if chain.is_stateless:
        return f"{since}: it is being placed elsewhere"
    what = "what it has written" if not chain.operators else "its state"
    return f"{since}: {what} is there, so its rows wait for that node"


def _lost(app: OwnedRecord, unaccounted: Mapping[str, int]) -> list[str]:
    """Tell of instances that went on elsewhere without what lies on the nodes that had them."""
    return [
        f"rows of {_called(app.spec.chains[one.instance], one.instance)} that lie on {cut.host.address}, or were under "
        f"way there, wait for that node, which has been silent since {_clock(unaccounted[cut.host.address])}"
        for one in app.placed
        for cut in one.cuts
        if cut.host.address in unaccounted
    ]


def _clock(at_us: int) -> str:
    return f"{datetime.fromtimestamp(at_us / SECOND, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _if_full(chain: ChainSpec, room: NodeRoom | None) -> str:
    """Explain a placement that a node refuses for lack of capacity."""
    if room is None or not chain.operators or room.load + room_taken(chain.operators, room.capacity) <= room.capacity:
        return ""
    return (
        f", which has no room for its {chain.operators} operators ({room.load} of {room.capacity} run there): stop an "
        "app, start another node, or give one more --capacity"
    )


def _reads(part: PartLine | None, source: str) -> bool:
    return part is not None and any(line.name == source for line in part.sources)


def _state(app: OwnedRecord, parts: list[PartLine], missing: list[str], *, is_away: bool, is_out: bool) -> str:
    return state_word(
        is_upgrading=app.upgrading is not None,
        has_failed=any(part.state == AppState.FAILED for part in parts),
        is_away=app.has_run and is_away,
        is_troubled=any(part.troubles or part.waits_for for part in parts),
        runs=app.has_run and not missing,
        is_idle=is_out and all(part.is_idle for part in parts),
    )


def listed_state(app: OwnedLine, told: Mapping[NodeId, PartInShort], *, is_away: bool) -> str:
    """Return the state of an app from the short answers of its nodes; `is_away` if some did not answer."""
    parts = told.values()
    is_read = sum(part.sources for part in parts) >= len(app.sources)
    return state_word(
        is_upgrading=bool(app.upgrading),
        has_failed=any(part.has_failed for part in parts),
        is_away=app.runs and is_away,
        is_troubled=any(part.is_troubled for part in parts),
        runs=app.runs and is_read and all(peer.id in told for peer in app.places),
        is_idle=all(part.is_idle for part in parts),
    )


def state_word(
    *, is_upgrading: bool, has_failed: bool, is_away: bool, is_troubled: bool, runs: bool, is_idle: bool
) -> str:
    """Return the state of an app in a word; "nodes away" comes first, since what waits at a silent node is unknown."""
    if is_upgrading:
        return "upgrading"
    if has_failed:
        return "failed"
    if is_away:
        return "nodes away"
    if is_troubled:
        return "troubled"
    if not runs:
        return "deploying"
    return "finished" if is_idle else "running"


def _notes(app: OwnedRecord, waiting: int) -> list[str]:
    """Describe the progress of an upgrade, or the result of the last one."""
    upgrade = app.upgrading
    if upgrade is None and app.is_ending:
        return ["it is being stopped, and deleted on all nodes"]
    if upgrade is None:
        return [app.note] if app.note else []
    words = {
        UpgradePhase.DRAINING: f"its sources are held, and {waiting:,} rows have yet to be through",
        UpgradePhase.ENDING: "its rows are through, and it is being stopped",
        UpgradePhase.ADOPTING: "nodes bring what it keeps to where the next version looks for it",
    }
    told = f"version {app.version + 1} takes its place: {words[upgrade.phase]}"
    return [told, app.note] if app.note else [told]
