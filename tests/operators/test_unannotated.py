"""Which form a function without an annotation takes, read from what it does."""

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headwater.model.errors import FlowError
from headwater.operators.functions import Form
from headwater.operators.stateless import Filter, Map
from headwater.operators.unannotated import takes_rows
from tests.operators.bench import Bench, operator_of, stream

LIMIT = 3


def anything(given: Any) -> Any:
    """A function that nobody can look into."""
    return given


def assigning(row):  # type: ignore[no-untyped-def]
    row["b"] = row["a"] * 2
    return row


def in_steps(row):  # type: ignore[no-untyped-def]
    value = row["a"]
    return None if value is None else {"b": value * 2}


class Called:
    """Something that is called and is no function."""

    def __call__(self, given: Any) -> Any:
        """Give it back."""
        return given


@pytest.mark.parametrize(
    "function",
    [
        lambda r: r["a"] > 2,
        lambda r: r["a"] > LIMIT and r["b"] == "x",
        lambda r: {"d": r["a"] * 2},
        lambda r: {**r, "x": 1},
        lambda r: r.get("a"),
        lambda r: {name: value for name, value in r.items() if value},
        lambda r: r["s"].startswith("a"),
        lambda r: [{"word": word} for word in r["s"].split()],
        lambda r: {"x": f"{r['s']}!"},
        lambda r: math.sqrt(r["a"]) > 1,
        lambda r: re.match("a", r["s"]) is not None,
        lambda r: r["a"] in (1, 2),
        lambda r: int(r["a"]) > 1,
        lambda r: not r["a"],
        lambda r: 2 < r["a"] < 5,
        lambda r: "x" if r["a"] > 1 else "y",
        lambda r: {**r, "l": np.log(r["a"])},
        assigning,
        in_steps,
    ],
)
def test_what_only_a_row_can_do_is_for_rows(function: Callable[..., Any]) -> None:
    """Or what Python's operators do with its values."""
    assert takes_rows(function)


@pytest.mark.parametrize(
    "function",
    [
        lambda b: b,
        anything,
        lambda b: pc.greater(b["a"], 2),
        lambda b: b["flag"],
        lambda b: {"a": b["a"]},
        lambda b: b.filter(pc.field("a") > 1),
        lambda b: np.asarray(b["a"]) > 2,
        lambda b: pd.Series(b["a"]) > 2,
        lambda b: pa.array([n % 2 == 0 for n in b["n"].to_pylist()]),
        lambda b: b["a"].is_valid(),
        lambda b: {"x": anything(b["a"])},
        lambda b: b.num_rows,
        Called(),
        print,
        len,
    ],
)
def test_what_is_for_batches_or_could_be_either_stays_for_batches(function: Callable[..., Any]) -> None:
    """As documented for functions without an annotation."""
    assert not takes_rows(function)


@pytest.mark.parametrize("function", [lambda r: anything(r["a"]) > 2, lambda r: [str(one) == "3" for one in r["a"]]])
def test_what_cannot_be_told_is_refused(function: Callable[..., Any]) -> None:
    """With what to annotate."""
    with pytest.raises(FlowError, match=r'filter: cannot tell .* form="rows"'):
        stream().filter(function)


def test_an_attribute_of_neither_is_a_column_written_otherwise() -> None:
    """A row is a dict."""
    with pytest.raises(FlowError, match=r"map: a row is a dict: write row\['temp'\]"):
        stream().map(lambda r: r.temp)


def test_a_form_that_is_said_is_not_guessed() -> None:
    """Neither by an annotation nor by `form`."""
    made = [operator_of(stream().filter(lambda r: r["a"] > 2, form="arrow")), operator_of(stream().map(annotated))]
    assert [one.form for one in made if isinstance(one, Filter | Map)] == [Form.ARROW, Form.ARROW]


def annotated(batch: pa.RecordBatch) -> Any:
    """Says that it takes a batch, and would work by rows."""
    return {"a": batch["a"] * 2}


def test_a_batch_where_a_row_was_meant_is_told() -> None:
    """In the error that comes of it."""
    with pytest.raises(Exception, match=r'annotate it as hw\.Row, or write form="rows"'):
        Bench(stream().map(lambda r: {"a": r["a"], "k": "ab"})).run([{"a": 1}])
