"""`headwater sim` tells stories over processes, reports them, and ends with 1 if one of them fails."""

import io
import json
import os
import pty
import shlex
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from headwater.console.sim import with_progress
from headwater.console.sim_flows import Subject
from headwater.sim.flows import FlowWorld
from headwater.sim.story import Failure, StoryOutcome
from headwater.sim.troubled import Broken, TroubledWorld
from tests.console.flows import Command, Start


def test_seeds_run_over_processes_and_are_reported(start: Start, tmp_path: Path) -> None:
    """As a command of its own: its processes begin as copies of whatever started them, and a test is much."""
    report = tmp_path / "sim.json"
    words = ["sim", "--seeds", "4", "--nodes", "3", "--faults", "churn", "--workers", "2", "--report", report]
    stdout, stderr = (command := start(*words)).communicate()
    assert command.returncode == 0, stdout + stderr
    assert "4 stories, 0 failed" in stdout
    kept = json.loads(report.read_text())
    assert kept["seeds"] == {"first": 0, "last": 3, "count": 4}
    assert kept["failed"] == 0
    assert kept["rings"]["3-4"] == 4
    assert kept["failures"] == []


def test_one_seed_prints_its_digest_the_same_each_time(headwater: Command) -> None:
    once, again = (headwater("sim", "--seed", "5", "--faults", "calm", "--nodes", "3").stdout for _ in range(2))
    assert once == again
    assert "digest " in once


def test_a_trace_is_printed_event_by_event(headwater: Command) -> None:
    result = headwater("sim", "--seed", "5", "--faults", "calm", "--nodes", "3", "--trace")
    assert "NodeStarted" in result.stdout
    assert "healed" in result.stdout


def test_json_is_the_last_line(headwater: Command) -> None:
    result = headwater("sim", "--seeds", "1", "--nodes", "3", "--faults", "calm", "--workers", "1", "--json")
    assert json.loads(result.stdout.splitlines()[-1])["seeds"]["count"] == 1


def test_a_failure_prints_what_broke_and_how_to_replay_it(headwater: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(world: TroubledWorld) -> None:
        raise Broken(f"two suns: {'; '.join(f'sun{number}' for number in range(20))}", "n1")

    monkeypatch.setattr(TroubledWorld, "check_safety", broken)
    result = headwater("sim", "--seeds", "1", "--nodes", "3", "--faults", "calm", "--workers", "1")
    assert result.exit_code == 1
    assert "two suns: sun0" in result.stdout
    assert "sun19" in next(line for line in result.stdout.splitlines() if "two suns" in line), "one line, to be copied"
    assert "replay: headwater sim --seed 0 --faults calm --nodes 3" in result.stdout


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--faults", "earthquake"], "there are no faults 'earthquake'"),
        (["--nodes", "2"], "--nodes 2 is not within 3 to 64"),
        (["--seeds", "0"], "--seeds 0 tells no story"),
        (["--workers", "0"], "--workers 0 leaves nobody"),
        (["--trace"], "say which with --seed"),
        (["--rows", "5"], "--rows, --rate and --set are about a flow"),
        (["nexmark.q5", "--rows", "0"], "--rows 0 leaves nothing that could arrive; give at least 1"),
        (["nexmark.q5", "--rate", "0"], "--rate 0 lets no row begin; give more than 0"),
        (["--report", "/nowhere/at/all.json"], "there is no directory /nowhere/at; make it first"),
        (["--report", "/"], "--report / is a directory; give a file"),
        (["nowhere.py"], "there is no file nowhere.py"),
    ],
)
def test_nonsense_is_refused_before_anything_runs(headwater: Command, options: list[str], sentence: str) -> None:
    result = headwater("sim", *options)
    assert result.exit_code == 1
    assert "stor" not in result.stdout
    assert sentence in result.stderr


def test_a_report_that_cannot_be_written_in_the_end_is_one_sentence_after_the_stories(headwater: Command) -> None:
    """On a disk that is full."""
    words = ["--seeds", "1", "--nodes", "3", "--faults", "calm", "--workers", "1", "--report", "/dev/full"]
    result = headwater("sim", *words)
    assert result.exit_code == 1
    assert "1 stories, 0 failed" in result.stdout
    assert result.stderr == "error: the report /dev/full cannot be written: No space left on device\n"


def test_where_no_bar_can_be_drawn_a_line_about_every_ten_seconds_tells_how_far_it_is() -> None:
    """Of a thousand stories, one in a second, every fifth of which fails."""
    console = Console(file=(shown := io.StringIO()), force_terminal=False)
    fine = StoryOutcome(
        seed=0,
        faults="calm",
        nodes=3,
        apps=1,
        events=1,
        virtual_s=1.0,
        happened={},
        excused={},
        healed_in_s=1.0,
        digest="",
        failure=None,
    )
    broken = replace(fine, failure=Failure(what="two suns", at_s=1.0, lately=()))
    seconds = iter(range(1_000))
    told = with_progress(console, [fine, fine, fine, fine, broken] * 5, 1_000, lambda: float(next(seconds)))
    assert [outcome.failure is None for outcome in told].count(False) == 5
    assert shown.getvalue().splitlines() == [
        "10 of 1,000 seeds, 1.0 a second, 2 failed",
        "20 of 1,000 seeds, 1.0 a second, 4 failed",
    ]


def test_one_story_shows_on_a_terminal_that_it_is_under_way() -> None:
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "headwater", "sim", "--seed", "5", "--faults", "calm", "--nodes", "3"]
    with subprocess.Popen(words, stdout=theirs, env={**os.environ, "TERM": "xterm"}) as story:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # how the end of a terminal is told
            while some := os.read(ours, 1 << 16):
                shown += some
    os.close(ours)
    assert (story.returncode, b"seed 5 is under way" in shown, b"digest " in shown) == (0, True, True)


def test_the_command_that_replays_a_story_is_one_that_a_shell_understands() -> None:
    subject = Subject("my flows/air.py:it's", 10, 2.5, ("city=São Paulo", "plain=1"))
    words = ["my flows/air.py:it's", "--rows", "10", "--rate", "2.5", "--set", "city=São Paulo", "--set", "plain=1"]
    assert shlex.split(subject.written) == words


FLOW = """
import headwater as hw

def numbered(row: hw.Row, seen: int | None) -> tuple[hw.Row, int]:
    return {"k": row["k"], "place": (seen or 0) + 1}, (seen or 0) + 1

rows = hw.read.iterable([{"k": n % 3} for n in range(60)], rate=20)
flow = hw.flow("places", rows.key_by("k").stateful(numbered, parallelism=2).sink(hw.to.csv("out.csv")))
"""


def test_a_users_own_flow_runs_among_the_faults(headwater: Command, tmp_path: Path) -> None:
    """Its sinks must get what they get undisturbed, and nothing is written anywhere."""
    (tmp_path / "places.py").write_text(FLOW, encoding="utf-8")
    words = ["sim", str(tmp_path / "places.py"), "--seeds", "1", "--nodes", "4", "--faults", "churn", "--workers", "1"]
    result = headwater(*words)
    assert result.exit_code == 0, result.stdout + result.stderr
    assert "places: 60 rows in csv" in result.stdout
    assert "1 stories, 0 failed" in result.stdout
    assert not (tmp_path / "out.csv").exists()


def test_a_failure_with_rows_is_replayed_with_its_flow(
    headwater: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command names the flow as the user did."""
    (tmp_path / "places.py").write_text(FLOW, encoding="utf-8")
    monkeypatch.setattr(FlowWorld, "written", lambda world, app: {"csv": Counter()})
    words = ["sim", str(tmp_path / "places.py"), "--seed", "1", "--nodes", "3", "--faults", "calm"]
    result = headwater(*words)
    assert result.exit_code == 1
    assert "sink csv lacks 60 of 60 rows" in result.stdout
    assert f"replay: headwater sim {tmp_path / 'places.py'} --seed 1 --faults calm --nodes 3" in result.stdout


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (
            'hw.read.generator(lambda first, count: {"n": list(range(first, first + count))})',
            "the simulator needs sources that end",
        ),
        ('hw.read.iterable([{"n": 1}]).map(lambda row: 1 / 0)', "a function of f raised: map: ZeroDivisionError"),
        ('hw.read.mqtt("mqtt://broker/topic")', "waits for the world outside"),
    ],
)
def test_flows_that_cannot_be_imagined_are_refused(
    headwater: Command, tmp_path: Path, source: str, sentence: str
) -> None:
    """What never ends, whose functions raise, and what waits for the world outside."""
    written = f"import headwater as hw\nflow = hw.flow('f', {source}.sink(hw.to.console()))\n"
    (tmp_path / "f.py").write_text(written, encoding="utf-8")
    result = headwater("sim", str(tmp_path / "f.py"), "--seeds", "1", "--workers", "1")
    assert result.exit_code == 1
    assert sentence in result.stderr
