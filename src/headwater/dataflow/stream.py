"""The Flow API: what a user writes.

A `Stream` is frozen and knows only where it comes from; every method returns a new one. `flow(name, *sinks)` gathers
everything that leads to the sinks into a `Flow`: a name and a tuple of declarations that refer to one another by name.
Nothing runs, opens or connects while a flow is being built.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from headwater.dataflow.connectors import SinkSpec, SourceSpec, is_sink, is_source
from headwater.model.errors import FlowError
from headwater.model.ids import checked_name
from headwater.operators.base import OnError, Operator
from headwater.operators.functions import Form, UserFunction, form_of
from headwater.operators.stateful import Stateful
from headwater.operators.stateless import Filter, FlatMap, KeyBy, Map, Select, Split, Union

ERRORS = "errors"

OnErrorName = Literal["stop", "dead-letter"]
FormName = Literal["arrow", "pandas", "rows"]
Part = Operator | SourceSpec | SinkSpec


@dataclass(frozen=True, slots=True)
class Input:
    """Where rows come from: an operator and one of its ports."""

    operator: str
    port: str = "out"


@dataclass(frozen=True, slots=True)
class Declaration:
    """One vertex of a flow: a source, an operator or a sink, under its name, with its inputs by name."""

    name: str
    part: Part
    inputs: tuple[Input, ...] = ()
    parallelism: int = 1
    fuse: bool = True


@dataclass(frozen=True, slots=True)
class Flow:
    """A stream application as the user wants it. Frozen data: building it has run nothing."""

    name: str
    declarations: tuple[Declaration, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Vertex:
    """A declaration before it has its final name."""

    part: Part
    inputs: tuple["Stream", ...] = ()
    name: str | None = None
    parallelism: int = 1
    fuse: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """Rows on their way: the output of a source or an operator."""

    vertex: Vertex
    port: str = "out"

    @property
    def errors(self) -> "Stream":
        """The dead letters of this operator, which needs `on_error="dead-letter"`: a stream of their own."""
        return Stream(self.vertex, ERRORS)

    def map(
        self,
        function: UserFunction,
        *,
        name: str | None = None,
        schema: pa.Schema | None = None,
        form: FormName | None = None,
        parallelism: int = 1,
        on_error: OnErrorName = "stop",
        fuse: bool = True,
    ) -> "Stream":
        """One row out for each row in. The function sees a batch, a DataFrame or a row, as its annotation says."""
        operator = Map(function=function, form=_form(function, form), schema=schema, on_error=_on_error(on_error))
        return self._then(operator, name, parallelism, fuse)

    def flat_map(
        self,
        function: UserFunction,
        *,
        name: str | None = None,
        schema: pa.Schema | None = None,
        form: FormName | None = None,
        parallelism: int = 1,
        on_error: OnErrorName = "stop",
        fuse: bool = True,
    ) -> "Stream":
        """Any number of rows out for each row in."""
        operator = FlatMap(function=function, form=_form(function, form), schema=schema, on_error=_on_error(on_error))
        return self._then(operator, name, parallelism, fuse)

    def filter(
        self,
        predicate: UserFunction | pc.Expression,
        *,
        name: str | None = None,
        form: FormName | None = None,
        parallelism: int = 1,
        on_error: OnErrorName = "stop",
        fuse: bool = True,
    ) -> "Stream":
        """Keep the rows for which the predicate is true: a function, or an expression such as `col("x") > 3`."""
        given = Form.ARROW if isinstance(predicate, pc.Expression) else _form(predicate, form)
        operator = Filter(predicate=predicate, form=given, on_error=_on_error(on_error))
        return self._then(operator, name, parallelism, fuse)

    def select(self, *columns: str, name: str | None = None, fuse: bool = True, **renamed: str) -> "Stream":
        """Keep these columns, in this order; `new="old"` keeps one under another name."""
        chosen = tuple((column, column) for column in columns) + tuple(renamed.items())
        if not chosen:
            raise FlowError("select needs at least one column")
        names = [new for new, _ in chosen]
        if len(set(names)) != len(names):
            twice = next(one for one in names if names.count(one) > 1)
            raise FlowError(f"select makes two columns named {twice!r}; give one of them another name")
        return self._then(Select(columns=chosen), name, self.vertex.parallelism, fuse)

    def union(self, *others: "Stream", name: str | None = None) -> "Stream":
        """Join other streams to this one, in order of arrival."""
        if not others:
            raise FlowError("union needs at least one other stream")
        return Stream(Vertex(Union(), (self, *others), name))

    def split(
        self,
        function: UserFunction,
        *,
        into: Sequence[str] = ("yes", "no"),
        name: str | None = None,
        form: FormName | None = None,
        parallelism: int = 1,
        on_error: OnErrorName = "stop",
    ) -> tuple["Stream", ...]:
        """Send each row to one branch: the function answers a boolean (first or second branch) or a branch's name."""
        if len(set(into)) != len(into) or len(into) < 2 or ERRORS in into:
            raise FlowError(f"split needs at least two different branch names other than {ERRORS!r}, not {tuple(into)}")
        operator = Split(
            function=function, form=_form(function, form), branches=tuple(into), on_error=_on_error(on_error)
        )
        vertex = Vertex(operator, (self,), name, parallelism)
        return tuple(Stream(vertex, branch) for branch in into)

    def key_by(self, *columns: str, name: str | None = None) -> "KeyedStream":
        """Send rows with equal values in these columns to the same instance of the next operator, in order."""
        if not columns:
            raise FlowError("key_by needs at least one column")
        return KeyedStream(Vertex(KeyBy(columns=columns), (self,), name, self.vertex.parallelism), "out", columns)

    def sink(self, sink: SinkSpec, *, name: str | None = None) -> "Sink":
        """Let the rows leave the flow here."""
        if not is_sink(sink):
            raise FlowError(f"a {type(sink).__name__} is not a sink; use one of headwater.to, such as to.csv(path)")
        return Sink(Vertex(sink, (self,), name))

    def _then(self, operator: Operator, name: str | None, parallelism: int, fuse: bool) -> "Stream":
        return Stream(Vertex(operator, (self,), name, parallelism, fuse))


@dataclass(frozen=True, slots=True, eq=False)
class KeyedStream(Stream):
    """Rows spread by key: the next operator may keep state per key."""

    key: tuple[str, ...] = field(default=())

    def stateful(
        self,
        function: UserFunction,
        *,
        name: str | None = None,
        schema: pa.Schema | None = None,
        form: FormName | None = None,
        parallelism: int = 1,
        on_error: OnErrorName = "stop",
        fuse: bool = True,
    ) -> Stream:
        """Call `function(batch, state)` on batches of many keys; `state` holds the value of every key in the batch.

        A row function is called as `function(row, value)` and returns the rows to send on and the key's new value.
        """
        operator = Stateful(
            function=function,
            form=_form(function, form),
            schema=schema,
            key_columns=self.key,
            on_error=_on_error(on_error),
        )
        return self._then(operator, name, parallelism, fuse)


@dataclass(frozen=True, slots=True, eq=False)
class Sink:
    """The end of a stream."""

    vertex: Vertex


def source(spec: SourceSpec, *, name: str | None = None) -> Stream:
    """Start a stream with the rows of a source."""
    if not is_source(spec):
        raise FlowError(f"a {type(spec).__name__} is not a source; use one of headwater.read, such as read.csv(path)")
    return Stream(Vertex(spec, (), name))


def flow(name: str, *sinks: Sink) -> Flow:
    """Gather everything that leads to the sinks into a flow."""
    checked_name("flow", name)
    for sink in sinks:
        if not isinstance(sink, Sink):
            raise FlowError(f"flow {name!r} was given a {type(sink).__name__}; end every stream with .sink(...)")
    if not sinks:
        raise FlowError(f"flow {name!r} has no sink; end at least one stream with .sink(...)")
    return Flow(name, _declare(_in_order(sinks)))


def _in_order(sinks: Sequence[Sink]) -> list[Vertex]:
    """Return all vertices that lead to the sinks, inputs before those that read them."""
    ordered: list[Vertex] = []
    seen: set[int] = set()
    pending: list[tuple[Vertex, bool]] = [(sink.vertex, False) for sink in reversed(sinks)]
    while pending:
        vertex, inputs_done = pending.pop()
        if inputs_done:
            ordered.append(vertex)
        elif id(vertex) not in seen:
            seen.add(id(vertex))
            pending.append((vertex, True))
            pending.extend((stream.vertex, False) for stream in reversed(vertex.inputs))
    return ordered


def _declare(vertices: Sequence[Vertex]) -> tuple[Declaration, ...]:
    """Name every vertex: as the user said, else by its kind and, from the second on, a number."""
    taken = {vertex.name for vertex in vertices if vertex.name is not None}
    names: dict[int, str] = {}
    declared: list[Declaration] = []
    for vertex in vertices:
        name = vertex.name if vertex.name is not None else _free_name(vertex.part.kind, taken)
        taken.add(name)
        names[id(vertex)] = name
        inputs = tuple(Input(names[id(stream.vertex)], stream.port) for stream in vertex.inputs)
        declared.append(Declaration(name, vertex.part, inputs, vertex.parallelism, vertex.fuse))
    return tuple(declared)


def _free_name(kind: str, taken: set[str]) -> str:
    if kind not in taken:
        return kind
    number = 2
    while f"{kind}-{number}" in taken:
        number += 1
    return f"{kind}-{number}"


def _form(function: UserFunction, given: FormName | None) -> Form:
    if not callable(function):
        raise FlowError(f"an operator needs a function, not a {type(function).__name__}")
    if given is None:
        return form_of(function)
    if given not in tuple(Form):
        raise FlowError(f"form={given!r} is unknown; a function takes 'arrow' batches, 'pandas' DataFrames or 'rows'")
    return Form(given)


def _on_error(given: OnErrorName) -> OnError:
    if given not in tuple(OnError):
        raise FlowError(f"on_error={given!r} is unknown; use 'stop' or 'dead-letter'")
    return OnError(given)
