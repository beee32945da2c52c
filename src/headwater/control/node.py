"""One node: the ring, its trees, and the parts that work for apps, behind one `handle`.

Dispatches events and messages to the machines and passes effects of one machine to another; decides nothing itself.
"""

from random import Random
from typing import Any, Final, assert_never, get_args

from headwater.control.context import NodeContext
from headwater.control.host.engine_view import Dock
from headwater.control.host.instances import BEAT, LOAD, Hosting
from headwater.control.host.migration import Moving
from headwater.control.host.row_channels import BOUND, Carrying
from headwater.control.messages import app_messages as m
from headwater.control.messages import row_messages, state_messages
from headwater.control.messages.events import (
    AppClosed,
    AppEndWanted,
    AppOpened,
    AppSubmitted,
    DrainRevoked,
    DrainWanted,
    InstanceClosed,
    InstanceOpened,
    LeaveWanted,
    MachineConfig,
    MessageReceived,
    NodeEffect,
    NodeEvent,
    NodeStarted,
    NodeTicked,
    NoteActive,
    NoteDelivered,
    NoteDrained,
    NoteHandedDown,
    NoteWay,
    Persisted,
    Refused,
    RowsWaited,
    SendMessage,
)
from headwater.control.owner.steward_search import Seeking
from headwater.control.steward.register import REPLICAS, Register
from headwater.control.steward.steward import ANNOUNCE, StewardDesk
from headwater.control.steward.term_arbiter import Claims
from headwater.model.peers import Peer
from headwater.model.time import Instant
from headwater.overlay import events as ring_events
from headwater.overlay import tree_messages
from headwater.overlay import trees as tree_events
from headwater.overlay.mistakes import NoteMistake
from headwater.overlay.trees import Trees
from headwater.planner.placement import AlongTheWay, PlacementPolicy

INHERIT: Final = ("inherit", b"")
DRAIN: Final = ("drain", b"")


class NodeMachine:
    """The machines of one node; it begins outside the ring."""

    def __init__(
        self,
        own: Peer,
        config: MachineConfig,
        rng: Random,
        policy: PlacementPolicy | None = None,
        dock: Dock | None = None,
    ) -> None:
        """Without a dock the node has no engine: it forwards rows of others, but stores and sends none."""
        self.own = own
        self._ground = NodeContext(own, config, rng)
        self.ring = self._ground.ring
        self.trees = Trees(self.ring, config.trees, rng)
        self.hosting = Hosting(self._ground)
        self.register = Register(self._ground)
        self.desk = StewardDesk(self._ground, self.register, policy or AlongTheWay())
        self.seeking = Seeking(self._ground)
        self.carrying = Carrying(self._ground, self.trees, dock, self.hosting.steward_of, self.hosting.cuts_of)
        self.moving = Moving(self._ground, self.carrying, self.hosting, dock)
        self._claims = Claims(self._ground)
        self._waiting: list[AppSubmitted] = []  # until we are in the ring

    # --- the four handles ---------------------------------------------------------------------------------------------

    def handle(self, event: NodeEvent, now: Instant) -> list[NodeEffect]:
        """Handle an event, and return the effects; a node that has left the ring ignores all events."""
        ground = self._ground
        ground.now, ground.out = now, []
        if self._has_left:
            return ground.out
        match event:
            case MessageReceived(message):
                with ground.apart(type(message).__name__):
                    self._hear(message)
            case NodeTicked():
                self._tick()
            case NodeStarted(contacts):
                self._to_ring(ring_events.Started(contacts))
            case AppSubmitted():
                self._submit(event)
            case AppEndWanted(app):
                self.seeking.end(app)
            case ring_events.SendingWanted() | ring_events.CongestionChanged():
                self._to_ring(event)
            case tree_events.MulticastWanted() | tree_events.NumberChanged():
                self._to_trees(event)
            case LeaveWanted():
                self.register.pass_on()
                self._to_ring(ring_events.LeavingWanted())
            case DrainWanted():
                self._drain()
            case DrainRevoked():
                self._stay()
            case Persisted(record):
                self.seeking.persisted(record)
            case Refused(record):
                self.seeking.refused(record)
            case _:
                self._rows_event(event)
        for settle in (self.moving.settle, self._settle_doubts, self._settle_trees):
            with ground.apart(settle.__name__):
                settle()
        return ground.out

    def _rows_event(self, event: AppOpened | AppClosed | InstanceOpened | InstanceClosed | RowsWaited) -> None:
        match event:
            case RowsWaited(app, instance):
                self.carrying.rows_wait(app, instance)
            case AppOpened(app, identity, key):
                self.carrying.opened(app, identity, key)
                for instance, cuts in self.hosting.beginning(app):
                    self.carrying.obey(app, instance, cuts)
            case AppClosed(app):
                self.carrying.closed(app)
                self.moving.app_closed(app)
            case InstanceOpened(app, instance):
                self.carrying.runs_here(app, instance)
            case InstanceClosed(app, instance):
                self.carrying.runs_no_more(app, instance)
                self.moving.goes_on(app)
            case _:
                assert_never(event)

    def deadline(self) -> Instant | None:
        """Return when the next timer is due; None if there is none."""
        if self._has_left:
            return None
        first = self._ground.timers.first()
        for other in (self.ring.deadline(), self.trees.deadline()):
            if other is not None and (first is None or other < first):
                first = other
        return first

    def check(self) -> None:
        """Raise if an invariant is broken."""
        assert not self._ground.mistakes, self._ground.mistakes
        for part in (self.ring, self.trees, self.hosting, self.register, self.desk, self.carrying, self.moving):
            part.check()

    @property
    def is_active(self) -> bool:
        """Whether we are in the ring."""
        return self.ring.phase is ring_events.PeerPhase.ACTIVE

    @property
    def _has_left(self) -> bool:
        return self.ring.phase is ring_events.PeerPhase.LEFT

    # --- hearing ------------------------------------------------------------------------------------------------------

    def _hear(self, message: m.AnyNodeMessage) -> None:
        heard = _HEARD.get(type(message))
        if heard is None:
            self._to_ring(ring_events.Received(message))  # type: ignore[arg-type]  # all others are in the table
        elif self.is_active:  # a node that is not in the ring ignores all other messages
            if message.sender.id in self.ring.known.dead:  # split rings would exchange these messages and never merge
                self._to_ring(ring_events.PeerHeard(message.sender))
            heard(self, message)

    def _to_ring(self, event: ring_events.Event) -> None:
        for effect in self.ring.handle(event, self._ground.now):
            match effect:
                case ring_events.Send(to, message):
                    self._ground.out.append(SendMessage(to, message))
                case NoteMistake():
                    self._ground.mistaken(effect)
                case _:
                    with self._ground.apart(type(effect).__name__):
                        self._heed(effect)

    def _heed(self, effect: ring_events.Effect) -> None:
        match effect:
            case ring_events.Deliver(key, origin, payload, hops):
                self._ground.emit(NoteDelivered(key, origin, payload, hops))
            case ring_events.BecomeActive():
                self._become_active()
            case ring_events.NoteLeafGained(peer):
                self._leaf_gained(peer)
            case ring_events.NoteLeafLost(peer, dead):
                self._leaf_lost(peer, dead=dead)

    def _to_trees(self, event: tree_events.TreeEvent) -> None:
        for effect in self.trees.handle(event, self._ground.now):
            match effect:
                case tree_events.SendToTree(to, message):
                    self._ground.out.append(SendMessage(to, message))
                case tree_events.HandDown(key, payload):
                    self._ground.emit(NoteHandedDown(key, payload))
                case NoteMistake():
                    self._ground.mistaken(effect)
                case tree_events.DoubtPeer(peer):
                    self._to_ring(ring_events.PeerDoubted(peer))
                case tree_events.NotePath(key, path, is_rooted):
                    self.hosting.way_found(key, path, is_rooted)
                    self._ground.emit(NoteWay(key, path, is_rooted))

    def _settle_doubts(self) -> None:
        """Have the ring probe silent stewards: it detects failures only of peers it exchanges heartbeats with."""
        doubted, self.hosting.doubted = self.hosting.doubted, []
        for peer in doubted:
            self._to_ring(ring_events.PeerDoubted(peer))

    def _settle_trees(self) -> None:
        """Join and leave the trees that the host wants; each may at once report a path, and so want others."""
        while self.hosting.trees_wanted:
            wanted, self.hosting.trees_wanted = self.hosting.trees_wanted, {}
            for key, is_wanted in wanted.items():
                event = tree_events.MembershipWanted(key) if is_wanted else tree_events.MembershipEnded(key)
                self._to_trees(event)

    def _become_active(self) -> None:
        self._ground.emit(NoteActive())
        self.hosting.begin()
        waiting, self._waiting = self._waiting, []
        for submitted in waiting:
            self.seeking.submit(submitted)

    def _submit(self, submitted: AppSubmitted) -> None:
        if self.is_active:
            self.seeking.submit(submitted)
        else:
            self._waiting.append(submitted)

    def _leaf_gained(self, peer: Peer) -> None:
        self.hosting.leaf_gained(peer)
        self.register.leaf_gained(peer)
        self._look_for_inheritance()

    def _leaf_lost(self, peer: Peer, *, dead: bool) -> None:
        self.hosting.leaf_lost(peer)
        self.register.leaf_lost(peer)
        if dead:
            self.seeking.forget(peer)
            self._to_trees(tree_events.LeafGone(peer))
            self._look_for_inheritance()

    def _look_for_inheritance(self) -> None:
        if self.register.copies and INHERIT not in self._ground.timers:
            self._ground.come_back(INHERIT, self._ground.config.retry)

    # --- time ---------------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        ground = self._ground
        ring_at, trees_at = self.ring.deadline(), self.trees.deadline()
        if ring_at is not None and ring_at <= ground.now:
            self._to_ring(ring_events.Ticked())
        if trees_at is not None and trees_at <= ground.now:
            self._to_trees(tree_events.TreeTicked())
        for name, what in ground.timers.due(ground.now):
            with ground.apart(name) as tried:
                self._due(name, what)
            if tried.failed and (name, what) not in ground.timers:
                ground.come_back((name, what), ground.config.retry)

    def _due(self, name: str, what: Any) -> None:
        match name:
            case "app":
                self.seeking.again(what)
            case "rows":
                self.carrying.due(what)
            case "move":
                self.moving.again(what)
            case "deploy":
                self.desk.steps.go_on(what)
            case _ if (name, what) == BEAT:
                self.hosting.beat()
                self.register.give_back_to_silent()
                self._look_for_inheritance()
            case _ if (name, what) == BOUND:
                self.carrying.tell_where()
            case _ if (name, what) == LOAD:
                self.hosting.tell_load()
            case _ if (name, what) == REPLICAS:
                self.register.send_copies()
            case _ if (name, what) == ANNOUNCE:
                self.desk.announce(self.seeking.stewards())
                if self.desk.is_open:
                    self.seeking.meet(self.desk.announcements)
            case _ if (name, what) == INHERIT:
                self._inherit()
            case _ if (name, what) == DRAIN:
                self._drain()

    def _drain(self) -> None:
        """Have all instances placed elsewhere; report once nothing is left here."""
        ground, hosting = self._ground, self.hosting
        if not ground.is_draining:
            ground.is_draining = True
            hosting.tell_at_once()
        ground.come_back(DRAIN, ground.config.retry)
        is_busy = hosting.hosted or hosting.sourced or self.seeking.owned or not self.moving.is_idle
        if not is_busy and self.carrying.is_empty():
            ground.emit(NoteDrained())

    def _stay(self) -> None:
        """Revoke a drain; instances that have moved stay where they are."""
        self._ground.is_draining = False
        self._ground.timers.cancel(DRAIN)
        self.hosting.tell_at_once()

    def _inherit(self) -> None:
        """Take over the register of a dead steward if we own its id; else send our copy to the peer that owns it."""
        ground, leaves = self._ground, self.ring.known.leaves
        for identity, copy in list(self.register.copies.items()):
            is_silent = self.register.is_silent(copy, 3 * ground.config.copy_silence_max)
            if identity in leaves or not (identity in self.ring.known.dead or is_silent):
                continue  # the steward is alive, as far as we know
            heir = self.ring.next_hop(identity)
            if heir is None:
                self.desk.inherit(self.register.inherited(identity))
            else:
                self.register.tell_kept(heir, copy)
                ground.come_back(INHERIT, 5 * ground.config.retry)

    # --- what is said about apps --------------------------------------------------------------------------------------

    def _tree_heard(self, message: tree_messages.AnyTreeMessage) -> None:
        self._to_trees(tree_events.TreeReceived(message))

    def _steward_asked(self, message: m.StewardAsked) -> None:
        self.seeking.asked(message, self.desk.apps)

    def _replica_sent(self, message: m.ReplicaSent) -> None:
        if message.steward.id == self.own.id:
            self.desk.given_back(message)
            return
        self.desk.overtaken([(entry.spec.name, entry.term) for entry in message.entries], message.steward)
        if message.sender.id != message.steward.id:
            message = self.desk.without_settled(message)
        self.register.keep(message)
        self._look_for_inheritance()

    def _start_asked(self, message: m.StartAsked) -> None:
        spot = (message.app, message.instance)
        self.moving.stays(spot, message.lot)
        is_over = message.instance >= 0 and self.moving.is_over(spot, message.lot)
        self.hosting.start_asked(message, has_run=self.moving.has_kept(spot, message.lot), is_over=is_over)
        if self.hosting.begins(message):
            self.carrying.obey(message.app, message.instance, message.cuts)

    def _rows_kept(self, message: row_messages.RowsKept) -> None:
        self.carrying.rows_kept(message)
        self.moving.goes_on(message.app)

    def _steward_changed(self, message: m.StewardChanged) -> None:
        self.hosting.steward_changed(message)
        self.seeking.steward_changed(message)
        self.desk.overtaken([(message.app, message.term)], message.sender)
        self.register.moved(message.app, message.term, message.sender)

    def _steward_moved(self, message: m.StewardMoved) -> None:
        self.hosting.steward_moved(message)
        self.seeking.steward_moved(message)
        self.desk.overtaken([(message.app, message.term)], message.steward)
        self.register.moved(message.app, message.term, message.steward)


_HEARD: Final[dict[type[Any], Any]] = {
    **dict.fromkeys(get_args(tree_messages.AnyTreeMessage), NodeMachine._tree_heard),
    m.StewardAsked: NodeMachine._steward_asked,
    m.StewardTold: lambda node, message: node.seeking.found(message),
    m.StewardUnknown: lambda node, message: node.seeking.unknown(message),
    m.StewardHere: lambda node, message: node.seeking.here(message),
    m.Appointed: lambda node, message: node.desk.appointed(message),
    m.RegisterAsked: lambda node, message: node.desk.register_asked(message),
    m.RegisterTold: lambda node, message: node.seeking.registered(message),
    m.AppRunning: lambda node, message: node.seeking.runs(message),
    m.AppRunningHeard: lambda node, message: node.desk.steps.owner_heard(message),
    m.PlacementTold: lambda node, message: node.seeking.placement_told(message),
    m.PlacementHeard: lambda node, message: node.desk.steps.placement_heard(message),
    m.EndAsked: lambda node, message: node.desk.end_asked(message),
    m.EndTold: lambda node, message: node.seeking.has_ended(message),
    m.EndKnown: lambda node, message: node.desk.end_known(message),
    m.AppClaimed: lambda node, message: node._claims.claimed(message),
    m.ReplicaSent: NodeMachine._replica_sent,
    m.ReplicaKept: lambda node, message: node.register.kept(message),
    m.ReplicaWanted: lambda node, message: node.register.give_back(message),
    m.ReplicaDropped: lambda node, message: node.register.forget(message),
    m.HandedOver: lambda node, message: node.desk.handed_over(message),
    m.HandedOverTaken: lambda node, message: node.desk.hand_over_taken(message),
    m.PathAsked: lambda node, message: node.hosting.path_asked(message),
    m.PathTold: lambda node, message: node.desk.steps.path_told(message),
    m.RoomAsked: lambda node, message: node.hosting.room_asked(message),
    m.RoomTold: lambda node, message: node.desk.steps.room_told(message),
    m.LoadTold: lambda node, message: node.hosting.load_told(message),
    m.StartAsked: NodeMachine._start_asked,
    m.StartTold: lambda node, message: node.desk.steps.start_told(message),
    m.StopAsked: lambda node, message: node.hosting.stop_asked(message),
    m.StopTold: lambda node, message: node.desk.steps.stop_told(message),
    m.HostBeat: lambda node, message: node.desk.host_beat(message),
    m.HostTold: lambda node, message: node.hosting.told(message),
    row_messages.RowsSent: lambda node, message: node.carrying.rows_sent(message),
    row_messages.RowsKept: NodeMachine._rows_kept,
    row_messages.RowsCut: lambda node, message: node.carrying.rows_cut(message),
    row_messages.InstancesHere: lambda node, message: node.carrying.instances_here(message),
    row_messages.HomeTold: lambda node, message: node.carrying.home_told(message),
    row_messages.HomeWanted: lambda node, message: node.desk.steps.home_wanted(message),
    state_messages.StateAsked: lambda node, message: node.moving.state_asked(message),
    state_messages.StateTold: lambda node, message: node.moving.state_told(message),
    state_messages.StateDelayed: lambda node, message: node.moving.state_delayed(message),
    state_messages.StateUnknown: lambda node, message: node.moving.state_unknown(message),
    state_messages.StateTaken: lambda node, message: node.moving.state_taken(message),
    state_messages.StateForgotten: lambda node, message: node.moving.state_forgotten(message),
    state_messages.StateRuns: lambda node, message: node.moving.state_runs(message),
    state_messages.StateSought: lambda node, message: node.moving.state_sought(message),
    state_messages.StateLost: lambda node, message: node.desk.steps.state_lost(message),
    state_messages.StateHere: lambda node, message: node.desk.steps.state_here(message),
    m.StewardChanged: NodeMachine._steward_changed,
    m.StewardMoved: NodeMachine._steward_moved,
}
