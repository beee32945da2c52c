"""Another version of a flow goes on where the one before stood, on the store of one node."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

import headwater as hw
from headwater.dataflow.compile import compile_flow
from headwater.dataflow.stream import Stream
from headwater.engine.status import AppState
from headwater.model.errors import FlowError
from headwater.model.ids import AppId
from headwater.model.store_layout import RUBBISH_PREFIX, app_prefixes, app_record_key
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


class Totals(StatefulProcessor):
    """Adds up numbers by sensor, in a state with these fields, the first of which is the sum."""

    def __init__(self, schema: str) -> None:
        self.schema = schema

    def init(self, handle: Any) -> None:
        self.totals = handle.getValueState("totals", self.schema)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        names = [field.split()[0] for field in self.schema.split(", ")]
        before = dict(zip(names, self.totals.get() or [None] * len(names), strict=True))
        total = (before["sum"] or 0) + sum(row.n for row in rows)
        self.totals.update([total if name == "sum" else before[name] for name in names])
        yield Row(sensor=key[0], sum=total, fields=len(names))


def totals(rows: int, schema: str, sink: Any) -> hw.Flow:
    """A flow with that processor; instances of it run on several workers."""
    made = hw.read.generator(made_rows, rows=rows, name="made")
    sums = made.key_by("sensor").process(
        Totals(schema), "sensor string, sum long, fields int", name="totals", parallelism=2
    )
    return hw.flow("f", sums.sink(sink, name="out"))


def test_a_processor_that_declares_other_fields_goes_on_where_it_stood(on_store: Any) -> None:
    """Without a word, as a query that is started again on its checkpoint, or as an upgrade."""
    out = hw.to.memory()
    with on_store() as node:
        ended(node, totals(100, "sum int", hw.to.nothing()))
    with on_store() as node:
        ended(node, totals(200, "mean double, sum int", hw.to.nothing()))
    with on_store() as node:
        ended(node, totals(300, "sum bigint, last string", hw.to.nothing()), upgrade=Upgrade())
    with on_store() as node:
        ended(node, totals(400, "sum bigint", out), upgrade=Upgrade(given_up=("out",)))
    for sensor in range(SENSORS):
        last = [row for row in out.rows() if row["sensor"] == f"s{sensor}"][-1]
        assert last["sum"] == sum(n for n in range(400) if n * 7 % SENSORS == sensor)


def test_a_processor_that_could_not_read_its_state_is_refused_before_it_runs(on_store: Any) -> None:
    """Started again, upgraded or only checked; and what is kept is as it was."""
    narrower = totals(200, "sum int", hw.to.nothing())
    told = (
        r"process 'totals': \[STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION\].*bigint and would be int.*--discard totals"
    )
    with on_store() as node:
        ended(node, totals(100, "sum bigint", hw.to.nothing()))
    with on_store() as node:
        ended(node, totals(100, "sum bigint, more int", hw.to.nothing()))
    with on_store() as node:
        with pytest.raises(FlowError, match=f"the store holds another version of flow 'f' .*{told}.*--upgrade"):
            node.deploy(narrower)
        with pytest.raises(FlowError, match=told):
            node.deploy(narrower, upgrade=Upgrade())
        with pytest.raises(FlowError, match=told):
            node.registry.check(compile_flow(narrower), Upgrade())
        with pytest.raises(FlowError, match="MUST_BE_NULLABLE"):
            node.deploy(totals(200, "sum bigint not null", hw.to.nothing()))
        checked = node.registry.check(compile_flow(totals(200, "sum double", hw.to.nothing())), Upgrade())
        assert checked.kept == ("made", "totals", "out")
        ended(node, totals(200, "sum bigint", hw.to.nothing()))
    with on_store() as node:
        ended(node, narrower, upgrade=Upgrade(given_up=("totals",)))


def test_a_store_of_before_schemas_were_noted_is_opened_as_it_is(on_store: Any) -> None:
    """Its record says nothing of variables; from the first run on it does."""
    with on_store() as node:
        ended(node, totals(100, "sum bigint", hw.to.nothing()))
        with node.store.write() as txn:
            record = node.registry.find("f")
            assert record is not None
            assert record.manifest is not None
            older = msgspec.structs.replace(record, manifest=record.manifest.form)
            txn.put(app_record_key("f"), msgspec.msgpack.encode(older))
    with on_store() as node:
        ended(node, totals(200, "sum bigint", hw.to.nothing()))
    with on_store() as node, pytest.raises(FlowError, match="SCHEMA_EVOLUTION"):
        node.deploy(totals(300, "sum int", hw.to.nothing()))
