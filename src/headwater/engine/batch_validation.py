"""Validates rows of other nodes before they are stored, since readers of a queue trust what is in it.

Arrow validates nothing when it reads a batch: it follows offsets that point anywhere, in this process, and a few bytes
can unpack to gigabytes. How much a batch claims to hold is counted before (`engine/measuring.py`). A batch that cannot
be read would stop a worker with every attempt, or the pump of all sinks. Validation is about form: all of a batch lies
within its bytes, and it has the columns and rows that it claims. The meaning is left to the flow: a text that is not
UTF-8, or a time beyond midnight, is no error here.
"""

import struct
from collections.abc import Callable
from typing import Final

import pyarrow as pa

from headwater.engine.measuring import check_rows, check_whole
from headwater.engine.schemas import SCHEMAS_BYTES_MAX, KnownSchema
from headwater.engine.unfolding import folds, unfolded_bytes
from headwater.model.batch import STAMPS_MAX, Entry, decode_batch
from headwater.model.errors import StoreError

STAMP_ROWS_MAX: Final = 1 << 32  # sums of them are written in 64 bits
INSTANT_MAX: Final = 1 << 62  # of a clock, in microseconds; differences must also fit in 64 bits
UNFOLDED_BYTES_MAX: Final = 256 << 20  # of one batch if every row has its own copy of its values, as in Python
SCHEMAS_MAX: Final = 1_000  # whose storage form is cached
_DAMAGED: Final = (
    *(pa.ArrowException, OSError, EOFError, StopIteration, struct.error, IndexError, OverflowError),
    ValueError,  # numpy's, of a buffer that is shorter than what is said to be in it
)


class Admitting:
    """Validates rows, with a cache of schemas."""

    def __init__(self) -> None:
        self._forms: dict[int, pa.Schema] = {}
        self._folds: dict[int, bool] = {}  # whether rows of a schema can share values
        self._bytes = 0  # the stored size of these schemas

    def check(self, entry: Entry, known: KnownSchema) -> None:
        """Raise StoreError unless an entry's batch is complete, of this schema and of the claimed number of rows."""
        check_header(entry)
        try:
            batch = self._read(entry.payload, known)
            batch.validate(full=True)
            unfolded = sum(map(unfolded_bytes, batch.columns)) if self._folds[known.identity] else 0
        except _DAMAGED as damage:
            raise StoreError(f"a batch of {len(entry.payload)} bytes is damaged: {damage}") from damage
        if unfolded > UNFOLDED_BYTES_MAX:
            raise StoreError(
                f"a batch of {len(entry.payload)} bytes has {unfolded} when each row has its value to itself"
            )
        if batch.num_rows != entry.rows:
            raise StoreError(f"a batch said to have {entry.rows} rows has {batch.num_rows}")

    def _read(self, payload: bytes | memoryview, known: KnownSchema) -> pa.RecordBatch:
        form = self._form_of(known)
        if not known.whole:
            check_rows(payload)
            return pa.ipc.read_record_batch(pa.py_buffer(payload), form)
        check_whole(payload)
        batch = decode_batch(payload, known.schema, whole=True)
        if not batch.schema.equals(known.schema, check_metadata=True):
            raise pa.ArrowInvalid("it has another schema than it says")
        return pa.RecordBatch.from_arrays([_in_form(column) for column in batch.columns], names=batch.schema.names)

    def _form_of(self, known: KnownSchema) -> pa.Schema:
        form = self._forms.get(known.identity)
        if form is None:
            self._bytes += known.size_bytes
            if len(self._forms) >= SCHEMAS_MAX or self._bytes > SCHEMAS_BYTES_MAX:
                self._forms.clear()
                self._folds.clear()
                self._bytes = known.size_bytes
            self._folds[known.identity] = any(folds(field.type) for field in known.schema)
            fields = [pa.field(field.name, form_of(field.type), field.nullable) for field in known.schema]
            form = self._forms[known.identity] = pa.schema(fields)
        return form


def check_header(entry: Entry) -> None:
    """Raise StoreError unless an entry's header is possible; an entry without rows must be a mark alone."""
    if not 0 <= entry.enqueued_us < INSTANT_MAX or len(entry.stamps) > STAMPS_MAX:
        raise StoreError("an entry is of a time that there cannot be, or of too many samples")
    for stamp in entry.stamps:
        if not 0 <= stamp.rows < STAMP_ROWS_MAX or not 0 <= stamp.born_us < INSTANT_MAX:
            raise StoreError("an entry has a sample of a time or of rows that there cannot be")
    if not entry.rows and (entry.payload or entry.stamps):
        raise StoreError("an entry without rows holds something all the same")


def _in_form(column: pa.Array) -> pa.Array:
    """Return a column as its storage form; nested types cannot be viewed so, and are read as that form instead."""
    column.validate()
    if column.type.id in _PLAIN or pa.types.is_decimal(column.type):
        return column.view(form_of(column.type))
    if pa.types.is_dictionary(column.type):
        return pa.DictionaryArray.from_arrays(column.indices, _in_form(column.dictionary), safe=False)
    return column


def form_of(kind: pa.DataType) -> pa.DataType:
    """Return the type with the same memory layout of which every value is valid."""
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
