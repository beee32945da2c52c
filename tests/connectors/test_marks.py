"""A sink that goes on cuts off rows of its own only: never those of an app that has written there in the meantime."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from headwater.connectors import to
from headwater.dataflow.connectors import Position, SinkSpec
from headwater.model.errors import ConnectorError
from tests.connectors.polls import batch_of, stored_form

Make = Callable[..., SinkSpec]
SINKS: Final[dict[str, Make]] = {"csv": to.csv, "json": to.json, "text": to.text, "parquet": to.parquet}
ANOTHERS: Final = "another app has written to .* since this one was stopped, and going on where it stood would cut"


@pytest.fixture(params=SINKS)
def make(request: pytest.FixtureRequest) -> Make:
    """What makes a sink of each kind."""
    return SINKS[request.param]


def wrote(sink: SinkSpec, position: Position | None, *lines: str) -> Position:
    """Open a sink, write rows, close it, and return the position as a store gives it back."""
    writer = sink.open(position)
    try:
        return stored_form(writer.write([batch_of(line=list(lines))] if lines else []))
    finally:
        writer.close()


def contents(place: Path) -> dict[str, bytes]:
    """Return all that readers see in a file or directory."""
    files = [place] if place.is_file() else [path for path in place.iterdir() if path.name[0] != "_"]
    return {path.name: path.read_bytes() for path in files}


def test_rows_of_an_app_that_came_in_between_are_not_cut_off(tmp_path: Path, make: Make) -> None:
    """The first to have written there is refused; the one whose rows come last goes on."""
    place = tmp_path / "rows"
    sink = make(place, mode="append")
    first = wrote(sink, None, "first 0", "first 1")
    second = wrote(sink, None, "second 0")
    both = contents(place)
    with pytest.raises(ConnectorError, match=ANOTHERS):
        sink.open(first)
    assert contents(place) == both
    with pytest.raises(ConnectorError, match=ANOTHERS):
        sink.open(first)
    wrote(sink, second, "second 1")
    assert len(b"".join(contents(place).values())) > len(b"".join(both.values()))


def test_what_was_not_committed_before_another_came_is_not_cut_off_either(tmp_path: Path, make: Make) -> None:
    """It was killed between writing and committing; another's rows lie behind."""
    place = tmp_path / "rows"
    sink = make(place, mode="append", **({"rows_per_file": 1} if make is to.parquet else {}))
    first = wrote(sink, None, "first 0")
    wrote(sink, first, "first 1, which is not committed")
    wrote(sink, None, "second 0")
    both = contents(place)
    with pytest.raises(ConnectorError, match=ANOTHERS):
        sink.open(first)
    assert contents(place) == both


def test_a_new_file_under_the_old_name_is_not_cut_either(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    sink = to.text(path, mode="overwrite")
    first = wrote(sink, None, "a")
    wrote(sink, None, "a longer line of another app")
    with pytest.raises(ConnectorError, match=ANOTHERS):
        sink.open(first)
    path.unlink()
    wrote(sink, None, "a longer line of a third one")
    with pytest.raises(ConnectorError, match=ANOTHERS):
        sink.open(first)
    assert path.read_text() == "a longer line of a third one\n"


def test_an_app_that_came_and_wrote_nothing_is_in_nobodys_way(tmp_path: Path, make: Make) -> None:
    """The place is the first one's again, and now it is the other one that is refused."""
    sink = make(tmp_path / "rows", mode="append", **({"rows_per_file": 1} if make is to.parquet else {}))
    first = wrote(sink, None, "first 0")
    second = wrote(sink, None)
    first = wrote(sink, first, "first 1")
    with pytest.raises(ConnectorError, match=ANOTHERS):
        sink.open(second)
    wrote(sink, first, "first 2")


@pytest.mark.parametrize("marked", [True, False])
def test_a_position_from_before_there_were_marks_goes_on(tmp_path: Path, make: Make, marked: bool) -> None:
    """Its own rows that are not committed are cut off as ever; those of an app that has left its mark are not."""
    place = tmp_path / "rows"
    sink = make(place, mode="append", **({"rows_per_file": 1} if make is to.parquet else {}))
    old = wrote(sink, None, "first 0")
    del old["writer"]
    os.removexattr(place, "user.headwater.writer")
    committed = contents(place)
    wrote(sink, old, "first 1, which is not committed")
    if marked:
        wrote(sink, None, "second 0")
        with pytest.raises(ConnectorError, match=ANOTHERS):
            sink.open(old)
    else:
        assert wrote(sink, old)["writer"] is None
        assert contents(place) == committed
