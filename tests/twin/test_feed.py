"""From a source to files."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.connectors.sources import IterableSource
from headwater.model.errors import FlowError, SchemaMismatch
from headwater.operators.watermarks import WithWatermark
from headwater.twin.feed import FILES_AHEAD, Feeder
from tests.twin.readings import READINGS, readings


def always() -> bool:
    """Go on waiting."""
    return True


def feeder_of(items: list[Any], directory: Path, schema: pa.Schema | None = None, **how: Any) -> Feeder:
    """Return a feeder of these items."""
    settings = {"file_rows": 100, "cut": None, "gather": False, **how}
    return Feeder("s", IterableSource(items=items, schema=schema), directory / "rows", **settings)


def fed(feeder: Feeder) -> list[list[dict[str, Any]]]:
    """Let the feeder work to its end, with readers that keep up, and return the rows of each file."""
    names = feeder.schema(always).names
    files: list[list[dict[str, Any]]] = []
    while not feeder.has_ended:
        feeder.turn()
        assert feeder.staged <= len(files) + 1, "one file at a time: each may have to be worked off first"
        for number in range(len(files), feeder.staged):
            table = pq.read_table(feeder.directory / f"{number:09}.parquet", partitioning=None)
            files.append(table.rename_columns(names).to_pylist())
        feeder.consumed = feeder.staged
    return files


def test_every_batch_is_a_file_and_file_times_rise(tmp_path: Path) -> None:
    feeder = feeder_of([pa.RecordBatch.from_pylist([{"x": number}]) for number in range(5)], tmp_path)
    feeder.schema(always)
    while not feeder.has_ended:
        feeder.turn()
    times = [path.stat().st_mtime_ns // 1_000_000 for path in sorted(feeder.directory.iterdir())]
    assert len(times) == 5
    assert times == sorted(set(times))
    assert feeder.rows == 5


def test_a_reader_that_is_behind_gets_fewer_and_larger_files(tmp_path: Path) -> None:
    batches = [pa.RecordBatch.from_pylist([{"x": number}]) for number in range(10)]
    feeder = feeder_of(batches, tmp_path, pa.schema([("x", pa.int64())]), gather=True)
    while not feeder.has_ended:
        feeder.turn()
    assert feeder.staged == 2, "the first at once, since nobody waits for anything; the others together"


def test_a_source_waits_when_nobody_reads_and_read_files_are_deleted(tmp_path: Path) -> None:
    batches = [pa.RecordBatch.from_pylist([{"x": number}]) for number in range(FILES_AHEAD + 5)]
    feeder = feeder_of(batches, tmp_path, pa.schema([("x", pa.int64())]))
    for _ in range(100):
        feeder.turn()
    assert (feeder.staged, feeder.has_ended) == (FILES_AHEAD, False)
    feeder.consumed = FILES_AHEAD
    for _ in range(100):
        feeder.turn()
    assert (feeder.staged, feeder.has_ended, feeder.is_consumed) == (FILES_AHEAD + 5, True, False)
    assert len(list(feeder.directory.iterdir())) == 5 + 2


def test_a_late_row_begins_a_new_file(tmp_path: Path) -> None:
    rows = [readings([("a", 1, 1.0), ("a", 20, 2.0), ("a", 9, 3.0), ("a", 21, 4.0), ("a", 10, 5.0)])]
    cut = WithWatermark(column="ts", delay_us=10_000_000)
    files = fed(feeder_of(rows, tmp_path, READINGS, cut=cut))
    assert [[row["value"] for row in rows] for rows in files] == [[1.0, 2.0], [3.0, 4.0], [5.0]]


def test_columns_are_found_in_the_first_rows_and_kept(tmp_path: Path) -> None:
    feeder = feeder_of([{"x": 1}, {"x": 2, "y": "b"}], tmp_path)
    assert feeder.schema(always).names == ["x", "y"]
    assert fed(feeder) == [[{"x": 1, "y": None}, {"x": 2, "y": "b"}]]


def test_rows_that_do_not_fit_the_first_are_refused(tmp_path: Path) -> None:
    feeder = feeder_of([{"x": 1}] * 1_000 + [{"x": "text"}], tmp_path)
    with pytest.raises(SchemaMismatch):
        fed(feeder)


def test_a_source_without_rows_or_declaration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FlowError, match="source 's' has no rows and declares no schema="):
        feeder_of([], tmp_path).schema(always)
    with pytest.raises(FlowError, match="source 's' has given no rows and declares no schema="):
        feeder_of([{"x": 1}], tmp_path / "later").schema(lambda: False)
