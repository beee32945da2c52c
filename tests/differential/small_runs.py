"""A flow run by hand, turn by turn, on a store in memory: quick enough for hypothesis."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from headwater.dataflow.stream import Stream, flow, source
from tests.dataflow.specs import Closed, Wall
from tests.engine.small_node import ALL, SmallNode

Row = dict[str, Any]


def run_small(
    build: Callable[..., Mapping[str, Stream]],
    *inputs: Sequence[pa.RecordBatch],
    rows_max: int = ALL,
    chaining: bool = True,
) -> dict[str, list[Row]]:
    """Feed the inputs in turn, run all turns of at most so many rows, and return what each sink gets."""
    names = [f"input-{number}" for number in range(len(inputs))]
    streams = [
        source(Closed(batches[0].schema if batches else None), name=name)
        for name, batches in zip(names, inputs, strict=True)
    ]
    outputs = build(*streams)
    node = SmallNode(
        flow("small", *(stream.sink(Wall(), name=name) for name, stream in outputs.items())), chaining=chaining
    )
    for number in range(max(map(len, inputs))):
        for name, batches in zip(names, inputs, strict=True):
            if number < len(batches):
                node.feed(batches[number], source=name)
        if number % 2:
            node.settle(rows_max)
    for name in names:
        node.end(name)
    node.settle(rows_max)
    assert node.ledger().balanced
    return {name: node.write_out(name) for name in outputs}
