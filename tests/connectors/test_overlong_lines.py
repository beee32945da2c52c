"""A line that is longer than any row may be: left out and counted where bad lines are, never held whole."""

import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.connectors import read, to
from headwater.connectors.files.linefeed import LINE_BYTES_MAX, PASSED_BYTES_MAX
from headwater.connectors.sources import CsvSource, JsonSource, LineSource, TextSource
from headwater.dataflow.connectors import Idle, Rows
from headwater.dataflow.stream import flow, source
from headwater.model.errors import ConnectorError
from headwater.runtime.node import Node
from tests.connectors.polls import polled, read_with_restarts, rest_of, rows_in, stored_form

MANY_BYTES = 400 << 20
SMALL: dict[str, Any] = {"bad_lines": "skip", "chunk_bytes": 8, "line_bytes_max": 64}
LONG = "x" * 100


def outcome(spec: LineSource) -> tuple[list[list[object]], int, int]:
    """Return the rows of a source, and how many lines were left out as too large and as no rows."""
    answers = rest_of(spec.open(None))
    rows = [list(row.values()) for row in rows_in(answers)]
    return rows, sum(one.too_large for one in answers), sum(one.unparsable for one in answers)


@pytest.mark.parametrize("newline", [b"", b"\n", b"\nlast\n"])
def test_a_line_of_many_megabytes_is_left_out_and_never_held(tmp_path: Path, newline: bytes) -> None:
    """With a newline at its end or without; what is held is bounded by the limit of a line, not by the line."""
    path = tmp_path / "x.txt"
    with path.open("wb") as file:
        file.write(b"first\n")
        file.truncate(MANY_BYTES)  # zeros, that take no room
        file.seek(MANY_BYTES)
        file.write(newline)
    tracemalloc.start()
    try:
        found = outcome(TextSource(path=str(path), bad_lines="skip"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    rows = [["first"], ["last"]] if b"last" in newline else [["first"]]
    assert found == (rows, 1, 0)
    assert peak < 9 * LINE_BYTES_MAX // 4, "the part that is read at once, the newlines looked for in it, and some room"


def test_without_skipping_it_stops_the_source_with_its_place_and_what_to_do(tmp_path: Path) -> None:
    """As before."""
    path = tmp_path / "x.txt"
    with path.open("wb") as file:
        file.write(b"first\n")
        file.truncate(MANY_BYTES)
    with pytest.raises(ConnectorError, match=r'x\.txt:2: the line is longer than 64 MiB.*bad_lines="skip"'):
        rest_of(TextSource(path=str(path)).open(None))


@pytest.mark.parametrize(
    ("spec", "lines", "rows"),
    [
        (TextSource(path="", **SMALL), ["a", LONG, "b"], [["a"], ["b"]]),
        (JsonSource(path="", **SMALL), ['{"a":1}', f'{{"a":"{LONG}"}}', '{"a":2}'], [[1], [2]]),
        (CsvSource(path="", **SMALL), ["a,b", "1,2", f"{LONG},3", "4,5"], [[1, 2], [4, 5]]),
        (CsvSource(path="", header=False, **SMALL), [f"{LONG},3,4", "1,2", "4,5"], [[1, 2], [4, 5]]),
        (CsvSource(path="", header=False, **SMALL), ["1,2", f'"{LONG}",3', "4,5"], [[1, 2], [4, 5]]),
    ],
)
def test_lines_behind_it_are_read_in_every_format(
    tmp_path: Path, spec: LineSource, lines: Sequence[str], rows: list[list[object]]
) -> None:
    """Also where it is the first of a file without a header, and tells nothing of the columns."""
    path = tmp_path / "x"
    path.write_text("\n".join(lines) + "\n")
    place = {"path": str(path)}
    assert outcome(type(spec)(**{**_settings(spec), **place})) == (rows, 1, 0)


def _settings(spec: LineSource) -> dict[str, Any]:
    return {**SMALL, **({"header": spec.header} if isinstance(spec, CsvSource) else {})}


def test_a_quote_that_is_never_closed_costs_its_own_line_and_none_behind_it(tmp_path: Path) -> None:
    """Within the length of a line there is no end of the record, so the line that opens the quote is a bad one."""
    path = tmp_path / "x.csv"
    path.write_text('a,b\n1,"x\n' + "".join(f"{number},y\n" for number in range(40)))
    rows, too_large, unparsable = outcome(CsvSource(path=str(path), **SMALL))
    assert (len(rows), too_large, unparsable) == (40, 0, 1)


def test_a_followed_file_waits_for_its_end_and_a_restart_begins_before_it(tmp_path: Path) -> None:
    """Nothing is looked at twice while it grows; when the newline comes it is counted, once."""
    path = tmp_path / "log"
    path.write_text(f"one\n{LONG}")
    spec = TextSource(path=str(path), follow=True, **SMALL)
    reader = spec.open(None)
    before = polled(reader)
    assert before.batch.to_pylist() == [{"line": "one"}]
    for _ in range(3):
        assert isinstance(reader.poll(10, 0), Idle)
        with path.open("a") as file:
            file.write(LONG)
    with path.open("a") as file:
        file.write("\ntwo\n")
    for again in (reader, spec.open(stored_form(before.position))):
        left_out = polled(again)
        assert (left_out.batch.num_rows, left_out.too_large) == (0, 1)
        assert polled(again).batch.to_pylist() == [{"line": "two"}]
        assert stored_form(left_out.position)["line"] == 3


def test_others_have_their_turn_while_a_very_long_line_is_passed_over(tmp_path: Path) -> None:
    """One poll reads a bounded part of it."""
    path = tmp_path / "x.txt"
    with path.open("wb") as file:
        file.truncate(LINE_BYTES_MAX + 2 * PASSED_BYTES_MAX + 1)
    reader = TextSource(path=str(path), bad_lines="skip").open(None)
    answers = [reader.poll(10, 0) for _ in range(3)]
    assert [type(one) for one in answers] == [Idle, Idle, Rows]


@given(
    st.lists(st.one_of(st.integers(0, 50), st.integers(65, 300)), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(1, 3), st.booleans(), st.booleans()), min_size=1).filter(
        lambda steps: any(commits for _, commits, _ in steps)
    ),
    st.booleans(),
)
def test_restarts_change_nothing(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], steps: list[tuple[int, bool, bool]], ends: bool
) -> None:
    """Wherever the source is stopped, each line is a row once or left out."""
    path = tmp_path_factory.mktemp("lines") / "x.txt"
    lines = [f"{number}:".ljust(length, "x") for number, length in enumerate(lengths)]
    path.write_text("\n".join(lines) + ("\n" if ends else ""))
    rows = read_with_restarts(source(TextSource(path=str(path), **SMALL)), steps)
    assert [row["line"] for row in rows] == [line for line in lines if len(line) < 65]


def test_a_run_goes_on_and_its_ledger_counts_the_line_as_too_large(tmp_path: Path, thread_node: Node) -> None:
    """Beside rows that no queue takes: one reason for both."""
    path, sink = tmp_path / "x.txt", to.memory()
    with path.open("wb") as file:
        file.write(b"first\n")
        file.truncate(MANY_BYTES)
        file.seek(MANY_BYTES)
        file.write(b"\nlast\n")
    app = thread_node.deploy(flow("overlong", read.text(path, bad_lines="skip").sink(sink)))
    assert thread_node.wait(app, 60.0)
    assert [row["line"] for row in sink.rows()] == ["first", "last"]
    ledger = thread_node.ledger(app)
    assert (ledger.balanced, ledger.rows_in, ledger.dropped) == (True, 3, {"too-large": 1})
