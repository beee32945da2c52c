"""Windows that keep rows: all of them, for a user's function to see, or the best few.

Rows are kept in Arrow's own message format, with their place in the order of arrivals as one more column. All rows of a
window are kept in pieces: what a batch brings is put beside what is there, which is not read until the window fires. A
cell then is the list of its pieces' names, each the arrival of the piece's first row.
"""

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.batch import schema_id
from headwater.operators.chain import unite
from headwater.operators.columns.cell_names import cell_name, suffix_of
from headwater.operators.columns.input_columns import IDENTITY_BYTES, cast, older_columns
from headwater.operators.columns.vectors import GroupedRows
from headwater.operators.functions import Form, UserFunction, WrongResult, call_for_rows, to_batch
from headwater.operators.state import OperatorState
from headwater.operators.windows.window_contents import ROWS, Cells, Finished, Indices

RANK: Final = "rank"

_ARRIVAL: Final = "\0arrival"  # no column of a user is called that
_RUN: Final = "\0run"
_NULL: Final = "\0null"
_NAN: Final = "\0nan"
_BY: Final = "\0by"
_ID_BYTES: Final = 8


class _KeptRows:
    """Rows of known columns, in pieces of bytes: which columns they are, then Arrow's message."""

    columns: Final = None
    by_arrival: Final = True

    def __init__(self) -> None:
        self._schema = self._with_arrival = pa.schema([])
        self._identity = b""

    def fit(self, schema: pa.Schema) -> None:
        """Prepare for rows with these columns."""
        if not self._identity or (schema is not self._schema and not schema.equals(self._schema)):
            self._schema, self._with_arrival = schema, _with_arrival(schema)
            self._identity = schema_id(schema).to_bytes(IDENTITY_BYTES, "little")

    def _in_groups(self, rows: GroupedRows) -> tuple[pa.RecordBatch, Indices]:
        """Return the rows in order of group, with their arrivals, and where each group begins."""
        order, starts = rows.in_groups
        columns = [*rows.batch.take(pa.array(order)).columns, pa.array(rows.arrivals[order])]
        return pa.RecordBatch.from_arrays(columns, schema=self._with_arrival), starts

    def _written(self, rows: pa.RecordBatch) -> bytes:
        return b"".join((self._identity, rows.serialize()))

    def _read(self, piece: bytes, state: OperatorState) -> pa.RecordBatch:
        identity, message = piece[:IDENTITY_BYTES], pa.py_buffer(piece[IDENTITY_BYTES:])
        if identity == self._identity:
            return pa.ipc.read_record_batch(message, self._with_arrival)
        older = older_columns(int.from_bytes(identity, "little"), self._schema, state)
        rows = pa.ipc.read_record_batch(message, _with_arrival(older))
        have = {name: rows.column(name) for name in rows.schema.names}
        columns = [cast(have.get(field.name, pa.nulls(rows.num_rows)), field.type) for field in self._with_arrival]
        return pa.RecordBatch.from_arrays(columns, schema=self._with_arrival)


def _with_arrival(schema: pa.Schema) -> pa.Schema:
    return pa.schema([*schema, pa.field(_ARRIVAL, pa.int64())])


def _cut(rows: pa.RecordBatch, starts: Indices) -> list[pa.RecordBatch]:
    """Return the runs of rows that begin at these places."""
    return [rows.slice(a, b - a) for a, b in pairwise([*starts.tolist(), rows.num_rows])]


class ApplyContents(_KeptRows):
    """All rows of a window, for a user's function."""

    has_keys: Final = False

    def __init__(self, function: UserFunction, form: Form, schema: pa.Schema | None, taken: Sequence[str]) -> None:
        """Call this function; the names that are taken cannot be columns of its result."""
        super().__init__()
        self._function, self._form, self._result, self._taken = function, form, schema, frozenset(taken)

    def add(
        self, cells: Sequence[bytes | None], rows: GroupedRows, names: Sequence[bytes], state: OperatorState
    ) -> list[bytes]:
        """Put the rows of each group beside those before."""
        order, starts = rows.in_groups
        ids: list[int] = rows.arrivals[order[starts]].tolist()
        pieces = [_piece_name(one, name) for one, name in zip(ids, names, strict=True)]
        for nth, found in enumerate(state.read_many(pieces)):
            while found is not None:  # the clock of an instance that these rows were with before is ahead of ours
                ids[nth] += 1
                pieces[nth] = _piece_name(ids[nth], names[nth])
                found = state.read(pieces[nth])
        state.put_many(pieces, map(self._written, _cut(*self._in_groups(rows))))
        return [(cell or b"") + one.to_bytes(_ID_BYTES, "big") for cell, one in zip(cells, ids, strict=True)]

    def combine(self, cells: Cells, starts: Indices, state: OperatorState) -> list[bytes]:
        """Return one list of pieces for each run."""
        return [b"".join(cells[a:b]) for a, b in pairwise([*starts.tolist(), len(cells)])]

    def finish(
        self, cells: Cells, names: Sequence[bytes], index: Indices, starts: Indices, state: OperatorState
    ) -> Finished:
        """Call the function for each run, with its rows in order of arrival."""
        picked, bounds = index.tolist(), [*starts.tolist(), len(index)]
        made = [
            self._called([name for at in picked[a:b] for name in _pieces_of(cells[at], names[at])], state)
            for a, b in pairwise(bounds)
        ]
        return Finished(unite(made), np.repeat(np.arange(len(made)), [rows.num_rows for rows in made]))

    def _called(self, names: list[bytes], state: OperatorState) -> pa.RecordBatch:
        pieces = [self._read(piece, state) for piece in state.read_many(names) if piece is not None]
        assert len(pieces) == len(names), "a window lost rows"
        rows = pieces[0] if len(pieces) == 1 else in_order_of_arrival(pa.concat_batches(pieces))
        given = rows.drop_columns([_ARRIVAL])
        if self._form is Form.ROWS:
            made = to_batch(self._function(given.to_pylist()), self._result)
        else:
            made = call_for_rows(self._function, self._form, given, self._result)
        if twice := self._taken.intersection(made.schema.names):
            raise WrongResult(f"its result has column {min(twice)!r}, which a window adds itself; leave it out")
        return made

    def forget(self, cells: Cells, names: Sequence[bytes], state: OperatorState) -> None:
        """Remove the pieces."""
        for cell, name in zip(cells, names, strict=True):
            state.delete_many(_pieces_of(cell, name))


def in_order_of_arrival(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows as they came."""
    return rows.take(pc.sort_indices(rows.column(_ARRIVAL)))


def _pieces_of(cell: bytes, name: bytes) -> list[bytes]:
    """Return the names of the pieces of a cell."""
    ids = (int.from_bytes(cell[at : at + _ID_BYTES], "big") for at in range(0, len(cell), _ID_BYTES))
    return [_piece_name(one, name) for one in ids]


def _piece_name(identity: int, name: bytes) -> bytes:
    """Return the name of a piece that belongs to the key of a cell of this name."""
    return cell_name(ROWS, identity, suffix_of(name))


def check_rankable(by: str, schema: pa.Schema, taken: Collection[str]) -> None:
    """Refuse rows that cannot be ranked by a column, or have columns which the ranking would add to them."""
    kind = schema.field(by).type
    if pa.types.is_nested(kind) or pa.types.is_interval(kind):
        raise WrongResult(f"rows cannot be ranked by column {by!r}, a {kind}")
    for name in schema.names:
        if name in taken:
            raise WrongResult(
                f"rows have a column {name!r} already, which a ranking adds to them; select it away before"
            )


class TopKContents(_KeptRows):
    """The rows of a window with the largest or smallest values of a column; a cell holds so many, in bytes."""

    has_keys: Final = True

    def __init__(self, k: int, by: str, largest: bool, taken: Collection[str]) -> None:
        """Keep this many rows by this column; the names that are taken cannot be columns of theirs."""
        super().__init__()
        self._k, self._by, self._largest, self._taken = k, by, largest, taken

    def fit(self, schema: pa.Schema) -> None:
        """Prepare for rows with these columns."""
        check_rankable(self._by, schema, self._taken)
        super().fit(schema)

    def add(
        self, cells: Sequence[bytes | None], rows: GroupedRows, names: Sequence[bytes], state: OperatorState
    ) -> list[bytes]:
        """Return the best rows of what was there and what came."""
        new, _ = self._in_groups(rows)
        had = [nth for nth, cell in enumerate(cells) if cell is not None]
        old = [self._read(cell, state) for cell in cells if cell is not None]
        run = np.concatenate([np.sort(rows.groups), np.repeat(had, [piece.num_rows for piece in old]).astype(np.intp)])
        return self._cells(*self._best(pa.concat_batches([new, *old]), run), rows.count)

    def combine(self, cells: Cells, starts: Indices, state: OperatorState) -> list[bytes]:
        """Return the best rows of each run."""
        best, run = self._best(*self._joined(cells, np.arange(len(cells)), starts, state))
        return self._cells(best, run, len(starts))

    def finish(
        self, cells: Cells, names: Sequence[bytes], index: Indices, starts: Indices, state: OperatorState
    ) -> Finished:
        """Return the best rows of each run with their ranks, from 1."""
        best, run = self._best(*self._joined(cells, index, starts, state))
        ranks = pa.array(np.arange(len(run)) - np.searchsorted(run, run) + 1)
        return Finished(best.drop_columns([_ARRIVAL]).append_column(RANK, ranks), run)

    def _cells(self, best: pa.RecordBatch, run: Indices, count: int) -> list[bytes]:
        return [self._written(rows) for rows in _cut(best, np.searchsorted(run, np.arange(count)))]

    def _joined(
        self, cells: Cells, index: Indices, starts: Indices, state: OperatorState
    ) -> tuple[pa.RecordBatch, Indices]:
        pieces = [self._read(cells[at], state) for at in index.tolist()]
        run = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(index)))
        return pa.concat_batches(pieces), np.repeat(run, [piece.num_rows for piece in pieces])

    def _best(self, rows: pa.RecordBatch, run: Indices) -> tuple[pa.RecordBatch, Indices]:
        """Return the best rows of each run, best first, and the run of each."""
        by, way = rows.column(self._by), "descending" if self._largest else "ascending"
        keys = {_RUN: pa.array(run), _NULL: by.is_null()}
        ways = [(_RUN, "ascending"), (_NULL, "ascending")]
        if pa.types.is_floating(by.type):  # NaN is larger than any number; Arrow would put it last either way
            keys[_NAN] = pc.is_nan(by).fill_null(False)
            ways.append((_NAN, way))
        keys |= {_BY: by, _ARRIVAL: rows.column(_ARRIVAL)}
        ways += [(_BY, way), (_ARRIVAL, "ascending")]
        order = pc.sort_indices(pa.RecordBatch.from_pydict(keys), sort_keys=ways).to_numpy()
        run = run[order]
        kept = np.arange(len(run)) - np.searchsorted(run, run) < self._k
        return rows.take(pa.array(order[kept])), run[kept]

    def forget(self, cells: Cells, names: Sequence[bytes], state: OperatorState) -> None:
        """Cells refer to nothing."""
