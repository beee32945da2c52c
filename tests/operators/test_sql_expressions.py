"""Expressions as SQL text are the same trees as those written in Python; what cannot be read is told where and why."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater as hw
from headwater import functions as F
from headwater.model.errors import FlowError
from headwater.operators.expressions.trees import Column

v, name = hw.col("v"), hw.col("name")


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("v > 0", v > 0),
        ("v = 1 OR v <> 2 AND NOT v >= 3", (v == 1) | ((v != 2) & ~(v >= 3))),
        ("(v = 1 or v == 2) and v != 3", ((v == 1) | (v == 2)) & (v != 3)),
        ("v + 2 * -v - 1 / 2.5 % 3", v + hw.lit(2) * -v - hw.lit(1) / 2.5 % 3),
        ("-3 < v", hw.lit(-3) < v),
        ("v between 1 and 2 + 3", v.between(1, hw.lit(2) + 3)),
        ("v not between 1 and 2", ~v.between(1, 2)),
        ("name in ('a', 'it''s', \"b\")", name.isin("a", "it's", "b")),
        ("name not in ('a')", ~name.isin("a")),
        ("name like 'a\\_%'", name.like("a\\_%")),
        ("name rlike '^a\\\\d'", name.rlike("^a\\d")),
        ("name is null or name is not null", name.is_null() | name.is_valid()),
        ("upper(name) || '!'", F.concat(F.upper(name), hw.lit("!"))),
        ("substr(name, 1, 3) = 'abc'", F.substring(name, 1, 3) == "abc"),
        ("coalesce(v, 0)", F.coalesce(v, hw.lit(0))),
        ("if(v > 0, 'up', 'down')", hw.when(v > 0, "up").otherwise("down")),
        ("case when v > 0 then 1 when v < 0 then -1 else 0 end", hw.when(v > 0, 1).when(v < 0, -1).otherwise(0)),
        ("case name when 'a' then 1 end", hw.when(name == "a", 1)),
        ("cast(v as decimal(10, 2))", v.cast("decimal(10,2)")),
        ("date_trunc('hour', at)", F.date_trunc("hour", "at")),
        ("window.start > TIMESTAMP '2024-01-01'", hw.col("window.start") > hw.lit("2024-01-01").cast("timestamp")),
        ("`a b`.c + list[0]", hw.col("a b.c") + hw.col("list")[0]),
        ("v * 2 AS twice", (v * 2).alias("twice")),
        ("v twice", v.alias("twice")),
        ("true and false", hw.lit(True) & False),
    ],
)
def test_a_text_is_the_tree_that_python_writes(text: str, column: Column) -> None:
    """With SQL's precedence."""
    read = hw.expr(text)
    assert (read.node, read.named) == (column.node, column.named)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it ends too soon"),
        ("v >", "it ends too soon"),
        ("v > 0)", "')' is not expected here"),
        ("(v > 0", ") is expected where it has nothing more"),
        ("v ? 0", "'?' is not expected in it"),
        ("v > 'a", "is not expected in it"),
        ("v = NULL", "write IS NULL or IS NOT NULL"),
        ("v not 3", "it needs IN, BETWEEN, LIKE or RLIKE"),
        ("v in (w)", "IN takes a value here, not a column"),
        ("uper(name)", "there is no function 'uper'; did you mean 'upper'?"),
        ("sum(v) > 1", "write .window(...).agg(F.sum("),
        ("upper(name, 1)", "upper takes (column"),
        ("lpad(name, v)", "lpad takes a value here, not a column"),
        ("case v end", "CASE needs WHEN"),
        ("cast(v as itn)", "did you mean 'int'?"),
        ("interval 3 moons", "INTERVAL 5 MINUTES"),
        ("select v from stream", "is not expected here"),
        ("v <=> 1", "'<=>' is not expected here"),
        ("(" * 60 + "v" + ")" * 60, "more than 50 expressions inside one another"),
        ("v" * 20_000, "at most 10,000 are read"),
    ],
)
def test_what_cannot_be_read_is_told(text: str, why: str) -> None:
    """In one sentence."""
    with pytest.raises(FlowError) as refused:
        hw.expr(text)
    assert why in str(refused.value)


@given(st.text(max_size=200) | st.text("v()<>=!'\" andornotincase1.,[]`|-+*/%", max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Whatever its origin."""
    with suppress(FlowError):
        assert isinstance(hw.expr(text), Column)
