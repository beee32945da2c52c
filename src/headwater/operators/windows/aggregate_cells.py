"""The cells of aggregates: a packed record of numbers, and behind it the bytes of what is not numbers.

Cells come by the thousand. They are joined and seen as one numpy array, worked on column by column, and cut apart
again, so what one cell costs is a small part of a microsecond.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from headwater.model.batch import schema_id
from headwater.operators.columns.input_columns import IDENTITY_BYTES, changed_type, older_columns
from headwater.operators.columns.vectors import GroupedRows
from headwater.operators.state import OperatorState
from headwater.operators.windows.aggregates import FoundContents, result_of
from headwater.operators.windows.object_parts import ObjectPart, combine_runs
from headwater.operators.windows.packed_parts import (
    AggregatePart,
    Count,
    FloatSum,
    IntSum,
    Records,
    empty_records,
    record_dtype,
)
from headwater.operators.windows.window_contents import Cells, Finished, Indices
from headwater.operators.windows.window_specs import Aggregate

_PIECES: Final = msgspec.msgpack.Decoder(list[bytes])
_PACK: Final = msgspec.msgpack.Encoder()
_COLUMNS: Final = "columns"  # the field that says which columns a record was written with

Objects = list[Sequence[bytes]]  # for each part that is not numbers, its bytes in every cell


class CellLayout:
    """What a cell of some aggregates over some columns looks like."""

    def __init__(self, aggregates: Sequence[Aggregate], schema: pa.Schema) -> None:
        """Find what has to be remembered; what several aggregates need is remembered once."""
        self.schema, self.identity = schema, schema_id(schema)
        self.names = [aggregate.name for aggregate in aggregates]
        self.results = [result_of(aggregate, schema) for aggregate in aggregates]
        wanted = dict.fromkeys(part for result in self.results for part in result.parts)
        self.parts: list[AggregatePart] = [part for part in wanted if isinstance(part, AggregatePart)] or [Count(None)]
        self.objects: list[ObjectPart] = [part for part in wanted if isinstance(part, ObjectPart)]
        self.dtype = record_dtype(self.parts, first=_COLUMNS)
        self.fields = {field.name: field for part in self.parts for field in part.fields}
        self._blob = np.dtype(f"V{self.dtype.itemsize}")
        self.at_first = self.encode(self.empty(1), [[b""] for _ in self.objects])[0]

    def empty(self, count: int) -> Records:
        """Return records as they are before the first row."""
        records = empty_records(self.parts, self.dtype, count)
        records[_COLUMNS] = self.identity
        return records

    def decode(self, cells: Cells) -> tuple[Records, Objects] | None:
        """Return what is in the cells, to be changed at will, or None if some were written with other columns."""
        size = self.dtype.itemsize
        packed = bytearray().join([cell[:size] for cell in cells] if self.objects else cells)
        if len(packed) != size * len(cells):
            return None
        records = np.frombuffer(packed, dtype=self.dtype)
        if not (records[_COLUMNS] == self.identity).all():
            return None
        if not self.objects:
            return records, []
        pieces = [_PIECES.decode(cell[size:]) for cell in cells]
        return records, [list(of_part) for of_part in zip(*pieces, strict=True)]

    def encode(self, records: Records, objects: Objects) -> list[bytes]:
        """Return the cells."""
        packed: list[bytes] = records.view(self._blob).tolist()
        if not self.objects:
            return packed
        return [head + _PACK.encode(tail) for head, tail in zip(packed, zip(*objects, strict=True), strict=True)]

    def combine(self, records: Records, objects: Objects, starts: Indices) -> tuple[Records, Objects]:
        """Return what is in each run of cells taken together."""
        if len(starts) == len(records):
            return records, objects
        into = self.empty(len(starts))
        with np.errstate(invalid="ignore", over="ignore"):
            for part in self.parts:
                part.combine(into, records, starts)
        return into, [combine_runs(part, kept, starts) for part, kept in zip(self.objects, objects, strict=True)]

    def columns(self, records: Records, objects: Objects) -> pa.RecordBatch:
        """Return the column of every aggregate."""
        found = FoundContents(records, dict(zip(self.objects, objects, strict=True)))
        return pa.RecordBatch.from_arrays([result.column(found) for result in self.results], names=self.names)

    def bring(self, cell: bytes, old: "CellLayout") -> bytes:
        """Return a cell of an older layout as one of ours: its columns have wider types now."""
        decoded = old.decode([cell])
        assert decoded is not None, "a cell does not have the layout that it names"
        records, objects = decoded
        kept = dict(zip(old.objects, objects, strict=True))
        if lost := [part.column for part in old.objects if part not in self.objects]:
            raise changed_type(lost[0], old.schema.field(lost[0]).type)
        made = self.empty(1)
        for part in self.parts:
            _bring_part(part, made, records, old)
        for part in old.parts:
            self._check_nothing_lost(part, records, old)
        return self.encode(made, [kept.get(part, [b""]) for part in self.objects])[0]

    def _check_nothing_lost(self, part: AggregatePart, records: Records, old: "CellLayout") -> None:
        """Refuse types between which there is no way, as from numbers to decimals."""
        if part.column is None or all(field.name in self.fields for field in part.fields):
            return
        summed_as_floats = isinstance(part, IntSum) and FloatSum(part.column) in self.parts
        if not summed_as_floats and any(_has(records, field.name, old) for field in part.fields):
            raise changed_type(part.column, old.schema.field(part.column).type)


def _bring_part(part: AggregatePart, made: Records, records: Records, old: CellLayout) -> None:
    for field in part.fields:
        name = field.name
        if name not in old.fields and isinstance(part, FloatSum):
            name = IntSum(part.column).fields[0].name  # whole numbers so far
        if name in old.fields and _has(records, name, old):
            made[field.name] = records[name]


def _has(records: Records, name: str, layout: CellLayout) -> bool:
    """Whether a field of a record is not as it was at first."""
    return bool(np.any(records[name] != layout.fields[name].at_first))


class AggregateContents:
    """Aggregates as the contents of a window."""

    has_keys: Final = False

    def __init__(self, aggregates: Sequence[Aggregate], *, combined: bool) -> None:
        """Compute these; `combined` says that cells are, so that the order of arrival does not follow from theirs."""
        self._aggregates = tuple(aggregates)
        self._combined = combined
        self._layout: CellLayout | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are aggregated."""
        return tuple(aggregate.column for aggregate in self._aggregates if aggregate.column is not None)

    @property
    def by_arrival(self) -> bool:
        """Whether a first or last value is asked for, or an order of many."""
        ordered = ("first", "last", "collect_list", "collect_set")
        return self._combined and any(aggregate.function in ordered for aggregate in self._aggregates)

    def fit(self, schema: pa.Schema) -> None:
        """Find the layout of cells over these columns."""
        if self._layout is None or (schema is not self._layout.schema and not schema.equals(self._layout.schema)):
            self._layout = CellLayout(self._aggregates, schema)

    def add(
        self, cells: Sequence[bytes | None], rows: GroupedRows, names: Sequence[bytes], state: OperatorState
    ) -> list[bytes]:
        """Return the cells with the rows added."""
        assert self._layout is not None, "the columns of the input are not known yet"
        at_first = self._layout.at_first
        layout, records, objects = self._decoded([cell or at_first for cell in cells], state)
        with np.errstate(invalid="ignore", over="ignore"):
            for part in layout.parts:
                part.add(records, rows)
        return layout.encode(
            records, [part.add(kept, rows) for part, kept in zip(layout.objects, objects, strict=True)]
        )

    def combine(self, cells: Cells, starts: Indices, state: OperatorState) -> list[bytes]:
        """Return one cell for each run."""
        layout, records, objects = self._decoded(cells, state)
        return layout.encode(*layout.combine(records, objects, starts))

    def finish(
        self, cells: Cells, names: Sequence[bytes], index: Indices, starts: Indices, state: OperatorState
    ) -> Finished:
        """Return one row for each run."""
        layout, records, objects = self._decoded(cells, state)
        picked: Objects = [[kept[at] for at in index.tolist()] for kept in objects]
        return Finished(layout.columns(*layout.combine(records.take(index), picked, starts)))

    def forget(self, cells: Cells, names: Sequence[bytes], state: OperatorState) -> None:
        """Cells refer to nothing."""

    def _decoded(self, cells: Cells, state: OperatorState) -> tuple[CellLayout, Records, Objects]:
        layout = self._layout
        assert layout is not None, "the columns of the input are not known yet"
        decoded = layout.decode(cells) or layout.decode(self._of_now(cells, layout, state))
        assert decoded is not None, "cells could not be brought to one layout"
        return layout, *decoded

    def _of_now(self, cells: Cells, layout: CellLayout, state: OperatorState) -> list[bytes]:
        """Return cells of any age in the layout of now."""
        ages: dict[int, CellLayout] = {layout.identity: layout}
        made: list[bytes] = []
        for cell in cells:
            age = int.from_bytes(cell[:IDENTITY_BYTES], "little")
            if age not in ages:
                ages[age] = CellLayout(self._aggregates, older_columns(age, layout.schema, state))
            made.append(cell if age == layout.identity else layout.bring(cell, ages[age]))
        return made
