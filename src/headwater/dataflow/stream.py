"""The Flow API: what a user writes.

A `Stream` is frozen and knows only where it comes from; every method returns a new one. `flow(name, *sinks)` gathers
everything that leads to the sinks into a `Flow`: a name and a tuple of declarations that refer to one another by name.
Nothing runs, opens or connects while a flow is being built.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal, NoReturn, TypedDict, Unpack, get_args
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

import pyarrow as pa
import pyarrow.compute as pc

from headwater.dataflow import near_names
from headwater.dataflow.arguments import (
    checked_aggregates,
    column_name,
    column_names,
    expression,
    named_expressions,
    no_class,
    schema_of,
)
from headwater.dataflow.calling import answered, answering
from headwater.dataflow.connectors import SinkSpec, SourceSpec, is_sink, is_source
from headwater.model.errors import FlowError
from headwater.model.ids import checked_name
from headwater.model.quoting import quoted
from headwater.model.suggestions import did_you_mean
from headwater.model.time import duration_us
from headwater.operators.base import OnError, Operator
from headwater.operators.distinct import Dedup, Distinct, DistinctMethod
from headwater.operators.enriching import Enrich, EnrichKind
from headwater.operators.expressions.trees import Column, Reference
from headwater.operators.functions import Form, UserFunction, form_of, is_annotated
from headwater.operators.joins.interval_join import IntervalJoin
from headwater.operators.joins.joining import JoinKind
from headwater.operators.joins.window_join import WindowJoin
from headwater.operators.learning.model_specs import model_spec
from headwater.operators.learning.models import Model, ModelWithUpdates
from headwater.operators.learning.online import Learn
from headwater.operators.limiting import Limit
from headwater.operators.processors.processing import Process, ProcessorForm, TimeMode, form_of_processor
from headwater.operators.processors.spark_types import arrow_schema
from headwater.operators.projections import Drop, Project, Rename, WithColumns
from headwater.operators.ranking import TopK
from headwater.operators.reducing import Reduce
from headwater.operators.sql import STREAM, DataFrameFunction, Transform, TransformStep
from headwater.operators.stateful import Stateful
from headwater.operators.stateless import Filter, FlatMap, KeyBy, Map, Select, Split, Union
from headwater.operators.tables import TableSpec
from headwater.operators.unannotated import takes_rows
from headwater.operators.users_lines import NO_LINE, line_written
from headwater.operators.watermarks import WithWatermark
from headwater.operators.windows.window_specs import Aggregate, CountWindow, SessionWindow, TimeWindow, WindowSpec
from headwater.operators.windows.windows import WindowAggregate, WindowApply, WindowTopK

ERRORS = "errors"
STEPS_SHOWN: Final = 8  # of the way in one line

OnErrorName = Literal["stop", "dead-letter"]
FormName = Literal["arrow", "pandas", "rows"]
DurationLike = str | timedelta  # "10 minutes"
ColumnLike = str | Column
SchemaLike = Any  # an Arrow schema, a line of DDL, such as "id string, total double", or PySpark's StructType
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
    line: str = field(default=NO_LINE, compare=False, repr=False)  # where it is written


@dataclass(frozen=True, slots=True, repr=False)
class Flow:
    """A stream application as the user wants it. Frozen data: building it has run nothing."""

    name: str
    declarations: tuple[Declaration, ...]

    def __repr__(self) -> str:
        """Return one line: what the flow is called, and its way from sources to sinks."""
        return (
            f"<Flow {self.name!r}: {', '.join(_way_to(self, one) for one in self.declarations if is_sink(one.part))}>"
        )

    def _repr_svg_(self) -> str:
        """Return the picture of the flow, for notebooks."""
        from headwater.dataflow.compile import compile_flow  # which works on what is defined here
        from headwater.dataflow.drawing.picture import draw

        return draw(compile_flow(self))

    def _repr_html_(self) -> str:
        """Return the picture as an image of its own: what styles it must not style the notebook."""
        return f'<img alt={quoteattr(repr(self))} src="data:image/svg+xml,{quote(self._repr_svg_())}"/>'

    def __getattr__(self, name: str) -> NoReturn:
        """Say what to write instead of a name that flows do not have."""
        near_names.refuse("a flow", name, near_names.FLOW, ("name",))


@dataclass(frozen=True, slots=True, eq=False)
class Vertex:
    """A declaration before it has its final name."""

    part: Part
    inputs: tuple["Stream", ...] = ()
    name: str | None = None
    parallelism: int = 1
    fuse: bool = True
    line: str = field(default_factory=line_written)


@answering
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Stream:
    """Rows on their way: the output of a source or an operator."""

    vertex: Vertex
    port: str = "out"

    def __repr__(self) -> str:
        """Return one line: the way of the rows up to here."""
        return f"<{type(self).__name__}: {_way(self)}>"

    def _repr_html_(self) -> str:
        """Return the way of the rows up to here, for notebooks."""
        return f"<code>{escape(repr(self))}</code>"

    def __getattr__(self, name: str) -> NoReturn:
        """Say what to write instead of a name that streams do not have."""
        near_names.refuse("a stream", name, near_names.STREAM, _public(self))

    def __getitem__(self, part: Any) -> NoReturn:
        """Say what to write instead of a DataFrame's brackets."""
        if isinstance(part, Column):
            raise FlowError('a stream has no [...]; write filter(hw.col("v") > 0)')
        if isinstance(part, list):
            raise FlowError('a stream has no [...]; write select("a", "b")')
        raise FlowError(
            f"a stream has no [...]; write hw.col({part!r}) for a column, inside filter, select, with_column"
        )

    def __iter__(self) -> NoReturn:
        """Refuse to be gone through: there are no rows yet."""
        raise FlowError(
            "a stream has no rows while the flow is written; end it with .sink(out), out = hw.to.memory(), call "
            'hw.run(hw.flow("name", ...)), then go through out.rows()'
        )

    def __setitem__(self, part: Any, value: Any) -> NoReturn:
        """Say what to write instead of a DataFrame's brackets."""
        raise FlowError(f"a stream has no [...]; write with_column({part!r}, ...), which returns a new stream")

    def __add__(self, other: Any) -> NoReturn:
        """Say what to write instead of adding streams."""
        raise FlowError("streams cannot be added; write union(other) for the rows of both")

    def __bool__(self) -> bool:
        """A stream is there, whatever its rows may be."""
        return True

    def __len__(self) -> NoReturn:
        """Refuse to be counted."""
        raise FlowError(f"a stream has no length; count its rows with {near_names.STREAM['count']}")

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
        schema: SchemaLike = None,
        form: FormName | None = None,
        parallelism: int = 1,
        on_error: OnErrorName = "stop",
        fuse: bool = True,
    ) -> "Stream":
        """One row out for each row in. The function sees a batch, a DataFrame or a row, as its annotation says."""
        operator = Map(
            function=function,
            form=_row_form("map", function, form),
            schema=schema_of(schema),
            on_error=_on_error(on_error),
        )
        return self._then(operator, name, parallelism, fuse)

    def flat_map(
        self,
        function: UserFunction,
        *,
        name: str | None = None,
        schema: SchemaLike = None,
        form: FormName | None = None,
        parallelism: int = 1,
        on_error: OnErrorName = "stop",
        fuse: bool = True,
    ) -> "Stream":
        """Any number of rows out for each row in."""
        operator = FlatMap(
            function=function,
            form=_row_form("flat_map", function, form),
            schema=schema_of(schema),
            on_error=_on_error(on_error),
        )
        return self._then(operator, name, parallelism, fuse)

    def filter(
        self,
        predicate: UserFunction | Column | pc.Expression | str,
        *,
        name: str | None = None,
        form: FormName | None = None,
        parallelism: int = 1,
        on_error: OnErrorName = "stop",
        fuse: bool = True,
    ) -> "Stream":
        """Keep the rows for which the predicate is true: `col("x") > 3`, its text in SQL `"x > 3"`, or a function."""
        if predicate is True or predicate is False:
            raise FlowError(
                f"filter takes a condition on columns, not {predicate}; write hw.col(...), as in "
                'filter(hw.col("v") > 0), or .is_null() where you wrote "is None"'
            )
        if isinstance(predicate, str | Column):
            predicate = expression("filter", predicate)
        is_expression = isinstance(predicate, Column | pc.Expression)
        given = Form.ARROW if is_expression else _row_form("filter", predicate, form)
        operator = Filter(predicate=predicate, form=given, on_error=_on_error(on_error))
        return self._then(operator, name, parallelism, fuse)

    def where(self, predicate: UserFunction | Column | str, **settings: Any) -> "Stream":
        """Keep the rows for which the predicate is true: `filter` under the name that SQL has for it."""
        return self.filter(predicate, **settings)

    def select(
        self,
        *columns: ColumnLike | Sequence[ColumnLike],
        name: str | None = None,
        on_error: OnErrorName = "stop",
        fuse: bool = True,
        **renamed: ColumnLike,
    ) -> "Stream":
        """Make rows of these columns, in this order: names, or expressions such as `(hw.col("v") * 2).alias("twice")`.

        `new="old"` keeps a column under another name, `new=hw.col("v") * 2` computes one; `"window.start"` is a field.
        """
        chosen = named_expressions("select", columns, renamed)
        if not chosen:
            raise FlowError("select needs at least one column")
        names = [new for new, _ in chosen]
        if len(set(names)) != len(names):
            twice = next(one for one in names if names.count(one) > 1)
            raise FlowError(f"select makes two columns named {twice!r}; give one of them another name with .alias(...)")
        plain = tuple((new, one.node.name) for new, one in chosen if isinstance(one.node, Reference))
        operator = (
            Select(columns=plain, on_error=_on_error(on_error))
            if len(plain) == len(chosen)
            else Project(columns=chosen, on_error=_on_error(on_error))
        )
        return self._then(operator, name, self.vertex.parallelism, fuse)

    def with_column(self, column: str, value: Any, **settings: Any) -> "Stream":
        """Add a column, or replace it: `with_column("fahrenheit", hw.col("celsius") * 1.8 + 32)`."""
        if not isinstance(column, str):
            raise FlowError(
                f'with_column takes the name of the new column first, as in with_column("twice", hw.col("v") * 2), '
                f"not {quoted(column)}"
            )
        return self._with_columns("with_column", {column: value}, **settings)

    def with_columns(
        self,
        columns: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        on_error: OnErrorName = "stop",
        fuse: bool = True,
        **more: Any,
    ) -> "Stream":
        """Add columns, or replace them, all computed from the columns before: `with_columns(twice=hw.col("v") * 2)`."""
        if columns is not None and not isinstance(columns, Mapping):
            raise FlowError('with_columns takes a dict, or names: with_columns(twice=hw.col("v") * 2)')
        return self._with_columns("with_columns", {**(columns or {}), **more}, name, on_error, fuse)

    def _with_columns(
        self,
        where: str,
        columns: Mapping[str, Any],
        name: str | None = None,
        on_error: OnErrorName = "stop",
        fuse: bool = True,
    ) -> "Stream":
        made = tuple((new, expression(where, value)) for new, value in columns.items())
        if not made:
            raise FlowError(f"{where} needs at least one column")
        operator = WithColumns(columns=made, on_error=_on_error(on_error))
        return self._then(operator, name, self.vertex.parallelism, fuse)

    def drop(self, *columns: ColumnLike | Sequence[ColumnLike], name: str | None = None, fuse: bool = True) -> "Stream":
        """Leave columns out."""
        operator = Drop(columns=column_names("drop", columns))
        return self._then(operator, name, self.vertex.parallelism, fuse)

    def rename(
        self, names: Mapping[str, str] | None = None, *, name: str | None = None, fuse: bool = True, **more: str
    ) -> "Stream":
        """Give columns other names: `rename({"before": "after"})`; all others stay as they are."""
        if names is not None and not isinstance(names, Mapping):
            raise FlowError(f'rename takes a dict, as in rename({{"before": "after"}}), not {quoted(names)}')
        pairs = {**(names or {}), **more}
        given: list[Any] = [one for pair in pairs.items() for one in pair]
        if not given or not all(isinstance(one, str) and one for one in given):
            raise FlowError('rename takes names of columns, before and after: rename({"before": "after"})')
        operator = Rename(names=tuple(pairs.items()))
        return self._then(operator, name, self.vertex.parallelism, fuse)

    def limit(self, rows: int, *, name: str | None = None) -> "Stream":
        """Let the first rows pass, and drop all that come after them."""
        return Stream(Vertex(Limit(rows=_at_least_one("limit", rows)), (self,), name))

    def union(self, *others: "Stream", name: str | None = None) -> "Stream":
        """Join other streams to this one, in order of arrival. All have the same columns, of the same types."""
        listed = _streams("union", others)
        return Stream(Vertex(Union(), (self, *listed), name))

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
        if isinstance(into, str):
            raise FlowError(f'split needs the names of two or more branches, as in into=["{into}", "others"]')
        if isinstance(function, Column | str):
            raise FlowError(
                'split takes a function; for an expression write filter(hw.col("v") > 0), and filter(~(...))'
            )
        if len(set(into)) != len(into) or len(into) < 2 or ERRORS in into:
            raise FlowError(f"split needs at least two different branch names other than {ERRORS!r}, not {tuple(into)}")
        operator = Split(
            function=function,
            form=_row_form("split", function, form),
            branches=tuple(into),
            on_error=_on_error(on_error),
        )
        vertex = Vertex(operator, (self,), name, parallelism)
        return tuple(Stream(vertex, branch) for branch in into)

    def with_watermark(
        self,
        event_time: ColumnLike,
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
            column=column_name("with_watermark", event_time),
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
            raise FlowError(
                f'window needs a window, such as F.window("ts", "1 minute"), not {quoted(no_class("window", window))}'
            )
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
        if hasattr(other, "load"):
            raise FlowError("join needs another stream, and this is a table; write enrich(table, on=...)")
        _must_be_stream("join", other)
        _check_join(window, between, how)
        times = _join_times(window, event_time)
        operator = _join(window, between, here, there, times, how, suffix)
        inputs = (self.key_by(*here), other.key_by(*there))
        return _placed(operator, inputs, placing)

    def enrich(
        self,
        table: TableSpec,
        on: str | Sequence[str] | Sequence[tuple[str, str]],
        *,
        how: EnrichKind = "left",
        columns: str | Sequence[str] | None = None,
        suffix: str = "_right",
        **placing: Unpack[Placing],
    ) -> "Stream":
        """Add the columns of a table, such as `hw.table("cities.csv", refresh="1 minute")`, by equal keys."""
        here, there = _join_keys(on)
        if not hasattr(table, "load"):
            raise FlowError(f"enrich needs a table, such as hw.table(...), not a {type(table).__name__}")
        chosen = None if columns is None else column_names("enrich", (columns,))
        operator = Enrich(table=table, left_on=here, right_on=there, how=how, columns=chosen, suffix=suffix)
        return _placed(operator, (self,), placing)

    def dedup(
        self,
        *columns: ColumnLike | Sequence[ColumnLike],
        event_time: ColumnLike | None = None,
        within: DurationLike | None = None,
        **placing: Unpack[Placing],
    ) -> "Stream":
        """Let the first row of every id pass and drop the others, for ever or until event time is so far behind it."""
        if not columns:
            raise FlowError('dedup needs the columns that make an id, as in dedup("id")')
        ids = column_names("dedup", columns)
        if (event_time is None) != (within is None):
            raise FlowError("dedup needs event_time and within together: the column, and how long an id is remembered")
        limit = None if within is None else _above_zero("within", within)
        operator = Dedup(key_columns=ids, time=_event_time("dedup", event_time), within_us=limit)
        return _placed(operator, (self.key_by(*ids),), placing)

    def distinct(
        self,
        *columns: ColumnLike | Sequence[ColumnLike],
        event_time: ColumnLike | None = None,
        within: DurationLike | None = None,
        method: DistinctMethod = "exact",
        capacity: int = 1_000_000,
        error: float = 0.01,
        **placing: Unpack[Placing],
    ) -> "Stream":
        """Return each combination of values of these columns once, exactly or by a bloom filter of fixed size."""
        if not columns:
            raise FlowError('distinct needs the columns whose values are wanted, as in distinct("id")')
        ids = column_names("distinct", columns)
        if (event_time is None) != (within is None):
            raise FlowError("distinct needs event_time and within together: the column, and the horizon")
        limit = None if within is None else _above_zero("within", within)
        operator = Distinct(
            columns=ids,
            time=_event_time("distinct", event_time),
            within_us=limit,
            method=method,
            capacity=capacity,
            error=error,
        )
        return _placed(operator, (self.key_by(*ids),), placing)

    def model(
        self,
        model: Any,
        features: str | Sequence[str],
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
            "features": column_names("model", (features,)),
            "output": output,
            "proba": proba,
            "version_column": version_column,
            "output_type": output_type,
            "on_error": _on_error(on_error),
        }
        if updates is not None:
            return _placed(ModelWithUpdates(decode=decode, **settings), (self, updates), placing)
        if decode is not None:
            raise FlowError("decode= is for the models that updates bring; give updates= too, or leave it away")
        return _placed(Model(**settings), (self,), placing)

    def transform(
        self,
        function: DataFrameFunction,
        *,
        schema: SchemaLike = None,
        name: str | None = None,
        on_error: OnErrorName = "stop",
        **tables: TableSpec,
    ) -> "Stream":
        """Let Spark SQL work on the waiting rows: `function(df)` takes and returns a PySpark DataFrame.

        Tables given by name reach the function as further DataFrames. Several transforms in a row make one plan.
        """
        if not callable(function):
            raise FlowError(f"transform needs a function from DataFrame to DataFrame, not a {type(function).__name__}")
        return self._transform(
            TransformStep(function=function, tables=tuple(tables.items())), schema_of(schema), name, on_error
        )

    def sql(
        self,
        query: str,
        *,
        schema: SchemaLike = None,
        name: str | None = None,
        on_error: OnErrorName = "stop",
        **tables: TableSpec,
    ) -> "Stream":
        """Let Spark SQL work on the waiting rows, which the query calls `stream`; tables have the names given here."""
        if not str(query).strip():
            raise FlowError('sql needs a query, such as "SELECT * FROM stream WHERE value > 3"')
        if STREAM in tables:
            raise FlowError(f"{STREAM!r} is what a query calls the rows; give the table another name")
        return self._transform(
            TransformStep(query=query, tables=tuple(tables.items())), schema_of(schema), name, on_error
        )

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

    def key_by(self, *columns: ColumnLike | Sequence[ColumnLike], name: str | None = None) -> "KeyedStream":
        """Send rows with equal values in these columns to the same instance of the next operator, in order."""
        if not columns:
            raise FlowError('key_by needs at least one column, as in key_by("sensor")')
        key = column_names("key_by", columns)
        return KeyedStream(Vertex(KeyBy(columns=key), (self,), name, self.vertex.parallelism), "out", key)

    def sink(self, sink: SinkSpec, *, name: str | None = None) -> "Sink":
        """Let the rows leave the flow here."""
        if not is_sink(no_class("sink", sink)):
            raise FlowError(
                f"{quoted(sink)} is not a sink; use one of headwater.to, such as hw.to.csv(path) or hw.to.console()"
            )
        return Sink(Vertex(sink, (self,), name))

    def _then(self, operator: Operator, name: str | None, parallelism: int, fuse: bool) -> "Stream":
        return Stream(Vertex(operator, (self,), name, parallelism, fuse))


@answering
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KeyedStream(Stream):
    """Rows spread by key: the next operator may keep state per key."""

    key: tuple[str, ...] = field(default=())

    def stateful(
        self,
        function: UserFunction,
        *,
        name: str | None = None,
        schema: SchemaLike = None,
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
            schema=schema_of(schema),
            key_columns=self.key,
            on_error=_on_error(on_error),
        )
        return self._then(operator, name, parallelism, fuse)

    def reduce(self, function: UserFunction, *, on_error: OnErrorName = "stop", **placing: Unpack[Placing]) -> Stream:
        """Fold the rows of each key with `function(so_far, row) -> row` and send on what it has come to, row by row."""
        _form(function, "rows")
        operator = Reduce(key_columns=self.key, function=function, on_error=_on_error(on_error))
        return _placed(operator, (self,), placing)

    def top_k(self, k: int, by: str, *, largest: bool = True, **placing: Unpack[Placing]) -> Stream:
        """Return the k largest (or smallest) rows of each key, with their rank, whenever that changes."""
        operator = TopK(key_columns=self.key, k=_at_least_one("k", k), by=column_name("top_k", by), largest=largest)
        return _placed(operator, (self,), placing)

    def process(
        self,
        processor: Any,
        output_schema: Any,
        *,
        time_mode: str = "none",
        event_time: str | None = None,
        initial_state: pa.Table | None = None,
        form: ProcessorForm | None = None,
        rows_per_frame: int | None = None,
        bytes_per_frame: int | None = None,
        on_error: OnErrorName = "stop",
        **placing: Unpack[Placing],
    ) -> Stream:
        """Run a PySpark `StatefulProcessor`, as `transformWithStateInPandas` and `transformWithState` do.

        `output_schema` is a `StructType`, a text such as "id string, total double", or an Arrow schema. `time_mode`:
        none, ProcessingTime or EventTime. `rows_per_frame` and `bytes_per_frame`: what `maxRecordsPerBatch` and
        `maxBytesPerBatch` are in Spark.
        """
        if isinstance(processor, type) and hasattr(processor, "handleInputRows"):
            raise FlowError(
                f"process needs a processor, and {processor.__name__} is a class; write {processor.__name__}()"
            )
        if not callable(getattr(processor, "handleInputRows", None)):
            raise FlowError(f"process needs a StatefulProcessor, not {quoted(processor)}")
        operator = Process(
            key_columns=self.key,
            processor=processor,
            schema=arrow_schema(output_schema),
            form=form if form is not None else form_of_processor(processor),
            time_mode=_time_mode(time_mode),
            event_time=event_time,
            initial_state=initial_state,
            rows_per_frame=rows_per_frame,
            bytes_per_frame=bytes_per_frame,
            on_error=_on_error(on_error),
        )
        return _placed(operator, (self,), placing)

    def learn(
        self,
        model: Any,
        features: str | Sequence[str],
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
            features=column_names("learn", (features,)),
            target=target,
            output=output,
            predict_first=predict_first,
            metric=metric,
            on_error=_on_error(on_error),
        )
        return _placed(operator, (self,), placing)


@answering
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class WindowedStream:
    """Rows cut into windows; what is computed over a window makes a stream of it again."""

    rows: Stream
    window: WindowSpec
    lateness_us: int
    early_us: int | None
    early_rows: int | None

    def __repr__(self) -> str:
        """Return one line: the way of the rows up to here."""
        return f"<WindowedStream: {_way(self.rows)} → window>"

    def __getattr__(self, name: str) -> NoReturn:
        """Say what to write instead of a name that windows do not have."""
        near_names.refuse("a window", name, near_names.WINDOWED, _public(self))

    def agg(
        self, *aggregates: Aggregate | Sequence[Aggregate], on_error: OnErrorName = "stop", **placing: Unpack[Placing]
    ) -> Stream:
        """Compute aggregates, such as `F.count()` or `F.avg("value").alias("mean")`, as the rows come."""
        aggregates = checked_aggregates(aggregates)
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
        schema: SchemaLike = None,
        form: FormName | None = None,
        on_error: OnErrorName = "stop",
        **placing: Unpack[Placing],
    ) -> Stream:
        """Call the function with all rows of a window and key together, when the window fires."""
        operator = WindowApply(
            function=function,
            form=_form(function, form),
            schema=schema_of(schema),
            on_error=_on_error(on_error),
            **self._how,
        )
        return self._then(operator, placing)

    def top_k(self, k: int, by: str, *, largest: bool = True, **placing: Unpack[Placing]) -> Stream:
        """Return the k largest (or smallest) rows of each window and key, with their rank."""
        return self._then(
            WindowTopK(k=_at_least_one("k", k), by=column_name("top_k", by), largest=largest, **self._how), placing
        )

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
        return _placed(operator, (self.rows,), placing)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Sink:
    """The end of a stream."""

    vertex: Vertex

    def __repr__(self) -> str:
        """Return one line: the way of the rows up to here."""
        return f"<Sink: {_way(Stream(self.vertex))}>"

    def __getattr__(self, name: str) -> NoReturn:
        """Say what to write instead of a name that sinks do not have."""
        near_names.refuse("a sink", name, near_names.SINK, _public(self))


def _placed(operator: Operator, inputs: tuple[Stream, ...], placing: Mapping[str, Any]) -> Stream:
    """Return the stream of an operator with what most operators can be given besides their own settings."""
    for word, value in placing.items():
        if isinstance(value, Aggregate):
            raise FlowError(f'{operator.kind} takes aggregates one by one; name them with .alias("{word}")')
        if word not in Placing.__annotations__:
            known = list(Placing.__annotations__)
            raise FlowError(
                f"{operator.kind} has no argument {word!r}{did_you_mean(word, known)}; besides its own it "
                f"takes {', '.join(known)}"
            )
    return Stream(Vertex(operator, inputs, **placing))


@answered
def source(spec: SourceSpec, *, name: str | None = None) -> Stream:
    """Start a stream with the rows of a source."""
    if not is_source(no_class("source", spec)):
        raise FlowError(f"{quoted(spec)} is not a source; use one of headwater.read, such as hw.read.csv(path)")
    return Stream(Vertex(spec, (), name))


@answered
def flow(name: Any, *sinks: Sink | Sequence[Sink]) -> Flow:
    """Gather everything that leads to the sinks into a flow; what can be known to be wrong with it is refused."""
    from headwater.dataflow.compile import compile_flow  # which works on what is defined here

    if isinstance(name, Sink | Stream):
        raise FlowError(f'flow takes a name first, as in hw.flow("means", stream.sink(...)), not {quoted(name)}')
    checked_name("flow", name)
    listed: list[Any] = []
    for sink in sinks:
        listed += sink if isinstance(sink, list | tuple) else [sink]
    for sink in listed:
        if not isinstance(sink, Sink):
            ended = "; end every stream with .sink(...), as in stream.sink(hw.to.console())"
            raise FlowError(f"flow {name!r} was given {quoted(sink)}{ended}")
    if not listed:
        raise FlowError(f"flow {name!r} has no sink; end at least one stream with .sink(...)")
    made = Flow(name, _declare(_in_order(listed)))
    compile_flow(made)
    return made


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
        declared.append(Declaration(name, vertex.part, inputs, vertex.parallelism, vertex.fuse, vertex.line))
    return tuple(declared)


def _free_name(kind: str, taken: set[str]) -> str:
    if kind not in taken:
        return kind
    number = 2
    while f"{kind}-{number}" in taken:
        number += 1
    return f"{kind}-{number}"


def _way(stream: Stream) -> str:
    """Return the way of a stream's rows, by the names of what they pass."""
    steps: list[str] = []
    vertex = stream.vertex
    while True:
        others = len(vertex.inputs) - 1
        steps.append((vertex.name or vertex.part.kind) + (f" (and {others} more)" if others > 0 else ""))
        if not vertex.inputs:
            return _shortened(steps[::-1])
        vertex = vertex.inputs[0].vertex


def _way_to(flow: Flow, declared: Declaration) -> str:
    """Return the way to a vertex of a flow."""
    by_name = {one.name: one for one in flow.declarations}
    steps: list[str] = []
    while True:
        others = len(declared.inputs) - 1
        steps.append(declared.name + (f" (and {others} more)" if others > 0 else ""))
        if not declared.inputs or declared.inputs[0].operator not in by_name or len(steps) > len(by_name):
            return _shortened(steps[::-1])
        declared = by_name[declared.inputs[0].operator]


def _shortened(steps: Sequence[str]) -> str:
    shown = steps if len(steps) <= STEPS_SHOWN else [*steps[: STEPS_SHOWN // 2], "...", *steps[-STEPS_SHOWN // 2 :]]
    return " → ".join(shown)


def _public(part: object) -> list[str]:
    return [name for name in dir(type(part)) if not name.startswith("_")]


def _streams(where: str, given: Sequence[Any]) -> Sequence[Stream]:
    """Return streams, given one by one or as a list."""
    listed = given[0] if len(given) == 1 and isinstance(given[0], list | tuple) else given
    if not listed:
        raise FlowError(f"{where} needs at least one other stream")
    for one in listed:
        _must_be_stream(where, one)
    return listed


def _must_be_stream(where: str, given: Any) -> None:
    if not isinstance(given, Stream):
        advice = {
            Flow: "give it the stream before hw.flow(...)",
            Sink: "give it the stream before .sink(...)",
            WindowedStream: 'compute something of the window first, as in .agg(F.avg("v"))',
        }.get(type(given), "such as hw.read.csv(path)")
        raise FlowError(f"{where} needs another stream, not {quoted(given)}; {advice}")


def _event_time(where: str, given: ColumnLike | None) -> str | None:
    return None if given is None else column_name(where, given)


def _row_form(where: str, function: Any, given: FormName | None) -> Form:
    """Return the form of a function that sees rows; one without an annotation says it by what it does."""
    if isinstance(function, Column | pc.Expression | str):
        raise FlowError(
            f'{where} takes a function; for an expression write with_column("new", ...), select(...) or filter(...)'
        )
    form = _form(function, given)
    try:
        is_of_rows = given is None and not is_annotated(function) and takes_rows(function)
    except FlowError as unclear:
        raise FlowError(f"{where}: {unclear}") from None
    return Form.ROWS if is_of_rows else form


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
    listed: Sequence[Any] = [on] if isinstance(on, str | Column) else on
    if not listed:
        raise FlowError("a join needs at least one key column")
    pairs = [(one, one) if isinstance(one, str) else tuple(one) for one in map(_plain_key, listed)]
    if any(len(pair) != 2 for pair in pairs):
        raise FlowError(f"on={on!r} must be names of columns, or pairs of names (here, there)")
    return tuple(here for here, _ in pairs), tuple(there for _, there in pairs)


def _plain_key(given: Any) -> Any:
    return column_name("join", given) if isinstance(given, Column) else given


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
        raise FlowError(f"an operator needs a function, not {quoted(function)}")
    if given is None:
        return form_of(function)
    if given not in tuple(Form):
        raise FlowError(f"form={given!r} is unknown; a function takes 'arrow' batches, 'pandas' DataFrames or 'rows'")
    return Form(given)


def _on_error(given: OnErrorName) -> OnError:
    if given not in tuple(OnError):
        raise FlowError(f"on_error={given!r} is unknown; use 'stop' or 'dead-letter'")
    return OnError(given)
