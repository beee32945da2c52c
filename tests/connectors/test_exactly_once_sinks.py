"""Whatever is killed while writing, the files hold exactly the committed rows."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.connectors import read, to
from headwater.connectors.files.linesink import CutFile
from headwater.connectors.files.tablesink import ParquetSink
from headwater.dataflow.connectors import Position, SinkSpec
from headwater.model.errors import ConnectorError
from tests.connectors.polls import batch_of, drained, rows_in, stored_form, written

# Each step writes so many rows in batches; then it is committed, lost with the process, or lost by a restart at once.
steps = st.lists(
    st.tuples(st.lists(st.integers(0, 7), max_size=3), st.sampled_from(["commit", "commit", "crash", "restart"])),
    max_size=12,
)


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    """One directory for all examples."""
    with TemporaryDirectory() as name:
        yield Path(name)


def run_with_crashes(sink: SinkSpec, drawn: Any) -> list[int]:
    """Write numbered rows, losing some, and return the numbers that were committed."""
    writer = sink.open(None)
    position, committed, number = stored_form(writer.write([])), list[int](), 0
    for sizes, outcome in drawn:
        batches = []
        for size in sizes:
            batches.append(batch_of(number=pa.array(range(number, number + size), pa.int64()), text=["x,\n"] * size))
            number += size
        reached = writer.write(batches)
        if outcome != "crash":
            position = stored_form(reached)
            committed += [row["number"] for batch in batches for row in batch.to_pylist()]
        if outcome != "commit":
            writer.close()
            writer = sink.open(position)
    writer.close()
    sink.open(position).close()
    return committed


@settings(max_examples=100, deadline=None)
@given(drawn=steps)
def test_a_csv_file_holds_the_committed_rows(directory: Path, drawn: Any) -> None:
    """With one header, however often it was begun."""
    path = directory / "rows.csv"
    committed = run_with_crashes(to.csv(path, mode="overwrite"), drawn)
    rows = rows_in(drained(read.csv(path)))
    assert rows == [{"number": number, "text": "x,\n"} for number in committed]


@settings(max_examples=100, deadline=None)
@given(drawn=steps)
def test_a_json_file_holds_the_committed_rows(directory: Path, drawn: Any) -> None:
    """Line by line."""
    path = directory / "rows.json"
    committed = run_with_crashes(to.json(path, mode="overwrite"), drawn)
    assert [row["number"] for row in rows_in(drained(read.json(path)))] == committed


@settings(max_examples=100, deadline=None)
@given(drawn=steps, rows_per_file=st.integers(1, 12))
def test_a_parquet_directory_holds_the_committed_rows(directory: Path, drawn: Any, rows_per_file: int) -> None:
    """In full parts but the last, numbered without a gap, with nothing left over."""
    parts = directory / "parts"
    committed = run_with_crashes(to.parquet(parts, mode="overwrite", rows_per_file=rows_per_file), drawn)
    names = sorted(path.name for path in parts.iterdir())
    assert names == [f"part-{number + 1:08d}.parquet" for number in range(len(names))]
    sizes = [pq.read_metadata(parts / name).num_rows for name in names]
    assert sizes[:-1] == [rows_per_file] * len(sizes[:-1])
    if names:
        assert [row["number"] for row in rows_in(drained(read.parquet(parts)))] == committed
    else:
        assert committed == []


@given(drawn=steps)
def test_a_memory_sink_holds_the_committed_rows(drawn: Any) -> None:
    """It forgets what came after the position."""
    sink = to.memory()
    committed = run_with_crashes(sink, drawn)
    assert [row["number"] for row in sink.rows()] == committed


KILLED_AT = """
import os, sys
import pyarrow as pa
from headwater.connectors import to

moves_left = None

def count_down(event, arguments):
    global moves_left
    if moves_left is not None and event in ("open", "os.rename", "os.remove", "os.truncate"):
        if moves_left == 0:
            os._exit(9)
        moves_left -= 1

sys.addaudithook(count_down)
for moves, directory in enumerate(sys.argv[2:]):
    if os.fork() == 0:
        writer = to.parquet(directory, rows_per_file=5).open(eval(sys.argv[1]))
        moves_left = moves
        writer.write([pa.RecordBatch.from_pydict({"number": list(range(3, 14))})])
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_a_parquet_write_killed_at_any_step_can_be_undone_and_done_again(tmp_path: Path) -> None:
    """A process is killed before its first move on the disk, its second, and so on until it survives."""
    sinks = [to.parquet(tmp_path / f"{number:02d}", rows_per_file=5) for number in range(16)]
    position, *_ = [written(sink, batch_of(number=[0, 1, 2])) for sink in sinks]
    endings = run(tmp_path, KILLED_AT, repr(position), *(sink.directory for sink in sinks)).split()
    assert endings == sorted(endings, key=int, reverse=True)
    assert set(endings) == {"9", "0"}
    for sink in sinks:
        assert rows_after(sink, position, []) == [0, 1, 2]
        assert rows_after(sink, position, [3, 4, 5]) == [0, 1, 2, 3, 4, 5]


def run(directory: Path, program: str, *arguments: str) -> str:
    """Run a program in a process of its own and return what it prints."""
    path = directory / "program.py"
    path.write_text(program)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(name for name in sys.path if name)}
    command = [sys.executable, str(path), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def rows_after(sink: ParquetSink, position: Position, numbers: list[int]) -> list[int]:
    """Open the sink at the position, perhaps write more, and return what a reader of the directory sees."""
    writer = sink.open(position)
    if numbers:
        writer.write([batch_of(number=numbers)])
    writer.close()
    return [row["number"] for row in rows_in(drained(read.parquet(sink.directory)))]


def test_a_reader_never_sees_a_row_twice_between_two_writes(tmp_path: Path) -> None:
    """The part that was put aside is hidden."""
    writer = to.parquet(tmp_path, rows_per_file=5).open(None)
    for number in range(12):
        writer.write([batch_of(number=[number])])
        seen = [row["number"] for row in rows_in(drained(read.parquet(tmp_path)))]
        assert seen == list(range(number + 1))


FULL_DISK = """
import resource, sys
import pyarrow as pa
from headwater.connectors import to
from headwater.model.errors import ConnectorError

kind, path = sys.argv[1:]
sink = {"csv": to.csv, "json": to.json, "parquet": to.parquet}[kind](path)
writer = sink.open(None)
few = pa.RecordBatch.from_pydict({"number": [1, 2, 3]})
many = pa.RecordBatch.from_pydict({"number": [n * 7919 % 100_003 for n in range(50_000)]})
position = writer.write([few])
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    writer.write([many])
except ConnectorError as refusal:
    print(refusal)
assert writer.write([few])["rows" if kind == "parquet" else "bytes"] > 0
writer.close()
sink.open(position)
"""


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_no_room_is_a_sentence_and_nothing_half_written_stays(tmp_path: Path, kind: str) -> None:
    """The next write works once there is room, and the committed rows are what a reader finds."""
    path = tmp_path / "output"
    assert run(tmp_path, FULL_DISK, kind, str(path)).startswith("no space left for ")
    streams = {"csv": read.csv, "json": read.json, "parquet": read.parquet}
    assert rows_in(drained(streams[kind](path))) == [{"number": number} for number in (1, 2, 3)]


def test_a_full_device_is_told_as_no_space_left() -> None:
    """Linux has a device that is always full."""
    file = CutFile("/dev/full")
    with pytest.raises(ConnectorError, match="no space left for 5 bytes of /dev/full; free some space"):
        file.write(b"bytes", 0)
    file.close()


def test_two_writers_of_one_memory_sink_each_go_on_behind_their_own_rows() -> None:
    """What one had not committed is forgotten, and nothing of the other; the next run begins with nothing."""
    sink = to.memory()
    one, other = sink.open(None), sink.open(None)
    position = one.write([batch_of(n=[1])])
    other.write([batch_of(n=[2])])
    one.write([batch_of(n=[3, 4])])
    other.write([batch_of(n=[5])])
    one.close()
    one = sink.open(position)
    assert [row["n"] for row in sink.rows()] == [1, 2, 5]
    one.write([batch_of(n=[6])])
    assert ([row["n"] for row in sink.rows()], sink.rows_seen) == ([1, 2, 5, 6], 4)
    one.close()
    other.close()
    sink.open(None)
    assert (sink.rows(), sink.rows_seen) == ([], 0)
