"""What lies on the way between the vertices of a graph."""

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
    """Return the sources whose rows lead to a vertex."""
    return [declared.name for declared in upstream(graph, name) if declared.name in graph.sources]


def watermark_on(graph: Graph, source: str) -> WithWatermark | None:
    """Return the watermark that is made of a source's rows as the source gives them.

    None where there is no such watermark, or where an operator in between may change the event times.
    """
    found = set(_watermarks(graph, source))
    return found.pop() if len(found) == 1 else None


def has_watermark(graph: Graph, source: str) -> bool:
    """Whether any watermark is made of what a source gives."""
    return any(
        isinstance(one.part, WithWatermark) and source in sources_of(graph, one.name) for one in graph.declarations
    )


def _watermarks(graph: Graph, name: str) -> Iterator[WithWatermark | None]:
    """Yield the watermarks behind a vertex; None for each way that event times may be changed on."""
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
    """Return a watermark behind a select, if the column it is made of keeps its name there."""
    return found if found is not None and (found.column, found.column) in select.columns else None
