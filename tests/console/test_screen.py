"""What the console writes: others have a say in it, and must not work the terminal."""

import io

import pytest
from rich.table import Table
from rich.text import Text

from headwater.console.screen import Screen, fail, screen, tell

HOSTILE = "gw\x1b]0;owned\x07\x1b[2J7"


def test_nothing_that_others_have_written_works_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Names, lines of a log and errors come from nodes, one of which may be in wrong hands."""
    table = Table("node")
    table.add_row(HOSTILE)
    console = screen()
    console.print(table)
    console.print(Text(HOSTILE), soft_wrap=True)
    console.print(HOSTILE, markup=False)
    tell(HOSTILE)
    fail(HOSTILE)
    told = capsys.readouterr()
    assert "\x1b" not in told.out + told.err
    assert (told.out.count(r"gw\x1b"), told.out.count(r"\x1b[2J7")) == (4, 3)
    assert told.err == "error: gw\\x1b]0;owned\\x07\\x1b[2J7\n"


def test_what_is_drawn_keeps_its_colours() -> None:
    drawn = io.StringIO()
    Screen(file=drawn, force_terminal=True, color_system="standard").print(Text("late", "bold red"))
    assert drawn.getvalue() == "\x1b[1;31mlate\x1b[0m\n"
