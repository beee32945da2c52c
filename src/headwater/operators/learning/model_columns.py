"""Between rows and models: features as numbers or dicts on the way in, answers as a column on the way out.

A null is NaN to a model that takes numbers, and absent from the dict of one that takes dicts. Answers come in four
types whatever the library's own precision (numbers, whole numbers, booleans, texts) or in lists of numbers, so that a
column keeps its type when a model is replaced.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from headwater.operators.functions import Row, WrongResult

Matrix = npt.NDArray[Any]


def feature_column(batch: pa.RecordBatch, name: str) -> pa.Array:
    """Return a feature's column, with values and not with indices of a dictionary."""
    if name not in batch.schema.names:
        raise WrongResult(f"the rows lack feature {name!r}; they have {', '.join(batch.schema.names)}")
    column = batch.column(name)
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def is_number(kind: pa.DataType) -> bool:
    """Whether a model can take the values of this type as numbers."""
    return any(
        check(kind)
        for check in (
            pa.types.is_integer,
            pa.types.is_floating,
            pa.types.is_boolean,
            pa.types.is_decimal,
            pa.types.is_null,
        )
    )


def numbers(name: str, column: pa.Array) -> npt.NDArray[np.float64]:
    """Return a column as floats, nulls as NaN."""
    if not is_number(column.type):
        raise WrongResult(
            f"feature {name!r} is a {column.type}, and this model takes numbers; turn it into one before, with map"
        )
    if not pa.types.is_float64(column.type):  # of a few rows the cast alone would cost more than asking the model
        # not `safe`: an integer beyond 2^53 loses its last digits, as it would in any matrix of floats
        column = column.cast(pa.float64(), safe=False)
    floats: npt.NDArray[np.float64] = column.to_numpy(zero_copy_only=False)
    return floats


def feature_rows(batch: pa.RecordBatch, features: Sequence[str]) -> Iterator[Row]:
    """Yield a dict of features for every row, as river takes them; what is null or NaN is absent."""
    columns = [_values(feature_column(batch, name)) for name in features]
    for values in zip(*columns, strict=True):
        yield {name: value for name, value in zip(features, values, strict=True) if _is_there(value)}


def _values(column: pa.Array) -> list[Any]:
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    values: list[Any] = column.to_pylist()
    return values


def _is_there(value: Any) -> bool:
    return value is not None and value == value  # NaN is not equal to itself


def prediction_column(answer: Any, rows: int) -> pa.Array:
    """Bring what a model answered to one value per row."""
    if isinstance(answer, pd.Series | pd.DataFrame):
        answer = answer.to_numpy()
    if isinstance(answer, pa.ChunkedArray):
        answer = answer.combine_chunks()
    if isinstance(answer, pa.Array):
        _check_rows(len(answer), rows)
        return answer
    values = np.asarray(answer)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim == 2:
        return list_column(values, rows)
    if values.ndim != 1:
        raise WrongResult(f"the model answered with {values.ndim} dimensions; it must answer once per row")
    _check_rows(len(values), rows)
    return _typed(values)


def _typed(values: Matrix) -> pa.Array:
    if values.dtype.kind == "f":
        return pa.array(values.astype(np.float64))
    if values.dtype.kind in "iu":
        return pa.array(values.astype(np.int64))
    try:
        return pa.array([plain(value) for value in values.tolist()])
    except (pa.ArrowInvalid, pa.ArrowTypeError) as failure:
        raise WrongResult(f"the model's answers do not make a column: {failure}") from failure


def list_column(values: Matrix, rows: int) -> pa.Array:
    if values.ndim != 2:
        raise WrongResult(f"the model answered with {values.ndim} dimensions where two were expected")
    _check_rows(len(values), rows)
    width = values.shape[1]
    offsets = np.arange(0, (rows + 1) * width, width, dtype=np.int32) if width else np.zeros(rows + 1, np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values.astype(np.float64).ravel()))


def _check_rows(found: int, rows: int) -> None:
    if found != rows:
        raise WrongResult(f"the model answered {found} times for {rows} rows; it must answer once per row")


def plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
