"""Rows as bytes: whatever they are, cut by key and put together in another order, they come back as they were."""

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.operators.columns.packing import PackedRows, Packing, heap_by_row, heap_of

TYPES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    (pa.int8(), st.integers(-128, 127)),
    (pa.uint64(), st.integers(0, (1 << 64) - 1)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.text(max_size=5)),
    (pa.large_string(), st.text(max_size=5)),
    (pa.binary(), st.binary(max_size=5)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.binary(0), st.just(b"")),
    (pa.decimal128(20, 2), st.integers(-(10**9), 10**9).map(lambda cents: Decimal(cents) / 100)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(dt.UTC))),
    (pa.duration("us"), st.timedeltas(max_value=dt.timedelta(10**6), min_value=dt.timedelta(-(10**6)))),
    (pa.time64("us"), st.times()),
    (pa.null(), st.none()),
    (pa.list_(pa.int64()), st.lists(st.integers(0, 9), max_size=3)),
    (
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        st.fixed_dictionaries({"a": st.integers(0, 9), "b": st.text()}),
    ),
    (pa.struct([]), st.just({})),
    (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["x", "y"])),
    (pa.list_(pa.dictionary(pa.int32(), pa.string())), st.lists(st.sampled_from(["x", "y"]), max_size=2)),
    (pa.map_(pa.string(), pa.int64()), st.lists(st.tuples(st.text(max_size=2), st.integers(0, 9)), max_size=2)),
]


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    rows = draw(st.integers(0, 5))
    chosen = draw(st.lists(st.sampled_from(TYPES), max_size=10))
    columns = [pa.array(draw(st.lists(st.none() | v, min_size=rows, max_size=rows)), kind) for kind, v in chosen]
    names = [f"c{nth}" for nth in range(len(columns))]
    if not columns:
        return pa.record_batch({"only": pa.array(range(rows), pa.int64())})
    return pa.RecordBatch.from_arrays(columns, names=names)


@settings(max_examples=200, deadline=None)
@given(batches(), st.randoms(use_true_random=False), st.integers(0, 2))
def test_rows_come_back_in_any_order(batch: pa.RecordBatch, random: Any, start: int) -> None:
    """Also from a slice, whose buffers begin somewhere in the middle."""
    batch = batch.slice(min(start, batch.num_rows))
    packing = Packing(batch.schema, ("mark",), 40)
    packed = packing.pack(batch)
    order = list(range(batch.num_rows))
    random.shuffle(order)
    positions = np.array(order, np.int64)
    heap = heap_of(heap_by_row(packed.heap, packed.heap_sizes).take(pa.array(positions, pa.int64())))
    found = packing.unpack(packed.records[positions], heap)
    found.validate(full=True)
    assert found.schema.equals(batch.schema)
    assert found.to_pylist() == batch.take(pa.array(positions, pa.int64())).to_pylist()
    assert packing.heap_sizes(packed.records).tolist() == packed.heap_sizes.tolist()


def test_a_heap_that_is_too_short_is_not_read_beyond_its_end() -> None:
    """What is kept may have come from another node."""
    packing = Packing(pa.schema({"text": pa.string()}))
    packed = packing.pack(pa.record_batch({"text": ["abc", "defgh"]}))
    with pytest.raises(ValueError, match="7 bytes of what varies in length"):
        packing.unpack(packed.records, packed.heap[:-1])


def test_marks_are_free_to_use() -> None:
    """They begin at 0, at the front of a record, and mean nothing to the rows."""
    batch = pa.record_batch({"x": [1, 2]})
    packing = Packing(batch.schema, ("one", "two"))
    packed: PackedRows = packing.pack(batch)
    assert packed.records["two"].tolist() == [0, 0]
    packed.records["two"] = 7
    assert packed.records.tobytes()[:2] == b"\0\7"
    assert packing.unpack(packed.records, packed.heap).equals(batch)
