"""Running operators on rows without an engine: a chain on the bench, with a dict for its state."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from headwater.dataflow.stream import KeyedStream, Stream
from headwater.operators.base import Operator
from headwater.operators.chain import ChainResult, NamedOperator, OpenChain, Segment, Turnover
from headwater.operators.state import StateStore
from tests.dataflow.specs import rows_of_any_kind
from tests.operators.timed_bench import DictStore

Row = dict[str, Any]


def stream() -> Stream:
    """Return a stream to hang an operator on."""
    return rows_of_any_kind()


def keyed(*columns: str) -> KeyedStream:
    """Return a stream to hang a stateful operator on."""
    return stream().key_by(*columns)


def operator_of(end: Stream) -> Operator:
    """Return the operator that a stream comes from."""
    part = end.vertex.part
    assert isinstance(part, Operator)
    return part


class Bench:
    """A chain, opened, and the state that its turns have committed."""

    def __init__(self, *ends: Stream) -> None:
        """Open the operators that these streams come from, as one chain: op0, op1 and so on."""
        named = [NamedOperator(f"op{index}", operator_of(end)) for index, end in enumerate(ends)]
        self.chain = OpenChain("bench", named)
        self.state: dict[int, dict[bytes, bytes]] = {}

    def run(self, rows: Sequence[Row] | pa.RecordBatch) -> ChainResult:
        """Run a turn and commit its state."""
        batch = rows if isinstance(rows, pa.RecordBatch) else pa.RecordBatch.from_pylist(list(rows))
        result = self.chain.run([Segment([(0, batch)])], Turnover(self._store))
        for index, changes in result.state.items():
            kept = self.state.setdefault(index, {})
            for key, value in changes.items():
                if value is None:
                    kept.pop(key, None)
                else:
                    kept[key] = value
        return result

    def _store(self, index: int) -> StateStore:
        return DictStore(self.state.setdefault(index, {}))


def made(result: ChainResult, port: int = 0) -> list[Row]:
    """Return the rows of an output."""
    batches = [emission.outputs[port] for emission in result.emissions]
    return [row for batch in batches if batch is not None for row in batch.to_pylist()]


def letters(result: ChainResult, index: int = 0) -> list[Row]:
    """Return the dead letters of an operator."""
    return [row for batch in result.dead.get(index, []) for row in batch.to_pylist()]


def through(end: Stream, rows: Sequence[Row] | pa.RecordBatch) -> list[Row]:
    """Return what an operator makes of rows."""
    return made(Bench(end).run(rows))


def schema_of(end: Stream, rows: Sequence[Row] | pa.RecordBatch) -> pa.Schema:
    """Return the columns that an operator makes."""
    (emission,) = Bench(end).run(rows).emissions
    batch = emission.outputs[0]
    assert batch is not None
    return batch.schema


def error_of(make: Callable[..., Stream], rows: Sequence[Row] | pa.RecordBatch, **how: Any) -> str:
    """Return the sentence of the first dead letter of an operator that is given on_error="dead-letter"."""
    found = letters(Bench(make(on_error="dead-letter", **how)).run(rows))
    assert found, "nothing went wrong"
    error: str = found[0]["error"]
    return error
