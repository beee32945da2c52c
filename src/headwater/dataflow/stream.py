"""The Flow API: what a user writes.

A `Stream` is frozen and knows only where it comes from; every method returns a new one. `flow(name, *sinks)` gathers
everything that leads to the sinks into a `Flow`: a name and a tuple of declarations that refer to one another by name.
Nothing runs, opens or connects while a flow is being built.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, TypedDict, Unpack, get_args

import pyarrow as pa
import pyarrow.compute as pc

from headwater.dataflow.connectors import SinkSpec, SourceSpec, is_sink, is_source
from headwater.model.errors import FlowError
from headwater.model.ids import checked_name
from headwater.model.time import duration_us
from headwater.operators.base import OnError, Operator
from headwater.operators.distinct import Dedup, Distinct, DistinctMethod
from headwater.operators.enriching import Enrich, EnrichKind
from headwater.operators.functions import Form, UserFunction, form_of
from headwater.operators.joins.interval_join import IntervalJoin
from headwater.operators.joins.joining import JoinKind
from headwater.operators.joins.window_join import WindowJoin
from headwater.operators.learning.model_specs import model_spec
from headwater.operators.learning.models import Model, ModelWithUpdates
from headwater.operators.learning.online import Learn
from headwater.operators.processors.processing import Process, ProcessorForm, TimeMode, form_of_processor
from headwater.operators.processors.spark_types import arrow_schema
from headwater.operators.ranking import TopK
from headwater.operators.reducing import Reduce
from headwater.operators.sql import STREAM, DataFrameFunction, Transform, TransformStep
from headwater.operators.stateful import Stateful
from headwater.operators.stateless import Filter, FlatMap, KeyBy, Map, Select, Split, Union
from headwater.operators.tables import TableSpec
from headwater.operators.watermarks import WithWatermark
from headwater.operators.windows.window_specs import Aggregate, CountWindow, SessionWindow, TimeWindow, WindowSpec
from headwater.operators.windows.windows import WindowAggregate, WindowApply, WindowTopK

ERRORS = "errors"

OnErrorName = Literal["stop", "dead-letter"]
FormName = Literal["arrow", "pandas", "rows"]
DurationLike = str | timedelta  # "10 minutes"
Part = Operator | SourceSpec | SinkSpec


class Placing(TypedDict, total=False):
    """What most operators can be given besides their own settings."""

    name: str | None
    parallelism: int
    fuse: bool


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
    def late(self) -> "Stream":
        """The rows that came too late for this window or join: a stream of their own."""
        return self._side("late")

    @property
    def late_right(self) -> "Stream":
        """The rows of a join's second input that came too late."""
        return self._side("late_right")

    def _side(self, port: str) -> "Stream":
        part = self.vertex.part
        if not isinstance(part, Operator) or port not in part.ports:
            raise FlowError(f"{part.kind} has no port {port!r}; windows, joins and dedup have late rows")
        return Stream(self.vertex, port)

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
        """Keep these columns, in this order; `new="old"` keeps one under another name, `"window.start"` a field."""
        chosen = tuple((column.rsplit(".")[-1], column) for column in columns) + tuple(renamed.items())
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

    def with_watermark(
        self,
        event_time: str,
        delay: DurationLike,
        *,
        idle: DurationLike | None = None,
        heartbeat: DurationLike | None = None,
        name: str | None = None,
    ) -> "Stream":
        """Say which column is the event time, and how far behind the latest row others may still come.

        An input without rows for `idle` holds nothing back any more. With `heartbeat`, event time goes on with the
        clock while no rows come, in steps of this length.
        """
        operator = WithWatermark(
            column=event_time,
            delay_us=duration_us(delay),
            idle_us=None if idle is None else _above_zero("idle", idle),
            heartbeat_us=None if heartbeat is None else _above_zero("heartbeat", heartbeat),
        )
        return self._then(operator, name, self.vertex.parallelism, True)

    def window(
        self,
        window: WindowSpec,
        *,
        lateness: DurationLike = "0 seconds",
        early: DurationLike | None = None,
        early_rows: int | None = None,
    ) -> "WindowedStream":
        """Cut the rows into windows; of all rows together, unless they are keyed.

        `lateness`: how long a window that has fired is kept, to fire again for rows that come late. `early`: fire again
        and again before the end, every so often by the clock; `early_rows`: whenever so many new rows have come.
        """
        if not isinstance(window, TimeWindow | SessionWindow | CountWindow):
            raise FlowError(f'window needs a window, such as F.window("ts", "1 minute"), not {window!r}')
        return WindowedStream(
            self,
            window,
            duration_us(lateness),
            None if early is None else _above_zero("early", early),
            None if early_rows is None else _at_least_one("early_rows", early_rows),
        )

    def join(
        self,
        other: "Stream",
        on: str | Sequence[str] | Sequence[tuple[str, str]],
        *,
        window: WindowSpec | None = None,
        between: tuple[DurationLike, DurationLike] | None = None,
        event_time: str | tuple[str, str] | None = None,
        how: JoinKind = "inner",
        suffix: str = "_right",
        **placing: Unpack[Placing],
    ) -> "Stream":
        """Pair the rows of two streams that have equal keys, in the same window or within an interval of each other.

        `on` names the key columns, or pairs of (here, there). With `window=F.window("ts", "1 minute")` rows of the same
        window are paired; with `between=("-5 seconds", "10 seconds")` those whose event time, there, lies between so
        much before and so much after the one here. `how`: inner, left or full; the outer ones need a watermark on both
        streams, and known columns.
        """
        here, there = _join_keys(on)
        if not isinstance(other, Stream):
            raise FlowError(
                f"join needs another stream, not a {type(other).__name__}; use enrich to look up in a table"
            )
        _check_join(window, between, how)
        times = _join_times(window, event_time)
        operator = _join(window, between, here, there, times, how, suffix)
        inputs = (self.key_by(*here), other.key_by(*there))
        return Stream(Vertex(operator, inputs, **placing))

    def enrich(
        self,
        table: TableSpec,
        on: str | Sequence[str] | Sequence[tuple[str, str]],
        *,
        how: EnrichKind = "left",
        columns: Sequence[str] | None = None,
        suffix: str = "_right",
        **placing: Unpack[Placing],
    ) -> "Stream":
        """Add the columns of a table, such as `hw.table("cities.csv", refresh="1 minute")`, by equal keys."""
        here, there = _join_keys(on)
        if not hasattr(table, "load"):
            raise FlowError(f"enrich needs a table, such as hw.table(...), not a {type(table).__name__}")
        chosen = None if columns is None else tuple(columns)
        operator = Enrich(table=table, left_on=here, right_on=there, how=how, columns=chosen, suffix=suffix)
        return Stream(Vertex(operator, (self,), **placing))

    def dedup(
        self,
        *columns: str,
        event_time: str | None = None,
        within: DurationLike | None = None,
        **placing: Unpack[Placing],
    ) -> "Stream":
        """Let the first row of every id pass and drop the others, for ever or until event time is so far behind it."""
        if not columns:
            raise FlowError("dedup needs the columns that make an id")
        if (event_time is None) != (within is None):
            raise FlowError("dedup needs event_time and within together: the column, and how long an id is remembered")
        limit = None if within is None else _above_zero("within", within)
        operator = Dedup(key_columns=columns, time=event_time, within_us=limit)
        return Stream(Vertex(operator, (self.key_by(*columns),), **placing))

    def distinct(
        self,
        *columns: str,
        event_time: str | None = None,
        within: DurationLike | None = None,
        method: DistinctMethod = "exact",
        capacity: int = 1_000_000,
        error: float = 0.01,
        **placing: Unpack[Placing],
    ) -> "Stream":
        """Return each combination of values of these columns once, exactly or by a bloom filter of fixed size."""
        if not columns:
            raise FlowError("distinct needs the columns whose values are wanted")
        if (event_time is None) != (within is None):
            raise FlowError("distinct needs event_time and within together: the column, and the horizon")
        limit = None if within is None else _above_zero("within", within)
        operator = Distinct(
            columns=columns, time=event_time, within_us=limit, method=method, capacity=capacity, error=error
        )
        return Stream(Vertex(operator, (self.key_by(*columns),), **placing))

    def model(
        self,
        model: Any,
        features: Sequence[str],
        *,
        output: str = "prediction",
        proba: bool = False,
        updates: "Stream | None" = None,
        decode: Callable[[bytes], Any] | None = None,
        version_column: str | None = None,
        output_type: pa.DataType | None = None,
        on_error: OnErrorName = "stop",
        **placing: Unpack[Placing],
    ) -> "Stream":
        """Add what a model predicts to every row: of scikit-learn, of river, ONNX as bytes, or `hw.model_file(path)`.

        A model file is looked at again while the flow runs; rows of `updates` replace the model by the bytes in their
        column `model`: ONNX, or whatever `decode` makes a model of.
        """
        settings: dict[str, Any] = {
            "model": model_spec(model),
            "features": tuple(features),
            "output": output,
            "proba": proba,
            "version_column": version_column,
            "output_type": output_type,
            "on_error": _on_error(on_error),
        }
        if updates is not None:
            return Stream(Vertex(ModelWithUpdates(decode=decode, **settings), (self, updates), **placing))
        if decode is not None:
            raise FlowError("decode= is for the models that updates bring; give updates= too, or leave it away")
        return Stream(Vertex(Model(**settings), (self,), **placing))

    def transform(
        self,
        function: DataFrameFunction,
        *,
        schema: pa.Schema | None = None,
        name: str | None = None,
        on_error: OnErrorName = "stop",
        **tables: TableSpec,
    ) -> "Stream":
        """Let Spark SQL work on the waiting rows: `function(df)` takes and returns a PySpark DataFrame.

        Tables given by name reach the function as further DataFrames. Several transforms in a row make one plan.
        """
        if not callable(function):
            raise FlowError(f"transform needs a function from DataFrame to DataFrame, not a {type(function).__name__}")
        return self._transform(TransformStep(function=function, tables=tuple(tables.items())), schema, name, on_error)

    def sql(
        self,
        query: str,
        *,
        schema: pa.Schema | None = None,
        name: str | None = None,
        on_error: OnErrorName = "stop",
        **tables: TableSpec,
    ) -> "Stream":
        """Let Spark SQL work on the waiting rows, which the query calls `stream`; tables have the names given here."""
        if not str(query).strip():
            raise FlowError('sql needs a query, such as "SELECT * FROM stream WHERE value > 3"')
        if STREAM in tables:
            raise FlowError(f"{STREAM!r} is what a query calls the rows; give the table another name")
        return self._transform(TransformStep(query=query, tables=tuple(tables.items())), schema, name, on_error)

    def _transform(
        self, step: TransformStep, schema: pa.Schema | None, name: str | None, on_error: OnErrorName
    ) -> "Stream":
        """Add a step to the transform before, if this is one, so that Spark sees one plan."""
        before = self.vertex.part
        lenient = _on_error(on_error)
        if isinstance(before, Transform) and self.port == "out" and before.on_error is lenient:
            operator = Transform(steps=(*before.steps, step), schema=schema, on_error=lenient)
            names = [given for given in (self.vertex.name, name) if given is not None]
            return Stream(Vertex(operator, self.vertex.inputs, "-".join(names) or None))
        return Stream(Vertex(Transform(steps=(step,), schema=schema, on_error=lenient), (self,), name))

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

    def reduce(self, function: UserFunction, *, on_error: OnErrorName = "stop", **placing: Unpack[Placing]) -> Stream:
        """Fold the rows of each key with `function(so_far, row) -> row` and send on what it has come to, row by row."""
        _form(function, "rows")
        operator = Reduce(key_columns=self.key, function=function, on_error=_on_error(on_error))
        return Stream(Vertex(operator, (self,), **placing))

    def top_k(self, k: int, by: str, *, largest: bool = True, **placing: Unpack[Placing]) -> Stream:
        """Return the k largest (or smallest) rows of each key, with their rank, whenever that changes."""
        operator = TopK(key_columns=self.key, k=_at_least_one("k", k), by=by, largest=largest)
        return Stream(Vertex(operator, (self,), **placing))

    def process(
        self,
        processor: Any,
        output_schema: Any,
        *,
        time_mode: str = "none",
        event_time: str | None = None,
        initial_state: pa.Table | None = None,
        form: ProcessorForm | None = None,
        on_error: OnErrorName = "stop",
        **placing: Unpack[Placing],
    ) -> Stream:
        """Run a PySpark `StatefulProcessor`, as `transformWithStateInPandas` and `transformWithState` do.

        `output_schema` is a `StructType`, a text such as "id string, total double", or an Arrow schema. `time_mode`:
        none, ProcessingTime or EventTime.
        """
        if not callable(getattr(processor, "handleInputRows", None)):
            raise FlowError(f"process needs a StatefulProcessor, not a {type(processor).__name__}")
        operator = Process(
            key_columns=self.key,
            processor=processor,
            schema=arrow_schema(output_schema),
            form=form if form is not None else form_of_processor(processor),
            time_mode=_time_mode(time_mode),
            event_time=event_time,
            initial_state=initial_state,
            on_error=_on_error(on_error),
        )
        return Stream(Vertex(operator, (self,), **placing))

    def learn(
        self,
        model: Any,
        features: Sequence[str],
        *,
        target: str | None = None,
        output: str = "prediction",
        predict_first: bool = True,
        metric: Any = None,
        on_error: OnErrorName = "stop",
        **placing: Unpack[Placing],
    ) -> Stream:
        """Train a river model per key as the rows come, and add its prediction to each of them.

        `predict_first` asks the model about a row before it learns from it. With a river metric, its value so far is
        written to the column `metric`.
        """
        operator = Learn(
            key_columns=self.key,
            model=model,
            features=tuple(features),
            target=target,
            output=output,
            predict_first=predict_first,
            metric=metric,
            on_error=_on_error(on_error),
        )
        return Stream(Vertex(operator, (self,), **placing))


@dataclass(frozen=True, slots=True, eq=False)
class WindowedStream:
    """Rows cut into windows; what is computed over a window makes a stream of it again."""

    rows: Stream
    window: WindowSpec
    lateness_us: int
    early_us: int | None
    early_rows: int | None

    def agg(self, *aggregates: Aggregate, on_error: OnErrorName = "stop", **placing: Unpack[Placing]) -> Stream:
        """Compute aggregates, such as `F.count()` or `F.avg("value").alias("mean")`, as the rows come."""
        if not aggregates or not all(isinstance(one, Aggregate) for one in aggregates):
            raise FlowError('agg needs aggregates, such as F.count() or F.avg("value")')
        names = [one.name for one in aggregates]
        taken = {*self._key, "window"} & set(names)
        if taken or len(set(names)) != len(names):
            twice = next(iter(taken), None) or next(one for one in names if names.count(one) > 1)
            raise FlowError(f"agg makes two columns named {twice!r}; give one of them another name with .alias(...)")
        return self._then(WindowAggregate(aggregates=aggregates, on_error=_on_error(on_error), **self._how), placing)

    def apply(
        self,
        function: UserFunction,
        *,
        schema: pa.Schema | None = None,
        form: FormName | None = None,
        on_error: OnErrorName = "stop",
        **placing: Unpack[Placing],
    ) -> Stream:
        """Call the function with all rows of a window and key together, when the window fires."""
        operator = WindowApply(
            function=function,
            form=_form(function, form),
            schema=schema,
            on_error=_on_error(on_error),
            **self._how,
        )
        return self._then(operator, placing)

    def top_k(self, k: int, by: str, *, largest: bool = True, **placing: Unpack[Placing]) -> Stream:
        """Return the k largest (or smallest) rows of each window and key, with their rank."""
        return self._then(WindowTopK(k=_at_least_one("k", k), by=by, largest=largest, **self._how), placing)

    @property
    def _key(self) -> tuple[str, ...]:
        return self.rows.key if isinstance(self.rows, KeyedStream) else ()

    @property
    def _how(self) -> dict[str, Any]:
        return {
            "key_columns": self._key,
            "window": self.window,
            "lateness_us": self.lateness_us,
            "early_us": self.early_us,
            "early_rows": self.early_rows,
        }

    def _then(self, operator: Operator, placing: Placing) -> Stream:
        if not self._key and placing.get("parallelism", 1) > 1:
            raise FlowError("windows of all rows together run on one instance; key the stream to use several")
        return Stream(Vertex(operator, (self.rows,), **placing))


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


def _time_mode(given: str) -> TimeMode:
    for known in get_args(TimeMode):
        if given.lower() == known:
            return known  # type: ignore[no-any-return]
    raise FlowError(f"time_mode={given!r} is unknown; use none, ProcessingTime or EventTime")


def _above_zero(what: str, given: DurationLike) -> int:
    length_us = duration_us(given)
    if length_us <= 0:
        raise FlowError(f"{what}={given!r} must be longer than nothing")
    return length_us


def _at_least_one(what: str, given: Any) -> int:
    if not isinstance(given, int) or given < 1:
        raise FlowError(f"{what}={given!r} must be a whole number of at least 1")
    return given


def _join_keys(on: str | Sequence[str] | Sequence[tuple[str, str]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    listed: Sequence[str | tuple[str, str]] = [on] if isinstance(on, str) else on
    if not listed:
        raise FlowError("a join needs at least one key column")
    pairs = [(one, one) if isinstance(one, str) else tuple(one) for one in listed]
    if any(len(pair) != 2 for pair in pairs):
        raise FlowError(f"on={on!r} must be names of columns, or pairs of names (here, there)")
    return tuple(here for here, _ in pairs), tuple(there for _, there in pairs)


def _join_times(window: WindowSpec | None, event_time: str | tuple[str, str] | None) -> tuple[str, str]:
    if event_time is None and isinstance(window, TimeWindow) and window.time is not None:
        event_time = window.time
    if event_time is None:
        raise FlowError("a join needs event_time, the column of event time, or a pair of columns (here, there)")
    return (event_time, event_time) if isinstance(event_time, str) else event_time


def _check_join(window: WindowSpec | None, between: tuple[DurationLike, DurationLike] | None, how: JoinKind) -> None:
    if how not in ("inner", "left", "full"):
        raise FlowError(f"how={how!r} is unknown; a join is inner, left or full")
    if (window is None) == (between is None):
        raise FlowError("a join needs either window=F.window(...) or between=(lower, upper)")
    if window is not None and (not isinstance(window, TimeWindow) or window.time is None):
        raise FlowError("a join takes tumbling or sliding windows of event time")


def _join(
    window: WindowSpec | None,
    between: tuple[DurationLike, DurationLike] | None,
    here: tuple[str, ...],
    there: tuple[str, ...],
    times: tuple[str, str],
    how: JoinKind,
    suffix: str,
) -> Operator:
    sides: dict[str, Any] = {
        "left_key": here,
        "right_key": there,
        "left_time": times[0],
        "right_time": times[1],
        "how": how,
        "suffix": suffix,
    }
    if between is not None:
        if len(tuple(between)) != 2:
            raise FlowError(f'between={between!r} must be two durations, such as ("-5 seconds", "10 seconds")')
        lower, upper = (_signed_us(one) for one in between)
        if lower > upper:
            raise FlowError(f"between={between!r} is empty: the first must not be above the second")
        return IntervalJoin(lower_us=lower, upper_us=upper, **sides)
    assert isinstance(window, TimeWindow)
    return WindowJoin(window=window, **sides)


def _signed_us(given: DurationLike) -> int:
    if isinstance(given, str) and given.strip().startswith("-"):
        return -duration_us(given.strip()[1:])
    return duration_us(given)


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
