"""`headwater node`: one node of a cluster."""

import asyncio
import os
import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from headwater.console.options import (
    ConsumeOption,
    DiskOption,
    JsonOption,
    LogFileOption,
    LogFormatOption,
    MemoryOption,
    PolicyOption,
)
from headwater.console.processes import Attached, end_of_input
from headwater.console.serving import Sayer, any_of, serve_until_told
from headwater.runtime.logs import LogFormat, log_to
from headwater.runtime.peers_here import settings_of_peers
from headwater.runtime.service.machine_peers import PeersOfAMachine
from headwater.runtime.service.recent_log import remember_log
from headwater.runtime.service.service import NodeService
from headwater.runtime.settings import read_settings
from headwater.storage.temporary import sweep


def node(
    listen: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Where others reach this node.")] = None,
    join: Annotated[
        list[str] | None, typer.Option(metavar="HOST:PORT", help="A node to join through; may be repeated.")
    ] = None,
    zone: Annotated[str | None, typer.Option(help="Nodes near one another have the same.")] = None,
    capacity: Annotated[int | None, typer.Option(help="Operators that run here at most.")] = None,
    peers: Annotated[
        str | None,
        typer.Option(metavar="N|auto", help="Places on the ring; auto: by the capacity.", show_default="1"),
    ] = None,
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
    memory: MemoryOption = None,
    disk: DiskOption = None,
    policy: PolicyOption = None,
    consume: ConsumeOption = None,
    metrics: Annotated[
        str | None,
        typer.Option(metavar="[HOST:]PORT", help="Serve Prometheus metrics here, on 127.0.0.1 without HOST."),
    ] = None,
    attached: Annotated[
        Attached | None, typer.Option(hidden=True, help="End when standard input does, and keep or delete --data.")
    ] = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_file: LogFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run one node of a cluster until it is told to stop (Ctrl-C, SIGTERM), or to leave for good (headwater drain).

    One that was stopped goes on where it stood when it is started again. A large machine may carry several peers: they
    share its Spark, listen on ports in a row, and keep their data below peer-01, peer-02 and so on.
    """
    said = {
        "listen": listen,
        "advertise": advertise,
        "join": ",".join(join) if join else None,
        "zone": zone,
        "capacity": capacity,
        "peers": peers,
        "data": data,
        "certs": certs,
        "insecure": insecure or None,
        "config": config,
        "spark_master": spark_master,
        "workers": workers,
        "no_spark": no_spark or None,
        "links": links,
        "power_safe": power_safe or None,
        "memory": memory,
        "disk": disk,
        "policy": policy,
        "consume": consume,
        "metrics": metrics,
    }
    settings = read_settings(said, os.environ)
    sweep(settings.data)
    each = settings_of_peers(settings)

    async def serve(stop: asyncio.Event) -> None:
        machine = PeersOfAMachine(each)
        say("starting")
        letting_go = None if attached is None else asyncio.create_task(_stop_at_end_of_input(stop))
        try:
            await any_of(machine.start(partial(_enter, say, stop)), stop.wait())
            if not stop.is_set():
                await any_of(machine.drained(), machine.broken(), stop.wait())
            if stop.is_set():
                say("stopping")
            else:
                say("drained: all that ran here runs elsewhere, and nothing is left; this machine can be switched off")
        finally:
            await machine.stop()
            if letting_go is not None:
                letting_go.cancel()

    say = Sayer(as_json=as_json)
    with log_to(log_format, log_file):
        remember_log()
        try:
            serve_until_told(serve)
        finally:
            if attached is Attached.DELETE:
                _delete(settings.data)


async def _enter(say: Sayer, stop: asyncio.Event, service: NodeService) -> None:
    """Start one peer, and wait until it is in the ring, has left for good, or is told to stop."""
    await service.start()
    served = {} if service.metrics_url is None else {"metrics": service.metrics_url}
    say("listening", address=service.own.address, id=service.own.id.hex(), zone=service.own.zone, **served)
    await any_of(service.joined(), service.draining.done.wait(), stop.wait())
    if service.machine.is_active:
        say("in the ring", nodes=len(service.machine.ring.known.leaves) + 1)


async def _stop_at_end_of_input(stop: asyncio.Event) -> None:
    await end_of_input()
    stop.set()


def _delete(data: Path) -> None:
    """Delete a node's data, and with that of the last node the folder of the cluster."""
    shutil.rmtree(data, ignore_errors=True)
    with suppress(OSError):
        data.parent.rmdir()
