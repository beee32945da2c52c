"""Running a chain of operators on a batch, row by row only where a row makes trouble.

A batch runs through the chain whole. Where an operator raises, the batch is halved until the rows that make it raise
stand alone: all others get through, in order. Such a row stops the flow or becomes a dead letter, as its operator says.
State that a raising call touched is forgotten with the call.
"""

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from os.path import dirname, join
from pathlib import PurePath
from typing import Any, Final

import orjson
import pyarrow as pa

from headwater.model.errors import UserCodeError
from headwater.model.keys import WrongKey
from headwater.operators.base import Effect, Logic, OnError, Operator
from headwater.operators.functions import WrongResult, table_to_batch
from headwater.operators.state import KeyedState, OperatorState, ReadState, WrongState

ROW_CHARS_MAX: Final = 2_000  # an error shows the row; a picture inside a row must not flood the log

WIDER: Final = "permissive"  # where inferred types differ, the one that holds both

DEAD_LETTERS: Final = pa.schema(
    [
        pa.field("flow", pa.string()),
        pa.field("operator", pa.string()),
        pa.field("error", pa.string()),
        pa.field("line", pa.string()),
        pa.field("row", pa.string()),
    ]
)


@dataclass(frozen=True)
class NamedOperator:
    """An operator of a graph, under its name."""

    name: str
    operator: Operator


@dataclass(slots=True)
class Count:
    """What one operator did to the number of rows."""

    taken: int = 0
    made: int = 0
    dead: int = 0


@dataclass(slots=True)
class ChainResult:
    """What a chain made of its rows: its outputs, its dead letters, its changes to state, its counts."""

    outputs: list[pa.RecordBatch | None]
    dead: dict[int, list[pa.RecordBatch]] = field(default_factory=dict)
    state: dict[int, dict[bytes, bytes | None]] = field(default_factory=dict)
    counts: list[Count] = field(default_factory=list)


class OpenChain:
    """A chain with its operators opened, ready for any number of batches."""

    def __init__(self, flow: str, operators: Sequence[NamedOperator]) -> None:
        """Open every operator."""
        self.flow = flow
        self.operators = tuple(operators)
        self._logics = [named.operator.open() for named in self.operators]

    def run(self, batch: pa.RecordBatch, read_state: Callable[[int], ReadState]) -> ChainResult:
        """Send the batch through all operators; `read_state(i)` reads the store for operator i."""
        ports = len(self.operators[-1].operator.ports)
        result = ChainResult([None] * ports, counts=[Count() for _ in self.operators])
        rows: Sequence[pa.RecordBatch] = (batch,)
        for index in range(len(self.operators)):
            if rows[0].num_rows == 0:
                return result
            rows = self._step(index, rows[0], OperatorState(read_state(index)), result)
            if not rows:
                return result
        result.outputs = [made if made.num_rows else None for made in rows]
        return result

    def condemn(self, batch: pa.RecordBatch, cause: str) -> ChainResult:
        """Treat the rows as ones that raise: for rows that kill the worker itself.

        Which operator it was nobody knows; the first that is lenient is asked, else the flow stops at the first of all.
        """
        lenient = (
            index for index, named in enumerate(self.operators) if named.operator.on_error is OnError.DEAD_LETTER
        )
        blamed = next(lenient, 0)
        result = ChainResult([None] * len(self.operators[-1].operator.ports), counts=[Count() for _ in self.operators])
        self._give_up(blamed, batch, cause, "the worker process died, so no line is known", result)
        for count in result.counts[:blamed]:
            count.taken = count.made = batch.num_rows
        result.counts[blamed].taken = batch.num_rows
        return result

    def _step(
        self, index: int, batch: pa.RecordBatch, state: OperatorState, result: ChainResult
    ) -> Sequence[pa.RecordBatch]:
        result.counts[index].taken += batch.num_rows
        pieces = _Pieces()
        self._gather(index, batch, state, pieces, result)
        if state.changes:
            result.state[index] = state.changes
        try:
            made = pieces.united()
        except pa.ArrowException as failure:
            raise self._trouble(index, _sentence(failure), "where its results are joined", batch.slice(0, 1)) from None
        result.counts[index].made += sum(rows.num_rows for rows in made)
        return made

    def _gather(
        self, index: int, batch: pa.RecordBatch, state: OperatorState, pieces: "_Pieces", result: ChainResult
    ) -> None:
        """Add what the operator makes of the batch, in pieces where rows have to be taken out."""
        try:
            pieces.add(_call(self.operators[index].operator, self._logics[index], batch, state, pieces))
        except Exception as failure:  # a user's code may raise anything
            if batch.num_rows == 1:
                self._give_up(index, batch, _sentence(failure), _users_line(failure), result)
                return
        else:
            return
        middle = batch.num_rows // 2
        self._gather(index, batch.slice(0, middle), state, pieces, result)
        self._gather(index, batch.slice(middle), state, pieces, result)

    def _give_up(self, index: int, batch: pa.RecordBatch, error: str, line: str, result: ChainResult) -> None:
        trouble = [self._trouble(index, error, line, batch.slice(row, 1)) for row in range(batch.num_rows)]
        if self.operators[index].operator.on_error is OnError.STOP:
            raise trouble[0]
        result.counts[index].dead += batch.num_rows
        result.dead.setdefault(index, []).append(_dead_letters(trouble))

    def _trouble(self, index: int, error: str, line: str, row: pa.RecordBatch) -> UserCodeError:
        return UserCodeError(self.flow, self.operators[index].name, error, line, show_row(row.to_pylist()[0]))


_NO_COLUMNS: Final = pa.schema([])


class _Pieces:
    """What an operator has made so far of a batch that may have to be halved."""

    def __init__(self) -> None:
        self._made: list[Sequence[pa.RecordBatch]] = []
        self._schemas: list[pa.Schema] = []  # for each port, what all pieces fit

    def add(self, made: Sequence[pa.RecordBatch]) -> None:
        self._schemas = self.fitting(made)
        self._made.append(made)

    def fitting(self, made: Sequence[pa.RecordBatch]) -> list[pa.Schema]:
        """Return the schemas that the pieces have once these rows are among them; refuse rows that do not fit."""
        found = [rows.schema if rows.num_rows else _NO_COLUMNS for rows in made]
        if not self._made:
            return found
        try:
            return [
                before if before.equals(schema) else pa.unify_schemas([before, schema], promote_options=WIDER)
                for before, schema in zip(self._schemas, found, strict=True)
            ]
        except pa.ArrowException as failure:
            raise WrongResult(f"its result does not fit what it made of other rows: {failure}") from failure

    def united(self) -> Sequence[pa.RecordBatch]:
        if len(self._made) <= 1:
            return self._made[0] if self._made else []
        return [unite(pieces) for pieces in zip(*self._made, strict=True)]


def effect_of(operator: Operator) -> Effect:
    """Return what the operator may do to the number of rows."""
    return type(operator).effect


def unite(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Join batches to one; where inferred types differ between batches, the wider type wins."""
    kept = [batch for batch in batches if batch.num_rows] or list(batches[:1])
    if len(kept) == 1:
        return kept[0]
    if all(batch.schema.equals(kept[0].schema) for batch in kept[1:]):
        return pa.concat_batches(kept)
    tables = [pa.Table.from_batches([batch]) for batch in kept]
    return table_to_batch(pa.concat_tables(tables, promote_options=WIDER))


def show_row(row: dict[str, Any]) -> str:
    """Return a row as JSON for people, cut if it is long."""
    text = orjson.dumps(row, default=repr, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY).decode()
    return text if len(text) <= ROW_CHARS_MAX else f"{text[:ROW_CHARS_MAX]}... ({len(text)} characters)"


def _call(
    operator: Operator, logic: Logic, batch: pa.RecordBatch, below: OperatorState, pieces: _Pieces
) -> Sequence[pa.RecordBatch]:
    for column in operator.columns_needed:
        if column not in batch.schema.names:
            raise WrongResult(f"needs column {column!r}, but the rows have only: {', '.join(batch.schema.names)}")
    state: KeyedState | None = operator.keyed_state(batch, below)
    made = logic.run(batch, state)
    pieces.fitting(made)
    if state is not None:
        state.keep()
    return made


def _dead_letters(trouble: Sequence[UserCodeError]) -> pa.RecordBatch:
    columns = {
        "flow": [one.flow for one in trouble],
        "operator": [one.operator for one in trouble],
        "error": [one.error for one in trouble],
        "line": [one.line for one in trouble],
        "row": [one.row for one in trouble],
    }
    return pa.RecordBatch.from_pydict(columns, schema=DEAD_LETTERS)


def _sentence(failure: Exception) -> str:
    told = isinstance(failure, WrongResult | WrongState | WrongKey)
    return str(failure) if told else f"{type(failure).__name__}: {failure}"


# What stands between us and the user's line in a traceback.
_NOT_USERS: Final = tuple(join(place, "") for place in (dirname(dirname(__file__)), dirname(traceback.__file__)))
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
_COMPILED: Final = (".pyx", ".pxi")  # Arrow's and pandas' own, named as they were on the machine that built them


def _users_line(failure: Exception) -> str:
    """Return the innermost line of the traceback that is the user's own."""
    frames = traceback.extract_tb(failure.__traceback__)
    own = [frame for frame in frames if _is_users(frame.filename)]
    if not own:
        return "no line of the flow's own code"
    frame = own[-1]
    return f"{frame.filename}:{frame.lineno} in {frame.name}" + (f": {frame.line}" if frame.line else "")


def _is_users(filename: str) -> bool:
    if filename.startswith(("<frozen ", *_NOT_USERS)) or filename.endswith(_COMPILED):
        return False
    return _INSTALLED.isdisjoint(PurePath(filename).parts)
