"""Column expressions: what they compute is Spark's, and what does not fit is refused before rows come."""

import datetime as dt
import operator
import pickle
from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater as hw
from headwater import functions as F
from headwater.model.errors import FlowError
from headwater.operators.expressions.evaluating import Evaluation, type_of
from headwater.operators.expressions.trees import Column
from headwater.operators.functions import WrongResult
from tests.operators.bench import Bench, stream

UTC = dt.UTC
AT = dt.datetime(2024, 5, 1, 12, 3, 4, 567_890, tzinfo=UTC)
BEFORE = dt.datetime(1969, 12, 31, 23, 59, 59, 500_000, tzinfo=UTC)
NAIVE = AT.replace(tzinfo=None)
ROWS = pa.record_batch(
    {
        "a": pa.array([1, 2, None], pa.int64()),
        "i": pa.array([1, 0, 3], pa.int32()),
        "f": pa.array([1.5, float("nan"), None]),
        "m": pa.array([Decimal("1.25"), Decimal("-2.00"), None], pa.decimal128(10, 2)),
        "s": ["Zürich", " b ", None],
        "t": pa.array([AT, None, BEFORE], pa.timestamp("us", "UTC")),
        "n": pa.array(["2024-05-01 12:03:00", None, "2024-01-01 00:00:00"]).cast(pa.timestamp("us")),
        "d": pa.array(["x", "y", None]).dictionary_encode(),
        "l": [[1, 2], [], None],
        "w": [{"x": 1}, {"x": 2}, None],
        "p": ["2024-05-01", "2024-05-01 10:00:00", "2024-05-01T10:00:00+02:00"],
        "z": pa.nulls(3),
        "b": [True, False, None],
    }
)
a, b, d, f, i, m, n, p, s, t, w, z = map(hw.col, "abdfimnpstwz")


def anything(given: Any) -> Any:
    """Return what a type checker would not let be written."""
    return given


def values(column: Column) -> list[Any]:
    """Compute an expression over the rows."""
    return list(Evaluation(column).column(ROWS).to_pylist())


@pytest.mark.parametrize(
    ("column", "kind", "expected"),
    [
        (a + 1, pa.int64(), [2, 3, None]),
        (i + 1, pa.int32(), [2, 1, 4]),
        (i + a, pa.int64(), [2, 2, None]),
        (1 - i, pa.int32(), [0, 1, -2]),
        (a / 2, pa.float64(), [0.5, 1.0, None]),
        (i % 2, pa.int32(), [1, 0, 1]),
        (-i % 2, pa.int32(), [-1, 0, -1]),
        (m + 1, pa.decimal128(13, 2), [Decimal("2.25"), Decimal("-1.00"), None]),
        (a**2, pa.float64(), [1.0, 4.0, None]),
        (s + "!", pa.string(), ["Zürich!", " b !", None]),
        (a > 1.5, pa.bool_(), [False, True, None]),
        (d == "x", pa.bool_(), [True, False, None]),
        (t > "2024-01-01", pa.bool_(), [True, None, False]),
        (t > NAIVE.replace(month=1), pa.bool_(), [True, None, False]),
        (t - t, pa.duration("us"), [dt.timedelta(0), None, dt.timedelta(0)]),
        (t + dt.timedelta(hours=1) > AT, pa.bool_(), [True, None, False]),
        (a.isin(1, 5), pa.bool_(), [True, False, None]),
        (a.isin([1, None]), pa.bool_(), [True, None, None]),
        (a.isin(1.0, 2.5), pa.bool_(), [True, False, None]),
        (i.isin(), pa.bool_(), [False, False, False]),
        (d.isin("x"), pa.bool_(), [True, False, None]),
        (a.between(1, 1), pa.bool_(), [True, False, None]),
        (f.is_nan(), pa.bool_(), [False, True, False]),
        (a.is_null() | b, pa.bool_(), [True, False, True]),
        (~b, pa.bool_(), [False, True, None]),
        (w["x"], pa.int64(), [1, 2, None]),
        (hw.col("w.x"), pa.int64(), [1, 2, None]),
        (hw.col("l")[0], pa.int64(), [1, None, None]),
        (hw.lit(1) + 2, pa.int32(), [3, 3, 3]),
        (z > 1, pa.bool_(), [None, None, None]),
        (F.upper(z), pa.null(), [None, None, None]),
        (hw.when(i != 0, a / i).otherwise(-1), pa.float64(), [1.0, -1.0, None]),
        (hw.when(a > 1, "big").when(a > 0, "small"), pa.string(), ["small", "big", None]),
        ((i != 0) & (a / i > 0), pa.bool_(), [True, False, None]),
        ((i == 0) | (a / i > 0), pa.bool_(), [True, True, None]),
        (F.coalesce("a", "i"), pa.int64(), [1, 2, 3]),
        (F.greatest("a", "i"), pa.int64(), [1, 2, 3]),
        (F.least("a", "i"), pa.int64(), [1, 0, 3]),
        (F.round(hw.lit(2.5)), pa.float64(), [3.0] * 3),
        (F.bround(hw.lit(2.5)), pa.float64(), [2.0] * 3),
        (F.floor(hw.lit(-1.5)), pa.int64(), [-2] * 3),
        (F.log(i), pa.float64(), [0.0, None, pytest.approx(1.0986122886681098)]),
        (F.signum(-i), pa.float64(), [-1.0, 0.0, -1.0]),
        (abs(-i), pa.int32(), [1, 0, 3]),
        (round(hw.lit(2.25), 1), pa.float64(), [2.3] * 3),
        (F.length("s"), pa.int32(), [6, 3, None]),
        (F.trim("s"), pa.string(), ["Zürich", "b", None]),
        (F.substring("s", 1, 2), pa.string(), ["Zü", " b", None]),
        (F.substring("s", -2, 2), pa.string(), ["ch", "b ", None]),
        (F.substring("s", -5, 3), pa.string(), ["üri", " ", None]),
        (s.substr(0, 2), pa.string(), ["Zü", " b", None]),
        (F.instr("s", "r"), pa.int32(), [3, 0, None]),
        (F.lpad("s", 8, "*"), pa.string(), ["**Zürich", "***** b ", None]),
        (F.rpad("s", 3, "*"), pa.string(), ["Zür", " b ", None]),
        (F.concat("s", "a"), pa.string(), ["Zürich1", " b 2", None]),
        (F.concat_ws("-", "s", "a"), pa.string(), ["Zürich-1", " b -2", ""]),
        (F.regexp_replace("s", "(.)r", "<$1>"), pa.string(), ["Z<ü>ich", " b ", None]),
        (F.replace("s", "ü", "ue"), pa.string(), ["Zuerich", " b ", None]),
        (F.split("s", "i"), pa.list_(pa.string()), [["Zür", "ch"], [" b "], None]),
        (F.size(F.split("s", "i")), pa.int32(), [2, 1, None]),
        (F.repeat("s", 2), pa.string(), ["ZürichZürich", " b  b ", None]),
        (s.like("%ü%"), pa.bool_(), [True, False, None]),
        (F.year("t"), pa.int32(), [2024, None, 1969]),
        (F.dayofweek("t"), pa.int32(), [4, None, 4]),
        (F.weekday("t"), pa.int32(), [2, None, 2]),
        (F.weekofyear("n"), pa.int32(), [18, None, 1]),
        (F.second("t"), pa.int32(), [4, None, 59]),
        (F.unix_seconds("t"), pa.int64(), [1714564984, None, -1]),
        (F.unix_millis("t"), pa.int64(), [1714564984567, None, -500]),
        (F.timestamp_millis(F.unix_millis("t")) > t, pa.bool_(), [False, None, False]),
        (
            F.date_format("t", "yyyy-MM-dd'T'HH:mm:ss"),
            pa.string(),
            ["2024-05-01T12:03:04", None, "1969-12-31T23:59:59"],
        ),
        (F.datediff("t", "n"), pa.int32(), [0, None, -19724]),
        (F.date_add("t", 1), pa.date32(), [dt.date(2024, 5, 2), None, dt.date(1970, 1, 1)]),
        (a.cast("string"), pa.string(), ["1", "2", None]),
        (m.cast("int"), pa.int32(), [1, -2, None]),
        (hw.lit(" 7 ").cast("long"), pa.int64(), [7] * 3),
        (t.cast("long"), pa.int64(), [1714564984, None, -1]),
        (t.cast("double"), pa.float64(), [1714564984.56789, None, -0.5]),
        (t.cast("date"), pa.date32(), [dt.date(2024, 5, 1), None, dt.date(1969, 12, 31)]),
        (p.cast("date"), pa.date32(), [dt.date(2024, 5, 1)] * 3),
        (t.cast("timestamp_ntz") == n, pa.bool_(), [False, None, False]),
        (n.cast("timestamp") == "2024-05-01 12:03:00", pa.bool_(), [True, None, False]),
        (F.hour(p.cast("timestamp")), pa.int32(), [0, 10, 8]),
        (F.hour(F.to_timestamp(hw.lit("01.05.2024 13"), "dd.MM.yyyy HH")), pa.int32(), [13] * 3),
    ],
    ids=repr,
)
def test_an_expression_has_the_type_that_is_told_and_the_values_that_spark_gives(
    column: Column, kind: pa.DataType, expected: list[Any]
) -> None:
    """Over values, nulls and what is at the edge."""
    assert type_of(column, ROWS.schema) == kind
    assert values(column) == expected
    assert Evaluation(column).column(ROWS).type == kind
    assert Evaluation(column).column(ROWS.slice(0, 0)).to_pylist() == []


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        (s > 1, 's is a string and 1 is an int; cast one of them, as in hw.col("s").cast("int")'),
        (a + s, 'a is a bigint and s is a string; cast one of them, as in hw.col("a").cast("string")'),
        (t > n, "of which one is an instant and the other has no zone; cast one of them"),
        (t > "noon", "'noon' is not a timestamp; write it as in '2024-05-01 12:00:00'"),
        (hw.col("aa") > 1, "needs column 'aa', but the rows have only: a, i, f,"),
        (s & b, "s is a string, not a truth value"),
        (~a, "a is a bigint, not a truth value"),
        (hw.when(a > 1, 1).otherwise("x"), "its cases have no common type (1 is an int, x is a string); cast them"),
        (F.upper("a"), "cannot compute upper(a): a is a bigint"),
        (F.hour("s"), 's is a string; make it a time first, as in hw.col("s").cast("timestamp")'),
        (F.log("s"), "cannot compute ln(s): s is a string"),
        (w["y"], "needs field 'y' of w, which has only: x"),
        (a["y"], "a is a bigint without fields"),
        (a[0], "a, which is a bigint and no list"),
        (a.isin("x"), "a is a bigint and x is a string"),
        (b > 1, "b is a boolean and 1 is an int"),
        (hw.lit(2**70) > a, "does not fit into 64 bits"),
    ],
    ids=repr,
)
def test_what_does_not_go_together_is_refused_before_rows_come(column: Column, sentence: str) -> None:
    """With the types by the names that a cast takes."""
    with pytest.raises(WrongResult) as refused:
        type_of(column, ROWS.schema)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        (i / 0, "divide by zero"),
        (a / i, "divide by zero"),
        (i % 0, "divide by zero"),
        (i * 2_000_000_000, "overflow"),
        (s.cast("int"), "Failed to parse string"),
        (f.cast("int"), "nan"),
        ((a + 300).cast("tinyint"), "301"),
        (F.floor("f"), "nan"),
    ],
    ids=repr,
)
def test_what_has_no_value_is_an_error_of_its_row(column: Column, sentence: str) -> None:
    """Rather than something that looks like a value."""
    with pytest.raises(WrongResult, match=sentence):
        values(column)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda: a > 1 and b, "write &, |, ~"),
        (lambda: 1 < a < 3, "x.between(1, 3)"),
        (lambda: a == None, ".is_null()"),  # noqa: E711 - the mistake that is answered
        (lambda: "x" in s, ".contains("),
        (lambda: list(a), "has no rows"),
        (lambda: a // 2, "F.floor(a / b)"),
        (lambda: 2 // a, "F.floor(a / b)"),
        (lambda: b ^ b, "a != b"),
        (lambda: {a: 1}, "with_columns("),
        (lambda: len(s), "F.length(column)"),
        (lambda: int(f), 'cast("int")'),
        (lambda: float(i), 'cast("double")'),
        (lambda: max(a, 3), "write &, |, ~"),
        (lambda: 1 + a + {1}, "cannot stand in an expression"),
        (lambda: hw.col(3), 'hw.col("celsius")'),
        (lambda: hw.col("*"), "with_column(...)"),
        (lambda: a.alias(""), "the name of the new column"),
        (lambda: a.cast("itn"), "did you mean 'int'?"),
        (lambda: a.cast(3), "is not a type"),
        (lambda: a.isNull, "write is_null()"),
        (lambda: a.is_valdi, "did you mean 'is_valid'?"),
        (lambda: s.like(anything(3)), "like takes a text"),
        (lambda: a.isin(b), "values, not columns"),
        (lambda: F.concat(anything([])), "at least 1 column"),
        (lambda: F.greatest("a"), "at least 2 columns"),
        (lambda: F.round("a", anything("x")), "a whole number as scale"),
        (lambda: F.date_trunc("hours", "t"), "did you mean 'hour'?"),
        (lambda: F.date_format("t", "QQQ"), "'QQQ', which is not known here"),
        (lambda: F.lpad("s", 3, "ab"), "one character"),
        (lambda: hw.when("a", 1), "when takes a condition"),
        (lambda: hw.lit(1).otherwise(2), "hw.when(condition, value)"),
    ],
)
def test_what_makes_no_sense_is_answered_where_it_is_written(wrong: Callable[[], Any], sentence: str) -> None:
    """With what to write."""
    with pytest.raises(FlowError) as refused:
        wrong()
    assert sentence in str(refused.value)


def test_an_expression_travels_and_is_shown_as_sql() -> None:
    """It is frozen data."""
    column = hw.when((a > 1) & s.like("Z%"), F.upper("s")).otherwise(None).alias("x")
    assert repr(column) == "Column<CASE WHEN ((a > 1) AND like(s, 'Z%')) THEN upper(s) ELSE NULL END AS x>"
    assert values(pickle.loads(pickle.dumps(column))) == values(column)


def test_a_column_keeps_its_name_through_casts_and_structs() -> None:
    """As in Spark."""
    assert a.cast("int").column_name == "a"
    assert (hw.col("w.x").column_name, w["x"].column_name) == ("x", "x")
    assert (a + 1).column_name == "(a + 1)"


def test_expressions_that_nest_too_deep_are_refused() -> None:
    """A sum of many columns is still fine."""
    many = reduce(operator.add, [a] * 150)
    assert Bench(stream().select(many.alias("sum"))).run(ROWS).counts[0].made == 3
    with pytest.raises(FlowError, match="more than 200 calls inside one another"):
        stream().filter(reduce(operator.add, [a] * 250) > 1)


def test_an_expression_is_fitted_anew_when_the_columns_change() -> None:
    """Rows without a declared schema may come with wider types, and in another order."""
    evaluation = Evaluation(a + 1)
    assert evaluation.column(ROWS).type == pa.int64()
    assert evaluation.column(pa.record_batch({"b": ["x"], "a": [1.5]})).to_pylist() == [2.5]
    with pytest.raises(WrongResult, match="needs column 'a'"):
        evaluation.column(pa.record_batch({"b": ["x"]}))


@given(st.lists(st.tuples(st.none() | st.integers(-5, 5), st.none() | st.integers(-5, 5)), max_size=20))
def test_guarded_values_are_those_of_a_row_by_row_reading(pairs: list[tuple[int | None, int | None]]) -> None:
    """Conditions keep what would raise from being computed, and nulls are neither true nor false."""
    batch = pa.record_batch(
        {"x": pa.array([x for x, _ in pairs], pa.int64()), "y": pa.array([y for _, y in pairs], pa.int64())}
    )
    x, y = hw.col("x"), hw.col("y")
    guarded = hw.when(y == 0, -1.0).when((y != 0) & (x / y > 1), x / y).otherwise(x * 1.0)

    def one(left: int | None, right: int | None) -> float | None:
        if right == 0:
            return -1.0
        quotient = None if left is None or right is None else left / right
        if quotient is not None and quotient > 1:
            return quotient
        return None if left is None else float(left)

    assert Evaluation(guarded).column(batch).to_pylist() == [one(*pair) for pair in pairs]
