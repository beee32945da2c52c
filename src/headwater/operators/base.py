"""What every operator has: frozen configuration that travels, and logic that runs in a worker.

`Operator` is data: it is validated, compiled, pickled once and kept in the store. `open()` turns it into `Logic` inside
a worker, once per worker and not per turn. Logic computes; it never touches the store, the network or the clock.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Protocol

import pyarrow as pa

from headwater.operators.state import KeyedState, OperatorState


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
    """An opened operator."""

    def run(self, batch: pa.RecordBatch, state: KeyedState | None) -> Sequence[pa.RecordBatch]:
        """Return the rows for each output port, in order."""
        ...


@dataclass(frozen=True, kw_only=True)
class Operator(ABC):
    """The configuration all operators share."""

    kind: ClassVar[str]
    effect: ClassVar[Effect] = Effect.KEEPS
    on_error: OnError = OnError.STOP

    @abstractmethod
    def open(self) -> Logic:
        """Return the logic, ready to run."""

    @property
    def ports(self) -> tuple[str, ...]:
        """The names of the outputs; most operators have one."""
        return ("out",)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns whose value is the key of the state; empty for an operator without state."""
        return ()

    @property
    def columns_needed(self) -> tuple[str, ...]:
        """The columns that the input must have for this operator to run at all."""
        return ()

    def output_schema(self, inputs: Sequence[pa.Schema | None]) -> pa.Schema | None:
        """Return the columns that come out, or None where only running can tell."""
        return None

    def keyed_state(self, batch: pa.RecordBatch, state: OperatorState) -> KeyedState | None:
        """Return the view of the state for one batch; None for an operator without state."""
        return None
