"""However a source is polled, stopped and opened again, every row is stored once and in order."""

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.connectors import read
from headwater.connectors.cities import CityRows
from headwater.connectors.sources import CsvSource, JsonSource, TextSource
from headwater.dataflow.stream import Stream, source
from tests.connectors.polls import Row, read_with_restarts

SCHEMA = pa.schema([("number", pa.int64()), ("text", pa.string()), ("fraction", pa.float64())])

texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12)
csv_rows = st.lists(
    st.fixed_dictionaries(
        {
            "number": st.none() | st.integers(-(2**62), 2**62),
            "text": st.none() | texts | st.sampled_from(['"', "a\nb", 'x","y', "\r\n", "", "née", '"\n"']),
            "fraction": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        }
    ),
    max_size=40,
)
steps = st.lists(st.tuples(st.integers(1, 9), st.booleans(), st.booleans()), min_size=1, max_size=8).filter(
    lambda drawn: any(is_committed for _, is_committed, _ in drawn)
)
chunk_sizes = st.sampled_from([3, 16, 61, 4096])


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    """One directory for all examples; each writes its file anew."""
    with TemporaryDirectory() as name:
        yield Path(name)


@settings(max_examples=150, deadline=None)
@given(rows=csv_rows, drawn=steps, chunk_bytes=chunk_sizes, has_end=st.booleans())
def test_every_csv_record_is_read_once(
    directory: Path, rows: list[Row], drawn: Any, chunk_bytes: int, has_end: bool
) -> None:
    """Also with quotes, newlines inside quotes, any chunk size, and a last line without its newline."""
    path = directory / "rows.csv"
    pa.csv.write_csv(pa.Table.from_pylist(rows, schema=SCHEMA), path)
    if not has_end:
        path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    spec = CsvSource(path=str(path), schema=SCHEMA, chunk_bytes=chunk_bytes)
    assert read_with_restarts(source(spec), drawn) == rows


@settings(max_examples=100, deadline=None)
@given(rows=csv_rows, drawn=steps, chunk_bytes=chunk_sizes)
def test_every_json_line_is_read_once(directory: Path, rows: list[Row], drawn: Any, chunk_bytes: int) -> None:
    """Blank lines between them are no rows."""
    path = directory / "rows.json"
    path.write_text("".join(json.dumps(row) + "\n\n" for row in rows))
    spec = JsonSource(path=str(path), schema=SCHEMA, chunk_bytes=chunk_bytes)
    assert read_with_restarts(source(spec), drawn) == rows


@settings(max_examples=100, deadline=None)
@given(lines=st.lists(texts.filter(lambda text: not {"\r", "\n"} & set(text)), max_size=40), drawn=steps)
def test_every_line_of_text_is_read_once(directory: Path, lines: list[str], drawn: Any) -> None:
    """Blank lines are rows too."""
    path = directory / "lines.txt"
    path.write_bytes("".join(line + "\r\n" for line in lines).encode())
    spec = TextSource(path=str(path), chunk_bytes=16)
    assert read_with_restarts(source(spec), drawn) == [{"line": line} for line in lines]


@settings(max_examples=60, deadline=None)
@given(rows=csv_rows, drawn=steps, group_rows=st.integers(1, 20))
def test_every_parquet_row_is_read_once(directory: Path, rows: list[Row], drawn: Any, group_rows: int) -> None:
    """Across row groups and files."""
    parts = directory / "parts"
    parts.mkdir(exist_ok=True)
    half = len(rows) // 2
    pq.write_table(pa.Table.from_pylist(rows[:half], schema=SCHEMA), parts / "a.parquet", row_group_size=group_rows)
    pq.write_table(pa.Table.from_pylist(rows[half:], schema=SCHEMA), parts / "b.parquet", row_group_size=group_rows)
    assert read_with_restarts(read.parquet(parts), drawn) == rows


@given(count=st.integers(0, 50), drawn=steps, batch_rows=st.integers(1, 20))
def test_every_generated_row_is_sent_once(count: int, drawn: Any, batch_rows: int) -> None:
    """The position is the row's number."""
    stream = read.generator(lambda first, n: {"row": list(range(first, first + n))}, rows=count, batch_rows=batch_rows)
    assert read_with_restarts(stream, drawn) == [{"row": row} for row in range(count)]


@given(count=st.integers(0, 50), drawn=steps)
def test_every_item_of_a_list_is_sent_once(count: int, drawn: Any) -> None:
    """It is gone through again after each restart."""
    assert read_with_restarts(read.iterable(list(range(count))), drawn) == [{"value": item} for item in range(count)]


@settings(max_examples=25, deadline=None)
@given(count=st.integers(0, 50), drawn=steps)
def test_every_item_of_an_iterable_that_may_block_is_sent_once(count: int, drawn: Any) -> None:
    """A function that returns a fresh iterator each time."""
    stream = read.iterable(lambda: ({"row": row} for row in range(count)))
    assert read_with_restarts(stream, drawn) == [{"row": row} for row in range(count)]


@settings(max_examples=50, deadline=None)
@given(numbers=st.lists(st.integers(0, 99), min_size=1, max_size=30), drawn=steps, chunk_bytes=chunk_sizes)
def test_several_files_are_read_in_the_order_of_their_names(
    directory: Path, numbers: list[int], drawn: Any, chunk_bytes: int
) -> None:
    """Each with a header of its own, columns in any order."""
    files = directory / "several"
    files.mkdir(exist_ok=True)
    half = len(numbers) // 2
    (files / "1.csv").write_text("a,b\n" + "".join(f"{number},x\n" for number in numbers[:half]))
    (files / "2.csv").write_text("b,a\r\n" + "".join(f"x,{number}\r\n" for number in numbers[half:]))
    (files / "_hidden.csv").write_text("c\n1\n")
    spec = CsvSource(path=str(files / "*.csv"), chunk_bytes=chunk_bytes)
    assert read_with_restarts(source(spec), drawn) == [{"a": number, "b": "x"} for number in numbers]


@given(first=st.integers(0, 100_000), count=st.integers(1, 50), seed=st.integers(0, 2**31))
def test_a_city_reading_is_a_function_of_seed_and_number(first: int, count: int, seed: int) -> None:
    """Alone or among others, it is the same row."""
    make = CityRows(sensors=20, seed=seed)
    together = make(first, count)
    assert together.slice(count - 1) == make(first + count - 1, 1)


def test_a_stream_is_built_without_touching_the_disk() -> None:
    """A path that does not exist is found out when the app runs."""
    stream: Stream = read.csv("nowhere/at/all.csv")
    assert stream.vertex.part.kind == "csv"
