"""Compiles a graph to streaming DataFrames, one for each sink, with Spark's own operators where there are any.

Successive operators without state become one `mapInArrow`. A vertex may be part of several queries, or be twice in one;
each time it is computed separately, with its own state.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, SparkSession

from headwater.dataflow.connectors import is_source
from headwater.dataflow.graph import Graph
from headwater.dataflow.stream import ERRORS, Declaration, Input
from headwater.model.errors import FlowError
from headwater.operators.base import Operator
from headwater.operators.chain import DEAD_LETTERS, NamedOperator
from headwater.operators.distinct import Dedup, Distinct
from headwater.operators.enriching import Enrich
from headwater.operators.joins.joining import StreamJoin
from headwater.operators.limiting import Limit
from headwater.operators.processors.processing import Process
from headwater.operators.sql import Transform
from headwater.operators.stateless import KeyBy, Select, Union
from headwater.operators.watermarks import WithWatermark
from headwater.operators.windows.windows import WindowOperator
from headwater.twin.columns import quoted, spark_form, struct_of
from headwater.twin.distinct import deduplicated, distinct
from headwater.twin.joins import enriched, joined
from headwater.twin.keyed import per_key
from headwater.twin.processing import processed
from headwater.twin.refusals import is_plain, is_stateful
from headwater.twin.rehearsal import Rehearsal
from headwater.twin.sink_query import first_line
from headwater.twin.stateless import Chained, ChainStep
from headwater.twin.streams import Site, TwinStream, computed
from headwater.twin.transforms import transformed
from headwater.twin.trouble import TroubleBox
from headwater.twin.watermarks import InputEnding, watermarked
from headwater.twin.windows import windowed


@dataclass(frozen=True)
class TwinContext:
    """The context of a compilation: the session, the folder of its files, and the first rows of its sources."""

    session: SparkSession
    staging: Path  # the rows of each source, in a directory of its name
    endings: Mapping[str, InputEnding]  # of each watermark
    trouble: TroubleBox
    schemas: dict[str, pa.Schema]  # of each source
    rehearsal: Rehearsal


@dataclass
class Compiler:
    """Makes streams of the vertices of a graph."""

    graph: Graph
    ground: TwinContext
    _made: dict[Input, TwinStream] = field(default_factory=dict)

    def sink(self, name: str) -> TwinStream:
        """Return the rows of a sink."""
        return self._stream(self.graph.by_name[name].inputs[0])

    def _stream(self, wanted: Input) -> TwinStream:
        if wanted not in self._made:
            declared = self.graph.by_name[wanted.operator]
            made = self._source(declared.name) if is_source(declared.part) else self._operator(declared, wanted.port)
            self._made[wanted] = made
        return self._made[wanted]

    def _source(self, name: str) -> TwinStream:
        schema = self.ground.schemas[name]
        form = spark_form(schema, f"source {name!r}")
        struct = struct_of(form)
        plain = struct_of(pa.schema([one.with_name(f"c{at}") for at, one in enumerate(form)]))
        reader = self.ground.session.readStream.schema(plain).option("maxFilesPerTrigger", 1)
        return TwinStream(reader.parquet(str(self.ground.staging / name)).toDF(*struct.names), schema)

    def _operator(self, declared: Declaration, port: str) -> TwinStream:
        operator = declared.part
        assert isinstance(operator, Operator)
        if is_plain(operator):
            return self._chain(declared, port)
        try:
            return self._special(operator, self._site(declared, operator, port))
        except AnalysisException as failure:
            raise FlowError(
                f"{operator.kind} {declared.name!r} cannot run as Structured Streaming: {first_line(failure)}"
            ) from failure

    def _special(self, operator: Operator, site: Site) -> TwinStream:
        """Return the stream of an operator that is more than a function of its rows."""
        match operator:
            case KeyBy():
                return site.inputs[0]
            case Union():
                return _united(site)
            case Select():
                return _selected(site, operator)
            case Limit():
                return TwinStream(site.inputs[0].frame.limit(operator.rows), site.inputs[0].schema)
            case WithWatermark():
                return watermarked(site, self.ground.endings[site.name])
            case WindowOperator():
                return windowed(site)
            case StreamJoin():
                return joined(site)
            case Enrich():
                return enriched(site, time.time_ns() // 1_000)
            case Dedup():
                return deduplicated(site)
            case Distinct():
                return distinct(site)
            case Process():
                return processed(site)
            case Transform():
                return transformed(site, operator)
        assert is_stateful(operator), f"{operator.kind} was not refused"
        return per_key(site.inputs[0], operator.key, site.chained())

    def _site(self, declared: Declaration, operator: Operator, port: str) -> Site:
        inputs = tuple(self._stream(given) for given in declared.inputs)
        schema = operator.port_schema(port, [one.schema for one in inputs]) if port != ERRORS else DEAD_LETTERS
        return Site(
            session=self.ground.session,
            flow=self.graph.name,
            name=declared.name,
            operator=operator,
            port=port,
            inputs=inputs,
            schema=schema,
            trouble=self.ground.trouble,
            chained=lambda: self._chained(
                (NamedOperator(declared.name, operator, declared.line),),
                port,
                inputs[0].schema,
                schema or self._found(declared, port),
            ),
        )

    def _chain(self, last: Declaration, port: str) -> TwinStream:
        """Run operators without state as one, from the first that nothing separates from this one."""
        run = [last]
        while self._fuses(run[0].inputs[0]):
            run.insert(0, self.graph.by_name[run[0].inputs[0].operator])
        rows = self._stream(run[0].inputs[0])
        operators = tuple(NamedOperator(one.name, self.graph.operator(one.name), one.line) for one in run)
        schema: pa.Schema | None = rows.schema
        for named in operators[:-1]:
            schema = named.operator.output_schema([schema])
        made = DEAD_LETTERS if port == ERRORS else operators[-1].operator.port_schema(port, [schema])
        chained = self._chained(operators, port, rows.schema, made or self._found(last, port))
        return rows.mapped(ChainStep(chained), chained.made, f"{operators[-1].operator.kind} {last.name!r}")

    def _fuses(self, given: Input) -> bool:
        before = self.graph.by_name[given.operator].part
        return isinstance(before, Operator) and is_plain(before) and given.port == "out"

    def _chained(self, operators: tuple[NamedOperator, ...], port: str, given: pa.Schema, made: pa.Schema) -> Chained:
        place = None if port == ERRORS else operators[-1].operator.ports.index(port)
        return Chained(self.graph.name, operators, place, given, made, self.ground.trouble)

    def _found(self, declared: Declaration, port: str) -> pa.Schema:
        return self.ground.rehearsal.schema(Input(declared.name, port))


def _selected(site: Site, operator: Select) -> TwinStream:
    rows = site.inputs[0]
    schema = operator.output_schema([rows.schema])
    assert schema is not None
    columns = [_reached(rows.schema, source).alias(name) for name, source in operator.columns]
    return TwinStream(rows.frame.select(*columns), schema)


def _reached(schema: pa.Schema, source: str) -> Column:
    """Return a column, or the field of a struct at a dotted path."""
    if source in schema.names:
        return quoted(source)
    first, *path = source.split(".")
    column = quoted(first)
    for name in path:
        column = column.getField(name)
    return column


def _united(site: Site) -> TwinStream:
    first, *others = site.inputs
    frame = first.frame
    for other in others:
        if set(other.schema.names) != set(first.schema.names):
            odd = sorted(set(other.schema.names) ^ set(first.schema.names))[0]
            raise FlowError(f"{site.where}: only one of its inputs has column {odd!r}")
        chosen = other.frame.select(*map(quoted, first.schema.names))
        frame = frame.union(computed(chosen, first.schema, site.where).frame)
    return TwinStream(frame, first.schema)
