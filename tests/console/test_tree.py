"""An app over its tree, as `headwater status` draws it."""

import io

import pytest
from rich.console import Console

from headwater.client.requests import InstanceLine, PartLine, SinkLine, SourceLine, StatusTold
from headwater.console.showing import show_status, tree_table
from headwater.engine.ledger import Ledger
from headwater.engine.status import Latency

DEPTH = 9
LATENCY = Latency(p50=99_999, p95=99_999, p99=1_234_567)
LONG = "readings_of_all_gauges_of_the_whole_valley"


def part_at(depth: int, rows: int) -> PartLine:
    """What the node so far below the root has of an app: names as long as trees are deep."""
    ways = [f"10.0.0.{number}:17100" for number in range(depth + 1)]
    return PartLine(
        node=ways[-1],
        zone="a-zone-with-a-long-name",
        state="running",
        error="",
        above=ways[-2::-1],
        troubles=[],
        sources=[SourceLine(LONG, "mqtt", "exactly once", rows, rows / 10, "reading")],
        instances=[InstanceLine(depth, LONG, rows, rows, rows, rows / 10)],
        sinks=[SinkLine(depth, LONG, "csv", "exactly once", rows, rows, rows / 10, LATENCY)],
        leaving={"1": rows},
        ledger=Ledger(rows, rows, 0, 0, 0),
        is_idle=False,
        is_held=False,
        activity=0,
        store="",
    )


def drawn(parts: list[PartLine], width: int) -> list[str]:
    """Return the lines on a screen of this width."""
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    console.print(tree_table(parts))
    return lines_on(console)


def lines_on(console: Console) -> list[str]:
    """Return the lines that were printed."""
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize(
    ("rows", "figures"),
    [
        (3_000, ["3,000", "300", "3,000", "99,999", "1,234,567"]),
        (99_999, ["99,999", "10.0k", "99,999", "99,999", "1,234,567"]),
        (3_000_000_000, ["3,000.0M", "300.0M", "3,000.0M", "99,999", "1,234,567"]),
    ],
)
def test_where_80_columns_are_too_few_names_are_cut_and_figures_never(rows: int, figures: list[str]) -> None:
    heading, *lines = drawn([part_at(depth, rows) for depth in range(DEPTH)], 80)
    assert heading.split() == ["the", "app's", "tree", "rows", "rows/s", "waiting", "p50", "ms", "p99", "ms"]
    assert len(lines) == DEPTH * 5, "a node, its source, chain and sink, and rows on their way: a line each"
    assert max(map(len, lines)) <= 80
    sinks = [line.split()[-5:] for line in lines if "◂" in line]
    assert sinks == [figures] * DEPTH
    assert any("…" in line for line in lines)


def test_where_there_is_room_nothing_is_cut() -> None:
    assert not any("…" in line for line in drawn([part_at(depth, 3_000) for depth in range(DEPTH)], 200))


@pytest.mark.parametrize("is_terminal", [True, False])
def test_what_is_wrong_is_told_in_whole_lines_and_what_to_do_about_a_failure(is_terminal: bool) -> None:
    """A path in two halves is found by no search, and opened by no click."""
    error = (
        f"10.0.0.1:17100: flow 'rain', operator 'map': ValueError: [no]\n  at  /var/{'x' * 90}/rain.py:7 in <lambda>"
    )
    told = StatusTold(
        name="rain",
        id="rain@1",
        version=1,
        owner="10.0.0.1:17100",
        submitter="ann",
        state="failed",
        errors=[error],
        notes=[],
        parts=[part_at(0, 3_000)],
        homes={},
        missing=[],
        rows_in=3_000_000,
        rows_out=3_000_000,
        waiting=0,
        ledger=Ledger(3_000_000, 3_000_000, 0, 0, 0),
        is_balanced=True,
        activity=0,
        silent=[],
    )
    show_status(console := Console(width=80, file=io.StringIO(), force_terminal=is_terminal, color_system=None), told)
    *_, ledger, said, at, remedy = lines_on(console)
    assert ledger.startswith("ledger balances: in 3,000,000 +")
    assert ledger.endswith("+ duplicates 0")
    assert [said, at] == error.splitlines()
    assert remedy == "rows wait: mend it (headwater upgrade rain FLOW.py), or give it up (headwater stop rain)"
