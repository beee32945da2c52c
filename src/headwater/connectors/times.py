"""Times with and without a zone: one rule for every reader and writer (docs/times.md tells it to users).

A time with `Z` or an offset is an instant: its column has a zone, UTC where it was read from text. A time without is
taken as it stands, in a column without a zone. Where both meet, and where a column of instants was declared, a time
without a zone counts as UTC. An instant is never brought to a column without a zone: which wall clock was meant would
be lost, so that is refused. The zone of this machine has no say in anything.

Arrow's JSON reader drops zones, and its readers differ in what they take; so all read times as text, and it is cast
here, which is faster than what the readers do themselves.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

UTC: Final = "UTC"
UNITS: Final = ("s", "ms", "us", "ns")

_ZONE: Final = r"(?:Z|[+-]\d\d(?::?\d\d)?)"
_TIME: Final = r"\d{4}-\d\d-\d\d(?:[ T]\d\d(?::\d\d(?::\d\d(?:\.\d{1,9})?)?)?" + _ZONE + r"?)?"
_HAS_ZONE: Final = r"^.{11,}" + _ZONE + "$"  # the day takes 10, and ends like an offset
_IS_TIME: Final = re.compile(_TIME, re.ASCII)
_INSTANT: Final = re.compile(_HAS_ZONE, re.ASCII)

_Leaf = Callable[[pa.DataType], pa.DataType]


def as_texts(kind: pa.DataType) -> pa.DataType:
    """Return the type with text where it has times, also inside of structs and lists."""
    return with_leaves(kind, lambda leaf: pa.string() if pa.types.is_timestamp(leaf) else leaf)


def has_times(kind: pa.DataType) -> bool:
    """Whether it is a timestamp, or has one inside."""
    return not as_texts(kind).equals(kind)


def may_lack_zone(kind: pa.DataType) -> bool:
    """Whether it is a time without a zone or a day, or has one inside."""
    if pa.types.is_timestamp(kind):
        return kind.tz is None
    return pa.types.is_date(kind) or any(may_lack_zone(kind.field(at).type) for at in range(kind.num_fields))


def with_utc(kind: pa.DataType) -> pa.DataType:
    """Return the type with all instants in UTC."""
    return with_leaves(kind, lambda leaf: leaf if _zone(leaf) is None else pa.timestamp(leaf.unit, UTC))


def in_utc(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with all instants in UTC."""
    schema = pa.schema([field.with_type(with_utc(field.type)) for field in batch.schema])
    return batch if schema.equals(batch.schema) else batch.cast(schema)


def in_one_zone(batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return the batches with each column of times in one type, if some have a zone for it and others have not."""
    batches = list(batches)
    kinds: dict[str, pa.DataType] = {}
    for field in (field for batch in batches for field in batch.schema):
        wider = wider_time(kinds.get(field.name, field.type), field.type)
        kinds[field.name] = field.type if wider is None else wider
    return [_cast_times(batch, kinds) for batch in batches]


def _cast_times(batch: pa.RecordBatch, kinds: Mapping[str, pa.DataType]) -> pa.RecordBatch:
    fields = [
        field.with_type(kinds[field.name]) if wider_time(field.type, kinds[field.name]) is not None else field
        for field in batch.schema
    ]
    schema = pa.schema(fields)
    return batch if schema.equals(batch.schema) else batch.cast(schema)


def with_leaves(kind: pa.DataType, changed: _Leaf) -> pa.DataType:
    """Return the type with each type that holds no other replaced."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(with_leaves(field.type, changed)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(with_leaves(kind.key_type, changed), with_leaves(kind.item_type, changed))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(with_leaves(kind.value_type, changed)), kind.list_size)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(with_leaves(kind.value_type, changed)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(with_leaves(kind.value_type, changed)))
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, with_leaves(kind.value_type, changed), kind.ordered)
    return changed(kind)


def _zone(kind: pa.DataType) -> str | None:
    return kind.tz if pa.types.is_timestamp(kind) else None


def loses_zone(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether instants of one type would become times without a zone in the other."""
    if pa.types.is_timestamp(wanted):
        inner = kind.value_type if pa.types.is_dictionary(kind) else kind
        return wanted.tz is None and _zone(inner) is not None
    if pa.types.is_dictionary(kind) and pa.types.is_dictionary(wanted):
        return loses_zone(kind.value_type, wanted.value_type)
    if pa.types.is_struct(kind) and pa.types.is_struct(wanted):
        names = {field.name for field in kind}
        return any(loses_zone(kind.field(field.name).type, field.type) for field in wanted if field.name in names)
    if kind.num_fields == wanted.num_fields and pa.types.is_nested(kind) and pa.types.is_nested(wanted):
        return any(loses_zone(kind.field(at).type, wanted.field(at).type) for at in range(kind.num_fields))
    return False


def zone_lost(kind: pa.DataType) -> str:
    """Return the words for instants where times without a zone are declared."""
    return f"holds instants ({kind}), and the declared type would lose their zone; declare one with a zone"


def wider_time(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the narrowest type that holds the times of both; None if one is neither a timestamp nor a day."""
    stamps = [kind for kind in (one, other) if pa.types.is_timestamp(kind)]
    days = [kind for kind in (one, other) if pa.types.is_date(kind)]
    if not stamps or len(stamps) + len(days) < 2:
        return None
    zones = {stamp.tz for stamp in stamps} - {None}
    zone = zones.pop() if len(zones) == 1 else (UTC if zones else None)
    return pa.timestamp(max((stamp.unit for stamp in stamps), key=UNITS.index), zone)


def with_times(found: pa.Table, wanted: pa.Schema) -> pa.Table:
    """Return a table that was read with texts for times in the types wanted of it.

    A column, or a field of a struct, of which nothing is said becomes one of times if all its texts are some. Raises
    ArrowInvalid where a text is not the time that it should be.
    """
    columns, fields = [], []
    for at, name in enumerate(found.column_names):
        named = wanted.field(name) if name in wanted.names else None
        column = _timed(_whole(found.column(at)), None if named is None else named.type)
        columns.append(column)
        fields.append(_field(named, name, column.type))
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _field(wanted: pa.Field | None, name: str, kind: pa.DataType) -> pa.Field:
    return wanted if wanted is not None and wanted.type.equals(kind) else pa.field(name, kind)


def _timed(found: pa.Array, wanted: pa.DataType | None) -> pa.Array:
    kind = found.type
    if wanted is not None and kind.equals(wanted):
        return found
    if pa.types.is_struct(kind) and kind.num_fields:
        return _timed_struct(found, wanted)
    if pa.types.is_list(kind):
        values = _timed(found.values, None if wanted is None else wanted.value_type)
        return pa.ListArray.from_arrays(found.offsets, values, mask=found.is_null())
    if wanted is not None:
        return times_of(found, wanted) if pa.types.is_timestamp(wanted) else found
    return _as_shown(found) if pa.types.is_string(kind) else found


def _timed_struct(found: pa.StructArray, wanted: pa.StructType | None) -> pa.StructArray:
    known = {} if wanted is None else {field.name: field for field in wanted}
    inner, fields = [], []
    for at, name in enumerate(field.name for field in found.type):
        named = known.get(name)
        values = _timed(found.field(at), None if named is None else named.type)
        inner.append(values)
        fields.append(_field(named, name, values.type))
    return pa.StructArray.from_arrays(inner, fields=fields, mask=found.is_null())


def times_of(texts: pa.Array, wanted: pa.TimestampType) -> pa.Array:
    """Return the times that are written there; raise ArrowInvalid if one is none, or would lose its zone."""
    try:
        return texts.cast(wanted)
    except pa.ArrowInvalid:
        if wanted.tz is None:
            raise
    has_zone = pc.match_substring_regex(texts, _HAS_ZONE)
    instants = pc.if_else(has_zone, texts, None).cast(wanted)
    others = pc.if_else(has_zone, None, texts).cast(pa.timestamp(wanted.unit)).cast(wanted)
    return pc.coalesce(instants, others)


def _as_shown(texts: pa.Array) -> pa.Array:
    """Return the times that the texts are, in the coarsest unit that has all their digits; or the texts."""
    if not _are_times(texts):
        return texts
    zone = UTC if pc.any(pc.match_substring_regex(texts, _HAS_ZONE)).as_py() else None
    for unit in UNITS:
        try:
            return times_of(texts, pa.timestamp(unit, zone))
        except pa.ArrowInvalid:  # more digits than this unit has, or no such day
            continue
    return texts


def _are_times(texts: pa.Array) -> bool:
    """Whether all look like it; a column of other texts is told by its first one."""
    first = next((text for text in texts if text.is_valid), None)
    if first is None or _IS_TIME.fullmatch(first.as_py()) is None:
        return False
    return bool(pc.all(pc.match_substring_regex(texts, f"^{_TIME}$")).as_py())


def has_zone(text: str) -> bool:
    """Whether a text is an instant."""
    return _IS_TIME.fullmatch(text) is not None and _INSTANT.match(text) is not None


def shown_by(kind: pa.DataType, values: Iterable[Any]) -> pa.DataType:
    """Return the type with a zone where it has none and one of the Python values has; Arrow goes by the first value."""
    if pa.types.is_timestamp(kind) and kind.tz is None:
        return pa.timestamp(kind.unit, UTC) if any(_has_zone(value) for value in values) else kind
    if pa.types.is_date(kind):
        moments = [value for value in values if isinstance(value, datetime)]
        return shown_by(pa.timestamp("us"), moments) if moments else kind
    if pa.types.is_struct(kind):
        rows = [value for value in values if isinstance(value, dict)]
        return pa.struct(
            [field.with_type(shown_by(field.type, [row.get(field.name) for row in rows])) for field in kind]
        )
    if pa.types.is_list(kind):
        items = (item for value in values if isinstance(value, list | tuple) for item in value)
        return pa.list_(kind.value_field.with_type(shown_by(kind.value_type, items)))
    return kind


def _has_zone(value: Any) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None


def as_moment(value: Any) -> Any:
    """Return a day as the instant it begins at, and anything else as it is."""
    is_day = isinstance(value, date) and not isinstance(value, datetime)
    return datetime(value.year, value.month, value.day) if is_day else value  # noqa: DTZ001 - it has no zone
