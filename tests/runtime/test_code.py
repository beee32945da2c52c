"""The code of a flow is pickled once, and remembered for as long as the flow is there."""

import gc
import weakref

import headwater as hw
from headwater.dataflow.compile import compile_flow
from headwater.dataflow.graph import Graph
from headwater.workers.local import code
from headwater.workers.local.code import pack_graph


def some_graph() -> Graph:
    rows = hw.read.iterable([{"n": 1}]).map(lambda row: {"n": row["n"] + 1})
    return compile_flow(hw.flow("kept", rows.sink(hw.to.nothing())))


def test_a_graph_is_packed_once() -> None:
    graph = some_graph()
    assert pack_graph(graph) is pack_graph(graph)


def test_code_of_a_graph_that_is_gone_is_not_kept() -> None:
    """A node that runs for a year sees thousands of flows come and go, each with the modules of its user."""
    graph = some_graph()
    pack_graph(graph)
    place, gone = id(graph), weakref.ref(graph)
    assert place in code._packed
    del graph
    gc.collect()
    assert gone() is None
    assert place not in code._packed
