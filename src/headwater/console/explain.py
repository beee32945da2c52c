"""`headwater explain`: what a flow compiles to, without running any of it."""

from pathlib import Path
from typing import Annotated, Any

import orjson
import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headwater.console.picture import draw
from headwater.console.run import SetOption
from headwater.console.screen import screen
from headwater.console.wording import plural
from headwater.dataflow.compile import compile_flow
from headwater.dataflow.connectors import is_sink, is_source
from headwater.dataflow.graph import Graph, Route, Spread
from headwater.dataflow.stream import ERRORS, Declaration
from headwater.model.errors import ConfigError
from headwater.operators.base import OnError, Operator
from headwater.runtime.flow_file import load_flows


def explain(
    flow: Annotated[
        str, typer.Argument(metavar="FLOW.py[:NAME]|APP", help="A file with flows, or an application by name.")
    ],
    settings: SetOption = None,
    no_chaining: Annotated[bool, typer.Option("--no-chaining", help="Leave every operator by itself.")] = False,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Write a picture; of several flows, one file each.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show a flow's operators, chains, stages and routes; starts no Spark and touches no source."""
    graphs = [compile_flow(one, chaining=not no_chaining) for one in load_flows(flow, settings=settings or ())]
    console = screen(stderr=as_json)
    if not as_json:
        for graph in graphs:
            print_graph(console, graph)
    if svg is not None:
        for graph in graphs:
            _write_picture(console, graph, svg if len(graphs) == 1 else svg.with_stem(f"{svg.stem}-{graph.name}"))
    if as_json:
        told = [graph_told(graph) for graph in graphs]
        whole = told[0] | {"flows": told} if len(told) > 1 else told[0]
        print(orjson.dumps(whole).decode(), flush=True)


def _write_picture(console: Console, graph: Graph, path: Path) -> None:
    try:
        path.write_text(draw(graph), encoding="utf-8")
    except OSError as failure:
        raise ConfigError(f"the picture {path} cannot be written: {failure.strerror}") from failure
    console.print(f"picture of {graph.name}: {path}", soft_wrap=True, markup=False)


def print_graph(console: Console, graph: Graph) -> None:
    """Print a graph as three tables: what the user wrote, what runs as one, and how rows travel."""
    stages = max(sink.stage for sink in graph.sinks) + 1
    console.print(
        Text.assemble(
            (graph.name, "bold"),
            f": {plural(len(graph.declarations), 'operator')} in {plural(len(graph.chains), 'chain')}, "
            f"{plural(stages, 'stage')}, {plural(graph.instance_count, 'queue')}",
        )
    )
    for title, table in (
        ("Operators", _operators(graph)),
        ("Stages", _stages(graph)),
        ("Routes", _routes(graph)),
    ):
        console.print()
        console.print(Text(title, "bold cyan"))
        console.print(table)
    console.print()


def _table(*headings: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _operators(graph: Graph) -> Table:
    table = _table("name", "kind", "reads from", "columns it gives")
    for declared in graph.declarations:
        inputs = ", ".join(given.operator + _port(given.port) for given in declared.inputs)
        table.add_row(
            declared.name, _kind(declared), inputs, "" if is_sink(declared.part) else _columns(graph, declared)
        )
    return table


def _kind(declared: Declaration) -> str:
    part = declared.part
    if is_source(part):
        return f"{part.kind} source"
    if is_sink(part):
        return f"{part.kind} sink"
    assert isinstance(part, Operator)
    dead = ", dead letters" if part.on_error is OnError.DEAD_LETTER else ""
    return f"{part.kind}{dead}"


def _columns(graph: Graph, declared: Declaration) -> str:
    schema = graph.schemas.get(declared.name)
    if schema is None:
        return "known when it runs"
    if declared.inputs and schema == graph.schemas.get(declared.inputs[0].operator):
        return f"those of {declared.inputs[0].operator}"
    return ", ".join(f"{one.name} {_type(one.type)}" for one in schema)


def _type(kind: pa.DataType) -> str:
    return str(kind).replace(", tz=UTC", "")


def _stages(graph: Graph) -> Table:
    table = _table("stage", "what runs", "instances", "guarantee")
    lines: list[tuple[int, str, str, str]] = [
        (0, f"source {name}", "1", f"{spec.guarantee}, {'can wait' if spec.can_wait else 'cannot wait'}")
        for name, spec in graph.sources.items()
    ]
    lines += [(chain.stage, chain.name, str(chain.parallelism), "exactly-once") for chain in graph.chains]
    lines += [(sink.stage, f"sink {sink.name}", "1", graph.sink(sink.name).guarantee) for sink in graph.sinks]
    for stage, *rest in sorted(lines, key=lambda line: line[0]):
        table.add_row(str(stage), *rest)
    return table


def _routes(graph: Graph) -> Table:
    table = _table("from", "to", "rows are spread by")
    for route in graph.routes:
        table.add_row(route.source + _port(route.port), route.target, spread_told(route))
    return table


def _port(port: str) -> str:
    return "" if port == "out" else f".{port}"


def spread_told(route: Route) -> str:
    """Return how a route spreads its rows: `forward`, `balance` or `key(sensor)`."""
    key = ", ".join(route.key)
    if route.spread is Spread.KEY:
        return f"key({key})"
    return f"{route.spread.value}, keyed by {key}" if key else route.spread.value


def graph_told(graph: Graph) -> dict[str, Any]:
    """Return a graph as plain data."""
    return {
        "flow": graph.name,
        "fingerprint": graph.fingerprint,
        "operators": [_declaration_told(graph, declared) for declared in graph.declarations],
        "chains": [
            {"name": one.name, "operators": list(one.operators), "stage": one.stage, "instances": one.parallelism}
            for one in graph.chains
        ],
        "sinks": [{"name": one.name, "stage": one.stage} for one in graph.sinks],
        "routes": [
            {
                "source": one.source,
                "port": one.port,
                "target": one.target,
                "spread": one.spread.value,
                "key": list(one.key),
                "dead_letters": one.port == ERRORS,
            }
            for one in graph.routes
        ],
    }


def _declaration_told(graph: Graph, declared: Declaration) -> dict[str, Any]:
    part, schema = declared.part, graph.schemas.get(declared.name)
    told: dict[str, Any] = {
        "name": declared.name,
        "kind": part.kind,
        "role": "source" if is_source(part) else "sink" if is_sink(part) else "operator",
        "inputs": [{"operator": given.operator, "port": given.port} for given in declared.inputs],
        "columns": None if schema is None else [{"name": one.name, "type": str(one.type)} for one in schema],
        "parallelism": declared.parallelism,
    }
    if isinstance(part, Operator):
        return told | {"on_error": part.on_error.value, "key": list(part.key), "ports": list(part.ports)}
    waits = {"can_wait": part.can_wait} if is_source(part) else {}
    return told | {"guarantee": part.guarantee} | waits
