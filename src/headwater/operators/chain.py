"""Running a chain of operators on a batch, row by row only where a row makes trouble.

A batch runs through the chain whole. Where an operator raises, the batch is halved until the rows that make it raise
stand alone: all others get through, in order. Such a row stops the flow or becomes a dead letter, as its operator says.
State that a raising call touched is forgotten with the call.
"""

import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from os.path import dirname
from typing import Any, Final

import orjson
import pyarrow as pa

from headwater.model.errors import UserCodeError
from headwater.operators.base import Effect, Logic, OnError, Operator
from headwater.operators.functions import WrongResult, table_to_batch
from headwater.operators.state import KeyedState, OperatorState, ReadState

ROW_CHARS_MAX: Final = 2_000  # an error shows the row; a picture inside a row must not flood the log

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
        """Treat the rows as ones that raise in the chain's first operator: for rows that kill the worker itself."""
        result = ChainResult([None] * len(self.operators[-1].operator.ports), counts=[Count() for _ in self.operators])
        self._give_up(0, batch, cause, "the worker process died, so no line is known", result)
        result.counts[0].taken = batch.num_rows
        return result

    def _step(
        self, index: int, batch: pa.RecordBatch, state: OperatorState, result: ChainResult
    ) -> Sequence[pa.RecordBatch]:
        result.counts[index].taken += batch.num_rows
        pieces = self._survivors(index, batch, state, result)
        if state.changes:
            result.state[index] = state.changes
        made = (
            pieces[0]
            if len(pieces) == 1
            else [unite([piece[port] for piece in pieces]) for port in self._ports(index, pieces)]
        )
        result.counts[index].made += sum(rows.num_rows for rows in made)
        return made

    def _ports(self, index: int, pieces: Sequence[Sequence[pa.RecordBatch]]) -> range:
        return range(len(self.operators[index].operator.ports) if pieces else 0)

    def _survivors(
        self, index: int, batch: pa.RecordBatch, state: OperatorState, result: ChainResult
    ) -> list[Sequence[pa.RecordBatch]]:
        """Return what the operator makes of the batch, in pieces where rows had to be taken out."""
        try:
            return [_call(self.operators[index].operator, self._logics[index], batch, state)]
        except Exception as failure:  # a user's code may raise anything
            if batch.num_rows == 1:
                self._give_up(index, batch, _sentence(failure), _users_line(failure), result)
                return []
        middle = batch.num_rows // 2
        first = self._survivors(index, batch.slice(0, middle), state, result)
        return first + self._survivors(index, batch.slice(middle), state, result)

    def _give_up(self, index: int, batch: pa.RecordBatch, error: str, line: str, result: ChainResult) -> None:
        named = self.operators[index]
        trouble = [UserCodeError(self.flow, named.name, error, line, show_row(row)) for row in _rows(batch)]
        if named.operator.on_error is OnError.STOP:
            raise trouble[0]
        result.counts[index].dead += batch.num_rows
        result.dead.setdefault(index, []).append(_dead_letters(trouble))


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
    return table_to_batch(pa.concat_tables(tables, promote_options="permissive"))


def show_row(row: dict[str, Any]) -> str:
    """Return a row as JSON for people, cut if it is long."""
    text = orjson.dumps(row, default=repr, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY).decode()
    return text if len(text) <= ROW_CHARS_MAX else f"{text[:ROW_CHARS_MAX]}... ({len(text)} characters)"


def _call(operator: Operator, logic: Logic, batch: pa.RecordBatch, below: OperatorState) -> Sequence[pa.RecordBatch]:
    for column in operator.columns_needed:
        if column not in batch.schema.names:
            raise WrongResult(f"needs column {column!r}, but the rows have only: {', '.join(batch.schema.names)}")
    state: KeyedState | None = operator.keyed_state(batch, below)
    made = logic.run(batch, state)
    if state is not None:
        state.keep()
    return made


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    return batch.to_pylist()  # type: ignore[no-any-return]


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
    return str(failure) if isinstance(failure, WrongResult) else f"{type(failure).__name__}: {failure}"


# What is between us and the user's line in a traceback; the standard library and site-packages live under these too.
_NOT_USERS: Final = (dirname(dirname(__file__)), dirname(traceback.__file__), sys.prefix)


def _users_line(failure: Exception) -> str:
    """Return the innermost line of the traceback that is the user's own."""
    frames = traceback.extract_tb(failure.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_NOT_USERS)]
    if not own:
        return "no line of the flow's own code"
    frame = own[-1]
    return f"{frame.filename}:{frame.lineno} in {frame.name}" + (f": {frame.line}" if frame.line else "")
