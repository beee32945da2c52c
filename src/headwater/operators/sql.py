"""DataFrame operators: functions from DataFrame to DataFrame, run by Spark SQL as a turn.

What comes out depends on which rows happen to wait together wherever a function looks at several rows at once, as
with `foreachBatch`; a function that works row by row, or joins with a table, gives the same whatever the batches.
Spark is not for this room: the node puts the logic in when the flow is deployed, and runs it where its session is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from headwater.operators.base import Effect, Operator
from headwater.operators.tables import TableSpec

DataFrameFunction = Callable[..., Any]  # DataFrame, and the tables by name, to DataFrame

STREAM: str = "stream"  # what a query calls the rows


@dataclass(frozen=True)
class TransformStep:
    """One function, or one query, of a transform."""

    function: DataFrameFunction | None = None
    query: str | None = None
    tables: tuple[tuple[str, TableSpec], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Transform(Operator):
    """Runs Spark SQL over the waiting rows: one plan for all of its steps."""

    kind: ClassVar[str] = "transform"
    effect: ClassVar[Effect] = Effect.CHANGES
    steps: tuple[TransformStep, ...]
    schema: pa.Schema | None = None

    def open(self) -> Any:
        """Nothing can run it here: a node replaces it by one that knows its Spark session."""
        raise AssertionError("a transform was opened outside a node with Spark")

    def output_schema(self, inputs: Sequence[pa.Schema | None]) -> pa.Schema | None:
        """Return what the user declared; what a plan makes, only Spark can tell."""
        return self.schema
