"""Exactly once under kill -9: workers, the JVM and the node itself, killed at random instants.

Every kill is a real one. The results must be those of an undisturbed run, and the ledger must balance at every look.
HEADWATER_KILLS multiplies how often; the default keeps the suite short.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

import headwater as hw
from headwater.engine.status import AppState
from headwater.runtime.node import Node
from headwater.workers.local.pool import SparkPool
from tests.runtime.flows import by_sensor, expected_sums, running_sums

TIMES = int(os.environ.get("HEADWATER_KILLS", "1"))
ROWS = 12_000
ROW_BYTES_MIN = 30  # of a line of the output
PATIENCE_S = 150.0

Sums = dict[str, list[tuple[int, int, int]]]


@pytest.mark.spark
@pytest.mark.parametrize("seed", range(TIMES))
def test_killed_workers_change_nothing(spark_node: Node, seed: int) -> None:
    """Any worker, at any moment, again and again."""
    rng = random.Random(seed)
    sink = hw.to.memory()
    app = spark_node.deploy(running_sums(f"workers-{seed}", ROWS, sink, rate=3_000))
    kills = 0
    while not spark_node.wait(app, rng.uniform(0.05, 0.5)):
        assert spark_node.ledger(app).balanced
        kills += _kill_one(spark_node.dispatcher.worker_pids(), rng)
    assert app.state is AppState.FINISHED, app.error
    assert kills > 0  # how many there is time for, the machine decides
    assert by_sensor(sink.rows()) == expected_sums(ROWS)
    assert spark_node.ledger(app).balanced


def _kill_one(pids: list[int], rng: random.Random) -> int:
    if not pids:
        return 0
    try:
        os.kill(rng.choice(pids), signal.SIGKILL)
    except ProcessLookupError:  # it was just being replaced
        return 0
    return 1


@pytest.mark.spark
@pytest.mark.parametrize("seed", range(TIMES))
def test_a_killed_jvm_is_started_again_and_nothing_is_lost(spark_node: Node, seed: int) -> None:
    """The node brings Spark back by itself; the flow goes on where the store stands."""
    assert isinstance(spark_node.pool, SparkPool)
    rng = random.Random(seed)
    sink = hw.to.memory()
    app = spark_node.deploy(running_sums(f"jvm-{seed}", ROWS, sink, rate=4_000))
    assert not spark_node.wait(app, rng.uniform(0.2, 1.5))
    os.kill(spark_node.pool.jvm_pid, signal.SIGKILL)
    assert spark_node.wait(app, PATIENCE_S)
    assert app.state is AppState.FINISHED, app.error
    assert by_sensor(sink.rows()) == expected_sums(ROWS)
    assert any("Spark was lost" in note for note in spark_node.status().notes)


def _start(store: Path, out: Path, *, spark: bool) -> subprocess.Popen[bytes]:
    """A node in a process of its own, writing to a file."""
    here = Path(__file__).parents[2]
    script = f"""
import headwater as hw
from tests.runtime.flows import running_sums
from pathlib import Path
flow = running_sums("killed", {ROWS}, hw.to.json({str(out)!r}), rate=6_000)
status = hw.run(flow, store=Path({str(store)!r}), spark={spark})
assert status.ledger.balanced, status.ledger
"""
    return subprocess.Popen([sys.executable, "-c", script], cwd=here, stdout=subprocess.DEVNULL, start_new_session=True)


def _size(out: Path) -> int:
    return out.stat().st_size if out.exists() else 0


def _kill_after(node: subprocess.Popen[bytes], out: Path, growth: int) -> None:
    """Kill the node, unless it ends before, as soon as it has written so many bytes more than there were."""
    wanted = _size(out) + growth
    while node.poll() is None:
        if _size(out) >= wanted:
            node.kill()
            node.wait()
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            node.wait(0.002)


def _run_through_kills(tmp_path: Path, rng: random.Random, *, spark: bool, kills: int) -> Sums:
    """Kill the node at random instants of its work, start it again each time, and return what the last one wrote."""
    out = tmp_path / "out.jsonl"
    for _ in range(kills):
        node = _start(tmp_path / "store", out, spark=spark)
        _kill_after(node, out, rng.randint(1, ROWS * ROW_BYTES_MIN // (kills + 1)))
        assert node.returncode == -signal.SIGKILL, "it ended before it could be killed"
    last = _start(tmp_path / "store", out, spark=spark)
    assert last.wait(PATIENCE_S) == 0
    return by_sensor([orjson.loads(line) for line in out.read_bytes().splitlines()])


@pytest.mark.parametrize("seed", range(2 * TIMES))
def test_a_node_killed_again_and_again_finishes_exactly_once(tmp_path: Path, seed: int) -> None:
    """No line twice, none missing, none half-written, wherever the kill hit."""
    assert _run_through_kills(tmp_path, random.Random(seed), spark=False, kills=5) == expected_sums(ROWS)


@pytest.mark.spark
@pytest.mark.parametrize("seed", range(TIMES))
def test_a_node_on_spark_killed_in_mid_run_finishes_exactly_once(tmp_path: Path, seed: int) -> None:
    """Its JVM and workers are orphans for a moment; the store's term keeps them from changing anything."""
    assert _run_through_kills(tmp_path, random.Random(seed), spark=True, kills=2) == expected_sums(ROWS)
