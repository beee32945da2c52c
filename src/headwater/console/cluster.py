"""`headwater cluster`: several nodes on this machine, to try things out."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from headwater.console.options import (
    ConsumeOption,
    DiskOption,
    ForOption,
    JsonOption,
    LogFileOption,
    LogFormatOption,
    MemoryOption,
    PolicyOption,
    parse_limit,
)
from headwater.console.processes import Attached, NodeProcesses
from headwater.console.serving import Sayer, any_of, serve_until_told
from headwater.model.errors import ConfigError, EngineError
from headwater.model.quoting import plural
from headwater.runtime.logs import LogFormat, log_to
from headwater.runtime.service.local_cluster import LocalNodes
from headwater.runtime.service.recent_log import remember_log
from headwater.runtime.service.service import NodeService
from headwater.runtime.settings import CAPACITY, read_values
from headwater.storage.temporary import Temporary, sweep
from headwater.workers.sockets import free_ports

PORT_FILE: Final = "first-port"  # in the kept data


def cluster(
    count: Annotated[int, typer.Argument(metavar="N", min=1, help="How many nodes.")],
    processes: Annotated[
        bool, typer.Option("--processes", help="A process for each, with a Spark of its own.", show_default=False)
    ] = False,
    zones: Annotated[int, typer.Option(help="Into how many zones they are divided.", min=1)] = 1,
    port: Annotated[
        int,
        typer.Option(
            help="Of the first node; the others have the next ones.",
            show_default="free; with --data as before",
            min=0,
            max=65_535,
        ),
    ] = 0,
    capacity: Annotated[int, typer.Option(help="Operators that run on each at most.")] = CAPACITY,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep what they have here.", show_default="a temporary one")
    ] = None,
    no_spark: Annotated[bool, typer.Option("--no-spark", help="Run on threads instead of Spark.")] = False,
    links: Annotated[Path | None, typer.Option(metavar="FILE", help="Emulate links between them.")] = None,
    memory: MemoryOption = None,
    disk: DiskOption = None,
    policy: PolicyOption = None,
    consume: ConsumeOption = None,
    metrics: Annotated[
        int | None, typer.Option(metavar="PORT", help="Serve the first node's metrics here, the others' on the next.")
    ] = None,
    limit: ForOption = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_file: LogFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run N nodes on this machine to try things out, sharing one Spark; nothing is left when they end.

    Memory and disk are those of each node.
    """
    limit_s = parse_limit(limit)
    if zones > count:
        raise ConfigError(f"{count} nodes cannot be in {zones} zones")
    if data is not None and port == 0:
        port = _port_before(data, count)
    engine = {"memory": memory, "disk": disk, "policy": policy, "consume": consume, "metrics": metrics}
    said = {name: value for name, value in engine.items() if value is not None}
    shape = Shape(
        [f"zone-{1 + number * zones // count}" for number in range(count)], port, capacity, links, no_spark, said
    )
    shape.settings(1)  # what cannot be is refused before anything starts

    async def serve(stop: asyncio.Event) -> None:
        with ExitStack() as undo:
            place = data or undo.enter_context(Temporary("cluster"))
            say(f"starting {count} nodes")
            if processes:
                attached = Attached.DELETE if data is None else Attached.KEEP
                logs = partial(_log_words, log_format, log_file)
                await serving.apart(stop, lambda number: [*shape.words(number, place, attached), *logs(number)])
            else:
                await serving.here(stop, place)

    sweep(data)
    say = Sayer(as_json=as_json)
    serving = Serving(shape, limit_s, say, data)
    with log_to(log_format, log_file):
        remember_log()
        serve_until_told(serve)


def _port_before(data: Path, count: int) -> int:
    """Return the port of the first node of a cluster with kept data: the one of its last run, or else a free one.

    Nodes must keep their addresses: apps wait for them there.
    """
    file = data / PORT_FILE
    try:
        return int(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return free_ports("127.0.0.1", count)
    except (OSError, ValueError) as failure:
        raise ConfigError(f"{file} does not say the port of the first node; give it with --port") from failure


def _keep_port(data: Path, first: str) -> None:
    file = data / PORT_FILE
    try:
        file.write_text(f"{first.rpartition(':')[2]}\n", encoding="utf-8")
    except OSError as failure:
        raise EngineError(f"{file} cannot be written: {failure.strerror}") from failure


def _log_words(form: LogFormat, file: Path | None, number: int) -> list[str]:
    """Return the log options of a process: a file of its own, since each rotates its file."""
    if file is None:
        return ["--log-format", form]
    return ["--log-format", form, "--log-file", str(file.with_stem(f"{file.stem}-node-{number:02}"))]


@dataclass(frozen=True, slots=True)
class Shape:
    """The nodes that are to run."""

    zones: list[str]  # of every node
    port: int  # of the first; 0: any
    capacity: int
    links: Path | None
    no_spark: bool
    engine: Mapping[
        str, Any
    ]  # what was said of the engines of all: memory, disk, policy, consume, metrics of the first

    def settings(self, number: int) -> dict[str, Any]:
        """Return what was said of the engine of a node, as the settings of a node have it."""
        said = dict(self.engine)
        if said.get("metrics"):
            said["metrics"] += number - 1
        return read_values(said)

    def words(self, number: int, place: Path, attached: Attached) -> list[str]:
        """Return the command line of node `number`, counted from 1."""
        options = {
            "--listen": f"127.0.0.1:{0 if self.port == 0 else self.port + number - 1}",
            "--zone": self.zones[number - 1],
            "--capacity": self.capacity,
            "--workers": 1,
            "--data": place / f"node-{number:02}",
            "--attached": attached,
            "--links": self.links,
            **{f"--{name}": value for name, value in self.settings(number).items()},
        }
        said = [str(word) for option, value in options.items() if value is not None for word in (option, value)]
        return ["--insecure", *said, *(["--no-spark"] if self.no_spark else [])]


@dataclass(frozen=True, slots=True)
class Serving:
    """Runs nodes from start to end, in this process or in processes of their own."""

    shape: Shape
    limit_s: float | None
    say: Sayer
    kept: Path | None  # the folder of kept data

    async def here(self, stop: asyncio.Event, place: Path) -> None:
        """Run all in this process."""
        shape = self.shape
        nodes = LocalNodes(
            place, spark=not shape.no_spark, capacity=shape.capacity, links=shape.links, settings=shape.settings
        )
        try:
            await any_of(nodes.start(shape.zones, first_port=shape.port), stop.wait())
            if stop.is_set():
                return
            for one in nodes.nodes:
                served = {} if one.metrics_url is None else {"metrics": one.metrics_url}
                self.say("listening", address=one.own.address, id=one.own.id.hex(), zone=one.own.zone, **served)
            async with asyncio.TaskGroup() as watching:
                watched = [watching.create_task(self._see_off(nodes, one)) for one in nodes.nodes]
                await self._until_end(nodes.nodes[0].own.address, stop)
                for task in watched:
                    task.cancel()
        finally:
            await nodes.stop()

    async def _see_off(self, nodes: LocalNodes, node: NodeService) -> None:
        """Stop a node that has left for good, or is of no use any more."""
        await any_of(node.draining.done.wait(), node.broken.wait())
        await nodes.remove(node)
        what = f"a node has died ({node.engine.broken})" if node.broken.is_set() else "a node has left"
        self.say(what, address=node.own.address, nodes=len(nodes.nodes))

    async def apart(self, stop: asyncio.Event, words: Callable[[int], list[str]]) -> None:
        """Run each in a process of its own; raises if one died."""
        count = len(self.shape.zones)
        nodes = NodeProcesses(words, self.say)
        try:
            await any_of(nodes.start(count), stop.wait())
            if not stop.is_set():
                await self._until_end(nodes.nodes[0].address, stop, nodes.all_ended)
        finally:
            await nodes.stop()
        if nodes.died:
            raise EngineError(f"{plural(nodes.died, 'node')} of {count} died, as was said above")

    async def _until_end(self, first: str, *ends: asyncio.Event) -> None:
        """Report that all is ready, and wait for the first reason to end."""
        if self.kept is not None:
            _keep_port(self.kept, first)
        self.say("ready", nodes=len(self.shape.zones), submit=f"headwater submit FLOW.py --insecure --to {first}")
        limit = [] if self.limit_s is None else [asyncio.sleep(self.limit_s)]
        await any_of(*(end.wait() for end in ends), *limit)
        self.say("stopping")
