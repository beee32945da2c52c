"""A union whose streams turn out to have columns of other types stops at the first row that does not go together."""

from typing import Any

import pyarrow as pa
import pytest

from headwater.dataflow.stream import Stream, flow
from headwater.engine.reports import TurnReport
from tests.dataflow.specs import Wall, rows_of_any_kind
from tests.engine.small_node import SmallNode

ONES, XS = [{"a": 1}], [{"a": "x"}]


def merged(*, keyed: bool = False) -> SmallNode:
    """Return a node with two streams without declared columns, and an operator behind their union."""
    both = named("one").union(named("two"), name="both")
    behind: Stream = both.key_by("k") if keyed else both
    return SmallNode(
        flow("merged", behind.filter(lambda batch: batch["a"].is_valid(), name="pass").sink(Wall(), name="out"))
    )


def named(name: str) -> Stream:
    """Return a source under a name."""
    return Stream(type(rows_of_any_kind().vertex)(rows_of_any_kind().vertex.part, (), name))


def trouble(report: TurnReport) -> Any:
    """Return what a turn is stopped by."""
    assert report.trouble is not None
    return report.trouble


@pytest.mark.parametrize("keyed", [False, True])
def test_streams_of_other_types_stop_at_the_first_row_that_does_not_go_together(keyed: bool) -> None:
    """Also in a turn of its own, and across a restart: what came before is kept with the queue."""
    node = merged(keyed=keyed)
    node.feed([{"a": 1, "k": 1}], source="one")
    node.turn("pass")
    node.begin_term()
    node.feed([{"a": "x", "k": 2}], source="two")
    told = trouble(node.turn("pass"))
    assert told.operator == "both"
    assert "column 'a' is a string in this row, and was a bigint in rows of another stream" in told.error
    assert '.cast("string")' in told.error
    assert "test_shapes.py" in told.line
    assert told.row.startswith('{"a":"x"')


def test_rows_of_both_in_one_turn_are_held_against_one_another() -> None:
    """They may lie behind one another in the queue."""
    node = merged()
    node.feed(ONES, source="one")
    node.feed(XS, source="two")
    reports = [node.turn("pass")]
    if reports[0].trouble is None:
        reports.append(node.turn("pass"))
    assert trouble(reports[-1]).operator == "both"


def test_types_that_one_type_holds_go_together() -> None:
    """As within one stream without a schema: nulls, whole numbers, fractions; and a column may be lacking."""
    node = merged()
    for rows, source in (([{"a": None}], "one"), (ONES, "two"), ([{"a": 1.5}], "one"), ([{"a": 2, "b": "x"}], "two")):
        node.feed(rows, source=source)
        assert node.turn("pass").trouble is None


def test_streams_without_a_union_are_not_held_against_anything() -> None:
    """One stream may say what it likes, as far as its operators take it."""
    node = SmallNode(flow("alone", named("one").filter(lambda batch: batch["a"].is_valid(), name="pass").sink(Wall())))
    for rows in (ONES, XS):
        node.feed(rows, source="one")
        assert node.turn("pass").trouble is None


def test_declared_columns_need_no_looking_at() -> None:
    """The compiler has held them against one another."""
    declared = pa.schema([("a", pa.int64())])
    both = (
        named("one")
        .map(lambda batch: batch, schema=declared, name="m")
        .union(named("two").map(lambda batch: batch, schema=declared, name="n"), name="both")
    )
    node = SmallNode(
        flow("known", both.filter(lambda batch: batch["a"].is_valid(), name="pass").sink(Wall(), name="out"))
    )
    assert node.graph.open_unions("pass") == {}
    assert merged().graph.open_unions("pass")[0].name == "both"
