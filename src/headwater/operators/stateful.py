"""Operators that remember something for every key."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from headwater.model.keys import keyed_rows
from headwater.operators import functions
from headwater.operators.base import Effect, Logic
from headwater.operators.functions import Form, WrongResult
from headwater.operators.state import KeyedState, OperatorState
from headwater.operators.stateless import UserOperator


@dataclass(frozen=True, kw_only=True)
class Stateful(UserOperator):
    """A user's function over batches of many keys, with the state of those keys at hand.

    Arrow and pandas functions get the batch and its `KeyedState`. A row function gets one row and the value of its key
    (None at first) and returns a pair: a row, a list of rows or None; and the key's new value.
    """

    kind: ClassVar[str] = "stateful"
    effect: ClassVar[Effect] = Effect.CHANGES
    key_columns: tuple[str, ...]

    def open(self) -> Logic:
        """Return the logic."""
        return StatefulLogic(self)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that make the key."""
        return self.key_columns

    @property
    def state_settings(self) -> Mapping[str, object]:
        """Values are the function's own: the next version has to understand those that this one kept."""
        return {}

    @property
    def columns_needed(self) -> tuple[str, ...]:
        """The key has to be there."""
        return self.key_columns

    def keyed_state(self, batch: pa.RecordBatch, state: OperatorState) -> KeyedState:
        """Read the state of all keys of the batch."""
        return KeyedState(keyed_rows(batch, self.key_columns), state)


class StatefulLogic:
    """Runs a stateful function."""

    def __init__(self, config: Stateful) -> None:
        """Keep the configuration."""
        self._config = config

    def run(self, batch: pa.RecordBatch, state: KeyedState | None) -> Sequence[pa.RecordBatch]:
        """Call the function with the rows and their state."""
        assert state is not None, "a stateful operator was run without state"
        config = self._config
        if config.form is not Form.ROWS:
            return (functions.call_for_rows(config.function, config.form, batch, config.schema, (state,)),)
        return (functions.rows_to_batch(self._row_by_row(batch, state), config.schema),)

    def _row_by_row(self, batch: pa.RecordBatch, state: KeyedState) -> list[Any]:
        values = state.values()
        made: list[Any] = []
        for row, code in zip(batch.to_pylist(), state.codes.tolist(), strict=True):
            answer = self._config.function(row, values[code])
            if not isinstance(answer, tuple) or len(answer) != 2:
                raise WrongResult(
                    "a stateful row function returns a pair: the rows to send on, and the key's new value"
                )
            out, values[code] = answer
            made.extend(out if isinstance(out, list) else [] if out is None else [out])
        state.put_values(values)
        return made
