"""What every operator has: frozen configuration that travels, and logic that runs in a worker.

`Operator` is data: it is validated, compiled, pickled once and kept in the store. `open()` turns it into logic inside
a worker, once per worker and not per turn. Logic computes; it never touches the store, the network or the clock. It
remembers nothing from one turn to the next but what can be worked out again: the next turn may be another worker's.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Final, Protocol

import pyarrow as pa

from headwater.model.time import BEGINNING_OF_TIME
from headwater.operators.processors.processor_schemas import DeclaredVariables
from headwater.operators.state import KeyedState, OperatorState

LATE: Final = "late"  # the ports on which late rows leave begin like this


class OnError(StrEnum):
    """What happens to a row on which a user's function raises."""

    STOP = "stop"
    DEAD_LETTER = "dead-letter"


class Effect(StrEnum):
    """What an operator may do to the number of rows; the ledger accounts for the difference by it."""

    KEEPS = "keeps"
    FILTERS = "filters"
    CHANGES = "changes"


class Logic(Protocol):
    """An opened operator whose rows out follow from the rows in, at once."""

    def run(self, batch: pa.RecordBatch, state: KeyedState | None) -> Sequence[pa.RecordBatch]:
        """Return the rows for each output port, in order."""
        ...


@dataclass(slots=True)
class Moment:
    """What a timed operator knows when it is called: its state, how far event time has come, and the clock."""

    state: OperatorState
    watermark_us: int = BEGINNING_OF_TIME  # no row before this instant is expected any more
    now_us: int = 0  # processing time; the same for all calls of a turn


Outputs = Sequence[pa.RecordBatch | None]


class TimedLogic(Protocol):
    """An opened operator that also acts when time passes: windows close, joins give up waiting, timers fire."""

    def rows(self, batch: pa.RecordBatch, source: int, moment: Moment) -> Outputs:
        """Take rows of one input (0 is the first) and return what comes out at once, for each port."""
        ...

    def advance(self, moment: Moment) -> Outputs:
        """Return what the passing of time brings out; called when the watermark has risen or the clock was asked for.

        A watermark at the end of time means that no row will ever follow: whatever is held back comes out now.
        """
        ...

    def wake_us(self, moment: Moment) -> int | None:
        """Return when `advance` is wanted though nothing has arrived, by the clock; None if never."""
        ...


@dataclass(frozen=True, kw_only=True)
class Operator(ABC):
    """The configuration all operators share."""

    kind: ClassVar[str]
    effect: ClassVar[Effect] = Effect.KEEPS
    on_error: OnError = OnError.STOP

    @abstractmethod
    def open(self) -> Any:
        """Return the logic, ready to run: `Logic`, `TimedLogic`, or what makes watermarks."""

    @property
    def ports(self) -> tuple[str, ...]:
        """The names of the outputs; most operators have one."""
        return ("out",)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns whose value is the key of the state; empty for an operator without state."""
        return ()

    @property
    def state_settings(self) -> Mapping[str, object] | None:
        """The settings, besides the key, under which the state was made and can be read; None: there is no state.

        Another version of a flow goes on with the state of an operator whose settings are the same.
        """
        return None

    @property
    def state_variables(self) -> DeclaredVariables | None:
        """What the state consists of, if its parts have names and schemas of their own that a version may change.

        None where there are no such parts, or where only running can tell.
        """
        return None

    @property
    def columns_needed(self) -> tuple[str, ...]:
        """The columns that the input must have for this operator to run at all."""
        return ()

    def columns_needed_of(self, source: int) -> tuple[str, ...]:
        """The columns that one input of several must have."""
        return self.columns_needed

    def output_schema(self, inputs: Sequence[pa.Schema | None]) -> pa.Schema | None:
        """Return the columns that come out, or None where only running can tell."""
        return None

    def port_schema(self, port: str, inputs: Sequence[pa.Schema | None]) -> pa.Schema | None:
        """Return the columns that come out of one port."""
        return self.output_schema(inputs)

    def advice(self, failure: BaseException) -> str:
        """Return the end of a sentence about a failure: what to write instead, if the operator knows."""
        return ""

    def keyed_state(self, batch: pa.RecordBatch, state: OperatorState) -> KeyedState | None:
        """Return the view of the state for one batch; None for an operator without state."""
        return None


@dataclass(frozen=True, kw_only=True)
class TimedOperator(Operator):
    """An operator whose logic is `TimedLogic`."""

    effect: ClassVar[Effect] = Effect.CHANGES

    @abstractmethod
    def open(self) -> TimedLogic:
        """Return the logic, ready to run."""

    @property
    def inputs(self) -> int:
        """How many inputs it has."""
        return 1

    @property
    def needs_watermark(self) -> bool:
        """Whether it cannot do its work unless every input has a watermark."""
        return False

    @property
    def hold_us(self) -> int:
        """How far behind the watermark its rows may still come out; what follows sees a watermark held back by this."""
        return 0
