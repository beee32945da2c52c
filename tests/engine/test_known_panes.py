"""What a worker knows by heart of the panes of windows: never anything that another worker could not read."""

import datetime as dt
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import functions as F
from headwater.dataflow.stream import flow, source
from headwater.engine.turn import Assignment, TurnRunner
from headwater.model.entries import ALL_GROUPS, Suffixes, space_prefix
from headwater.operators.columns.cell_names import ranks_of, suffix_of
from headwater.operators.state import Keepsake
from headwater.operators.windows.pane_cache import KnownPanes
from headwater.operators.windows.window_contents import PANES
from headwater.storage.memory_store import MemorySnapshot, MemoryStore, MemoryTransaction
from tests.dataflow.specs import Closed, Wall
from tests.engine.small_node import ALL, SmallNode

Row = dict[str, Any]
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
SCHEMA = pa.schema([("k", pa.string()), ("t", pa.timestamp("us", "UTC")), ("v", pa.int64())])
LONG = "long" * 120  # a key too long for the names of its entries
WINDOWS = {
    "tumbling": lambda: F.window("t", "4 seconds"),
    "sliding": lambda: F.window("t", "6 seconds", "2 seconds"),
    "unevenly sliding": lambda: F.window("t", "5 seconds", "3 seconds"),
}


class Broken:
    """A store that can be read and not written to."""

    def __init__(self, store: MemoryStore) -> None:
        """Show what is in another."""
        self._store = store

    def read(self) -> AbstractContextManager[MemorySnapshot]:
        """Open a snapshot of the other."""
        return self._store.read()

    def write(self) -> AbstractContextManager[MemoryTransaction]:
        """Refuse."""
        raise OSError("broken")


def total(rows: list[Row]) -> list[Row]:
    """Return the sum of a window's rows."""
    return [{"sum": sum(row["v"] for row in rows)}]


def windows(kind: str, contents: str) -> SmallNode:
    """Return a node that sums rows in windows."""
    keyed = source(Closed(SCHEMA), name="rows").with_watermark("t", "1 second").key_by("k")
    if contents == "aggregates":
        summed = keyed.window(WINDOWS[kind](), lateness="3 seconds").agg(F.sum("v"), F.collect_list("v"), name="sums")
    else:
        summed = keyed.window(WINDOWS[kind]()).apply(total, form="rows", name="sums")
    return SmallNode(flow("windows", summed.sink(Wall(), name="out")), store=MemoryStore())


def turn(node: SmallNode, worker: TurnRunner, *, fails: bool) -> None:
    """Let a worker run what waits for the windows, perhaps once in vain before."""
    assignment = Assignment(node.instances[0], ALL)
    if fails:
        assert isinstance(node.store, MemoryStore)
        with pytest.raises(OSError, match="broken"):
            replace(worker, store=Broken(node.store)).run([assignment])
    (report,) = worker.run([assignment])
    assert report.trouble is None, report.trouble


rows = st.lists(st.tuples(st.sampled_from(["a", "b", "c", LONG]), st.integers(-3, 3)), min_size=1, max_size=6)
steps = st.lists(st.tuples(st.integers(0, 1), st.booleans(), rows), min_size=1, max_size=14)


@pytest.mark.parametrize("kind", list(WINDOWS))
@pytest.mark.parametrize("contents", ["aggregates", "rows"])
@given(taken=steps)
def test_workers_that_know_panes_by_heart_do_as_those_that_read_them(
    kind: str, contents: str, taken: Sequence[tuple[int, bool, list[tuple[str, int]]]]
) -> None:
    """Two workers in any order, some of their turns not committed, against workers that never remember anything."""
    node, plain = windows(kind, contents), windows(kind, contents)
    workers = [TurnRunner(node.store, node.term, node.runner.chains, lambda: 0) for _ in range(2)]
    for number, (worker, fails, drawn) in enumerate(taken):
        made = [
            {"k": key, "t": EPOCH + dt.timedelta(seconds=2 * number + apart), "v": number * 10 + place}
            for place, (key, apart) in enumerate(drawn)
        ]
        for one in (node, plain):
            one.feed(pa.RecordBatch.from_pylist(made, schema=SCHEMA))
        turn(node, workers[worker], fails=fails)
        turn(plain, TurnRunner(plain.store, plain.term, plain.runner.chains, lambda: 0), fails=False)
        assert node.write_out("out") == plain.write_out("out")
        assert node.state_of("sums") == plain.state_of("sums")


def test_keys_that_come_and_go_for_ever_keep_their_order() -> None:
    """Every pane has keys of its own, so all that were numbered are gone again and again, amid panes that stay."""
    panes, keys, kept = 40, 200, 5
    known = KnownPanes(ALL_GROUPS)
    suffixes = Suffixes()
    for pane in range(panes):
        names = [space_prefix(PANES, pane) + suffix for suffix in suffixes.of([pane * keys + n for n in range(keys)])]
        known.put([(pane, 0, keys)], names, [b""] * keys)
        found = known.before(pane + 1)
        assert (
            np.argsort(found.ranks).tolist() == np.argsort(ranks_of([suffix_of(name) for name in found.names])).tolist()
        )
        known.drop(pane + 1 - kept)


def test_a_keepsake_outlives_a_turn_only_if_the_turn_is_committed() -> None:
    """Whoever takes it may change it, so it is gone until it is left again, and that counts only once committed."""
    keepsake, first = Keepsake(), KnownPanes(ALL_GROUPS)
    keepsake.leave(first)
    keepsake.settle()
    assert keepsake.take() is first
    keepsake.leave(KnownPanes(ALL_GROUPS))
    keepsake.revert()
    assert keepsake.take() is None


def test_a_keepsake_that_nobody_takes_stays() -> None:
    """A turn that does not touch the state leaves what was worked out from it as it is."""
    keepsake, first = Keepsake(), KnownPanes(ALL_GROUPS)
    keepsake.leave(first)
    keepsake.settle()
    keepsake.revert()
    keepsake.settle()
    assert keepsake.take() is first
