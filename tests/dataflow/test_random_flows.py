"""Any flow that the API lets one write compiles to a graph in which everything has its place."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.dataflow.compile import compile_flow
from headwater.dataflow.graph import Graph, Spread
from headwater.dataflow.stream import Flow, Stream, flow
from headwater.operators.base import Operator
from headwater.operators.stateless import Routing
from tests.dataflow.specs import Wall, readings


def same(batch: Any) -> Any:
    """Leave the rows as they are."""
    return batch


@st.composite
def flows(draw: st.DrawFn) -> Flow:
    """Draw a flow: streams grow by any operator from any stream there is, and all loose ends get a sink."""
    streams: list[Stream] = [readings() for _ in range(draw(st.integers(1, 3)))]
    used: set[int] = set()
    for _ in range(draw(st.integers(0, 12))):
        at = draw(st.integers(0, len(streams) - 1))
        used.add(at)
        streams += draw_step(draw, streams, streams[at], used)
    loose = [stream for index, stream in enumerate(streams) if index not in used]
    return flow("random", *(stream.sink(Wall()) for stream in loose or streams[:1]))


def draw_step(draw: st.DrawFn, streams: list[Stream], stream: Stream, used: set[int]) -> list[Stream]:
    """Draw one operator behind a stream and return the streams that come out of it."""
    how: dict[str, Any] = {"parallelism": draw(st.sampled_from([1, 1, 1, 2, 3]))}
    fuse = draw(st.booleans())
    match draw(st.sampled_from(["map", "filter", "errors", "select", "split", "union", "key_by", "stateful"])):
        case "map":
            return [stream.map(same, **how, fuse=fuse, schema=READ)]
        case "filter":
            return [stream.filter(same, **how, fuse=fuse)]
        case "errors":
            risky = stream.map(same, **how, on_error="dead-letter", schema=READ)
            return [risky, risky.errors.map(same, schema=READ)]
        case "select":
            return [stream.select("sensor", "value", fuse=fuse)]
        case "split":
            return list(stream.split(same, into=("a", "b", "c"), **how))
        case "union":
            other = draw(st.integers(0, len(streams) - 1))
            used.add(other)
            return [stream.union(streams[other])]
        case "key_by":
            return [stream.key_by("sensor")]
        case _:
            return [stream.key_by("sensor").stateful(same, **how, schema=READ)]


READ = readings().vertex.part.schema  # type: ignore[union-attr]


@settings(max_examples=150, deadline=None)
@given(built=flows(), chaining=st.booleans())
def test_everything_has_its_place(built: Flow, chaining: bool) -> None:
    """Every operator in one chain, every chain and sink reached, stages rising, numbers without gaps."""
    graph = compile_flow(built, chaining=chaining)
    check_chains(graph)
    check_routes(graph)
    numbers = [number for chain in graph.chains for number in chain.instances]
    assert [*numbers, *(sink.instance for sink in graph.sinks)] == list(range(graph.instance_count))
    assert compile_flow(built, chaining=chaining).fingerprint == graph.fingerprint


def check_chains(graph: Graph) -> None:
    """Every operator that touches rows is in exactly one chain, with its own parallelism."""
    running = [
        one.name for one in graph.declarations if isinstance(one.part, Operator) and not isinstance(one.part, Routing)
    ]
    chained = [name for chain in graph.chains for name in chain.operators]
    assert sorted(chained) == sorted(running)
    for chain in graph.chains:
        assert {graph.by_name[name].parallelism for name in chain.operators} == {chain.parallelism}
        assert all(len(graph.operator(name).ports) == 1 for name in chain.operators[:-1])


def check_routes(graph: Graph) -> None:
    """Routes leave the end of a chain or its errors, reach every head and sink, and lead to later stages."""
    stage_of = {name: chain.stage for chain in graph.chains for name in chain.operators}
    stage_of |= dict.fromkeys(graph.sources, 0) | {sink.name: sink.stage for sink in graph.sinks}
    tails = {chain.operators[-1] for chain in graph.chains} | set(graph.sources)
    for route in graph.routes:
        assert stage_of[route.source] < stage_of[route.target]
        assert route.port == "errors" or route.source in tails
        assert (route.spread is Spread.FORWARD) or len(graph.targets(route.target)) > 1
        if route.spread is Spread.FORWARD and len(graph.targets(route.target)) > 1:
            assert graph.by_name[route.source].parallelism == len(graph.targets(route.target))
    assert {route.target for route in graph.routes} == {chain.head for chain in graph.chains} | {
        sink.name for sink in graph.sinks
    }
