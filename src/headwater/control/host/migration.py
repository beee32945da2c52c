"""Instances that move: one that is to run here fetches what it had elsewhere, one that goes is emptied and given away.

    old host                                      new host
                                                  is asked to run the instance, and opens its app
                       ◄── give me its state ──
    takes no more rows for it, runs
    what waits, stops, and waits until
    what it has made is with others
                        ── state, piece by piece ──►   keeps it; with the last piece where it stands
                       ◄── taken ──
    forgets it          ── forgotten ──►          runs it, and tells the nodes on its way up
                       ◄── runs ──

Rows that come meanwhile stay with their senders. So those of one channel keep their order on both sides of the move:
what the old host took and made is taken by others before anything that the new one makes. Every step is asked for
again until it is answered, by the new host alone; killed at any moment, either goes on from what its store says. While
the old host has it, nobody else has run it: if the new one is lost, another can fetch it. It tells one node, and no
other, that it has forgotten it. And nobody begins with nothing by itself: that nothing is left the steward is told, who
has the app's owner agree, and asks anew.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headwater.control.context import NodeContext
from headwater.control.host.engine_view import Dock, OpenApp
from headwater.control.host.instances import Hosting
from headwater.control.host.row_channels import Carrying
from headwater.control.messages import app_messages as m
from headwater.control.messages import state_messages as s
from headwater.control.messages.events import EmptyInstance, NoteRefused, NoteRowsGone
from headwater.engine.channels import origin_of
from headwater.engine.moving import (
    BEGINNING,
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

PROMISED_MAX: Final = 1_000
PACE_MAX: Final = Duration(64 * SECOND)  # what the largest piece takes on a link of 1 Mbit/s

Spot = tuple[str, int]  # an app and one of its instances


@dataclass(slots=True)
class Fetching:
    """An instance that is to run here once its state has come."""

    asked: m.StartAsked
    sought: list[m.Whence]  # where it may be; the first is asked next
    heard: Instant  # when one of those last answered
    pace: Duration  # between two askings for the same piece: one that is on its way must not be sent again and again
    since: Instant  # what comes next has been asked for
    asked_times: int = 0
    after: Place = BEGINNING  # what comes next follows this
    turns: int = -1  # of the instance when its first piece was read
    is_kept: bool = False  # all of it is here, and its old host has yet to forget it
    unknown: set[Lot] = field(default_factory=set)  # of those sought, such as are not where they should be

    @property
    def whence(self) -> m.Whence:
        """Where it is asked for."""
        return self.sought[0]

    def ask(self) -> Duration:
        """Return how long to wait for the piece that is asked for now: longer, if all were asked for it in vain."""
        if self.asked_times and self.asked_times % len(self.sought) == 0:
            self.pace = min(PACE_MAX, Duration(2 * self.pace))
        self.asked_times += 1
        return self.pace

    def came(self, now: Instant, retry: Duration) -> None:
        """Expect the next piece to take about as long as the one that has come."""
        self.pace = min(PACE_MAX, max(retry, Duration(2 * (now - self.since))))
        self.since, self.asked_times = now, 0


@dataclass(slots=True)
class Giving:
    """An instance that is to run elsewhere."""

    to: Peer
    after: Place
    is_emptied: bool = False  # or is being
    made: dict[int, int] = field(default_factory=dict)  # for instances elsewhere: the number behind its last entry
    has_left: bool = False  # what it made is with others, and its state may go


class OpenInstance(NamedTuple):
    """An instance whose app is open here."""

    app: OpenApp
    identity: InstanceId
    plan: ChainPlan
    dock: Dock

    def lot(self) -> Lot | None:
        """Return under which lot it runs here, or did last."""
        with self.dock.store.read() as snapshot:
            return read_lot(snapshot, self.identity)

    def is_settled(self) -> bool:
        """Whether nothing of it is anywhere else any more."""
        with self.dock.store.read() as snapshot:
            return is_settled(snapshot, self.identity)

    def clear(self, txn: Transaction) -> None:
        """Delete its state."""
        clear_state(txn, self.plan, self.identity, shared=not self._shares())

    def settle(self) -> bool:
        """Have it alone, if it is here: we were restarted, and are asked to run it later; False for want of room."""
        lot = self.lot()
        return lot is None or self.is_settled() or self.keep_lot(lot)

    def keep_lot(self, lot: Lot) -> bool:
        """Have it under this lot and nobody else; False if the disk has no room for that."""
        try:
            with self.dock.store.write() as txn:
                keep_lot(txn, self.identity, lot)
        except StoreFull:
            return False
        return True

    def give_away(self, to: Peer) -> bool:
        """Have nothing of it any more, and remember who has; False if the disk has no room for that."""
        try:
            with self.dock.store.write() as txn:
                give_away(txn, self.plan, self.identity, to.id, shared=not self._shares())
        except StoreFull:
            return False
        return True

    def was_given_to(self, peer: Peer, lot: Lot) -> bool:
        """Whether it was given to a node, who had it from us under this lot."""
        with self.dock.store.read() as snapshot:
            return was_given_to(snapshot, self.identity, lot, peer.id)

    def _shares(self) -> bool:
        return shares(self.plan, self.identity, self.app.here)


class Moving:
    """The part of a node that brings instances here and gives others away."""

    def __init__(self, ground: NodeContext, carrying: Carrying, hosting: Hosting, dock: Dock | None) -> None:
        """Move nothing; a node without a dock has nothing that could."""
        self._ground, self._carrying, self._hosting, self._dock = ground, carrying, hosting, dock
        self.fetching: dict[Spot, Fetching] = {}
        self.giving: dict[Spot, Giving] = {}
        self._promised: dict[Spot, Lot] = {}  # what we have told others that we do not have, the latest last
        self._given: dict[Spot, tuple[s.StateForgotten, Peer, Instant]] = {}  # and not known to be heard of, since when

    def check(self) -> None:
        """Raise if something is not as it must be."""
        for spot, fetching in self.fetching.items():
            assert self._is_awaited(spot, fetching), "something is fetched that nobody waits for"
            assert fetching.sought, "nobody is asked for what is fetched"

    def settle(self) -> None:
        """Begin to fetch what the host has been asked to run, and give up what it is no longer asked for."""
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
        """Move nothing of an app any more."""
        for spot in [spot for spot in (*self.fetching, *self.giving, *self._given) if spot[0] == app]:
            self.giving.pop(spot, None)
            self._given.pop(spot, None)
            self._forget(spot)

    def _forget(self, spot: Spot) -> None:
        self.fetching.pop(spot, None)
        self._ground.timers.cancel(("move", spot))

    def _found(self, spot: Spot) -> OpenInstance | None:
        """Return what is needed to touch an instance's state, if its app is open here."""
        app = self._carrying.apps.get(spot[0])
        if app is None or self._dock is None:
            return None
        identity = InstanceId(app.id, spot[1])
        plan = self._dock.plan(identity)
        return None if plan is None else OpenInstance(app, identity, plan, self._dock)

    # --- coming here --------------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether nothing is coming, and those who took something from us know that they have it alone."""
        return not self.fetching and not self._given

    def again(self, spot: Spot) -> None:
        """Ask again for what has not come; if nothing has so far, where else it may be."""
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
            return  # the app is being opened, or what ran here under another lot is being stopped
        whence, lot = fetching.whence, found.lot()
        fetching.is_kept |= lot == fetching.asked.lot  # before we were restarted
        if (whence.host.id == ground.own.id and lot == whence.lot) or (fetching.is_kept and found.is_settled()):
            self._arrived(spot)
        elif self._is_hopeless(fetching):
            lost = s.StateLost(ground.own, *spot, fetching.asked.lot, fetching.is_kept)
            ground.send(self._hosting.hosted[spot].steward, lost)
        elif fetching.is_kept:
            ground.send(whence.host, s.StateTaken(ground.own, *spot, whence.lot))
        else:
            ground.come_back(("move", spot), fetching.ask())
            ground.send(whence.host, s.StateAsked(ground.own, *spot, whence.lot, fetching.after))

    def _is_hopeless(self, fetching: Fetching) -> bool:
        """Whether nobody has what is fetched, or those who should are silent for too long."""
        ground = self._ground
        are_lost = all(one.is_lost for one in fetching.sought)
        patience = ground.config.host_silence_max if are_lost else ground.config.keeper_silence_max
        return len(fetching.unknown) == len(fetching.sought) or ground.now - fetching.heard > patience

    def state_told(self, message: s.StateTold) -> None:
        """Keep a piece of an instance's state; with the last one have its old host forget it."""
        spot = (message.app, message.instance)
        fetching, found = self._expected(spot, message.sender, message.lot), self._found(spot)
        if fetching is None or found is None or message.after != fetching.after:
            return
        if not message.held and not message.is_last:
            return
        fetching.heard = self._ground.now
        if fetching.after != BEGINNING and message.turns != fetching.turns:  # it ran again, after a restart
            fetching.after = BEGINNING
            self._ask(spot)
            return
        fetching.turns = message.turns
        fetching.sought.sort(key=lambda one: one.lot != message.lot)  # the rest of it has to come from there, too
        try:
            self._keep(message, found, fetching)
        except StoreFull:
            return  # it is asked for again, when there may be room
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
            if fetching.after == BEGINNING:  # what is here is of another time, or of a fetching that was cut off
                found.clear(txn)
            put_piece(txn, found.plan, identity, message.held)
            if message.is_last:
                origin = origin_of(txn, dock.name, identity.app)
                standing = Standing(message.received, message.times)
                operators = len(found.plan.operators)
                record = take_up(txn, identity, origin, standing, fetching.asked.lot, operators)
        if message.is_last:
            self._ground.emit(NoteRowsGone(identity, record))

    def state_delayed(self, message: s.StateDelayed) -> None:
        """Take note that an instance's old host is there, and nothing on its way yet."""
        spot, ground = (message.app, message.instance), self._ground
        fetching = self._expected(spot, message.sender, message.lot)
        if fetching is not None:
            fetching.heard = ground.now
            fetching.came(ground.now, ground.config.retry)
            ground.come_back(("move", spot), ground.config.retry)

    def state_unknown(self, message: s.StateUnknown) -> None:
        """Take note where nothing of an instance is, or nothing that is for us."""
        spot = (message.app, message.instance)
        fetching = self._expected(spot, message.sender, message.lot)
        if fetching is not None and message.lot not in fetching.unknown:
            fetching.unknown.add(message.lot)
            fetching.heard = self._ground.now
            if fetching.whence.lot == message.lot and not fetching.is_kept:
                fetching.after = BEGINNING
            self.again(spot)

    def _expected(self, spot: Spot, sender: Peer, lot: Lot) -> Fetching | None:
        """Return what is being fetched, if this one was asked for it under that lot."""
        fetching = self.fetching.get(spot)
        if fetching is None or (sender.id, lot) not in [(one.host.id, one.lot) for one in fetching.sought]:
            return None
        return fetching

    def _arrived(self, spot: Spot) -> None:
        fetching, found = self.fetching[spot], self._found(spot)
        assert found is not None
        if not found.keep_lot(fetching.asked.lot):
            return  # it is asked for again, when there may be room
        del self.fetching[spot]
        self._carrying.open_door(*spot)
        self._hosting.arrived(fetching.asked)
        self._ground.timers.cancel(("move", spot))

    def state_forgotten(self, message: s.StateForgotten) -> None:
        """Let an instance run whose old host has nothing of it any more."""
        spot, ground = (message.app, message.instance), self._ground
        fetching, found = self._expected(spot, message.sender, message.lot), self._found(spot)
        if fetching is not None and fetching.is_kept:
            self._arrived(spot)
        elif found is not None and not found.settle():
            return  # it is told us again, when there may be room
        if spot not in self.fetching:
            ground.send(message.sender, s.StateRuns(ground.own, *spot, message.lot))

    # --- going elsewhere ----------------------------------------------------------------------------------------------

    def state_asked(self, message: s.StateAsked) -> None:
        """Give an instance away to whoever is to run it now."""
        spot, ground = (message.app, message.instance), self._ground
        found = self._found(spot)
        if found is None:
            if self._dock is not None and self._dock.holds(message.app):
                return  # it cannot be opened here at present, which may be mended
        elif spot in self.fetching and self.fetching[spot].asked.lot == message.lot:
            ground.send(message.sender, s.StateDelayed(ground.own, *spot, message.lot, is_here=False))
            return
        elif found.lot() == message.lot:
            giving = self.giving.setdefault(spot, Giving(message.sender, message.after))
            giving.to, giving.after = message.sender, message.after
            self._give(spot, giving)
            return
        self._promise(spot, message.lot)
        ground.send(message.sender, s.StateUnknown(ground.own, *spot, message.lot))

    def _promise(self, spot: Spot, lot: Lot) -> None:
        """Never run an instance under a lot of which we have told somebody that we have nothing."""
        self._promised[spot] = max(lot, self._promised.pop(spot, lot))
        if len(self._promised) > PROMISED_MAX:
            del self._promised[next(iter(self._promised))]

    def is_over(self, spot: Spot, lot: Lot) -> bool:
        """Whether a placement was followed by another, whose host was told that we have nothing."""
        return spot in self._promised and lot <= self._promised[spot]

    def state_sought(self, message: s.StateSought) -> None:
        """Tell a steward that an instance is still here."""
        found = self._found((message.app, message.instance))
        if found is not None and found.lot() == message.lot:
            here = s.StateHere(self._ground.own, message.app, message.instance, message.lot)
            self._ground.send(message.sender, here)

    def goes_on(self, app: str) -> None:
        """Give away what had to wait for rows to be with others, or for workers to let it go."""
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
            standing = read_standing(snapshot, identity, found.app.origin) if piece.is_last else Standing((), None)
        assert lot is not None
        received = standing.received[: s.RECEIVED_MAX]
        told = s.StateTold(
            self._ground.own, *spot, lot, giving.after, turns, piece.held, piece.is_last, received, standing.times
        )
        self._ground.send(giving.to, told)

    def has_kept(self, spot: Spot, lot: Lot) -> bool:
        """Whether something of an instance is here under a lot, or may be: its app cannot be opened at present."""
        found = self._found(spot)
        return found.lot() == lot if found is not None else self._dock is not None and self._dock.holds(spot[0])

    def stays(self, spot: Spot, lot: Lot) -> None:
        """Give an instance away no more, that is to run here after all."""
        found = self._found(spot)
        if spot in self.giving and found is not None and found.lot() == lot:
            del self.giving[spot]
            self._carrying.open_door(*spot)

    def _has_left(self, spot: Spot, giving: Giving, found: OpenInstance) -> bool:
        """Whether nothing of an instance is here but its state; what is in the way is being done."""
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
        """Whether what an instance made before it stopped is with those for whom it was made."""
        app = found.app
        with found.dock.store.read() as snapshot:
            queues = {target: read_queue(snapshot, InstanceId(app.id, target)) for target in _targets(found.plan)}
        if not giving.made:
            giving.made = {target: queue.next_sequence for target, queue in queues.items() if target not in app.here}
        return all(queues[target].head_sequence >= number for target, number in giving.made.items())

    def state_taken(self, message: s.StateTaken) -> None:
        """Forget an instance that is to run elsewhere; only for who asked last, to whom we have given all of it."""
        spot, ground = (message.app, message.instance), self._ground
        found = self._found(spot)
        if found is not None and found.lot() == message.lot:
            giving = self.giving.get(spot)
            if giving is None:  # we were restarted, and may have run it since
                self.state_asked(s.StateAsked(message.sender, *spot, message.lot, BEGINNING))
                return
            if not giving.has_left or giving.to.id != message.sender.id:
                return
            if not found.give_away(message.sender):
                return  # it is asked for again
            del self.giving[spot]
            self._hosting.gave_away(spot)
            self._carrying.has_gone_to(*spot, message.sender)
        if found is not None and found.was_given_to(message.sender, message.lot):
            forgotten = s.StateForgotten(ground.own, *spot, message.lot)
            self._given[spot] = (forgotten, message.sender, ground.now)
            self._tell_forgotten(spot)
        elif found is not None or self._dock is None or not self._dock.holds(message.app):
            ground.send(message.sender, s.StateUnknown(ground.own, *spot, message.lot))

    def _tell_forgotten(self, spot: Spot) -> None:
        """Tell who took an instance that nobody else has it; it waits for that, but we do not wait for it for ever."""
        forgotten, taker, since = self._given[spot]
        if self._ground.now - since > self._ground.config.owner_silence_max:
            del self._given[spot]
            return
        self._ground.send(taker, forgotten)
        if spot not in self.fetching:
            self._ground.come_back(("move", spot), self._ground.config.retry)

    def state_runs(self, message: s.StateRuns) -> None:
        """Tell who took an instance no more that it may run."""
        spot = (message.app, message.instance)
        if spot in self._given and self._given[spot][0].lot == message.lot:
            del self._given[spot]


def _targets(plan: ChainPlan) -> Iterator[int]:
    """Go through the instances that a chain's rows go to."""
    for outlets in (*plan.outlets, *plan.errors.values()):
        for outlet in outlets:
            yield from outlet.targets
