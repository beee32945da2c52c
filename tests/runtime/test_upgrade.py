"""Another version of a flow goes on where the one before stood, on the store of one node."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headwater as hw
from headwater.dataflow.stream import Stream
from headwater.engine.status import AppState
from headwater.model.errors import FlowError
from headwater.model.ids import AppId
from headwater.model.store_layout import RUBBISH_PREFIX, app_prefixes
from headwater.runtime.app import NodeApp
from headwater.runtime.node import Node
from headwater.runtime.registry import Upgrade
from headwater.workers.config import NodeConfig
from tests.runtime.flows import SENSORS, count_and_sum, made_rows

PATIENCE_S = 60.0


@pytest.fixture
def on_store(tmp_path: Path) -> Callable[[], Any]:
    """Nodes on threads, one after the other on the same store."""

    @contextmanager
    def start() -> Iterator[Node]:
        with Node(NodeConfig(store=tmp_path / "store", workers=2, spark=False)) as node:
            yield node

    return start


def counting(
    rows: int, sink: Any, change: Callable[[Stream], Stream] = lambda made: made, key: str = "sensor"
) -> hw.Flow:
    """Counts and sums by sensor, over rows that a version may change on their way."""
    made = change(hw.read.generator(made_rows, rows=rows, name="made"))
    return hw.flow("f", made.key_by(key).stateful(count_and_sum, name="counts", parallelism=2).sink(sink, name="out"))


def even_in_hundreds(made: Stream) -> Stream:
    """Another version: odd numbers are left out, and a column is added."""
    even = made.filter(lambda batch: pc.equal(pc.bit_wise_and(batch["n"], 1), 0), name="even")
    return even.map(lambda batch: batch.append_column("hundreds", pc.divide(batch["n"], 100)), name="hundreds")


def ended(node: Node, flow: hw.Flow, **how: Any) -> NodeApp:
    """Run a flow to its end."""
    app = node.deploy(flow, **how)
    assert node.wait(app, PATIENCE_S)
    assert node.ledger(app).balanced
    return app


def test_counts_continue_across_an_upgrade_that_adds_a_filter_and_a_column(on_store: Any) -> None:
    """The source goes on behind the rows of the version before, and every sensor with what it had come to."""
    out = hw.to.memory()
    with on_store() as node:
        ended(node, counting(1_000, hw.to.nothing()))
    with on_store() as node:
        app = ended(node, counting(1_500, hw.to.nothing(), even_in_hundreds), upgrade=Upgrade())
        assert node.ledger(app).rows_in == 500
    with on_store() as node:
        ended(node, counting(1_600, out, even_in_hundreds), upgrade=Upgrade(given_up=("out",)))
    seen = [*range(1_000), *range(1_000, 1_600, 2)]
    for sensor in range(SENSORS):
        mine = [n for n in seen if n * 7 % SENSORS == sensor]
        last = [row for row in out.rows() if row["sensor"] == f"s{sensor}"][-1]
        assert (last["count"], last["sum"], last["hundreds"]) == (len(mine), sum(mine), mine[-1] // 100)


def test_another_version_is_refused_without_the_wish_to_upgrade_and_told_why(on_store: Any) -> None:
    with on_store() as node:
        ended(node, counting(100, hw.to.nothing()))
    with on_store() as node:
        with pytest.raises(FlowError, match=r"another version of flow 'f'.*--upgrade"):
            node.deploy(counting(100, hw.to.nothing(), even_in_hundreds))
        with pytest.raises(FlowError, match=r"by key .sensor., and would look for it by key .n.*--upgrade"):
            node.deploy(counting(100, hw.to.nothing(), key="n"))


def test_a_refused_upgrade_changes_nothing(on_store: Any) -> None:
    """The version before goes on as if nobody had tried."""
    out = hw.to.memory()
    with on_store() as node:
        ended(node, counting(100, hw.to.nothing()))
        with pytest.raises(FlowError, match="would look for it by key"):
            node.deploy(counting(200, hw.to.nothing(), key="n"), upgrade=Upgrade())
        ended(node, counting(200, out), upgrade=Upgrade(given_up=("out",)))
    assert len(out.rows()) == 100
    assert max(row["count"] for row in out.rows()) == -(-200 // SENSORS)


def test_rows_that_wait_for_the_version_before_have_to_be_let_through_first(on_store: Any) -> None:
    """What they would be for another structure, nobody can say."""
    out = hw.to.memory()

    def raising(batch: pa.RecordBatch, state: hw.KeyedState) -> pa.RecordBatch:
        raise ValueError("not today")

    def version(function: Any, *, changed: bool = False) -> hw.Flow:
        made = hw.read.generator(made_rows, rows=300, name="made")
        made = made.filter(hw.col("n") >= 0) if changed else made
        return hw.flow("f", made.key_by("sensor").stateful(function, name="counts").sink(out, name="out"))

    with on_store() as node:
        assert ended(node, version(raising)).state is AppState.FAILED
        with pytest.raises(FlowError, match=r"300 rows still wait.*--drain"):
            node.deploy(version(count_and_sum, changed=True), upgrade=Upgrade())
    with on_store() as node:
        app = ended(node, version(count_and_sum), reads=False)
        assert (app.state, len(out.rows())) == (AppState.STOPPED, 300)
    with on_store() as node:
        ended(node, version(count_and_sum, changed=True), upgrade=Upgrade())
    assert len(out.rows()) == 300


def test_nothing_is_left_of_a_version_that_was_replaced_nor_of_an_upgrade_that_was_cut_off(on_store: Any) -> None:
    """Whoever opens the store next finds by a note what a node that was killed did not finish."""
    with on_store() as node:
        ended(node, counting(500, hw.to.nothing()))
        with node.store.write() as txn:  # what is there when a node is killed while it copies
            txn.put(RUBBISH_PREFIX + (77).to_bytes(4, "big"), b"")
            txn.put(app_prefixes(AppId(77))[5] + b"half a copy", b"")
    with on_store() as node:
        app = node.deploy(counting(600, hw.to.nothing(), even_in_hundreds), upgrade=Upgrade())
        assert node.wait(app, PATIENCE_S)
        while _rubbish(node):
            pass  # until the housekeeper has been there: the name goes last
        assert _numbers(node) == {app.id}


def _rubbish(node: Node) -> list[bytes]:
    """The names of what is still to be deleted."""
    with node.store.read() as snapshot:
        return [key for key, _ in snapshot.scan(RUBBISH_PREFIX)]


def _numbers(node: Node) -> set[int]:
    """The numbers under which anything lies."""
    letters = {prefix[:1] for prefix in app_prefixes(AppId(1))}
    with node.store.read() as snapshot:
        return {int.from_bytes(key[1:5], "big") for key, _ in snapshot.scan(b"") if key[:1] in letters}
