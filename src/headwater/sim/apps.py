"""Apps for the imagined world: flows as users write them, compiled, and told to stewards as real nodes tell them.

Some chains keep nothing, some keep a state for each key, and some have a window behind them, for which time matters;
every flow ends in a sink, which stays where it writes. One flow of each shape is compiled, for all apps of that shape.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import Any, Final

import msgspec
import pyarrow as pa

from headwater.connectors import read, to
from headwater.control.app_spec import app_spec
from headwater.control.messages.app_messages import AppSpec
from headwater.dataflow.compile import compile_flow
from headwater.dataflow.functions import count, window
from headwater.dataflow.graph import Graph
from headwater.dataflow.stream import Stream, flow
from headwater.model.peers import NodeId, Peer

STATEFUL: Final = 0.3  # of all operators behind those at the sources: one in three keeps something
WINDOWED: Final = 0.2  # of all flows with room for one end in a window, for which time matters, also to all before it
WINDOW_OPERATORS: Final = 2  # the watermark, and the window
SHAPES_MAX: Final = 10_000  # that are remembered: all there are of up to thirteen operators
SCHEMA: Final = pa.schema({"k": pa.string(), "at": pa.timestamp("us", "UTC")})

Row = Mapping[str, Any]


def random_spec(
    rng: Random, name: str, sources: Sequence[Peer], key: NodeId, *, operators: int, stateful: float = STATEFUL
) -> AppSpec:
    """Return an app of so many operators, each a chain of its own, and a sink; some of them keep something."""
    behind = max(0, operators - len(sources))
    is_windowed = stateful > 0 and behind >= WINDOW_OPERATORS and rng.random() < WINDOWED
    keeps = tuple(rng.random() < stateful for _ in range(behind - WINDOW_OPERATORS * is_windowed))
    spec = app_spec(_graph(len(sources), keeps, is_windowed), sources, b"a flow", key)
    return msgspec.structs.replace(spec, name=name)


@lru_cache(SHAPES_MAX)
def _graph(sources: int, keeps: tuple[bool, ...], is_windowed: bool) -> Graph:
    """Compile a flow: a map at each source, then what all feed, and whether each of those keeps something."""
    firsts = [read.iterable([], schema=SCHEMA, name=f"source{one}").map(_same, schema=SCHEMA) for one in range(sources)]
    stream = firsts[0] if sources == 1 else firsts[0].union(*firsts[1:])
    for keeps_something in keeps:
        stream = _counted(stream) if keeps_something else stream.map(_same, schema=SCHEMA)
    if is_windowed:
        stream = stream.with_watermark("at", "10 seconds").key_by("k").window(window("at", "1 minute")).agg(count())
    return compile_flow(flow("shape", stream.sink(to.nothing())), chaining=False)


def _counted(stream: Stream) -> Stream:
    return stream.key_by("k").stateful(_count, schema=SCHEMA)


def _same(row: Row) -> Row:
    return row


def _count(row: Row, seen: int | None) -> tuple[Row, int]:
    return row, (seen or 0) + 1
