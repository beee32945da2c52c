"""The ledger balances when every row is somewhere, and only then."""

import pytest

from headwater.dataflow.stream import flow
from headwater.engine.ledger import Ledger, whole_ledger
from headwater.engine.queue_records import read_queue
from headwater.model.store_layout import entry_key, queue_key
from tests.dataflow.specs import Wall, rows_of_any_kind
from tests.engine.flows import branching, numbered, relay, repeat
from tests.engine.small_node import SmallNode


def test_every_kind_of_row_is_accounted_for() -> None:
    """Copies to a second reader, rows made by a flat map, dead letters that are read, filtered rows."""
    node = SmallNode(branching())
    node.feed([{"id": one, "key": one % 4} for one in range(22)])
    node.settle()
    for sink in ("even", "odd", "copies", "dead"):
        node.write_out(sink)
    ledger = node.ledger()
    assert ledger.balanced, ledger
    made = sum(one % 3 for one in range(22) if one % 11 != 10)
    assert (ledger.rows_in, ledger.waiting, ledger.copied) == (22, 0, made)
    assert ledger.created == made - 20
    assert ledger.rows_out == 2 * made + 2 - ledger.dropped["filtered"]


def test_rows_that_nobody_reads_are_dropped_by_name() -> None:
    """The branch that leads nowhere, and dead letters without a reader."""
    yes, _ = rows_of_any_kind().split(lambda batch: [True, False, False], name="sort")
    node = SmallNode(flow("half", yes.sink(Wall(), name="out")))
    node.feed(numbered(0, 1, 2))
    node.settle()
    assert (node.ledger().dropped, node.ledger().balanced) == ({"unread": 2}, True)


def test_dead_letters_that_nobody_reads_are_dropped_as_such() -> None:
    """They are told apart from rows that nobody reads."""
    repeated = rows_of_any_kind().flat_map(repeat, name="repeat", on_error="dead-letter")
    node = SmallNode(flow("lossy", repeated.sink(Wall(), name="out")))
    node.feed([{"id": 10, "key": 1}, {"id": 1, "key": 1}])
    node.settle()
    assert (node.ledger().dropped, node.ledger().balanced) == ({"dead-letter": 1}, True)


@pytest.mark.parametrize("queue", ["pass", "out"])
def test_a_lost_entry_does_not_balance(queue: str) -> None:
    """One entry vanishes from the store behind the engine's back."""
    node = SmallNode(relay())
    for one in range(4):
        node.feed(numbered(one))
        node.turn("pass", one % 2)
    assert node.ledger().balanced
    with node.store.write() as txn:
        txn.delete(node.entries(queue)[-1])
    assert not node.ledger().balanced
    assert "should" in node.ledger().broken[0]


def test_a_doubled_entry_does_not_balance() -> None:
    """The same rows lie in the queue twice."""
    node = SmallNode(relay())
    node.feed(numbered(0, 1))
    (key,) = node.entries("pass")
    with node.store.write() as txn:
        encoded = txn.get(key)
        assert encoded is not None
        txn.put(entry_key(node.instance("pass"), 9), encoded)
    assert not node.ledger().balanced


def test_a_queue_that_claims_rows_it_never_ran_does_not_balance() -> None:
    """The record says taken; no chain has counted them."""
    node = SmallNode(relay())
    node.feed(numbered(0, 1))
    node.feed(numbered(2))
    key = queue_key(node.instance("pass"))
    with node.store.write() as txn:
        record = read_queue(txn, node.instance("pass"))
        (first, _) = node.entries("pass")
        txn.delete(first)
        txn.put(key, type(record)(**{**_fields(record), "head_sequence": 1, "taken_rows": 2}).pack())
    broken = node.ledger().broken
    assert not node.ledger().balanced
    assert any("took 2 rows, ran 0" in sentence for sentence in broken)


def test_a_row_lost_on_its_way_to_a_sink_does_not_balance() -> None:
    """The chain counts it as made, no queue has ever had it."""
    node = SmallNode(relay())
    node.feed(numbered(0, 1))
    prepared = node.prepared("pass")
    prepared.puts.clear()
    node.commit(prepared)
    assert not node.ledger().broken
    assert not node.ledger().balanced


def test_a_row_put_twice_by_a_turn_does_not_balance() -> None:
    """Its queue is in order; the sum is not."""
    node = SmallNode(relay())
    node.feed(numbered(0, 1))
    prepared = node.prepared("pass")
    prepared.puts *= 2
    node.commit(prepared)
    assert not node.ledger().broken
    assert not node.ledger().balanced


def test_an_empty_app_balances() -> None:
    """Nothing came, nothing went."""
    assert SmallNode(relay()).ledger() == Ledger(rows_in=0, rows_out=0, waiting=0, created=0, copied=0)


def _fields(record: object) -> dict[str, int]:
    return {name: getattr(record, name) for name in record._fields}  # type: ignore[attr-defined]


def test_rows_that_came_from_nowhere_do_not_balance() -> None:
    """What lies at both ends of a channel waits once; what lies at one end and never was at the other cannot be."""
    sent = Ledger(rows_in=5, rows_out=0, waiting=5, created=0, copied=0)
    kept = Ledger(rows_in=0, rows_out=5, waiting=0, created=0, copied=0, arrived=5)
    whole = whole_ledger([sent, kept])
    assert (whole.rows_in, whole.rows_out, whole.waiting, whole.balanced) == (5, 5, 0, True)
    forgotten = Ledger(rows_in=0, rows_out=0, waiting=0, created=0, copied=0)
    broken = whole_ledger([forgotten, kept])
    assert (broken.waiting, broken.balanced) == (-5, False)
    assert "5 rows" in broken.broken[0]
