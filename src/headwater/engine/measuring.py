"""Bounds how much an Arrow message of another node can hold, by its flatbuffers, before Arrow reads it.

A few bytes can claim to hold a lot. A column of nulls has as many rows as its length says, without a byte for each; so
do lists of them, values without width, and runs. Buffers may share bytes, and compressed ones unpack to any size. In a
schema anything may be referred to more than once: a kilobyte of fields that share their children is a tree of any size.
So rows and values are bounded by the bytes of the message, and shared bytes count each time.

It walks the tables as Arrow will find them (https://flatbuffers.dev/internals, Arrow's `Message.fbs`, `Schema.fbs`).
Arrow verifies that offsets are valid; a wrong one is read here as something else, or as nothing, and refused there.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from headwater.model.errors import StoreError

# Senders keep to half of these (`engine/entry_split.py`), so none of our own batches is refused.
ROWS_MAX: Final = 1 << 20  # of one batch
ROWS_FREE: Final = 4_096  # of one batch, however few bytes it has: what a source reads at a time
ROWS_PER_BYTE: Final = 16  # beyond that: a boolean takes a bit, and as much again is allowed for columns without bytes
VALUES_FREE: Final = 1 << 20  # of all columns and what is nested in them: some megabytes as Python objects
VALUES_PER_BYTE: Final = 64  # beyond that
SCHEMA_BYTES_MAX: Final = 2 << 20  # a message holds it beside a row of 12 MiB; 10,000 columns have some 1 MiB
MESSAGES_MAX: Final = 1_000  # of a batch that is encoded whole: its schema, a dictionary for each column, its rows

_SCHEMA: Final = 1  # kinds of messages
_DICTIONARY: Final = 2
_ROWS: Final = 3
_CONTINUED: Final = 0xFFFF_FFFF

# Field numbers of the tables.
_HEADER_KIND, _HEADER, _BODY_LENGTH, _MESSAGE_METADATA = 1, 2, 3, 4  # of a message
_LENGTH, _NODES, _BUFFERS, _COMPRESSION, _VARIADIC = 0, 1, 2, 3, 4  # of a record batch
_DATA: Final = 1  # of a dictionary: a record batch
_FIELDS, _SCHEMA_METADATA = 1, 2  # of a schema
_NAME, _TYPE_KIND, _TYPE, _DICTIONARY_OF, _CHILDREN, _FIELD_METADATA = 0, 2, 3, 4, 5, 6  # of a field
_VECTOR_OF_TYPE: Final = {10: (1, 1), 14: (1, 4)}  # by kind: a time zone, of bytes; the codes of a union, of four each

_TABLE_BYTES: Final = 4  # the smallest table
_FIELDS_MAX: Final = 16  # of a table that are looked at: none of Arrow's has more than eight
_NESTED_MAX: Final = 64  # types within types, as Arrow allows


class _Table:
    """A flatbuffer table: its place, and the offsets of its fields (0: absent)."""

    __slots__ = ("_at", "_fields", "view")

    def __init__(self, view: memoryview, at: int) -> None:
        self.view, self._at = view, at
        layout = at - _I32(view, at)[0]
        self._fields = _layout_of(_U16(view, layout)[0])(view, layout + 4)

    def place(self, field: int) -> int | None:
        """Return the place of a field; None if it is absent."""
        offset = self._fields[field] if field < len(self._fields) else 0
        return self._at + offset if offset else None

    def byte(self, field: int) -> int:
        place = self.place(field)
        return 0 if place is None else self.view[place]

    def long(self, field: int) -> int:
        place = self.place(field)
        return 0 if place is None else int(_I64(self.view, place)[0])

    def table(self, field: int) -> "_Table | None":
        place = self.place(field)
        return None if place is None else _referred(self.view, place)

    def vector(self, field: int) -> tuple[int, int]:
        """Return the place and the number of a vector's items."""
        place = self.place(field)
        if place is None:
            return 0, 0
        at = place + _U32(self.view, place)[0]
        return at + 4, _U32(self.view, at)[0]

    def longs(self, field: int, each: int) -> tuple[int, ...]:
        """Return the numbers in a vector whose items have `each` of them."""
        begin, count = self.vector(field)
        if 8 * each * count > len(self.view):
            raise StoreError(f"{count} items of Arrow's are said to be in {len(self.view)} bytes")
        return struct.unpack_from(f"<{each * count}q", self.view, begin)


_U16: Final = struct.Struct("<H").unpack_from
_U32: Final = struct.Struct("<I").unpack_from
_I32: Final = struct.Struct("<i").unpack_from
_I64: Final = struct.Struct("<q").unpack_from
_PREFIX: Final = struct.Struct("<Ii").unpack_from
_LAYOUTS: Final = [struct.Struct(f"<{fields}H").unpack_from for fields in range(_FIELDS_MAX + 1)]


def _layout_of(size: int) -> Callable[[memoryview, int], tuple[int, ...]]:
    """Return the function that reads a table's field offsets, for the size of its layout."""
    return _LAYOUTS[min(_FIELDS_MAX, max(0, size - 4) // 2)]


class MeasuredMessage(NamedTuple):
    """One message of a stream."""

    kind: int
    metadata: memoryview
    header: _Table  # the description of the body
    body_bytes: int


def messages_in(encoded: bytes | memoryview) -> Iterator[MeasuredMessage]:
    """Iterate over the messages of a stream; raises StoreError at an invalid one."""
    view, at = memoryview(encoded), 0
    for _ in range(MESSAGES_MAX):
        if at == len(view):
            return
        continued, size = _PREFIX(view, at)
        if continued != _CONTINUED:
            raise StoreError("what should be a message of Arrow's begins as none does")
        if size == 0:  # the end of a stream
            return
        begin = at + 8
        if not 0 < size <= len(view) - begin:
            raise StoreError(f"a message of Arrow's says that it has {size} bytes of {len(view) - begin}")
        message = _message(view[begin : begin + size])
        at = begin + size + message.body_bytes
        if not begin + size <= at <= len(view):
            raise StoreError(f"a message of Arrow's says that it holds {message.body_bytes} bytes")
        yield message
    raise StoreError(f"a batch of more than {MESSAGES_MAX} messages")


def _message(metadata: memoryview) -> MeasuredMessage:
    table = _referred(metadata, 0)
    header = table.table(_HEADER)
    if header is None or table.place(_MESSAGE_METADATA) is not None:
        raise StoreError("a message of Arrow's has no content, or more beside it")
    return MeasuredMessage(table.byte(_HEADER_KIND), metadata, header, table.long(_BODY_LENGTH))


def _referred(view: memoryview, place: int) -> _Table:
    return _Table(view, place + _U32(view, place)[0])


# --- rows -------------------------------------------------------------------------------------------------------------


def check_rows(encoded: bytes | memoryview) -> None:
    """Raise StoreError unless this is one batch without its schema, and claims no more than its bytes can hold."""
    try:
        kinds = [_check_batch(message) for message in messages_in(encoded)]
    except (struct.error, IndexError, OverflowError) as damage:
        raise StoreError(f"a batch of {len(encoded)} bytes is damaged: {damage}") from damage
    if kinds != [_ROWS]:
        raise StoreError(f"a batch of {len(encoded)} bytes is not one message of rows")


def check_whole(encoded: bytes | memoryview) -> None:
    """Raise StoreError unless this is a schema, dictionaries and one batch, none of more than its bytes can hold."""
    try:
        kinds = [
            check_schema_message(one) if one.kind == _SCHEMA else _check_batch(one) for one in messages_in(encoded)
        ]
    except (struct.error, IndexError, OverflowError) as damage:
        raise StoreError(f"a batch of {len(encoded)} bytes is damaged: {damage}") from damage
    if kinds[:1] != [_SCHEMA] or kinds[-1:] != [_ROWS] or set(kinds[1:-1]) - {_DICTIONARY}:
        raise StoreError(f"a batch of {len(encoded)} bytes is not a schema, dictionaries and rows")


def _check_batch(message: MeasuredMessage) -> int:
    batch = message.header.table(_DATA) if message.kind == _DICTIONARY else message.header
    if batch is None or message.kind not in (_DICTIONARY, _ROWS):
        raise StoreError("a message of Arrow's that holds no rows")
    if batch.place(_COMPRESSION) is not None:  # messages are compressed as a whole, with their size
        raise StoreError("a batch is compressed by itself")
    size, rows = message.body_bytes, batch.long(_LENGTH)
    lengths, buffers = batch.longs(_NODES, 2)[::2], batch.longs(_BUFFERS, 2)[1::2]
    if not 0 <= rows <= min(ROWS_MAX, ROWS_FREE + ROWS_PER_BYTE * size):
        raise StoreError(f"a batch says that it has {rows} rows, in {size} bytes")
    if min(lengths, default=0) < 0 or sum(lengths) > VALUES_FREE + VALUES_PER_BYTE * size:
        raise StoreError(f"a batch says that it has {sum(lengths)} values, in {size} bytes")
    if min(buffers, default=0) < 0 or sum(buffers) > size:
        raise StoreError(f"the buffers of a batch are said to have {sum(buffers)} bytes of {size}")
    if batch.place(_VARIADIC) is not None:
        variadic = batch.longs(_VARIADIC, 1)
        if min(variadic, default=0) < 0 or sum(variadic) > len(buffers):
            raise StoreError(f"a batch names {sum(variadic)} buffers of texts, and has {len(buffers)} of all kinds")
    return message.kind


# --- schemas ----------------------------------------------------------------------------------------------------------


def check_schema(encoded: bytes | memoryview) -> None:
    """Raise StoreError unless this is a schema that claims no more than its bytes can hold."""
    try:
        kinds = [check_schema_message(message) for message in messages_in(encoded)]
    except (struct.error, IndexError, OverflowError) as damage:
        raise StoreError(f"a schema of {len(encoded)} bytes is damaged: {damage}") from damage
    if kinds != [_SCHEMA]:
        raise StoreError("what should be a schema is none")


def check_schema_message(message: MeasuredMessage) -> int:
    """Raise StoreError if a schema claims more than its bytes, as parts of it are then referred to twice."""
    if message.kind != _SCHEMA or len(message.metadata) > SCHEMA_BYTES_MAX:
        raise StoreError(f"what should be a schema is none, or has more than {SCHEMA_BYTES_MAX >> 20} MiB")
    _Budget(len(message.metadata)).spend_schema(message.header)
    return message.kind


class _Budget:
    """Counts the bytes of everything reachable in a schema, once per path to it."""

    def __init__(self, left: int) -> None:
        self._left = left

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise StoreError("a schema refers to the same bytes more than once")

    def spend_schema(self, schema: _Table) -> None:
        self._spend_metadata(schema, _SCHEMA_METADATA)
        self._spend_fields(schema, _FIELDS, 0)

    def _spend_fields(self, table: _Table, of: int, depth: int) -> None:
        begin, count = table.vector(of)
        if depth > _NESTED_MAX:
            raise StoreError(f"a schema with types in more than {_NESTED_MAX} others")
        self._spend(4 * count)
        for number in range(count):
            field = _referred(table.view, begin + 4 * number)
            self._spend(_TABLE_BYTES)
            self._spend_vector(field, _NAME, 1)
            self._spend_metadata(field, _FIELD_METADATA)
            kind = field.byte(_TYPE_KIND)
            if kind in _VECTOR_OF_TYPE and (type_ := field.table(_TYPE)) is not None:
                self._spend_vector(type_, *_VECTOR_OF_TYPE[kind])
            self._spend(_TABLE_BYTES * (1 + (field.place(_DICTIONARY_OF) is not None)))
            self._spend_fields(field, _CHILDREN, depth + 1)

    def _spend_metadata(self, table: _Table, of: int) -> None:
        begin, count = table.vector(of)
        self._spend(4 * count)
        for number in range(count):
            pair = _referred(table.view, begin + 4 * number)
            self._spend(_TABLE_BYTES)
            self._spend_vector(pair, 0, 1)
            self._spend_vector(pair, 1, 1)

    def _spend_vector(self, table: _Table, of: int, each: int) -> None:
        self._spend(each * table.vector(of)[1])
