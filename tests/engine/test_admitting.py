"""Rows of another node: what is a batch is kept, whatever its values mean, and what only looks like one is not."""

import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.engine.batch_validation import Admitting
from headwater.engine.entry_split import cut, is_large
from headwater.engine.measuring import check_schema
from headwater.engine.schemas import KnownSchema, Schemas
from headwater.model.batch import STAMPS_MAX, Entry, Stamp, decode_batch, decode_entry, encode_entry
from headwater.model.errors import StoreError

TEXTS = pa.record_batch({"s": ["abc", "defgh", "x"]})
WORDS = pa.record_batch({"w": pa.array(["abc", "defgh", "abc"]).dictionary_encode()})
ALL_KINDS = pa.record_batch(
    {
        "int": [1, 2, None],
        "float": [1.5, float("nan"), None],
        "bool": [True, False, None],
        "null": pa.nulls(3),
        "text": ["a", "", None],
        "large text": pa.array(["a", "", None], pa.large_string()),
        "view": pa.array(["a" * 40, "", None], pa.string_view()),
        "bytes": [b"\xff", b"", None],
        "instant": [datetime(2026, 6, 1, tzinfo=UTC)] * 3,
        "date": [date(2026, 6, 1)] * 3,
        "time": [time(1, 2, 3)] * 3,
        "decimal": [Decimal("1.25")] * 3,
        "list": [["a"], [], None],
        "large list": pa.array([["a"], [], None], pa.large_list(pa.string())),
        "pair": pa.array([["a", "b"]] * 3, pa.list_(pa.string(), 2)),
        "struct": [{"a": "x", "b": [Decimal("1.5")]}, {"a": None, "b": None}, None],
        "map": pa.array([[("k", "v")], [], None], pa.map_(pa.string(), pa.string())),
        "runs": pa.RunEndEncodedArray.from_arrays([3], ["x"]),
        "lists": pa.array([["a"], [], None], pa.list_view(pa.string())),
    }
)
STRANGE = pa.record_batch(
    {
        "no text": pa.array([b"\xff"] * 3).view(pa.string()),
        "beyond midnight": pa.array([1 << 30] * 3, pa.int32()).view(pa.time32("s")),
        "half a day": pa.array([7] * 3, pa.int64()).view(pa.date64()),
        "too precise": pa.array([bytes([255] * 15 + [1])] * 3, pa.binary(16)).view(pa.decimal128(3, 2)),
    }
)
STRANGE_WORDS = STRANGE.append_column("w", pa.array(["a", "b", None]).dictionary_encode())
EXTENDED = pa.record_batch(
    {
        "json": pa.array(["1", None, "2"], pa.json_(pa.string_view())),
        "id": pa.array([b"x" * 16, None, b"y" * 16], pa.uuid()),
        "word": pa.ExtensionArray.from_storage(
            pa.opaque(pa.dictionary(pa.int32(), pa.string()), "word", "somebody"), WORDS["w"]
        ),
    }
)


def entry(batch: pa.RecordBatch, payload: bytes | None = None, **changes: Any) -> tuple[Entry, KnownSchema]:
    """An entry of a queue as it comes from another node, and its schema."""
    known = Schemas().known(batch.schema)
    encoded = encode_entry(known.identity, 1, batch.num_rows, (), known.encode(batch) if payload is None else payload)
    return decode_entry(encoded)._replace(**changes), known


@pytest.mark.parametrize(
    "batch", [TEXTS, WORDS, ALL_KINDS, STRANGE, STRANGE_WORDS, EXTENDED, TEXTS.slice(1), WORDS.slice(1, 1)]
)
def test_whatever_a_flow_makes_is_taken(batch: pa.RecordBatch) -> None:
    """A text that is no UTF-8, too: it would wait at its sender for ever, and means something to its flow."""
    Admitting().check(*entry(batch))


def streamed(batch: pa.RecordBatch, compression: str | None = None) -> bytes:
    """A batch with its schema and its dictionaries, as some other program writes it."""
    written = pa.BufferOutputStream()
    with pa.ipc.new_stream(written, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as stream:
        stream.write_batch(batch)
    return bytes(written.getvalue())


def pointing_elsewhere() -> bytes:
    """Three texts, of which one is said to begin a gigabyte further on."""
    encoded = TEXTS.serialize().to_pybytes()
    return bytes(encoded.replace(struct.pack("<4i", 0, 3, 8, 9), struct.pack("<4i", 0, 3, 1 << 30, 9)))


def bomb() -> bytes:
    """Some thousand bytes that unpack to a hundred megabytes."""
    whole = streamed(pa.record_batch({"s": pa.array([bytes(100 << 20)]).view(pa.string())}), "zstd")
    _, message = pa.ipc.MessageReader.open_stream(whole)
    assert len(whole) < 20_000
    return bytes(message.serialize())


WRONG: list[tuple[str, Callable[[], tuple[Entry, KnownSchema]]]] = [
    ("nothing", lambda: entry(TEXTS, b"")),
    ("no batch", lambda: entry(TEXTS, b"nonsense" * 20)),
    ("cut off", lambda: entry(TEXTS, TEXTS.serialize().to_pybytes()[:-16])),
    ("offsets that point elsewhere", lambda: entry(TEXTS, pointing_elsewhere())),
    ("other columns", lambda: entry(TEXTS, ALL_KINDS.serialize().to_pybytes())),
    (
        "shorter values",
        lambda: entry(
            pa.record_batch({"n": pa.array([1] * 99)}),
            pa.record_batch({"n": pa.array([1] * 99, pa.int8())}).serialize().to_pybytes(),
        ),
    ),
    ("more rows than there are", lambda: entry(TEXTS, rows=1 << 31)),
    ("a bomb", lambda: entry(TEXTS.slice(0, 1), bomb())),
    ("compressed words", lambda: entry(WORDS, streamed(WORDS, "zstd"))),
    (
        "words that are not in the dictionary",
        lambda: entry(
            WORDS,
            streamed(
                pa.record_batch(
                    {"w": pa.DictionaryArray.from_arrays(pa.array([0, 99, 0], pa.int32()), ["a"], safe=False)}
                )
            ),
        ),
    ),
    ("words under another name", lambda: entry(WORDS, streamed(pa.record_batch({"x": WORDS.column(0)})))),
    ("a time before all clocks", lambda: entry(TEXTS, enqueued_us=-1)),
    ("a sample of no clock", lambda: entry(TEXTS, stamps=(Stamp(-1, 1),))),
    ("more samples than are kept", lambda: entry(TEXTS, stamps=(Stamp(1, 1),) * (STAMPS_MAX + 1))),
    ("samples beyond all sums", lambda: entry(TEXTS, stamps=(Stamp(0, 1 << 62),))),
]


@pytest.mark.parametrize("wrong", [wrong for _, wrong in WRONG], ids=[name for name, _ in WRONG])
def test_what_is_no_batch_of_its_schema_is_refused(wrong: Callable[[], tuple[Entry, KnownSchema]]) -> None:
    """Read all the same, it would take what is beside it in memory for rows, or end the process that reads it."""
    with pytest.raises(StoreError):
        Admitting().check(*wrong())


LONG = "x" * 100_000


def one_text_often(rows: int) -> pa.Array:
    """Return a column of views of the same text."""
    views = struct.pack("<i4sii", len(LONG), LONG[:4].encode(), 0, 0) * rows
    return pa.Array.from_buffers(pa.string_view(), rows, [None, pa.py_buffer(views), pa.py_buffer(LONG.encode())])


def one_text_often_and_a_null(rows: int) -> pa.Array:
    """Return such a column, with one null more, in whose slot the most negative length of all stands."""
    views = one_text_often(rows).buffers()[1].to_pybytes() + struct.pack("<iiii", -(1 << 31), 0, 0, 0)
    present = bytearray(b"\xff" * (rows // 8 + 1))
    present[rows // 8] &= ~(1 << rows % 8)
    buffers = [pa.py_buffer(bytes(present)), pa.py_buffer(views), pa.py_buffer(LONG.encode())]
    column = pa.Array.from_buffers(pa.string_view(), rows + 1, buffers)
    column.validate(full=True)  # Arrow does not mind
    return column


BILLIONS: list[tuple[str, Callable[[], pa.RecordBatch]]] = [
    ("nulls", lambda: pa.record_batch({"n": pa.nulls(2_000_000_000)})),
    ("no columns", lambda: pa.record_batch({"n": pa.nulls(2_000_000_000)}).select([])),
    (
        "structs without fields",
        lambda: pa.record_batch({"n": pa.StructArray.from_buffers(pa.struct([]), 1 << 30, [None])}),
    ),
    (
        "bytes without width",
        lambda: pa.record_batch({"n": pa.Array.from_buffers(pa.binary(0), 1 << 30, [None, pa.py_buffer(b"")])}),
    ),
    (
        "lists without width",
        lambda: pa.record_batch(
            {"n": pa.FixedSizeListArray.from_buffers(pa.list_(pa.null(), 0), 1 << 30, [None], children=[pa.nulls(0)])}
        ),
    ),
    (
        "wide lists of nulls",
        lambda: pa.record_batch({"n": pa.FixedSizeListArray.from_arrays(pa.nulls(1 << 30), 1 << 20)}),
    ),
    (
        "a list of nulls",
        lambda: pa.record_batch({"n": pa.ListArray.from_arrays(pa.array([0, 1 << 30], pa.int32()), pa.nulls(1 << 30))}),
    ),
    (
        "one run",
        lambda: pa.record_batch({"n": pa.RunEndEncodedArray.from_arrays(pa.array([1 << 30], pa.int32()), ["x"])}),
    ),
    ("truths", lambda: pa.record_batch({"n": pa.array([True] * (1 << 21))})),
    (
        "a long text in a dictionary",
        lambda: pa.record_batch({"n": pa.DictionaryArray.from_arrays(pa.array([0] * 4_000, pa.int8()), [LONG])}),
    ),
    (
        "a long run",
        lambda: pa.record_batch({"n": pa.RunEndEncodedArray.from_arrays(pa.array([4_000], pa.int32()), [LONG])}),
    ),
    (
        "a long text in views",
        lambda: pa.record_batch({"n": one_text_often(4_000)}),
    ),
    (
        "a long text in views beside a null",
        lambda: pa.record_batch({"n": one_text_often_and_a_null(4_000)}),
    ),
    (
        "a long text in views, as JSON",
        lambda: pa.record_batch(
            {"n": pa.ExtensionArray.from_storage(pa.json_(pa.string_view()), one_text_often(4_000))}
        ),
    ),
    (
        "a long list in views",
        lambda: pa.record_batch(
            {
                "n": pa.ListViewArray.from_arrays(
                    pa.array([0] * 4_000, pa.int32()), pa.array([1] * 4_000, pa.int32()), pa.array([LONG])
                )
            }
        ),
    ),
    (
        "a long text in a union",
        lambda: pa.record_batch(
            {
                "n": pa.UnionArray.from_dense(
                    pa.array([0] * 4_000, pa.int8()), pa.array([0] * 4_000, pa.int32()), [pa.array([LONG])]
                )
            }
        ),
    ),
    (
        "nested",
        lambda: pa.record_batch(
            {
                "n": pa.StructArray.from_arrays(
                    [pa.DictionaryArray.from_arrays(pa.array([0] * 4_000, pa.int8()), [LONG])], ["d"]
                )
            }
        ),
    ),
]


@pytest.mark.parametrize("made", [made for _, made in BILLIONS], ids=[name for name, _ in BILLIONS])
def test_rows_are_bounded_by_the_bytes_that_there_are(made: Callable[[], pa.RecordBatch]) -> None:
    """Two thousand million rows of nulls are 408 bytes; whoever takes them does so for hours, or in all its memory."""
    batch = made()
    offered, known = entry(batch)
    assert len(offered.payload) < 1 << 20
    with pytest.raises(StoreError, match=r"says that it has|has its value to itself"):
        Admitting().check(offered, known)


@pytest.mark.parametrize(
    "batch",
    [
        pa.record_batch({"n": pa.nulls(300_000)}),
        pa.record_batch({"n": [True, None, False] * 1_000_000}),
        pa.record_batch({f"n{place}": pa.nulls(4_000) for place in range(500)}),
        pa.record_batch(
            {"n": pa.array([None] * 50_000, pa.struct([pa.field("a", pa.struct([pa.field("b", pa.null())]))]))}
        ),
        pa.record_batch({"n": pa.array(["word"] * 300_000).dictionary_encode()}),
        pa.record_batch({"n": pa.RunEndEncodedArray.from_arrays(pa.array([300_000], pa.int32()), ["x"])}),
        pa.record_batch({"n": range(1_000_000)}),
    ],
    ids=["nulls", "truths", "wide", "nested", "words", "runs", "numbers"],
)
def test_what_our_own_nodes_cut_is_taken(batch: pa.RecordBatch) -> None:
    """Else it would wait at its sender for ever."""
    pieces = cut(batch) if is_large(batch) else [batch]
    for piece in pieces:
        Admitting().check(*entry(piece))
    assert sum(piece.num_rows for piece in pieces) == batch.num_rows


def test_columns_that_share_their_bytes_are_refused() -> None:
    """As many columns as one likes, each as long as the message."""
    batch = pa.record_batch({"a": list(range(1_000)), "b": list(range(1_000))})
    encoded = batch.serialize().to_pybytes()
    parted = struct.pack("<8q", 0, 0, 0, 8_000, 8_000, 0, 8_000, 8_000)
    shared = encoded.replace(parted, struct.pack("<8q", 0, 0, 0, 16_000, 0, 0, 0, 16_000))
    assert shared != encoded
    as_one_reads_it = pa.ipc.read_record_batch(pa.py_buffer(shared), batch.schema)
    assert as_one_reads_it.columns[0] == as_one_reads_it.columns[1]
    with pytest.raises(StoreError, match="the buffers of a batch"):
        Admitting().check(*entry(batch, shared))


TEXT = "z" * 5_000
SHORT = [f"t{number:02}" for number in range(50)]


@pytest.mark.parametrize(
    "fields",
    [
        [pa.field(text, pa.int8()) for text in (TEXT, *SHORT)],
        [pa.field("a", pa.int8(), metadata={"k": text}) for text in (TEXT, *SHORT)],
        [pa.field("a", pa.timestamp("us", text)) for text in (TEXT, *SHORT)],
        [pa.field("a", pa.struct([pa.field(text, pa.int8()) for text in (TEXT, *SHORT)]))],
    ],
    ids=["names", "metadata", "time zones", "nested"],
)
def test_a_schema_in_which_something_counts_twice_is_refused(fields: list[pa.Field]) -> None:
    """A megabyte of tables that refer to one another is a schema of any size."""
    sound = pa.schema(fields).serialize().to_pybytes()
    check_schema(sound)
    shared = all_called_the_same(sound)
    assert len(pa.ipc.read_schema(pa.py_buffer(shared)).serialize()) > len(SHORT) * len(TEXT) > 10 * len(shared)
    with pytest.raises(StoreError, match="the same bytes more than once"):
        check_schema(shared)


def all_called_the_same(encoded: bytes) -> bytes:
    """Let all that refers to a short text refer to the long one."""
    forged = bytearray(encoded)
    long = encoded.index(struct.pack("<I", len(TEXT)) + TEXT.encode())
    for short in SHORT:
        at = encoded.index(struct.pack("<I", len(short)) + short.encode())
        (slot,) = [place for place in range(8, at, 4) if struct.unpack_from("<I", encoded, place)[0] == at - place]
        struct.pack_into("<I", forged, slot, long - slot)
    return bytes(forged)


def test_a_deep_schema_is_refused() -> None:
    kind = pa.int8()
    for _ in range(70):
        kind = pa.struct([("n", kind)])
    with pytest.raises(StoreError, match="types in more than 64 others"):
        check_schema(pa.schema([("n", kind)]).serialize().to_pybytes())


VIEWS = pa.record_batch({"v": pa.array(["a" * 40, None, "b"], pa.string_view())})
SHARED_VIEWS = pa.record_batch(
    {
        "words": pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int8()), VIEWS["v"]),
        "runs": pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), VIEWS["v"][:2]),
        "either": pa.UnionArray.from_dense(pa.array([0] * 3, pa.int8()), pa.array([0, 1, 2], pa.int32()), [VIEWS["v"]]),
        "lists": pa.ListViewArray.from_arrays(pa.array([0] * 3, pa.int32()), pa.array([1] * 3, pa.int32()), VIEWS["v"]),
    }
)


def views_with_a_long_buffer(extra: int) -> bytes:
    """Three texts in views, whose buffer is said to have some bytes more than the views."""
    encoded = VIEWS.serialize().to_pybytes()
    sound = struct.pack("<q", 3 * 16)
    assert encoded.count(sound) == 1
    return bytes(encoded.replace(sound, struct.pack("<q", 3 * 16 + extra)))


@pytest.mark.parametrize("extra", [1, 4, 7])
def test_views_whose_buffer_ends_between_two_of_them_can_be_read(extra: int) -> None:
    """Arrow reads as many views as there are rows; what is behind them is of no consequence."""
    Admitting().check(*entry(VIEWS, views_with_a_long_buffer(extra)))


LENGTHS = [0, 1, 8, 15, 17, 24, 63, -1, 1 << 31, -(1 << 31), 1 << 62]  # as they may stand in metadata and in views


def damaged(sound: bytes, draw: st.DataObject) -> bytes:
    """Return a batch with some other bytes, or with other numbers where numbers of eight bytes may be."""
    others = bytearray(sound)
    for _ in range(draw.draw(st.integers(1, 4))):
        if draw.draw(st.booleans()):
            others[draw.draw(st.integers(0, len(others) - 1))] = draw.draw(st.integers(0, 255))
        else:
            at = 8 * draw.draw(st.integers(0, len(others) // 8 - 1))
            (number,) = struct.unpack_from("<q", others, at)
            near = [number + by for by in (-8, -1, 1, 8) if abs(number + by) < 1 << 63]
            struct.pack_into("<q", others, at, draw.draw(st.sampled_from([*near, *LENGTHS])))
    return bytes(others)


@given(batch=st.sampled_from([TEXTS, WORDS, ALL_KINDS, STRANGE_WORDS, VIEWS, SHARED_VIEWS, EXTENDED]), draw=st.data())
@settings(max_examples=500, deadline=None)
def test_a_damaged_batch_is_refused_or_can_be_read(batch: pa.RecordBatch, draw: st.DataObject) -> None:
    """Wherever it is damaged: a process that dies of it fails this test, too."""
    sound, known = entry(batch)
    payload = damaged(bytes(sound.payload), draw)
    try:
        Admitting().check(sound._replace(payload=memoryview(payload)), known)
    except StoreError:
        return
    read = decode_batch(payload, known.schema, whole=known.whole)
    assert read.num_rows == batch.num_rows
    for column in read.columns:
        len(str(column))
