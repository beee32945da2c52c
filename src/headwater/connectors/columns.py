"""The columns of a source, declared or inferred, and how inferred ones widen.

A declared schema is binding: data that differs is refused. Without one the first rows decide, and later rows may widen
a column, never narrow it: null to anything, whole numbers to fractions, a day to an instant, and, where everything is
written as text anyway (CSV), anything to a string. A column that first appears later is appended. Inferred columns are
part of the position, so that a restart keeps their types.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from headwater.connectors.frames import Frame, is_frame
from headwater.connectors.times import as_moment, loses_zone, may_lack_zone, shown_by, wider_time, zone_lost
from headwater.model.errors import SchemaMismatch
from headwater.model.quoting import brief, cause, listed, quoted


class KnownColumns:
    """The columns known so far, declared or inferred."""

    def __init__(self, declared: pa.Schema | None, learnt: bytes | None = None) -> None:
        """Start from the declaration, or from what an earlier run has inferred."""
        self.declared = declared is not None
        self.declaration = declared
        self.schema = declared
        self._encoded = None
        if declared is None and learnt is not None:
            self.schema = pa.ipc.read_schema(pa.py_buffer(learnt))
            self._encoded = learnt

    def learn(self, schema: pa.Schema) -> None:
        """Set the inferred columns; declared ones stay."""
        if not self.declared and (self.schema is None or not self.schema.equals(schema)):
            self.schema, self._encoded = schema, None

    def remembered(self) -> dict[str, bytes]:
        """Return the part of a position with the inferred columns; empty if the schema is declared."""
        if self.declared or self.schema is None:
            return {}
        if self._encoded is None:
            self._encoded = self.schema.serialize().to_pybytes()
        return {"schema": self._encoded}

    def fit(self, batch: pa.RecordBatch, where: str) -> pa.RecordBatch:
        """Return the batch in the known columns, widening them if they were not declared."""
        if self.schema is None:
            self.schema = batch.schema
        if batch.schema.equals(self.schema):
            return batch
        if self.declared:
            refuse_other_names(batch.schema.names, self.schema.names, where)
        else:
            self.learn(self._widened_by(batch.schema, where))
        return _cast(batch, self.schema, where)

    def _widened_by(self, schema: pa.Schema, where: str) -> pa.Schema:
        assert self.schema is not None
        wider = merged(self.schema, schema, text_takes_all=False)
        if wider is not None:
            return wider
        name = next(
            field.name for field in schema if merged(self.schema, pa.schema([field]), text_takes_all=False) is None
        )
        raise SchemaMismatch(
            f"{where}: column {quoted(name)} holds {brief(schema.field(name).type)} "
            f"but held {brief(self.schema.field(name).type)} before; "
            "make the values alike, or declare schema=... with the type they share"
        )


def merged(known: pa.Schema, seen: pa.Schema, *, text_takes_all: bool) -> pa.Schema | None:
    """Return the narrowest schema that holds both, known columns first; None if two types have nothing in common."""
    fields: dict[str, pa.Field] = {field.name: field for field in known}
    for field in seen:
        before = fields.get(field.name)
        kind = field.type if before is None else wider_type(before.type, field.type, text_takes_all=text_takes_all)
        if kind is None:
            return None
        fields[field.name] = pa.field(field.name, kind)
    return pa.schema(list(fields.values()))


def wider_type(one: pa.DataType, other: pa.DataType, *, text_takes_all: bool) -> pa.DataType | None:
    """Return the narrowest type that holds the values of both, or None."""
    if one.equals(other) or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if _is_number(one) and _is_number(other):
        return pa.int64() if pa.types.is_integer(one) and pa.types.is_integer(other) else pa.float64()
    if pa.types.is_temporal(one) and pa.types.is_temporal(other):
        moment = wider_time(one, other)
        return pa.string() if moment is None and text_takes_all else moment
    if pa.types.is_dictionary(one) and pa.types.is_dictionary(other):
        return _wider_dictionary(one, other, text_takes_all)
    if pa.types.is_nested(one) or pa.types.is_nested(other):
        return _wider_nest(one, other, text_takes_all)
    if text_takes_all or {True} == {pa.types.is_timestamp(kind) or pa.types.is_string(kind) for kind in (one, other)}:
        return pa.string()
    return None


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _wider_dictionary(
    one: pa.DictionaryType, other: pa.DictionaryType, text_takes_all: bool
) -> pa.DictionaryType | None:
    values = wider_type(one.value_type, other.value_type, text_takes_all=text_takes_all)
    if values is None or one.ordered != other.ordered:
        return None
    wider = one if one.index_type.bit_width > other.index_type.bit_width else other
    return pa.dictionary(wider.index_type, values, one.ordered)


def _wider_nest(one: pa.DataType, other: pa.DataType, text_takes_all: bool) -> pa.DataType | None:
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        inner = merged(pa.schema(list(one)), pa.schema(list(other)), text_takes_all=text_takes_all)
        return None if inner is None else pa.struct(list(inner))
    if pa.types.is_list(one) and pa.types.is_list(other):
        item = wider_type(one.value_type, other.value_type, text_takes_all=text_takes_all)
        return None if item is None else pa.list_(item)
    return None


def refuse_other_names(found: Sequence[str], wanted: Sequence[str], where: str) -> None:
    """Raise unless the columns found are the columns wanted, in any order."""
    twice = [name for name in found if list(found).count(name) > 1]
    if twice:
        raise SchemaMismatch(f"{where}: column {quoted(twice[0])} is there twice; give every column its own name")
    missing = [name for name in wanted if name not in found]
    if missing:
        raise SchemaMismatch(
            f"{where}: column {quoted(missing[0])} is missing, there are only: {listed(found) or 'none'}; "
            "correct the data or the schema"
        )
    extra = [name for name in found if name not in wanted]
    if extra:
        raise SchemaMismatch(
            f"{where}: column {quoted(extra[0])} is not one of those expected: {listed(wanted)}; "
            "correct the data or the schema"
        )


def _cast(batch: pa.RecordBatch, schema: pa.Schema, where: str) -> pa.RecordBatch:
    arrays = []
    for field in schema:
        if field.name not in batch.schema.names:
            arrays.append(pa.nulls(batch.num_rows, field.type))
            continue
        found = batch.column(field.name)
        if loses_zone(found.type, field.type):
            raise SchemaMismatch(f"{where}: column {quoted(field.name)} {zone_lost(found.type)}")
        try:
            arrays.append(found.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as failure:
            raise SchemaMismatch(
                f"{where}: column {quoted(field.name)} is not {brief(field.type)}: {cause(failure)}"
            ) from failure
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def as_batch(given: Any, schema: pa.Schema | None, where: str, first: int = 0) -> pa.RecordBatch:
    """Bring a batch, table, DataFrame, dict of columns or list of row dicts to one record batch.

    `first` is the number of the first row, by which a row dict with a wrong value is told.
    """
    try:
        match given:
            case pa.RecordBatch():
                return given
            case pa.Table():
                return one_batch(given)
            case pd.DataFrame():
                return _from_pandas(given, where, first)
            case _ if is_frame(given):
                batches = list(Frame(given))
                return one_batch(pa.Table.from_batches(batches)) if batches else pa.RecordBatch.from_pydict({})
            case Mapping():
                columns = {name: _listed_column(values, name, where, first) for name, values in given.items()}
                return pa.RecordBatch.from_pydict(columns)
            case list() | tuple() if all(isinstance(row, Mapping) for row in given):
                return _from_rows(given, schema, where, first)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as failure:
        raise SchemaMismatch(f"{where}: its columns do not go together: {failure}") from failure
    raise SchemaMismatch(
        f"{where}: a {type(given).__name__} is not rows; "
        "give a RecordBatch, a DataFrame, a dict of columns or a list of row dicts"
    )


def _from_rows(rows: Sequence[Mapping[str, Any]], schema: pa.Schema | None, where: str, first: int) -> pa.RecordBatch:
    names = list(dict.fromkeys(name for row in rows for name in row))
    if schema is not None:
        names += [name for name in schema.names if name not in names]
    types = {} if schema is None else {field.name: field.type for field in schema}
    arrays = [_column([row.get(name) for row in rows], types.get(name), name, where, first) for name in names]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _from_pandas(frame: pd.DataFrame, where: str, first: int) -> pa.RecordBatch:
    batch = pa.RecordBatch.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    for at, kind in enumerate(frame.dtypes):
        if pd.api.types.is_object_dtype(kind) and may_lack_zone(
            batch.schema.field(at).type
        ):  # of Python's values, as in a list
            name = batch.schema.names[at]
            batch = batch.set_column(at, name, _column(frame.iloc[:, at].tolist(), None, name, where, first))
    return batch


def _listed_column(values: Any, name: str, where: str, first: int) -> Any:
    return _column(list(values), None, name, where, first) if isinstance(values, list | tuple) else values


def _column(values: list[Any], kind: pa.DataType | None, name: str, where: str, first: int = 0) -> pa.Array:
    try:
        found = pa.array(values, type=kind)
        if not may_lack_zone(found.type):
            return found
        shown = shown_by(found.type, values)
        if kind is None and not shown.equals(found.type):
            return pa.array([as_moment(value) for value in values], type=shown)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as failure:
        place = _first_misfit(values, kind)
        wrong = f"{where}, row {first + place}: {quoted(values[place])} in column {quoted(name)}"
        if isinstance(failure, OverflowError) and kind is None:
            told = "does not fit into 64 bits; give a float, or declare the column as decimal(38,0)"
        elif kind is None:
            told = f"is not of one type with the rows before it ({cause(failure)}); make them alike"
        else:
            told = f"is not {brief(kind)}, as declared ({cause(failure)}); make it so"
        raise SchemaMismatch(f"{wrong} {told}") from failure
    if loses_zone(shown, found.type):
        raise SchemaMismatch(f"{where}: column {quoted(name)} {zone_lost(shown)}")
    return found


def _first_misfit(values: Sequence[Any], kind: pa.DataType | None) -> int:
    """Return the place of the first value that Arrow does not take behind those before it."""
    fitting, failing = 0, len(values)  # so many values are taken, so many are not
    while failing - fitting > 1:
        middle = (fitting + failing) // 2
        try:
            pa.array(values[:middle], type=kind)
            fitting = middle
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            failing = middle
    return fitting


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return the table as a single batch."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
