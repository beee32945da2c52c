"""Calling a user's function in the form it was written for.

A function sees an Arrow record batch (the default and the fastest), a pandas DataFrame, or one row at a time as a
dict. Which one, the annotation of its first parameter says. What it gives back is brought to a record batch here, and
anything that cannot be one is refused with a sentence.
"""

import inspect
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from headwater.model.quoting import quoted

Row = dict[str, Any]
UserFunction = Callable[..., Any]


class Form(StrEnum):
    """What a user's function takes."""

    ARROW = "arrow"
    PANDAS = "pandas"
    ROWS = "rows"


class WrongResult(TypeError):
    """A user's function returned something that its operator cannot use."""


def form_of(function: UserFunction) -> Form:
    """Read the form from the annotation of the first parameter; without one it is Arrow."""
    annotation = _first_annotation(function)
    origin = typing.get_origin(annotation) or annotation
    if isinstance(origin, str):
        return _form_named(origin)
    if not isinstance(origin, type):
        return Form.ARROW
    if origin is list:  # of rows: what a whole window is given as
        return Form.ROWS
    if issubclass(origin, pd.DataFrame):
        return Form.PANDAS
    return Form.ROWS if issubclass(origin, Mapping) else Form.ARROW


def advice(function: UserFunction, form: Form, failure: BaseException) -> str:
    """Return what to write for a function without an annotation that seems to have been written for rows."""
    is_in_doubt = isinstance(failure, TypeError | AttributeError | KeyError | ValueError | NotImplementedError)
    if form is not Form.ARROW or not is_in_doubt or is_annotated(function):
        return ""
    return (
        ". The function was given a whole pyarrow.RecordBatch, since its parameter has no annotation: annotate it as "
        'hw.Row, or write form="rows", to be given one row after the other'
    )


def is_annotated(function: UserFunction) -> bool:
    """Whether the first parameter says what it takes."""
    return _first_annotation(function) not in (None, inspect.Parameter.empty)


def _first_annotation(function: UserFunction) -> Any:
    try:
        signature = inspect.signature(function, eval_str=True)
    except (TypeError, ValueError):  # a builtin or C function has no signature to read
        return None
    except (NameError, AttributeError, SyntaxError):  # an annotation for the type checker only: its text has to do
        signature = inspect.signature(function)
    first = next(iter(signature.parameters.values()), None)
    return None if first is None else first.annotation


def _form_named(annotation: str) -> Form:
    if "DataFrame" in annotation:
        return Form.PANDAS
    return Form.ROWS if annotation.split("[")[0].rsplit(".")[-1] in ("dict", "Dict", "Row", "Mapping") else Form.ARROW


def call_for_rows(
    function: UserFunction, form: Form, batch: pa.RecordBatch, schema: pa.Schema | None, extra: tuple[Any, ...] = ()
) -> pa.RecordBatch:
    """Call an arrow or pandas function on the whole batch and return its rows."""
    given = batch.to_pandas() if form is Form.PANDAS else batch
    return to_batch(function(given, *extra), schema)


def to_batch(result: Any, schema: pa.Schema | None) -> pa.RecordBatch:
    """Bring what a function returned to one record batch, in the declared schema if there is one."""
    match result:
        case pa.RecordBatch():
            batch = result
        case pa.Table():
            batch = table_to_batch(result)
        case pd.DataFrame():
            batch = _from_columns(pa.RecordBatch.from_pandas, result, schema, preserve_index=False)
        case Mapping():
            batch = _from_columns(pa.RecordBatch.from_pydict, _columns_in(result), schema)
        case list() | tuple():
            return rows_to_batch(result, schema)
        case _:
            raise WrongResult(
                f"it returned a {type(result).__name__}; it must return a RecordBatch, a Table, a DataFrame, "
                "a dict of columns or a list of row dicts"
            )
    return batch if schema is None else conform(batch, schema)


def _columns_in(result: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a dict of columns; Arrow would take the letters of a text for the values of one."""
    for name, values in result.items():
        if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
            raise WrongResult(
                f"it returned a dict with {quoted(values)} for column {name!r}; of a whole batch, a dict holds "
                "a column for each name"
            )
    return dict(result)


def _from_columns(make: Callable[..., pa.RecordBatch], columns: Any, schema: pa.Schema | None, **how: Any) -> Any:
    """Make a batch of a DataFrame or a dict of columns; Arrow itself would drop a column that is not declared."""
    if schema is not None:
        _check_names([str(name) for name in columns], schema)
    try:
        return make(columns, schema=schema, **how).replace_schema_metadata(None)
    except pa.ArrowException as failure:
        if schema is None:
            raise
        raise _misfit(failure) from failure


def table_to_batch(table: pa.Table) -> pa.RecordBatch:
    """Return the table as one batch."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def rows_to_batch(rows: Iterable[Any], schema: pa.Schema | None) -> pa.RecordBatch:
    """Make a batch of row dicts; a column is there if any row has it, and null where a row has not."""
    listed = list(rows)
    for row in listed:
        if not isinstance(row, Mapping):
            raise WrongResult(f"a row must be a dict of column to value, not a {type(row).__name__}")
    found = list(dict.fromkeys(name for row in listed for name in row))
    if schema is None:
        return pa.RecordBatch.from_arrays([_values_of(listed, name, None) for name in found], names=found)
    _check_names(found, schema, lacking_is_null=True)
    try:
        return _declared([_values_of(listed, field.name, field.type) for field in schema], schema)
    except (pa.ArrowException, OverflowError) as failure:
        raise _misfit(failure) from failure


def _values_of(rows: list[Mapping[str, Any]], name: str, kind: pa.DataType | None) -> pa.Array:
    values = [row.get(name) for row in rows]
    if kind is not None and pa.types.is_integer(kind):  # Arrow would cut off what is behind the point, in silence
        broken = next((value for value in values if isinstance(value, float) and not value.is_integer()), None)
        if broken is not None:
            raise WrongResult(f"its result has {broken!r} in column {name!r}, which is declared as {kind}")
    return pa.array(values, type=kind)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with exactly the declared columns and types, or say which one does not fit."""
    if batch.schema.equals(schema, check_metadata=True) and all(field.nullable for field in schema):
        return batch  # a look at every column would cost ten times as much
    if not batch.schema.equals(schema):
        _check_names(batch.schema.names, schema)
        try:
            return _declared([batch.column(field.name).cast(field.type) for field in schema], schema)
        except pa.ArrowException as failure:
            raise _misfit(failure) from failure
    return _declared(batch.columns, schema)


def _check_names(found: list[str], schema: pa.Schema, *, lacking_is_null: bool = False) -> None:
    lacking = [] if lacking_is_null else [name for name in schema.names if name not in found]
    extra = [name for name in found if name not in schema.names]
    twice = [name for name in found if found.count(name) > 1]
    if lacking or extra or twice:
        what = f"lacks column {lacking[0]!r}" if lacking else f"has column {(extra or twice)[0]!r}"
        how = " twice" if not lacking and not extra else ""
        raise WrongResult(f"its result {what}{how}, against the declared schema ({', '.join(schema.names)})")


def _declared(arrays: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    for field, array in zip(schema, arrays, strict=True):
        if not field.nullable and array.null_count:
            raise WrongResult(f"its result has nulls in column {field.name!r}, which is declared without")
    return pa.RecordBatch.from_arrays(list(arrays), schema=schema)


def _misfit(failure: Exception) -> WrongResult:
    return WrongResult(f"its result does not fit the declared schema: {failure}")


def to_mask(result: Any, rows: int) -> pa.BooleanArray:
    """Bring a filter's answer to one boolean per row; null counts as false, as in SQL."""
    if isinstance(result, pa.ChunkedArray):
        result = result.combine_chunks()
    mask = result if isinstance(result, pa.Array) else _mask_from(result)
    if not pa.types.is_boolean(mask.type):
        raise WrongResult(f"it returned values of type {mask.type}; a filter must return booleans")
    if len(mask) != rows:
        raise WrongResult(f"it returned {len(mask)} booleans for {rows} rows")
    return mask


def _mask_from(result: Any) -> pa.Array:
    if isinstance(result, pd.Series | np.ndarray | list | tuple):
        return pa.array(result)
    raise WrongResult(f"it returned a {type(result).__name__}; a filter must return one boolean per row")


def row_results(function: UserFunction, batch: pa.RecordBatch) -> Iterator[Any]:
    """Call a row function for every row, in order."""
    for row in batch.to_pylist():
        yield function(row)
