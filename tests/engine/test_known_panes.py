"""What a worker knows by heart of the panes of windows: never anything that another worker could not read."""

import datetime as dt
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import functions as F
from headwater.dataflow.stream import flow, source
from headwater.engine.turn import Assignment, TurnRunner
from headwater.operators.state import Keepsake
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


class Weather:
    """Whether the function behind the windows raises."""

    def __init__(self) -> None:
        """Begin fair."""
        self.foul = False

    def __call__(self, row: Row) -> Row:
        """Pass the row on."""
        if self.foul:
            raise ValueError("foul")
        return row


def windows(kind: str, lateness: str, weather: Weather) -> SmallNode:
    """Return a node that sums rows in windows."""
    keyed = source(Closed(SCHEMA), name="rows").with_watermark("t", "1 second").key_by("k")
    summed = keyed.window(WINDOWS[kind](), lateness=lateness).agg(F.sum("v"), F.collect_list("v"), name="sums")
    return SmallNode(flow("windows", summed.map(weather, name="weather").sink(Wall(), name="out")))


def turns(node: SmallNode, worker: TurnRunner, weather: Weather, *, foul: bool) -> None:
    """Let a worker run all that waits; in foul weather its first try fails."""
    for instance in node.instances:
        if foul:
            weather.foul = True
            worker.run([Assignment(instance, ALL)])
            weather.foul = False
        (report,) = worker.run([Assignment(instance, ALL)])
        assert report.trouble is None, report.trouble


rows = st.lists(st.tuples(st.sampled_from(["a", "b", "c", LONG]), st.integers(-3, 3)), min_size=1, max_size=6)
steps = st.lists(st.tuples(st.integers(0, 1), st.booleans(), rows), min_size=1, max_size=14)


@pytest.mark.parametrize("kind", list(WINDOWS))
@pytest.mark.parametrize("lateness", ["0 seconds", "3 seconds"])
@given(taken=steps)
def test_workers_that_know_panes_by_heart_do_as_those_that_read_them(
    kind: str, lateness: str, taken: Sequence[tuple[int, bool, list[tuple[str, int]]]]
) -> None:
    """Two workers in any order, some of their turns failing, against a worker that never remembers anything."""
    weathers = Weather(), Weather()
    node, plain = (windows(kind, lateness, weather) for weather in weathers)
    workers = [TurnRunner(node.store, node.term, node.runner.chains, lambda: 0) for _ in range(2)]
    for number, (worker, foul, drawn) in enumerate(taken):
        made = [
            {"k": key, "t": EPOCH + dt.timedelta(seconds=2 * number + apart), "v": number * 10 + place}
            for place, (key, apart) in enumerate(drawn)
        ]
        for one in (node, plain):
            one.feed(pa.RecordBatch.from_pylist(made, schema=SCHEMA))
        turns(node, workers[worker], weathers[0], foul=foul)
        forgetful = TurnRunner(plain.store, plain.term, plain.runner.chains, lambda: 0)
        turns(plain, forgetful, weathers[1], foul=False)
        assert node.write_out("out") == plain.write_out("out")
        assert node.state_of("sums") == plain.state_of("sums")


def test_a_keepsake_outlives_a_turn_only_if_the_turn_is_committed() -> None:
    """Whoever takes it may change it, so it is gone until it is left again, and that counts only once committed."""
    keepsake = Keepsake()
    keepsake.leave("first")
    keepsake.settle()
    assert keepsake.take() == "first"
    keepsake.leave("second")
    keepsake.revert()
    assert keepsake.take() is None


def test_a_keepsake_that_nobody_takes_stays() -> None:
    """A turn that does not touch the state leaves what was worked out from it as it is."""
    keepsake = Keepsake()
    keepsake.leave("first")
    keepsake.settle()
    keepsake.revert()
    keepsake.settle()
    assert keepsake.take() == "first"
