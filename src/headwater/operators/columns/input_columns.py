"""The columns of the input as state was written with them.

Where nobody declares a schema, the types of rows are what they seem to be: a column of nulls turns into numbers, whole
numbers into fractions. Types may become wider, and never anything else. Every cell names the columns that it was
written with by a hash, and the columns are shared under it, so a cell of any age can be read, also where the state of
two instances comes together that did not see the same rows.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from headwater.model.batch import schema_id
from headwater.operators.columns.vectors import plain, plain_type, row_type
from headwater.operators.functions import WrongResult
from headwater.operators.state import OperatorState

IDENTITY_BYTES: Final = 8

_CURRENT: Final = "schema"


class InputColumns:
    """The columns that an operator looks at; brings rows into the types that its state has by now."""

    def __init__(self, columns: Sequence[str] | None) -> None:
        """Look at these columns, or at all as they are."""
        self._columns = None if columns is None else list(dict.fromkeys(columns))
        self._seen: pa.Schema | None = None  # the last input, and what follows from it
        self._plain = pa.schema([])
        self._fits = False
        self._written = b""

    def settle(self, batch: pa.RecordBatch, state: OperatorState) -> tuple[pa.RecordBatch, pa.Schema]:
        """Return the rows with the columns of the state, and these, which become wider if the rows need it.

        Rows that fit are not touched, and may have other columns too.
        """
        if self._seen is None or not batch.schema.equals(self._seen):
            self._meet(batch.schema)
        kept = state.shared(_CURRENT)
        if kept == self._written:
            return batch if self._fits else _in_columns(batch, self._plain), self._plain
        known = None if kept is None else read_schema(kept)
        wide = self._plain if known is None else wider(known, self._plain)
        if known is None or not wide.equals(known):
            written = wide.serialize().to_pybytes()
            state.share(_CURRENT, written)
            state.share(_of_age(schema_id(wide)), written)
        return _in_columns(batch, wide), wide

    def recall(self, state: OperatorState) -> pa.Schema | None:
        """Return the columns of the state, or None before the first row."""
        kept = state.shared(_CURRENT)
        if kept is not None and kept != self._written:
            self._seen, self._plain, self._written = None, read_schema(kept), kept
        return None if kept is None else self._plain

    def _meet(self, schema: pa.Schema) -> None:
        if self._columns is None:
            fields = [pa.field(field.name, row_type(field.type)) for field in schema]
        else:
            fields = [pa.field(name, plain_type(schema.field(name).type)) for name in self._columns]
        self._seen, self._plain = schema, pa.schema(fields)
        self._fits = all(schema.field(field.name).type == field.type for field in fields)
        self._written = self._plain.serialize().to_pybytes()


def older_columns(identity: int, current: pa.Schema, state: OperatorState) -> pa.Schema:
    """Return the columns that a cell was written with, if it can be brought to those of now."""
    kept = state.shared(_of_age(identity))
    assert kept is not None, "the columns of a cell were not kept"
    older = read_schema(kept)
    if not wider(older, current).equals(current):
        raise _changed(older, current)
    return older


def _of_age(identity: int) -> str:
    return f"{_CURRENT} {identity:016x}"


def read_schema(written: bytes) -> pa.Schema:
    """Return a schema from its bytes."""
    return pa.ipc.read_schema(pa.py_buffer(written))


def wider(older: pa.Schema, newer: pa.Schema) -> pa.Schema:
    """Return the columns that hold the rows of both."""
    try:
        return pa.unify_schemas([older, newer], promote_options="permissive")
    except pa.ArrowException:
        raise _changed(older, newer) from None


def _changed(older: pa.Schema, newer: pa.Schema) -> WrongResult:
    changed = next(field for field in older if field.name not in newer.names or newer.field(field.name) != field)
    return changed_type(changed.name, changed.type)


def changed_type(column: str, before: pa.DataType) -> WrongResult:
    """Return the refusal of a column that is not what it was."""
    return WrongResult(
        f"column {column!r} was {before} before and has become something else; "
        "declare a schema where the rows come from"
    )


def _in_columns(rows: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    have = [rows.column(name) if name in rows.schema.names else pa.nulls(rows.num_rows) for name in wanted.names]
    try:
        fitting = [cast(column, field.type) for column, field in zip(have, wanted, strict=True)]
    except pa.ArrowException as failure:
        raise WrongResult(f"its rows do not fit those before: {failure}") from None
    return pa.RecordBatch.from_arrays(fitting, schema=wanted)


def cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the column in a type that holds its values."""
    if column.type == kind:
        return column
    made = plain(column)
    return made if made.type == kind else made.cast(kind)
