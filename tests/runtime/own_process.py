"""A node in a process of its own, since a process has one Spark: runs a flow, kills workers, tells what came of it.

The settings are those of `NodeConfig`. They come as JSON on the standard input, and an `Outcome` goes out likewise.
"""

import itertools
import os
import random
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

import headwater as hw
from headwater.runtime.node import Node
from headwater.workers.config import NodeConfig
from headwater.workers.local.pool import SparkPool
from tests.runtime.cluster import ancestors, command_line
from tests.runtime.flows import by_sensor, running_sums

PATIENCE_S = 100.0
RATE = 3_000.0


class Outcome(msgspec.Struct):
    """What a flow gave, and by whom."""

    sums: dict[str, list[tuple[int, int, int]]]
    balanced: bool
    error: str
    slots: int | None
    driver: int  # the process from which an embedded Spark starts its workers
    workers: list[list[int]]  # each with its ancestors
    kills: int
    epochs: int
    commands: list[str]  # the command lines of all these processes


def run(
    settings: dict[str, Any],
    *,
    rows: int,
    kills: int = 0,
    epochs: int = 1,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Outcome:
    """Run `running_sums` in a process of its own."""
    asked = msgspec.json.encode({"settings": settings, "rows": rows, "kills": kills, "epochs": epochs})
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtime.own_process"],
        input=asked,
        capture_output=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, **environment},
        timeout=2 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-4_000:]
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Outcome)


def _run_here(settings: dict[str, Any], *, rows: int, kills: int, epochs: int) -> Outcome:
    rng = random.Random(rows)
    sink = hw.to.memory()
    with Node(NodeConfig(**settings)) as node:
        workers = [[pid, *ancestors(pid)] for pid in node.dispatcher.worker_pids()]
        app = node.deploy(running_sums("own-process", rows, sink, rate=RATE if kills or epochs > 1 else None))
        while node.dispatcher.epoch < epochs:
            wanted = node.dispatcher.ask(node.dispatcher.workers_wanted)
            node.dispatcher.begin_epoch(wanted)
            assert node.dispatcher.wait_for_workers(wanted, PATIENCE_S)
        commands = [command_line(pid) for pid in {os.getpid(), *itertools.chain(*workers)}]
        killed = 0
        while killed < kills and not node.wait(app, rng.uniform(0.05, 0.3)):
            assert node.ledger(app).balanced
            killed += _kill(rng.choice(node.dispatcher.worker_pids() or [0]))
        assert node.wait(app, PATIENCE_S)
        return Outcome(
            sums=by_sensor(sink.rows()),
            balanced=node.ledger(app).balanced,
            error=str(app.error or ""),
            slots=node.pool.slots,
            driver=node.pool.jvm_pid if isinstance(node.pool, SparkPool) else os.getpid(),
            workers=workers,
            kills=killed,
            epochs=node.dispatcher.epoch,
            commands=commands,
        )


def _kill(pid: int) -> int:
    if pid == 0:
        return 0
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:  # it was just being replaced
        return 0
    return 1


if __name__ == "__main__":
    print(msgspec.json.encode(_run_here(**msgspec.json.decode(sys.stdin.buffer.read()))).decode())
