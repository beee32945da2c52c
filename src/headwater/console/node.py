"""`headwater node` and `headwater cluster`: one node of a cluster, or several on this machine to try things out."""

import asyncio
import os
import signal
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import orjson
import typer
import uvloop

from headwater.console.run import ForOption, JsonOption, LogFileOption, LogFormatOption, parse_limit
from headwater.console.screen import screen
from headwater.model.errors import ConfigError
from headwater.runtime.logs import LogFormat, log_to
from headwater.runtime.service.local import LocalNodes
from headwater.runtime.service.recent_log import remember_log
from headwater.runtime.service.service import NodeService
from headwater.runtime.settings import read_settings


def node(
    listen: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Where others reach this node.")] = None,
    join: Annotated[
        list[str] | None, typer.Option(metavar="HOST:PORT", help="A node to join through; may be repeated.")
    ] = None,
    zone: Annotated[str | None, typer.Option(help="Nodes near one another have the same.")] = None,
    capacity: Annotated[int | None, typer.Option(help="Operators that run here at most.")] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Rows, state and identity; a restart needs it.")
    ] = None,
    certs: Annotated[Path | None, typer.Option(metavar="DIR", help="What `headwater certs node` made.")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Without certificates, on this machine only.")] = False,
    advertise: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="The address that others are told.", show_default="--listen")
    ] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="A TOML file with these settings.")] = None,
    spark_master: Annotated[str | None, typer.Option(metavar="URL", help="A Spark cluster to run on.")] = None,
    workers: Annotated[int | None, typer.Option(help="Workers of the pool.", show_default="one per core")] = None,
    no_spark: Annotated[bool, typer.Option("--no-spark", help="Run on threads instead of Spark.")] = False,
    links: Annotated[Path | None, typer.Option(metavar="FILE", help="Emulate links, for experiments.")] = None,
    power_safe: Annotated[bool, typer.Option("--power-safe", help="Let every commit wait for the disk.")] = False,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_file: LogFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run one node of a cluster until it is told to stop (Ctrl-C, SIGTERM), or to leave for good (headwater drain).

    One that was stopped goes on where it stood when it is started again.
    """
    said = {
        "listen": listen,
        "advertise": advertise,
        "join": ",".join(join) if join else None,
        "zone": zone,
        "capacity": capacity,
        "data": data,
        "certs": certs,
        "insecure": insecure or None,
        "config": config,
        "spark_master": spark_master,
        "workers": workers,
        "no_spark": no_spark or None,
        "links": links,
        "power_safe": power_safe or None,
    }
    settings = read_settings(said, os.environ)

    async def serve(stop: asyncio.Event) -> None:
        service = NodeService(settings)
        say("starting")
        await service.start()
        try:
            say("listening", address=service.own.address, id=service.own.id.hex(), zone=service.own.zone)
            await _either(service.joined(), stop.wait())
            if service.machine.is_active:
                say("in the ring", nodes=len(service.machine.ring.known.leaves) + 1)
            await _either(service.draining.done.wait(), stop.wait())
            if service.draining.done.is_set():
                say("drained: all that ran here runs elsewhere, and nothing is left; this machine can be switched off")
            else:
                say("stopping")
        finally:
            await service.stop()

    say = _Sayer(as_json=as_json)
    with log_to(log_format, log_file):
        remember_log()
        _run(serve)


def cluster(
    count: Annotated[int, typer.Argument(metavar="N", min=1, help="How many nodes.")],
    zones: Annotated[int, typer.Option(help="Into how many zones they are divided.", min=1)] = 1,
    port: Annotated[
        int, typer.Option(help="Of the first node; the others have the next ones.", show_default="free")
    ] = 0,
    capacity: Annotated[int, typer.Option(help="Operators that run on each at most.")] = 8,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep what they have here.", show_default="a temporary one")
    ] = None,
    no_spark: Annotated[bool, typer.Option("--no-spark", help="Run on threads instead of Spark.")] = False,
    links: Annotated[Path | None, typer.Option(metavar="FILE", help="Emulate links between them.")] = None,
    limit: ForOption = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_file: LogFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run N nodes on this machine to try things out, sharing one Spark; nothing is left when they end."""
    limit_s = parse_limit(limit)
    if zones > count:
        raise ConfigError(f"{count} nodes cannot be in {zones} zones")

    async def serve(stop: asyncio.Event) -> None:
        with ExitStack() as undo:
            place = data or Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="headwater-cluster-")))
            nodes = LocalNodes(place, spark=not no_spark, capacity=capacity, links=links)
            try:
                say(f"starting {count} nodes")
                await nodes.start([f"zone-{1 + number * zones // count}" for number in range(count)], first_port=port)
                for one in nodes.nodes:
                    say("listening", address=one.own.address, id=one.own.id.hex(), zone=one.own.zone)
                say(
                    "ready",
                    nodes=count,
                    submit=f"headwater submit FLOW.py --insecure --to {nodes.nodes[0].own.address}",
                )
                await _either(stop.wait(), asyncio.sleep(limit_s) if limit_s is not None else stop.wait())
                say("stopping")
            finally:
                await nodes.stop()

    say = _Sayer(as_json=as_json)
    with log_to(log_format, log_file):
        remember_log()
        _run(serve)


class _Sayer:
    """Says what happens, for people or for programs."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._console = screen()

    def __call__(self, what: str, **facts: object) -> None:
        if self._as_json:
            print(orjson.dumps({"event": what, **facts}).decode(), flush=True)
            return
        told = "  ".join(f"{name}={value}" for name, value in facts.items())
        self._console.print(f"{what}  {told}".rstrip(), soft_wrap=True, highlight=False, markup=False)


async def _either(one: Awaitable[object], other: Awaitable[object]) -> None:
    tasks = [asyncio.ensure_future(one), asyncio.ensure_future(other)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _run(serve: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Serve until a signal comes: the first is a wish to stop in good order, the second ends it."""

    async def until_told() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        serving = asyncio.ensure_future(serve(stop))

        def note() -> None:
            if stop.is_set():
                serving.cancel()
            stop.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, note)
        try:
            await serving
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(until_told())
