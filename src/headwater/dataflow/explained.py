"""What a flow compiles to, as plain data: for people who look at it, on this machine or on another."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from headwater.dataflow.connectors import is_sink, is_source
from headwater.dataflow.graph import Graph, Route
from headwater.dataflow.stream import ERRORS, Declaration
from headwater.model.ids import LIST_MAX, Number, Said, SaidMany
from headwater.operators.base import Operator


class InputTold(msgspec.Struct, frozen=True):
    """A port that an operator reads from."""

    operator: Said
    port: Said


class ColumnTold(msgspec.Struct, frozen=True):
    """A column that an operator gives."""

    name: Said
    type: Said


class OperatorTold(msgspec.Struct, frozen=True, kw_only=True):
    """An operator, a source or a sink, as the user wrote it."""

    name: Said
    kind: Said
    role: Said  # source, operator or sink
    inputs: Annotated[list[InputTold], Meta(max_length=LIST_MAX)]
    columns: Annotated[list[ColumnTold], Meta(max_length=LIST_MAX)] | None  # None: known when it runs
    parallelism: Number
    on_error: Said | UnsetType = UNSET  # this and the next two: of operators
    key: SaidMany | UnsetType = UNSET
    ports: SaidMany | UnsetType = UNSET
    guarantee: Said | UnsetType = UNSET  # of sources and sinks
    can_wait: bool | UnsetType = UNSET  # of sources


class ChainTold(msgspec.Struct, frozen=True):
    """Operators that run as one."""

    name: Said
    operators: SaidMany
    stage: Number
    instances: Number


class SinkTold(msgspec.Struct, frozen=True):
    """The queue of a sink."""

    name: Said
    stage: Number


class RouteTold(msgspec.Struct, frozen=True):
    """How rows go from a port to a chain or sink."""

    source: Said
    port: Said
    target: Said
    spread: Said
    key: SaidMany
    dead_letters: bool


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """A compiled flow."""

    flow: Said
    fingerprint: Said
    operators: Annotated[list[OperatorTold], Meta(max_length=LIST_MAX)]  # inputs before those that read them
    chains: Annotated[list[ChainTold], Meta(max_length=LIST_MAX)]
    sinks: Annotated[list[SinkTold], Meta(max_length=LIST_MAX)]
    routes: Annotated[list[RouteTold], Meta(max_length=LIST_MAX)]

    @property
    def stages(self) -> int:
        """How many stages it has."""
        return max(sink.stage for sink in self.sinks) + 1

    @property
    def queues(self) -> int:
        """How many queues it has: one for each instance of a chain, and one for each sink."""
        return sum(chain.instances for chain in self.chains) + len(self.sinks)


def explained(graph: Graph) -> Explained:
    """Return a graph as plain data."""
    return Explained(
        flow=graph.name,
        fingerprint=graph.fingerprint,
        operators=[_operator(graph, declared) for declared in graph.declarations],
        chains=[ChainTold(one.name, list(one.operators), one.stage, one.parallelism) for one in graph.chains],
        sinks=[SinkTold(one.name, one.stage) for one in graph.sinks],
        routes=[_route(one) for one in graph.routes],
    )


def _operator(graph: Graph, declared: Declaration) -> OperatorTold:
    part, schema = declared.part, graph.schemas.get(declared.name)
    told = OperatorTold(
        name=declared.name,
        kind=part.kind,
        role="source" if is_source(part) else "sink" if is_sink(part) else "operator",
        inputs=[InputTold(given.operator, given.port) for given in declared.inputs],
        columns=None if schema is None else [ColumnTold(one.name, str(one.type)) for one in schema],
        parallelism=declared.parallelism,
    )
    if isinstance(part, Operator):
        return msgspec.structs.replace(told, on_error=part.on_error.value, key=list(part.key), ports=list(part.ports))
    waits = {"can_wait": part.can_wait} if is_source(part) else {}
    return msgspec.structs.replace(told, guarantee=part.guarantee, **waits)


def _route(one: Route) -> RouteTold:
    return RouteTold(one.source, one.port, one.target, one.spread.value, list(one.key), one.port == ERRORS)
