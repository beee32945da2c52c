"""Beginning, failing and ending."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.connectors import read, to
from headwater.dataflow.stream import flow
from headwater.model.errors import ConnectorError, FlowError, UserCodeError
from headwater.twin.query import QueryEnding
from headwater.twin.sink_query import SinkQuery
from headwater.twin.trouble import TroubleBox
from tests.twin.conftest import RunTwin

pytestmark = pytest.mark.spark


def broken(row: dict[str, Any]) -> dict[str, Any]:
    """Raise at the fifth row."""
    if row["x"] == 5:
        raise ValueError("no fives")
    return row


def counting(first: int, count: int) -> dict[str, Any]:
    """Make numbers."""
    return {"x": list(range(first, first + count))}


def test_a_function_that_raises_stops_the_run_with_the_error_that_headwater_raises(run_twin: RunTwin) -> None:
    """Also on a session that would try the task again a million times."""
    numbers = read.iterable([{"x": number} for number in range(8)], schema=pa.schema([("x", pa.int64())]))
    with pytest.raises(UserCodeError) as raised:
        run_twin(flow("f", numbers.map(broken, name="picky", schema=pa.schema([("x", pa.int64())])).sink(to.nothing())))
    assert (raised.value.operator, raised.value.error, raised.value.row) == ("picky", "ValueError: no fives", '{"x":5}')
    assert "test_running.py" in raised.value.line


def test_an_endless_flow_ends_when_its_time_is_up(run_twin: RunTwin) -> None:
    kept = to.memory()
    status = run_twin(flow("f", read.generator(counting, rate=500).sink(kept)), limit_s=4.0)
    assert status.ending is QueryEnding.TIME_UP
    assert 0 < status.rows_out["memory"] <= status.rows_in["generator"]
    assert [row["x"] for row in kept.rows()] == list(range(len(kept.rows()))), "all of them, in order"


def test_what_a_micro_batch_says_that_is_cut_off_at_the_end_is_no_error(
    run_twin: RunTwin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its Python worker finds that nobody sends rows any more."""
    stop = SinkQuery.stop

    def cut_off(query: SinkQuery) -> None:
        for box in tmp_path.rglob("trouble"):
            TroubleBox(str(box)).tell(pa.ArrowInvalid("Tried reading schema message, was null or length 0"))
        stop(query)

    monkeypatch.setattr(SinkQuery, "stop", cut_off)
    status = run_twin(flow("f", read.generator(counting, rate=500).sink(to.nothing())), limit_s=1.0)
    assert status.ending is QueryEnding.TIME_UP
    assert list(tmp_path.rglob("*.told"))


def test_a_sink_that_cannot_write_stops_the_run_with_its_own_error(run_twin: RunTwin, tmp_path: Path) -> None:
    def refuse(batch: pa.RecordBatch) -> None:
        raise ConnectorError("the disk is full")

    with pytest.raises(ConnectorError, match="the disk is full"):
        run_twin(flow("f", read.iterable([{"x": 1}]).sink(to.call(refuse))))


def test_columns_that_nobody_can_know_are_asked_for(run_twin: RunTwin) -> None:
    nothing = read.iterable([{"x": 1}]).filter(lambda batch: pa.array([False] * batch.num_rows))
    with pytest.raises(FlowError, match="operator 'lost' declares no schema="):
        run_twin(flow("f", nothing.map(broken, name="lost").sink(to.nothing())))
