"""Rows between two stores: whatever is lost, doubled or comes late, each row is taken once and in order."""

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.engine.channels import (
    ORIGIN_BYTES,
    OutboxStretch,
    all_received,
    check_entries,
    hand_on,
    make_outbox,
    origin_of,
    read_stretch,
    receive,
    rows_handed_on,
)
from headwater.engine.moving import CopySource, read_standing, take_up
from headwater.engine.queue_records import append, read_queue
from headwater.engine.state_adoption import adopt_as_it_lies
from headwater.model.batch import encode_entry
from headwater.model.errors import StoreError
from headwater.model.ids import AppId, InstanceId
from headwater.model.store_contract import Store, Transaction
from headwater.storage.memory_store import MemoryStore
from tests.engine.flows import ids, numbered, relay
from tests.engine.small_node import SmallNode

HERE = InstanceId(AppId(1), 0)
THERE = InstanceId(AppId(7), 0)  # the same instance, under the number that the other store gave its app
ORIGIN = b"o" * 16


def put(store: Store, *rows: int) -> None:
    """Put entries of so many rows each into the outbox."""
    with store.write() as txn:
        append(txn, HERE, [(count, encode_entry(5, 0, count, (), b"x" * count)) for count in rows])


def stretch_from(store: Store, since: int, bytes_max: int = 1 << 20) -> OutboxStretch:
    """Read the outbox from a number on."""
    with store.read() as snapshot:
        return read_stretch(snapshot, HERE, since, bytes_max)


def base_of(store: Store) -> int:
    """Return where the outbox begins."""
    with store.read() as snapshot:
        return read_queue(snapshot, HERE).head_sequence


def take_in(store: Store, base: int, stretch: OutboxStretch) -> int:
    """Let the other end keep a stretch, and return up to which number it has all."""
    with store.write() as txn:
        received, _ = receive(txn, THERE, ORIGIN, base, stretch)
    return max(received.until, base)


def forget(store: Store, until: int) -> None:
    """Let the outbox forget what the other end has."""
    with store.write() as txn:
        hand_on(txn, HERE, until)


class CountedScans:
    """A transaction that counts the entries that scans of it have read."""

    def __init__(self, txn: Transaction) -> None:
        self.get, self.get_many = txn.get, txn.get_many
        self.put, self.put_many, self.delete = txn.put, txn.put_many, txn.delete
        self._scan = txn.scan
        self.read = 0

    def scan(self, prefix: bytes, start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield what the transaction does."""
        for pair in self._scan(prefix, start):
            self.read += 1
            yield pair


def test_an_acknowledgement_reads_what_it_acknowledges() -> None:
    """With all that waits behind it, a slow link would stop the node for longer with every answer."""
    store = MemoryStore()
    put(store, *[1] * 1_000)
    with store.write() as txn:
        counted = CountedScans(txn)
        record = hand_on(counted, HERE, 10)
    assert (record.head_sequence, record.taken_rows) == (10, 10)
    assert counted.read <= 11
    assert stretch_from(store, 10).until == 1_000
    assert len(stretch_from(store, 0).entries) == 990


def test_a_stretch_that_comes_twice_is_taken_once() -> None:
    """The receiver knows up to which number it has everything."""
    here, there = MemoryStore(), MemoryStore()
    put(here, 2, 3)
    stretch = stretch_from(here, 0)
    assert [take_in(there, 0, stretch), take_in(there, 0, stretch)] == [2, 2]
    with there.read() as snapshot:
        assert read_queue(snapshot, THERE).put_rows == 5
        assert all_received(snapshot, THERE)[ORIGIN].rows == 5


def test_a_stretch_behind_a_gap_is_refused_and_one_that_overlaps_is_cut() -> None:
    """What is missing comes again, and with it what was refused."""
    here, there = MemoryStore(), MemoryStore()
    put(here, 1, 1, 1)
    assert take_in(there, 0, stretch_from(here, 1)) == 0
    assert take_in(there, 0, stretch_from(here, 0, bytes_max=1)) == 1
    assert take_in(there, 0, stretch_from(here, 0)) == 3
    with there.read() as snapshot:
        assert read_queue(snapshot, THERE).put_rows == 3


def test_what_is_handed_on_is_counted_and_gone() -> None:
    """The ledger tells rows that went to another node from those that were run here."""
    here = MemoryStore()
    put(here, 2, 0, 3)
    forget(here, 2)
    with here.read() as snapshot:
        record = read_queue(snapshot, HERE)
        assert (record.waiting_rows, record.taken_marks, rows_handed_on(snapshot, HERE)) == (3, 1, 2)
    with pytest.raises(StoreError, match="nothing before 9"):
        forget(here, 9)


def test_an_instance_that_ran_here_leaves_a_whole_entry_behind() -> None:
    """What a worker has taken of the first entry does not travel; the rest does, and lasts."""
    node = SmallNode(relay())
    node.feed(numbered(*range(10)))
    instance = node.instances[0]
    node.turn(instance, 4)
    with node.store.write() as txn:
        make_outbox(txn, instance, node.runner.schemas)
    assert node.queue(instance).head_offset == 0
    assert ids(node.waiting(instance)) == [4, 5, 6, 7, 8, 9]
    assert node.ledger().balanced


def test_what_was_sent_whole_before_an_instance_came_is_not_taken_for_what_it_left() -> None:
    """An entry was on its way when its instance came to where it lay, took half of it and went on."""
    node, there = SmallNode(relay()), MemoryStore()
    node.feed(numbered(0, 1, 2, 3))
    node.feed(numbered(4, 5))
    instance = node.instances[0]
    under_way, base = outbox_of(node, instance)
    node.turn(instance, 2)
    with node.store.write() as txn:
        make_outbox(txn, instance, node.runner.schemas)
    with node.store.read() as snapshot:
        standing = read_standing(snapshot, instance, ORIGIN)
    with there.write() as txn:
        take_up(txn, THERE, b"t" * 16, standing, (1, 1), CopySource(b"h" * 16, (1, 0)), operators=1)
        receive(txn, THERE, ORIGIN, base, under_way)
        left, base = outbox_of(node, instance)
        receive(txn, THERE, ORIGIN, base, left)
        receive(txn, THERE, ORIGIN, 0, under_way)
        assert read_queue(txn, THERE).waiting_rows == 4
    assert ids(node.waiting(instance)) == [2, 3, 4, 5]
    assert node.ledger().balanced


def outbox_of(node: SmallNode, instance: InstanceId) -> tuple[OutboxStretch, int]:
    """Return all that would be sent of an outbox, and where it begins."""
    with node.store.read() as snapshot:
        base = read_queue(snapshot, instance).head_sequence
        return read_stretch(snapshot, instance, base, 1 << 20), base


@pytest.mark.parametrize("entries", [((5, b""),), ((0, b"short"),), ((1, b"x" * 44), (1, b"x" * 44))])
def test_what_is_no_stretch_of_a_queue_is_refused(entries: tuple[tuple[int, bytes], ...]) -> None:
    """Bytes of a peer are looked at before they are stored."""
    with pytest.raises(StoreError):
        check_entries(entries, 0, 3)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32), st.lists(st.sampled_from(["put", "send", "arrive", "answer", "restart"]), max_size=80))
def test_whatever_happens_on_the_way_each_row_arrives_once_and_in_order(seed: int, moves: list[str]) -> None:
    """Messages are lost, doubled and reordered at random; both ends may forget all but their stores."""
    rng, here, there = Random(seed), MemoryStore(), MemoryStore()
    sent = made = 0
    wire: list[tuple[int, OutboxStretch]] = []
    answers: list[int] = []
    for move in [*moves, *["put", *["send", "arrive", "answer"] * 3, "restart", *["send", "arrive", "answer"] * 200]]:
        if move == "put" and made < 40:
            put(here, 1 + made % 3)
            made += 1
        elif move == "send":
            stretch = stretch_from(here, sent, bytes_max=rng.choice([1, 60, 200]))
            sent = stretch.until
            wire += [(base_of(here), stretch)] * rng.choice([0, 1, 1, 2])
        elif move == "arrive" and wire:
            base, stretch = wire.pop(rng.randrange(len(wire)))
            answers += [take_in(there, base, stretch)] * rng.choice([0, 1, 1])
        elif move == "answer" and answers:
            until = answers.pop(rng.randrange(len(answers)))
            forget(here, until)
            sent = base_of(here) if rng.random() < 0.5 else max(sent, base_of(here))
        elif move == "restart" or (not wire and not answers):
            sent = base_of(here)
    with here.read() as near, there.read() as far:
        record, received = read_queue(far, THERE), all_received(far, THERE)
        assert read_queue(near, HERE).waiting_rows == 0, "rows are still here"
        assert record.put_rows == sum(1 + number % 3 for number in range(made))
        assert received[ORIGIN].until == made
        assert rows_handed_on(near, HERE) == record.put_rows


def name_of(store: Store, app: int) -> bytes:
    """Return the name of an app's queues."""
    with store.read() as snapshot:
        return origin_of(snapshot, b"a store's name!!", AppId(app))


def test_queues_have_another_name_whenever_they_are_numbered_anew() -> None:
    """An app that is deleted and comes back has another number in the store; one whose queues are copied goes on."""
    store = MemoryStore()
    assert len({name_of(store, 1), name_of(store, 2), name_of(MemoryStore(), 3)}) == 3
    assert len(name_of(store, 1)) == ORIGIN_BYTES
    put(store, 1, 2)
    adopt_as_it_lies(store, AppId(1), AppId(5))
    adopt_as_it_lies(store, AppId(5), AppId(6))
    assert name_of(store, 1) == name_of(store, 5) == name_of(store, 6)
    assert name_of(store, 7) != name_of(store, 6)
