"""What is seen while flows run."""

import io
from dataclasses import replace
from typing import Final

from rich.console import Console

from headwater.console.live import History, LiveView, PlainView, live_table, view_on
from headwater.engine.status import AppState, AppStatus, Latency, NodeStatus, OperatorStatus

BUSY: Final = Latency(1_234.5, 12_345.6, 99_999.9, rows=5)
OPERATORS: Final = (
    OperatorStatus("a-source-with-a-rather-long-name", "source", 0, 1, 10**7, 10**7, 0, 0, 0, 0, 0, 0, 0, "paused"),
    OperatorStatus(
        "parse → repair → heat-index → usual → spikes", "chain", 1, 4, 10**7, 10**6, 10**6, 0, 10**9, 10**9, 10**9, 9, 9
    ),
    OperatorStatus("alerts", "sink", 2, 1, 10**6, 10**6, 0, 0, 0, 0, 0, 0, 0),
)
STATUS: Final = NodeStatus(
    at_us=3_000_000,
    apps=(AppStatus("cities", AppState.RUNNING, "", 0, None, 10**7, 10**6, BUSY, BUSY, OPERATORS),),
    workers=2,
    spares=1,
    idle=0,
    turns=5_000,
    pressure="pausing",
    bytes_held=10**8,
    memory_bytes=256 << 20,
    disk_bytes=2 << 30,
    policy="one-worker-per-operator",
    epoch=12,
    workers_lost=3,
    notes=("Spark was lost and is being started again",),
)


def drawn(width: int) -> list[str]:
    """Return the lines of the live table on a screen of this width."""
    console = Console(file=io.StringIO(), width=width, height=50, force_terminal=False)
    with console.capture() as capture:
        console.print(live_table(History().figures(STATUS)))
    return capture.get().splitlines()


def test_the_table_fits_a_narrow_terminal_and_cuts_no_figure() -> None:
    lines = drawn(80)
    assert max(len(line) for line in lines) <= 80
    assert not any("…" in line for line in lines)
    for told in (
        "3.3M",
        "100%",
        "paused",
        "×4",
        "1 spare",
        "3 lost",
        "pausing",
        "95 MB",
        "epoch 12",
        "being started again",
    ):
        assert any(told in line for line in lines), told


def test_a_wide_terminal_keeps_every_operator_on_its_line() -> None:
    assert sum("parse → repair → heat-index → usual → spikes ×4" in line for line in drawn(120)) == 1


def test_without_a_terminal_there_are_plain_lines_without_escape_codes() -> None:
    file = io.StringIO()
    view = view_on(Console(file=file))
    assert isinstance(view, PlainView)
    with view:
        view.working("starting Spark")
        view.show(STATUS)
        view.show(replace(STATUS, at_us=STATUS.at_us + 1))
    assert "\x1b" not in file.getvalue()
    lines = file.getvalue().splitlines()
    assert lines[0] == "starting Spark"
    assert len(lines) == 2, "a second line so soon would flood a log"
    assert "cities running: 10,000,000 in (3.3M/s), 1,000,000 out, 1,000,000 waiting" in lines[1]


def test_on_a_terminal_the_table_is_live_unless_a_program_reads_along() -> None:
    console = Console(file=io.StringIO(), force_terminal=True)
    assert isinstance(view_on(console), LiveView)
    assert isinstance(view_on(console, plain=True), PlainView)


def test_figures_are_those_of_the_last_seconds() -> None:
    history = History()
    app = STATUS.apps[0]
    for second in range(10):
        rows = 10_000 if second < 5 else 10_000 + (second - 4) * 100
        history.figures(replace(STATUS, at_us=second * 1_000_000, apps=(replace(app, rows_in=rows),)))
    last = replace(STATUS, at_us=10_000_000, apps=(replace(app, rows_in=10_600),))
    assert history.figures(last).apps[0].in_per_s == 100
