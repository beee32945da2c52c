"""The demo runs a cluster, explains itself, and would notice a row that is lost or doubled."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from rich.console import Console
from rich.text import Text
from typer.testing import CliRunner

from headwater.client.requests import InstanceLine, PartLine, SinkLine, SourceLine, StatusTold
from headwater.console.main import app as command
from headwater.dataflow.compile import compile_flow
from headwater.demo import flow as demo_flow
from headwater.demo.check import CHECKS, made, written
from headwater.demo.command import Plan
from headwater.demo.view import EVENTS_SHOWN, Picture, drawn
from headwater.engine.ledger import Ledger
from headwater.engine.status import Latency
from tests.console.flows import Command, Start

APPS: Final = ("air", "cities", "heat", "noise")
ROWS_PER_S: Final = 300


def test_the_demo_ends_by_itself_with_every_reading_accounted_for(headwater: Command, tmp_path: Path) -> None:
    result = headwater("demo", "--files", tmp_path, "--no-spark", "--for", "5s", "--rate", ROWS_PER_S, "--json")
    assert result.exit_code == 0, result.output
    told = orjson.loads(result.stdout)
    assert told["wrong"] == []
    assert {app["name"]: app["rows_in"] for app in told["apps"]} == {
        **dict.fromkeys(("air", "heat", "cities"), 5 * ROWS_PER_S),
        "noise": 3 * ROWS_PER_S,
    }
    assert all(app["state"] == "finished" and app["balanced"] for app in told["apps"])
    assert told["joined"] == "south-3"
    assert told["left"] not in ("", "south-3")
    for app in told["apps"]:
        assert len(written(tmp_path / f"{app['name']}.jsonl")) == app["rows_out"]


def test_a_log_file_tells_the_story_with_the_tree_of_every_app(headwater: Command, tmp_path: Path) -> None:
    """Also where an earlier demo has left its results."""
    for app in APPS:
        (tmp_path / f"{app}.jsonl").write_text('{"of": "an earlier demo"}\n')
    result = headwater("demo", "--files", tmp_path, "--no-spark", "--for", "3s", "--rate", ROWS_PER_S)
    assert result.exit_code == 0, result.output
    told = result.stdout
    for app in APPS:
        assert f"{app} is submitted to" in told
        assert f"{app}'s tree: " in told
    for words in ("8 peers are in the ring", "south-3 joins", "leaves for good", "has left", "all ledgers balance"):
        assert words in told, words


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["starting peers", "air is submitted"])
def test_a_signal_ends_it_in_good_order_and_nothing_is_left(
    tmp_path: Path, moment: str, number: signal.Signals
) -> None:
    """Also while its peers are being started."""
    place = tmp_path / "temporary"
    place.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "headwater", "demo", "--no-spark", "--files", str(tmp_path / "files")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(place)},
    )
    assert process.stdout is not None
    next(line for line in process.stdout if moment in line)
    process.send_signal(number)
    _, told = process.communicate(timeout=120)
    assert (process.returncode, told.splitlines()[-1:]) == (130, ["error: interrupted"])
    assert list(place.iterdir()) == []


@pytest.mark.spark
def test_on_spark_a_worker_is_killed_as_well_and_nothing_is_lost(start: Start, tmp_path: Path) -> None:
    process = start("demo", "--files", tmp_path, "--for", "8s", "--rate", ROWS_PER_S, "--json")
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    told = orjson.loads(out.splitlines()[-1])
    assert told["wrong"] == []
    assert told["killed"] > 0
    assert "kill -9" in err


# --- would it notice? -------------------------------------------------------------------------------------------------

Row = dict[str, Any]
CHECKED_ROWS: Final = 4_000


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Row]]:
    """Return what all apps write, as one node of threads makes it."""
    plan = Plan(tmp_path_factory.mktemp("demo"), limit_s=1.0, rate=100_000, rows=CHECKED_ROWS, late_rows=CHECKED_ROWS)
    plan.write_flows()
    for app in APPS:
        result = CliRunner().invoke(command, ["run", f"{plan.flows}:{app}", "--no-spark"])
        assert result.exit_code == 0, result.output
    return {app: written(plan.directory / f"{app}.jsonl") for app in APPS}


def _same(rows: list[Row]) -> list[Row]:
    return rows


def _one_lost(rows: list[Row]) -> list[Row]:
    return rows[:-1]


def _one_doubled(rows: list[Row]) -> list[Row]:
    return [*rows, rows[0]]


@pytest.mark.parametrize("app", APPS)
@pytest.mark.parametrize(("change", "is_wrong"), [(_same, False), (_one_lost, True), (_one_doubled, True)])
def test_a_row_that_is_lost_or_doubled_is_noticed_and_nothing_else(
    results: dict[str, list[Row]], app: str, change: Callable[[list[Row]], list[Row]], is_wrong: bool
) -> None:
    assert len(results[app]) > 1
    assert bool(CHECKS[app](made(200, CHECKED_ROWS), change(results[app]))) == is_wrong


def test_the_apps_have_what_is_to_be_shown_state_by_key_windows_and_several_instances() -> None:
    graphs = [compile_flow(getattr(demo_flow, app)) for app in APPS]
    assert {graph.name for graph in graphs} == set(APPS)
    assert {chain.parallelism for graph in graphs for chain in graph.chains} == {1, 2}


# --- the picture ------------------------------------------------------------------------------------------------------


def _told(name: str, *addresses: str) -> StatusTold:
    """Return an app over some nodes, the first of them its root, each below the one before."""
    ledger = Ledger(1, 1, 0, 0, 0)
    latency = Latency(12.5, 250.0, 1_250.0)
    parts = [
        PartLine(
            node=address,
            zone="north",
            state="running",
            error="",
            above=list(reversed(addresses[:depth])),
            troubles=[],
            sources=[SourceLine("readings", "cities", "exactly-once", 1, 300.0, "reading")],
            instances=[InstanceLine(1, "plausible → usual-of-a-long-name", 1, 1, 0, 300.0)],
            sinks=[SinkLine(2, "out", "json", "exactly-once", 1, 0, 300.0, latency)] if depth == 0 else [],
            leaving={},
            ledger=ledger,
            is_idle=False,
            is_held=False,
            activity=1,
            store="",
        )
        for depth, address in enumerate(addresses)
    ]
    return StatusTold(
        name=name,
        id=f"{name}@1",
        version=1,
        owner=addresses[0],
        submitter="ann",
        state="running",
        errors=[],
        notes=[],
        parts=parts,
        homes={},
        missing=[],
        rows_in=13_500,
        rows_out=123_456,
        waiting=1_000,
        ledger=ledger,
        is_balanced=True,
        activity=1,
        silent=[],
    )


def test_the_picture_of_four_apps_on_nine_peers_fits_a_terminal_of_80_by_24() -> None:
    names = {f"127.0.0.1:{port}": f"centre-{port}" for port in range(1, 10)}
    apps = [_told(app, *list(names)[number : number + 4]) for number, app in enumerate(APPS)]
    events = [Text("something of which there is much to tell " * 4, no_wrap=True, overflow="ellipsis")] * EVENTS_SHOWN
    console = Console(width=80, height=24, force_terminal=False, record=True)
    with console.capture() as captured:
        console.print(drawn(Picture(33.0, 45.0, apps, names), events))
    lines = captured.get().splitlines()
    assert len(lines) <= 24, captured.get()
    assert max(len(line.rstrip()) for line in lines) <= 80
    for app in APPS:
        assert any(line.startswith(app) for line in lines)
    assert all(f"centre-{port}" in captured.get() for port in range(1, 8))
