"""One node of a cluster: the state machines of `control` on a real clock, a real wire and a real engine.

    service = NodeService(NodeSettings(listen="127.0.0.1:7100", insecure=True))
    await service.start()
    ...
    await service.stop()

It carries out the machines' effects and tells them events; it takes none of their decisions. All of it lives on the
running event loop; the engine has its own threads.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from random import Random, SystemRandom
from typing import Final, assert_never

from headwater.client.flow_text import forget_texts
from headwater.client.requests import REQUESTS
from headwater.client.signing import Trust
from headwater.control.messages.app_messages import BULKY, AnyNodeMessage, StartAsked
from headwater.control.messages.events import (
    AgreedPlacement,
    AppEndWanted,
    AppSubmitted,
    AwaitInstance,
    DrainWanted,
    DurableRecord,
    EmptyInstance,
    EndedApp,
    LeaveWanted,
    MachineConfig,
    MessageReceived,
    NodeEffect,
    NodeEvent,
    NodeStarted,
    NodeTicked,
    NoteActive,
    NoteAppEnded,
    NoteAppRuns,
    NoteDelivered,
    NoteDrained,
    NoteHandedDown,
    NoteRefused,
    NoteRowsGone,
    NoteRowsPut,
    NoteStewardFound,
    NoteWay,
    Persist,
    Persisted,
    Refused,
    SendMessage,
    StartInstance,
    StopInstance,
)
from headwater.control.messages.peer_questions import Answer, PeerQuestion
from headwater.control.node import NodeMachine as Machine
from headwater.links.refusals import Reason
from headwater.links.wire import Wire
from headwater.model.errors import HeadwaterError
from headwater.model.ids import InstanceId
from headwater.model.peers import NodeId, Peer
from headwater.model.time import SECOND, Instant
from headwater.overlay.events import CongestionChanged
from headwater.overlay.messages import Leaving
from headwater.overlay.mistakes import NoteMistake
from headwater.runtime.metrics import MetricsServer, serve_metrics
from headwater.runtime.mistakes import Mistakes
from headwater.runtime.node import Node as Engine
from headwater.runtime.service.app_status import Rates
from headwater.runtime.service.directory import Directory
from headwater.runtime.service.draining import Draining
from headwater.runtime.service.effect_queue import Wishes
from headwater.runtime.service.engine_shell import EngineShell, KeptFlow, Startable
from headwater.runtime.service.garbage import Leftovers
from headwater.runtime.service.only_one import locked_identity
from headwater.runtime.service.ownership import Ownership
from headwater.runtime.service.peer_requests import Replies
from headwater.runtime.service.questioner import Asking
from headwater.runtime.service.records import Keeping
from headwater.runtime.service.shielded import uncut
from headwater.runtime.service.upgrade_participant import Holding
from headwater.runtime.service.upgrading import Upgrades
from headwater.runtime.service.user_requests import UserRequests
from headwater.runtime.settings import NodeSettings
from headwater.spark.jvm import StartCutShort
from headwater.spark.log_context import Voice, speak_with, tell_death
from headwater.workers.clock import now_us
from headwater.workers.config import NodeConfig
from headwater.workers.local.shared_session import SharedSpark

log = logging.getLogger(__name__)

ALONE_S: Final = 10.0  # for which a node without --join seeks its former peers before it begins a ring by itself
UPKEEP_S: Final = 1.0
LAST_ACT_S: Final = 20.0  # for what is being done when a node is stopped: state is copied, a broker dialled
PEERS_S: Final = 30.0  # between two notes of who is there
HEARD_MAX: Final = 10_000  # nodes of which is remembered when they were heard last
ASK_S: Final = 10.0  # between two words of where our apps are, and two looks after what does not run here


class NodeService:
    """One node."""

    def __init__(
        self,
        settings: NodeSettings,
        *,
        engine: NodeConfig | None = None,
        machine: MachineConfig | None = None,
        spark: SharedSpark | None = None,
    ) -> None:
        """Begin with nothing open; `spark` is a session shared with other nodes of this process."""
        self.settings = settings
        self._engine_config = engine or settings.engine()
        self.config = replace(machine or MachineConfig(), capacity=settings.capacity)
        self._spark = spark
        self._rng = Random(SystemRandom().getrandbits(128))
        self._began = time.time_ns() // 1_000 - time.monotonic_ns() // 1_000
        self._timer: asyncio.TimerHandle | None = None
        self._wishes = Wishes()
        self._tasks: list[asyncio.Task[None]] = []
        self._ended: dict[str, asyncio.Event] = {}
        self._is_active = asyncio.Event()
        self._is_stopping = self.has_left = self._is_unwanted = False
        self.broken = asyncio.Event()  # by a mistake of ours: nothing runs here any more, until it is started again
        self._congestion = 0.0  # as the machines know it
        self._heard_us: dict[NodeId, int] = {}  # when other nodes were heard, the latest last
        self._identity = ExitStack()  # locked until it is closed
        self._metrics: MetricsServer | None = None
        self.rates = Rates()
        self.mistakes = Mistakes()
        self.voice = Voice()

    # --- beginning ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store, start the engine, bind the port, and join the ring."""
        speak_with(self.voice)
        self._loop = asyncio.get_running_loop()
        try:
            await uncut(asyncio.to_thread(self._start_engine), hurry=self._cut_short)
        except StartCutShort:
            raise asyncio.CancelledError from None
        try:
            self._serve_metrics()
            self._assemble()
        except HeadwaterError:
            await asyncio.to_thread(self._close_metrics)
            self._identity.close()
            await asyncio.to_thread(self.engine.stop)
            raise
        self._tasks = [self._loop.create_task(self._carry_out_all()), self._loop.create_task(self._keep_house())]
        for task in self._tasks:
            tell_death(task, self.engine.broke)
        await self.plant.reopen()
        self.wire.start(self.engine.broke)
        self._join()
        for owned in list(self.keeping.owned.values()):
            if not owned.has_ended:
                self.handle(AppSubmitted(owned.spec, owned.placed, owned.has_run, is_known=True))
                if owned.is_ending:
                    self.end(owned.id)
        self.upgrades.go_on()
        if self.keeping.is_draining:
            self.handle(DrainWanted())

    def _start_engine(self) -> None:
        self.engine = Engine(
            self._engine_config,
            on_rows_passed=self._rows_passed,
            spark=self._spark,
            mistakes=self.mistakes,
            on_broken=self._broke,
        )
        if self._is_unwanted:
            self.engine.workforce.cut_short()
        self.engine.start()
        forget_texts(self.settings.flows)  # ours alone: the store lets in one node at a time

    def _broke(self) -> None:
        self._loop.call_soon_threadsafe(self.broken.set)

    def _cut_short(self) -> None:
        """Have the engine not go on starting: Spark takes its time, and nobody wants it any more."""
        self._is_unwanted = True
        if hasattr(self, "engine"):
            self.engine.workforce.cut_short()

    def _serve_metrics(self) -> None:
        if (place := self.settings.metrics_place) is not None:
            self._metrics = serve_metrics(self.engine, place[1], place[0])

    def _close_metrics(self) -> None:
        if self._metrics is not None:
            self._metrics.close()
            self._metrics = None

    @property
    def metrics_url(self) -> str | None:
        """Where metrics are served, if they are."""
        return None if self._metrics is None else self._metrics.url

    def _rows_passed(self, instances: Sequence[InstanceId]) -> None:
        self.plant.rows_passed(instances)

    def _assemble(self) -> None:
        settings = self.settings
        self.trust = Trust(lambda: self.wire.credentials)
        self.plant = EngineShell(self.engine, settings.flows, self.trust, self.handle)
        self.holding = Holding(self.plant)
        self.keeping = Keeping(self.engine.store, settings.data)
        self.desk, self.replies, self.leftovers = UserRequests(self), Replies(self), Leftovers(self)
        self.ownership, self.upgrades, self.draining = Ownership(self), Upgrades(self), Draining(self)
        credentials = settings.credentials()
        self._identity = locked_identity(credentials.identity.id, settings)
        self.wire = Wire(
            settings.wire(BULKY),
            credentials,
            on_message=self._hear,
            requests=REQUESTS,
            on_request=self.desk.requested,
            links=settings.link_table(),
        )
        self.own = Peer(self.wire.node_id, self.wire.address, settings.zone)
        self.machine = Machine(self.own, self.config, self._rng, dock=self.plant)
        self.asking = Asking(self.own, self.wire.send, self.replies.answer, self._rng)
        self.directory = Directory(self.machine.ring, self.asking)

    async def joined(self) -> None:
        """Wait until this node is in the ring."""
        await self._is_active.wait()

    def _join(self) -> None:
        """Join the configured peers and those known before; a node with neither begins a ring of its own."""
        asked = [address for address in self.settings.join if address != self.own.address]
        known = [address for address in self.keeping.peers() if address != self.own.address]
        self.handle(NodeStarted((*asked, *known)))
        if known and not asked:
            self._loop.call_later(ALONE_S, self._begin_alone, known)

    def _begin_alone(self, known: list[str]) -> None:
        if not self.machine.is_active and not self._is_stopping:
            log.info("nobody answers of those who were there; beginning without them")
            self.handle(NodeStarted(()))
            self.handle(NodeStarted(tuple(known)))

    # --- the machines -------------------------------------------------------------------------------------------------

    def now(self) -> Instant:
        """Return the wall clock's time at the start of this node plus the monotonic time since: it never steps back."""
        return Instant(self._began + time.monotonic_ns() // 1_000)

    def handle(self, event: NodeEvent) -> None:
        """Give the machines an event and carry out the effects; after we have left, events are ignored."""
        if self.has_left:
            return
        try:
            self._carry_out(self.machine.handle(event, self.now()))
        finally:
            self._set_timer()

    def _carry_out(self, effects: Sequence[NodeEffect]) -> None:
        """Do what the machines want, each thing apart from the others; what depends on a record is in its Persist."""
        for effect in effects:
            try:
                self._do(effect)
            except Exception as mistake:  # of ours, or of a peer that had us say what cannot be encoded
                self.mistakes.note(type(effect).__name__, mistake)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        at = self.machine.deadline()
        wait_s = None if at is None else max(0.0, (at - self.now()) / SECOND)
        self._timer = None if wait_s is None else self._loop.call_later(wait_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.handle(NodeTicked())

    def heard_us(self, peer: Peer) -> int | None:
        """Return when another node was last heard, if it was of late enough to be remembered."""
        return self._heard_us.get(peer.id)

    def _note_heard(self, peer: NodeId) -> None:
        self._heard_us.pop(peer, None)
        self._heard_us[peer] = now_us()
        if len(self._heard_us) > HEARD_MAX:
            del self._heard_us[next(iter(self._heard_us))]

    def _hear(self, sender: NodeId, message: AnyNodeMessage) -> None:
        self._note_heard(sender)
        if isinstance(message, PeerQuestion | Answer):
            try:
                self.asking.hear(message)
            except Exception as mistake:  # as above
                self.mistakes.note(type(message).__name__, mistake)
            return
        if isinstance(message, StartAsked) and self._wishes.are_too_many():  # the peer retransmits it
            self.wire.refused(Reason.UNUSABLE, str(message.sender), "too much waits to be started here")
            return
        if isinstance(message, Leaving):
            self.wire.left(message.sender.address)
        self.handle(MessageReceived(message))

    def _do(self, effect: NodeEffect) -> None:
        match effect:
            case SendMessage(to, message) if to == self.own.address:
                self._loop.call_soon(self.handle, MessageReceived(message))
            case SendMessage(to, message):
                self.wire.send(to, message)
            case NoteRowsPut() | NoteRowsGone():
                self.plant.note(effect)
            case StartInstance() | AwaitInstance() | EmptyInstance() | StopInstance():
                self._wishes.put(effect)
            case Persist(record, then):
                self._persist(record, then)
            case NoteAppRuns(app):
                log.info("%s runs", app)
            case NoteAppEnded(app):
                log.info("%s has ended", app)
                self._ended.pop(app, asyncio.Event()).set()
            case NoteRefused(sender, why):
                self.wire.refused(Reason.UNUSABLE, str(sender), why)
            case NoteMistake(where, mistake):
                self.mistakes.note(where, mistake)
            case NoteStewardFound(app, steward, _):
                log.info("%s is in the care of %s", app, steward)
            case NoteDrained():
                self.draining.nothing_runs()
            case NoteActive():
                self._is_active.set()
                self._loop.call_soon(self._end_again)
                log.info("in the ring as %s, zone %s", self.own, self.own.zone)
            case NoteWay() | NoteHandedDown() | NoteDelivered():
                pass  # only stories of the simulator multicast and route payloads so far
            case _:
                assert_never(effect)

    def _persist(self, record: DurableRecord, then: Sequence[NodeEffect]) -> None:
        """Write a record; what depends on it is carried out only if that has succeeded."""
        try:
            match record:
                case AgreedPlacement(app, placed, has_run):
                    self.keeping.agree(app, placed, has_run)
                case EndedApp(app):
                    if self.keeping.owned[app].upgrading is None:  # else the upgrade goes on with what is kept of it
                        self.keeping.drop(app)
                case _:
                    assert_never(record)
        except Exception as failure:
            if isinstance(failure, HeadwaterError):
                log.warning("%s: %s; it is tried again", record.app, failure)
            else:
                self.mistakes.note(type(record).__name__, failure)
            self.handle(Refused(record, str(failure)))
            return
        self._carry_out(then)
        self.handle(Persisted(record))

    async def _carry_out_all(self) -> None:
        """Carry out the queued effects, one after the other, until this node stops."""
        while not self._is_stopping:
            match await self._wishes.next():
                case StartInstance() as start:
                    await self._carefully(self.plant.start(start), start)
                case AwaitInstance() as awaited:
                    await self._carefully(self.plant.opened(awaited), awaited)
                case EmptyInstance() as emptied:
                    await self._carefully(self.plant.empty(emptied))
                case StopInstance() as stop:
                    await self._carefully(self.plant.stop(stop))
                case KeptFlow() as kept:
                    await self._carefully(self.plant.reopen_one(kept), kept)
                case act:
                    await self._carefully(act())

    async def _carefully(self, doing: Awaitable[object], tried_again: Startable | None = None) -> None:
        try:
            await doing
        except Exception as mistake:  # ours: it must be heard, and must not keep others from running
            self.mistakes.note("something that the node wanted", mistake)
            if tried_again is not None:
                self.plant.postpone(tried_again, f"unforeseen ({type(mistake).__name__}): {mistake}")

    def new_id(self, name: str) -> str:
        """Return an id for a new app, unique even among apps of one name."""
        return f"{name}@{self._rng.getrandbits(32):08x}"

    async def in_turn(self, act: Callable[[], Awaitable[None]]) -> None:
        """Do something to the engine after the effects that are queued already; raises what it raises.

        If the node is stopped before it is done the caller is cancelled, and so cannot report success.
        """
        done: asyncio.Future[None] = self._loop.create_future()

        async def do() -> None:
            try:
                await act()
            except asyncio.CancelledError:
                done.cancel()
                raise
            except Exception as failure:  # is raised in the caller
                if not done.done():
                    done.set_exception(failure)
            else:
                if not done.done():
                    done.set_result(None)

        self._wishes.put(do)
        await done

    def above(self, key: NodeId) -> tuple[Peer, ...]:
        """Return the nodes above this one in an app's tree, as far up towards the root as is known here."""
        tree = self.machine.trees.status().get(key)
        if tree is not None and tree.path:
            return tree.path
        hop = self.machine.ring.next_hop(key) if self.machine.is_active else None
        return () if hop is None else (hop,)

    def end(self, app: str) -> asyncio.Event:
        """End an app of this owner; the event is set once it has ended."""
        ended = self._ended.setdefault(app, asyncio.Event())
        owned = self.keeping.owned[app]
        owned.is_ending = True
        self.keeping.keep(owned)
        self.handle(AppEndWanted(app))
        return ended

    def _end_again(self) -> None:
        """Repeat AppEndWanted, which the machines ignore for an app whose submission waits for the ring."""
        for owned in list(self.keeping.owned.values()):
            if owned.is_ending and not owned.has_ended:
                self.handle(AppEndWanted(owned.id))

    # --- time and end -------------------------------------------------------------------------------------------------

    async def _keep_house(self) -> None:
        peers_at = 0.0
        asks_at = time.monotonic() + ASK_S
        while True:
            await asyncio.sleep(UPKEEP_S)
            await self._carefully(self._look_after_parts())
            if time.monotonic() >= asks_at:
                await self._carefully(self.leftovers.look())
                await self._carefully(self.ownership.publish_all())
                asks_at = time.monotonic() + ASK_S
            if time.monotonic() >= peers_at:
                peers_at = time.monotonic() + PEERS_S
                await self._carefully(self._keep_peers_now())

    async def _look_after_parts(self) -> None:
        self.rates.sample(self.plant)
        self._tell_congestion()
        for wanted in self.plant.troubles.due(now_us()):
            self._wishes.put(wanted)

    def _tell_congestion(self) -> None:
        level = self.wire.congestion()
        if level != self._congestion:
            self._congestion = level
            self.handle(CongestionChanged(level))

    async def _keep_peers_now(self) -> None:
        self._keep_peers()

    def _keep_peers(self) -> None:
        self.keeping.keep_peers([peer.address for peer in self.machine.ring.known.everybody()])

    def leave(self) -> None:
        """Leave the ring; questions are still answered."""
        if not self.has_left:
            self._keep_peers()
            self.handle(LeaveWanted())
            self.has_left = True
            if self._timer is not None:
                self._timer.cancel()

    async def stop(self) -> None:
        """Leave in good order: tell the peers, stop the engine, keep everything for the next start."""
        if self._is_stopping or not self._tasks:
            return
        self._is_stopping = True
        await self.upgrades.stop()
        carrying, *others = self._tasks
        self._wishes.put(_nothing)  # in case it waits for something to do
        await asyncio.wait({carrying}, timeout=LAST_ACT_S)  # an effect in progress is using the store
        for task in (carrying, *others):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.leave()
        await self.wire.close()
        await asyncio.to_thread(self._close_metrics)
        await asyncio.to_thread(self.engine.stop)
        await asyncio.to_thread(forget_texts, self.settings.flows)
        self._identity.close()


async def _nothing() -> None:
    pass
