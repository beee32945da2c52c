"""One flow, three ways: embedded, on the executors of a standalone cluster, and there as Structured Streaming."""

import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from tests.runtime.cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FLOW = """
import datetime as dt

import headwater as hw
from headwater import functions as F

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
rows = [
    {"ts": START + dt.timedelta(seconds=n - n % 7 * 2), "sensor": f"s{n % 5}", "v": n / 8, "id": n % 90}
    for n in range(300)
]
marked = hw.read.iterable(rows).with_watermark("ts", "20 seconds")
minutes = marked.key_by("sensor").window(F.window("ts", "60 seconds", "20 seconds"))
flow = hw.flow(
    "three",
    minutes.agg(F.count(), F.avg("v"), F.max("v")).sink(hw.to.json("windows.json")),
    marked.dedup("id").select("id", "sensor").sink(hw.to.json("ids.json")),
)
"""


def run(directory: Path, *options: str) -> dict[str, list[str]]:
    """Run the flow in a directory of its own and return what it wrote."""
    directory.mkdir()
    (directory / "flow.py").write_text(FLOW)
    command = [sys.executable, "-m", "headwater", "run", "flow.py", "--json", *options]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    assert orjson.loads(done.stdout)["state"] == "finished"
    return {name: sorted((directory / name).read_text().splitlines()) for name in ("windows.json", "ids.json")}


def test_a_flow_gives_the_same_rows_wherever_it_runs(standalone_cluster: Cluster, tmp_path: Path) -> None:
    """The cluster's master and workers are processes of their own."""
    here = run(tmp_path / "here", "--no-spark")
    assert len(here["ids.json"]) == 90
    assert run(tmp_path / "cluster", "--spark-master", standalone_cluster.master) == here
    shared = tmp_path / "shared"
    structured = ("--engine", "structured", "--spark-master", standalone_cluster.master, "--store", str(shared))
    assert run(tmp_path / "structured", *structured) == here
