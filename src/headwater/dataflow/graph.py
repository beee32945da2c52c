"""The graph: a flow compiled to what the engine runs. Immutable, and the same for the same flow.

Vertices are grouped into **chains**, which run as one; a chain has `parallelism` **instances**, each with its own
queue. A sink is fed through a queue like an instance, so it has a number among them. **Routes** say where the rows of a
port go and how they are spread there.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from hashlib import blake2b

import pyarrow as pa

from headwater.dataflow.connectors import SinkSpec, SourceSpec, is_sink, is_source
from headwater.dataflow.stream import Declaration
from headwater.operators.base import Operator, TimedOperator
from headwater.operators.chain import NamedOperator
from headwater.operators.distinct import Dedup, Distinct
from headwater.operators.joins.joining import StreamJoin
from headwater.operators.stateless import KeyBy, Union
from headwater.operators.watermarks import WithWatermark


class Spread(StrEnum):
    """How rows are spread over the instances at the other end of a route."""

    FORWARD = "forward"  # instance i to instance i, in order
    BALANCE = "balance"  # batch by batch in turn
    KEY = "key"  # rows of equal key to the same instance


@dataclass(frozen=True, slots=True)
class Route:
    """Rows of one port go to the instances of one chain, or to a sink."""

    source: str  # the operator or source whose port it is
    port: str
    target: str  # the first operator of the receiving chain, or the sink
    spread: Spread
    key: tuple[str, ...] = ()
    input: int = 0  # which input of the receiving operator


@dataclass(frozen=True, slots=True)
class Chain:
    """Operators that run as one because nothing separates them."""

    operators: tuple[str, ...]
    parallelism: int
    stage: int
    first_instance: int

    @property
    def name(self) -> str:
        """What people call the chain."""
        return " → ".join(self.operators)

    @property
    def head(self) -> str:
        """The operator that takes the rows."""
        return self.operators[0]

    @property
    def instances(self) -> range:
        """The numbers of its instances."""
        return range(self.first_instance, self.first_instance + self.parallelism)


@dataclass(frozen=True, slots=True)
class SinkQueue:
    """A sink and the number of the queue that feeds it."""

    name: str
    stage: int
    instance: int


@dataclass(frozen=True, slots=True)
class UnionPlace:
    """A union whose columns only rows can tell: its name, and where it and its inputs are written."""

    name: str
    line: str


@dataclass(frozen=True)
class Graph:
    """A compiled flow."""

    name: str
    declarations: tuple[Declaration, ...]  # inputs before those that read them
    schemas: Mapping[str, pa.Schema | None]
    chains: tuple[Chain, ...]
    sinks: tuple[SinkQueue, ...]
    routes: tuple[Route, ...]

    @cached_property
    def by_name(self) -> dict[str, Declaration]:
        """The declarations by name."""
        return {declared.name: declared for declared in self.declarations}

    @cached_property
    def sources(self) -> dict[str, SourceSpec]:
        """The sources by name."""
        return {one.name: one.part for one in self.declarations if is_source(one.part)}

    def operator(self, name: str) -> Operator:
        """Return the operator of this name."""
        part = self.by_name[name].part
        assert isinstance(part, Operator), name
        return part

    def sink(self, name: str) -> SinkSpec:
        """Return the sink of this name."""
        part = self.by_name[name].part
        assert is_sink(part), name
        return part

    def named_operators(self, chain: Chain) -> tuple[NamedOperator, ...]:
        """Return the operators of a chain, ready to be opened."""
        return tuple(
            NamedOperator(name, self.operator(name), self.by_name[name].line, self._key_by_of(name))
            for name in chain.operators
        )

    def _key_by_of(self, name: str) -> tuple[str, str] | None:
        """Return the key_by that a user has written before an operator; some operators bring their own."""
        declared = self.by_name[name]
        if isinstance(declared.part, Dedup | Distinct | StreamJoin) or not declared.inputs:
            return None
        before = self.by_name[declared.inputs[0].operator]
        return (before.name, before.line) if isinstance(before.part, KeyBy) else None

    def targets(self, target: str) -> range:
        """Return the instance numbers behind the end of a route."""
        for chain in self.chains:
            if chain.head == target:
                return chain.instances
        for sink in self.sinks:
            if sink.name == target:
                return range(sink.instance, sink.instance + 1)
        raise KeyError(target)

    def routes_from(self, source: str) -> Iterator[Route]:
        """Return where the rows of an operator or source go."""
        return (route for route in self.routes if route.source == source)

    def open_unions(self, target: str) -> dict[int, UnionPlace]:
        """Return the unions without known columns that lead to a vertex, by the input that each is behind."""
        found = {}
        for number, given in enumerate(self.by_name[target].inputs):
            declared = self.by_name[given.operator]
            while isinstance(declared.part, KeyBy):
                declared = self.by_name[declared.inputs[0].operator]
            if isinstance(declared.part, Union) and self.schemas.get(declared.name) is None:
                joined = [declared, *(self.by_name[one.operator] for one in declared.inputs)]
                lines = dict.fromkeys(one.line for one in joined if one.line)
                found[number] = UnionPlace(declared.name, "\n  at  ".join(lines))
        return found

    @property
    def instance_count(self) -> int:
        """How many queues the graph has: one for each instance of a chain, and one for each sink."""
        return sum(chain.parallelism for chain in self.chains) + len(self.sinks)

    @cached_property
    def timed(self) -> frozenset[str]:
        """The vertices that depend on time, or lead to one that does: they have to hear of watermarks."""
        found: set[str] = set()
        for declared in reversed(self.declarations):
            if declared.name in found or isinstance(declared.part, TimedOperator | WithWatermark):
                found |= {declared.name, *(given.operator for given in declared.inputs)}
        return frozenset(found)

    @cached_property
    def keeping(self) -> frozenset[str]:
        """The vertices that keep something from row to row, or lead to one that does."""
        found: set[str] = set()
        for declared in reversed(self.declarations):
            keeps = isinstance(declared.part, Operator) and declared.part.state_settings is not None
            if declared.name in found or keeps:
                found |= {declared.name, *(given.operator for given in declared.inputs)}
        return frozenset(found)

    @cached_property
    def fingerprint(self) -> str:
        """Names the structure: state in a store fits a flow only if the fingerprints agree."""
        return self.fingerprint_with({})

    def fingerprint_with(self, kinds: Mapping[str, str]) -> str:
        """Return the fingerprint that this flow would have with vertices of these kinds."""
        told = blake2b(digest_size=16)
        for declared in self.declarations:
            part, kind = declared.part, kinds.get(declared.name, declared.part.kind)
            key = part.key if isinstance(part, Operator) else ()
            told.update(repr((declared.name, kind, declared.inputs, declared.parallelism, key)).encode())
        told.update(repr((self.chains, self.routes)).encode())
        return told.hexdigest()
