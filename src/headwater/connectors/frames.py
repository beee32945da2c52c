"""Tables and frames as rows: of Arrow, pandas, Polars and Spark, and of whatever else gives an Arrow stream.

An object is told by what it can do, so that no library has to be there, or be imported, to be recognised. Spark's rows
come partition by partition as Arrow bytes: collected at once they might not fit, and as Python's values they would lose
their zones.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pandas as pd
import pyarrow as pa

from headwater.connectors.times import with_leaves
from headwater.model.errors import ConnectorError
from headwater.model.quoting import cause

ROWS_MAX: Final = 16_384  # handed on at a time; a slice of a table costs nothing

_NO_ROWS: Final = (pa.Array, pa.ChunkedArray, pd.Series, type)  # one column gives a stream as well


class ArrowStreamable(Protocol):
    """What gives its rows as an Arrow stream: frames of most libraries."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the stream, in a capsule."""
        ...


class Collectable(Protocol):
    """A DataFrame of Spark."""

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        """Return all of it at once."""
        ...


RowsGiven = Iterable[Any] | ArrowStreamable | Collectable


def is_frame(given: object) -> bool:
    """Whether this is a table of rows, rather than an iterable of them."""
    if isinstance(given, _NO_ROWS):
        return False
    return isinstance(given, pa.RecordBatch | pd.DataFrame) or _gives_stream(given) or is_spark_frame(given)


def _gives_stream(given: object) -> bool:
    return callable(getattr(given, "__arrow_c_stream__", None))


def is_spark_frame(given: object) -> bool:
    """Whether this is a DataFrame of Spark, which must not be imported to be recognised."""
    return callable(getattr(given, "toArrow", None))


@dataclass(frozen=True, eq=False)
class Frame:
    """A table as an iterable of batches, as often as it is gone through."""

    given: Any

    @property
    def is_ready(self) -> bool:
        """Whether its rows are in memory; others may have to be computed first."""
        return isinstance(self.given, pa.RecordBatch | pa.Table | pd.DataFrame)

    @property
    def schema(self) -> pa.Schema | None:
        """The columns, where they are known before anything is read."""
        given = self.given
        return given.schema.remove_metadata() if isinstance(given, pa.RecordBatch | pa.Table) else None

    def __iter__(self) -> Iterator[Any]:
        """Go through the rows from the first one."""
        return iter(_parts_of(self.given))


def _parts_of(given: Any) -> Iterable[Any]:
    match given:
        case pa.RecordBatch():
            return _cut([given])
        case pa.Table():
            return _cut(given.to_batches())
        case pd.DataFrame():
            return _slices(_with_index(given))
    if is_spark_frame(given):
        return _cut(_spark_batches(given))
    try:
        stream = pa.RecordBatchReader.from_stream(given)
    except pa.ArrowInvalid as failure:  # a column of another library: its values are the rows, as those of a list are
        if not isinstance(given, Iterable):
            raise ConnectorError(f"a {type(given).__name__} is no table of rows: {cause(failure)}") from failure
        return given
    return _cut(stream)


def _with_index(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with its index as columns, if that has names; a mere number of the row has none."""
    return frame.reset_index() if any(name is not None for name in frame.index.names) else frame


def _slices(frame: pd.DataFrame) -> Iterator[pd.DataFrame]:
    return (frame.iloc[at : at + ROWS_MAX] for at in range(0, len(frame), ROWS_MAX))


def _cut(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        plain = without_views(batch.replace_schema_metadata(None))
        for at in range(0, plain.num_rows, ROWS_MAX):
            yield plain.slice(at, ROWS_MAX)


def without_views(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with plain texts and bytes in place of views, which Polars gives and few functions take."""
    schema = pa.schema([field.with_type(with_leaves(field.type, _plain)) for field in batch.schema])
    return batch if schema.equals(batch.schema) else batch.cast(schema)


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(kind) else kind


def _spark_batches(frame: Any) -> Iterator[pa.RecordBatch]:
    for row in frame.mapInArrow(_packing(), "packed binary").toLocalIterator():
        with pa.ipc.open_stream(pa.py_buffer(row.packed)) as stream:
            yield from stream


def _packing() -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that packs batches; it travels by value, so that Spark's workers need no Headwater."""

    def packed(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow

        for batch in batches:
            output = pyarrow.BufferOutputStream()
            with pyarrow.ipc.new_stream(output, batch.schema) as stream:
                stream.write_batch(batch)
            yield pyarrow.record_batch({"packed": pyarrow.array([output.getvalue().to_pybytes()], pyarrow.binary())})

    return packed
