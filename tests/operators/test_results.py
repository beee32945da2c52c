"""What a function returns becomes rows, in the declared columns if there are any, or is refused with a sentence."""

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater as hw
from headwater.model.errors import UserCodeError
from headwater.operators.functions import WrongResult, conform, rows_to_batch, to_batch
from tests.operators.bench import error_of, schema_of, stream, through

DECLARED = pa.schema([("name", pa.string()), ("size", pa.int32())])
TEXTLESS = pa.table({"name": pa.array([None], pa.string()), "size": [2]})
BERLIN = dt.timezone(dt.timedelta(hours=2))


@pytest.mark.parametrize(
    "result",
    [
        pa.RecordBatch.from_pydict({"name": ["a", None], "size": [1, 2]}),
        pa.concat_tables([pa.table({"name": ["a"], "size": [1]}), TEXTLESS]),
        pd.DataFrame({"name": ["a", None], "size": [1, 2]}, index=[7, 9]),
        {"name": ["a", None], "size": [1, 2]},
        [{"name": "a", "size": 1}, {"size": 2}],
        ({"name": "a", "size": 1}, {"size": 2, "name": None}),
    ],
    ids=["batch", "table", "frame", "columns", "rows", "tuple-of-rows"],
)
@pytest.mark.parametrize("schema", [None, DECLARED], ids=["inferred", "declared"])
def test_every_kind_of_result_becomes_rows(result: Any, schema: pa.Schema | None) -> None:
    """With the declared types where they are declared."""
    batch = to_batch(result, schema)
    assert batch.to_pylist() == [{"name": "a", "size": 1}, {"name": None, "size": 2}]
    assert batch.schema.metadata is None
    if schema is not None:
        assert batch.schema == schema


@pytest.mark.parametrize("empty", [pa.table({"name": pa.array([], pa.string())}), pd.DataFrame(), {}, []])
def test_a_result_without_rows_is_no_rows(empty: Any) -> None:
    """Whatever it is made of."""
    assert to_batch(empty, None).num_rows == 0


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (None, "it returned a NoneType; it must return a RecordBatch"),
        (iter([]), "it returned a list_iterator"),
        (7, "it returned a int"),
        ([1, 2], "a row must be a dict of column to value, not a int"),
        ({"name": ["a"]}, "lacks column 'size'"),
        ({"name": ["a"], "size": [1], "odd": [1]}, "has column 'odd'"),
        (pd.DataFrame({"name": ["a"], "size": [1], "odd": [1]}), "has column 'odd'"),
        (pd.DataFrame({"name": ["a"]}), "lacks column 'size'"),
        ([{"name": "a", "odd": 1}], "has column 'odd'"),
        (pa.record_batch({"name": ["a"], "size": [1], "odd": [1]}), "has column 'odd'"),
        (pa.RecordBatch.from_arrays([pa.array([1])] * 3, names=["name", "size", "size"]), "has column 'size' twice"),
        ({"name": ["a"], "size": ["big"]}, "does not fit the declared schema"),
        (pd.DataFrame({"name": ["a"], "size": ["big"]}), "does not fit the declared schema"),
        ([{"name": "a", "size": "big"}], "does not fit the declared schema"),
        ([{"name": "a", "size": 1 << 40}], "does not fit the declared schema"),
        (pa.record_batch({"name": ["a"], "size": [1.5]}), "does not fit the declared schema"),
        (pa.record_batch({"name": ["a"], "size": [[1]]}), "does not fit the declared schema"),
    ],
)
def test_a_result_that_cannot_be_used_is_refused_with_a_sentence(result: Any, sentence: str) -> None:
    """The sentence names the column, against the declared schema."""
    with pytest.raises(WrongResult, match=sentence):
        to_batch(result, DECLARED)


def test_columns_are_brought_to_the_declared_order_and_types() -> None:
    """A whole number fits a fraction, columns may come in any order."""
    batch = conform(pa.record_batch({"b": [1], "a": ["x"]}), pa.schema([("a", pa.large_string()), ("b", pa.float64())]))
    assert batch.to_pylist() == [{"a": "x", "b": 1.0}]


def test_nulls_in_a_column_declared_without_are_refused() -> None:
    """By batch and by row."""
    schema = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    results: list[Any] = [pa.record_batch({"x": pa.array([None], pa.int64())}), [{"x": None}], [{}], {"x": [None]}]
    for result in results:
        with pytest.raises(WrongResult, match="nulls in column 'x'"):
            to_batch(result, schema)


def test_rows_may_have_different_keys() -> None:
    """A column is there if any row has it, and null where a row has not."""
    batch = rows_to_batch([{"a": 1}, {"b": "x"}, {}], None)
    assert batch.to_pylist() == [{"a": 1, "b": None}, {"a": None, "b": "x"}, {"a": None, "b": None}]


ODD_VALUES: list[tuple[str, list[Any], pa.DataType]] = [
    ("nulls", [None, None], pa.null()),
    ("nan", [1.5, None], pa.float64()),
    ("unicode", ["née 🌊", ""], pa.string()),
    ("bytes", [b"\x00\xff", b""], pa.binary()),
    ("lists", [[1, None], []], pa.list_(pa.int64())),
    (
        "structs",
        [{"a": 1, "b": [{"c": "d"}]}, None],
        pa.struct([("a", pa.int64()), ("b", pa.list_(pa.struct([("c", pa.string())])))]),
    ),
    ("zoned", [dt.datetime(2024, 3, 31, 2, 30, tzinfo=dt.UTC), None], pa.timestamp("us", "UTC")),
    ("naive", [dt.datetime.fromisoformat("2024-03-31T02:30"), None], pa.timestamp("us")),
    ("dates", [dt.date(1969, 12, 31), None], pa.date32()),
    ("decimals", [Decimal("1.50"), None], pa.decimal128(5, 2)),
    ("categories", ["a", "b"], pa.dictionary(pa.int8(), pa.string())),
]


@pytest.mark.parametrize(("values", "kind"), [odd[1:] for odd in ODD_VALUES], ids=[odd[0] for odd in ODD_VALUES])
def test_values_of_every_kind_go_through_every_operator_unchanged(values: list[Any], kind: pa.DataType) -> None:
    """By batch with their type, by row with their value."""
    batch = pa.record_batch({"x": pa.array(values, kind)})
    rows = [{"x": value} for value in values]
    untouched = [
        stream().map(lambda batch: batch),
        stream().filter(lambda row: True, form="rows"),
        stream().select("x"),
        stream().flat_map(lambda batch: batch),
        stream().split(lambda batch: [True] * batch.num_rows)[0],
    ]
    for end in untouched:
        assert through(end, batch) == rows
        assert schema_of(end, batch).field("x").type == kind
    assert through(stream().map(lambda row: row, form="rows"), batch) == rows
    assert through(stream().map(lambda row: row, form="rows", schema=batch.schema), batch) == rows


def test_pandas_does_not_tell_nan_from_null() -> None:
    """A NaN that went through a DataFrame comes back as null; a declared schema keeps the type."""
    batch = pa.record_batch({"x": [1.0, float("nan")], "n": pa.array([1, None], pa.int64())})
    end = stream().map(lambda frame: frame, form="pandas", schema=batch.schema)
    assert through(end, batch) == [{"x": 1.0, "n": 1}, {"x": None, "n": None}]
    assert schema_of(end, batch) == batch.schema


def test_zoned_times_go_through_pandas() -> None:
    """The zone stays."""
    at = dt.datetime(2024, 3, 31, 2, 30, tzinfo=BERLIN)
    batch = pa.record_batch({"at": pa.array([at], pa.timestamp("us", "Europe/Berlin"))})
    end = stream().map(lambda frame: frame, form="pandas")
    assert through(end, batch) == [{"at": at}]
    assert schema_of(end, batch).field("at").type.tz == "Europe/Berlin"


values = st.none() | st.integers(-(2**63), 2**63 - 1)
row_lists = st.lists(st.dictionaries(st.sampled_from("abc"), values, max_size=3), min_size=1, max_size=8)


@given(rows=row_lists)
def test_rows_become_columns_and_back(rows: list[dict[str, Any]]) -> None:
    """Whatever keys they have."""
    batch = rows_to_batch(rows, None)
    names = {name for row in rows for name in row}
    assert set(batch.schema.names) == names
    if names:
        assert batch.to_pylist() == [{name: row.get(name) for name in batch.schema.names} for row in rows]


MakeStream = Callable[..., Any]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda **how: stream().map(lambda batch: batch.slice(1), **how), "returned 0 rows for 1; a map keeps"),
        (lambda **how: stream().map(lambda row: None, form="rows", **how), "not a NoneType"),
        (lambda **how: stream().map(lambda row: [row], form="rows", **how), "not a list"),
        (lambda **how: stream().flat_map(lambda row: row, form="rows", **how), "a flat_map returns a list of row"),
        (lambda **how: stream().flat_map(lambda row: "text", form="rows", **how), "a flat_map returns a list of row"),
        (lambda **how: stream().flat_map(lambda row: 5, form="rows", **how), "a flat_map returns a list of row"),
        (lambda **how: stream().filter(lambda batch: batch["x"], **how), "type int64; a filter must return booleans"),
        (lambda **how: stream().filter(lambda batch: [True] * 5, **how), "returned 5 booleans for 1 rows"),
        (lambda **how: stream().filter(lambda batch: True, **how), "it returned a bool; a filter must return one"),
        (lambda **how: stream().split(lambda batch: True, **how)[0], "it returned a bool; a split must return one"),
        (lambda **how: stream().split(lambda batch: "yes", **how)[0], "it returned a str; a split must return one"),
        (lambda **how: stream().split(lambda batch: ["maybe"], **how)[0], "branch 'maybe'; the branches are"),
        (lambda **how: stream().split(lambda batch: [], **how)[0], "returned 0 branches for 1 rows"),
        (lambda **how: stream().split(lambda row: None, form="rows", **how)[0], "it returned None for a row"),
        (lambda **how: stream().split(lambda batch: [True], into=("a", "b", "c"), **how)[0], "3 branches"),
    ],
)
def test_an_operator_says_what_is_wrong_with_a_result(make: MakeStream, sentence: str) -> None:
    """And what it should have been."""
    assert sentence in error_of(make, [{"x": 1}])


def test_a_fraction_is_not_cut_off_to_fit_a_whole_number() -> None:
    """Arrow would do so in silence where rows are made one by one."""

    def half(row: hw.Row) -> hw.Row:
        return {"n": row["n"] / 2}

    schema = pa.schema([("n", pa.int64())])
    assert through(stream().map(half, schema=schema), [{"n": 4}]) == [{"n": 2}]
    with pytest.raises(UserCodeError, match=r"its result has 0\.5 in column 'n', which is declared as int64"):
        through(stream().map(half, schema=schema), [{"n": 1}])
