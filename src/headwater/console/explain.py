"""`headwater explain`: what a flow compiles to, without running any of it; or that of an app that a cluster runs."""

import os
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headwater.client.cluster import Cluster
from headwater.console.options import SetOption
from headwater.console.screen import print_object, screen
from headwater.console.verbs import TO, CertsOption, InsecureOption
from headwater.dataflow.compile import compile_flow
from headwater.dataflow.drawing.picture import draw
from headwater.dataflow.explained import Explained, OperatorTold, RouteTold, explained
from headwater.dataflow.graph import Graph, Spread
from headwater.loading.flow_file import load_flows, split
from headwater.model.errors import ConfigError
from headwater.model.quoting import plural
from headwater.operators.base import OnError

_FROM_ENVIRONMENT: Final = "ENVIRONMENT"


def explain(
    context: typer.Context,
    flow: Annotated[
        str,
        typer.Argument(
            metavar="FLOW.py[:NAME]|APP", help="A file with flows, or an application by name; with --to, an app."
        ),
    ],
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="HOST:PORT", envvar=TO, help="Explain an app of this node's cluster instead."),
    ] = None,
    settings: SetOption = None,
    no_chaining: Annotated[bool, typer.Option("--no-chaining", help="Leave every operator by itself.")] = False,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Write a picture; of several flows, one file each.")
    ] = None,
    certs: CertsOption = None,
    insecure: InsecureOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show a flow's operators, chains, stages and routes; starts no Spark and touches no source."""
    if to is not None and not (_is_only_in_environment(context) and _is_file(flow)):
        if settings or no_chaining or svg is not None:
            raise ConfigError("--set, --no-chaining and --svg are for flows here; an app of a cluster is as it runs")
        with Cluster(to, certs=certs, insecure=insecure) as cluster:
            told = cluster.explain(flow)
        if as_json:
            print_object(told)
        else:
            print_explained(screen(), told)
        return
    graphs = [compile_flow(one, chaining=not no_chaining) for one in load_flows(flow, settings=settings or ())]
    console = screen(stderr=as_json)
    if not as_json:
        for graph in graphs:
            print_explained(console, explained(graph))
    if svg is not None:
        for graph in graphs:
            _write_picture(console, graph, svg if len(graphs) == 1 else svg.with_stem(f"{svg.stem}-{graph.name}"))
    if as_json:
        all_told = [msgspec.to_builtins(explained(graph)) for graph in graphs]
        print_object(all_told[0] | {"flows": all_told} if len(all_told) > 1 else all_told[0])


def _is_only_in_environment(context: typer.Context) -> bool:
    """Whether --to is given only by the environment."""
    source = context.get_parameter_source("to")
    return source is not None and source.name == _FROM_ENVIRONMENT


def _is_file(written: str) -> bool:
    """Whether this means a file rather than an app."""
    path, _ = split(written)
    return path.suffix == ".py" or os.path.isfile(path)  # unlike Path's, it raises nothing for an impossible path


def _write_picture(console: Console, graph: Graph, path: Path) -> None:
    try:
        path.write_text(draw(graph), encoding="utf-8")
    except OSError as failure:
        raise ConfigError(f"the picture {path} cannot be written: {failure.strerror}") from failure
    console.print(f"picture of {graph.name}: {path}", soft_wrap=True, markup=False)


def print_explained(console: Console, told: Explained) -> None:
    """Print a compiled flow as three tables: operators, chains, and routes."""
    console.print(
        Text.assemble(
            (told.flow, "bold"),
            f": {plural(len(told.operators), 'operator')} in {plural(len(told.chains), 'chain')}, "
            f"{plural(told.stages, 'stage')}, {plural(told.queues, 'queue')}",
        )
    )
    for title, table in (
        ("Operators", _operators(told)),
        ("Stages", _stages(told)),
        ("Routes", _routes(told)),
    ):
        console.print()
        console.print(Text(title, "bold cyan"))
        console.print(table)
    console.print()


def _table(*headings: str) -> Table:
    """Return a table for `Text` cells: a column named `speed[m]` is not markup."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _operators(told: Explained) -> Table:
    table = _table("name", "kind", "reads from", "columns it gives")
    by_name = {one.name: one for one in told.operators}
    for one in told.operators:
        inputs = ", ".join(given.operator + _port(given.port) for given in one.inputs)
        columns = "" if one.role == "sink" else _columns(by_name, one)
        table.add_row(*map(Text, (one.name, _kind(one), inputs, columns)))
    return table


def _kind(one: OperatorTold) -> str:
    if one.role != "operator":
        return f"{one.kind} {one.role}"
    dead = ", dead letters" if one.on_error == OnError.DEAD_LETTER else ""
    return f"{one.kind}{dead}"


def _columns(by_name: dict[str, OperatorTold], one: OperatorTold) -> str:
    if one.columns is None:
        return "known when it runs"
    if one.inputs and one.columns == by_name[one.inputs[0].operator].columns:
        return f"those of {one.inputs[0].operator}"
    return ", ".join(f"{column.name} {column.type.replace(', tz=UTC', '')}" for column in one.columns)


def _stages(told: Explained) -> Table:
    table = _table("stage", "what runs", "instances", "guarantee")
    guarantees = {one.name: str(one.guarantee) for one in told.operators}
    lines: list[tuple[int, str, str, str]] = [
        (0, f"source {one.name}", "1", f"{one.guarantee}, {'can wait' if one.can_wait else 'cannot wait'}")
        for one in told.operators
        if one.role == "source"
    ]
    lines += [(chain.stage, chain.name, str(chain.instances), "exactly-once") for chain in told.chains]
    lines += [(sink.stage, f"sink {sink.name}", "1", guarantees[sink.name]) for sink in told.sinks]
    for stage, *rest in sorted(lines, key=lambda line: line[0]):
        table.add_row(*map(Text, (str(stage), *rest)))
    return table


def _routes(told: Explained) -> Table:
    table = _table("from", "to", "rows are spread by")
    for route in told.routes:
        table.add_row(*map(Text, (route.source + _port(route.port), route.target, _spread(route))))
    return table


def _port(port: str) -> str:
    return "" if port == "out" else f".{port}"


def _spread(route: RouteTold) -> str:
    """Return how a route spreads its rows: `forward`, `balance` or `key(sensor)`."""
    key = ", ".join(route.key)
    if route.spread == Spread.KEY:
        return f"key({key})"
    return f"{route.spread}, keyed by {key}" if key else route.spread
