"""Instances that move: the new host fetches the state, the old host empties the instance and gives it away.

    old host                                        new host
                                                    is asked to run the instance, and opens its app
                    ◄── StateAsked ──
    refuses rows for it, runs what
    waits, stops, and waits until other
    hosts have acknowledged its output
                    ── StateTold, by pieces ──►     stores it, and with the last piece its progress
                    ◄── StateTaken ──
    deletes it      ── StateForgotten ──►           runs it, and announces it up the tree
                    ◄── StateRuns ──

Rows that arrive meanwhile stay in their senders' outboxes. So the rows of one channel keep their order across the move:
other hosts have all that the old host made before the new one makes anything. The new host retransmits every request
until it is answered; after a crash at any moment, either host goes on from what its store says.

At most one host may run an instance. While the old host has it, no other has run it, so that a third host can fetch it
if the new one is lost. The old host tells exactly one host that it has deleted the state. Messages carry the lot
(fencing token) under which the old host has it. A host that finds no state anywhere does not start empty by itself: it
tells the steward, which has the app's owner agree to a new lot.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headwater.control.context import NodeContext
from headwater.control.host.disowned import Disowned
from headwater.control.host.engine_view import Dock, OpenApp
from headwater.control.host.instances import Hosting
from headwater.control.host.row_channels import Carrying
from headwater.control.messages import app_messages as m
from headwater.control.messages import state_messages as s
from headwater.control.messages.events import EmptyInstance, NoteRefused, NoteRowsGone
from headwater.engine.channels import origin_of
from headwater.engine.cuts import known_cut, last_lot, origin_under
from headwater.engine.moving import (
    BEGINNING,
    CopySource,
    Place,
    Standing,
    clear_state,
    give_away,
    is_settled,
    keep_lot,
    place_behind,
    put_piece,
    read_lot,
    read_piece,
    read_source,
    read_standing,
    shares,
    take_up,
    was_given_to,
)
from headwater.engine.plans import ChainPlan
from headwater.engine.queue_records import read_queue
from headwater.model.errors import StoreError, StoreFull
from headwater.model.ids import InstanceId
from headwater.model.peers import Peer
from headwater.model.store_contract import Transaction
from headwater.model.terms import Lot
from headwater.model.time import SECOND, Duration, Instant

PACE_MAX: Final = Duration(64 * SECOND)  # what the largest piece takes on a link of 1 Mbit/s

Spot = tuple[str, int]  # an app and one of its instances


@dataclass(slots=True)
class Fetching:
    """An instance that is to run here once its state has come."""

    asked: m.StartAsked
    sought: list[m.Whence]  # the hosts that may have it; the first is asked next
    heard: Instant  # when one of those last answered
    pace: Duration  # the retransmission interval, longer than a piece takes on this link
    since: Instant  # when the next piece was first asked for
    asked_times: int = 0
    after: Place = BEGINNING  # the next piece follows this place
    turns: int = -1  # of the instance when its first piece was read
    is_kept: bool = False  # all of it is here, and the old host has yet to delete it
    unknown: set[Lot] = field(default_factory=set)  # lots in `sought` that their hosts do not have

    @property
    def whence(self) -> m.Whence:
        """The placement that is asked for the state."""
        return self.sought[0]

    def ask(self) -> Duration:
        """Count a request and return its timeout, doubled after each round without the piece (backoff)."""
        if self.asked_times and self.asked_times % len(self.sought) == 0:
            self.pace = min(PACE_MAX, Duration(2 * self.pace))
        self.asked_times += 1
        return self.pace

    def came(self, now: Instant, retry: Duration) -> None:
        """Adapt the timeout to the time that the last piece took."""
        self.pace = min(PACE_MAX, max(retry, Duration(2 * (now - self.since))))
        self.since, self.asked_times = now, 0


@dataclass(slots=True)
class Giving:
    """An instance that another host fetches from here."""

    to: Peer
    after: Place
    is_emptied: bool = False  # or is being emptied
    made: dict[int, int] = field(default_factory=dict)  # by instance elsewhere: the number behind our last entry for it
    has_left: bool = False  # other hosts have acknowledged its output, and its state may go


class OpenInstance(NamedTuple):
    """An instance whose app is open here."""

    app: OpenApp
    identity: InstanceId
    plan: ChainPlan
    dock: Dock

    def lot(self) -> Lot | None:
        """Return the lot under which it runs here, or did last."""
        with self.dock.store.read() as snapshot:
            return read_lot(snapshot, self.identity)

    def cut(self) -> Lot:
        """Return under which cut its rows are sent from here, or taken."""
        with self.dock.store.read() as snapshot:
            return known_cut(snapshot, self.identity).lot

    def is_settled(self) -> bool:
        """Whether no other host has its state, so that it may run here."""
        with self.dock.store.read() as snapshot:
            return is_settled(snapshot, self.identity)

    def clear(self, txn: Transaction) -> None:
        """Delete its state."""
        clear_state(txn, self.plan, self.identity, shared=not self._shares())

    def source(self) -> CopySource | None:
        """Return from which placement the copy here was fetched, until its host has deleted the state."""
        with self.dock.store.read() as snapshot:
            return read_source(snapshot, self.identity)

    def settle(self) -> bool:
        """Mark the copy that is here as ours alone; False if the disk is full."""
        lot = self.lot()
        return lot is None or self.keep_lot(lot)

    def keep_lot(self, lot: Lot) -> bool:
        """Write durably that we alone have it, under this lot; False if the disk is full."""
        try:
            with self.dock.store.write() as txn:
                keep_lot(txn, self.identity, lot)
        except StoreFull:
            return False
        return True

    def give_away(self, to: Peer) -> bool:
        """Delete its state and record its new host, in one transaction; False if the disk is full."""
        try:
            with self.dock.store.write() as txn:
                give_away(txn, self.plan, self.identity, to.id, shared=not self._shares())
        except StoreFull:
            return False
        return True

    def was_given_to(self, peer: Peer, lot: Lot) -> bool:
        """Whether we gave it to this host, under this lot of ours."""
        with self.dock.store.read() as snapshot:
            return was_given_to(snapshot, self.identity, lot, peer.id)

    def _shares(self) -> bool:
        return shares(self.plan, self.identity, self.app.here)


class Moving:
    """The part of a node that fetches instances and gives others away; without a dock there is nothing to move."""

    def __init__(self, ground: NodeContext, carrying: Carrying, hosting: Hosting, dock: Dock | None) -> None:
        self._ground, self._carrying, self._hosting, self._dock = ground, carrying, hosting, dock
        self.fetching: dict[Spot, Fetching] = {}
        self.giving: dict[Spot, Giving] = {}
        self._disowned = Disowned(None if dock is None else dock.store)
        self._given: dict[Spot, tuple[s.StateForgotten, Peer, Instant]] = {}  # unacknowledged: to whom, since when

    def check(self) -> None:
        """Raise if an invariant is broken."""
        for spot, fetching in self.fetching.items():
            assert self._is_awaited(spot, fetching), "something is fetched that nobody waits for"
            assert fetching.sought, "nobody is asked for what is fetched"

    def settle(self) -> None:
        """Begin the fetches that the host wants, and cancel those that it does not want any more."""
        wanted, self._hosting.fetches_wanted = self._hosting.fetches_wanted, []
        for asked in wanted:
            assert asked.whence is not None
            spot = (asked.app, asked.instance)
            self.giving.pop(spot, None)
            now, retry = self._ground.now, self._ground.config.retry
            self.fetching[spot] = Fetching(asked, list(asked.whence.all()), now, retry, now)
            self._ask(spot)
        for spot in [spot for spot, fetching in self.fetching.items() if not self._is_awaited(spot, fetching)]:
            self._forget(spot)

    def _is_awaited(self, spot: Spot, fetching: Fetching) -> bool:
        hosted = self._hosting.hosted.get(spot)
        return hosted is not None and hosted.is_arriving and hosted.lot == fetching.asked.lot

    def app_closed(self, app: str) -> None:
        """Cancel all moves of an app's instances."""
        for spot in [spot for spot in (*self.fetching, *self.giving, *self._given) if spot[0] == app]:
            self.giving.pop(spot, None)
            self._given.pop(spot, None)
            self._forget(spot)

    def _forget(self, spot: Spot) -> None:
        self.fetching.pop(spot, None)
        self._ground.timers.cancel(("move", spot))

    def _found(self, spot: Spot) -> OpenInstance | None:
        """Return an instance with its plan and dock, if its app is open here."""
        app = self._carrying.apps.get(spot[0])
        if app is None or self._dock is None:
            return None
        identity = InstanceId(app.id, spot[1])
        plan = self._dock.plan(identity)
        return None if plan is None else OpenInstance(app, identity, plan, self._dock)

    # --- coming here --------------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether no fetch is under way, and every StateForgotten of ours is acknowledged or given up."""
        return not self.fetching and not self._given

    def again(self, spot: Spot) -> None:
        """Retransmit a request; as long as no piece has arrived, to the next host that may have the state."""
        fetching = self.fetching.get(spot)
        if fetching is not None:
            if fetching.after == BEGINNING and not fetching.is_kept:
                fetching.sought.append(fetching.sought.pop(0))
            self._ask(spot)
        elif spot in self._given:
            self._tell_forgotten(spot)

    def _ask(self, spot: Spot) -> None:
        ground, fetching, found = self._ground, self.fetching[spot], self._found(spot)
        ground.come_back(("move", spot), ground.config.retry)
        if found is None or spot[1] in found.app.here:
            return  # the app is being opened, or the instance under another lot is being stopped here
        whence, lot = fetching.whence, found.lot()
        fetching.is_kept |= lot == fetching.asked.lot  # it was fetched before a restart of ours
        if (whence.host.id == ground.own.id and lot == whence.lot) or (fetching.is_kept and found.is_settled()):
            self._arrived(spot)
        elif self._is_hopeless(fetching):
            lost = s.StateLost(ground.own, *spot, fetching.asked.lot, fetching.is_kept)
            ground.send(self._hosting.hosted[spot].steward, lost)
        elif fetching.is_kept:
            source = found.source()  # others that may have had it come first in the list after a restart of ours
            fetching.sought.sort(key=lambda one: (one.host.id, one.lot) != source)
            ground.send(fetching.whence.host, s.StateTaken(ground.own, *spot, fetching.whence.lot))
        else:
            ground.come_back(("move", spot), fetching.ask())
            ground.send(whence.host, s.StateAsked(ground.own, *spot, whence.lot, fetching.after))

    def _is_hopeless(self, fetching: Fetching) -> bool:
        """Whether all hosts have answered that they do not have the state, or are silent for too long."""
        ground = self._ground
        are_lost = all(one.is_lost for one in fetching.sought)
        patience = ground.config.host_silence_max if are_lost else ground.config.keeper_silence_max
        return len(fetching.unknown) == len(fetching.sought) or ground.now - fetching.heard > patience

    def state_told(self, message: s.StateTold) -> None:
        """Store a piece of an instance's state; after the last one have the old host delete it."""
        spot = (message.app, message.instance)
        fetching, found = self._expected(spot, message.sender, message.lot), self._found(spot)
        if fetching is None or found is None or message.after != fetching.after:
            return
        if not message.held and not message.is_last:
            return
        fetching.heard = self._ground.now
        if fetching.after != BEGINNING and message.turns != fetching.turns:  # it ran again, after a restart there
            fetching.after = BEGINNING
            self._ask(spot)
            return
        fetching.turns = message.turns
        fetching.sought.sort(key=lambda one: one.lot != message.lot)  # the rest of it has to come from there, too
        if message.is_last:
            self._carrying.obey(*spot, fetching.asked.cuts)
            if found.cut() != last_lot(fetching.asked.cuts):
                return  # it is asked for again, when that was possible
        try:
            self._keep(message, found, fetching)
        except StoreFull:
            return  # the timer asks for it again, when there may be room
        except StoreError as damage:
            self._ground.emit(NoteRefused(message.sender, f"the state of {message.app}: {damage}"))
            return
        fetching.came(self._ground.now, self._ground.config.retry)
        fetching.is_kept = message.is_last
        fetching.after = BEGINNING if message.is_last else place_behind(message.held[-1])
        self._ask(spot)

    def _keep(self, message: s.StateTold, found: OpenInstance, fetching: Fetching) -> None:
        identity, dock = found.identity, found.dock
        with dock.store.write() as txn:
            if fetching.after == BEGINNING:  # delete old state, or what an interrupted fetch left
                found.clear(txn)
            put_piece(txn, found.plan, identity, message.held)
            if message.is_last:
                origin = origin_under(origin_of(txn, dock.name, identity.app), last_lot(fetching.asked.cuts))
                standing = Standing(message.received, message.times)
                operators = len(found.plan.operators)
                source = CopySource(message.sender.id, message.lot)
                record = take_up(txn, identity, origin, standing, fetching.asked.lot, source, operators)
        if message.is_last:
            self._ground.emit(NoteRowsGone(identity, record))

    def state_delayed(self, message: s.StateDelayed) -> None:
        """Take note that the old host is alive, but sends nothing yet."""
        spot, ground = (message.app, message.instance), self._ground
        fetching = self._expected(spot, message.sender, message.lot)
        if fetching is not None:
            fetching.heard = ground.now
            fetching.came(ground.now, ground.config.retry)
            ground.come_back(("move", spot), ground.config.retry)

    def state_unknown(self, message: s.StateUnknown) -> None:
        """Take note that a host does not have an instance's state, or not for us."""
        spot = (message.app, message.instance)
        fetching = self._expected(spot, message.sender, message.lot)
        if fetching is not None and message.lot not in fetching.unknown:
            fetching.unknown.add(message.lot)
            fetching.heard = self._ground.now
            if fetching.whence.lot == message.lot and not fetching.is_kept:
                fetching.after = BEGINNING
            self.again(spot)

    def _expected(self, spot: Spot, sender: Peer, lot: Lot) -> Fetching | None:
        """Return the fetch of an instance, if this sender is one of its sources under that lot."""
        fetching = self.fetching.get(spot)
        if fetching is None or (sender.id, lot) not in [(one.host.id, one.lot) for one in fetching.sought]:
            return None
        return fetching

    def _arrived(self, spot: Spot) -> None:
        fetching, found = self.fetching[spot], self._found(spot)
        assert found is not None
        if not found.keep_lot(fetching.asked.lot):
            return  # the timer asks again, when there may be room
        del self.fetching[spot]
        self._carrying.open_door(*spot)
        self._hosting.arrived(fetching.asked)
        self._ground.timers.cancel(("move", spot))

    def state_forgotten(self, message: s.StateForgotten) -> None:
        """Run an instance, since the host that it was copied from has deleted the state, and acknowledge that.

        Another host may tell us late of an earlier move: that says nothing about who has what we copied since.
        """
        spot, ground = (message.app, message.instance), self._ground
        found = self._found(spot)
        if found is not None and found.source() == CopySource(message.sender.id, message.lot):
            if not found.settle():
                return  # the old host retransmits, when there may be room
            if spot in self.fetching:
                self._ask(spot)
        if spot not in self.fetching:
            ground.send(message.sender, s.StateRuns(ground.own, *spot, message.lot))

    # --- going elsewhere ----------------------------------------------------------------------------------------------

    def state_asked(self, message: s.StateAsked) -> None:
        """Send an instance's state to its new host; the host that asked last counts."""
        spot, ground = (message.app, message.instance), self._ground
        found = self._found(spot)
        if found is None:
            if self._dock is not None and self._dock.holds(message.app):
                return  # the app cannot be opened here at present; the asker retransmits
        elif spot in self.fetching and self.fetching[spot].asked.lot == message.lot:
            ground.send(message.sender, s.StateDelayed(ground.own, *spot, message.lot, is_here=False))
            return
        elif found.lot() == message.lot:
            giving = self.giving.setdefault(spot, Giving(message.sender, message.after))
            giving.to, giving.after = message.sender, message.after
            self._give(spot, giving)
            return
        self._disown(spot, message.lot, message.sender)

    def _disown(self, spot: Spot, lot: Lot, asker: Peer) -> None:
        """Tell a host that we do not have a placement's state, and never run that placement from here on."""
        if self._disowned.add(*spot, lot):  # else the disk is full: the asker retransmits, when there may be room
            self._ground.send(asker, s.StateUnknown(self._ground.own, *spot, lot))

    def is_over(self, spot: Spot, lot: Lot) -> bool:
        """Whether we have disowned a placement: a later one's host was told that we do not have its state."""
        return self._disowned.covers(*spot, lot)

    def state_sought(self, message: s.StateSought) -> None:
        """Tell a steward that an instance is still here."""
        found = self._found((message.app, message.instance))
        if found is not None and found.lot() == message.lot:
            here = s.StateHere(self._ground.own, message.app, message.instance, message.lot)
            self._ground.send(message.sender, here)

    def goes_on(self, app: str) -> None:
        """Give away instances that waited for acknowledgements of their output, or for workers to stop them."""
        for spot, giving in list(self.giving.items()):
            if spot[0] == app and giving.is_emptied and not giving.has_left:
                self._give(spot, giving)

    def _give(self, spot: Spot, giving: Giving) -> None:
        found = self._found(spot)
        assert found is not None
        if not self._has_left(spot, giving, found):
            lot = found.lot()
            assert lot is not None
            self._ground.send(giving.to, s.StateDelayed(self._ground.own, *spot, lot, is_here=True))
            return
        identity = found.identity
        with found.dock.store.read() as snapshot:
            lot, turns = read_lot(snapshot, identity), read_queue(snapshot, identity).turns
            limits = s.PIECE_BYTES, s.ENTRY_BYTES, s.HELD_MAX
            piece = read_piece(snapshot, found.plan, identity, giving.after, *limits)
            origin = origin_under(found.app.origin, known_cut(snapshot, identity).lot)
            standing = read_standing(snapshot, identity, origin) if piece.is_last else Standing((), None)
        assert lot is not None
        received = standing.received[: s.RECEIVED_MAX]
        told = s.StateTold(
            self._ground.own, *spot, lot, giving.after, turns, piece.held, piece.is_last, received, standing.times
        )
        self._ground.send(giving.to, told)

    def has_kept(self, spot: Spot, lot: Lot) -> bool:
        """Whether an instance's state is here under a lot, or may be, since its app cannot be opened at present."""
        found = self._found(spot)
        return found.lot() == lot if found is not None else self._dock is not None and self._dock.holds(spot[0])

    def stays(self, spot: Spot, lot: Lot) -> None:
        """Cancel giving an instance away that is to run here after all."""
        found = self._found(spot)
        if spot in self.giving and found is not None and found.lot() == lot:
            del self.giving[spot]
            self._carrying.open_door(*spot)

    def _has_left(self, spot: Spot, giving: Giving, found: OpenInstance) -> bool:
        """Whether only the state of an instance is left here; if not, have it emptied."""
        here = found.app.here
        if not giving.is_emptied:
            with found.dock.store.read() as snapshot:
                record = read_queue(snapshot, found.identity)
            giving.is_emptied = True
            self._carrying.close_door(*spot)
            if spot[1] in here or record.next_sequence > record.head_sequence:
                self._ground.emit(EmptyInstance(*spot))
                return False
        if spot[1] not in here and not giving.has_left:
            giving.has_left = self._is_made_known(giving, found)
        return giving.has_left

    def _is_made_known(self, giving: Giving, found: OpenInstance) -> bool:
        """Whether other hosts have acknowledged all that an instance made before it stopped."""
        app = found.app
        with found.dock.store.read() as snapshot:
            queues = {target: read_queue(snapshot, InstanceId(app.id, target)) for target in _targets(found.plan)}
        if not giving.made:
            giving.made = {target: queue.next_sequence for target, queue in queues.items() if target not in app.here}
        return all(queues[target].head_sequence >= number for target, number in giving.made.items())

    def state_taken(self, message: s.StateTaken) -> None:
        """Delete an instance that its new host has stored; only for the host that asked last and may have all of it."""
        spot, ground = (message.app, message.instance), self._ground
        found = self._found(spot)
        if found is not None and found.lot() == message.lot:
            giving = self.giving.get(spot)
            if giving is None:  # we were restarted, and may have run it since: send it anew
                self.state_asked(s.StateAsked(message.sender, *spot, message.lot, BEGINNING))
                return
            if not giving.has_left or giving.to.id != message.sender.id:
                return
            if not found.give_away(message.sender):
                return  # the new host retransmits
            del self.giving[spot]
            self._hosting.gave_away(spot)
            self._carrying.has_gone_to(*spot, message.sender)
        if found is not None and found.was_given_to(message.sender, message.lot):
            forgotten = s.StateForgotten(ground.own, *spot, message.lot)
            self._given[spot] = (forgotten, message.sender, ground.now)
            self._tell_forgotten(spot)
        elif spot in self.fetching and self.fetching[spot].asked.lot == message.lot:
            ground.send(message.sender, s.StateDelayed(ground.own, *spot, message.lot, is_here=False))
        elif found is not None or self._dock is None or not self._dock.holds(message.app):
            self._disown(spot, message.lot, message.sender)

    def _tell_forgotten(self, spot: Spot) -> None:
        """Retransmit StateForgotten to the new host until it acknowledges, at most for `owner_silence_max`."""
        forgotten, taker, since = self._given[spot]
        if self._ground.now - since > self._ground.config.owner_silence_max:
            del self._given[spot]
            return
        self._ground.send(taker, forgotten)
        if spot not in self.fetching:
            self._ground.come_back(("move", spot), self._ground.config.retry)

    def state_runs(self, message: s.StateRuns) -> None:
        """Take the acknowledgement of a StateForgotten."""
        spot = (message.app, message.instance)
        if spot in self._given and self._given[spot][0].lot == message.lot:
            del self._given[spot]


def _targets(plan: ChainPlan) -> Iterator[int]:
    """Go through the instances that receive a chain's rows."""
    for outlets in (*plan.outlets, *plan.errors.values()):
        for outlet in outlets:
            yield from outlet.targets
