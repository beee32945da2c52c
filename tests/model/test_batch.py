"""A batch in a queue is a header and Arrow's bytes; what is damaged is noticed, and the latency sample is kept."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.model.batch import (
    STAMPS_MAX,
    Stamp,
    decode_batch,
    decode_entry,
    encode_batch,
    encode_entry,
    entry_rows,
    merge_stamps,
    needs_whole,
    schema_id,
    share_stamps,
)
from headwater.model.errors import StoreError

stamps = st.builds(Stamp, st.integers(0, 2**62), st.integers(1, 2**20))
rows = st.lists(
    st.fixed_dictionaries({"a": st.none() | st.integers(-(2**63), 2**63 - 1), "b": st.none() | st.text(max_size=9)}),
    min_size=1,
    max_size=9,
)
SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string())])
WHOLE = pa.schema([("a", pa.int64()), ("b", pa.dictionary(pa.int32(), pa.string()))])


@given(
    identity=st.integers(0, 2**64 - 1),
    enqueued_us=st.integers(-(2**63), 2**63 - 1),
    count=st.integers(0, 2**32 - 1),
    marks=st.lists(stamps, max_size=STAMPS_MAX),
    payload=st.binary(max_size=50),
)
def test_an_entry_comes_back_as_it_was(
    identity: int, enqueued_us: int, count: int, marks: list[Stamp], payload: bytes
) -> None:
    """And its rows can be counted without decoding it."""
    encoded = encode_entry(identity, enqueued_us, count, marks, payload)
    entry = decode_entry(encoded)
    assert (entry.schema_id, entry.enqueued_us, entry.rows) == (identity, enqueued_us, count)
    assert (entry.stamps, bytes(entry.payload)) == (tuple(marks), payload)
    assert entry_rows(encoded) == entry_rows(memoryview(encoded)) == count


@given(made=rows, schema=st.sampled_from([SCHEMA, WHOLE]))
def test_a_batch_comes_back_as_it_was(made: list[dict[str, Any]], schema: pa.Schema) -> None:
    """With nulls, any text, and dictionary columns."""
    batch = pa.RecordBatch.from_pylist(made, schema=schema)
    whole = needs_whole(schema)
    back = decode_batch(encode_batch(batch, whole=whole), schema, whole=whole)
    assert back.equals(batch)
    assert back.to_pylist() == made


def test_a_part_of_a_batch_is_stored_without_the_rest() -> None:
    """A slice of a few rows does not drag the whole batch into the store."""
    batch = pa.record_batch({"a": list(range(10_000))})
    part = batch.slice(5_000, 3)
    encoded = encode_batch(part, whole=False)
    assert len(encoded) < 1_000
    assert decode_batch(encoded, batch.schema, whole=False).to_pylist() == part.to_pylist()


@pytest.mark.parametrize(
    ("kind", "whole"),
    [
        (pa.int64(), False),
        (pa.list_(pa.struct([("x", pa.string())])), False),
        (pa.dictionary(pa.int8(), pa.string()), True),
        (pa.list_(pa.struct([("x", pa.dictionary(pa.int8(), pa.string()))])), True),
    ],
)
def test_dictionaries_are_found_however_deep(kind: pa.DataType, whole: bool) -> None:
    """They are not part of a record batch message."""
    assert needs_whole(pa.schema([("x", kind)])) is whole


@given(cut=st.integers(0, 59), marks=st.lists(stamps, min_size=3, max_size=3))
def test_an_entry_cut_short_is_a_damaged_store(cut: int, marks: list[Stamp]) -> None:
    """Wherever it was cut: in the header or among the stamps."""
    encoded = encode_entry(1, 2, 3, marks, b"payload")[:cut]
    with pytest.raises(StoreError, match="damaged"):
        decode_entry(encoded)


def test_an_entry_without_a_header_has_no_rows_to_count() -> None:
    """It is a damaged store too."""
    with pytest.raises(StoreError, match="a queue entry of 3 bytes is damaged"):
        entry_rows(b"abc")


@pytest.mark.parametrize("schema", [SCHEMA, WHOLE], ids=["message", "stream"])
@pytest.mark.parametrize("kept", [0, 20, -30])
def test_a_damaged_batch_is_a_damaged_store(schema: pa.Schema, kept: int) -> None:
    """Not an Arrow error that looks like the user's."""
    whole = needs_whole(schema)
    encoded = encode_batch(pa.RecordBatch.from_pylist([{"a": 1, "b": "x" * 50}], schema=schema), whole=whole)
    with pytest.raises(StoreError, match="damaged"):
        decode_batch(encoded[:kept], schema, whole=whole)


def test_equal_schemas_have_equal_names() -> None:
    """On every machine, so this one is written down."""
    assert schema_id(pa.schema([("a", pa.int64())])) == schema_id(pa.schema([("a", pa.int64())]))
    other = [pa.schema([("a", pa.int32())]), pa.schema([("b", pa.int64())]), pa.schema([])]
    assert len({schema_id(one) for one in [*other, SCHEMA, WHOLE]}) == 5


@given(groups=st.lists(st.lists(stamps, max_size=STAMPS_MAX), max_size=5))
def test_merged_stamps_are_few_ordered_and_never_none(groups: list[list[Stamp]]) -> None:
    """As long as they are few, not a sampled row is lost; of too many, an even part stays."""
    merged = merge_stamps(groups)
    every = [stamp for group in groups for stamp in group]
    assert len(merged) <= STAMPS_MAX
    assert bool(merged) == bool(every)
    assert [stamp.born_us for stamp in merged] == sorted({stamp.born_us for stamp in merged})
    if len({stamp.born_us for stamp in every}) <= STAMPS_MAX:
        assert sum(stamp.rows for stamp in merged) == sum(stamp.rows for stamp in every)


@given(marks=st.lists(stamps, max_size=5), sizes=st.lists(st.integers(1, 50), min_size=1, max_size=8))
def test_shared_stamps_are_in_every_part_and_never_fewer_together(marks: list[Stamp], sizes: list[int]) -> None:
    """Each part has its share, rounded up."""
    parts = [share_stamps(marks, size, sum(sizes)) for size in sizes]
    for place, stamp in enumerate(marks):
        shares = [part[place] for part in parts]
        assert all(share.born_us == stamp.born_us and share.rows >= 1 for share in shares)
        assert stamp.rows <= sum(share.rows for share in shares) < stamp.rows + len(sizes)
