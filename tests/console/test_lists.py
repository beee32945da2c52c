"""The lists of apps, nodes and lines of logs, as `headwater apps --to`, `nodes` and `logs` print them."""

import io

import pytest
from rich.console import Console

from headwater.client.requests import AppLine, AppsTold, LogLine, LogsTold, NodeLine, NodesTold
from headwater.console.showing import show_apps, show_logs, show_nodes

OWNER, SILENT = "[fd00::1]:7100", "[fd00:aaaa:bbbb:cccc:dddd:eeee:ffff:2]:17100"
NAME = "readings_of_all_gauges_of_the_valley"
APPS = AppsTold([AppLine(NAME, f"{NAME}@53a2d21c", SILENT, "ann[b]", "nodes away", 12, 40)], [OWNER, SILENT])
NOTES = ("its store is nearly full [red], and will be full within the hour", "its links are congested")
NODES = NodesTold([NodeLine("0f" * 16, SILENT, "a-zone-with-a-long-name", 3, 8, 2, {"no tls": 4}, NOTES)], [OWNER])


def screen(*, is_terminal: bool) -> Console:
    """A screen of 80 columns, or a pipe."""
    return Console(width=80, file=io.StringIO(), force_terminal=is_terminal, color_system=None, highlight=False)


def printed(console: Console) -> list[str]:
    """Return the lines that are on it."""
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("is_terminal", [True, False])
def test_names_ids_and_addresses_of_apps_are_whole_however_little_room_there_is(is_terminal: bool) -> None:
    show_apps(console := screen(is_terminal=is_terminal), APPS)
    _, app, *silent = printed(console)
    assert app.split() == [NAME, f"{NAME}@53a2d21c", "12", "nodes", "away", "40", "ann[b]", SILENT]
    assert silent == [f"silent: {OWNER}", f"silent: {SILENT}"]


def test_in_a_pipe_a_node_is_one_line_with_all_that_is_noted_of_it() -> None:
    show_nodes(console := screen(is_terminal=False), NODES)
    _, node, silent = printed(console)
    assert node.split()[:6] == [SILENT, "0f0f0f0f", "a-zone-with-a-long-name", "3", "of", "8"]
    assert node.rstrip().endswith(f"{'; '.join(NOTES)}; refused: 4 no tls")
    assert silent == f"silent: {OWNER}"


def test_on_a_terminal_what_is_noted_of_a_node_takes_several_lines_and_its_address_one() -> None:
    show_nodes(console := screen(is_terminal=True), NODES)
    _, first, *others, _ = printed(console)
    assert first.split()[:3] == [SILENT, "0f0f0f0f", "a-zone-with-a-long-name"]
    assert len(others) > 1
    assert "[red]," in " ".join([first, *others])


def test_a_line_of_a_log_is_one_line_and_nodes_whose_log_is_missing_are_told() -> None:
    text = f"12:00:00 warning runtime.node: [red] {'x' * 100}"
    show_logs(
        console := screen(is_terminal=False), LogsTold([LogLine(SILENT, 86_400_000_000, "warning", text)], [OWNER])
    )
    line, silent = printed(console)
    assert line.endswith(f" {SILENT} {text}")
    assert silent == f"silent: {OWNER}"
