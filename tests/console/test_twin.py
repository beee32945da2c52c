"""`headwater run --engine structured`: the same flow as a stock Structured Streaming query, in a process of its own."""

import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from tests.console.flows import LINEAR, Command, Write

WINDOWED = """
import datetime as dt

import headwater as hw
from headwater import functions as F

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
rows = [{"ts": START + dt.timedelta(seconds=n), "sensor": f"s{n % 3}", "v": float(n)} for n in range(100)]
keyed = hw.read.iterable(rows).with_watermark("ts", "5 seconds").key_by("sensor")
out = keyed.window(F.window("ts", "30 seconds")).agg(F.count(), F.avg("v"))
flow = hw.flow("minutes", out.sink(hw.to.json("out.json")))
"""

COUNTED = """
import headwater as hw
from headwater import functions as F

keyed = hw.read.iterable([{"k": 1}]).key_by("k").window(F.window(F.PROCESSING_TIME, "1 second"))
flow = hw.flow("clock", keyed.agg(F.count(), name="by-the-clock").sink(hw.to.nothing()))
"""


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a directory."""
    command = [sys.executable, "-m", "headwater", "run", *arguments]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=500, check=False)


@pytest.mark.spark
@pytest.mark.slow
def test_both_engines_write_the_same_rows(tmp_path: Path) -> None:
    """The command says what it does, and ends with the counts as one JSON object."""
    (tmp_path / "flow.py").write_text(WINDOWED)
    ours = run(tmp_path, "flow.py", "--no-spark", "--json")
    assert ours.returncode == 0, ours.stderr
    expected = sorted((tmp_path / "out.json").read_text().splitlines())
    (tmp_path / "out.json").unlink()
    theirs = run(tmp_path, "flow.py", "--engine", "structured", "--json")
    assert theirs.returncode == 0, theirs.stderr
    assert sorted((tmp_path / "out.json").read_text().splitlines()) == expected
    assert len(expected) == 12
    told = orjson.loads(theirs.stdout)
    assert (told["app"], told["engine"], told["state"]) == ("minutes", "structured", "finished")
    assert (told["rows_in"], told["rows_out"], told["sinks"]) == (100, 12, {"json": 12})
    assert "starting Spark" in theirs.stderr


def test_what_structured_streaming_cannot_do_is_refused_at_once(headwater: Command, write: Write) -> None:
    """Before Spark starts, by the operator's name and with the reason."""
    result = headwater("run", write("clock.py", COUNTED), "--engine", "structured")
    assert result.exit_code == 1
    assert "by-the-clock" in result.stderr


def test_one_flow_at_a_time(headwater: Command, write: Write) -> None:
    """A file with two flows has to be told which."""
    two = LINEAR + '\nother = hw.flow("other", hw.read.iterable([1]).map(double).sink(hw.to.nothing()))\n'
    result = headwater("run", write("two.py", two), "--engine", "structured")
    assert (result.exit_code, "pick one, FLOW.py:NAME" in result.stderr) == (1, True)


def test_without_spark_there_is_no_twin_and_no_cluster(headwater: Command, write: Write) -> None:
    """Contradictions are told, not resolved in silence."""
    for more in (("--engine", "structured"), ("--spark-master", "spark://127.0.0.1:7077")):
        result = headwater("run", write("linear.py", LINEAR), "--no-spark", *more)
        assert (result.exit_code, "--no-spark" in result.stderr) == (1, True)
