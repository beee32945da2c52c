"""Rows on their way between nodes: keyed late binding up the tree (Falcon), over reliable FIFO channels.

Hosts announce to the nodes on their path to the root which instances they have. Rows for an instance that runs
elsewhere climb from here towards the root until they reach a node that knows its host. The host stores the rows and
acknowledges them to the sender, which sends the next ones to it directly, for as long as that works. At the root, rows
for an instance without a known host make the root ask the steward, which places it if need be.

Of an instance that was begun anew since its host was lost (`engine/cuts.py`), only rows are taken that were sent since:
who sends others is told, and binds to the lost host what that one may have taken.

A node on the way keeps nothing: rows lie in the outbox of the node that made them until they are durable where they are
taken, whatever happens in between. What is not answered in time is sent again from the first unanswered entry on.
"""

from collections.abc import Callable
from typing import Final

from headwater.control.context import NodeContext
from headwater.control.host.bindings import Bindings, Seekers
from headwater.control.host.engine_view import Dock, OpenApp
from headwater.control.host.outbox import Outbox, UnderWay
from headwater.control.host.row_receipt import Receiving
from headwater.control.messages import row_messages as m
from headwater.control.messages.events import NoteRefused, NoteRowsGone, NoteRowsPut
from headwater.engine.channels import OutboxStretch, check_entries, check_origin, hand_on, origin_of, read_stretch
from headwater.engine.cuts import (
    InstanceCut,
    doubts_of,
    forget_if_settled,
    keep_host,
    known_cut,
    last_lot,
    meant,
    obey_cuts,
    origin_under,
)
from headwater.engine.measuring import SCHEMA_BYTES_MAX
from headwater.engine.moving import read_lot
from headwater.engine.queue_records import read_queue
from headwater.engine.schemas import schemas_bytes
from headwater.model.batch import decode_entry
from headwater.model.errors import StoreError, StoreFull
from headwater.model.ids import AppId, InstanceId
from headwater.model.peers import NodeId, Peer
from headwater.model.store_layout import schema_key
from headwater.model.time import Instant
from headwater.overlay.messages import HOPS_MAX
from headwater.overlay.trees import Trees

BOUND: Final = ("bound", b"")

Steward = Callable[[str], Peer | None]
CutsOf = Callable[[str, int], tuple[InstanceCut, ...] | None]  # of an instance that is here; None: it is not


class Carrying:
    """The part of a node that carries rows to the hosts of their instances; without a dock it only forwards them."""

    def __init__(
        self, ground: NodeContext, trees: Trees, dock: Dock | None, steward_of: Steward, cuts_of: CutsOf = lambda *_: ()
    ) -> None:
        """Carry nothing; a node without a dock only shows others the way."""
        self._ground, self._trees, self._dock = ground, trees, dock
        self._steward_of, self._cuts_of = steward_of, cuts_of
        self._config = ground.config.carrying
        self.apps: dict[str, OpenApp] = {}
        self.outboxes: dict[tuple[str, int], Outbox] = {}
        self._bindings = Bindings(self._config.bound_kept)  # announced by nodes below us
        self._seekers = Seekers(self._config.bound_kept)
        self._receiving = None if dock is None else Receiving(dock, self.apps)

    def check(self) -> None:
        """Raise if an invariant is broken."""
        self._seekers.check()
        for (app, number), outbox in self.outboxes.items():
            assert app in self.apps, f"an outbox of {app}, which is not open"
            assert number not in self.apps[app].here, "an instance that runs here has an outbox"
            assert outbox.base <= outbox.sent, outbox
            assert (outbox.answer_by is not None) == bool(outbox.under_way), outbox

    # --- apps ---------------------------------------------------------------------------------------------------------

    def opened(self, app: str, identity: AppId, key: NodeId) -> None:
        """Take note that an app has queues here."""
        if app not in self.apps:
            assert self._dock is not None, "a node without an engine has no apps"
            with self._dock.store.read() as snapshot:
                origin = origin_of(snapshot, self._dock.name, identity)
                size = schemas_bytes(snapshot, identity)
            self.apps[app] = OpenApp(identity, key, origin, schemas_bytes=size)
            self._send_doubtful(app)

    def closed(self, app: str) -> None:
        """Drop all outboxes of an app."""
        self.apps.pop(app, None)
        for place in [place for place in self.outboxes if place[0] == app]:
            self._drop(place)

    def runs_here(self, app: str, instance: int) -> None:
        """Take the rows of an instance, and announce it to the nodes on our path to the root."""
        self.apps[app].here.add(instance)
        self._drop((app, instance))
        self._send_doubtful(app)
        if instance not in self.apps[app].leaving:
            self._tell_up(app, (instance,))
        self._come_back()

    def runs_no_more(self, app: str, instance: int) -> None:
        """Send on the rows that wait here for an instance that has stopped here."""
        if app in self.apps:
            self.apps[app].here.discard(instance)
            self.rows_wait(app, instance)

    def close_door(self, app: str, instance: int) -> None:
        """Refuse rows for an instance that moves away: they stay in their senders' outboxes."""
        self.apps[app].leaving.add(instance)

    def open_door(self, app: str, instance: int) -> None:
        """Take rows for an instance again, once it runs here."""
        self.apps[app].leaving.discard(instance)

    def has_gone_to(self, app: str, instance: int, host: Peer) -> None:
        """Bind an instance that has moved to its new host."""
        self.open_door(app, instance)
        self._bindings.keep((app, instance), host, self._ground.now)

    def is_empty(self) -> bool:
        """Whether all outboxes are empty."""
        if self._dock is None:
            return True
        with self._dock.store.read() as snapshot:  # those of rows in doubt are among them
            queues = [read_queue(snapshot, outbox.instance) for outbox in self.outboxes.values()]
        return all(queue.head_sequence == queue.next_sequence for queue in queues)

    def _drop(self, place: tuple[str, int]) -> None:
        self.outboxes.pop(place, None)
        self._ground.timers.cancel(("rows", place))

    def tell_where(self) -> None:
        """Repeat to the nodes above us in each tree which instances run here; drop what others did not repeat."""
        told = False
        for app, known in self.apps.items():
            if known.here:
                self._tell_up(app, sorted(known.here - known.leaving))
                told = True
        self._bindings.forget_old(self._ground.now)
        self._seekers.forget_old(self._ground.now)
        if told or self._bindings or self._seekers:
            self._come_back()

    def _come_back(self) -> None:
        """Set the timer of `tell_where`."""
        if BOUND not in self._ground.timers:
            self._ground.come_back(BOUND, self._config.tell)

    def _tell_up(self, app: str, instances: list[int] | tuple[int, ...]) -> None:
        own, key = self._ground.own, self.apps[app].key
        above = self._above(key)
        for start in range(0, len(instances), m.BOUND_MAX):
            bound = tuple((instance, own) for instance in instances[start : start + m.BOUND_MAX])
            if above is not None:
                self._ground.send(above, m.InstancesHere(own, app, key, bound, 1))

    def instances_here(self, message: m.InstancesHere) -> None:
        """Bind instances that run below us, and tell the node above."""
        for instance, host in message.bound:
            place = (message.app, instance)
            self._bindings.keep(place, host, self._ground.now)
            self._answer_seekers(place, host)
        self._come_back()
        above = self._above(message.key)
        if above is not None and message.hops < HOPS_MAX:
            told = m.InstancesHere(self._ground.own, message.app, message.key, message.bound, message.hops + 1)
            self._ground.send(above, told)

    # --- sending ------------------------------------------------------------------------------------------------------

    def rows_wait(self, app: str, instance: int) -> None:
        """Send the rows that wait here for an instance that runs elsewhere."""
        known = self.apps.get(app)
        if known is None or instance in known.here or self._dock is None:
            return
        place = (app, instance)
        outbox = self.outboxes.get(place)
        if outbox is None:
            outbox = self.outboxes[place] = self._outbox(app, known, InstanceId(known.id, instance))
        self._send(outbox, patient=True)

    def _outbox(self, app: str, known: OpenApp, identity: InstanceId) -> Outbox:
        """Return what is to be sent of a queue; if there was a host before a restart, all of it may have been."""
        assert self._dock is not None
        with self._dock.store.read() as snapshot:
            record, cut = read_queue(snapshot, identity), known_cut(snapshot, identity)
        head = record.head_sequence
        tried = head if cut.host is None else record.next_sequence
        return Outbox(app, identity, head, head, tried, origin_under(known.origin, cut.lot), cut.lot)

    def due(self, place: tuple[str, int]) -> None:
        """Send the few rows that waited for more; retransmit after a timeout."""
        outbox = self.outboxes.get(place)
        if outbox is None:
            return
        if outbox.answer_by is not None and outbox.answer_by <= self._ground.now:
            outbox.tries += 1
            if outbox.tries >= self._config.direct_tries:
                outbox.forget_host()
            outbox.go_back()
        self._send(outbox, patient=False)

    def _send(self, outbox: Outbox, *, patient: bool) -> None:
        """Fill the window; if patient, few rows wait a moment for more while others are in flight (Nagle)."""
        assert self._dock is not None
        config, now = self._config, self._ground.now
        wake = None
        while outbox.bytes_under_way < self._window(outbox):
            if outbox.host is None and outbox.bound_to is None:
                self._look_for_host(outbox)
                break
            with self._dock.store.read() as snapshot:
                stretch = read_stretch(snapshot, outbox.instance, outbox.sent, config.message_bytes)
            if stretch.until <= outbox.sent:
                break
            if patient and outbox.under_way and stretch.size_bytes < config.gather_bytes:
                wake = Instant(now + config.gather)
                break
            self._dispatch(outbox, stretch)
        if outbox.under_way and outbox.answer_by is None:
            patience = max(config.answer, outbox.pace) << min(outbox.tries + outbox.lacks, 8)
            outbox.answer_by = Instant(now + min(config.answer_max, patience))
        wakes = [at for at in (wake, outbox.answer_by) if at is not None]
        if wakes:
            self._ground.timers.set(("rows", outbox.place), min(wakes))

    def _look_for_host(self, outbox: Outbox) -> None:
        """Ask without rows who has an instance: those are sent to a host that has answered, and to no other."""
        assert self._dock is not None
        with self._dock.store.read() as snapshot:
            record = read_queue(snapshot, outbox.instance)
        if not outbox.under_way and record.next_sequence > outbox.sent:
            self._dispatch(outbox, OutboxStretch(outbox.sent, outbox.sent, ()))

    def _window(self, outbox: Outbox) -> int:
        """Return how much may be under way."""
        room = self._config.window_bytes if outbox.room_bytes is None else outbox.room_bytes
        return max(1, min(room, self._config.window_bytes))  # at least one message, whose answer tells of new room

    def _dispatch(self, outbox: Outbox, stretch: OutboxStretch) -> None:
        entries, schemas = self._that_fit(outbox, stretch.entries[: m.ENTRIES_MAX])
        until = stretch.until if len(entries) == len(stretch.entries) else entries[-1][0] + 1
        own, app = self._ground.own, self.apps[outbox.app]
        sending = m.Sending(
            outbox.app,
            app.key,
            meant(outbox.instance.number),
            outbox.origin,
            outbox.base,
            stretch.since,
            until,
            entries,
            tuple((m.schema_name(identity), schema) for identity, schema in schemas),
            outbox.cut,
            None if outbox.bound_to is None else outbox.bound_to.id,
        )
        outbox.sent, outbox.tried = until, max(outbox.tried, until)
        if outbox.unanswered_since is None:
            outbox.unanswered_since = self._ground.now
        size, named = sum(len(encoded) for _, encoded in entries), tuple(identity for identity, _ in schemas)
        outbox.under_way.append(UnderWay(until, size, named))
        message = m.RowsSent(own, own, self._steward_of(outbox.app), 0, sending)
        if outbox.bound_to is None:
            self._bring_nearer(message, outbox.host or outbox.hint)
        elif outbox.tries % 2 == 0:
            self._ground.send(outbox.bound_to, message)
        else:  # it may be gone for good, and have given the instance away before
            self._bring_nearer(message)

    def _that_fit(
        self, outbox: Outbox, entries: tuple[tuple[int, bytes], ...]
    ) -> tuple[tuple[tuple[int, bytes], ...], tuple[tuple[int, bytes], ...]]:
        """Return the first entries, as many as fit with the schemas that the receiver may not have."""
        assert self._dock is not None
        schemas: dict[int, bytes] = {}
        size = 0
        with self._dock.store.read() as snapshot:
            for count, (_, encoded) in enumerate(entries):
                entry = decode_entry(encoded)
                if not entry.rows or entry.schema_id in outbox.schemas or entry.schema_id in schemas:
                    continue
                found = snapshot.get(schema_key(outbox.instance.app, entry.schema_id)) or b""
                size += len(found)
                if count and (len(schemas) == m.SCHEMAS_MAX or size > m.SCHEMAS_BYTES_MAX):
                    entries = entries[:count]
                    break
                schemas[entry.schema_id] = bytes(found)
        unsendable = {one for one, schema in schemas.items() if not 0 < len(schema) <= SCHEMA_BYTES_MAX}
        self._note_unsendable(outbox, {one: len(schemas[one]) for one in sorted(unsendable - outbox.unsendable)})
        return entries, tuple((one, schema) for one, schema in schemas.items() if one not in unsendable)

    def _note_unsendable(self, outbox: Outbox, sizes: dict[int, int]) -> None:
        """Report once each schema that cannot be sent: queues take no such rows, so the store is damaged or old."""
        outbox.unsendable.update(sizes)
        for identity, size in sizes.items():
            why = (
                f"has {size:,} bytes; {SCHEMA_BYTES_MAX:,} travel between nodes at most" if size else "is missing here"
            )
            which = f"rows of {outbox.app} for instance {outbox.instance.number}"
            self._ground.emit(NoteRefused(self._ground.own, f"{which} stay here: their schema {identity:x} {why}"))

    def rows_kept(self, message: m.RowsKept) -> None:
        """Forget what the other end has, and send more."""
        outbox = self._sent_as(message.app, message.instance, message.origin)
        if outbox is None:
            return
        if message.until > self._end_of(outbox):
            self._refuse_answer(outbox, message)
            return
        is_first = outbox.host is None
        if not self._knows_host(outbox, message.sender):
            return
        outbox.room_bytes, outbox.tries = message.room_bytes, 0
        if message.lacks_schema and not outbox.schemas:
            self._lack_again(outbox, message.sender)
            return  # what is in flight brings all schemas that can be sent: the timeout retransmits, with backoff
        if is_first:
            outbox.go_back()
        if message.lacks_schema:
            outbox.schemas.clear()
            outbox.go_back()
        elif message.until <= outbox.base and is_first:
            outbox.unanswered_since = None
        elif message.until <= outbox.base:
            outbox.unanswered_since = None
            return  # it has no room, or misses earlier entries: the timeout retransmits
        elif not self._hand_on(outbox, message.until):
            return
        elif self._is_settled(outbox):
            self._drop(outbox.place)
            return
        else:
            outbox.keep_pace(self._ground.now)
        self._send(outbox, patient=True)

    def _lack_again(self, outbox: Outbox, host: Peer) -> None:
        """Report a host, once, that lacks a schema after retransmissions with all of them; before, it may be late."""
        outbox.unanswered_since = None
        outbox.lacks += 1
        if outbox.lacks > self._config.direct_tries and host.id != outbox.disbelieved and not outbox.unsendable:
            outbox.disbelieved = host.id
            which = f"rows of {outbox.app} for instance {outbox.instance.number}"
            self._ground.emit(NoteRefused(host, f"{which} are said to lack a schema that came with them"))

    def _knows_host(self, outbox: Outbox, host: Peer) -> bool:
        """Whether it is remembered that rows go to a host; False if the disk has no room for that at present."""
        is_known = outbox.host is not None and outbox.host.id == host.id
        if not is_known and outbox.bound_to is None:
            assert self._dock is not None
            try:
                with self._dock.store.write() as txn:
                    keep_host(txn, outbox.instance, outbox.cut, host)
            except StoreFull:
                return False
        outbox.host = host
        return True

    def _sent_as(self, app: str, instance: int, origin: bytes) -> Outbox | None:
        """Return the outbox whose rows travel under a name: an instance may have one beside others in doubt."""
        return next(
            (
                outbox
                for (name, number), outbox in self.outboxes.items()
                if name == app and meant(number) == instance and outbox.origin == origin
            ),
            None,
        )

    def _is_settled(self, outbox: Outbox) -> bool:
        """Whether no rows are in doubt any more, where some were; then their queue is forgotten."""
        if outbox.bound_to is None:
            return False
        assert self._dock is not None
        with self._dock.store.write() as txn:
            return forget_if_settled(txn, outbox.instance)

    def _end_of(self, outbox: Outbox) -> int:
        assert self._dock is not None
        with self._dock.store.read() as snapshot:
            return read_queue(snapshot, outbox.instance).next_sequence

    def _refuse_answer(self, outbox: Outbox, message: m.RowsKept) -> None:
        """Ignore an acknowledgement beyond the last entry of the queue; report a peer that sends one, once."""
        if message.sender.id != outbox.disbelieved:
            outbox.disbelieved = message.sender.id
            which = f"rows of {outbox.app} for instance {outbox.instance.number}"
            why = f"{which} are said to be kept up to {message.until}, and have never been so many"
            self._ground.emit(NoteRefused(message.sender, why))

    def _hand_on(self, outbox: Outbox, until: int) -> bool:
        """Delete acknowledged entries; False if the disk is full even for that: the next answer tries again."""
        assert self._dock is not None
        try:
            with self._dock.store.write() as txn:
                record = hand_on(txn, outbox.instance, until)
        except StoreFull:
            return False
        for one in outbox.under_way:
            if one.until <= until:
                outbox.schemas.update(one.schemas)
        outbox.base, outbox.sent, outbox.lacks = until, max(until, outbox.sent), 0
        outbox.under_way = [one for one in outbox.under_way if one.until > until]
        outbox.answer_by = None  # what is still under way gets its time anew
        if outbox.bound_to is None:
            self._ground.emit(NoteRowsGone(outbox.instance, record))
        return True

    # --- losses -------------------------------------------------------------------------------------------------------

    def rows_cut(self, message: m.RowsCut) -> None:
        """Send the rows of an outbox as their host wants them, and set those apart that a lost one may have taken."""
        if not message.origin:
            self.obey(message.app, message.instance, message.cuts)
            return
        outbox = self._sent_as(message.app, message.instance, message.origin)
        if outbox is None or outbox.bound_to is not None:
            return
        is_behind = last_lot(message.cuts) < outbox.cut  # it has yet to hear that it was passed over
        if not is_behind or outbox.tries >= self._config.behind_tries:
            self.obey(message.app, message.instance, message.cuts)

    def obey(self, app: str, instance: int, cuts: tuple[InstanceCut, ...]) -> None:
        """Send or take rows of an instance as one that was begun anew after these losses."""
        known, place = self.apps.get(app), (app, instance)
        if known is None or self._dock is None:
            return
        identity, outbox = InstanceId(known.id, instance), self.outboxes.get(place)
        tried = 0 if instance in known.here else None if outbox is None else outbox.tried
        try:
            with self._dock.store.write() as txn:
                record = obey_cuts(txn, identity, cuts, self._ground.own, tried)
        except StoreFull:
            return  # it is told again, when there may be room
        if record is None or instance in known.here:
            return
        self._ground.emit(NoteRowsGone(identity, record))
        self._drop(place)
        self._send_doubtful(app)
        if record.next_sequence > record.head_sequence:
            self.rows_wait(app, instance)

    def _send_doubtful(self, app: str) -> None:
        """Ask lost hosts to take what they have not taken of the rows that are in doubt."""
        known = self.apps[app]
        assert self._dock is not None
        with self._dock.store.read() as snapshot:
            found = list(doubts_of(snapshot, known.id))
        for identity, doubt in found:
            place = (app, identity.number)
            if place not in self.outboxes:
                outbox = self._outbox(app, known, identity)
                outbox.cut, outbox.origin = doubt.lot, origin_under(known.origin, doubt.lot)
                outbox.bound_to = doubt.host
                self.outboxes[place] = outbox
                self._send(outbox, patient=False)

    # --- the way ------------------------------------------------------------------------------------------------------

    def _above(self, key: NodeId) -> Peer | None:
        """Return our parent in a tree, or the next hop to its root; None if we are the root."""
        tree = self._trees.status().get(key)
        if tree is not None and tree.parent is not None:
            return tree.parent
        return self._ground.ring.next_hop(key)

    def _bring_nearer(self, message: m.RowsSent, to: Peer | None = None) -> None:
        """Forward rows to their host if we know it, else up the tree."""
        sending, own = message.sending, self._ground.own
        place = (sending.app, sending.instance)
        host = to or self._bound_to(place)
        if host is None or host.id in (own.id, message.sender.id):
            host = self._above(sending.key)
        if host is None:
            self._ask_for_home(place, message)
        elif message.hops < HOPS_MAX:
            self._ground.send(host, m.RowsSent(own, message.keeper, message.steward, message.hops + 1, sending))

    def _bound_to(self, place: tuple[str, int]) -> Peer | None:
        """Return the host of an instance, unless its binding is old or the host dead."""
        host = self._bindings.find(place, self._ground.now)
        return None if host is None or host.id in self._ground.ring.known.dead else host

    def _ask_for_home(self, place: tuple[str, int], message: m.RowsSent) -> None:
        """At the root: have the steward name the host of an instance, or place it. Rows stay in their outbox."""
        ground = self._ground
        self._seekers.add(place, message.keeper, ground.now)
        self._come_back()
        if message.steward is not None and self._seekers.may_ask(place, ground.now, self._config.home_asked):
            ground.send(message.steward, m.HomeWanted(ground.own, *place))

    def home_told(self, message: m.HomeTold) -> None:
        """Send our rows to the host that was named, and tell the seekers of the instance."""
        place = (message.app, message.instance)
        outbox = self.outboxes.get(place)
        if outbox is not None and message.host.id != self._ground.own.id:
            if outbox.host is None or outbox.host.id != message.host.id:
                outbox.forget_host()
                outbox.hint, outbox.tries = message.host, 0
            outbox.go_back()
            self._send(outbox, patient=False)
        self._answer_seekers(place, message.host)

    def _answer_seekers(self, place: tuple[str, int], host: Peer) -> None:
        for seeker in self._seekers.answered(place):
            if seeker.id != self._ground.own.id or place in self.outboxes:
                self._ground.send(seeker, m.HomeTold(self._ground.own, *place, host))

    # --- receiving ----------------------------------------------------------------------------------------------------

    def rows_sent(self, message: m.RowsSent) -> None:
        """Store and acknowledge rows for an instance that runs here; forward all others.

        Rows of our own come back if their instance has moved here meanwhile; they are ignored, being in its queue.
        """
        sending = message.sending
        app = self.apps.get(sending.app)
        if sending.bound_to is not None:
            self._settle(message, app)
        elif app is not None and sending.instance in app.here | app.leaving:
            if sending.origin != origin_under(app.origin, sending.cut):
                self._keep_if_uncut(message, app)
        else:
            self._bring_nearer(message)

    def _settle(self, message: m.RowsSent, app: OpenApp | None) -> None:
        """Keep rows in doubt if we can say whether we have them; else bring them to who may.

        That is the host that was lost, or, if it had given the instance away and whoever began it anew did not know so,
        the one that runs it under the cut under which they were sent: it knows what those before it had taken.
        """
        sending, own = message.sending, self._ground.own
        cuts = self._cuts_of(sending.app, sending.instance)
        if app is None:
            self._bring_nearer(message)
            return
        is_here = sending.instance in app.here and cuts is not None
        runs_as_then = is_here and cuts is not None and last_lot(cuts) == sending.cut
        if runs_as_then or (sending.bound_to == own.id and self._had(app, sending.instance)):
            self._keep(message, app)
        elif not is_here:
            self._bring_nearer(message)

    def _had(self, app: OpenApp, instance: int) -> bool:
        """Whether an instance runs here, or did and was not given away."""
        assert self._dock is not None
        with self._dock.store.read() as snapshot:
            return read_lot(snapshot, InstanceId(app.id, instance)) is not None

    def _keep_if_uncut(self, message: m.RowsSent, app: OpenApp) -> None:
        """Keep rows that nobody else can have taken: such as were sent since we began anew, if we did."""
        sending, cuts = message.sending, self._cuts_of(message.sending.app, message.sending.instance)
        if cuts is None:
            return  # it is about to stop here, or to begin; the rows come again
        if sending.cut == last_lot(cuts):
            self._keep(message, app)
        else:
            refused = m.RowsCut(self._ground.own, sending.app, sending.instance, cuts, sending.origin)
            self._ground.send(message.keeper, refused)

    def _keep(self, message: m.RowsSent, app: OpenApp) -> None:
        assert self._dock is not None
        assert self._receiving is not None
        sending, ground = message.sending, self._ground
        try:
            check_origin(sending.origin)
            check_entries(sending.entries, sending.since, sending.until)
            stretch = OutboxStretch(sending.since, sending.until, sending.entries)
            room = 0 if sending.instance in app.leaving else self._dock.room_bytes(app.id)
            taken = self._receiving.take(app, sending, stretch, room)
        except StoreFull:
            return  # the sender retransmits, when there may be room
        except StoreError as damage:
            ground.emit(NoteRefused(message.keeper, f"rows of {sending.app}: {damage}"))
            return
        if taken.record is not None:
            ground.emit(NoteRowsPut(InstanceId(app.id, sending.instance), taken.record))
        kept = m.RowsKept(
            ground.own,
            sending.app,
            sending.instance,
            sending.origin,
            taken.until,
            max(0, room - stretch.size_bytes),
            lacks_schema=taken.lacks_schema,
        )
        ground.send(message.keeper, kept)
        if taken.record is not None and sending.instance not in app.here:  # they were in doubt, and go on from here
            self.rows_wait(sending.app, sending.instance)
