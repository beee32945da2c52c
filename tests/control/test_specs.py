"""What stewards are told of a graph: which of its chains may begin anew elsewhere while their host is lost."""

from collections.abc import Callable

import pytest

import headwater as hw
from headwater import functions as F
from headwater.control.app_spec import app_spec
from headwater.dataflow.compile import compile_flow
from headwater.dataflow.stream import Stream
from headwater.model.peers import Peer, key_of

NODE = Peer(key_of("node"), "node", "zone")


def same(row: hw.Row) -> hw.Row:
    """Keep nothing."""
    return row


def counted(row: hw.Row, seen: int | None) -> tuple[hw.Row, int]:
    """Keep a count."""
    return row, (seen or 0) + 1


def windowed(stream: Stream) -> Stream:
    """Count by minute."""
    return stream.with_watermark("at", "1 s").key_by("k").window(F.window("at", "1 minute")).agg(F.count())


FLOWS: dict[str, tuple[Callable[[Stream], Stream], list[bool]]] = {
    "maps alone": (lambda rows: rows.map(same).filter(hw.col("n") > 1), [True, True]),
    "before state": (lambda rows: rows.map(same).key_by("k").stateful(counted), [False, False]),
    "several before state": (
        lambda rows: rows.map(same, parallelism=2).key_by("k").stateful(counted),
        [True, True, False],
    ),
    "behind state": (lambda rows: rows.key_by("k").stateful(counted).map(same), [False, True]),
    "before a window": (lambda rows: windowed(rows.map(same)), [False, False, False]),
    "behind a window": (lambda rows: windowed(rows).map(same), [False, False, True]),
    "without repeats": (lambda rows: rows.map(same).dedup("k"), [False, False]),
}


@pytest.mark.parametrize("flow", FLOWS)
def test_chains_without_state_may_begin_anew_unless_time_matters_to_what_follows(flow: str) -> None:
    """Rows that wait on a lost disk would be late there, or come to state after later ones of their key.

    Several instances of a map do not keep rows in order anyway. A sink stays with what it has written.
    """
    made, expected = FLOWS[flow]
    stream = made(hw.read.iterable([]))
    graph = compile_flow(hw.flow("flow", stream.sink(hw.to.memory())), chaining=False)
    *chains, sink = app_spec(graph, [NODE], b"").chains
    assert [(chain.is_stateless, chain.keeps) for chain in chains] == [(one, True) for one in expected]
    assert (sink.is_stateless, sink.keeps) == (False, True)


def test_a_chain_is_as_bound_as_its_most_bound_operator() -> None:
    graph = compile_flow(
        hw.flow("flow", hw.read.iterable([]).key_by("k").stateful(counted).map(same).sink(hw.to.memory()))
    )
    chain, _ = app_spec(graph, [NODE], b"").chains
    assert (chain.operators, chain.is_stateless) == (2, False)
