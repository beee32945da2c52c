"""Rows of a key folded into one, row by row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from headwater.model.keys import keyed_rows
from headwater.operators.base import Effect, Logic, Operator
from headwater.operators.functions import UserFunction, WrongResult, rows_to_batch
from headwater.operators.state import KeyedState, OperatorState


@dataclass(frozen=True, kw_only=True)
class Reduce(Operator):
    """Folds the rows of every key with `function(so_far, row)`, and sends on what it has come to after every row.

    The first row of a key goes on as it is. What the function returns has the columns and types of its rows.
    """

    kind: ClassVar[str] = "reduce"
    effect: ClassVar[Effect] = Effect.KEEPS
    key_columns: tuple[str, ...]
    function: UserFunction

    def open(self) -> Logic:
        """Return the logic."""
        return ReduceLogic(self)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that make the key."""
        return self.key_columns

    @property
    def state_settings(self) -> Mapping[str, object]:
        """What rows have come to is a row, whatever the function."""
        return {}

    @property
    def columns_needed(self) -> tuple[str, ...]:
        """The key has to be there."""
        return self.key_columns

    def output_schema(self, inputs: Sequence[pa.Schema | None]) -> pa.Schema | None:
        """Folding leaves the columns alone."""
        return inputs[0]

    def keyed_state(self, batch: pa.RecordBatch, state: OperatorState) -> KeyedState:
        """Read what the keys of the batch have come to."""
        return KeyedState(keyed_rows(batch, self.key_columns), state)


class ReduceLogic:
    """Runs a reduce."""

    def __init__(self, config: Reduce) -> None:
        """Keep the configuration."""
        self._config = config

    def run(self, batch: pa.RecordBatch, state: KeyedState | None) -> Sequence[pa.RecordBatch]:
        """Fold the rows, one by one."""
        assert state is not None, "a reduce was run without state"
        values = state.values()
        made: list[Any] = []
        for row, code in zip(batch.to_pylist(), state.codes.tolist(), strict=True):
            before = values[code]  # given as a copy: what was sent on must not change with it
            folded = row if before is None else self._config.function(dict(before), row)
            if not isinstance(folded, Mapping):
                raise WrongResult(f"it returned a {type(folded).__name__}; a reduce function returns a row, as a dict")
            values[code] = dict(folded)
            made.append(values[code])
        rows = rows_to_batch(made, batch.schema)
        state.put_values(values)
        return (rows,)
