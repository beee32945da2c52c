"""`headwater demo`: a cluster on this machine for about a minute, with peers that come and go, and no row lost."""

import asyncio
import os
import re
import signal
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from headwater.client.cluster import Cluster, is_at_rest
from headwater.client.requests import StatusTold
from headwater.console import wording
from headwater.console.options import JsonOption, SparkOption, parse_limit
from headwater.console.screen import fail, print_object, screen
from headwater.console.serving import run_unless_told
from headwater.demo import flow as demo_flow
from headwater.demo.check import CHECKS, made, written
from headwater.demo.view import DemoView, Picture, demo_view_on, latency_at_sink, story_table
from headwater.engine.status import Latency
from headwater.model.errors import ConfigError, EngineError
from headwater.model.quoting import plural
from headwater.runtime.logs import LogFormat, log_to
from headwater.runtime.service.local_cluster import LocalNodes
from headwater.runtime.service.service import NodeService
from headwater.storage.temporary import Temporary, sweep

ZONES: Final = ("north", "north", "north", "centre", "centre", "centre", "south", "south")
SENSORS: Final = 200
LOOK_S: Final = 0.5
SETTLE_S: Final = 60.0  # for the last rows, on a busy machine
JOINS, LEAVES, DIES = 0.2, 0.45, 0.7  # when a peer joins, one leaves and a worker dies, as a share of the time
LATE_SHARE: Final = 0.6  # of the time that is left for the app that comes with the joining peer


def demo(
    limit: Annotated[str, typer.Option("--for", metavar="TIME", help="How long readings keep coming.")] = "45s",
    rate: Annotated[int, typer.Option(help="Readings a second, of each app.", min=10)] = 300,
    files: Annotated[
        Path | None,
        typer.Option("--files", metavar="DIR", help="Where its files go.", show_default="a new directory in /tmp"),
    ] = None,
    no_spark: SparkOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run four apps on eight peers of this machine; one joins, one leaves, a worker is killed, and no row is lost."""
    limit_s = parse_limit(limit) or 0.0
    sweep(files)
    console = screen(stderr=as_json)
    plan = Plan(_made(files), limit_s, rate, round(rate * limit_s), round(rate * limit_s * LATE_SHARE))
    view = demo_view_on(console, plain=as_json)
    with log_to(LogFormat.TEXT, plan.directory / "peers.log"), ExitStack() as closing:
        console.print(_introduction(plan), soft_wrap=True, markup=False)
        closing.enter_context(view)
        story = run_unless_told(Show(plan, view, spark=not no_spark).run())
    if as_json:
        print_object(story.told())
    else:
        story.print(console)
    for problem in story.wrong:
        fail(problem)
    raise typer.Exit(1 if story.wrong else 0)


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of the demo."""

    directory: Path
    limit_s: float
    rate: int
    rows: int  # of every app
    late_rows: int  # of the late one

    @property
    def flows(self) -> Path:
        """The file with the apps."""
        return self.directory / "demo_flow.py"

    def write_flows(self) -> None:
        """Write the file that ships with Headwater, with these parameters."""
        settings = {
            "SENSORS": SENSORS,
            "RATE": float(self.rate),
            "ROWS": self.rows,
            "LATE_ROWS": self.late_rows,
            "PLACE": str(self.directory),
        }
        text = Path(demo_flow.__file__).read_text(encoding="utf-8")
        for name, value in settings.items():
            text, found = re.subn(rf"^({name}(?:: [^=]+)?) = [^#\n]*", rf"\1 = {value!r}  ", text, flags=re.MULTILINE)
            assert found == 1, name
        self.flows.write_text(text, encoding="utf-8")

    def rows_of(self, app: str) -> int:
        """Return the number of readings for an app."""
        return self.late_rows if app == "noise" else self.rows


def _made(directory: Path | None) -> Path:
    if directory is None:
        return Path(tempfile.mkdtemp(prefix="headwater-demo-"))
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        raise ConfigError(f"the directory {directory} cannot be made: {failure.strerror}") from failure
    return directory


def _introduction(plan: Plan) -> str:
    return (
        f"Eight peers in three zones form a ring on this machine. Four apps over {SENSORS}\n"
        f"sensors in seven cities run on it, each with {plan.rate:,} readings a second.\n"
        f"The apps and what they write are in {plan.directory}\n"
    )


@dataclass(slots=True)
class Show:
    """The demo while it runs."""

    plan: Plan
    view: DemoView
    spark: bool
    _nodes: LocalNodes = field(init=False)
    _names: dict[str, str] = field(default_factory=dict)  # of the peers, by address
    _owners: dict[str, NodeService] = field(default_factory=dict)  # by app
    _began: float = 0.0
    _facts: dict[str, Any] = field(default_factory=dict)
    _latencies: dict[str, list[Latency]] = field(default_factory=dict)  # by app, one per look

    async def run(self) -> "DemoStory":
        """Run everything, and return the result."""
        self.plan.write_flows()
        with Temporary("peers") as data:
            self._nodes = LocalNodes(data, spark=self.spark)
            try:
                await self._start()
                north, centre, south = (self._nodes.nodes[ZONES.index(zone)] for zone in ("north", "centre", "south"))
                await asyncio.gather(
                    self._submit("air", to=north, at=centre),
                    self._submit("heat", to=centre, at=south),
                    self._submit("cities", to=south, at=north),
                )
                apps = await self._watch()
            finally:
                self.view.working("stopping")
                await self._nodes.stop()
        return DemoStory(self.plan, apps, self._latencies, self._facts, _wrong(self.plan, apps))

    async def _start(self) -> None:
        self.view.working("starting one Spark for all peers" if self.spark else "starting peers on worker threads")
        began = time.monotonic()
        await self._nodes.start(ZONES)
        for node in self._nodes.nodes:
            self._name(node)
        self._began = time.monotonic()
        self._facts["start_s"] = round(self._began - began, 1)
        self._say(f"{len(ZONES)} peers are in the ring, after {wording.duration(self._began - began)}")

    def _name(self, node: NodeService) -> str:
        zone = node.own.zone
        number = 1 + sum(name.startswith(f"{zone}-") for name in self._names.values())
        name = self._names[node.own.address] = f"{zone}-{number}"
        return name

    def _say(self, what: str) -> None:
        self.view.happened(time.monotonic() - self._began, what)

    async def _submit(self, app: str, *, to: NodeService, at: NodeService) -> None:
        """Submit an app to one peer, as a user does, with its sensors at another."""

        def submit() -> None:
            with Cluster(to.own.address, insecure=True) as cluster:
                cluster.submit(f"{self.plan.flows}:{app}", at={"readings": at.own.address})

        await asyncio.to_thread(submit)
        self._owners[app] = to
        reached, sensors = self._names[to.own.address], self._names[at.own.address]
        self._say(f"{app} is submitted to {reached}, its sensors are at {sensors}")

    async def _watch(self) -> list[StatusTold]:
        """Show the apps until all have finished, while peers join and leave; return their final statuses."""
        acting = asyncio.ensure_future(self._act())
        gives_up = self._began + self.plan.limit_s + SETTLE_S
        before: list[StatusTold] = []
        try:
            while True:
                owners = dict(self._owners)
                apps = list(await asyncio.gather(*(owners[app].ownership.status(app) for app in sorted(owners))))
                self._show(apps)
                _raise_failed(apps)
                if acting.done():
                    acting.result()
                    if _are_at_rest(before, apps) or time.monotonic() > gives_up:
                        return apps
                before = apps
                await asyncio.sleep(LOOK_S)
        finally:
            acting.cancel()

    def _show(self, apps: list[StatusTold]) -> None:
        for app in apps:
            if latency := latency_at_sink(app):
                self._latencies.setdefault(app.name, []).append(latency)
        self.view.show(Picture(time.monotonic() - self._began, self.plan.limit_s, apps, dict(self._names)))

    async def _until(self, share: float) -> None:
        await asyncio.sleep(max(0.0, self._began + share * self.plan.limit_s - time.monotonic()))

    # --- what happens on the way --------------------------------------------------------------------------------------

    async def _act(self) -> None:
        await self._until(JOINS)
        await self._join()
        await self._until(LEAVES)
        await self._leave()
        await self._until(DIES)
        if self.spark:
            self._kill()

    async def _join(self) -> None:
        node = await self._nodes.add("south")
        name = self._name(node)
        self._say(f"{name} joins; another app is submitted to it")
        self._facts["joined"] = name
        await self._submit("noise", to=node, at=node)

    async def _leave(self) -> None:
        """Drain the busiest peer that owns no app and reads no source."""
        busy = [node for node in self._nodes.nodes if self._can_go(node)]
        node = max(busy, key=lambda one: one.machine.hosting.load)
        name, runs = self._names[node.own.address], sorted(node.machine.hosting.hosted)
        what = ", ".join(sorted({app.partition("@")[0] for app, _ in runs})) or "nothing"
        self._say(f"{name} leaves for good; {plural(len(runs), 'instance')} (of {what}) move with their state")
        began = time.monotonic()
        await self._nodes.drain(node)
        del self._names[node.own.address]
        self._facts |= {"left": name, "moved": len(runs), "left_after_s": round(time.monotonic() - began, 1)}
        self._say(f"{name} has left, after {wording.duration(time.monotonic() - began)}")

    def _can_go(self, node: NodeService) -> bool:
        return not node.keeping.owned and not node.machine.hosting.sourced

    def _kill(self) -> None:
        pids = next((pids for node in self._nodes.nodes if (pids := node.engine.dispatcher.worker_pids())), [])
        if pids:
            self._facts["killed"] = pids[0]
            self._say(f"a worker dies: kill -9 {pids[0]}; Spark starts another, and its turn runs again")
            os.kill(pids[0], signal.SIGKILL)


def _raise_failed(apps: Sequence[StatusTold]) -> None:
    errors = [error for app in apps if app.state == "failed" for error in app.errors]
    if errors:
        raise EngineError("; ".join(errors))


def _are_at_rest(before: Sequence[StatusTold], apps: Sequence[StatusTold]) -> bool:
    return len(before) == len(apps) and all(is_at_rest(old, new) for old, new in zip(before, apps, strict=True))


def _wrong(plan: Plan, apps: Sequence[StatusTold]) -> list[str]:
    """Return everything that is wrong: waiting rows, ledgers, and what was written."""
    wrong = []
    for app in apps:
        expected = plan.rows_of(app.name)
        if app.state != "finished":
            wrong.append(f"{app.name} is {app.state}, with {app.waiting:,} rows waiting")
        if app.rows_in != expected:
            wrong.append(f"{app.name} has read {app.rows_in:,} of {expected:,} readings")
        if not app.is_balanced:
            wrong.append(f"the ledger of {app.name} does not balance")
        told = CHECKS[app.name](made(SENSORS, expected), written(plan.directory / f"{app.name}.jsonl"))
        wrong += [f"{app.name}: {problem}" for problem in told[:3]]
    return wrong


@dataclass(frozen=True, slots=True)
class DemoStory:
    """The result of the demo."""

    plan: Plan
    apps: list[StatusTold]
    latencies: dict[str, list[Latency]]
    facts: dict[str, Any]
    wrong: list[str]

    def told(self) -> dict[str, Any]:
        """Return it as plain data."""
        apps = [
            {
                "name": app.name,
                "state": app.state,
                "rows_in": app.rows_in,
                "rows_out": app.rows_out,
                "balanced": app.is_balanced,
                "nodes": len(app.parts),
            }
            for app in self.apps
        ]
        return {"apps": apps, **self.facts, "directory": str(self.plan.directory), "wrong": self.wrong}

    def print(self, console: Console) -> None:
        console.print()
        console.print(story_table(self.apps, self.latencies))
        console.print()
        if self.wrong:
            console.print(Text("Rows are missing, or too many. This is a bug in Headwater.", "bold red"))
            return
        rows = sum(app.rows_in for app in self.apps)
        console.print(f"{self.facts['joined']} joined, {self.facts['left']} left{self._death()}.", markup=False)
        console.print(
            Text(
                f"Every one of {rows:,} readings is accounted for: all ledgers balance, and the apps\n"
                "have written what plain Python makes of what was put in.",
                "bold green",
            )
        )

    def _death(self) -> str:
        return f", worker {self.facts['killed']} was killed" if "killed" in self.facts else ""
