"""Infers the columns of a stream before any query runs.

Headwater's streams have the columns of their rows; Spark must know them first. If neither a declaration nor an operator
tells, the first rows of the sources go through the operators here in the driver, without state and then with the end of
time, and the result shows the columns. So users' functions are called once more than by the run.
"""

from collections.abc import Callable, Sequence

import pyarrow as pa

from headwater.dataflow.connectors import is_source
from headwater.dataflow.graph import Graph
from headwater.dataflow.stream import ERRORS, Declaration, Input
from headwater.model.errors import FlowError
from headwater.model.time import END_OF_TIME
from headwater.operators.base import Operator
from headwater.operators.chain import NamedOperator, OpenChain, Segment, Turnover, unite
from headwater.operators.stateless import Routing
from headwater.operators.watermarks import OperatorTime
from headwater.spark.sql import bound
from headwater.twin.stateless import EntriesInMemory


class Rehearsal:
    """The first rows of every source, and what the graph makes of them."""

    def __init__(self, graph: Graph, first: Callable[[str], pa.RecordBatch | None]) -> None:
        """Take the function that returns the first rows of a source, or None if it has none."""
        self._graph, self._first = graph, first
        self._rows: dict[Input, pa.RecordBatch | None] = {}

    def schema(self, wanted: Input) -> pa.Schema:
        """Return the columns of a stream; raises FlowError if no row has reached it."""
        rows = self._of(wanted)
        if rows is None:
            raise FlowError(
                f"operator {wanted.operator!r} declares no schema=, and none of the first rows comes out of it; "
                "Structured Streaming must know the columns before it starts, so declare them"
            )
        return rows.schema

    def _of(self, wanted: Input) -> pa.RecordBatch | None:
        if wanted not in self._rows:
            declared = self._graph.by_name[wanted.operator]
            if is_source(declared.part):
                self._rows[wanted] = self._first(wanted.operator)
            else:
                self._rows |= self._play(declared, [self._of(given) for given in declared.inputs])
        return self._rows[wanted]

    def _play(
        self, declared: Declaration, inputs: Sequence[pa.RecordBatch | None]
    ) -> dict[Input, pa.RecordBatch | None]:
        """Run one operator, and return the rows of each of its ports."""
        operator = declared.part
        assert isinstance(operator, Operator)
        batches = [(source, rows) for source, rows in enumerate(inputs) if rows is not None]
        if isinstance(operator, Routing):
            return {Input(declared.name): unite([rows for _, rows in batches]) if batches else None}
        chain = OpenChain(self._graph.name, [bound(NamedOperator(declared.name, operator, declared.line))])
        empty = EntriesInMemory({})
        turnover = Turnover(lambda index: empty, times=[OperatorTime()])
        result = chain.run([Segment(batches, END_OF_TIME)], turnover)
        made = {
            Input(declared.name, port): _united([emission.outputs[place] for emission in result.emissions])
            for place, port in enumerate(operator.ports)
        }
        return {**made, Input(declared.name, ERRORS): _united(result.dead.get(0, []))}


def _united(pieces: Sequence[pa.RecordBatch | None]) -> pa.RecordBatch | None:
    found = [rows for rows in pieces if rows is not None]
    return unite(found) if found else None
