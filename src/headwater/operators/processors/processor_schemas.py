"""The schemas under which a processor's variables were kept, and reading what was kept under an earlier one.

Every stored row begins with a tag, made of the schema that it was written by. The schemas themselves lie beside the
rows, each under its tag, as something that belongs to all keys: wherever a key goes, they go along, and those of two
instances never meet in one entry unless they are the same. A variable is declared anew by every version of a
processor; if all that may be there can be read as what is declared now, it is read so, row by row as it is asked for,
else the version is refused (`schema_evolution`). This is what Spark does with Avro encoding.

A row without a tag is of a store that was last written before there were any. It has the schema under which its
variable was first declared since.
"""

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any, Final

import msgspec
import pyarrow as pa

from headwater.model.decoding import UNDECODABLE
from headwater.model.entries import shared_entry
from headwater.model.errors import FlowError, StoreError
from headwater.operators.processors.processor_entries import CallEntries, place_of
from headwater.operators.processors.schema_evolution import Unreadable, row_change
from headwater.operators.processors.spark_types import arrow_schema, ddl_of, spark_type
from headwater.operators.processors.spark_values import RowCodec

EVOLUTIONS_MAX: Final = 16  # of one variable, as in Spark: the schema of each is kept for ever

_TAGGED: Final = b"\xd6"  # never the first byte of a row in msgpack: a tag follows
_TAG_BYTES: Final = 4
_ROW_AT: Final = len(_TAGGED) + _TAG_BYTES
_FIRST: Final = "first"


class Declared(msgspec.Struct, frozen=True, array_like=True):
    """How a variable was declared."""

    kind: str  # Value, List or Map
    value: str  # its schema, as DDL
    key: str = ""  # of a map: the schema of its keys

    def __str__(self) -> str:
        """Write it as people read it."""
        return f"{self.kind}({self.key} -> {self.value})" if self.key else f"{self.kind}({self.value})"


class DeclaredVariables(msgspec.Struct, frozen=True):
    """What a processor declares in `init`."""

    by_name: dict[str, Declared]
    forgotten: tuple[str, ...] = ()  # what it has deleted, perhaps to declare it anew
    ttl_ms: dict[str, int] = {}  # of those that have a time to live


def declared(kind: str, value: pa.Schema, key: pa.Schema | None = None) -> Declared:
    """Return a declaration as it is kept."""
    return Declared(kind, ddl_of(value), "" if key is None else ddl_of(key))


def why_unreadable(name: str, older: Declared, newer: Declared) -> str | None:
    """Return why what was kept under one declaration cannot be read under another; None if it can."""
    if older == newer:
        return None
    if older.kind != newer.kind:
        return (
            f"[STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE] state {name!r} was a {older.kind}State and cannot become a "
            f"{newer.kind}State; declare it as it was, or give the new one another name"
        )
    try:
        _refuse_other_keys(older, newer)
    except Unreadable as why:
        return (
            f"[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] the keys of state {name!r} were kept as ({older.key}) and cannot "
            f"be found as ({newer.key}): {why}; give the new map another name"
        )
    try:
        row_change(_schema(older.value), _schema(newer.value))
    except Unreadable as why:
        return (
            f"[STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION] Schema evolution is not possible: state {name!r} was kept "
            f"as ({older.value}) and cannot be read as ({newer.value}): {why}; declare it so that it can, or give "
            "the new one another name"
        )
    return None


def _refuse_other_keys(older: Declared, newer: Declared) -> None:
    """Raise Unreadable unless a key has the same bytes as before: of the same types, under whatever names."""
    before, now = _schema(older.key), _schema(newer.key)
    if len(before) != len(now):
        raise Unreadable(f"there were {len(before)} fields and would be {len(now)}")
    for one, other in zip(before, now, strict=True):
        if _nameless(one.type) != _nameless(other.type):
            raise Unreadable(f"field {other.name!r} was {spark_type(one.type)} and would be {spark_type(other.type)}")


def _nameless(kind: pa.DataType) -> pa.DataType:
    """Return a type without the names of its fields."""
    if pa.types.is_struct(kind):
        return pa.struct([(str(place), _nameless(field.type)) for place, field in enumerate(kind)])
    if pa.types.is_map(kind):
        return pa.map_(_nameless(kind.key_type), _nameless(kind.item_type))
    return pa.list_(_nameless(kind.value_type)) if pa.types.is_list(kind) else kind


def _schema(text: str) -> pa.Schema:
    try:
        return arrow_schema(text) if text else pa.schema([])
    except FlowError as damage:
        raise StoreError(f"the schema of a state variable cannot be read: {damage}") from damage


class StoredRows:
    """The rows of one variable as they lie in the store."""

    def __init__(self, kind: str, name: str, value: pa.Schema, key: pa.Schema | None = None) -> None:
        """Write rows of this schema, and read rows of all before it."""
        self._codec = RowCodec(value, f"state {name!r}")
        self.declared = declared(kind, value, key)
        self._name = name
        self._about = schemas_of(name)
        self._tag = _tag_of(self.declared)
        self._head = _TAGGED + self._tag
        self.schema_entry = _entry(self._about, self._tag.hex())  # where `keep_schema` keeps it
        self._readers: dict[bytes, Callable[[bytes], tuple[Any, ...]]] = {}

    def encode(self, values: Iterable[Any]) -> bytes:
        """Return the bytes of a row."""
        return self._head + self._codec.encode(values)

    def decode(self, desk: CallEntries, stored: bytes) -> tuple[Any, ...]:
        """Return the row that has these bytes."""
        if stored.startswith(self._head):
            return self._codec.decode(stored[_ROW_AT:])
        if not stored.startswith(_TAGGED):
            return self._reader(desk, desk.read(_entry(self._about, _FIRST)) or self._tag)(stored)
        return self._reader(desk, stored[len(_TAGGED) : _ROW_AT])(stored[_ROW_AT:])

    def decode_row(self, desk: CallEntries, stored: bytes) -> Any:
        """Return the row that has these bytes, with names to its fields."""
        return self._codec.named(self.decode(desk, stored))

    def keep_schema(self, desk: CallEntries) -> None:
        """See to it that whoever finds rows of ours finds their schema, too: in the same commit, or an earlier one."""
        if desk.read(self.schema_entry) is not None:
            return
        desk.put(self.schema_entry, msgspec.msgpack.encode(self.declared))
        first = _entry(self._about, _FIRST)
        if desk.read(first) is None:
            desk.put(first, self._tag)

    def refuse_unreadable(self, desk: CallEntries) -> None:
        """Raise unless all that may be kept can be read."""
        for name, kept in desk.shared_under(self._about):
            why = None if name == _FIRST else why_unreadable(self._name, _declared_in(kept), self.declared)
            if why is not None:
                raise StoreError(why)

    def _reader(self, desk: CallEntries, tag: bytes) -> Callable[[bytes], tuple[Any, ...]]:
        reader = self._readers.get(tag)
        if reader is None:
            reader = self._readers[tag] = self._codec.decode if tag == self._tag else self._reader_of_older(desk, tag)
        return reader

    def _reader_of_older(self, desk: CallEntries, tag: bytes) -> Callable[[bytes], tuple[Any, ...]]:
        kept = desk.read(_entry(self._about, tag.hex()))
        if kept is None:
            raise StoreError(f"state {self._name!r} has a row of a schema that the store lacks")
        older = _declared_in(kept)
        why = why_unreadable(self._name, older, self.declared)
        if why is not None:
            raise StoreError(why)
        change = row_change(_schema(older.value), self._codec.schema)
        return lambda encoded: self._codec.decode(encoded, change)


def schemas_of(name: str) -> str:
    """Return what the names begin with under which the schemas of a variable lie."""
    return f"variable {place_of(name):016x} "


def _entry(about: str, which: str) -> bytes:
    return shared_entry(about + which)


def _tag_of(one: Declared) -> bytes:
    return blake2b(msgspec.msgpack.encode(one), digest_size=_TAG_BYTES).digest()


def _declared_in(kept: bytes) -> Declared:
    try:
        return msgspec.msgpack.decode(kept, type=Declared)
    except UNDECODABLE as damage:
        raise StoreError(f"the schema of a state variable is damaged: {damage}") from damage
