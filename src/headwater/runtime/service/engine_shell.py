"""A node's engine as the state machines of `control` see it: apps with some of their instances, sources and sinks here.

Effects are carried out one after the other, on the event loop that drives the state machines; only what may take long
(to import a user's file, to connect to a broker) runs on another thread. Results return as events. InstanceOpened comes
before workers may take the instance's rows, and InstanceClosed after they have stopped, so that workers and the wire
never take from one queue at the same time.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from headwater.client.flow_text import built, forget_app
from headwater.client.signing import Check, Trust
from headwater.control.messages.events import (
    AppClosed,
    AppOpened,
    AwaitInstance,
    EmptyInstance,
    InstanceClosed,
    InstanceOpened,
    NodeEvent,
    NoteRowsGone,
    NoteRowsPut,
    RowsWaited,
    StartInstance,
    StopInstance,
)
from headwater.dataflow.graph import Graph
from headwater.engine.channels import ORIGIN_BYTES, make_outbox, make_outboxes
from headwater.engine.events import AppQuieted, InstanceGained, InstanceGivenUp, RowsGone, RowsPut, WakeWanted
from headwater.engine.moving import all_lots, begin_under
from headwater.engine.plans import ChainPlan, plan_chain, source_outlets
from headwater.engine.pressure import room_left
from headwater.engine.queue_loading import wake_us_of
from headwater.engine.queue_records import QueueRecord
from headwater.engine.schemas import Schemas
from headwater.model.errors import HeadwaterError
from headwater.model.ids import AppId, InstanceId
from headwater.model.peers import NodeId
from headwater.model.store_contract import Store, Transaction
from headwater.model.store_layout import FLOW_PREFIX, NAME_KEY
from headwater.model.terms import Lot
from headwater.runtime.app import NodeApp
from headwater.runtime.node import Node
from headwater.runtime.service.awaited import refuse_awaited
from headwater.runtime.service.start_retries import Place, Troubles
from headwater.runtime.sinks import open_sink
from headwater.runtime.sources import SourceTask, open_source
from headwater.workers.clock import now_us

log = logging.getLogger(__name__)

ROOM_SHARE: Final = 8  # of the memory for waiting rows: how much of it one app may fill with rows from other nodes
ROOM_BYTES_MIN: Final = 16 << 20  # however little memory there is: the longest message must fit in the end


class HoldReason(StrEnum):
    """Why a part of an app does not run normally. Garbage collection spares a part that is held for any reason."""

    NONE = ""
    HELD = "held"  # sources and timers are stopped: an upgrade waits for the rows to drain
    ADOPTED = "adopted"  # the next version of an app, not begun yet


class KeptFlow(msgspec.Struct, frozen=True, array_like=True):
    """An app with a part here, as the store records it."""

    id: str
    key: bytes
    flow: bytes
    hold: HoldReason = HoldReason.NONE

    def keep(self, txn: Transaction) -> None:
        """Write it to the store."""
        txn.put(flow_key(self.id), msgspec.msgpack.encode(self))


Startable = StartInstance | AwaitInstance | KeptFlow  # what is retried if it cannot be started


@dataclass(slots=True)
class AppPart:
    """This node's part of an app."""

    id: str
    key: NodeId
    app: NodeApp
    kept: KeptFlow
    here: set[int] = field(default_factory=set)
    sources: dict[int, SourceTask] = field(default_factory=dict)  # by number among the sources
    to_read: dict[int, StartInstance] = field(default_factory=dict)  # sources to read once it is not held
    emptying: set[int] = field(default_factory=set)  # instances that run only until their queue is empty
    _plans: dict[int, ChainPlan] = field(default_factory=dict)

    @property
    def graph(self) -> Graph:
        return self.app.graph

    @property
    def is_held(self) -> bool:
        """Whether an upgrade has stopped its sources."""
        return self.kept.hold is HoldReason.HELD

    def plan(self, number: int) -> ChainPlan | None:
        """Return the plan of an instance; None if the number is a sink's."""
        chain = next((chain for chain in self.graph.chains if number in chain.instances), None)
        if chain is None:
            return None
        if number not in self._plans:
            self._plans[number] = plan_chain(self.graph, self.app.id, chain)
        return self._plans[number]

    def sink_name(self, number: int) -> str | None:
        """Return the name of the sink whose queue has this number."""
        return next((sink.name for sink in self.graph.sinks if sink.instance == number), None)

    def declared(self, name: str) -> int:
        """Return the place of a source or sink among the declarations."""
        return [one.name for one in self.graph.declarations].index(name)

    def source_name(self, number: int) -> str:
        """Return the name of a source by its number."""
        return list(self.graph.sources)[number]

    def has(self, instance: int) -> bool:
        """Whether the flow has an instance, or (negative) a source, of this number."""
        return -len(self.graph.sources) <= instance < self.graph.instance_count

    def called(self, instance: int) -> str:
        """Return the name of an instance, or (negative) of a source, in messages."""
        if instance < 0:
            return f"source {self.source_name(-1 - instance)!r}"
        sink = self.sink_name(instance)
        return f"instance {instance}" if sink is None else f"sink {sink!r}"


class EngineShell:
    """One node's engine. All methods run on the node's event loop, but for `rows_passed`."""

    store: Store

    def __init__(self, engine: Node, flows: Path, trust: Trust, tell: Callable[[NodeEvent], None]) -> None:
        """Wrap a running engine; `tell` takes events for the state machines, `flows` is the folder for source texts."""
        self.engine, self.store = engine, engine.store
        self.schemas = Schemas()
        self.name = self._own_name()
        self.parts: dict[str, AppPart] = {}
        self.troubles: Troubles[Startable] = Troubles(lambda wanted: len(wanted.flow))
        self._tell, self.flows, self.trust = tell, flows, trust
        self._loop = asyncio.get_running_loop()
        self._by_number: dict[AppId, AppPart] = {}
        self._sinks_here: set[InstanceId] = set()
        self._passed: set[InstanceId] = set()
        self._passing = threading.Lock()

    def _own_name(self) -> bytes:
        with self.store.write() as txn:
            name = txn.get(NAME_KEY) or os.urandom(ORIGIN_BYTES)
            txn.put(NAME_KEY, name)
        return bytes(name)

    def room_bytes(self, app: AppId) -> int:
        """Return how many bytes an app's queues may still take."""
        queues, room = self.engine.dispatcher.scheduler.queues, self.engine.config.pressure.memory_bytes // ROOM_SHARE
        return room_left(queues, app, self._by_number[app].here, max(ROOM_BYTES_MIN, room))

    def plan(self, instance: InstanceId) -> ChainPlan | None:
        """Return the plan of an instance; None if it is a sink's queue, or its app is not open."""
        part = self._by_number.get(instance.app)
        return None if part is None else part.plan(instance.number)

    def holds(self, app: str) -> bool:
        """Whether the store has a part of an app, even one that could not be opened."""
        return app in self.parts or app in self.troubles.apps()

    def lots(self, part: AppPart) -> dict[int, Lot]:
        """Return the lots of an app's instances in this store, running or not."""
        with self.store.read() as snapshot:
            return all_lots(snapshot, part.app.id)

    def forget_name(self) -> None:
        """Give up this store's name, once it is empty: it counts as a new store from here on."""
        with self.store.write() as txn:
            txn.delete(NAME_KEY)

    # --- rows ---------------------------------------------------------------------------------------------------------

    def rows_passed(self, instances: Sequence[InstanceId]) -> None:
        """Take note of rows put into queues without a worker: those of sinks, and outboxes. From any thread."""
        sinks = [one for one in instances if one in self._sinks_here]
        if sinks:
            self.engine.sinks.rows_for(sinks)
        with self._passing:
            is_told = bool(self._passed)
            self._passed.update(one for one in instances if one not in self._sinks_here)
            if is_told or not self._passed:
                return
        self._loop.call_soon_threadsafe(self._take_passed)

    def _take_passed(self) -> None:
        with self._passing:
            passed, self._passed = self._passed, set()
        for instance in sorted(passed):
            part = self._by_number.get(instance.app)
            if part is not None and instance.number not in part.here:
                self._tell(RowsWaited(part.id, instance.number))

    def note(self, effect: NoteRowsPut | NoteRowsGone) -> None:
        """Tell the scheduler what the wire has put into a queue or taken from it."""
        instance, record = effect
        match effect:
            case NoteRowsPut():
                put = RowsPut(instance, record.put_rows, record.put_bytes, record.put_marks)
                self.engine.dispatcher.post([put])
            case NoteRowsGone():
                self.engine.dispatcher.post([_gone(instance, record)])

    # --- apps ---------------------------------------------------------------------------------------------------------

    async def reopen(self) -> None:
        """Open every app in the store after a restart; rows in its outboxes must go on."""
        with self.store.read() as snapshot:
            kept = [msgspec.msgpack.decode(packed, type=KeptFlow) for _, packed in snapshot.scan(FLOW_PREFIX)]
        for one in kept:
            await self.reopen_one(one)

    async def reopen_one(self, kept: KeptFlow) -> None:
        """Open an app unless it is open; retry later on failure."""
        if kept.id not in self.parts:
            try:
                await self.open(kept)
            except HeadwaterError as failure:
                self._failed((kept.id, None), kept, f"the flow cannot run here: {failure}")

    async def open(self, kept: KeptFlow) -> AppPart:
        """Open an app without running any of its instances."""
        app = await asyncio.to_thread(self._build, kept)
        part = self.parts[kept.id] = AppPart(kept.id, NodeId(kept.key), app, kept)
        self._by_number[app.id] = part
        self.engine.apps[kept.id] = app
        await asyncio.to_thread(self.engine.begin, app)
        self.engine.dispatcher.post([AppQuieted(app.id, part.is_held)])
        self._mended((kept.id, None))
        self._tell(AppOpened(kept.id, app.id, part.key))
        for number in range(app.graph.instance_count):
            queue = self.engine.dispatcher.scheduler.queues.find(InstanceId(app.id, number))
            if queue is not None and queue.has_work:
                self._tell(RowsWaited(kept.id, number))
        return part

    def _build(self, kept: KeptFlow) -> NodeApp:
        with built(kept.flow, self.flows, self._check_of(kept), keep_for=kept.id) as graph:
            self.engine.check_code(graph)
            with self.store.write() as txn:
                kept.keep(txn)
            app_id, codes = self.engine.registry.register(graph, kept.id)
            with self.store.write() as txn:
                make_outboxes(txn, app_id, range(graph.instance_count), self.schemas)
        return NodeApp(app_id, graph, codes, [], [], now_us(), is_part=True, kept_as=kept.id)

    def _check_of(self, kept: KeptFlow) -> Check:
        """Return how to check a flow's signature: one that the store has already was checked when it arrived."""
        with self.store.read() as snapshot:
            packed = snapshot.get(flow_key(kept.id))
        is_known = packed is not None and msgspec.msgpack.decode(packed, type=KeptFlow).flow == kept.flow
        return self.trust.kept if is_known else self.trust.arrived

    def _failed(self, place: Place, wanted: Startable, why: str) -> None:
        """Record why something was not started, and retry later."""
        is_news = self.troubles.failed(place, wanted, why, now_us())
        log.log(logging.ERROR if is_news else logging.DEBUG, "%s: %s; it is tried again", place[0], why)

    def postpone(self, wanted: Startable, why: str) -> None:
        """Schedule a retry for a start that was dropped or failed unexpectedly; no peer repeats the request."""
        place = (wanted.id, None) if isinstance(wanted, KeptFlow) else (wanted.app, wanted.instance)
        self._failed(place, wanted, why)

    def _mended(self, place: Place) -> None:
        if self.troubles.mended(place):
            log.info("%s: what could not be started has started", place[0])

    async def start(self, wanted: StartInstance) -> None:
        """Run an instance here, or (negative) read a source."""
        part = await self.opened(wanted)
        if part is None:
            return
        place = (wanted.app, wanted.instance)
        if not part.has(wanted.instance):
            self._failed(
                place, wanted, f"the flow has no instance or source {wanted.instance}; who asks for it is wrong"
            )
            return
        try:
            if part.kept.hold is HoldReason.ADOPTED:
                self.hold(part, HoldReason.NONE)
            if wanted.instance < 0:
                await self._read(part, wanted)
            else:
                with self.store.write() as txn:
                    instance = InstanceId(part.app.id, wanted.instance)
                    begin_under(txn, part.plan(wanted.instance), instance, wanted.lot, part.here)
                await self._run(part, wanted.instance)
            self._mended(place)
        except HeadwaterError as failure:
            self._failed(place, wanted, f"{part.called(wanted.instance)} cannot be opened: {failure}")

    async def opened(self, wanted: StartInstance | AwaitInstance) -> AppPart | None:
        """Return this node's part of an app, opening it if need be; None if that failed, which is retried."""
        place = (wanted.app, wanted.instance)
        try:
            part = self.parts.get(wanted.app) or await self.open(KeptFlow(wanted.app, wanted.key, wanted.flow))
        except HeadwaterError as failure:
            self._failed(place, wanted, f"the flow cannot run here: {failure}")
            return None
        if isinstance(wanted, AwaitInstance):
            self._mended(place)
        return part

    async def _run(self, part: AppPart, number: int) -> None:
        instance, sink = InstanceId(part.app.id, number), part.sink_name(number)
        if sink is None:
            part.emptying.discard(number)
            if number not in part.here:
                self._runs_here(part, number)
            with self.store.read() as snapshot:
                wake_us = wake_us_of(snapshot, part.graph, instance, now_us())
            self.engine.dispatcher.post([InstanceGained(instance), WakeWanted(instance, wake_us)])
            return
        if number in part.here:
            return
        spec, unions = part.graph.sink(sink), part.graph.open_unions(sink)
        await self._refuse_awaited(part, sink)
        task = await asyncio.to_thread(
            open_sink, self.engine.store, part.app.id, part.id, sink, part.declared(sink), number, spec, unions
        )
        self._runs_here(part, number)
        self._sinks_here.add(instance)
        part.app.sinks.append(task)
        self.engine.sinks.add(task)

    def _runs_here(self, part: AppPart, number: int) -> None:
        part.here.add(number)
        self._tell(InstanceOpened(part.id, number))

    def hold(self, part: AppPart, hold: HoldReason) -> None:
        """Set the hold on an app, durably."""
        part.kept = msgspec.structs.replace(part.kept, hold=hold)
        with self.store.write() as txn:
            part.kept.keep(txn)
        self.engine.dispatcher.post([AppQuieted(part.app.id, part.is_held)])

    async def _read(self, part: AppPart, wanted: StartInstance) -> None:
        number = -1 - wanted.instance
        part.to_read[number] = wanted
        if part.is_held or number in part.sources:
            return
        name = part.source_name(number)
        spec, outlets = part.graph.sources[name], source_outlets(part.graph, name)
        await self._refuse_awaited(part, name)
        task = await asyncio.to_thread(
            open_source, self.engine.store, part.app.id, part.id, name, part.declared(name), spec, outlets
        )
        part.sources[number] = task
        part.app.sources.append(task)
        self.engine.sources.add(task)

    async def _refuse_awaited(self, part: AppPart, name: str) -> None:
        others = [other.app for other in self.parts.values() if other is not part]
        await asyncio.to_thread(refuse_awaited, self.store, part.app, name, others)

    async def empty(self, wanted: EmptyInstance) -> None:
        """Run an instance until its queue is empty, then stop it."""
        part, number = self.parts[wanted.app], wanted.instance
        await self._run(part, number)
        part.emptying.add(number)
        instance = InstanceId(part.app.id, number)
        self.engine.given_up[instance] = lambda: self._on_loop(lambda: self._emptied(part, number))
        self.engine.dispatcher.post([InstanceGivenUp(instance, when_taken=True)])

    def _emptied(self, part: AppPart, number: int) -> None:
        if number in part.emptying:  # else it was started again meanwhile
            part.emptying.discard(number)
            self._closed(part, number)

    async def stop(self, wanted: StopInstance) -> None:
        """Stop an instance, or (negative) a source."""
        self.troubles.mended((wanted.app, wanted.instance))
        part, number = self.parts.get(wanted.app), wanted.instance
        if part is None:
            return
        if number < 0:
            part.to_read.pop(-1 - number, None)
            await self.stop_reading(part, -1 - number)
        elif number in part.here:
            await self._give_up(part, number)

    async def stop_reading(self, part: AppPart, number: int) -> None:
        """Stop reading a source."""
        task = part.sources.pop(number, None)
        if task is not None:
            await asyncio.to_thread(self.engine.sources.remove, part.app.id, task.number)
            part.app.sources.remove(task)

    async def _give_up(self, part: AppPart, number: int) -> None:
        instance = InstanceId(part.app.id, number)
        if part.sink_name(number) is not None:
            await asyncio.to_thread(self.engine.sinks.remove, part.app.id, number)
            part.app.sinks = [task for task in part.app.sinks if task.instance != instance]
            self._sinks_here.discard(instance)
        else:
            part.emptying.discard(number)
            free = asyncio.Event()
            self.engine.given_up[instance] = lambda: self._on_loop(free.set)
            self.engine.dispatcher.post([InstanceGivenUp(instance)])
            await free.wait()
        self._closed(part, number)

    def _closed(self, part: AppPart, number: int) -> None:
        with self.store.write() as txn:
            make_outbox(txn, InstanceId(part.app.id, number), self.schemas)
        part.here.discard(number)
        self._tell(InstanceClosed(part.id, number))

    def _on_loop(self, act: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(act)

    async def close(self, app: str) -> NodeApp | None:
        """Stop an app's part; the store keeps it."""
        part = self.parts.pop(app, None)
        if part is None:
            return None
        self._tell(AppClosed(app))
        self._by_number.pop(part.app.id, None)
        self._sinks_here = {one for one in self._sinks_here if one.app != part.app.id}
        await asyncio.to_thread(self.engine.retire, app)
        await asyncio.to_thread(forget_app, self.flows, app)
        return part.app

    async def forget(self, app: str) -> None:
        """Delete this node's part of an app that has ended."""
        self.troubles.forget(app)
        with self.store.write() as txn:
            txn.delete(flow_key(app))
        closed = await self.close(app)
        if closed is not None:
            await asyncio.to_thread(self.engine.registry.delete, closed)


def flow_key(app: str) -> bytes:
    """Return the store key of an app's flow."""
    return FLOW_PREFIX + app.encode()


def _gone(instance: InstanceId, record: QueueRecord) -> RowsGone:
    return RowsGone(instance, record.taken_rows + record.shed_rows, record.gone_bytes, record.taken_marks)
