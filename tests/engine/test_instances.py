"""Several instances of one operator over one store, each at its own place in time, give together what one gives."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import functions as F
from headwater.dataflow.stream import Stream, flow, source
from headwater.operators.windows.window_specs import WindowSpec
from tests.dataflow.specs import Closed, Wall
from tests.engine.small_node import SmallNode
from tests.engine.test_event_time import SCHEMA, batch

Row = dict[str, Any]
WINDOWS: dict[str, tuple[WindowSpec, dict[str, Any]]] = {
    "tumbling": (F.window("t", "10 seconds"), {}),
    "sliding": (F.window("t", "10 seconds", "5 seconds"), {}),
    "lateness": (F.window("t", "10 seconds"), {"lateness": "7 seconds"}),
    "early": (F.window("t", "20 seconds", "10 seconds"), {"early_rows": 2}),
    "session": (F.session_window("t", "4 seconds"), {}),
}


def counted(name: str) -> Callable[[Stream, int], Stream]:
    """Return windows that count."""
    window, how = WINDOWS[name]
    aggregates = (F.count(), F.collect_list("t"))
    return lambda rows, instances: rows.key_by("k").window(window, **how).agg(*aggregates, parallelism=instances)


CASES = {name: counted(name) for name in WINDOWS} | {
    "applied": lambda rows, instances: (
        rows.key_by("k")
        .window(F.window("t", "10 seconds", "5 seconds"))
        .apply(lambda batch: {"rows": [batch.num_rows]}, parallelism=instances)
    ),
    "dedup": lambda rows, instances: rows.dedup("k", event_time="t", within="100 seconds", parallelism=instances),
    "best": lambda rows, instances: (
        rows.key_by("k").window(F.window("t", "9 seconds", "3 seconds")).top_k(1, "t", parallelism=instances)
    ),
}


def run(
    build: Callable[[Stream, int], Stream], rows: list[tuple[str, int]], instances: int, order: list[int]
) -> list[str]:
    """Run rows one by one, each time on the instance that `order` says, and return what comes out."""
    made = build(source(Closed(SCHEMA)).with_watermark("t", "2 seconds", name="marks"), instances)
    ends = [made.sink(Wall(), name="out")]
    node = SmallNode(flow("many", *ends))
    for key, second in rows:
        node.feed(batch(second, key=key))
    node.end()
    turns = iter(order * (1 + len(rows)))
    while ready := [one for one in node.instances if node.has_work(one)]:
        report = node.turn(ready[next(turns, 0) % len(ready)], 1)
        assert report.trouble is None
    assert node.ledger().balanced
    return sorted(str(row) for row in node.write_out("out"))


@pytest.mark.parametrize("name", CASES)
@given(
    rows=st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 3)), min_size=1, max_size=25),
    order=st.lists(st.integers(0, 7), min_size=1, max_size=20),
)
def test_instances_that_run_apart_lose_nothing(name: str, rows: list[tuple[str, int]], order: list[int]) -> None:
    """However far one is ahead of the others."""
    times, moving = [], 0
    for key, step in rows:
        moving += step * 2
        times.append((key, moving))
    assert run(CASES[name], times, 3, order) == run(CASES[name], times, 1, [0])


def test_the_case_that_was_lost() -> None:
    """In order, none late, two keys: an instance that was ahead made the rows of the other late."""
    rows = [("ab"[number % 2], number) for number in range(60)]
    for order in ([0], [1], [0, 1], [1, 1, 0]):
        assert run(CASES["sliding"], rows, 2, order) == run(CASES["sliding"], rows, 1, [0])
