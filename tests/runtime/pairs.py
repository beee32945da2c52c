"""Pairs of flows that share something, and how they are run: what came of them is compared row by row."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import headwater as hw
from headwater.dataflow.connectors import SinkSpec
from headwater.runtime.app import NodeApp
from headwater.runtime.node import Node

PATIENCE_S: Final = 60.0
LOOK_S: Final = 0.005
RATE: Final = 2_000.0


def eventually(holds: Callable[[], object], what: str) -> None:
    """Wait until something holds; fail if it never does."""
    pause = threading.Event()
    for _ in range(int(PATIENCE_S / LOOK_S)):
        if holds():
            return
        pause.wait(LOOK_S)
    raise AssertionError(f"it never came to pass: {what}")


def lines_of(flow: str, rows: int) -> list[str]:
    """Return the first rows of a flow's endless source."""
    return [f"{flow} {number}" for number in range(rows)]


def endless(flow: str) -> hw.Stream:
    """Rows until they are told to stop, each of which says whose it is; the source of every flow has the same name."""

    def made(first: int, count: int) -> dict[str, list[str]]:
        return {"line": [f"{flow} {number}" for number in range(first, first + count)]}

    return hw.read.generator(made, rate=RATE, name="lines")


@dataclass(slots=True)
class Shared:
    """What two flows write to, and how to look at it afterwards."""

    sinks: tuple[SinkSpec, SinkSpec]
    lines: Callable[[], list[str]]  # all that both have written
    sources: Callable[[str], hw.Stream] = endless


@dataclass(slots=True)
class Two:
    """Two flows on a node, named `first` and `second`, with sources and sinks of the same names."""

    node: Node
    shared: Shared
    apps: dict[str, NodeApp] = field(default_factory=dict)

    def deploy(self, flow: str) -> None:
        """Run one of them until it has written something."""
        sink = self.shared.sinks[flow == "second"]
        app = self.node.deploy(hw.flow(flow, self.shared.sources(flow).sink(sink, name="out")))
        self.apps[flow] = app
        eventually(lambda: app.error or sum(one.rows for one in app.sinks), f"{flow} has written rows")

    def drained(self, flow: str) -> list[str]:
        """Let what one of them has read reach its sink, and return the rows it read."""
        app = self.apps.pop(flow)
        assert self.node.drain(app, PATIENCE_S)
        assert app.error is None, app.error
        ledger = self.node.ledger(app)
        assert ledger.balanced
        return lines_of(flow, ledger.rows_in)


def read_lines(path: Path) -> list[str]:
    """Return the rows that a file or directory of any kind holds, as a reader of ours sees them."""
    readers: dict[str, Callable[..., hw.Stream]] = {
        ".csv": hw.read.csv,
        ".json": hw.read.json,
        ".txt": hw.read.text,
        ".parquet": hw.read.parquet,
    }
    seen = hw.to.memory()
    hw.run(hw.flow("looking", readers[path.suffix](path).sink(seen)), spark=False)
    return [row["line"] for row in seen.rows()]
