"""A growing file: complete lines only, through truncation and rotation."""

import gzip
from pathlib import Path

import pytest

from headwater.connectors import read
from headwater.connectors.files.files import GONE_LOOKS
from headwater.dataflow.connectors import Idle, SourceReader, told_by
from headwater.model.errors import ConnectorError
from tests.connectors.polls import polled, spec_of


def append(path: Path, text: str) -> None:
    """Write as a logger does."""
    with path.open("a") as file:
        file.write(text)


def lines(reader: SourceReader) -> list[str]:
    """Return the lines of one poll; none if there is nothing to read yet."""
    answer = reader.poll(1000, 0)
    return [] if isinstance(answer, Idle) else [row["line"] for row in polled_rows(answer)]


def polled_rows(answer: object) -> list[dict[str, str]]:
    """Return the rows of an answer."""
    return answer.batch.to_pylist()  # type: ignore[attr-defined,no-any-return]


def test_a_half_written_line_is_no_row_until_its_newline_comes(tmp_path: Path) -> None:
    """Then it is one row, whole."""
    path = tmp_path / "log"
    append(path, "one\ntw")
    reader = spec_of(read.text(path, follow=True)).open(None)
    assert (lines(reader), lines(reader)) == (["one"], [])
    append(path, "o\nthree\n")
    assert (lines(reader), lines(reader)) == (["two", "three"], [])


def test_a_followed_csv_waits_for_its_header_and_for_the_end_of_a_quote(tmp_path: Path) -> None:
    """A newline inside quotes completes nothing."""
    path = tmp_path / "x.csv"
    append(path, "a,")
    reader = spec_of(read.csv(path, follow=True)).open(None)
    assert isinstance(reader.poll(10, 0), Idle)
    append(path, 'b\n1,"x\n')
    assert isinstance(reader.poll(10, 0), Idle)
    append(path, 'y"\n')
    assert polled(reader).batch.to_pylist() == [{"a": 1, "b": "x\ny"}]


def test_a_file_cut_short_while_being_followed_is_refused(tmp_path: Path) -> None:
    """What was in it is gone, and what comes is not what follows."""
    path = tmp_path / "log"
    append(path, "one\ntwo\n")
    reader = spec_of(read.text(path, follow=True)).open(None)
    lines(reader)
    path.write_text("3\n")
    with pytest.raises(ConnectorError, match="log was cut to 2 bytes after 8 of them had been read"):
        reader.poll(10, 0)


def test_a_file_emptied_and_grown_again_between_two_looks_is_refused(tmp_path: Path) -> None:
    """Its length tells nothing, its beginning does."""
    path = tmp_path / "log"
    append(path, "one\n")
    reader = spec_of(read.text(path, follow=True)).open(None)
    lines(reader)
    path.write_text("two\nthree\n")
    with pytest.raises(ConnectorError, match="log was emptied and written anew"):
        reader.poll(10, 0)


def test_a_rotated_file_is_finished_before_the_new_one_begins(tmp_path: Path) -> None:
    """Also what was written to it after the last look, and between the two names."""
    path = tmp_path / "log"
    append(path, "one\n")
    reader = spec_of(read.text(path, follow=True)).open(None)
    assert lines(reader) == ["one"]
    path.rename(tmp_path / "log.1")
    append(tmp_path / "log.1", "two\nthr")
    assert lines(reader) == ["two"]
    assert lines(reader) == []
    append(tmp_path / "log.1", "ee")
    append(path, "four\n")
    assert [lines(reader), lines(reader), lines(reader)] == [["three"], ["four"], []]


def test_a_file_rotated_while_the_app_was_down_is_found_and_finished(tmp_path: Path) -> None:
    """It is known by its beginning; one before it that was compressed is not it."""
    path = tmp_path / "log"
    (tmp_path / "log.0.gz").write_bytes(gzip.compress(b"zero\n"))
    append(path, "one\ntwo\n")
    spec = spec_of(read.text(path, follow=True))
    position = polled(spec.open(None), rows_max=1).position
    path.rename(tmp_path / "log.1")
    append(path, "three\n")
    reader = spec.open(position)
    assert [lines(reader), lines(reader)] == [["two"], ["three"]]


def test_a_followed_file_that_is_nowhere_after_a_restart_is_named(tmp_path: Path) -> None:
    """Neither under its name nor beside it."""
    path = tmp_path / "log"
    append(path, "one\ntwo\n")
    spec = spec_of(read.text(path, follow=True))
    position = polled(spec.open(None), rows_max=1).position
    path.write_text("another\nfile\n")
    with pytest.raises(ConnectorError, match="neither there nor beside it"):
        spec.open(position)


def test_a_followed_directory_takes_files_as_they_come(tmp_path: Path) -> None:
    """In the order of their names; the last one may still grow."""
    reader = spec_of(read.text(tmp_path, follow=True)).open(None)
    assert lines(reader) == []
    append(tmp_path / "1", "one\n")
    assert [lines(reader), lines(reader)] == [["one"], []]
    append(tmp_path / "1", "two")
    append(tmp_path / "2", "three\n")
    assert [lines(reader), lines(reader), lines(reader)] == [["two"], ["three"], []]


def test_a_followed_file_that_is_deleted_is_told_once_and_its_successor_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What it still held is read first; where logs are rotated, the next file is there before anybody is told."""
    path = tmp_path / "log"
    append(path, "one\n")
    reader = spec_of(read.text(path, follow=True)).open(None)
    assert lines(reader) == ["one"]
    append(path, "two\n")
    path.unlink()
    assert lines(reader) == ["two"]
    for _ in range(GONE_LOOKS - 1):
        assert lines(reader) == []
    assert (told_by(reader), caplog.messages) == ("", [])
    for _ in range(2 * GONE_LOOKS):
        assert lines(reader) == []
    assert told_by(reader) == f"{path} was moved or deleted; waiting for a new file"
    assert caplog.messages == [f"{path} was moved or deleted while it was followed; a new file is waited for"]
    append(path, "three\n")
    assert (lines(reader), told_by(reader)) == (["three"], "")


def test_a_followed_file_without_rows_says_that_it_has_none_yet(tmp_path: Path) -> None:
    """Which is no reason to warn."""
    path = tmp_path / "log"
    path.touch()
    reader = spec_of(read.text(path, follow=True)).open(None)
    assert (lines(reader), told_by(reader)) == ([], f"{path} has no rows yet")
    append(path, "one\n")
    assert (lines(reader), lines(reader), told_by(reader)) == (["one"], [], "")
