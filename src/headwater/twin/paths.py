"""The vertices between others in a graph."""

from collections.abc import Iterator

from headwater.dataflow.graph import Graph
from headwater.dataflow.stream import Declaration
from headwater.operators.base import Operator
from headwater.operators.stateless import Filter, KeyBy, Select, Split, Union
from headwater.operators.watermarks import WithWatermark


def upstream(graph: Graph, name: str) -> list[Declaration]:
    """Return everything that leads to a vertex, each once, inputs first."""
    wanted = {name}
    for declared in reversed(graph.declarations):
        if declared.name in wanted:
            wanted |= {given.operator for given in declared.inputs}
    return [declared for declared in graph.declarations if declared.name in wanted - {name}]


def sources_of(graph: Graph, name: str) -> list[str]:
    """Return the sources upstream of a vertex."""
    return [declared.name for declared in upstream(graph, name) if declared.name in graph.sources]


def watermark_on(graph: Graph, source: str) -> WithWatermark | None:
    """Return the watermark on a source's rows in the order of the source.

    None if there is none, or if an operator in between may change the event times.
    """
    found = set(_watermarks(graph, source))
    return found.pop() if len(found) == 1 else None


def has_watermark(graph: Graph, source: str) -> bool:
    """Whether there is any watermark downstream of a source."""
    return any(
        isinstance(one.part, WithWatermark) and source in sources_of(graph, one.name) for one in graph.declarations
    )


def _watermarks(graph: Graph, name: str) -> Iterator[WithWatermark | None]:
    """Yield the watermarks downstream of a vertex; None for each path on which event times may change."""
    for declared in graph.declarations:
        if any(given.operator == name for given in declared.inputs):
            part = declared.part
            if isinstance(part, WithWatermark):
                yield part
            elif isinstance(part, Filter | KeyBy | Split | Union):
                yield from _watermarks(graph, declared.name)
            elif isinstance(part, Select):
                yield from (_through(part, found) for found in _watermarks(graph, declared.name))
            elif isinstance(part, Operator):
                yield None


def _through(select: Select, found: WithWatermark | None) -> WithWatermark | None:
    """Return a watermark after a select, if its column keeps its name there."""
    return found if found is not None and (found.column, found.column) in select.columns else None
