"""A function is called in the form that the annotation of its first parameter asks for."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypedDict

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headwater.operators.functions import Form, Row, form_of
from tests.operators import annotated_as_text
from tests.operators.bench import stream, through

ROWS = [{"x": 1}, {"x": 2}]
ONE_MORE = [{"x": 2}, {"x": 3}]


class Reading(TypedDict):
    """A row with known columns."""

    x: int


class ByRow:
    """A callable object, and one with a method to be passed."""

    def __call__(self, row: dict[str, Any]) -> Row:
        """Take a row."""
        return {"x": row["x"] + 1}

    def by_frame(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Take a DataFrame."""
        return frame.assign(x=frame.x + 1)

    @staticmethod
    def by_batch(batch: pa.RecordBatch) -> Any:
        """Take a batch."""
        return {"x": pc.add(batch["x"], 1)}


def scaled(by: int, row: dict[str, Any], plus: int = 0) -> Row:
    """Take something before the row."""
    return {"x": row["x"] * by + plus}


def by_typed_row(row: Reading) -> Row:
    """Take a row whose columns the type checker knows."""
    return {"x": row["x"] + 1}


def by_mapping(row: Mapping[str, Any]) -> Row:
    """Take a row that is not to be changed."""
    return {"x": row["x"] + 1}


def wrapped(function: Callable[[Row], Row]) -> Callable[[Row], Row]:
    """Decorate as a user might."""

    @functools.wraps(function)
    def inner(*args: Any) -> Row:
        return function(*args)

    return inner


@wrapped
def decorated(row: Row) -> Row:
    """Take a row behind a decorator."""
    return {"x": row["x"] + 1}


@pytest.mark.parametrize(
    ("function", "form"),
    [
        (lambda batch: {"x": pc.add(batch["x"], 1)}, Form.ARROW),
        (ByRow(), Form.ROWS),
        (ByRow().by_frame, Form.PANDAS),
        (ByRow.by_batch, Form.ARROW),
        (functools.partial(scaled, 1, plus=1), Form.ROWS),
        (functools.partial(ByRow().by_frame), Form.PANDAS),
        (by_typed_row, Form.ROWS),
        (by_mapping, Form.ROWS),
        (decorated, Form.ROWS),
        (annotated_as_text.by_row, Form.ROWS),
        (annotated_as_text.by_frame, Form.PANDAS),
        (annotated_as_text.by_mapping, Form.ROWS),
    ],
)
def test_the_annotation_of_the_first_parameter_is_the_form(function: Callable[..., Any], form: Form) -> None:
    """For functions, lambdas, methods, partials, callable objects, and annotations that are text."""
    assert form_of(function) is form
    assert through(stream().map(function), ROWS) == ONE_MORE


def test_a_name_for_the_type_checker_only_is_read_as_text() -> None:
    """It cannot be looked up, and is no row and no DataFrame."""
    assert form_of(annotated_as_text.by_batch) is Form.ARROW


@pytest.mark.parametrize("function", [len, print, dict, lambda: None])
def test_a_function_that_says_nothing_takes_batches(function: Callable[..., Any]) -> None:
    """Builtins, types, and functions without parameters."""
    assert form_of(function) is Form.ARROW


def test_the_form_can_be_said_instead() -> None:
    """A lambda has no annotation."""
    assert through(stream().map(lambda row: {"x": row["x"] + 1}, form="rows"), ROWS) == ONE_MORE
    assert through(stream().map(lambda frame: frame.assign(x=frame.x + 1), form="pandas"), ROWS) == ONE_MORE
