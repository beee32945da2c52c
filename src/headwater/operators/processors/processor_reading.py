"""The state of a processor as tables, for people and programs that look at it from outside.

What Spark shows by its `statestore` source: for each key of the stream what a variable holds, and when it expires, if
it does. Nothing is changed, and what has outlived its time is shown until it is removed. Of a key that is too long for
the name of an entry a variable knows a hash only, so it is shown as null.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from zlib import crc32

import pyarrow as pa

from headwater.model.decoding import UNDECODABLE
from headwater.model.errors import StoreError
from headwater.model.keys import decode_key
from headwater.operators.processors.processor_entries import (
    LISTS,
    MAPS,
    TIMERS,
    VALUES,
    CallEntries,
    is_hashed,
    place_of,
    range_of,
)
from headwater.operators.processors.processor_maps import split_pair
from headwater.operators.processors.processor_rows import kept_key_schema
from headwater.operators.processors.processor_schemas import Declared, StoredRows
from headwater.operators.processors.processor_variables import NEVER, elements_of, expiry_of, span_at, without_expiry
from headwater.operators.processors.spark_types import arrow_schema
from headwater.operators.processors.spark_values import RowCodec
from headwater.operators.state import EntryByTime, OperatorState

_GROUP_AT: Final = 9  # behind the space and the time of an entry's name
_GROUP_BYTES: Final = 2


class _Found(NamedTuple):
    """One row of a table: which key of the stream it is of, and its columns."""

    part: bytes
    columns: dict[str, Any]


def variable_table(state: OperatorState, name: str, declared: Declared) -> pa.Table:
    """Return what a variable holds: a row for each value, each element of a list, or each pair of a map."""
    desk, values = CallEntries(state), arrow_schema(declared.value)
    keys = arrow_schema(declared.key) if declared.key else None
    rows = StoredRows(declared.kind, name, values, keys)
    fields = [("value", pa.struct(list(values))), ("expires_ms", pa.int64())]
    if declared.kind == "Value":
        return _table(desk, _values(desk, name, rows, values), fields)
    if declared.kind == "List":
        return _table(desk, _elements(desk, name, rows, values), [("position", pa.int64()), *fields])
    assert keys is not None, declared
    return _table(desk, _pairs(desk, name, rows, values, keys), [("map_key", pa.struct(list(keys))), *fields])


def timers_table(state: OperatorState) -> pa.Table:
    """Return the timers that are registered, the earliest first."""
    desk = CallEntries(state)
    found = (_Found(_part_of_timer(held), {"expiry_ms": held.time_us}) for held in state.held(TIMERS))
    return _table(desk, found, [("expiry_ms", pa.int64())])


def _part_of_timer(held: EntryByTime) -> bytes:
    """Return what names the key of a timer, which has one that is too long for a name in its value."""
    part = held.entry[_GROUP_AT:]
    return part[:_GROUP_BYTES] + held.value[1:] if is_hashed(part) else part


def _values(desk: CallEntries, name: str, rows: StoredRows, schema: pa.Schema) -> Iterator[_Found]:
    for held in _held(desk, VALUES, name):
        yield _Found(held.entry[_GROUP_AT:], _told(desk, rows, schema, held.value, without_expiry(held.value)))


def _elements(desk: CallEntries, name: str, rows: StoredRows, schema: pa.Schema) -> Iterator[_Found]:
    for held in _held(desk, LISTS, name):
        elements = elements_of(held.entry, span_at(desk, held.entry, held.value))
        stored = (one for one in desk.read_many(elements) if one is not None)
        for position, one in enumerate(stored):
            told = _told(desk, rows, schema, one, without_expiry(one))
            yield _Found(held.entry[_GROUP_AT:], {"position": position, **told})


def _pairs(desk: CallEntries, name: str, rows: StoredRows, schema: pa.Schema, keys: pa.Schema) -> Iterator[_Found]:
    codec, place = RowCodec(keys, f"a key of state {name!r}"), place_of(name)
    for held in _held(desk, MAPS, name):
        part, rest = _cut(held.entry[_GROUP_AT:], held.time_us - place)
        map_key, value = split_pair(rest, held.value)
        told = _told(desk, rows, schema, held.value, value)
        yield _Found(part, {"map_key": _fields(keys, codec.decode(map_key)), **told})


def _held(desk: CallEntries, space: int, name: str) -> Iterator[EntryByTime]:
    return desk.state.held(space, *range_of(place_of(name)))


def _cut(tail: bytes, checksum: int) -> tuple[bytes, bytes]:
    """Part what names a key of the stream from what names a pair of its map: the place of the entry tells the first."""
    for end in range(_GROUP_BYTES + 1, len(tail) + 1):
        if crc32(tail[:end]) == checksum:
            return tail[:end], tail[end:]
    raise StoreError("an entry of a map in the state is damaged: its name is of no key")


def _told(desk: CallEntries, rows: StoredRows, schema: pa.Schema, stored: bytes, row: bytes) -> dict[str, Any]:
    expiry_ms = expiry_of(stored)
    return {
        "value": _fields(schema, rows.decode(desk, row)),
        "expires_ms": None if expiry_ms == NEVER else expiry_ms,
    }


def _fields(schema: pa.Schema, values: tuple[Any, ...]) -> dict[str, Any]:
    return {field.name: _plain(value, field.type) for field, value in zip(schema, values, strict=True)}


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Return a value as Arrow takes it: rows within values as dicts, and maps as pairs."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _plain(one, field.type) for field, one in zip(kind, value, strict=True)}
    if pa.types.is_map(kind):
        return [(_plain(key, kind.key_type), _plain(one, kind.item_type)) for key, one in value.items()]
    return [_plain(one, kind.value_type) for one in value] if pa.types.is_list(kind) else value


def _table(desk: CallEntries, found: Iterator[_Found], fields: list[tuple[str, pa.DataType]]) -> pa.Table:
    keys = kept_key_schema(desk.state) or pa.schema([])
    rows = list(found)
    schema = pa.schema([("key", pa.struct(list(keys))), *fields])
    try:
        return pa.Table.from_pylist([{"key": _key(one.part, keys), **one.columns} for one in rows], schema=schema)
    except (pa.ArrowException, *UNDECODABLE, OverflowError, TypeError, ValueError) as damage:
        raise StoreError(f"the state of a processor is damaged: {damage}") from damage


def _key(part: bytes, keys: pa.Schema) -> dict[str, Any] | None:
    if is_hashed(part):
        return None
    key = decode_key(part[_GROUP_BYTES:])
    return dict(zip(keys.names, key if len(keys) > 1 else (key,), strict=True))
