"""What sinks write, and what they refuse."""

import datetime
import decimal
import io
import json
import pickle
from contextlib import closing
from pathlib import Path
from typing import Final

import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from headwater.connectors import read, to
from headwater.dataflow.connectors import SinkSpec, told_by
from headwater.model.errors import ConnectorError, FlowError, SchemaMismatch
from tests.connectors.polls import batch_of, drained, rows_in, written

NOON = datetime.datetime(2015, 2, 1, 12, tzinfo=datetime.UTC)


def test_csv_is_stable_and_read_back_as_it_was(tmp_path: Path) -> None:
    """Null and empty text remain two things; an instant keeps its zone."""
    batch = batch_of(
        a=[1.0, None, 1e300], s=["", None, 'x,"\n'], t=pa.array([NOON, None, NOON], pa.timestamp("ms", "UTC"))
    )
    written(to.csv(tmp_path / "1.csv"), batch)
    written(to.csv(tmp_path / "2.csv"), batch.slice(0, 1), batch.slice(1))
    assert (tmp_path / "1.csv").read_text() == (
        '"a","s","t"\n1,"",2015-02-01 12:00:00.000Z\n,,\n1e+300,"x,""\n",2015-02-01 12:00:00.000Z\n'
    )
    assert (tmp_path / "1.csv").read_bytes() == (tmp_path / "2.csv").read_bytes()
    assert rows_in(drained(read.csv(tmp_path / "1.csv", schema=batch.schema))) == batch.to_pylist()


def test_json_has_a_word_for_everything(tmp_path: Path) -> None:
    """Instants, bytes, decimals, what is not a number, and nests of them."""
    batch = batch_of(
        at=pa.array([NOON, None], pa.timestamp("ms", "UTC")),
        local=pa.array([NOON.replace(tzinfo=None), None], pa.timestamp("us")),
        bytes=pa.array([b"\xff", None]),
        price=pa.array([decimal.Decimal("1.50"), None]),
        ratio=[float("nan"), float("inf")],
        nest=[{"when": NOON, "list": [1, None]}, None],
        word=pa.array(["née", None]).dictionary_encode(),
        span=pa.array([datetime.timedelta(seconds=1.5), None]),
        day=pa.array([NOON.date(), None]),
    )
    written(to.json(tmp_path / "x.json"), batch)
    first, second = (json.loads(line) for line in (tmp_path / "x.json").read_text().splitlines())
    assert first == {
        "at": "2015-02-01T12:00:00.000Z",
        "local": "2015-02-01T12:00:00.000000",
        "bytes": "/w==",
        "price": "1.50",
        "ratio": None,
        "nest": {"when": "2015-02-01T12:00:00Z", "list": [1, None]},
        "word": "née",
        "span": 1.5,
        "day": "2015-02-01",
    }
    assert set(second.values()) == {None}


def test_json_lines_may_change_their_columns(tmp_path: Path) -> None:
    """Each line says what it has."""
    written(to.json(tmp_path / "x.json"), batch_of(a=[1]), batch_of(b=["x"]))
    assert (tmp_path / "x.json").read_text() == '{"a":1}\n{"b":"x"}\n'


def test_text_is_one_column(tmp_path: Path) -> None:
    """A newline inside would make two rows of one, so it is refused."""
    written(to.text(tmp_path / "x.txt", "s"), batch_of(s=["one", None, "two"], a=[1, 2, 3]))
    assert (tmp_path / "x.txt").read_text() == "one\n\ntwo\n"
    with pytest.raises(ConnectorError, match="newline inside"):
        written(to.text(tmp_path / "y.txt", "s"), batch_of(s=["one\ntwo"]))
    with pytest.raises(SchemaMismatch, match="no column 't', only: s"):
        written(to.text(tmp_path / "y.txt", "t"), batch_of(s=["one"]))
    with pytest.raises(SchemaMismatch, match="column 'a' is int64, not text"):
        written(to.text(tmp_path / "y.txt", "a"), batch_of(a=[1]))


@pytest.mark.parametrize("make", [to.csv, to.parquet])
def test_the_first_rows_fix_the_columns(tmp_path: Path, make: type) -> None:
    """Also after a restart; the difference is spelled out."""
    sink = make(tmp_path / "x")
    writer = sink.open(None)
    position = writer.write([batch_of(a=[1], b=[2])])
    for _ in range(2):
        with pytest.raises(SchemaMismatch, match=r"(has|have) columns a.*but rows came with b.*select"):
            writer.write([batch_of(b=[2], a=[1])])
        writer.close()
        writer = sink.open(position)


def test_csv_refuses_what_it_cannot_hold(tmp_path: Path) -> None:
    """Lists, structs and bytes."""
    for value in ([1], {"x": 1}, b"x"):
        with pytest.raises(SchemaMismatch, match="which CSV cannot hold; leave it out"):
            written(to.csv(tmp_path / "x.csv"), batch_of(a=[value]))


@pytest.mark.parametrize("make", [to.csv, to.json, to.parquet])
def test_a_new_app_refuses_overwrites_or_appends_as_it_is_told(tmp_path: Path, make: type) -> None:
    """It refuses by default."""
    path = tmp_path / "x"
    written(make(path), batch_of(a=[1]))
    with pytest.raises(ConnectorError, match=r'delete it, or pass mode="append" or mode="overwrite"'):
        make(path).open(None)
    written(make(path, mode="append"), batch_of(a=[2]), batch_of(a=[3]))
    readers = {to.csv: read.csv, to.json: read.json, to.parquet: read.parquet}
    assert [row["a"] for row in rows_in(drained(readers[make](path)))] == [1, 2, 3]  # type: ignore[index]
    written(make(path, mode="overwrite"), batch_of(a=[4]))
    assert [row["a"] for row in rows_in(drained(readers[make](path)))] == [4]  # type: ignore[index]


def test_rows_are_not_appended_to_half_a_line_or_to_other_columns(tmp_path: Path) -> None:
    """Repairing another's file is not ours to do."""
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2")
    with pytest.raises(ConnectorError, match=r"x\.csv does not end in a newline"):
        to.csv(path, mode="append").open(None)
    path.write_text("a,b\n1,2\n")
    with pytest.raises(SchemaMismatch, match="has columns a, b, but rows came with a"):
        written(to.csv(path, mode="append"), batch_of(a=[1]))


def test_committed_bytes_that_are_gone_are_refused(tmp_path: Path) -> None:
    """The rows cannot be written again by anyone."""
    path = tmp_path / "x.csv"
    sink = to.csv(path)
    position = written(sink, batch_of(a=[1]))
    path.write_text("a")
    with pytest.raises(ConnectorError, match=r"x\.csv has only 1 bytes, but 6 bytes of it are committed; restore it"):
        sink.open(position)
    path.unlink()
    with pytest.raises(ConnectorError, match=r"x\.csv is gone, but 6 bytes of it are committed"):
        sink.open(position)


def test_committed_parts_that_are_gone_are_refused(tmp_path: Path) -> None:
    """Shorter or missing."""
    sink = to.parquet(tmp_path / "x")
    position = written(sink, batch_of(a=[1, 2]))
    pa.parquet.write_table(pa.table({"a": [1]}), tmp_path / "x" / "part-00000001.parquet")
    with pytest.raises(ConnectorError, match="has 1 rows, but 2 are committed"):
        sink.open(position)
    (tmp_path / "x" / "part-00000001.parquet").unlink()
    with pytest.raises(ConnectorError, match="holds 2 committed rows but cannot be read"):
        sink.open(position)


def test_parquet_keeps_types_that_its_files_do_not(tmp_path: Path) -> None:
    """Whole seconds become milliseconds in a file; after a restart they still fit."""
    sink = to.parquet(tmp_path / "x")
    seconds = batch_of(t=pa.array([1, 2], pa.timestamp("s")), w=pa.array(["a", "b"]).dictionary_encode())
    position = written(sink, seconds)
    sink.open(position).write([seconds])
    assert len(rows_in(drained(read.parquet(tmp_path / "x")))) == 4


def test_parquet_takes_categories_however_many_there_come_to_be(tmp_path: Path) -> None:
    """Two frames of a hundred categories each, which pandas numbers with a byte."""
    frames = [pd.DataFrame({"word": pd.Categorical([f"{first}{n}" for n in range(100)])}) for first in "xy"]
    batches = [pa.RecordBatch.from_pandas(frame, preserve_index=False) for frame in frames]
    written(to.parquet(tmp_path / "x"), *batches)
    rows = rows_in(drained(read.parquet(tmp_path / "x")))
    assert [row["word"] for row in rows] == [f"{first}{n}" for first in "xy" for n in range(100)]


def test_parquet_rows_are_not_appended_to_other_columns(tmp_path: Path) -> None:
    """The column is named."""
    written(to.parquet(tmp_path / "x"), batch_of(a=[1]))
    with pytest.raises(SchemaMismatch, match="column 'a' is missing, there are only: b"):
        written(to.parquet(tmp_path / "x", mode="append"), batch_of(b=[1]))


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A directory that is missing, one that is no file, a file that is no directory."""
    with pytest.raises(ConnectorError, match="gone does not exist; create it"):
        to.csv(tmp_path / "gone" / "x.csv").open(None)
    with pytest.raises(ConnectorError, match="is a directory"):
        to.csv(tmp_path).open(None)
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConnectorError, match="is a file; give a directory"):
        to.parquet(tmp_path / "file").open(None)


def test_sync_writes_the_same_bytes(tmp_path: Path) -> None:
    """Only later."""
    written(to.csv(tmp_path / "1.csv", sync=True), batch_of(a=[1]))
    written(to.parquet(tmp_path / "parts", sync=True), batch_of(a=[1]), batch_of(a=[2]))
    assert (tmp_path / "1.csv").read_text() == '"a"\n1\n'


def test_the_console_shows_aligned_rows_up_to_its_limit() -> None:
    """The rest is counted, not shown."""
    shown = io.StringIO()
    position = written(
        to.console(limit=3, file=shown),
        batch_of(city=["Geneva", "Rio"], t=[1.5, None]),
        batch_of(city=["a\nb" * 20, "x"], t=[1, 2]),
    )
    assert shown.getvalue().splitlines() == [
        "city    t",
        "Geneva  1.5",
        "Rio     -",
        "a\\nba\\nba\\nba\\nba\\nba\\nba\\nba...  1",
        "... further rows are not shown: limit=3",
    ]
    assert position == {"rows": 4}


def test_memory_keeps_the_latest_rows_and_counts_all() -> None:
    """Within its limit."""
    sink = to.memory(limit=3)
    written(sink, batch_of(a=[1, 2]), batch_of(a=[3, 4]), batch_of(a=[]))
    assert [row["a"] for row in sink.rows()] == [2, 3, 4]
    assert (sink.rows_seen, sink.table().num_rows, len(sink.batches())) == (4, 3, 2)


def test_a_memory_sink_that_travels_within_the_process_is_the_same_sink() -> None:
    """So a flow may be pickled on its way to the engine."""
    sink = to.memory()
    travelled = pickle.loads(pickle.dumps(sink))
    written(travelled, batch_of(a=[1]))
    assert sink.rows() == [{"a": 1}]


def test_a_function_is_called_with_every_batch() -> None:
    """In order."""
    seen: list[int] = []
    position = written(to.call(lambda batch: seen.append(batch.num_rows)), batch_of(a=[1, 2]), batch_of(a=[3]))
    assert (seen, position) == ([2, 1], {"rows": 3})


def test_nothing_counts(tmp_path: Path) -> None:
    """And goes on counting after a restart."""
    writer = to.nothing().open({"rows": 5})
    assert writer.write([batch_of(a=[1, 2])]) == {"rows": 7}


def test_every_sink_is_a_sink_and_says_what_it_promises() -> None:
    """Files and memory exactly once; what leaves the process cannot be taken back."""
    promises = {
        "csv": to.csv("x"),
        "json": to.json("x"),
        "text": to.text("x"),
        "parquet": to.parquet("x"),
        "memory": to.memory(),
        "nothing": to.nothing(),
        "console": to.console(),
        "call": to.call(print),
    }
    for kind, sink in promises.items():
        assert isinstance(sink, SinkSpec)
        assert sink.kind == kind
        assert sink.guarantee == ("at-least-once" if kind in ("console", "call") else "exactly-once")


def test_what_cannot_be_meant_is_refused_while_the_flow_is_built() -> None:
    """Not when it runs."""
    with pytest.raises(FlowError, match="mode='replace' is not known"):
        to.csv("x", mode="replace")  # type: ignore[arg-type]
    with pytest.raises(FlowError, match="limit=0 keeps nothing"):
        to.memory(limit=0)
    with pytest.raises(FlowError, match="rows_per_file=0"):
        to.parquet("x", rows_per_file=0)


NOT_FINITE_ROWS: Final = batch_of(
    n=[1.0, float("nan"), None, float("-inf")],
    nest=[
        {"list": [float("inf"), None, 1.0], "x": 1.0},
        None,
        {"list": None, "x": float("nan")},
        {"list": [], "x": 0.0},
    ],
)


def test_numbers_without_a_word_in_json_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Also inside of columns; null is none of them. The count goes on after a restart, and the log tells once."""
    sink = to.json(tmp_path / "x.json")
    position = written(sink, batch_of(n=[1.0]), NOT_FINITE_ROWS, NOT_FINITE_ROWS)
    with closing(sink.open(position)) as writer:
        position = writer.write([NOT_FINITE_ROWS])
        assert told_by(writer) == "12 times NaN or infinity, written as null"
    assert position["nulled"] == 12
    assert [record.message.partition(": ")[2] for record in caplog.records] == [
        "NaN or infinity is written as null, and counted; not_finite='refuse' stops"
    ] * 2
    with closing(to.json(tmp_path / "y.json").open(None)) as writer:
        assert "nulled" not in writer.write([batch_of(n=[1.0, None], s=["nan", None])])
        assert told_by(writer) == ""


@pytest.mark.parametrize("column", ["n", "nest"])
def test_numbers_without_a_word_in_json_are_refused_where_that_is_wished(tmp_path: Path, column: str) -> None:
    """Nothing of those rows is written."""
    sink = to.json(tmp_path / "x.json", not_finite="refuse")
    with pytest.raises(SchemaMismatch, match=f"column '{column}' has NaN or infinity"):
        written(sink, batch_of(n=[1.0]), NOT_FINITE_ROWS.select([column]))
    assert (tmp_path / "x.json").read_text() == '{"n":1.0}\n'
    with pytest.raises(FlowError, match="not_finite='drop' is not known; give one of null, refuse"):
        to.json(tmp_path / "x.json", not_finite="drop")  # type: ignore[arg-type]
