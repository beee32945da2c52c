"""From a flow to a graph: check it, chain what nothing separates, lay it out in stages.

All that can be known to be wrong before a row flows is refused here, with a sentence that names the operator: names
used twice, inputs that do not exist, cycles, columns that are not there, types that do not agree.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from headwater.dataflow.connectors import ReadsFiles, Resource, is_sink, is_source, resources_of
from headwater.dataflow.graph import Chain, Graph, Route, SinkQueue, Spread
from headwater.dataflow.stream import ERRORS, Declaration, Flow, Input
from headwater.model.errors import FlowError, UnknownColumn
from headwater.model.ids import checked_name
from headwater.model.keys import KEY_GROUPS, can_be_key
from headwater.operators.base import OnError, Operator, TimedOperator
from headwater.operators.chain import DEAD_LETTERS
from headwater.operators.functions import WrongResult
from headwater.operators.joins.joining import StreamJoin
from headwater.operators.sql import Transform
from headwater.operators.stateless import KeyBy, Routing, Union
from headwater.operators.watermarks import WithWatermark

OPERATORS_MAX: Final = 1_000  # far above any real flow; keeps a flow made by a runaway loop from filling a store


def compile_flow(flow: Flow, *, chaining: bool = True) -> Graph:
    """Return the graph of a flow, or raise a FlowError that says what is wrong with it."""
    _check_names(flow)
    ordered = _topological(flow)
    _check_parts(ordered)
    _check_resources(flow.name, ordered)
    schemas = _schemas(ordered)
    _check_types(ordered, schemas)
    _check_watermarks(ordered)
    ordered = tuple(_told_columns(declared, schemas) for declared in ordered)
    ways = _ways(ordered)
    groups = _chains(ordered, ways, chaining)
    return _lay_out(flow.name, ordered, schemas, groups, ways)


def _runs(declared: Declaration) -> bool:
    """Whether the vertex is an operator that touches rows, and so has its place in a chain."""
    return isinstance(declared.part, Operator) and not isinstance(declared.part, Routing)


def _check_names(flow: Flow) -> None:
    checked_name("flow", flow.name)
    if len(flow.declarations) > OPERATORS_MAX:
        raise FlowError(
            f"flow {flow.name!r} has {len(flow.declarations)} operators; at most {OPERATORS_MAX} are allowed"
        )
    seen: set[str] = set()
    for declared in flow.declarations:
        checked_name("operator", declared.name)
        if declared.name in seen:
            raise FlowError(f"flow {flow.name!r} has two operators named {declared.name!r}; give one another name=")
        seen.add(declared.name)


def _topological(flow: Flow) -> tuple[Declaration, ...]:
    """Order the declarations so that inputs come first; refuse inputs that do not exist and cycles."""
    by_name = {declared.name: declared for declared in flow.declarations}
    for declared in flow.declarations:
        for given in declared.inputs:
            _check_input(declared, given, by_name)
    ordered: dict[str, Declaration] = {}
    waiting = list(flow.declarations)
    while waiting:
        ready = [one for one in waiting if all(given.operator in ordered for given in one.inputs)]
        if not ready:
            names = " → ".join(_cycle(waiting))
            raise FlowError(f"flow {flow.name!r} has a cycle: {names}; rows must flow one way, from sources to sinks")
        ordered.update((one.name, one) for one in ready)
        waiting = [one for one in waiting if one.name not in ordered]
    return tuple(ordered.values())


def _cycle(waiting: Iterable[Declaration]) -> list[str]:
    """Return a cycle among declarations that all wait for one another: walk back until a name comes again."""
    before = {one.name: [given.operator for given in one.inputs] for one in waiting}
    walk = [min(before)]
    while walk[-1] not in walk[:-1]:
        walk.append(next(name for name in before[walk[-1]] if name in before))
    return walk[walk.index(walk[-1]) :][::-1]


def _check_input(declared: Declaration, given: Input, by_name: Mapping[str, Declaration]) -> None:
    origin = by_name.get(given.operator)
    if origin is None:
        raise FlowError(
            f"operator {declared.name!r} reads from {given.operator!r}, which the flow does not have; "
            f"it has: {', '.join(sorted(by_name))}"
        )
    if is_sink(origin.part):
        raise FlowError(f"operator {declared.name!r} reads from sink {given.operator!r}; nothing comes out of a sink")
    if isinstance(origin.part, Operator):
        _check_port(declared, given, origin.part)
    elif given.port != "out":
        raise FlowError(
            f"operator {declared.name!r} reads port {given.port!r} of source {given.operator!r}; it has only 'out'"
        )


def _check_port(declared: Declaration, given: Input, origin: Operator) -> None:
    if given.port == ERRORS:
        if origin.on_error is not OnError.DEAD_LETTER:
            raise FlowError(
                f"operator {declared.name!r} reads the errors of {given.operator!r}, which stops at an error instead; "
                f"give {given.operator!r} on_error='dead-letter'"
            )
    elif given.port not in origin.ports:
        raise FlowError(
            f"operator {declared.name!r} reads port {given.port!r} of {given.operator!r}, "
            f"which has: {', '.join(origin.ports)}"
        )


def _check_parts(ordered: Iterable[Declaration]) -> None:
    for declared in ordered:
        _check_arity(declared)
        if declared.parallelism not in range(1, KEY_GROUPS + 1):
            raise FlowError(
                f"operator {declared.name!r} has parallelism {declared.parallelism!r}; "
                f"it must be a whole number from 1 to {KEY_GROUPS}"
            )


def _check_arity(declared: Declaration) -> None:
    part, count = declared.part, len(declared.inputs)
    if is_source(part):
        if count:
            raise FlowError(f"source {declared.name!r} has an input; a source starts a stream")
    elif isinstance(part, Union):
        if count < 2:
            raise FlowError(f"union {declared.name!r} has {count} input; it joins two or more streams")
    elif isinstance(part, Operator) or is_sink(part):
        wanted = part.inputs if isinstance(part, TimedOperator) else 1
        if count != wanted:
            needs = "exactly one" if wanted == 1 else f"exactly {wanted}"
            raise FlowError(f"{part.kind} {declared.name!r} has {count} inputs; it needs {needs}")
    else:
        raise FlowError(f"{declared.name!r} is a {type(part).__name__}, which is neither source, operator nor sink")


def _check_resources(flow: str, ordered: Iterable[Declaration]) -> None:
    """Refuse two sources or sinks that need the same for themselves, and a sink that writes what the flow reads."""
    users: dict[Resource, Declaration] = {}
    readers = [(declared.name, declared.part) for declared in ordered if isinstance(declared.part, ReadsFiles)]
    for declared in ordered:
        for resource in resources_of(declared.part):
            user = users.setdefault(resource, declared)
            if user is not declared:
                both = f"{_role(user)} {user.name!r} and {_role(declared)} {declared.name!r} both use {resource.name}"
                instead = ", or join their streams with .union(...) before one sink" if is_sink(declared.part) else ""
                raise FlowError(f"flow {flow!r}: {both}; {resource.harm}: {resource.advice}{instead}")
            for reader, source in readers:  # it would lose its input, or be given its own rows again
                if source.reads(resource):
                    raise FlowError(
                        f"flow {flow!r}: source {reader!r} reads what sink {user.name!r} writes, {resource.name}; its "
                        "rows would be overwritten, or come again: give the sink a place that the flow does not read"
                    )


def _role(declared: Declaration) -> str:
    return "sink" if is_sink(declared.part) else "source"


def _schemas(ordered: Iterable[Declaration]) -> dict[str, pa.Schema | None]:
    """Carry the declared columns through the graph as far as they are known, and check that needed ones are there."""
    schemas: dict[str, pa.Schema | None] = {}
    for declared in ordered:
        part = declared.part
        inputs = [_schema_of(given, schemas) for given in declared.inputs]
        if isinstance(part, Operator):
            _check_columns(declared.name, part, inputs)
            try:
                schemas[declared.name] = part.output_schema(inputs)
            except WrongResult as misfit:
                raise FlowError(f"{part.kind} {declared.name!r}: {misfit}") from misfit
            schemas |= {_port_name(declared.name, port): part.port_schema(port, inputs) for port in part.ports[1:]}
        elif is_source(part):
            schemas[declared.name] = part.schema
    return schemas


_LACKING: Final = {"inner": (False, False), "left": (False, True), "full": (True, True)}  # which side may be missing


def _told_columns(declared: Declaration, schemas: Mapping[str, pa.Schema | None]) -> Declaration:
    """Tell a join the columns of both sides: it may have rows of one before the first of the other comes."""
    if not isinstance(declared.part, StreamJoin):
        return declared
    left, right = (_schema_of(given, schemas) for given in declared.inputs)
    for side, schema, needed in zip(("first", "second"), (left, right), _LACKING[declared.part.how], strict=True):
        if needed and schema is None:
            raise FlowError(
                f"{declared.part.kind} {declared.name!r} is a {declared.part.how} join, whose rows may lack a partner, "
                f"so the columns of its {side} input must be known beforehand; give the operators there a schema="
            )
    return replace(declared, part=replace(declared.part, schemas=(left, right)))


def _port_name(operator: str, port: str) -> str:
    """Return under which name the columns of a further port are kept; no operator can be called so."""
    return f"{operator}/{port}"


def _schema_of(given: Input, schemas: Mapping[str, pa.Schema | None]) -> pa.Schema | None:
    if given.port == ERRORS:
        return DEAD_LETTERS
    named = _port_name(given.operator, given.port)
    return schemas[named] if named in schemas else schemas[given.operator]


def _check_columns(name: str, operator: Operator, inputs: Iterable[pa.Schema | None]) -> None:
    for source, schema in enumerate(inputs):
        if schema is not None:
            for column in operator.columns_needed_of(source):
                if column not in schema.names:
                    raise UnknownColumn(name, column, schema.names)
                if isinstance(operator, KeyBy) and not can_be_key(schema.field(column).type):
                    raise FlowError(
                        f"operator {name!r} spreads rows by column {column!r}, a {schema.field(column).type}; "
                        "a key is a number, a text, bytes, a date or a time"
                    )
                if isinstance(operator, WithWatermark) and not pa.types.is_timestamp(schema.field(column).type):
                    raise FlowError(
                        f"operator {name!r} takes event time from column {column!r}, "
                        f"a {schema.field(column).type}; it must be a timestamp"
                    )


def _check_types(ordered: Iterable[Declaration], schemas: Mapping[str, pa.Schema | None]) -> None:
    """A union's inputs must have the same columns and types, where they are known."""
    for declared in ordered:
        if isinstance(declared.part, Union):
            known = [(given, _schema_of(given, schemas)) for given in declared.inputs]
            _check_union(declared.name, [(given, schema) for given, schema in known if schema is not None])


def _check_union(name: str, known: list[tuple[Input, pa.Schema]]) -> None:
    for given, schema in known[1:]:
        first_input, first = known[0]
        if set(schema.names) != set(first.names):
            odd = sorted(set(schema.names) ^ set(first.names))[0]
            raise FlowError(
                f"union {name!r} joins {first_input.operator!r} and {given.operator!r}, "
                f"but only one of them has column {odd!r}"
            )
        for column in first.names:
            mine, other = first.field(column).type, schema.field(column).type
            if mine != other:
                raise FlowError(
                    f"union {name!r}: column {column!r} is {mine} in {first_input.operator!r} "
                    f"but {other} in {given.operator!r}"
                )


def _check_watermarks(ordered: Iterable[Declaration]) -> None:
    """An operator that waits for event time must have a watermark on every way into it, or it would wait for ever."""
    marked: dict[str, bool] = {}
    for declared in ordered:
        part = declared.part
        lacking = [given for given in declared.inputs if given.port == ERRORS or not marked[given.operator]]
        if isinstance(part, TimedOperator) and part.needs_watermark and lacking:
            raise FlowError(
                f"{part.kind} {declared.name!r} works by event time, but what it reads from "
                f"{lacking[0].operator!r} has no watermark; add .with_watermark(column, delay) before it"
            )
        marked[declared.name] = isinstance(part, WithWatermark) or (bool(declared.inputs) and not lacking)


@dataclass(frozen=True, slots=True)
class _Way:
    """Rows come from this port, spread by this key: what is left of `key_by` and `union` once they are resolved."""

    origin: Declaration
    port: str
    key: tuple[str, ...]
    input: int = 0


def _ways(ordered: tuple[Declaration, ...]) -> dict[str, tuple[_Way, ...]]:
    """Return for every vertex the ways by which rows reach it, looking through the operators that only route."""
    by_name = {declared.name: declared for declared in ordered}
    ways: dict[str, tuple[_Way, ...]] = {}
    for declared in ordered:
        found: list[_Way] = []
        for number, given in enumerate(declared.inputs):
            origin = by_name[given.operator]
            if isinstance(origin.part, Routing):
                key = origin.part.columns if isinstance(origin.part, KeyBy) else ()
                found += [replace(way, key=key, input=number) for way in ways[origin.name]]
            else:
                found.append(_Way(origin, given.port, (), number))
        ways[declared.name] = tuple(found)
    return ways


def _chains(ordered: tuple[Declaration, ...], ways: Mapping[str, tuple[_Way, ...]], chaining: bool) -> list[list[str]]:
    """Group operators that can run as one, each group in order."""
    readers = Counter(
        way.origin.name
        for declared in ordered
        if not isinstance(declared.part, Routing)
        for way in ways[declared.name]
        if way.port != ERRORS  # dead letters leave a chain on a way of their own
    )
    group_of: dict[str, list[str]] = {}
    for declared in ordered:
        if _runs(declared):
            before = ways[declared.name][0]
            fuses = chaining and len(ways[declared.name]) == 1 and _fuses(before, declared)
            group = group_of[before.origin.name] if fuses and readers[before.origin.name] == 1 else []
            group.append(declared.name)
            group_of[declared.name] = group
    return [group for name, group in group_of.items() if group[0] == name]


def _fuses(before: _Way, declared: Declaration) -> bool:
    """Whether nothing separates an operator from the one before: equal parallelism, no spreading by key."""
    origin = before.origin
    if isinstance(origin.part, Transform) or isinstance(declared.part, Transform):
        return False  # it runs on the driver, and must not take others there
    if not isinstance(origin.part, Operator) or before.port != origin.part.ports[0]:
        return False  # the first port only: inside a chain, nobody reads the others
    spreads_keys = bool(before.key) and declared.parallelism > 1
    return origin.fuse and declared.fuse and origin.parallelism == declared.parallelism and not spreads_keys


def _lay_out(
    name: str,
    ordered: tuple[Declaration, ...],
    schemas: Mapping[str, pa.Schema | None],
    groups: list[list[str]],
    ways: Mapping[str, tuple[_Way, ...]],
) -> Graph:
    """Number the instances and sinks, and draw the routes between chains."""
    by_name = {declared.name: declared for declared in ordered}
    position = {declared.name: index for index, declared in enumerate(ordered)}
    stages = _stages(ordered, groups, ways)
    chains: list[Chain] = []
    number = 0
    for group in sorted(groups, key=lambda names: (stages[names[0]], position[names[0]])):
        parallelism = by_name[group[0]].parallelism
        chains.append(Chain(tuple(group), parallelism, stages[group[0]], number))
        number += parallelism
    sinks = []
    for declared in ordered:
        if is_sink(declared.part):
            sinks.append(SinkQueue(declared.name, stages[declared.name], number))
            number += 1
    return Graph(name, ordered, dict(schemas), tuple(chains), tuple(sinks), _routes(ordered, chains, ways))


def _stages(
    ordered: tuple[Declaration, ...], groups: list[list[str]], ways: Mapping[str, tuple[_Way, ...]]
) -> dict[str, int]:
    """A chain's stage is one more than the highest of those that feed it; sources are stage 0."""
    head_of = {name: group[0] for group in groups for name in group}
    stages: dict[str, int] = {}
    for declared in ordered:
        head = head_of.get(declared.name, declared.name)
        if head == declared.name:
            stages[head] = max((stages[way.origin.name] + 1 for way in ways[head]), default=0)
        stages[declared.name] = stages[head]
    return stages


def _routes(
    ordered: tuple[Declaration, ...], chains: list[Chain], ways: Mapping[str, tuple[_Way, ...]]
) -> tuple[Route, ...]:
    inside = {name for chain in chains for name in chain.operators[1:]}
    routes = []
    for declared in ordered:
        if declared.name not in inside and not isinstance(declared.part, Routing):
            for way in ways[declared.name]:
                spread, key = _spread(way, declared)
                source = 0 if is_sink(declared.part) else way.input
                routes.append(Route(way.origin.name, way.port, declared.name, spread, key, source))
    return tuple(routes)


def _spread(way: _Way, target: Declaration) -> tuple[Spread, tuple[str, ...]]:
    instances = 1 if is_sink(target.part) else target.parallelism
    if instances == 1:
        return Spread.FORWARD, way.key
    if way.key:
        return Spread.KEY, way.key
    one_to_one = isinstance(way.origin.part, Operator) and way.origin.parallelism == instances
    return (Spread.FORWARD if one_to_one else Spread.BALANCE), ()
