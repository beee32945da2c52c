"""A batch in a queue: a small header and the Arrow record batch message.

The schema is not part of every batch: it would be larger than a batch of few rows. The header names it by a hash, and
the store keeps each schema once. Stamps represent the rows of the latency sample: when such rows entered, and how many
of them are in this batch; they travel with the batches of their rows. A mark names the channel of the batch and the
channel's event time behind it; an entry without rows is a mark alone.
"""

import struct
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

import pyarrow as pa

from headwater.model.errors import StoreError
from headwater.model.time import BEGINNING_OF_TIME

SCHEMA_NAME_BYTES: Final = 8
STAMPS_MAX: Final = 32  # a batch that gathered more keeps every second, third ... of them, so the sample stays even

_HEADER: Final = struct.Struct("<QqIHHIIq")  # schema id, enqueued_us, rows, stamps, flags, sender, input, watermark_us
_IDLE: Final = 1
_EXACT: Final = 2
_STAMP: Final = struct.Struct("<qq")  # a multiple of 8 bytes like the header, since Arrow wants its buffers aligned


class Stamp(NamedTuple):
    """This many sampled rows entered the flow at this instant."""

    born_us: int
    rows: int


class Mark(NamedTuple):
    """The sender of an entry, the input it is for, and the sender's event time behind it (a watermark)."""

    sender: int = 0
    source: int = 0  # which input of the receiving operator: 0 unless it joins
    watermark_us: int = BEGINNING_OF_TIME
    idle: bool = False  # the sender has fallen silent: do not wait for its watermark
    exact: bool = False  # later rows may be late by this watermark: they must not be taken together with earlier ones


UNMARKED: Final = Mark()


class Entry(NamedTuple):
    """One batch of a queue, not yet decoded."""

    schema_id: int
    enqueued_us: int
    rows: int
    stamps: tuple[Stamp, ...]
    payload: bytes | memoryview
    mark: Mark = UNMARKED


def schema_id(schema: pa.Schema) -> int:
    """Return the 64-bit name of a schema; equal schemas have equal names on every machine."""
    return named_by(schema.serialize().to_pybytes())


def named_by(encoded: bytes) -> int:
    """Return the name of the schema that has these bytes."""
    return int.from_bytes(blake2b(encoded, digest_size=SCHEMA_NAME_BYTES).digest(), "little")


def encode_entry(
    identity: int,
    enqueued_us: int,
    rows: int,
    stamps: Sequence[Stamp],
    payload: bytes | memoryview,
    mark: Mark = UNMARKED,
) -> bytes:
    """Return the bytes of a queue entry."""
    flags = _IDLE * mark.idle + _EXACT * mark.exact
    head = _HEADER.pack(identity, enqueued_us, rows, len(stamps), flags, mark.sender, mark.source, mark.watermark_us)
    marks = b"".join(_STAMP.pack(stamp.born_us, stamp.rows) for stamp in stamps)
    return b"".join((head, marks, payload))


def decode_entry(encoded: bytes) -> Entry:
    """Decode a queue entry; invalid bytes mean a damaged store."""
    try:
        identity, enqueued_us, rows, count, flags, sender, source, watermark_us = _HEADER.unpack_from(encoded, 0)
        at = _HEADER.size
        stamps = tuple(Stamp(*_STAMP.unpack_from(encoded, at + index * _STAMP.size)) for index in range(count))
    except struct.error as damage:
        raise StoreError(f"a queue entry of {len(encoded)} bytes is damaged: {damage}") from damage
    mark = Mark(sender, source, watermark_us, bool(flags & _IDLE), bool(flags & _EXACT))
    return Entry(identity, enqueued_us, rows, stamps, memoryview(encoded)[at + count * _STAMP.size :], mark)


def encode_mark(enqueued_us: int, mark: Mark) -> bytes:
    """Return the bytes of an entry that is a mark alone."""
    return encode_entry(0, enqueued_us, 0, (), b"", mark)


def entry_rows(encoded: bytes | memoryview) -> int:
    """Return how many rows an entry holds, without decoding the rest."""
    try:
        return int(_HEADER.unpack_from(encoded, 0)[2])
    except struct.error as damage:
        raise StoreError(f"a queue entry of {len(encoded)} bytes is damaged: {damage}") from damage


def encode_batch(batch: pa.RecordBatch, *, whole: bool) -> bytes:
    """Return the batch without its schema; `whole`, which dictionary columns need, means with it."""
    if whole:
        stream = pa.BufferOutputStream()
        with pa.ipc.new_stream(stream, batch.schema) as writer:
            writer.write_batch(batch)
        return stream.getvalue().to_pybytes()  # type: ignore[no-any-return]
    return batch.serialize().to_pybytes()  # type: ignore[no-any-return]


def decode_batch(payload: bytes | memoryview, schema: pa.Schema, *, whole: bool) -> pa.RecordBatch:
    """Read a batch back; its buffers point into `payload`, which they keep alive."""
    buffer = pa.py_buffer(payload)
    try:
        if whole:
            with pa.ipc.open_stream(buffer) as reader:
                return reader.read_next_batch()
        return pa.ipc.read_record_batch(buffer, schema)
    except (pa.ArrowException, OSError, EOFError, StopIteration) as damage:
        raise StoreError(f"a batch of {len(payload)} bytes is damaged: {damage}") from damage


def needs_whole(schema: pa.Schema) -> bool:
    """Whether batches of this schema must be encoded whole: a dictionary is not part of a record batch message."""
    return any(_mentions_dictionary(field.type) for field in schema)


def _mentions_dictionary(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _mentions_dictionary(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return True
    return any(_mentions_dictionary(kind.field(index).type) for index in range(kind.num_fields))


def merge_stamps(groups: Iterable[Sequence[Stamp]]) -> tuple[Stamp, ...]:
    """Join the stamps of batches that are taken together, equal instants added up, at most `STAMPS_MAX`."""
    rows_at: dict[int, int] = {}
    for stamps in groups:
        for stamp in stamps:
            rows_at[stamp.born_us] = rows_at.get(stamp.born_us, 0) + stamp.rows
    every = -(-len(rows_at) // STAMPS_MAX) or 1
    return tuple(Stamp(born, rows_at[born]) for born in sorted(rows_at)[::every])


def share_stamps(stamps: Sequence[Stamp], rows: int, of_rows: int) -> tuple[Stamp, ...]:
    """Return the stamps for a part of a batch: each in proportion, rounded up so that a sample never vanishes."""
    if rows == of_rows:
        return tuple(stamps)
    return tuple(Stamp(stamp.born_us, -(-stamp.rows * rows // of_rows)) for stamp in stamps)
