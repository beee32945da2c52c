"""A turn takes waiting rows, runs the chain on them and commits everything it changed, or nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.dataflow.graph import Spread
from headwater.dataflow.stream import flow
from headwater.engine.plans import Outlet
from headwater.engine.spreading import spread
from headwater.model.batch import Stamp
from headwater.model.errors import StoreError
from headwater.model.ids import AppId, InstanceId
from headwater.model.keys import encode_key, group_of, owner_of
from headwater.model.store_layout import entry_key, queue_key
from headwater.storage.lmdb_store import LmdbStore
from headwater.storage.memory_store import MemoryStore
from tests.dataflow.specs import Wall, rows_of_any_kind
from tests.engine.flows import counted, ids, numbered, relay, stumble
from tests.engine.small_node import SmallNode


def test_a_turn_takes_at_most_the_rows_it_was_given_across_entries() -> None:
    """Three entries of three rows, taken four at a time: the cut falls inside an entry, and order is kept."""
    node = SmallNode(relay())
    for first in (0, 3, 6):
        node.feed(numbered(first, first + 1, first + 2))
    reports = [node.turn("pass", 4) for _ in range(4)]
    assert [report.rows for report in reports] == [4, 4, 1, 0]
    assert reports[3].note == "empty"
    assert ids(node.write_out("out")) == list(range(9))


def test_rows_taken_from_inside_an_entry_leave_the_rest_where_it_is() -> None:
    """The head stands at a row of an entry; the entry's bytes are gone when its last row is."""
    node = SmallNode(relay())
    node.feed(numbered(0, 1, 2, 3, 4))
    first, second = node.turn("pass", 2), node.turn("pass", 2)
    assert (node.queue("pass").head_sequence, node.queue("pass").head_offset) == (0, 4)
    assert (first.gone_bytes, second.gone_bytes, second.taken_rows) == (0, 0, 4)
    assert ids(node.waiting("pass")) == [4]
    assert node.turn("pass", 2).gone_bytes == node.queue("pass").put_bytes


def test_a_report_tells_in_absolute_numbers_what_was_taken_and_put() -> None:
    """So a report heard late or twice does no harm."""
    node = SmallNode(relay())
    node.feed(numbered(0, 1, 2))
    node.turn("pass", 1)
    report = node.turn("pass", 2)
    assert (report.rows, report.taken_rows, report.made_rows) == (2, 3, 2)
    (filled,) = report.filled
    out = node.instance("out")
    assert (filled.instance, filled.put_rows, filled.put_bytes) == (out.number, 3, node.queue(out).put_bytes)


def test_a_turn_that_runs_twice_counts_once() -> None:
    """Two workers have taken the same rows: whoever commits second is superseded and changes nothing."""
    node = SmallNode(counted())
    node.feed([{"id": 0, "key": "a"}, {"id": 1, "key": "a"}])
    faster, slower = node.prepared("count"), node.prepared("count")
    assert node.commit(faster).rows == 2
    before = node.contents()
    assert (node.commit(slower).rows, node.commit(slower).note) == (0, "superseded")
    assert node.contents() == before
    assert [row["nth"] for row in node.write_out("out")] == [1, 2]


def test_a_turn_that_took_fewer_of_the_same_rows_is_superseded_too() -> None:
    """The head has moved inside the same entry."""
    node = SmallNode(relay())
    node.feed(numbered(0, 1, 2))
    few, many = node.prepared("pass", 1), node.prepared("pass", 2)
    assert node.commit(few).rows == 1
    assert node.commit(many).note == "superseded"
    node.settle()
    assert ids(node.write_out("out")) == [0, 1, 2]


def test_rows_that_arrive_during_a_turn_wait_for_the_next() -> None:
    """They do not supersede it, and their record is not overwritten."""
    node = SmallNode(relay())
    node.feed(numbered(0))
    running = node.prepared("pass")
    node.feed(numbered(1))
    assert node.commit(running).rows == 1
    assert ids(node.waiting("pass")) == [1]
    assert node.ledger().balanced


def test_a_worker_of_an_earlier_term_changes_nothing() -> None:
    """Its node is dead and another owns the store."""
    node = SmallNode(relay())
    node.feed(numbered(0, 1))
    old_term, running = node.term, node.prepared("pass")
    node.begin_term()
    before = node.contents()
    assert node.commit(running, term=old_term).note == "superseded"
    assert node.contents() == before
    node.settle()
    assert ids(node.write_out("out")) == [0, 1]


def test_rows_shed_behind_the_head_are_not_taken_and_not_missed() -> None:
    """The oldest go, but never the head, which a worker may hold."""
    node = SmallNode(relay())
    for one in range(5):
        node.feed(numbered(one))
    running = node.prepared("pass", 1)
    node.shed("pass", 2 * len(node.contents()[entry_key(node.instance("pass"), 1)]))
    assert node.commit(running).rows == 1
    node.settle()
    assert ids(node.write_out("out")) == [0, 3, 4]
    assert (node.ledger().dropped, node.ledger().balanced) == ({"shed": 2}, True)


def test_a_turn_whose_rows_were_shed_meanwhile_is_superseded() -> None:
    """Otherwise shed rows would come out after all, and be counted twice."""
    node = SmallNode(relay())
    for one in range(3):
        node.feed(numbered(one))
    running = node.prepared("pass", 3)
    node.shed("pass", 1)
    assert node.commit(running).note == "superseded"
    node.settle()
    assert ids(node.write_out("out")) == [0, 2]
    assert node.ledger().balanced


def test_a_turn_that_cuts_an_entry_which_was_shed_is_superseded() -> None:
    """The entry is not among those used up, but rows of it were taken."""
    node = SmallNode(relay())
    node.feed(numbered(0))
    node.feed(numbered(1, 2, 3))
    running = node.prepared("pass", 2)
    node.shed("pass", 1)
    assert node.commit(running).note == "superseded"
    assert node.ledger().balanced


def test_the_head_may_stand_where_rows_were_shed() -> None:
    """The next turn goes on with the first entry that is there."""
    node = SmallNode(relay())
    for one in range(4):
        node.feed(numbered(one))
    node.shed("pass", 1)
    assert ids(node.waiting("pass")) == [0, 2, 3]
    node.turn("pass", 1)
    assert node.queue("pass").head_sequence == 1
    node.shed("pass", 1)
    node.turn("pass", 1)
    assert ids(node.write_out("out")) == [0, 2]
    assert node.ledger().balanced


def test_a_full_store_changes_nothing_and_the_rows_go_through_later() -> None:
    """The report says so; once there is room the same turn succeeds."""
    store = MemoryStore()
    node = SmallNode(counted(), store=store)
    node.feed([{"id": one, "key": "a"} for one in range(3)])
    before = node.contents()
    store.bytes_max = sum(map(len, before.values()))
    report = node.turn("count")
    assert report.rows == 0
    assert report.note.startswith("store full")
    assert node.contents() == before
    store.bytes_max = None
    assert node.turn("count").rows == 3
    assert [row["nth"] for row in node.write_out("out")] == [1, 2, 3]


def test_a_row_that_stops_its_flow_leaves_the_queue_untouched_while_others_commit() -> None:
    """One operator of the pack raises; the other's rows are through."""
    good, bad = rows_of_any_kind(name="in").split(lambda row: row["id"] < 10, form="rows", name="sort")
    node = SmallNode(
        flow(
            "two",
            good.map(stumble, name="fine").sink(Wall(), name="out"),
            bad.map(stumble, name="stumble").sink(Wall(), name="never"),
        )
    )
    node.feed([{"id": 1, "bad": False}, {"id": 11, "bad": True}])
    node.turn("sort")
    queue = node.queue("stumble")
    reports = node.pack(("fine", 10), ("stumble", 10))
    trouble = reports[node.instance("stumble").number].trouble
    assert trouble is not None
    assert (trouble.operator, trouble.error) == ("stumble", "ValueError: row 11 is bad")
    assert reports[node.instance("fine").number].rows == 1
    assert node.queue("stumble") == queue
    assert ids(node.write_out("out")) == [1]
    assert node.ledger().balanced


def test_a_pack_hands_rows_from_one_of_its_operators_to_the_next() -> None:
    """What the first puts is committed before the second takes, so the rows go right through."""
    node = SmallNode(
        flow(
            "two", rows_of_any_kind().map(stumble, name="a").map(stumble, name="b", fuse=False).sink(Wall(), name="out")
        )
    )
    node.feed(numbered(0))
    node.turn("a")
    node.feed(numbered(1))
    node.pack(("a", 10), ("b", 10))
    assert (ids(node.waiting("b")), ids(node.waiting("out"))) == ([], [0, 1])
    assert node.ledger().balanced


def test_state_is_committed_with_the_rows_that_led_to_it() -> None:
    """A worker that dies before its commit leaves no trace of what it counted."""
    node = SmallNode(counted())
    node.feed([{"id": 0, "key": "a"}])
    node.prepared("count")
    assert node.state_of("count") == {}
    node.turn("count")
    assert len(node.state_of("count")) == 1
    node.feed([{"id": 1, "key": "a"}])
    node.turn("count")
    assert [row["nth"] for row in node.write_out("out")] == [1, 2]


def test_rows_of_a_key_go_to_the_instance_that_owns_it_in_order() -> None:
    """Spread over three instances, each key stays on one."""
    node = SmallNode(counted(parallelism=3))
    keys = [f"k{one % 20}" for one in range(60)]
    node.feed([{"id": one, "key": key} for one, key in enumerate(keys)])
    for index in range(3):
        rows = node.waiting(node.instance("count", index))
        assert ids(rows) == sorted(ids(rows))
        assert {owner_of(group_of(encode_key(row["key"])), 3) for row in rows} == {index}
    node.settle(rows_max=7)
    assert sorted(ids(node.write_out("out"))) == list(range(60))


def test_forward_keeps_an_instance_with_its_own() -> None:
    """Instance i feeds instance i, so that order per key survives."""
    outlet = Outlet(Spread.FORWARD, (), (4, 5, 6))
    batch = pa.RecordBatch.from_pylist(numbered(0, 1))
    assert spread(outlet, batch, 1, 99) == [(5, batch)]


def test_balance_gives_batch_by_batch() -> None:
    """Each batch whole, in turn."""
    outlet = Outlet(Spread.BALANCE, (), (4, 5))
    batch = pa.RecordBatch.from_pylist(numbered(0, 1))
    assert [spread(outlet, batch, 0, turn)[0][0] for turn in range(4)] == [4, 5, 4, 5]


def test_balance_reaches_every_instance_however_many_entries_a_turn_takes() -> None:
    """Two entries a turn, two instances: both get rows."""
    node = SmallNode(
        flow(
            "fan",
            rows_of_any_kind()
            .map(lambda batch: batch, name="one")
            .map(lambda batch: batch, name="two", parallelism=2)
            .sink(Wall(), name="out"),
        )
    )
    for _ in range(4):
        node.feed(numbered(0))
        node.feed(numbered(1))
        node.turn("one")
    assert all(node.queue(node.instance("two", index)).put_rows for index in range(2))


def test_entries_whose_types_do_not_fit_together_are_taken_in_turns_of_their_own() -> None:
    """A flow may make a number in one batch and a text in the next."""
    node = SmallNode(relay())
    node.feed([{"id": 1}])
    node.feed([{"id": "one"}])
    node.settle()
    assert node.queue("out").put_rows == 2


def test_entries_whose_types_widen_are_taken_together() -> None:
    """A whole number beside a fraction is a fraction, a missing column is null."""
    node = SmallNode(relay())
    node.feed([{"id": 1}])
    node.feed([{"id": 1.5, "extra": "x"}])
    assert node.turn("pass").rows == 2
    assert node.write_out("out") == [{"id": 1.0, "extra": None}, {"id": 1.5, "extra": "x"}]


def test_a_condemned_row_becomes_a_dead_letter_without_being_run() -> None:
    """The worker died on it; the letter says so."""
    stream = rows_of_any_kind().map(stumble, name="stumble", on_error="dead-letter")
    node = SmallNode(flow("kills", stream.sink(Wall(), name="out"), stream.errors.sink(Wall(), name="dead")))
    node.feed([{"id": 1}, {"id": 2}])
    node.turn("stumble", 1, condemn="the worker died 3 times")
    node.settle()
    (letter,) = node.write_out("dead")
    assert (letter["operator"], letter["error"], letter["row"]) == ("stumble", "the worker died 3 times", '{"id":1}')
    assert ids(node.write_out("out")) == [2]
    assert node.ledger().balanced


def test_a_condemned_row_stops_a_flow_that_stops_at_errors() -> None:
    """It is never dropped behind the user's back."""
    node = SmallNode(flow("kills", rows_of_any_kind().map(stumble, name="stumble").sink(Wall(), name="out")))
    node.feed([{"id": 1}])
    report = node.turn("stumble", 1, condemn="the worker died 3 times")
    assert report.trouble is not None
    assert (report.rows, ids(node.waiting("stumble"))) == (0, [1])


def test_rows_without_the_key_they_are_spread_by_stop_the_flow_with_a_sentence() -> None:
    """Only running could tell that the column is not there."""
    node = SmallNode(
        flow(
            "keyless",
            rows_of_any_kind()
            .map(lambda batch: batch, name="make", fuse=False)
            .key_by("key")
            .map(lambda batch: batch, name="use", parallelism=2)
            .sink(Wall(), name="out"),
        )
    )
    node.feed(numbered(0))
    trouble = node.turn("make").trouble
    assert trouble is not None
    assert trouble.operator == "make"
    assert "'key'" in trouble.error
    assert node.ledger().balanced


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (
            lambda batch: {"key": [[one] for one in batch["id"].to_pylist()]},
            "'key' is a list<item: int64> and cannot be",
        ),
        (lambda batch: {"key": batch["id"].cast(pa.timestamp("ns"))}, "'key' has nanoseconds and cannot be a key"),
        (lambda batch: {"key": batch["id"], "a": pa.nulls(len(batch), pa.string_view())}, "string_view"),
        (lambda batch: pa.record_batch([batch["id"], batch["id"]], names=["key", "key"]), '"key" exists 2 times'),
    ],
)
def test_rows_that_cannot_be_spread_stop_the_flow_with_a_sentence(made: Callable[..., Any], said: str) -> None:
    """Only running could tell; a worker that died of it would leave the rows waiting for ever."""
    node = SmallNode(
        flow(
            "wrong-key",
            rows_of_any_kind()
            .map(made, name="make", fuse=False)
            .key_by("key")
            .map(lambda batch: batch, name="use", parallelism=2)
            .sink(Wall(), name="out"),
        )
    )
    node.feed(numbered(*range(20)))
    trouble = node.turn("make").trouble
    assert trouble is not None
    assert trouble.operator == "make"
    assert said in trouble.error
    assert node.ledger().balanced


def test_rows_that_arrow_cannot_join_stop_the_flow_with_a_sentence() -> None:
    """Here dictionaries inside of lists, which have a byte for each number and too many values together."""
    node = SmallNode(flow("apart", rows_of_any_kind().map(lambda batch: batch, name="use").sink(Wall(), name="out")))
    for first in "xy":
        words = pa.array([f"{first}{number}" for number in range(100)]).dictionary_encode()
        lists = pa.ListArray.from_arrays(
            pa.array(range(101), pa.int32()), words.cast(pa.dictionary(pa.int8(), pa.string()))
        )
        node.feed(pa.record_batch({"words": lists}))
    trouble = node.turn("use").trouble
    assert trouble is not None
    assert (trouble.operator, "cannot be joined to one" in trouble.error) == ("use", True)
    assert node.ledger().balanced


def test_a_time_beyond_all_microseconds_stops_the_flow_with_a_sentence() -> None:
    """Event time is made of it, and the row cannot be shown either."""
    timed = (
        rows_of_any_kind().map(lambda batch: batch, name="make", fuse=False).with_watermark("at", "1 s", name="time")
    )
    node = SmallNode(flow("beyond", timed.sink(Wall(), name="out")), chaining=False)
    node.feed(pa.record_batch({"at": pa.array([2**62], pa.timestamp("s"))}))
    assert node.turn("make").trouble is None
    trouble = node.turn("time").trouble
    assert trouble is not None
    assert trouble.error == "column 'at' has a time more than 290,000 years from now; correct it"
    assert "timestamp[s] out of Python's range" in trouble.row


def test_time_in_the_queue_is_told_from_time_at_its_head() -> None:
    """What arrived while a turn ran waited behind it; from the turn's end on, it waited to be scheduled."""
    node = SmallNode(relay())
    node.now_us = 100
    node.feed(numbered(0))
    first = node.prepared("pass")
    node.now_us = 140
    node.feed(numbered(1, 2))
    node.now_us = 200
    node.commit(first)
    node.now_us = 230
    report = node.turn("pass")
    assert (report.queue_us, report.schedule_us) == (2 * 60, 2 * 30)


def test_the_latency_sample_follows_its_rows_through_a_turn() -> None:
    """Cut into parts, a stamp is in every part, never in none."""
    node = SmallNode(relay())
    node.feed(numbered(0, 1, 2, 3), stamps=(Stamp(7, 1),))
    node.turn("pass", 3)
    node.turn("pass", 3)
    assert [(stamp.born_us, stamp.rows) for stamp in node.stamps("out")] == [(7, 2)]


def test_a_batch_whose_schema_is_gone_is_a_damaged_store() -> None:
    """The sentence says what is missing."""
    node = SmallNode(relay())
    node.feed(numbered(0))
    with node.store.write() as txn:
        for key, _ in list(txn.scan(b"D")):
            txn.delete(key)
    node.begin_term()
    with pytest.raises(StoreError, match="lacks schema"):
        node.turn("pass")


def test_a_damaged_queue_record_is_a_store_error() -> None:
    """Not a row is taken on a guess."""
    node = SmallNode(relay())
    with node.store.write() as txn:
        txn.put(queue_key(node.instance("pass")), b"short")
    with pytest.raises(StoreError, match="queue 1/0 is damaged"):
        node.turn("pass")


def test_turns_run_the_same_on_lmdb(tmp_path: Path) -> None:
    """State, cuts inside entries, a duplicate and a reopened store."""
    store = LmdbStore(tmp_path, disk_bytes=1 << 20)
    node = SmallNode(counted(parallelism=2), store=store)
    node.feed([{"id": one, "key": f"k{one % 5}"} for one in range(30)])
    duplicate = node.prepared(node.instances[0], 4)
    node.settle(rows_max=4)
    assert node.commit(duplicate).note == "superseded"
    rows = node.write_out("out")
    store.close()
    assert sorted((row["id"], row["nth"]) for row in rows) == [(one, one // 5 + 1) for one in range(30)]


def test_one_instance_does_not_touch_the_queue_of_another_app() -> None:
    """Numbers that share their first bytes are different queues."""
    a, b = InstanceId(AppId(1), 1), InstanceId(AppId(1), 256)
    assert not entry_key(b, 0).startswith(entry_key(a, 0)[:9])
