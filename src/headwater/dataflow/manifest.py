"""What a store keeps of a flow, in words that outlive the flow: whose state, whose position, and how it was made.

A graph is built anew by every run; the store remembers the manifest of the one it serves. So it is known, without the
old code, what another version of the flow would find there.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from headwater.dataflow.connectors import Resuming, Tabular, is_sink, is_source
from headwater.dataflow.graph import Graph
from headwater.dataflow.stream import Declaration, Input
from headwater.operators.base import Operator

SETTING_CHARS_MAX: Final = 2_000  # a model built of hundreds of parts describes itself at length
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")  # of an object in memory: another one in every run


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """A vertex of which something is kept: an operator's state, or how far a source or a sink has come."""

    name: str
    role: str  # operator, source or sink
    kind: str
    parallelism: int = 1
    key: tuple[str, ...] = ()
    key_types: tuple[str, ...] = ()  # empty where only running can tell
    settings: dict[str, str] = {}
    columns: tuple[str, ...] = ()  # of a sink that has had rows of these, and can take no others; empty: unknown

    @property
    def what(self) -> str:
        """What is kept of it."""
        return "state" if self.role == "operator" else "position"


class ChainLayout(msgspec.Struct, frozen=True, array_like=True):
    """A chain: its operators, and the numbers of its instances."""

    operators: tuple[str, ...]
    parallelism: int
    first_instance: int


class Manifest(msgspec.Struct, frozen=True, array_like=True):
    """A flow as its store remembers it."""

    names: tuple[str, ...]  # of the vertices, by number
    chains: tuple[ChainLayout, ...]
    kept: tuple[Kept, ...]

    def number_of(self, name: str) -> int:
        """Return the number of a vertex."""
        return self.names.index(name)

    def chain_of(self, operator: str) -> ChainLayout:
        """Return the chain that an operator is in."""
        return next(chain for chain in self.chains if operator in chain.operators)

    def find(self, name: str) -> Kept | None:
        """Return what is kept of a vertex; None if there is no such, or nothing."""
        return next((one for one in self.kept if one.name == name), None)


def manifest_of(graph: Graph) -> Manifest:
    """Return what a store has to remember of a graph."""
    return Manifest(
        tuple(declared.name for declared in graph.declarations),
        tuple(ChainLayout(chain.operators, chain.parallelism, chain.first_instance) for chain in graph.chains),
        tuple(kept for declared in graph.declarations if (kept := _kept(graph, declared)) is not None),
    )


def _kept(graph: Graph, declared: Declaration) -> Kept | None:
    part = declared.part
    if isinstance(part, Operator):
        settings = part.state_settings
        if settings is None:
            return None
        types = _types(graph, declared.inputs[0], part.key)
        return Kept(declared.name, "operator", part.kind, declared.parallelism, part.key, types, _texts(settings))
    settings = _texts(part.position_settings) if isinstance(part, Resuming) else {}
    if is_source(part):
        return Kept(declared.name, "source", part.kind, settings=settings)
    assert is_sink(part), declared.name
    columns = _columns(graph, declared.inputs[0]) if isinstance(part, Tabular) else ()
    return Kept(declared.name, "sink", part.kind, settings=settings, columns=columns)


def _columns(graph: Graph, given: Input) -> tuple[str, ...]:
    schema = graph.schemas.get(given.operator) if given.port == "out" else None
    return () if schema is None else tuple(schema.names)


def _types(graph: Graph, given: Input, key: tuple[str, ...]) -> tuple[str, ...]:
    schema = graph.schemas.get(given.operator) if given.port == "out" else None
    if schema is None or any(column not in schema.names for column in key):
        return ()
    return tuple(str(schema.field(column).type) for column in key)


def _texts(settings: Mapping[str, object]) -> dict[str, str]:
    return {name: _ADDRESS.sub("", repr(value))[:SETTING_CHARS_MAX] for name, value in settings.items()}
