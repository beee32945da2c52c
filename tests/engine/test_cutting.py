"""Large batches lie in queues as several entries, each of which fits a message; a row that fits none is refused."""

from collections.abc import Sequence
from random import Random

import pyarrow as pa
import pytest

from headwater.dataflow.stream import Flow, flow
from headwater.engine.entry_split import ENTRY_BYTES_MAX, ROW_BYTES_MAX, cut, is_large, sieve
from headwater.engine.measuring import SCHEMA_BYTES_MAX
from headwater.engine.schemas import Schemas
from headwater.model.batch import decode_batch
from headwater.operators.functions import Row
from tests.dataflow.specs import Wall, rows_of_any_kind
from tests.engine.flows import ids, relay
from tests.engine.small_node import SmallNode

SLACK = 64 << 10  # what an entry has besides its rows: headers, padding, a schema


def texts(*sizes: int) -> pa.RecordBatch:
    """Return rows with texts of so many bytes."""
    return pa.RecordBatch.from_pylist([{"id": number, "text": "x" * size} for number, size in enumerate(sizes)])


def joined(pieces: Sequence[pa.RecordBatch]) -> list[Row]:
    """Return the rows of all pieces."""
    return [row for piece in pieces for row in piece.to_pylist()]


def test_a_batch_that_is_not_large_stays_as_it_is() -> None:
    batch = texts(*[100] * 500)
    assert not is_large(batch)
    assert cut(batch) == [batch]
    assert sieve(batch) == (batch, [])


def test_a_large_batch_becomes_pieces_that_are_not_in_the_same_order() -> None:
    """However unequal its rows are."""
    rng = Random(3)
    batch = texts(*[rng.choice([0, 10, 300_000, 900_000]) for _ in range(60)])
    pieces = cut(batch)
    assert joined(pieces) == batch.to_pylist()
    assert all(piece.nbytes <= ENTRY_BYTES_MAX for piece in pieces)
    assert len(pieces) < 60


def many_words() -> pa.Array:
    """Return long words, each of them different."""
    return pa.array([f"{number:05d}" * 2_000 for number in range(600)])


COLUMNS = {
    "text": many_words(),
    "large text": many_words().cast(pa.large_string()),
    "text view": many_words().cast(pa.string_view()),
    "bytes view": many_words().cast(pa.binary_view()),
    "dictionary": many_words().dictionary_encode(),
    "dictionary with gaps": pa.array(
        [None if n % 7 == 0 else f"{n:05d}" * 2_000 for n in range(600)]
    ).dictionary_encode(),
    "lists": pa.array([[number] * 1_000 for number in range(600)]),
    "structs": pa.StructArray.from_arrays([many_words(), pa.array(range(600))], ["word", "n"]),
    "fixed": pa.array([bytes([number % 256]) * 9_000 for number in range(600)], pa.binary(9_000)),
    "flags": pa.array([[number % 2 == 0] * 60_000 for number in range(600)]),
}


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS.keys())
def test_the_bytes_of_a_piece_are_its_own(column: pa.Array) -> None:
    """Slices share buffers, dictionaries and views with the batch they are cut from; that is not stored with each."""
    batch = pa.RecordBatch.from_arrays([column.slice(1), pa.array(range(599))], ["column", "n"])
    known = Schemas().known(batch.schema)
    encoded = [known.encode(piece) for piece in cut(batch)]
    assert len(encoded) > 2
    assert max(map(len, encoded)) <= ENTRY_BYTES_MAX + SLACK
    assert sum(map(len, encoded)) <= 2 * batch.nbytes
    back = [decode_batch(one, batch.schema, whole=known.whole) for one in encoded]
    assert joined(back) == batch.to_pylist()
    assert all(one.schema.equals(batch.schema) for one in back)


def test_a_row_that_is_too_large_is_told_from_the_others() -> None:
    batch = texts(10, 2_000_000, ROW_BYTES_MAX + 1, 20, ROW_BYTES_MAX // 2, ROW_BYTES_MAX + 1)
    fitting, giants = sieve(batch)
    assert ids(fitting.to_pylist()) == [0, 1, 3, 4]
    assert [ids(giant.to_pylist()) for giant in giants] == [[2], [5]]
    assert fitting.schema == batch.schema
    fitting, giants = sieve(texts(ROW_BYTES_MAX + 1))
    assert (fitting.num_rows, len(giants)) == (0, 1)


# --- in the queues ----------------------------------------------------------------------------------------------------


def swell(row: Row) -> Row:
    """Return a row with a text as long as it says."""
    return {"id": row["id"], "text": "x" * row["size"]}


def swelling() -> Flow:
    """Rows grow in an operator."""
    grown = rows_of_any_kind().map(swell, name="swell", on_error="dead-letter")
    return flow("swelling", grown.sink(Wall(), name="out"), grown.errors.sink(Wall(), name="dead"))


def entry_sizes(node: SmallNode, queue: str) -> list[int]:
    """Return how many bytes the entries of a queue have."""
    with node.store.read() as snapshot:
        return [len(snapshot.get(key) or b"") for key in node.entries(queue)]


def written(node: SmallNode, sink: str) -> list[Row]:
    """Let a sink take all, as much at a time as fits a turn."""
    rows = []
    while more := node.write_out(sink):
        rows += more
    return rows


def sized(*sizes: int) -> list[Row]:
    """Return rows that say how large they are to be."""
    return [{"id": number, "size": size} for number, size in enumerate(sizes)]


def test_what_a_turn_makes_lies_in_entries_that_fit_a_message() -> None:
    """Forty rows of a megabyte, made at once: every row once, in order, and the ledger balances throughout."""
    node = SmallNode(swelling())
    node.feed(sized(*[1 << 20] * 40))
    node.turn("swell")
    sizes = entry_sizes(node, "out")
    assert len(sizes) == 40
    assert max(sizes) <= ENTRY_BYTES_MAX + SLACK
    assert node.queue(node.instance("out")).put_rows == 40
    assert node.ledger().balanced
    assert ids(written(node, "out")) == list(range(40))
    assert (node.ledger().rows_out, node.ledger().waiting, node.ledger().balanced) == (40, 0, True)


def test_what_a_source_brings_lies_in_entries_that_fit_a_message() -> None:
    """Turns take them one by one, or several at a time."""
    node = SmallNode(relay())
    node.feed(texts(*[300_000] * 30))
    assert len(entry_sizes(node, "pass")) > 8
    assert max(entry_sizes(node, "pass")) <= ENTRY_BYTES_MAX + SLACK
    while node.turn("pass", 4).rows:
        assert node.ledger().balanced
    assert ids(node.write_out("out")) == list(range(30))


def test_a_source_s_row_that_is_too_large_is_left_out_and_counted() -> None:
    node = SmallNode(relay())
    node.feed(texts(1, ROW_BYTES_MAX + 1, 2))
    node.settle()
    assert ids(node.write_out("out")) == [0, 2]
    ledger = node.ledger()
    assert (ledger.rows_in, ledger.dropped, ledger.balanced) == (3, {"too-large": 1}, True)


def test_a_row_that_grows_too_large_stops_the_flow_and_names_the_limit() -> None:
    """As one at which the operator raises; nothing of the turn is committed."""
    node = SmallNode(flow("swelling", rows_of_any_kind().map(swell, name="swell").sink(Wall(), name="out")))
    node.feed(sized(10, ROW_BYTES_MAX + 1, 20))
    trouble = node.turn("swell").trouble
    assert trouble is not None
    assert (trouble.operator, f"{ROW_BYTES_MAX:,}" in trouble.error) == ("swell", True)
    assert len(trouble.row) < 3_000
    assert node.ledger().waiting == 3


def test_a_row_that_grows_too_large_is_a_dead_letter_where_that_is_wanted() -> None:
    """All others get through."""
    node = SmallNode(swelling())
    node.feed(sized(10, ROW_BYTES_MAX + 1, 2_000_000, 20))
    node.settle()
    assert ids(node.write_out("out")) == [0, 2, 3]
    (letter,) = node.write_out("dead")
    assert f"{ROW_BYTES_MAX:,}" in letter["error"]
    assert (node.ledger().rows_out, node.ledger().dropped, node.ledger().balanced) == (4, {}, True)


def wide(count: int) -> pa.RecordBatch:
    """One row with so many columns of long names."""
    names = [f"{number:05d}" + "x" * 1_000 for number in range(count)]
    return pa.RecordBatch.from_arrays([pa.array([1])] * count, names=names)


def widen(rows: pa.RecordBatch) -> pa.RecordBatch:
    return wide(3_000)


def test_rows_whose_schema_is_too_large_to_travel_stop_the_flow_before_they_come_to_a_queue() -> None:
    """An instance that runs elsewhere could never be sent them, and its queue would wait for ever."""
    node = SmallNode(flow("widening", rows_of_any_kind().map(widen, name="widen").sink(Wall(), name="out")))
    node.feed(texts(1))
    trouble = node.turn("widen").trouble
    assert trouble is not None
    assert trouble.operator == "widen"
    assert "3,000 columns" in trouble.error
    assert f"{SCHEMA_BYTES_MAX:,}" in trouble.error
    assert len(trouble.row) < 3_000
    assert node.ledger().waiting == 1
