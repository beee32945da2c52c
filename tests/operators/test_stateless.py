"""Operators without state: map, flat map, filter, select and split, on batches, DataFrames and rows."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headwater.model.errors import UserCodeError
from headwater.operators.stateless import KeyBy
from tests.operators.bench import Bench, letters, made, operator_of, stream, through

ROWS = [{"x": 1}, {"x": 2}, {"x": 3}]


def doubled_batch(batch: pa.RecordBatch) -> Any:
    """Return twice the number, by Arrow."""
    return {"x": pc.multiply(batch["x"], 2)}


def doubled_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Return twice the number, by pandas."""
    return frame * 2


def doubled_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return twice the number, by row."""
    return {"x": row["x"] * 2}


@pytest.mark.parametrize("function", [doubled_batch, doubled_frame, doubled_row])
def test_a_map_makes_one_row_of_each(function: Any) -> None:
    """In every form, in order."""
    assert through(stream().map(function), ROWS) == [{"x": 2}, {"x": 4}, {"x": 6}]


def repeated_batch(batch: pa.RecordBatch) -> Any:
    """Return each row as often as its number says, by Arrow."""
    return batch.take([index for index, x in enumerate(batch["x"].to_pylist()) for _ in range(x)])


def repeated_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Return each row as often as its number says, by pandas."""
    return frame.loc[frame.index.repeat(frame.x)]


def repeated_row(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Return each row as often as its number says, by a generator."""
    for _ in range(row["x"]):
        yield row


@pytest.mark.parametrize("function", [repeated_batch, repeated_frame, repeated_row])
def test_a_flat_map_makes_any_number_of_rows(function: Any) -> None:
    """In every form, in order."""
    assert [row["x"] for row in through(stream().flat_map(function), [*ROWS, {"x": 0}])] == [1, 2, 2, 3, 3, 3]


def test_a_flat_map_by_row_may_return_none_a_list_a_tuple_or_a_generator() -> None:
    """None is no row."""
    answers: dict[int, Any] = {1: None, 2: [{"y": 2}], 3: ({"y": n} for n in (3, 4))}
    assert through(stream().flat_map(lambda row: answers[row["x"]], form="rows"), ROWS) == [
        {"y": 2},
        {"y": 3},
        {"y": 4},
    ]


def test_a_flat_map_that_makes_nothing_makes_no_output() -> None:
    """The next operator is not called with an empty batch."""
    called: list[int] = []

    def note(batch: pa.RecordBatch) -> pa.RecordBatch:
        called.append(batch.num_rows)
        return batch

    result = Bench(stream().flat_map(lambda row: None, form="rows"), stream().map(note)).run(ROWS)
    assert (result.emissions, called) == ([], [])


@pytest.mark.parametrize(
    "predicate",
    [
        pc.field("x") > 1,
        lambda batch: pc.greater(batch["x"], 1),
        lambda batch: pa.chunked_array([pc.greater(batch["x"], 1)]),
        lambda batch: batch["x"].to_numpy() > 1,
        lambda batch: [False, True, True],
    ],
    ids=["expression", "array", "chunked", "numpy", "list"],
)
def test_a_filter_keeps_what_its_predicate_is_true_for(predicate: Any) -> None:
    """An expression, or any column of booleans."""
    assert through(stream().filter(predicate), ROWS) == [{"x": 2}, {"x": 3}]


def test_a_filter_by_frame_and_by_row() -> None:
    """A row's answer may be anything that is true or false."""
    assert through(stream().filter(lambda frame: frame.x > 1, form="pandas"), ROWS) == [{"x": 2}, {"x": 3}]
    assert through(stream().filter(lambda row: row["x"] - 1, form="rows"), ROWS) == [{"x": 2}, {"x": 3}]


@pytest.mark.parametrize(
    ("predicate", "form"),
    [
        (pc.field("x") > 1, None),
        (lambda batch: pc.greater(batch["x"], 1), None),
        (lambda batch: [None, None, True], None),
        (lambda frame: frame.x.astype("Int64") > 1, "pandas"),
        (lambda row: None if row["x"] is None else row["x"] > 1, "rows"),
    ],
)
def test_null_is_not_true(predicate: Any, form: Any) -> None:
    """As in SQL: a row of which nobody knows is not kept."""
    rows = [{"x": None}, {"x": 1}, {"x": 3}]
    assert through(stream().filter(predicate, form=form), rows) == [{"x": 3}]


def test_a_select_keeps_orders_and_renames_columns() -> None:
    """Without touching the values."""
    rows = [{"a": 1, "b": "x", "c": None}]
    assert through(stream().select("c", new="a"), rows) == [{"c": None, "new": 1}]


def test_a_select_of_a_column_that_is_not_there_names_it() -> None:
    """Only running could tell."""
    bench = Bench(stream().select("nope"))
    with pytest.raises(Exception, match="needs column 'nope', but the rows have only: x"):
        bench.run(ROWS)


@pytest.mark.parametrize(
    ("function", "form"),
    [
        (lambda batch: pc.greater(batch["x"], 1), None),
        (lambda frame: frame.x > 1, "pandas"),
        (lambda row: row["x"] > 1, "rows"),
        (lambda batch: ["no", "yes", "yes"], None),
        (lambda batch: pa.array(["no", "yes", "yes"]).dictionary_encode(), None),
        (lambda batch: pa.chunked_array([["no"], ["yes", "yes"]]), None),
        (lambda frame: frame.x.map({1: "no", 2: "yes", 3: "yes"}), "pandas"),
        (lambda row: "yes" if row["x"] > 1 else "no", "rows"),
    ],
)
def test_a_split_sends_each_row_to_one_branch(function: Any, form: Any) -> None:
    """By a boolean or by a branch's name, in every form, in order."""
    result = Bench(stream().split(function, form=form)[0]).run(ROWS)
    assert (made(result, 0), made(result, 1)) == ([{"x": 2}, {"x": 3}], [{"x": 1}])


def test_a_split_has_any_number_of_branches() -> None:
    """One of them may stay empty."""
    result = Bench(stream().split(lambda batch: ["c", "a", "c"], into=("a", "b", "c"))[0]).run(ROWS)
    assert [made(result, port) for port in range(3)] == [[{"x": 2}], [], [{"x": 1}, {"x": 3}]]


def test_a_null_boolean_of_a_batch_goes_to_the_second_branch() -> None:
    """Not true is else, as in SQL's CASE; no row is lost."""
    result = Bench(stream().split(lambda batch: pc.greater(batch["x"], 1))[0]).run([{"x": None}, {"x": 2}])
    assert (made(result, 0), made(result, 1)) == ([{"x": 2}], [{"x": None}])


def test_a_row_without_a_branch_is_an_error_whatever_rows_are_around_it() -> None:
    """Alone or among others: the outcome of a row must not depend on how rows are cut into batches."""

    def run(rows: list[dict[str, Any]]) -> list[str]:
        end = stream().split(lambda row: row["x"], form="rows", on_error="dead-letter")[0]
        return [letter["row"] for letter in letters(Bench(end).run(rows))]

    assert run([{"x": None}]) == run([{"x": True}, {"x": None}, {"x": False}]) == ['{"x":null}']


def test_routing_operators_never_run() -> None:
    """They live in the routes."""
    assert isinstance(operator_of(stream().key_by("x")), KeyBy)
    with pytest.raises(AssertionError, match="key_by is a matter of routing"):
        Bench(stream().key_by("x"))


def test_a_select_reaches_into_a_struct_by_dots() -> None:
    """As PySpark does; a column whose own name has a dot comes first."""
    rows = [{"w": {"start": 1, "end": 2}, "a.b": 3}]
    assert through(stream().select("w.start", "a.b", last="w.end"), rows) == [{"start": 1, "b": 3, "last": 2}]
    with pytest.raises(UserCodeError, match=r"needs column 'w\.middle'"):
        through(stream().select("w.middle"), rows)
