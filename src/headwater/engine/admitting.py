"""Rows that another node has sent, looked at before they are kept: whoever reads a queue believes what lies there.

Arrow looks for nothing when it reads a batch: offsets that point anywhere are followed, in this process, and a few
bytes unpack to gigabytes. A batch that cannot be read at all would stop a worker with every attempt, or the pump of all
sinks. What is looked at is the form: that all of a batch lies within its bytes, and that it has the columns and the
rows it says. What the rows mean is not: a text that is no UTF-8, or a time beyond midnight, is its flow's business.
"""

import struct
from collections.abc import Callable
from typing import Final

import pyarrow as pa

from headwater.engine.schemas import KnownSchema
from headwater.model.batch import Entry, decode_batch
from headwater.model.errors import StoreError

STAMP_ROWS_MAX: Final = 1 << 32  # sums of them are written in 64 bits
SCHEMAS_MAX: Final = 1_000  # whose form is remembered
_DAMAGED: Final = (pa.ArrowException, OSError, EOFError, StopIteration, struct.error, IndexError, OverflowError)

# Of Arrow's flatbuffers: which field of a table is meant.
_HEADER: Final = 2  # of a message
_COMPRESSION: Final = 3  # of a record batch
_ROWS_OF_DICTIONARY: Final = 1  # of a dictionary batch: a record batch


class Admitting:
    """Looks at the rows of other nodes."""

    def __init__(self) -> None:
        """Know no schemas."""
        self._forms: dict[int, pa.Schema] = {}

    def check(self, entry: Entry, known: KnownSchema) -> None:
        """Raise StoreError unless an entry's batch is one of this schema, whole, and of as many rows as it says."""
        if entry.enqueued_us < 0 or any(not 0 <= stamp.rows < STAMP_ROWS_MAX for stamp in entry.stamps):
            raise StoreError("an entry is of a time or of rows that there cannot be")
        try:
            batch = self._read(entry.payload, known)
            batch.validate(full=True)
        except _DAMAGED as damage:
            raise StoreError(f"a batch of {len(entry.payload)} bytes is damaged: {damage}") from damage
        if batch.num_rows != entry.rows:
            raise StoreError(f"a batch said to have {entry.rows} rows has {batch.num_rows}")

    def _read(self, payload: bytes | memoryview, known: KnownSchema) -> pa.RecordBatch:
        if not known.whole:
            message = pa.ipc.read_message(pa.py_buffer(payload))
            _refuse_compressed(message)
            return pa.ipc.read_record_batch(message, self._form_of(known))
        for one in pa.ipc.MessageReader.open_stream(pa.py_buffer(payload)):
            if one.type != "schema":
                _refuse_compressed(one)
        batch = decode_batch(payload, known.schema, whole=True)
        if not batch.schema.equals(known.schema, check_metadata=True):
            raise pa.ArrowInvalid("it has another schema than it says")
        return pa.RecordBatch.from_arrays([_in_form(column) for column in batch.columns], names=batch.schema.names)

    def _form_of(self, known: KnownSchema) -> pa.Schema:
        form = self._forms.get(known.identity)
        if form is None:
            if len(self._forms) >= SCHEMAS_MAX:
                self._forms.clear()
            fields = [pa.field(field.name, form_of(field.type), field.nullable) for field in known.schema]
            form = self._forms[known.identity] = pa.schema(fields)
        return form


def _in_form(column: pa.Array) -> pa.Array:
    """Return what lies in a column as of another type, but for what is nested: there is no way but reading it so."""
    column.validate()
    if column.type.id in _PLAIN or pa.types.is_decimal(column.type):
        return column.view(form_of(column.type))
    if pa.types.is_dictionary(column.type):
        return pa.DictionaryArray.from_arrays(column.indices, _in_form(column.dictionary), safe=False)
    return column


def form_of(kind: pa.DataType) -> pa.DataType:
    """Return a type that lies in memory as this one does, and of which every value is a good one."""
    if (plain := _PLAIN.get(kind.id)) is not None:
        return plain
    if pa.types.is_decimal(kind):
        return pa.binary(kind.byte_width)
    nested = _NESTED.get(kind.id)
    return kind if nested is None else nested(kind)


_PLAIN: Final = {
    like.id: plain
    for like, plain in (
        (pa.string(), pa.binary()),
        (pa.large_string(), pa.large_binary()),
        (pa.string_view(), pa.binary_view()),
        (pa.date64(), pa.int64()),
        (pa.time32("s"), pa.int32()),
        (pa.time64("us"), pa.int64()),
    )
}


def _field_of(field: pa.Field) -> pa.Field:
    return pa.field(field.name, form_of(field.type), field.nullable)


_NESTED: Final[dict[int, Callable[[pa.DataType], pa.DataType]]] = {
    pa.list_(pa.null()).id: lambda kind: pa.list_(_field_of(kind.value_field)),
    pa.large_list(pa.null()).id: lambda kind: pa.large_list(_field_of(kind.value_field)),
    pa.list_(pa.null(), 1).id: lambda kind: pa.list_(_field_of(kind.value_field), kind.list_size),
    pa.struct([]).id: lambda kind: pa.struct([_field_of(kind.field(place)) for place in range(kind.num_fields)]),
    pa.map_(pa.int8(), pa.int8()).id: lambda kind: pa.map_(
        _field_of(kind.key_field), _field_of(kind.item_field), keys_sorted=kind.keys_sorted
    ),
}


def _refuse_compressed(message: pa.Message) -> None:
    """Refuse what Arrow would unpack: we compress messages and not what is in them, and they say how long they are."""
    metadata = message.metadata.to_pybytes()
    header = _table_in(metadata, _root_of(metadata), _HEADER)
    rows = _table_in(metadata, header, _ROWS_OF_DICTIONARY) if message.type == "dictionary" else header
    if _place_of(metadata, rows, _COMPRESSION) is not None:
        raise pa.ArrowInvalid("it is compressed by itself")


def _root_of(metadata: bytes) -> int:
    return int.from_bytes(metadata[:4], "little")


def _place_of(metadata: bytes, table: int, field: int) -> int | None:
    """Return where a field of a table is; None if it is left out."""
    (back,) = struct.unpack_from("<i", metadata, table)
    layout = table - back
    (size,) = struct.unpack_from("<H", metadata, layout)
    at = 4 + 2 * field
    (offset,) = struct.unpack_from("<H", metadata, layout + at) if at < size else (0,)
    return table + offset if offset else None


def _table_in(metadata: bytes, table: int, field: int) -> int:
    place = _place_of(metadata, table, field)
    if place is None:
        raise pa.ArrowInvalid("a message without its content")
    (offset,) = struct.unpack_from("<I", metadata, place)
    return place + int(offset)
