"""From a flow to a graph: what nothing separates runs as one, in stages, with a number and a route for everything."""

import os
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

from headwater import functions as F
from headwater.dataflow.compile import compile_flow
from headwater.dataflow.graph import Graph, Spread
from headwater.dataflow.stream import Flow, Sink, Stream, flow, source
from tests.dataflow.specs import Closed, Wall, readings

TIMED = pa.schema([("sensor", pa.string()), ("at", pa.timestamp("us", "UTC"))])


def same(batch: Any) -> Any:
    """Leave the rows as they are."""
    return batch


def chains(*sinks: Sink, chaining: bool = True) -> list[str]:
    """Return the chains of a flow, each by the names of its operators."""
    return [chain.name for chain in graph_of(*sinks, chaining=chaining).chains]


def graph_of(*sinks: Sink, chaining: bool = True) -> Graph:
    """Compile a flow with these sinks."""
    return compile_flow(flow("graph", *sinks), chaining=chaining)


def step(stream: Stream, name: str, **how: Any) -> Stream:
    """Add a map of this name."""
    return stream.map(same, name=name, **how)


def a_b(**of_b: Any) -> Sink:
    """Two maps in a row, the second with these settings."""
    return step(step(readings(), "a"), "b", **of_b).sink(Wall())


def test_operators_in_a_row_are_one_chain() -> None:
    """Also across a key_by, where one instance owns all keys anyway."""
    keyed = step(readings(), "a").filter(same, name="b").key_by("sensor").stateful(same, name="c")
    assert chains(step(keyed, "d").sink(Wall())) == ["a → b → c → d"]


def test_a_split_ends_a_chain() -> None:
    """Its branches go different ways."""
    yes, no = step(readings(), "a").split(same, name="s")
    assert chains(step(yes, "b").sink(Wall()), no.sink(Wall())) == ["a → s", "b"]


def test_a_window_is_chained_with_what_follows_if_nobody_reads_its_late_rows() -> None:
    timed = source(Closed(TIMED)).with_watermark("at", "10 seconds", name="marks")
    means = timed.key_by("sensor").window(F.window("at", "1 minute")).agg(F.count(), name="mean")
    assert chains(step(means, "b").sink(Wall())) == ["marks → mean → b"]
    assert chains(step(means, "b").sink(Wall()), means.late.sink(Wall())) == ["marks → mean", "b"]
    assert chains(step(means.late, "b").sink(Wall())) == ["marks → mean", "b"]


@pytest.mark.parametrize(
    ("sink", "expected"),
    [
        (a_b(fuse=False), ["a", "b"]),
        (a_b(parallelism=2), ["a", "b"]),
        (step(step(readings(), "a", fuse=False), "b").sink(Wall()), ["a", "b"]),
        (step(step(readings(), "a", parallelism=2), "b", parallelism=2).sink(Wall()), ["a → b"]),
        (
            step(readings(), "a", parallelism=2).key_by("sensor").stateful(same, name="b", parallelism=2).sink(Wall()),
            ["a", "b"],
        ),
        (step(readings(), "a").key_by("sensor").map(same, name="b").sink(Wall()), ["a → b"]),
        (step(step(readings(), "a").union(readings("other")), "b").sink(Wall()), ["a", "b"]),
    ],
    ids=["fuse=False", "parallelism", "fuse=False-before", "equal-parallelism", "keys", "keys-of-one", "union"],
)
def test_what_separates_operators_separates_chains(sink: Sink, expected: list[str]) -> None:
    """Settings, parallelism, keys that are spread, unions."""
    assert chains(sink) == expected


def test_a_stream_with_two_readers_ends_its_chain() -> None:
    """Each reader gets all rows."""
    shared = step(readings(), "a")
    assert chains(step(shared, "b").sink(Wall()), step(shared, "c").sink(Wall())) == ["a", "b", "c"]
    assert chains(step(shared, "b").sink(Wall()), shared.sink(Wall())) == ["a", "b"]


def test_dead_letters_do_not_separate_operators() -> None:
    """They leave the middle of a chain by a route of their own."""
    risky = step(readings(), "a", on_error="dead-letter")
    graph = graph_of(step(risky, "b").sink(Wall(), name="out"), step(risky.errors, "c").sink(Wall(), name="dead"))
    assert [chain.name for chain in graph.chains] == ["a → b", "c"]
    assert ("a", "errors", "c") in [(route.source, route.port, route.target) for route in graph.routes]


def test_without_chaining_every_operator_runs_alone() -> None:
    """To compare, or to let the scheduler see each."""
    assert chains(step(a_b_stream(), "c").sink(Wall()), chaining=False) == ["a", "b", "c"]


def a_b_stream() -> Stream:
    """Two maps in a row."""
    return step(step(readings(), "a"), "b")


def test_stages_count_the_chains_on_the_longest_way() -> None:
    """A union stands behind the later of its inputs."""
    slow = step(step(readings("in"), "a"), "b", fuse=False)
    graph = graph_of(step(slow.union(readings("other")), "c").sink(Wall(), name="out"))
    assert {chain.name: chain.stage for chain in graph.chains} == {"a": 1, "b": 2, "c": 3}
    assert [sink.stage for sink in graph.sinks] == [4]


def test_instances_are_numbered_through_chains_then_sinks() -> None:
    """Each once, without gaps."""
    stream = step(step(readings(), "a", parallelism=3), "b", parallelism=2)
    graph = graph_of(stream.sink(Wall(), name="out"), stream.sink(Wall(), name="copy"))
    assert [list(chain.instances) for chain in graph.chains] == [[0, 1, 2], [3, 4]]
    assert [(sink.name, sink.instance) for sink in graph.sinks] == [("out", 5), ("copy", 6)]
    assert graph.instance_count == 7
    assert (list(graph.targets("b")), list(graph.targets("copy"))) == ([3, 4], [6])
    with pytest.raises(KeyError):
        graph.targets("gone")


@pytest.mark.parametrize(
    ("build", "spread", "key"),
    [
        (lambda s: step(s, "b"), Spread.FORWARD, ()),
        (lambda s: step(s, "b", parallelism=2), Spread.BALANCE, ()),
        (lambda s: step(step(s, "a", parallelism=2), "b", parallelism=2, fuse=False), Spread.FORWARD, ()),
        (lambda s: step(step(s, "a", parallelism=3), "b", parallelism=2), Spread.BALANCE, ()),
        (lambda s: step(step(s, "a", parallelism=3), "b"), Spread.FORWARD, ()),
        (lambda s: s.key_by("sensor").map(same, name="b", parallelism=2), Spread.KEY, ("sensor",)),
        (lambda s: s.key_by("sensor").map(same, name="b"), Spread.FORWARD, ("sensor",)),
        (lambda s: s.key_by("value").key_by("sensor").map(same, name="b", parallelism=2), Spread.KEY, ("sensor",)),
        (lambda s: s.key_by("sensor").union(s).map(same, name="b", parallelism=2), Spread.BALANCE, ()),
        (lambda s: s.union(s).key_by("sensor").map(same, name="b", parallelism=2), Spread.KEY, ("sensor",)),
    ],
)
def test_a_route_spreads_rows_as_its_ends_need(build: Any, spread: Spread, key: tuple[str, ...]) -> None:
    """By key where the stream is keyed, one to one where both ends are as many, else batch by batch."""
    graph = graph_of(build(readings()).sink(Wall()))
    found = {(route.spread, route.key) for route in graph.routes if route.target == "b"}
    assert found == {(spread, key)}


def test_a_sink_gets_all_rows_in_one_queue() -> None:
    """From however many instances."""
    graph = graph_of(step(readings(), "a", parallelism=4).sink(Wall(), name="out"))
    assert [(route.target, route.spread) for route in graph.routes][-1] == ("out", Spread.FORWARD)
    assert len(graph.targets("out")) == 1


def test_a_stream_joined_with_itself_comes_twice() -> None:
    """As SQL's UNION ALL."""
    shared = step(readings(), "a")
    graph = graph_of(shared.union(shared).sink(Wall(), name="out"))
    assert [route.target for route in graph.routes_from("a")] == ["out", "out"]


def test_columns_are_carried_as_far_as_they_are_known() -> None:
    """A select renames, a filter keeps, a function without a schema ends what is known."""
    kept = readings("in").filter(same, name="f").select("value", who="sensor", name="s")
    schemas = graph_of(step(kept, "m").sink(Wall())).schemas
    known = schemas["s"]
    assert known is not None
    assert (known.names, schemas["m"]) == (["value", "who"], None)


FINGERPRINT = """
from headwater.dataflow.compile import compile_flow
from tests.dataflow.test_graph import everything
print(compile_flow(everything()).fingerprint)
"""


def everything(**of_b: Any) -> Flow:
    """A flow with one of everything."""
    yes, no = step(readings("in"), "a", on_error="dead-letter").split(same, name="s")
    both = step(yes, "b", **({"parallelism": 2} | of_b)).union(no.select("sensor", "value", name="sel"))
    counted = both.key_by("sensor", name="key").stateful(same, name="count", parallelism=3)
    return flow("all", counted.sink(Wall(), name="out"))


@pytest.mark.world
def test_a_fingerprint_is_the_same_in_every_process() -> None:
    """State is found again after a restart, whatever seed Python's hashes have."""
    found = {
        subprocess.run(
            [sys.executable, "-c", FINGERPRINT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert found == {compile_flow(everything()).fingerprint}


def test_a_fingerprint_changes_with_the_structure() -> None:
    """Names, keys, parallelism, chaining and order; not with the code inside a function."""
    told = [
        compile_flow(everything()),
        compile_flow(everything(parallelism=4)),
        compile_flow(everything(fuse=False, parallelism=1)),
        compile_flow(everything(), chaining=False),
        graph_of(a_b()),
        graph_of(step(step(readings(), "a"), "c").sink(Wall())),
        graph_of(step(step(readings(), "b"), "a").sink(Wall())),
        graph_of(readings().key_by("sensor").stateful(same, name="a").sink(Wall())),
        graph_of(readings().key_by("value").stateful(same, name="a").sink(Wall())),
    ]
    assert len({graph.fingerprint for graph in told}) == len(told)
    other_code = graph_of(step(step(readings(), "a"), "b").filter(len, name="f").sink(Wall()))
    assert other_code.fingerprint == graph_of(a_b_stream().filter(same, name="f").sink(Wall())).fingerprint
