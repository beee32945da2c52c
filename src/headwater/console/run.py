"""`headwater run`: the flows of a file, or an application, on an embedded node."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headwater.console.live import view_on
from headwater.console.options import (
    DiscardOption,
    ForOption,
    JsonOption,
    LogFileOption,
    LogFormatOption,
    MetricsOption,
    SetOption,
    SparkOption,
    parse_limit,
)
from headwater.console.running import RunOutcome, run_flows
from headwater.console.screen import fail, screen
from headwater.console.summary import print_json, print_summary
from headwater.console.twin import run_twin
from headwater.engine.policies import Consumption, PolicyName
from headwater.engine.pressure import PressureConfig
from headwater.loading.endpoints import Ends
from headwater.loading.flow_file import load_flows
from headwater.model.errors import ConfigError
from headwater.model.sizes import parse_size
from headwater.runtime.logs import LogFormat, log_to
from headwater.runtime.registry import Upgrade
from headwater.storage.temporary import sweep
from headwater.workers.config import NodeConfig, cores_here


class Engine(StrEnum):
    """What runs a flow."""

    HEADWATER = "headwater"
    STRUCTURED = "structured"


def run(
    flow: Annotated[
        str, typer.Argument(metavar="FLOW.py[:NAME]|APP", help="A file with flows, or an application by name.")
    ],
    limit: ForOption = None,
    rate: Annotated[float | None, typer.Option(help="Rows a second into an application.", show_default="all")] = None,
    rows: Annotated[int | None, typer.Option(help="Make so many rows, then end.", show_default="no end")] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Read an application's real data here.", show_default="$HEADWATER_DATA"),
    ] = None,
    loop: Annotated[bool, typer.Option("--loop", help="Start real data over when it ends.")] = False,
    source: Annotated[
        str | None,
        typer.Option(metavar="URL|FILE", help="Take an application's rows from mqtt://host/topic?qos=1 or a file."),
    ] = None,
    sink: Annotated[
        str | None,
        typer.Option(
            metavar="URL|FILE", help="Send results to mqtt://host/topic, a file or the console.", show_default="nothing"
        ),
    ] = None,
    settings: SetOption = None,
    policy: Annotated[PolicyName, typer.Option(help="Which queue runs next.")] = PolicyName.LONGEST_QUEUE,
    consume: Annotated[
        str, typer.Option(metavar="RULE", help="Rows a turn takes: adaptive, all, half or a number.")
    ] = "adaptive",
    workers: Annotated[int | None, typer.Option(help="Workers of the pool.", show_default="one per core")] = None,
    store: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep rows, state and positions here, and go on from them.")
    ] = None,
    upgrade: Annotated[
        bool, typer.Option("--upgrade", help="Go on where another version of the flow stood in --store.")
    ] = False,
    discard: DiscardOption = None,
    drain: Annotated[
        bool, typer.Option("--drain", help="Read nothing: let through what waits in --store, then end.")
    ] = False,
    no_chaining: Annotated[bool, typer.Option("--no-chaining", help="Run every operator by itself.")] = False,
    no_spark: SparkOption = False,
    engine: Annotated[
        Engine, typer.Option(help="Headwater, or stock Structured Streaming, which settings of queues do not touch.")
    ] = Engine.HEADWATER,
    spark_master: Annotated[
        str | None, typer.Option(metavar="URL", help="A Spark cluster to run on.", show_default="this machine")
    ] = None,
    power_safe: Annotated[bool, typer.Option("--power-safe", help="Let every commit wait for the disk.")] = False,
    memory: Annotated[str, typer.Option(metavar="SIZE", help="Waiting rows at which sources pause.")] = "256MB",
    disk: Annotated[str, typer.Option(metavar="SIZE", help="Waiting rows at which the oldest are shed.")] = "2GB",
    metrics: MetricsOption = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_file: LogFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a file's flows, or an application by name, on this machine until they end, the time is up, or Ctrl-C."""
    limit_s = parse_limit(limit)
    ends = Ends(rate=rate, rows=rows, data=data, loop=loop, source=source, sink=sink, is_kept=store is not None)
    if no_spark and (engine is Engine.STRUCTURED or spark_master is not None):
        raise ConfigError("--no-spark leaves nothing to run this on: take it away, or --engine and --spark-master")
    if (upgrade or drain) and store is None:
        raise ConfigError("--upgrade and --drain are about what a store keeps: give --store DIR")
    if discard and not upgrade:
        raise ConfigError("--discard gives up what an upgrade would keep: give --upgrade too")
    sweep(store)
    if engine is Engine.STRUCTURED:
        with log_to(log_format, log_file):
            flows = load_flows(flow, ends, settings or ())
            run_twin(flows, master=spark_master, directory=store, limit_s=limit_s, as_json=as_json)
    config = NodeConfig(
        store=store,
        workers=cores_here() if workers is None else workers,
        policy=policy,
        consumption=Consumption.parse(consume),
        pressure=PressureConfig(memory_bytes=parse_size(memory), disk_bytes=parse_size(disk)),
        chaining=not no_chaining,
        spark=not no_spark,
        power_safe=power_safe,
        spark_master=spark_master,
    )
    console = screen(stderr=as_json)
    with log_to(log_format, log_file):
        flows = load_flows(flow, ends, settings or ())
        outcome = run_flows(
            flows,
            config,
            view_on(console, plain=as_json),
            limit_s=limit_s,
            metrics_port=metrics,
            upgrade=Upgrade(given_up=tuple(discard or ())) if upgrade else None,
            reads=not drain,
        )
    if as_json:
        print_json(outcome)
    else:
        print_summary(console, outcome, store_kept=store is not None)
    end_with(outcome)


def end_with(outcome: RunOutcome) -> None:
    """Exit as the run ended, with errors last, where they are seen."""
    for app in outcome.status.apps:
        if app.error:
            fail(app.error)
    raise typer.Exit(outcome.exit_code)
