"""Rows in doubt: what a lost host may have taken waits for it, everything else goes on, and the ledger knows both."""

import pytest

from headwater.engine.channels import all_received, hand_on, origin_of, read_stretch, receive, rows_handed_on
from headwater.engine.cuts import (
    UNCUT,
    Doubt,
    InstanceCut,
    doubts_of,
    forget_if_settled,
    keep_host,
    known_cut,
    last_lot,
    lost_since,
    meant,
    obey_cuts,
    origin_under,
    unsettled,
)
from headwater.engine.queue_records import QueueRecord, append, read_queue
from headwater.model.batch import encode_entry
from headwater.model.ids import INSTANCES_MAX, AppId, InstanceId
from headwater.model.peers import Peer, key_of
from headwater.model.terms import Lot
from headwater.storage.memory_store import MemoryStore

HERE = InstanceId(AppId(1), 3)
OWN, FIRST, SECOND = (Peer(key_of(name), name, "zone") for name in ("own", "first", "second"))
CUTS = (InstanceCut((1, 5), FIRST), InstanceCut((2, 9), SECOND))


def sender(*rows: int, host: Peer | None = FIRST, lot: Lot = UNCUT) -> MemoryStore:
    """Return a store with entries of so many rows each for an instance elsewhere, and who has answered so far."""
    store = MemoryStore()
    with store.write() as txn:
        append(txn, HERE, [(count, encode_entry(5, 0, count, (), b"x" * count)) for count in rows])
        if host is not None:
            keep_host(txn, HERE, lot, host)
    return store


def obeyed(store: MemoryStore, cuts: tuple[InstanceCut, ...], tried: int | None = None) -> QueueRecord | None:
    """Let a sender hear of losses."""
    with store.write() as txn:
        return obey_cuts(txn, HERE, cuts, OWN, tried)


def doubts(store: MemoryStore) -> list[tuple[InstanceId, Doubt]]:
    """Return what is in doubt."""
    with store.read() as snapshot:
        return list(doubts_of(snapshot, HERE.app))


def test_what_may_have_been_sent_is_bound_to_the_lost_host_under_its_numbers() -> None:
    """And what was never sent goes on, from the next number."""
    store = sender(1, 2, 3, 4)
    record = obeyed(store, CUTS[:1], tried=2)
    assert record is not None
    assert (record.head_sequence, record.next_sequence, record.waiting_rows) == (2, 4, 7)
    [(apart, doubt)] = doubts(store)
    assert (meant(apart.number), apart.number >= INSTANCES_MAX) == (HERE.number, True)
    assert doubt == Doubt(FIRST, UNCUT)
    with store.read() as snapshot:
        assert [number for number, _ in read_stretch(snapshot, apart, 0, 1 << 20).entries] == [0, 1]
        assert read_queue(snapshot, apart).waiting_rows == 3
        assert known_cut(snapshot, HERE).lot == (1, 5)


@pytest.mark.parametrize(
    ("host", "tried"), [(None, None), (None, 4), (FIRST, 0)], ids=["no host", "no host, asked", "nothing sent"]
)
def test_nothing_is_in_doubt_that_was_sent_to_nobody(host: Peer | None, tried: int | None) -> None:
    store = sender(1, 2, host=host)
    record = obeyed(store, CUTS, tried)
    assert record is not None
    assert record.waiting_rows == 3
    assert doubts(store) == []


def test_after_a_restart_all_that_waits_may_have_been_sent() -> None:
    """Nobody remembers how far it was."""
    store = sender(1, 2)
    obeyed(store, CUTS[:1])
    assert [doubt.host for _, doubt in doubts(store)] == [FIRST]


def test_who_was_the_lost_host_itself_has_nothing_in_doubt() -> None:
    """What lies in its queue it has not dealt with."""
    store = sender(1, 2, host=FIRST)
    assert obeyed(store, (InstanceCut((1, 5), OWN),)) is not None
    assert doubts(store) == []


def test_of_several_losses_the_first_that_a_sender_has_missed_counts() -> None:
    """Later hosts have refused what it sent."""
    assert lost_since(UNCUT, CUTS) == FIRST
    assert lost_since((1, 5), CUTS) == SECOND
    assert lost_since((2, 9), CUTS) is None
    assert (last_lot(()), last_lot(CUTS)) == (UNCUT, (2, 9))


def test_a_placement_that_nobody_else_knows_of_leaves_rows_with_its_own_host() -> None:
    """While the network was parted, the other side began the instance anew, too."""
    store = sender(1, host=SECOND, lot=(7, 7))
    obeyed(store, CUTS[:1])
    assert [doubt for _, doubt in doubts(store)] == [Doubt(SECOND, (7, 7))]


def test_rows_in_doubt_keep_their_sender_from_numbers_that_would_pass_theirs() -> None:
    """It does not go back to a channel in which some of them still wait."""
    store = sender(1, 2)
    obeyed(store, CUTS[:1])
    assert obeyed(store, ()) is None
    [(apart, _)] = doubts(store)
    with store.write() as txn:
        hand_on(txn, apart, 2)
        assert forget_if_settled(txn, apart)
    assert obeyed(store, ()) is not None
    assert doubts(store) == []


def test_what_is_counted_as_gone_to_a_queue_of_rows_in_doubt_has_come_there() -> None:
    """So the ledgers of all nodes add up, before the lost host has answered and afterwards."""
    store = sender(1, 2, 3)
    obeyed(store, CUTS[:1], tried=2)
    [(apart, _)] = doubts(store)
    with store.read() as snapshot:
        came = sum(one.rows for one in all_received(snapshot, apart).values())
        assert (rows_handed_on(snapshot, HERE), came, rows_handed_on(snapshot, apart)) == (3, 3, 0)
    with store.write() as txn:
        hand_on(txn, apart, 1)
        assert not forget_if_settled(txn, apart)
        hand_on(txn, apart, 2)
        assert forget_if_settled(txn, apart)
    with store.read() as snapshot:
        assert rows_handed_on(snapshot, HERE) == 3
        assert read_queue(snapshot, apart) == QueueRecord()


def test_rows_in_doubt_are_taken_once_whatever_the_lost_host_had_taken() -> None:
    """It has kept the first of three, and its acknowledgement was lost."""
    store, lost = sender(1, 2, 3), MemoryStore()
    with store.read() as snapshot:
        origin = origin_of(snapshot, b"s" * 16, HERE.app)
        first = read_stretch(snapshot, HERE, 0, 1)
    with lost.write() as txn:
        receive(txn, HERE, origin_under(origin, UNCUT), 0, first)
    obeyed(store, CUTS[:1], tried=3)
    [(apart, _)] = doubts(store)
    with store.read() as snapshot:
        bound = read_stretch(snapshot, apart, 0, 1 << 20)
    with lost.write() as txn:
        received, _ = receive(txn, HERE, origin_under(origin, UNCUT), 0, bound)
        again, grown = receive(txn, HERE, origin_under(origin, UNCUT), 0, bound)
    assert (received.until, received.rows, again.rows, grown) == (3, 6, 6, None)


def test_every_cut_has_a_channel_of_its_own() -> None:
    """A host that has an instance again, under another cut, begins to count anew."""
    names = {origin_under(b"o" * 16, lot) for lot in (UNCUT, (1, 5), (2, 9), (1, 6))}
    assert len(names) == 4
    assert origin_under(b"o" * 16, UNCUT) == b"o" * 16


def test_a_host_that_was_passed_over_is_asked_for_as_long_as_anybody_may_need_its_answer() -> None:
    """Rows in doubt wait for it, or a sender has yet to hear that it was lost."""
    store, cuts = sender(1, 2), {HERE.number: CUTS[:1]}
    with store.read() as snapshot:
        left = unsettled(snapshot, HERE.app, [HERE.number])
    assert (left.hosts, left.behind(FIRST.id, cuts), left.behind(SECOND.id, cuts)) == ((), [HERE.number], [])
    obeyed(store, CUTS[:1])
    with store.read() as snapshot:
        left = unsettled(snapshot, HERE.app, [HERE.number])
    assert (left.hosts, left.behind(FIRST.id, cuts)) == ((FIRST.id,), [])
