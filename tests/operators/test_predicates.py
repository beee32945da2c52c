"""A filter's expression means the same whether its kernels are called directly or Arrow runs a plan for it."""

import pickle
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.operators.expressions.predicates import _Direct, _Planned, truth_of

COLUMNS = {"speed": pa.float64(), "count": pa.int8(), "name": pa.string(), "is_new": pa.bool_(), "ratio": pa.float32()}
LITERALS: dict[str, st.SearchStrategy[Any]] = {
    "speed": st.sampled_from([0, 1, -3, 0.5, 1e300, 7]),
    "count": st.sampled_from([0, 1, 127, 300, 0.5]),
    "name": st.sampled_from(["", "a", "b"]),
    "is_new": st.booleans(),
    "ratio": st.sampled_from([0.1, 0.5, 1]),
}
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "speed": st.none() | st.floats(allow_nan=True),
            "count": st.none() | st.integers(-128, 127),
            "name": st.none() | st.text("ab", max_size=2),
            "is_new": st.none() | st.booleans(),
            "ratio": st.none() | st.floats(width=32),
        }
    ),
    max_size=5,
)


@st.composite
def comparisons(draw: st.DrawFn) -> pc.Expression:
    name = draw(st.sampled_from(sorted(COLUMNS)))
    column, literal = pc.field(name), draw(LITERALS[name])
    kind = draw(st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "valid"]))
    match kind:
        case "==":
            return column == literal
        case "!=":
            return column != literal
        case "<":
            return column < literal
        case "<=":
            return column <= literal
        case ">":
            return column > literal
        case ">=":
            return column >= literal
    return column.is_valid()


EXPRESSIONS = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        inner.map(lambda one: ~one),
        st.tuples(inner, inner).map(lambda two: two[0] & two[1]),
        st.tuples(inner, inner).map(lambda two: two[0] | two[1]),
    ),
    max_leaves=6,
)


@given(EXPRESSIONS, ROWS)
def test_kernels_called_directly_say_what_a_plan_says(expression: pc.Expression, rows: list[dict[str, Any]]) -> None:
    batch = pa.RecordBatch.from_pylist(rows, schema=pa.schema(list(COLUMNS.items())))
    direct = truth_of(expression)
    assert isinstance(direct, _Direct)
    assert direct(batch).to_pylist() == _Planned(expression)(batch).to_pylist()


@pytest.mark.parametrize(
    "expression",
    [
        pc.field("count") + 1 > 5,  # in the type of the column: 127 and 1 are too much for it
        pc.field("name").isin(["a", "b"]),
        pc.field("speed").is_null(nan_is_null=True),
        pc.field("speed").cast(pa.int64(), safe=False) == 1,
        pc.scalar(True),
        pc.scalar(1) < pc.scalar(2),
    ],
    ids=str,
)
def test_what_is_no_comparison_of_columns_is_left_to_a_plan(expression: pc.Expression) -> None:
    batch = pa.RecordBatch.from_pylist(
        [{"speed": 1.0, "count": 5, "name": "b"}, {"speed": None, "count": 4, "name": None}],
        schema=pa.schema([(name, COLUMNS[name]) for name in ("speed", "count", "name")]),
    )
    planned = truth_of(expression)
    assert isinstance(planned, _Planned)
    assert len(planned(batch)) == 2


@pytest.mark.parametrize("name", ["it's", 'a "b"', "a: b", "two\nlines", "call: 'less'\nend", "", "ü"])
def test_a_column_may_have_any_name(name: str) -> None:
    """What cannot be told apart in the pickled form is evaluated by a plan."""
    batch = pa.record_batch([pa.array([1, 2, None])], names=[name])
    assert truth_of((pc.field(name) > 1) & pc.field(name).is_valid())(batch).to_pylist() == [False, True, False]


def test_a_column_that_is_not_there_is_named_in_the_error() -> None:
    with pytest.raises(pa.ArrowInvalid, match="speed"):
        truth_of(pc.field("speed") > 1)(pa.record_batch({"name": ["a"]}))


def test_values_that_cannot_be_compared_are_an_error() -> None:
    with pytest.raises(pa.ArrowException):
        truth_of(pc.field("name") > 1)(pa.record_batch({"name": ["a"]}))


def test_an_expression_that_has_travelled_is_still_called_directly() -> None:
    expression = pickle.loads(pickle.dumps((pc.field("speed") > 50.0) & pc.field("name").is_valid()))
    assert isinstance(truth_of(expression), _Direct)
