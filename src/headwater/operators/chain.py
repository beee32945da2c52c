"""Running a chain of operators on batches, row by row only where a row makes trouble.

A batch runs through the chain whole, and behind it the watermark: an operator that waits for time acts when it rises.
Where an operator raises, the batch is halved until the rows that make it raise stand alone: all others get through, in
order. Such a row stops the flow or becomes a dead letter, as its operator says. State that a raising call touched is
forgotten with the call.
"""

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from os.path import dirname, join
from pathlib import PurePath
from typing import Any, Final, TypeGuard

import msgspec
import orjson
import pyarrow as pa

from headwater.model.dictionaries import roomy
from headwater.model.entries import ALL_GROUPS
from headwater.model.errors import StoreError, UserCodeError
from headwater.model.keys import WrongKey
from headwater.model.secrets import without_passwords
from headwater.model.time import BEGINNING_OF_TIME, END_OF_TIME
from headwater.operators.base import LATE, Effect, Logic, Moment, OnError, Operator, Outputs, TimedLogic, TimedOperator
from headwater.operators.functions import WrongResult, table_to_batch
from headwater.operators.state import OperatorState, StateStore
from headwater.operators.state_values import WrongState
from headwater.operators.watermarks import OperatorTime, WatermarkLogic

ROW_CHARS_MAX: Final = 2_000  # an error shows the row; a picture inside a row must not flood the log
ERROR_CHARS_MAX: Final = 10_000  # some show all that they were given
NO_LINE: Final = "no line of the flow's own code"  # where an error is told with the line that raised it

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
class OperatorCount:
    """What one operator did to the number of rows."""

    taken: int = 0
    made: int = 0
    dead: int = 0


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows that may be taken together, by input, and how far event time has come behind them."""

    batches: Sequence[tuple[int, pa.RecordBatch]]
    watermark_us: int = BEGINNING_OF_TIME
    idle: bool = False
    exact: bool = False


@dataclass(slots=True)
class Emission:
    """What leaves a chain: rows for each port, and how far event time has come behind them."""

    outputs: list[pa.RecordBatch | None]
    watermark_us: int = BEGINNING_OF_TIME
    idle: bool = False
    exact: bool = False


@dataclass(slots=True)
class ChainResult:
    """What a chain made of its rows: its outputs, its dead letters, its changes to state and time, its counts."""

    emissions: list[Emission] = field(default_factory=list)
    dead: dict[int, list[pa.RecordBatch]] = field(default_factory=dict)
    state: dict[int, dict[bytes, bytes | None]] = field(default_factory=dict)
    counts: list[OperatorCount] = field(default_factory=list)
    times: list[OperatorTime] = field(default_factory=list)
    unread: int = 0  # rows that left inside the chain through a port that nobody reads
    unread_late: int = 0  # those of them that were late


@dataclass(frozen=True, slots=True)
class Turnover:
    """What a chain is run with: its committed state, how far time had come, the clock, and the keys it owns."""

    state_of: Callable[[int], StateStore]  # of an operator, by its index in the chain
    times: Sequence[OperatorTime] = ()  # for each operator; none where nothing depends on time
    now_us: int = 0
    groups: range = ALL_GROUPS


class OpenChain:
    """A chain with its operators opened, ready for any number of turns."""

    def __init__(self, flow: str, operators: Sequence[NamedOperator]) -> None:
        """Open every operator."""
        self.flow = flow
        self.operators = tuple(operators)
        self.logics = [named.operator.open() for named in self.operators]

    def run(self, segments: Sequence[Segment], turnover: Turnover) -> ChainResult:
        """Send the segments through all operators, one after the other, then let the clock have its say."""
        run = _Run(self, turnover)
        for segment in segments:
            run.take(segment)
        if turnover.times:
            run.tick()
        return run.finish()

    def condemn(self, batch: pa.RecordBatch, cause: str) -> ChainResult:
        """Treat the rows as ones that raise: for rows that kill the worker itself.

        Which operator it was nobody knows; the first that is lenient is asked, else the flow stops at the first of all.
        """
        lenient = (
            index for index, named in enumerate(self.operators) if named.operator.on_error is OnError.DEAD_LETTER
        )
        blamed = next(lenient, 0)
        result = ChainResult(counts=[OperatorCount() for _ in self.operators])
        self.give_up(blamed, batch, cause, "the worker process died, so no line is known", result)
        for count in result.counts[:blamed]:
            count.taken = count.made = batch.num_rows
        result.counts[blamed].taken = batch.num_rows
        return result

    def give_up(self, index: int, batch: pa.RecordBatch, error: str, line: str, result: ChainResult) -> None:
        """Stop the flow at rows that raise, or make dead letters of them."""
        trouble = [self.trouble(index, error, line, batch.slice(row, 1)) for row in range(batch.num_rows)]
        if self.operators[index].operator.on_error is OnError.STOP:
            raise trouble[0]
        result.counts[index].dead += batch.num_rows
        result.dead.setdefault(index, []).append(_dead_letters(trouble))

    def trouble(self, index: int, error: str, line: str, row: pa.RecordBatch | None) -> UserCodeError:
        """Return what is told of a row that raises; None is for trouble that came with time and not with a row."""
        shown = "" if row is None else show_first(row)
        return UserCodeError(self.flow, self.operators[index].name, error, line, shown)


class _Run:
    """One turn of a chain."""

    def __init__(self, chain: OpenChain, turnover: Turnover) -> None:
        self._chain = chain
        self._turnover = turnover
        self._last = len(chain.operators) - 1
        self._states: dict[int, OperatorState] = {}
        self._times = [msgspec.structs.replace(time) for time in turnover.times]
        self._result = ChainResult(counts=[OperatorCount() for _ in chain.operators], times=self._times)
        self._pending: Emission | None = None

    def take(self, segment: Segment) -> None:
        """Run the rows of a segment, then let the watermark rise."""
        for source, batch in segment.batches:
            self._feed(0, source, batch)
        if self._times:
            self._rise(0, segment.watermark_us, segment.idle, segment.exact)

    def tick(self) -> None:
        """Call the operators that asked for the clock, in order, and ask each when it wants to be called again."""
        now_us = self._turnover.now_us
        for index, logic in enumerate(self._chain.logics):
            time = self._times[index]
            if isinstance(logic, WatermarkLogic):
                if logic.wants(time, now_us):
                    logic.tick(time, now_us)
                    self._rise(index + 1, time.watermark_us, time.idle, False)
            elif is_timed(logic):
                if time.wake_us is not None and time.wake_us <= now_us:
                    self._advance(index, logic)
                time.wake_us = logic.wake_us(self._moment(index))

    def finish(self) -> ChainResult:
        """Return what came of it."""
        self._close_emission()
        self._result.state = {index: state.changes for index, state in self._states.items() if state.changes}
        return self._result

    def _state(self, index: int) -> OperatorState:
        state = self._states.get(index)
        if state is None:
            state = self._states[index] = OperatorState(self._turnover.state_of(index), self._turnover.groups)
        return state

    def _moment(self, index: int, state: OperatorState | None = None) -> Moment:
        watermark_us = self._times[index].watermark_us if self._times else BEGINNING_OF_TIME
        return Moment(state if state is not None else self._state(index), watermark_us, self._turnover.now_us)

    def _feed(self, index: int, source: int, batch: pa.RecordBatch) -> None:
        """Give rows to an operator, and what it makes of them to the next."""
        if batch.num_rows == 0:
            return
        logic = self._chain.logics[index]
        if isinstance(logic, WatermarkLogic):
            self._feed_watermark(index, logic, batch)
            return
        self._result.counts[index].taken += batch.num_rows
        try:
            made = self._call(index, source, batch, None)
        except KeyboardInterrupt:
            raise
        except BaseException as failure:  # a user's code may raise anything, and what it calls may end the process
            made = self._halved(index, source, batch, failure)
        self._pass_on(index, made)

    def _halved(
        self, index: int, source: int, batch: pa.RecordBatch, failure: BaseException
    ) -> Sequence[pa.RecordBatch]:
        """Return what an operator makes of a batch at which it raised, without the rows at which it raises alone."""
        pieces = _Pieces()
        self._part(index, source, batch, failure, pieces)
        try:
            return pieces.united()
        except pa.ArrowException as misfit:
            where = "where its results are joined"
            raise self._chain.trouble(index, _sentence(misfit), where, batch.slice(0, 1)) from None

    def _feed_watermark(self, index: int, logic: WatermarkLogic, batch: pa.RecordBatch) -> None:
        count = self._result.counts[index]
        count.taken += batch.num_rows
        try:
            stretches = logic.stretches(batch, self._times[index], self._turnover.now_us)
        except (WrongResult, KeyError) as failure:
            self._chain.give_up(index, batch, _sentence(failure), NO_LINE, self._result)
            return
        for rows, watermark_us, exact in stretches:
            if rows is not None:
                count.made += rows.num_rows
                self._forward(index, [rows])
            self._rise(index + 1, watermark_us, False, exact)

    def _pass_on(self, index: int, made: Sequence[pa.RecordBatch]) -> None:
        self._result.counts[index].made += sum(rows.num_rows for rows in made)
        if made:
            self._forward(index, made)

    def _forward(self, index: int, made: Sequence[pa.RecordBatch]) -> None:
        if index < self._last:
            self._count_unread(index, made)
            self._feed(index + 1, 0, made[0])
        elif any(rows.num_rows for rows in made):
            self._close_emission()
            self._pending = Emission([rows if rows.num_rows else None for rows in made])
            if self._result.emissions:
                before = self._result.emissions[-1]
                self._pending.watermark_us, self._pending.idle = before.watermark_us, before.idle

    def _count_unread(self, index: int, made: Sequence[pa.RecordBatch]) -> None:
        """Account for rows of other ports than the one that leads on: an operator is chained if nobody reads them."""
        ports = self._chain.operators[index].operator.ports
        for port, rows in zip(ports[1:], made[1:], strict=False):  # what time brought forth may be of the first alone
            self._result.unread += rows.num_rows
            self._result.unread_late += rows.num_rows if port.startswith(LATE) else 0

    def _rise(self, index: int, watermark_us: int, idle: bool, exact: bool) -> None:
        """Tell an operator, and those behind it, how far event time has come."""
        if index > self._last:
            if watermark_us == END_OF_TIME:  # how far it had come before counts where others have not ended
                self._close_emission()
            if self._pending is None:
                self._pending = Emission([None] * len(self._chain.operators[-1].operator.ports))
            self._pending.watermark_us, self._pending.idle = watermark_us, idle
            self._pending.exact |= exact
            if exact:
                self._close_emission()
            return
        logic, time = self._chain.logics[index], self._times[index]
        if isinstance(logic, WatermarkLogic):  # it makes its own; only the end of everything passes
            if watermark_us == END_OF_TIME and time.watermark_us < END_OF_TIME:
                time.watermark_us, time.wake_us = END_OF_TIME, None
                self._rise(index + 1, END_OF_TIME, False, False)
            return
        if not is_timed(logic):
            self._rise(index + 1, watermark_us, idle, exact)
            return
        if watermark_us > time.watermark_us:
            time.watermark_us = watermark_us
            self._advance(index, logic)
        self._rise(index + 1, self._held_back(index, time.watermark_us), idle, exact)

    def _held_back(self, index: int, watermark_us: int) -> int:
        operator = self._chain.operators[index].operator
        assert isinstance(operator, TimedOperator)
        if watermark_us in (BEGINNING_OF_TIME, END_OF_TIME):
            return watermark_us
        return max(BEGINNING_OF_TIME, watermark_us - operator.hold_us)

    def _close_emission(self) -> None:
        if self._pending is not None:
            self._result.emissions.append(self._pending)
            self._pending = None

    def _advance(self, index: int, logic: TimedLogic) -> None:
        attempt = self._state(index).attempt()
        try:
            made = _whole(logic.advance(self._moment(index, attempt)))
        except KeyboardInterrupt:
            raise
        except BaseException as failure:  # a user's code may raise anything, and what it calls may end the process
            raise self._chain.trouble(index, _sentence(failure), _users_line(failure), None) from failure
        self._state(index).keep(attempt)
        self._pass_on(index, made)

    def _gather(self, index: int, source: int, batch: pa.RecordBatch, pieces: "_Pieces") -> None:
        """Add what the operator makes of the batch, in pieces where rows have to be taken out."""
        try:
            pieces.add(self._call(index, source, batch, pieces))
        except KeyboardInterrupt:
            raise
        except BaseException as failure:  # a user's code may raise anything, and what it calls may end the process
            self._part(index, source, batch, failure, pieces)

    def _part(self, index: int, source: int, batch: pa.RecordBatch, failure: BaseException, pieces: "_Pieces") -> None:
        """Try the halves of a batch at which the operator raised; a row alone is given up."""
        if batch.num_rows == 1:
            self._chain.give_up(index, batch, _sentence(failure), _users_line(failure), self._result)
            return
        middle = batch.num_rows // 2
        self._gather(index, source, batch.slice(0, middle), pieces)
        self._gather(index, source, batch.slice(middle), pieces)

    def _call(
        self, index: int, source: int, batch: pa.RecordBatch, pieces: "_Pieces | None"
    ) -> Sequence[pa.RecordBatch]:
        operator, logic = self._chain.operators[index].operator, self._chain.logics[index]
        for column in operator.columns_needed_of(source):
            if column not in batch.schema.names:
                raise WrongResult(f"needs column {column!r}, but the rows have only: {', '.join(batch.schema.names)}")
        if is_timed(logic):
            attempt = self._state(index).attempt()
            made = _whole(logic.rows(batch, source, self._moment(index, attempt)))
            if pieces is not None:
                pieces.fitting(made)
            self._state(index).keep(attempt)
            return made
        assert not isinstance(logic, WatermarkLogic)
        state = operator.keyed_state(batch, self._state(index)) if operator.key else None
        made = list(logic.run(batch, state))
        if pieces is not None:
            pieces.fitting(made)
        if state is not None:
            state.keep()
        return made


def is_timed(logic: Logic | TimedLogic | WatermarkLogic) -> TypeGuard[TimedLogic]:
    """Whether an operator acts when time passes."""
    return hasattr(logic, "advance")


def _whole(outputs: Outputs) -> Sequence[pa.RecordBatch]:
    return [_NOTHING if batch is None else batch for batch in outputs]


_NO_COLUMNS: Final = pa.schema([])
_NOTHING: Final = pa.RecordBatch.from_pylist([], schema=_NO_COLUMNS)


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
    try:
        return _joined(kept)
    except pa.ArrowInvalid:  # their dictionaries have more values together than each has numbers for
        return _joined([roomy(batch) for batch in kept])


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if all(batch.schema.equals(batches[0].schema) for batch in batches[1:]):
        return pa.concat_batches(batches)
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    return table_to_batch(pa.concat_tables(tables, promote_options=WIDER))


def show_first(rows: pa.RecordBatch) -> str:
    """Return the first of some rows as JSON for people, whatever is in it: it may be the very reason of an error."""
    return show_row({name: _for_people(column) for name, column in zip(rows.schema.names, rows.columns, strict=True)})


def _for_people(column: pa.Array) -> Any:
    try:
        return column[0].as_py()
    except (OverflowError, ValueError):  # Python's years end with 9999: milliseconds taken for seconds are beyond
        return f"{column.type} out of Python's range"


def show_row(row: dict[str, Any]) -> str:
    """Return a row as JSON for people, cut if it is long."""
    text = orjson.dumps(row, default=repr, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY).decode()
    return text if len(text) <= ROW_CHARS_MAX else f"{text[:ROW_CHARS_MAX]}... ({len(text)} characters)"


def _dead_letters(trouble: Sequence[UserCodeError]) -> pa.RecordBatch:
    columns = {
        "flow": [one.flow for one in trouble],
        "operator": [one.operator for one in trouble],
        "error": [one.error for one in trouble],
        "line": [one.line for one in trouble],
        "row": [one.row for one in trouble],
    }
    return pa.RecordBatch.from_pydict(columns, schema=DEAD_LETTERS)


def _sentence(failure: BaseException) -> str:
    told = isinstance(failure, WrongResult | WrongState | WrongKey | StoreError)
    text = without_passwords(str(failure) if told else f"{type(failure).__name__}: {failure}")
    return text if len(text) <= ERROR_CHARS_MAX else f"{text[:ERROR_CHARS_MAX]}... ({len(text)} characters)"


# What stands between us and the user's line in a traceback.
_NOT_USERS: Final = tuple(join(place, "") for place in (dirname(dirname(__file__)), dirname(traceback.__file__)))
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
_COMPILED: Final = (".pyx", ".pxi")  # Arrow's and pandas' own, named as they were on the machine that built them


def _users_line(failure: BaseException) -> str:
    """Return the innermost line of the traceback that is the user's own."""
    frames = traceback.extract_tb(failure.__traceback__)
    own = [frame for frame in frames if _is_users(frame.filename)]
    if not own:
        return NO_LINE
    frame = own[-1]
    line = without_passwords(frame.line or "")
    return f"{frame.filename}:{frame.lineno} in {frame.name}" + (f": {line}" if line else "")


def _is_users(filename: str) -> bool:
    if filename.startswith(("<frozen ", *_NOT_USERS)) or filename.endswith(_COMPILED):
        return False
    return _INSTALLED.isdisjoint(PurePath(filename).parts)
