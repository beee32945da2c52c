"""The two ends of a channel, wired back to back: what is gathered, what is believed, and what is remembered of it."""

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from headwater.control.context import NodeContext
from headwater.control.host import bindings as wayfinding
from headwater.control.host.bindings import Bindings, Seekers
from headwater.control.host.row_channels import BOUND, Carrying
from headwater.control.messages import row_messages as m
from headwater.control.messages.events import MachineConfig, NoteRefused, SendMessage
from headwater.engine.channels import read_received
from headwater.engine.measuring import SCHEMA_BYTES_MAX
from headwater.engine.plans import ChainPlan
from headwater.engine.queue_records import append, read_queue
from headwater.engine.schemas import Schemas
from headwater.links.lanes import BULKY, Lanes
from headwater.model.batch import encode_entry
from headwater.model.frames import Inbox
from headwater.model.ids import AppId, InstanceId
from headwater.model.peers import Peer, key_of
from headwater.model.store_contract import Store
from headwater.model.store_layout import app_prefixes, schema_key
from headwater.model.time import MILLISECOND, SECOND, Duration, Instant
from headwater.overlay.messages import HOPS_MAX
from headwater.overlay.trees import Trees
from headwater.storage.memory_store import MemoryStore

APP, KEY = "rain", key_of("rain")
PLACE = (APP, 0)
STEWARD = Peer(key_of("steward"), "steward", "zone")
CONFIG = MachineConfig().carrying


class Quay:
    """What a node has for rows: a store, and room for all."""

    store: Store

    def __init__(self, name: bytes) -> None:
        """Begin empty."""
        self.store, self.schemas, self.name = MemoryStore(), Schemas(), name * 16
        self.room = 1 << 30

    def room_bytes(self, app: AppId) -> int:
        """Take anything, unless there is less room."""
        return self.room

    def plan(self, instance: InstanceId) -> ChainPlan | None:
        """Run nothing."""
        return None

    def holds(self, app: str) -> bool:
        """Have nothing but what is open."""
        return False


class End:
    """One end: a node as far as rows go, outside of any ring."""

    def __init__(self, name: str, number: int = 1) -> None:
        """Have an app under a number."""
        self.own = Peer(key_of(name), name, "zone")
        self.ground = NodeContext(self.own, MachineConfig(), Random(1))
        self.quay = Quay(name[:1].encode())
        self.carrying = Carrying(
            self.ground, Trees(self.ground.ring, MachineConfig().trees, Random(1)), self.quay, _who
        )
        self.open(number)

    def open(self, number: int) -> None:
        """Have the app's queues."""
        self.instance = InstanceId(AppId(number), 0)
        self.carrying.opened(APP, self.instance.app, KEY)

    def forget(self) -> None:
        """Delete all that is here of the app."""
        self.carrying.closed(APP)
        with self.quay.store.write() as txn:
            for prefix in app_prefixes(self.instance.app):
                for key in [key for key, _ in txn.scan(prefix)]:
                    txn.delete(key)

    def put(self, *sizes: int) -> None:
        """Put an entry of one row for each size into the queue, and tell whoever carries it."""
        known = self.quay.schemas.known(pa.schema({"n": pa.binary()}))
        beside = len(known.encode(pa.record_batch({"n": [b""]})))
        with self.quay.store.write() as txn:
            self.quay.schemas.ensure(txn, self.instance.app, known)
            rows = (known.encode(pa.record_batch({"n": [bytes(max(0, size - beside))]})) for size in sizes)
            entries = [(1, encode_entry(known.identity, 0, 1, (), row)) for row in rows]
            append(txn, self.instance, entries)
        self.carrying.rows_wait(APP, 0)

    def pass_time(self, by: int) -> None:
        """Let time pass, and all happen that is due."""
        self.ground.now = Instant(self.ground.now + by)
        for name, what in self.ground.timers.due(self.ground.now):
            if (name, what) == BOUND:
                self.carrying.tell_where()
            else:
                self.carrying.due(what)

    def said(self, kind: type[Any] = m.RowsSent) -> list[Any]:
        """Return what was said since the last time, of one kind of messages or notes."""
        out, self.ground.out = self.ground.out, []
        found = [one.message if isinstance(one, SendMessage) else one for one in out]
        self.carrying.check()
        return [one for one in found if isinstance(one, kind)]

    @property
    def rows(self) -> tuple[int, int]:
        """Rows that were ever put into the queue, and those that wait."""
        with self.quay.store.read() as snapshot:
            record = read_queue(snapshot, self.instance)
        return record.put_rows, record.waiting_rows


def _who(app: str) -> Peer | None:
    return STEWARD


def connected() -> tuple[End, End]:
    """Return a sender that knows where its rows go, and the node where they do."""
    sender, host = End("sender"), End("host", number=7)
    host.carrying.runs_here(APP, 0)
    sender.carrying.rows_wait(APP, 0)
    origin = sender.carrying.apps[APP].origin
    sender.carrying.rows_kept(m.RowsKept(host.own, APP, 0, origin, 0, 1 << 30))
    sender.said()
    return sender, host


def deliver(sender: End, host: End) -> None:
    """Bring what was sent to the host, and its answers back."""
    for message in sender.said():
        host.carrying.rows_sent(message)
    for answer in host.said(m.RowsKept):
        sender.carrying.rows_kept(answer)


# --- small batches are gathered by time and size ----------------------------------------------------------------------


def test_the_first_rows_go_at_once_and_few_more_wait_for_company() -> None:
    """While nothing is under way nobody waits; while something is, small batches travel together."""
    sender, _ = connected()
    sender.put(100)
    assert [len(one.sending.entries) for one in sender.said()] == [1]
    for _ in range(5):
        sender.put(100)
        sender.pass_time(CONFIG.gather // 10)
    assert sender.said() == []
    sender.pass_time(CONFIG.gather)
    (gathered,) = sender.said()
    assert (gathered.sending.since, gathered.sending.until, len(gathered.sending.entries)) == (1, 6, 5)


def test_enough_rows_do_not_wait() -> None:
    """As soon as there are as many bytes as are worth a message."""
    sender, _ = connected()
    sender.put(100)
    sender.said()
    sender.put(CONFIG.gather_bytes // 2)
    assert sender.said() == []
    sender.put(CONFIG.gather_bytes // 2)
    (gathered,) = sender.said()
    assert len(gathered.sending.entries) == 2


def test_a_message_has_no_more_than_a_messages_bytes_and_a_large_entry_goes_alone() -> None:
    """Many small batches fill several messages, in order."""
    sender, _ = connected()
    sender.put(*[CONFIG.message_bytes // 4] * 7, 3 * CONFIG.message_bytes, CONFIG.gather_bytes)
    sent = [one.sending for one in sender.said()]
    assert [(one.since, one.until) for one in sent] == [(0, 3), (3, 6), (6, 7), (7, 8), (8, 9)]


def test_entries_of_more_schemas_than_a_message_takes_go_in_several() -> None:
    """What a flow makes of its rows may have other columns each time; all of it has to come, and be understood."""
    sender, host = connected()
    schemas = [pa.schema({f"column {number}": pa.int64()}) for number in range(2 * m.SCHEMAS_MAX + 50)]
    with sender.quay.store.write() as txn:
        for schema in schemas:
            known = sender.quay.schemas.known(schema)
            sender.quay.schemas.ensure(txn, sender.instance.app, known)
            row = known.encode(pa.record_batch({schema.names[0]: [1]}))
            append(txn, sender.instance, [(1, encode_entry(known.identity, 0, 1, (), row))])
    sender.carrying.rows_wait(APP, 0)
    for _ in range(5):
        deliver(sender, host)
    assert host.rows == (len(schemas), len(schemas))


@pytest.mark.parametrize("size", [None, SCHEMA_BYTES_MAX + 1])
def test_rows_whose_schema_cannot_be_sent_are_retransmitted_with_backoff_and_told_of_once(size: int | None) -> None:
    """The host lacks it each time; without a pause both would send as fast as the link lets them, for ever."""
    sender, host = connected()
    sender.put(100)
    (first,) = sender.said()
    ((name, _),) = first.sending.schemas
    key = schema_key(sender.instance.app, int.from_bytes(name, "big"))
    with sender.quay.store.write() as txn:
        if size is None:
            txn.delete(key)
        else:
            txn.put(key, bytes(size))
    sent, told = 0, []
    for _ in range(600):
        sender.pass_time(100 * MILLISECOND)
        out, sender.ground.out = sender.ground.out, []
        for effect in out:
            if isinstance(effect, NoteRefused):
                told.append(effect.why)
            elif isinstance(effect, SendMessage) and isinstance(effect.message, m.RowsSent):
                sent += 1
                host.carrying.rows_sent(msgspec.structs.replace(effect.message, sender=sender.own))
        for answer in host.said(m.RowsKept):
            assert answer.lacks_schema
            sender.carrying.rows_kept(answer)
        sender.carrying.check()
    assert 5 < sent < 15, "within a minute"
    assert len(told) == 1
    assert ("missing" if size is None else f"{size:,} bytes") in told[0]


def test_a_host_that_lacks_what_it_was_sent_is_told_of_once_and_asked_less_and_less_often() -> None:
    """It may be wrong, or lie; one late word of it is no reason for either."""
    sender, host = connected()
    sender.put(100)
    app = sender.carrying.apps[APP]
    lacks = m.RowsKept(host.own, APP, 0, app.origin, 0, 1 << 20, lacks_schema=True)
    sent, told = 0, []
    for _ in range(600):
        out, sender.ground.out = sender.ground.out, []
        told += [one for one in out if isinstance(one, NoteRefused)]
        for effect in out:
            if isinstance(effect, SendMessage) and isinstance(effect.message, m.RowsSent):
                sent += 1
                sender.carrying.rows_kept(lacks)
        sender.pass_time(100 * MILLISECOND)
    assert 5 < sent < 15, "within a minute"
    assert [one.sender for one in told] == [host.own]


def test_a_host_that_has_lost_its_schemas_is_sent_them_at_once() -> None:
    """They were taken to be there, and so left out."""
    sender, host = connected()
    sender.put(100)
    deliver(sender, host)
    sender.put(100)
    (without,) = sender.said()
    assert without.sending.schemas == ()
    lacks = m.RowsKept(host.own, APP, 0, without.sending.origin, without.sending.base, 1 << 20, lacks_schema=True)
    sender.carrying.rows_kept(lacks)
    (again,) = sender.said()
    assert len(again.sending.schemas) == 1


def test_what_waits_for_company_goes_when_the_answer_comes_and_nothing_else_is_under_way() -> None:
    """An answer makes nobody wait longer."""
    sender, host = connected()
    sender.put(100)
    message = sender.said()[0]
    sender.put(100)
    host.carrying.rows_sent(message)
    sender.carrying.rows_kept(host.said(m.RowsKept)[0])
    assert [(one.sending.since, one.sending.until) for one in sender.said()] == [(1, 2)]


# --- full disks -------------------------------------------------------------------------------------------------------


def test_rows_that_were_taken_stay_while_the_disk_has_no_room_to_forget_them() -> None:
    """They are sent again and refused as known, until there is room; nothing is raised to whoever hears the answer."""
    sender, host = connected()
    sender.put(10, 10)
    store = sender.quay.store
    assert isinstance(store, MemoryStore)
    store.bytes_max = 1
    deliver(sender, host)
    assert (sender.rows, host.rows) == ((2, 2), (2, 2))
    store.bytes_max = None
    sender.pass_time(CONFIG.answer_max)
    deliver(sender, host)
    assert (sender.rows, host.rows) == ((2, 0), (2, 2))


# --- slow links -------------------------------------------------------------------------------------------------------


def test_what_is_not_answered_is_sent_again_after_twice_the_time_that_the_last_answer_took() -> None:
    """A satellite's round trip, or a message that takes seconds to leave, must not send all of it twice."""
    sender, host = connected()
    for _ in range(2):
        sender.put(100)
        (message,) = sender.said()
        for _ in range(3):
            sender.pass_time(SECOND // 2)
        host.carrying.rows_sent(message)
        sender.carrying.rows_kept(host.said(m.RowsKept)[0])
        sender.said()
    sender.put(100)
    assert len(sender.said()) == 1
    for _ in range(5):
        sender.pass_time(SECOND // 2)
    assert sender.said() == []
    sender.pass_time(SECOND // 2)
    assert len(sender.said()) == 1


def test_who_has_no_room_is_asked_as_often_as_before() -> None:
    """That is an answer, too: the time until there is room says nothing about the link."""
    sender, host = connected()
    host.quay.room = 0
    sender.put(100)
    for _ in range(20):
        deliver(sender, host)
        sender.pass_time(SECOND)
    host.quay.room = 1 << 30
    deliver(sender, host)
    sender.put(100)
    assert len(sender.said()) == 1
    sender.pass_time(CONFIG.answer)
    assert len(sender.said()) == 1


def test_a_slow_link_carries_hardly_anything_twice() -> None:
    """A message takes longer to leave than its answer is waited for: it must not queue again behind itself."""
    sender, host = connected()
    lanes, inbox, carried = Lanes(32 << 20, 10_000), Inbox(32 << 20, lanes=2), 0
    sender.put(*[CONFIG.message_bytes] * 40)
    while sender.rows[1]:
        for message in sender.said():
            if not lanes.will_bring(message.brings):
                lanes.offer(msgspec.msgpack.encode(message), BULKY, 0.0, message.brings)
        written = lanes.gather()
        carried += len(written)
        sender.pass_time(max(CONFIG.gather, len(written) * SECOND // 60_000))
        for arrived in inbox.put(written):
            host.carrying.rows_sent(msgspec.msgpack.decode(arrived, type=m.RowsSent))
        for answer in host.said(m.RowsKept):
            sender.carrying.rows_kept(answer)
    assert host.rows == (40, 40)
    assert carried < 1.2 * 40 * CONFIG.message_bytes


# --- an instance comes to where its rows lie --------------------------------------------------------------------------


def test_rows_that_come_round_to_their_own_node_are_not_taken_twice() -> None:
    """They were under way when their instance moved here, and others show them the way: they lie in its queue."""
    sender, _ = connected()
    sender.put(10, 10)
    under_way = sender.said()
    sender.carrying.runs_here(APP, 0)
    for message in under_way:
        sender.carrying.rows_sent(m.RowsSent(STEWARD, message.keeper, message.steward, 2, message.sending))
    assert sender.rows == (2, 2)
    assert sender.said(m.RowsKept) == []


# --- who is believed --------------------------------------------------------------------------------------------------


def test_a_part_that_was_deleted_and_begins_again_is_not_taken_for_the_one_before() -> None:
    """Its entries are numbered from the start; the other end has had those numbers already."""
    sender, host = connected()
    sender.put(10, 10, 10)
    deliver(sender, host)
    assert (sender.rows, host.rows) == ((3, 0), (3, 3))
    sender.forget()
    sender.open(2)
    sender.put(20, 20)
    sender.carrying.home_told(m.HomeTold(host.own, APP, 0, host.own))
    deliver(sender, host)
    deliver(sender, host)
    assert (sender.rows, host.rows) == ((2, 0), (5, 5))


def test_rows_go_to_nobody_who_has_not_answered() -> None:
    """Else a sender would not know who may have taken them, should that one be lost."""
    sender, host = End("sender"), End("host", number=7)
    host.carrying.runs_here(APP, 0)
    sender.put(10, 10)
    sender.carrying.home_told(m.HomeTold(host.own, APP, 0, host.own))
    asked = sender.said()
    assert [one.sending.entries for one in asked] == [()]
    host.carrying.rows_sent(asked[0])
    sender.carrying.rows_kept(host.said(m.RowsKept)[0])
    assert [len(one.sending.entries) for one in sender.said()] == [2]


def test_an_answer_from_before_a_part_was_deleted_is_not_heard() -> None:
    """It is of rows that nobody has any more."""
    sender, host = connected()
    sender.put(10, 10, 10)
    host.carrying.rows_sent(sender.said()[0])
    (late,) = host.said(m.RowsKept)
    sender.forget()
    sender.open(2)
    sender.put(20, 20, 20, 20)
    sender.said()
    sender.carrying.rows_kept(late)
    assert sender.rows == (4, 4)


def test_whoever_has_more_than_was_ever_sent_is_not_believed_and_told_of_once() -> None:
    """The rows stay and go again; a log with a line for every answer would be of no use."""
    sender, host = connected()
    sender.put(10, 10)
    origin = sender.said()[0].sending.origin
    wrong = m.RowsKept(host.own, APP, 0, origin, 81_175, 1 << 20)
    notes: list[NoteRefused] = []
    for _ in range(3):
        sender.carrying.rows_kept(wrong)
        notes += sender.said(NoteRefused)
        sender.pass_time(CONFIG.answer_max)
    assert [APP in note.why and "81175" in note.why for note in notes] == [True]
    assert sender.rows == (2, 2)
    sender.said()
    sender.carrying.rows_kept(m.RowsKept(host.own, APP, 0, origin, 2, 1 << 20))
    assert sender.rows == (2, 0)


@pytest.mark.parametrize("origin", [b"", b"short", b"x" * 600])
def test_queues_without_a_proper_name_are_refused(origin: bytes) -> None:
    """It becomes part of a key of the store, which takes no more than some hundred bytes."""
    sender, host = connected()
    sender.put(10)
    sending = sender.said()[0].sending
    forged = m.Sending(sending.app, KEY, 0, origin, 0, 0, 1, sending.entries, sending.schemas)
    host.carrying.rows_sent(m.RowsSent(sender.own, sender.own, None, 1, forged))
    assert len(host.said(NoteRefused)) == 1
    assert host.rows == (0, 0)
    with host.quay.store.read() as snapshot:
        assert read_received(snapshot, host.instance, origin).until == 0


# --- what is remembered -----------------------------------------------------------------------------------------------


def lost(app: str, keeper: Peer, number: int = 0) -> m.RowsSent:
    """Return rows for an instance that nobody has."""
    return m.RowsSent(keeper, keeper, STEWARD, 1, m.Sending(app, key_of(app), number, b"o" * 16, 0, 0, 1, (), ()))


def test_a_root_forgets_apps_that_nobody_sends_to_any_more() -> None:
    """Each submission of an app has a name of its own; years of them must not stay."""
    root, far = End("root"), Peer(key_of("far"), "far", "zone")
    for number in range(50):
        root.carrying.rows_sent(lost(f"app-{number}", far))
        root.carrying.instances_here(m.InstancesHere(far, f"other-{number}", KEY, ((0, far),), HOPS_MAX))
    assert len(root.said(m.HomeWanted)) == 50
    assert (len(root.carrying._seekers), len(root.carrying._bindings)) == (100, 50)
    for _ in range(8):
        root.pass_time(CONFIG.tell)
    assert (len(root.carrying._seekers), len(root.carrying._bindings)) == (0, 0)
    assert BOUND not in root.ground.timers, "and does not come back for nothing"


def test_whoever_seeks_is_told_and_a_steward_is_not_asked_with_every_message() -> None:
    """Rows of three nodes climb to the root; its steward is asked once a second."""
    root = End("root")
    keepers = [Peer(key_of(name), name, "zone") for name in ("one", "two", "three")]
    for keeper in keepers:
        root.carrying.rows_sent(lost("app", keeper))
    assert len(root.said(m.HomeWanted)) == 1
    root.pass_time(SECOND)
    root.carrying.rows_sent(lost("app", keepers[0]))
    assert len(root.said(m.HomeWanted)) == 1
    root.carrying.home_told(m.HomeTold(STEWARD, "app", 0, keepers[2]))
    assert len(root.said(m.HomeTold)) == 3
    root.carrying.home_told(m.HomeTold(STEWARD, "app", 0, keepers[2]))
    assert root.said(m.HomeTold) == []


def peers(count: int) -> list[Peer]:
    """Return so many nodes."""
    return [Peer(key_of(str(number)), str(number), "zone") for number in range(count)]


def fill_places(seekers: Seekers, one: Peer) -> None:
    """Look for more instances than can be remembered."""
    for number in range(wayfinding.SEEKERS_MAX):
        seekers.add(("app", number), one, Instant(number))


def fill_one_place(seekers: Seekers, one: Peer) -> None:
    """Let more nodes look for one instance than can be remembered."""
    for peer in peers(2 * wayfinding.SEEKERS_OF_ONE_MAX):
        seekers.add(("app", 0), peer, Instant(0))


@pytest.mark.parametrize("fill", [fill_places, fill_one_place])
def test_a_node_that_makes_up_seekers_fills_no_memory(fill: Callable[[Seekers, Peer], None]) -> None:
    """The oldest give way: who is forgotten asks again."""
    seekers, one = Seekers(Duration(10 * SECOND)), Peer(key_of("one"), "one", "zone")
    fill(seekers, one)
    seekers.check()
    assert len(seekers) <= wayfinding.SEEKERS_MAX
    now = Instant(wayfinding.SEEKERS_MAX)
    seekers.add(("mine", 1), one, now)
    assert seekers.may_ask(("mine", 1), now, Duration(MILLISECOND))
    assert seekers.answered(("mine", 1)) == [one]


def test_a_node_that_makes_up_instances_fills_no_memory() -> None:
    """The oldest give way, and a name that no store would take is not remembered at all."""
    bindings, one = Bindings(Duration(10 * SECOND)), Peer(key_of("one"), "one", "zone")
    for number in range(wayfinding.BINDINGS_MAX + 10):
        bindings.keep(("app", number), one, Instant(number))
    bindings.keep(("x" * 10_000, 0), one, Instant(wayfinding.BINDINGS_MAX))
    assert len(bindings) == wayfinding.BINDINGS_MAX
    assert bindings.find(("app", 0), Instant(0)) is None
    assert bindings.find(("app", wayfinding.BINDINGS_MAX), Instant(wayfinding.BINDINGS_MAX)) == one
    bindings.forget_old(Instant(60 * SECOND))
    assert len(bindings) == 0
