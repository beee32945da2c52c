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

from headwater.engine.admitting import Admitting
from headwater.engine.schemas import KnownSchema, Schemas
from headwater.model.batch import Entry, Stamp, decode_batch, decode_entry, encode_entry
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


def entry(batch: pa.RecordBatch, payload: bytes | None = None, **changes: Any) -> tuple[Entry, KnownSchema]:
    """An entry of a queue as it comes from another node, and its schema."""
    known = Schemas().known(batch.schema)
    encoded = encode_entry(known.identity, 1, batch.num_rows, (), known.encode(batch) if payload is None else payload)
    return decode_entry(encoded)._replace(**changes), known


@pytest.mark.parametrize("batch", [TEXTS, WORDS, ALL_KINDS, STRANGE, STRANGE_WORDS, TEXTS.slice(1), WORDS.slice(1, 1)])
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
    ("samples beyond all sums", lambda: entry(TEXTS, stamps=(Stamp(0, 1 << 62),))),
]


@pytest.mark.parametrize("wrong", [wrong for _, wrong in WRONG], ids=[name for name, _ in WRONG])
def test_what_is_no_batch_of_its_schema_is_refused(wrong: Callable[[], tuple[Entry, KnownSchema]]) -> None:
    """Read all the same, it would take what is beside it in memory for rows, or end the process that reads it."""
    with pytest.raises(StoreError):
        Admitting().check(*wrong())


@given(batch=st.sampled_from([TEXTS, WORDS, ALL_KINDS, STRANGE_WORDS]), draw=st.data())
@settings(max_examples=300, deadline=None)
def test_a_damaged_batch_is_refused_or_can_be_read(batch: pa.RecordBatch, draw: st.DataObject) -> None:
    """Wherever it is damaged: a process that dies of it fails this test, too."""
    sound, known = entry(batch)
    damaged = bytearray(sound.payload)
    for _ in range(draw.draw(st.integers(1, 4))):
        damaged[draw.draw(st.integers(0, len(damaged) - 1))] = draw.draw(st.integers(0, 255))
    try:
        Admitting().check(sound._replace(payload=memoryview(bytes(damaged))), known)
    except StoreError:
        return
    read = decode_batch(bytes(damaged), known.schema, whole=known.whole)
    assert read.num_rows == batch.num_rows
    for column in read.columns:
        len(str(column))
