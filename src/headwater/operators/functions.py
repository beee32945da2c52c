"""Calling a user's function in the form it was written for.

A function sees an Arrow record batch (the default and the fastest), a pandas DataFrame, or one row at a time as a
dict. Which one, the annotation of its first parameter says. What it gives back is brought to a record batch here, and
anything that cannot be one is refused with a sentence.
"""

import inspect
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

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
    if issubclass(origin, pd.DataFrame):
        return Form.PANDAS
    return Form.ROWS if issubclass(origin, Mapping) else Form.ARROW


def _first_annotation(function: UserFunction) -> Any:
    target = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    try:
        parameters = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a builtin or C function has no signature to read
        return None
    if not parameters:
        return None
    try:
        return typing.get_type_hints(target).get(parameters[0])
    except (NameError, TypeError, AttributeError):  # an annotation for the type checker only
        return getattr(target, "__annotations__", {}).get(parameters[0])


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
            batch = pa.RecordBatch.from_pandas(result, schema=schema, preserve_index=False).replace_schema_metadata(
                None
            )
        case Mapping():
            batch = pa.RecordBatch.from_pydict(dict(result), schema=schema)
        case list() | tuple():
            batch = rows_to_batch(result, schema)
        case _:
            raise WrongResult(
                f"it returned a {type(result).__name__}; it must return a RecordBatch, a Table, a DataFrame, "
                "a dict of columns or a list of row dicts"
            )
    return batch if schema is None else conform(batch, schema)


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
    names = schema.names if schema is not None else list(dict.fromkeys(name for row in listed for name in row))
    if schema is not None:
        _refuse_undeclared(listed, schema)
    arrays = [
        pa.array([row.get(name) for row in listed], type=None if schema is None else schema.field(name).type)
        for name in names
    ]
    return pa.RecordBatch.from_arrays(arrays, names=names) if schema is None else _with_schema(arrays, schema)


def _refuse_undeclared(rows: list[Mapping[str, Any]], schema: pa.Schema) -> None:
    extra = {name for row in rows for name in row} - set(schema.names)
    if extra:
        raise WrongResult(f"it returned column {sorted(extra)[0]!r}, which its declared schema does not have")


def _with_schema(arrays: list[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with exactly the declared columns and types, or say which one does not fit."""
    if batch.schema.equals(schema):
        return batch
    missing = [name for name in schema.names if name not in batch.schema.names]
    extra = [name for name in batch.schema.names if name not in schema.names]
    if missing or extra:
        what = f"lacks column {missing[0]!r}" if missing else f"has column {extra[0]!r}"
        raise WrongResult(f"its result {what}, against the declared schema ({', '.join(schema.names)})")
    try:
        return _with_schema([batch.column(field.name).cast(field.type) for field in schema], schema)
    except pa.ArrowInvalid as failure:
        raise WrongResult(f"its result does not fit the declared schema: {failure}") from failure


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
