"""Tables of other libraries are rows: `read.iterable(frame)` gives what is in them, once each, also after a restart."""

import datetime as dt
import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater as hw
from headwater.connectors import read
from headwater.connectors.frames import ROWS_MAX
from headwater.dataflow.stream import Stream
from headwater.model.errors import ConnectorError
from headwater.runtime.node import Node
from headwater.workers.local.pool import SparkPool
from tests.connectors.polls import drained, read_with_restarts, rows_in, spec_of

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
ROWS = [{"n": number, "word": f"w{number}", "at": NOON + dt.timedelta(hours=number)} for number in range(50)]


class Streaming:
    """What gives an Arrow stream and nothing else, as often as it is asked."""

    def __init__(self, table: pa.Table) -> None:
        """Give these rows."""
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Give them."""
        return self._table.__arrow_c_stream__(requested_schema)


class StreamingColumn:
    """One column of some library."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        """Give these values."""
        self._column = column

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Give them."""
        return self._column.__arrow_c_stream__(requested_schema)


class IterableColumn(StreamingColumn):
    """One whose values can be gone through."""

    def __iter__(self) -> Iterator[Any]:
        """Go through them."""
        return iter(self._column.to_pylist())


def polars_frame(table: pa.Table) -> Any:
    """Return a frame of Polars."""
    if importlib.util.find_spec("polars") is None:
        pytest.skip("polars is not installed")
    return importlib.import_module("polars").from_arrow(table)


TABLE = pa.Table.from_pylist(ROWS)
FRAMES: dict[str, Callable[[pa.Table], Any]] = {
    "pandas": lambda table: table.to_pandas(),
    "table": lambda table: table,
    "batch": lambda table: table.combine_chunks().to_batches()[0],
    "stream": Streaming,
    "views": lambda table: Streaming(table.cast(table.schema.set(1, pa.field("word", pa.string_view())))),
    "polars": polars_frame,
}


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("way", ["itself", "function", "item", "generated"])
def test_a_table_is_its_rows(kind: str, way: str) -> None:
    """Given as it is, by a function, as an item among others, or by a generator."""
    frame = FRAMES[kind](TABLE)
    streams: dict[str, Callable[[], Stream]] = {
        "itself": lambda: read.iterable(frame),
        "function": lambda: read.iterable(lambda: frame),
        "item": lambda: read.iterable([frame, ROWS[0]]),
        "generated": lambda: read.generator(lambda first, count: frame, rows=50),
    }
    expected = [*ROWS, ROWS[0]] if way == "item" else ROWS
    answers = drained(streams[way]())
    assert rows_in(answers) == expected
    assert answers[0].batch.schema.field("word").type in (pa.string(), pa.large_string())


@pytest.mark.parametrize("kind", [kind for kind in FRAMES if kind != "polars"])
@given(
    steps=st.lists(st.tuples(st.integers(1, 30), st.booleans(), st.booleans()), min_size=1).filter(
        lambda steps: any(is_committed for _, is_committed, _ in steps)
    )
)
def test_every_row_of_a_table_is_read_once_wherever_it_is_left_and_opened_again(
    kind: str, steps: list[tuple[int, bool, bool]]
) -> None:
    """Positions count rows, as those of other iterables do."""
    assert read_with_restarts(read.iterable(FRAMES[kind](TABLE)), steps) == ROWS


def test_a_reader_is_gone_through_once() -> None:
    """Its batches are rows, and it cannot be opened again."""
    spec = spec_of(read.iterable(TABLE.to_reader(max_chunksize=7)))
    assert spec.guarantee == "at-most-once"
    stream = read.iterable(TABLE.to_reader(max_chunksize=7))
    assert rows_in(drained(stream)) == ROWS
    with pytest.raises(ConnectorError, match="only once"):
        spec_of(stream).open(None)


def test_a_large_table_is_handed_on_in_slices() -> None:
    """So that sources of others have their turns."""
    table = pa.table({"n": range(ROWS_MAX + 1)})
    for frame in (table, Streaming(table), table.to_pandas()):
        assert [answer.batch.num_rows for answer in drained(read.iterable(frame), rows_max=10**6)] == [ROWS_MAX, 1]


def test_the_columns_of_an_arrow_table_are_known_when_the_flow_is_built() -> None:
    """So expressions and keys are checked there; those of pandas are known when its rows are read."""
    assert spec_of(read.iterable(TABLE)).schema == TABLE.schema
    assert spec_of(read.iterable(TABLE.to_pandas())).schema is None


def test_an_index_with_a_name_is_a_column() -> None:
    """One that only numbers the rows is none."""
    frame = pd.DataFrame({"n": [1, 2], "id": ["a", "b"]})
    assert rows_in(drained(read.iterable(frame.set_index("id")))) == [{"id": "a", "n": 1}, {"id": "b", "n": 2}]
    assert rows_in(drained(read.iterable(frame[["n"]]))) == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("frame", [TABLE.slice(0, 0), TABLE.slice(0, 0).to_pandas(), Streaming(TABLE.slice(0, 0))])
def test_an_empty_table_is_no_rows(frame: Any) -> None:
    """And no error."""
    assert drained(read.iterable(frame)) == []


def test_a_column_is_values_as_before_or_is_refused() -> None:
    """It gives an Arrow stream as well, and is no table."""
    values = [{"value": 1}, {"value": 2}]
    column = pa.chunked_array([[1, 2]])
    for one in (pd.Series([1, 2]), IterableColumn(column)):
        assert rows_in(drained(read.iterable(one))) == values
    with pytest.raises(ConnectorError, match="a StreamingColumn is no table of rows"):
        drained(read.iterable(StreamingColumn(column)))


def test_a_flow_runs_on_a_frame() -> None:
    """All the way to its sink."""
    out = hw.to.memory()
    status = hw.run(hw.flow("frame", read.iterable(TABLE.to_pandas()).select("n").sink(out)), spark=False)
    assert (status.rows_out, [row["n"] for row in out.rows()]) == (50, list(range(50)))


def test_a_dataframe_of_spark_is_read_partition_by_partition(spark_node: Node) -> None:
    """With its types and zones, in its order, and again behind a position; it is never collected as a whole."""
    pool = spark_node.pool
    assert isinstance(pool, SparkPool)
    frame = pool.session.range(0, 50, 1, 4).selectExpr(
        "id AS n", "concat('w', id) AS word", "timestamp_seconds(1767268800 + 3600 * id) AS at"
    )
    stream = read.iterable(frame)
    assert rows_in(drained(stream)) == ROWS
    assert read_with_restarts(stream, [(20, True, False), (20, True, True)]) == ROWS
