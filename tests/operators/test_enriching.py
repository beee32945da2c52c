"""Enriching from a table: what a join in SQL would give, and a table that may change or fail while rows flow."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.model.errors import ConnectorError, FlowError
from headwater.operators.base import Moment
from headwater.operators.enriching import Enrich
from headwater.operators.functions import WrongResult
from headwater.operators.state import OperatorState
from tests.operators.join_oracle import comparable, is_same_key
from tests.operators.timed_bench import DictStore, Row

S = 1_000_000
NAN = float("nan")
ROOMS = pa.table({"id": ["a", "b"], "room": ["hall", "attic"]})


@dataclass
class Shelf:
    """A table whose versions lie ready; None is one that cannot be had."""

    versions: Sequence[pa.Table | None]
    refresh_us: int | None = None
    asked_us: list[int] = field(default_factory=list)

    def load(self, now_us: int) -> pa.Table:
        """Return the version of the moment."""
        found = self.refresh(now_us)
        if found is None:
            raise ConnectorError("the shelf is empty")
        return found

    def refresh(self, now_us: int) -> pa.Table | None:
        """Return the version of the moment, if there is one."""
        self.asked_us.append(now_us)
        return self.versions[min(len(self.asked_us), len(self.versions)) - 1]


def enrich(table: Any, how: Any = "inner", **more: Any) -> Enrich:
    """Return an enrichment by id."""
    table = table if isinstance(table, Shelf) else Shelf([table])
    return Enrich(**({"table": table, "left_on": ("id",), "right_on": ("id",), "how": how} | more))


def rows_of(operator: Enrich, *batches: list[Row] | pa.RecordBatch, times: Sequence[int] = (0,)) -> list[list[Row]]:
    """Return what becomes of batches that one worker takes at these times."""
    logic = operator.open()
    made = []
    for nth, rows in enumerate(batches):
        batch = rows if isinstance(rows, pa.RecordBatch) else pa.RecordBatch.from_pylist(rows)
        moment = Moment(OperatorState(DictStore({})), now_us=times[min(nth, len(times) - 1)])
        (out,) = logic.rows(batch, 0, moment)
        made.append([] if out is None else out.to_pylist())
        assert list(logic.advance(moment)) == [None]
        assert logic.wake_us(moment) is None
        assert not moment.state.changes, "a table is no state"
    return made


KEYS = st.sampled_from([1.0, 2.0, -0.0, 0.0, NAN, None])


@settings(max_examples=100, deadline=None)
@given(st.lists(KEYS, min_size=1, max_size=8), st.lists(KEYS, max_size=8), st.sampled_from(["inner", "left"]))
def test_every_row_meets_every_row_of_the_table_that_has_its_key(here: list[Any], there: list[Any], how: str) -> None:
    """In order, several times where the table has the key several times; null meets nothing, NaN meets NaN."""
    table = pa.table({"id": pa.array(there, pa.float64()), "n": pa.array(range(len(there)), pa.int64())})
    rows = [{"id": key, "x": nth} for nth, key in enumerate(here)]
    expected: list[Row] = []
    for row in rows:
        found = [nth for nth, key in enumerate(there) if is_same_key(row["id"], key)]
        expected += [row | {"n": nth} for nth in found] or ([row | {"n": None}] if how == "left" else [])
    batch = pa.RecordBatch.from_pylist(rows, schema=pa.schema([("id", pa.float64()), ("x", pa.int64())]))
    assert comparable(*rows_of(enrich(table, how), batch)) == comparable(expected)


def test_columns_of_the_table_follow_those_of_the_row() -> None:
    """Its key is not repeated, a name that is there gets the suffix, and only what is asked for comes along."""
    table = pa.table({"key": ["a"], "room": ["hall"], "x": [7], "more": [8]})
    operator = enrich(table, left_on=("id",), right_on=("key",), suffix="_t")
    assert rows_of(operator, [{"x": 1, "id": "a"}]) == [[{"x": 1, "id": "a", "room": "hall", "x_t": 7, "more": 8}]]
    some = enrich(table, left_on=("id",), right_on=("key",), columns=("more", "key"))
    assert rows_of(some, [{"x": 1, "id": "a"}]) == [[{"x": 1, "id": "a", "more": 8}]]


def test_keys_may_be_of_several_columns_and_of_different_types() -> None:
    """As long as they can be equal at all."""
    table = pa.table({"n": pa.array([1, 2], pa.int8()), "d": [Decimal("1.0"), Decimal("2.0")], "v": ["x", "y"]})
    operator = enrich(table, left_on=("a", "b"), right_on=("n", "d"))
    assert rows_of(operator, [{"a": 2, "b": 2.0}, {"a": 1, "b": 1.0}, {"a": 1, "b": 2.0}]) == [
        [{"a": 2, "b": 2.0, "v": "y"}, {"a": 1, "b": 1.0, "v": "x"}]
    ]
    with pytest.raises(WrongResult, match="can never be equal"):
        rows_of(enrich(ROOMS), [{"id": 1}])


def test_a_table_without_rows_or_without_a_column_says_so() -> None:
    """No rows is a table like any other; a missing column is a mistake."""
    assert rows_of(enrich(ROOMS.slice(0, 0), "left"), [{"id": "a"}]) == [[{"id": "a", "room": None}]]
    with pytest.raises(WrongResult, match="the table lacks column 'floor'; it has only: id, room"):
        rows_of(enrich(ROOMS, columns=("floor",)), [{"id": "a"}])


def test_a_table_is_asked_for_again_when_its_time_has_passed() -> None:
    """Not before, and only when rows need it."""
    shelf = Shelf([ROOMS, pa.table({"id": ["a"], "room": ["cellar"]})], refresh_us=10 * S)
    batches = [[{"id": "a"}]] * 4
    made = rows_of(enrich(shelf), *batches, times=[5 * S, 14 * S, 15 * S, 24 * S])
    assert [row["room"] for (row,) in made] == ["hall", "hall", "cellar", "cellar"]
    assert shelf.asked_us == [5 * S, 15 * S]


def test_a_refresh_that_fails_leaves_the_rows_in_use(caplog: pytest.LogCaptureFixture) -> None:
    """Gone, or without its columns: the old rows do until the next time."""
    half = pa.table({"id": ["a"]})
    shelf = Shelf([ROOMS, None, half, pa.table({"id": ["a"], "room": ["cellar"]})], refresh_us=S)
    operator = enrich(shelf, columns=("room",))
    with caplog.at_level(logging.WARNING):
        made = rows_of(operator, *([[{"id": "a"}]] * 4), times=[0, S, 2 * S, 3 * S])
    assert [row["room"] for (row,) in made] == ["hall", "hall", "hall", "cellar"]
    assert "was not refreshed" in caplog.text


def test_a_table_that_cannot_be_loaded_at_all_stops_the_rows() -> None:
    """Without any rows of the table there is nothing to go on with."""
    with pytest.raises(ConnectorError, match="the shelf is empty"):
        rows_of(enrich(Shelf([None])), [{"id": "a"}])


def test_what_is_no_enrichment_is_refused_when_it_is_built() -> None:
    """Keys that do not pair up, unknown words."""
    with pytest.raises(FlowError, match="as many key columns"):
        enrich(ROOMS, left_on=())
    with pytest.raises(FlowError, match="'inner' or 'left'"):
        enrich(ROOMS, "full")
    assert enrich(ROOMS).columns_needed == ("id",)
