"""`headwater demo`: a real flow on this machine for a minute, with a worker killed on the way and nothing lost."""

import csv
import os
import signal
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import orjson
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headwater.connectors.local import MemorySink
from headwater.console import wording
from headwater.console.demo_flow import city_flow
from headwater.console.live import View, view_on
from headwater.console.run import JsonOption, SparkOption, end_with, parse_limit
from headwater.console.running import Outcome, run_flows
from headwater.console.screen import screen
from headwater.console.summary import print_summary, told
from headwater.dataflow.stream import Flow
from headwater.model.errors import ConfigError
from headwater.runtime.config import NodeConfig
from headwater.runtime.logs import LogFormat, log_to
from headwater.runtime.node import Node

KILL_AFTER_S: Final = 20.0
ALERTS_SHOWN: Final = 3


def demo(
    limit: Annotated[str, typer.Option("--for", metavar="TIME", help="How long readings keep coming.")] = "60s",
    rate: Annotated[int, typer.Option(help="Readings a second.", min=1)] = 2_000,
    no_kill: Annotated[bool, typer.Option("--no-kill", help="Let all workers live.")] = False,
    files: Annotated[
        Path | None,
        typer.Option("--files", metavar="DIR", help="Where its files go.", show_default="a new directory in /tmp"),
    ] = None,
    no_spark: SparkOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a sensor flow over seven cities on Spark, kill a worker on the way, and show that nothing is lost."""
    limit_s = parse_limit(limit) or 0.0
    directory = _made(files)
    flow = city_flow(directory, rate=rate, rows=round(rate * limit_s))
    console = screen(stderr=as_json)
    view = view_on(console, plain=as_json)
    _introduce(view, rate, limit_s, directory)
    killer = Killer(view, min(KILL_AFTER_S, limit_s / 3))
    with log_to(LogFormat.TEXT, None):
        outcome = run_flows(
            [flow],
            NodeConfig(spark=not no_spark),
            view,
            on_look=(lambda node: None) if no_kill or no_spark else killer.look,
        )
    story = Story(outcome, directory, killer.killed, _board(flow))
    if as_json:
        print(orjson.dumps(story.told()).decode(), flush=True)
    else:
        story.print(console)
    end_with(outcome)


def _made(directory: Path | None) -> Path:
    if directory is None:
        return Path(tempfile.mkdtemp(prefix="headwater-demo-"))
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        raise ConfigError(f"the directory {directory} cannot be made: {failure.strerror}") from failure
    return directory


def _introduce(view: View, rate: int, limit_s: float, directory: Path) -> None:
    view.say(
        f"500 sensors in seven cities, {rate:,} readings a second for {wording.duration(limit_s)}; Ctrl-C ends it "
        f"earlier.\nThe flow is headwater/console/demo_flow.py, and its files are in {directory}\n"
    )


@dataclass(slots=True)
class Killer:
    """Kills one worker once the flow has run for a while, and says when another has taken its place."""

    view: View
    after_s: float
    killed: list[int] = field(default_factory=list)
    _began: float | None = None
    _back: bool = False

    def look(self, node: Node) -> None:
        """Do what is due."""
        if self._began is None:
            self._began = time.monotonic()
        elif not self.killed and time.monotonic() - self._began >= self.after_s:
            self._kill(node)
        elif self.killed and not self._back:
            pids = node.dispatcher.worker_pids()
            if self.killed[0] not in pids and len(pids) >= node.config.workers:
                self._back = True
                self.view.say("Spark has put another worker in its place; the lost turn runs again.")

    def _kill(self, node: Node) -> None:
        pids = node.dispatcher.worker_pids()
        if pids:
            self.killed.append(pids[0])
            self.view.say(f"Now a worker dies: kill -9 {pids[0]}. Watch the queues, and the ledger at the end.")
            os.kill(pids[0], signal.SIGKILL)


def _board(flow: Flow) -> dict[str, dict[str, Any]]:
    """Return a look at the latest figures of each city, by name."""
    [sink] = [declared.part for declared in flow.declarations if isinstance(declared.part, MemorySink)]
    return {row["city"]: row for row in sink.rows()}


@dataclass(frozen=True, slots=True)
class Story:
    """What the demo has to tell at its end."""

    outcome: Outcome
    directory: Path
    killed: list[int]
    cities: dict[str, dict[str, Any]]

    def told(self) -> dict[str, Any]:
        """Return it as plain data."""
        alerts = self._alerts()
        return told(self.outcome) | {
            "workers_killed": len(self.killed),
            "alerts": len(alerts),
            "dead_letters": _lines(self.directory / "dead-letters.jsonl"),
            "cities": list(self.cities.values()),
            "directory": str(self.directory),
        }

    def print(self, console: Console) -> None:
        """Tell it."""
        print_summary(console, self.outcome, store_kept=False)
        alerts = self._alerts()
        console.print()
        console.print(_city_table(self.cities, Counter(row["city"] for row in alerts)))
        console.print()
        console.print(_alert_table(sorted(alerts, key=_times_usual, reverse=True)[:ALERTS_SHOWN]))
        dead = _lines(self.directory / "dead-letters.jsonl")
        console.print(
            f"\n{wording.plural(len(alerts), 'alert')} in {self.directory / 'alerts.csv'}\n"
            f"{wording.plural(dead, 'dead letter')} in {self.directory / 'dead-letters.jsonl'}",
            soft_wrap=True,
            markup=False,
        )
        console.print(_verdict(self.outcome, self.killed))

    def _alerts(self) -> list[dict[str, str]]:
        path = self.directory / "alerts.csv"
        if not path.exists():
            return []
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))


def _lines(path: Path) -> int:
    if not path.exists():
        return 0
    with path.open("rb") as file:
        return sum(1 for _ in file)


def _times_usual(row: dict[str, str]) -> float:
    return float(row["airquality_raw"]) / float(row["usual"])


def _alert_table(alerts: list[dict[str, str]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for heading in ("foulest air", "sensor"):
        table.add_column(heading, no_wrap=True)
    for heading in ("reading", "usually", "times"):
        table.add_column(heading, justify="right")
    for row in alerts:
        reading, usual = float(row["airquality_raw"]), float(row["usual"])
        table.add_row(row["city"], row["sensor"], f"{reading:,.0f}", f"{usual:,.0f}", f"{_times_usual(row):.0f}")
    return table


def _city_table(cities: dict[str, dict[str, Any]], alerts: Counter[str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("city")
    for heading in ("readings", "mean °C", "dustiest", "alerts"):
        table.add_column(heading, justify="right")
    for city, row in sorted(cities.items(), key=lambda item: -item[1]["readings"]):
        table.add_row(
            city, f"{row['readings']:,}", f"{row['temperature']:.1f}", f"{row['dustiest']:,.0f}", f"{alerts[city]:,}"
        )
    return table


def _verdict(outcome: Outcome, killed: list[int]) -> Text:
    ledger = outcome.status.apps[0].ledger
    if ledger is None or not ledger.balanced:
        return Text("\nThe ledger does not balance: rows are missing. This is a bug in Headwater.", "bold red")
    lived = "A worker was killed, and every" if killed else "Every"
    return Text(f"\n{lived} one of {ledger.rows_in:,} readings is accounted for.", "bold green")
