"""Operators without state: each row's fate depends on that row alone."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.quoting import listed
from headwater.model.suggestions import did_you_mean
from headwater.operators import functions
from headwater.operators.base import Effect, Logic, Operator
from headwater.operators.expressions.evaluating import Evaluation, type_of
from headwater.operators.expressions.fitting import unknown_column
from headwater.operators.expressions.predicates import Truth, truth_of
from headwater.operators.expressions.trees import Column
from headwater.operators.functions import Form, UserFunction, WrongResult
from headwater.operators.processors.spark_types import article
from headwater.operators.state import KeyedState


@dataclass(frozen=True, kw_only=True)
class UserOperator(Operator):
    """An operator that calls a user's function."""

    function: UserFunction
    form: Form
    schema: pa.Schema | None = None

    def output_schema(self, inputs: Sequence[pa.Schema | None]) -> pa.Schema | None:
        """Return what the user declared."""
        return self.schema

    def advice(self, failure: BaseException) -> str:
        """What to write if the function was given what it was not written for."""
        return functions.advice(self.function, self.form, failure)


@dataclass(frozen=True, kw_only=True)
class Map(UserOperator):
    """One row out for each row in."""

    kind: ClassVar[str] = "map"

    def open(self) -> Logic:
        """Return the logic."""
        return MapLogic(self)


class MapLogic:
    """Runs a map."""

    def __init__(self, config: Map) -> None:
        """Keep the configuration."""
        self._config = config

    def run(self, batch: pa.RecordBatch, state: KeyedState | None) -> Sequence[pa.RecordBatch]:
        """Call the function and hold it to one row out per row in."""
        config = self._config
        if config.form is Form.ROWS:
            result = functions.rows_to_batch(functions.row_results(config.function, batch), config.schema)
        else:
            result = functions.call_for_rows(config.function, config.form, batch, config.schema)
        if result.num_rows != batch.num_rows:
            raise WrongResult(
                f"it returned {result.num_rows} rows for {batch.num_rows}; "
                "a map keeps their number, use flat_map or filter"
            )
        return (result,)


@dataclass(frozen=True, kw_only=True)
class FlatMap(UserOperator):
    """Any number of rows out for each row in."""

    kind: ClassVar[str] = "flat_map"
    effect: ClassVar[Effect] = Effect.CHANGES

    def open(self) -> Logic:
        """Return the logic."""
        return FlatMapLogic(self)


class FlatMapLogic:
    """Runs a flat map."""

    def __init__(self, config: FlatMap) -> None:
        """Keep the configuration."""
        self._config = config

    def run(self, batch: pa.RecordBatch, state: KeyedState | None) -> Sequence[pa.RecordBatch]:
        """Call the function; a row function returns any iterable of rows, or None for no row."""
        config = self._config
        if config.form is not Form.ROWS:
            return (functions.call_for_rows(config.function, config.form, batch, config.schema),)
        made = chain.from_iterable(_rows_of(result) for result in functions.row_results(config.function, batch))
        return (functions.rows_to_batch(made, config.schema),)


def _rows_of(result: Any) -> Any:
    if result is None:
        return ()
    if isinstance(result, Mapping | str | bytes) or not isinstance(result, Iterable):
        raise WrongResult(f"it returned a {type(result).__name__} for a row; a flat_map returns a list of row dicts")
    return result


@dataclass(frozen=True, kw_only=True)
class Filter(Operator):
    """Keeps the rows for which the predicate is true."""

    kind: ClassVar[str] = "filter"
    effect: ClassVar[Effect] = Effect.FILTERS
    predicate: UserFunction | Column | pc.Expression
    form: Form

    def open(self) -> Logic:
        """Return the logic."""
        return FilterLogic(self)

    def output_schema(self, inputs: Sequence[pa.Schema | None]) -> pa.Schema | None:
        """Filtering leaves the columns alone; an expression has to be true or false of them."""
        known = inputs[0]
        if known is not None and isinstance(self.predicate, Column):
            must_be_truth(self.predicate, type_of(self.predicate, known))
        elif known is not None and isinstance(self.predicate, pc.Expression):
            _check_planned(self.predicate, known)
        return known

    def advice(self, failure: BaseException) -> str:
        """What to write if the function was given what it was not written for."""
        if isinstance(self.predicate, Column | pc.Expression):
            return ""
        return functions.advice(self.predicate, self.form, failure)


def must_be_truth(predicate: Column, kind: pa.DataType) -> None:
    """Refuse an expression that is not true or false."""
    if not (pa.types.is_boolean(kind) or pa.types.is_null(kind)):
        raise WrongResult(
            f"{predicate.column_name} is {article(kind)}, and a filter needs what is true or false; "
            "compare it with something"
        )


def _check_planned(predicate: pc.Expression, known: pa.Schema) -> None:
    """Refuse an expression of Arrow's that does not fit the columns."""
    try:
        truth = truth_of(predicate)(pa.RecordBatch.from_pylist([], known))
    except pa.ArrowException as failure:
        raise WrongResult(f"{predicate} does not fit its columns: {failure}; write hw.col(...)") from failure
    if not pa.types.is_boolean(truth.type):
        raise WrongResult(f"{predicate} is {article(truth.type)}, and a filter needs what is true or false")


class FilterLogic:
    """Runs a filter."""

    def __init__(self, config: Filter) -> None:
        """Get ready to evaluate the predicate."""
        predicate = config.predicate
        self._truth: Truth
        if isinstance(predicate, Column):
            self._truth = partial(_truth, predicate, Evaluation(predicate))
        elif isinstance(predicate, pc.Expression):
            self._truth = truth_of(predicate)
        else:
            self._truth = partial(labels_by, predicate, config.form)

    def run(self, batch: pa.RecordBatch, state: KeyedState | None) -> Sequence[pa.RecordBatch]:
        """Evaluate the predicate and keep what it is true for."""
        truth = self._truth(batch)
        return (batch if truth.null_count == 0 and truth.false_count == 0 else batch.filter(truth),)


def _truth(predicate: Column, evaluation: Evaluation, batch: pa.RecordBatch) -> pa.BooleanArray:
    """Return whether an expression is true, for each row."""
    truth = evaluation.column(batch)
    if not pa.types.is_boolean(truth.type):
        must_be_truth(predicate, truth.type)
        return truth.cast(pa.bool_())
    return truth


def labels_by(predicate: UserFunction, form: Form, batch: pa.RecordBatch) -> pa.BooleanArray:
    """Return one boolean per row."""
    if form is Form.ROWS:
        return pa.array([bool(kept) for kept in functions.row_results(predicate, batch)], pa.bool_())
    given = batch.to_pandas() if form is Form.PANDAS else batch
    return functions.to_mask(predicate(given), batch.num_rows)


@dataclass(frozen=True, kw_only=True)
class Select(Operator):
    """Keeps some columns, in this order, under these names; `window.start` is a field of the struct `window`."""

    kind: ClassVar[str] = "select"
    columns: tuple[tuple[str, str], ...]  # (new name, column of the input)

    def open(self) -> Logic:
        """Return the logic."""
        return SelectLogic(self)

    @property
    def columns_needed(self) -> tuple[str, ...]:
        """The columns that are kept; what a dot in a name means, only the rows can tell."""
        return tuple(source for _, source in self.columns if "." not in source)

    def output_schema(self, inputs: Sequence[pa.Schema | None]) -> pa.Schema | None:
        """Return the kept columns under their new names."""
        known = inputs[0]
        if known is None:
            return None
        return pa.schema([_field(known, source).with_name(name) for name, source in self.columns])


def _field(schema: pa.Schema, source: str) -> pa.Field:
    """Return a column, or the field of a struct that a path with dots leads to."""
    if source in schema.names:
        return schema.field(source)
    first, *path = source.split(".")
    field: pa.Field | None = schema.field(first) if first in schema.names else None
    for name in path:
        if field is None or not pa.types.is_struct(field.type) or field.type.get_field_index(name) < 0:
            field = None
            break
        field = field.type.field(name)
    if field is None:
        raise unknown_column(source, schema.names)
    return field


def _column(batch: pa.RecordBatch, source: str) -> pa.Array:
    if source in batch.schema.names:
        return batch.column(source)
    _field(batch.schema, source)
    first, *path = source.split(".")
    return pc.struct_field(batch.column(first), path)


class SelectLogic:
    """Runs a select."""

    def __init__(self, config: Select) -> None:
        """Split the configuration into what is read and how it is called."""
        self._sources = [source for _, source in config.columns]
        self._names = [name for name, _ in config.columns]
        self._nested = any("." in source for source in self._sources)

    def run(self, batch: pa.RecordBatch, state: KeyedState | None) -> Sequence[pa.RecordBatch]:
        """Take the columns without copying them."""
        if self._nested:
            arrays = [_column(batch, source) for source in self._sources]
            return (pa.RecordBatch.from_arrays(arrays, names=self._names),)
        kept = batch.select(self._sources)
        return (kept if self._names == self._sources else kept.rename_columns(self._names),)


@dataclass(frozen=True, kw_only=True)
class Routing(Operator):
    """An operator that says where rows go and never touches them: it lives in the routes, not in a chain."""

    def open(self) -> Logic:
        """Nothing is there to run."""
        raise AssertionError(f"{self.kind} is a matter of routing and does not run")


@dataclass(frozen=True, kw_only=True)
class KeyBy(Routing):
    """Says by which columns the rows are spread over the instances of the next operator."""

    kind: ClassVar[str] = "key_by"
    columns: tuple[str, ...]

    @property
    def columns_needed(self) -> tuple[str, ...]:
        """The key."""
        return self.columns

    def output_schema(self, inputs: Sequence[pa.Schema | None]) -> pa.Schema | None:
        """Keying leaves the columns alone."""
        return inputs[0]


@dataclass(frozen=True, kw_only=True)
class Union(Routing):
    """Joins several streams into one, in order of arrival."""

    kind: ClassVar[str] = "union"

    def output_schema(self, inputs: Sequence[pa.Schema | None]) -> pa.Schema | None:
        """Return the common columns if all inputs agree; the compiler has refused those that do not."""
        known = [schema for schema in inputs if schema is not None]
        return known[0] if len(known) == len(inputs) else None


@dataclass(frozen=True, kw_only=True)
class Split(Operator):
    """Sends each row to one of several named branches."""

    kind: ClassVar[str] = "split"
    function: UserFunction
    form: Form
    branches: tuple[str, ...]

    def open(self) -> Logic:
        """Return the logic."""
        return SplitLogic(self)

    @property
    def ports(self) -> tuple[str, ...]:
        """One output for each branch."""
        return self.branches

    def output_schema(self, inputs: Sequence[pa.Schema | None]) -> pa.Schema | None:
        """Every branch has the columns of the input."""
        return inputs[0]

    def advice(self, failure: BaseException) -> str:
        """What to write if the function was given what it was not written for."""
        return functions.advice(self.function, self.form, failure)


class SplitLogic:
    """Runs a split: the function answers a boolean (first branch if true, else second) or a branch's name per row."""

    def __init__(self, config: Split) -> None:
        """Keep the configuration."""
        self._config = config

    def run(self, batch: pa.RecordBatch, state: KeyedState | None) -> Sequence[pa.RecordBatch]:
        """Cut the batch by the function's answer."""
        labels = self._labels(batch)
        if pa.types.is_boolean(labels.type):
            return (batch.filter(labels), batch.filter(pc.invert(pc.fill_null(labels, False))))
        unknown = set(pc.unique(labels).to_pylist()) - set(self._config.branches)
        if unknown:
            first = sorted(map(repr, unknown))[0]
            raise WrongResult(
                f"it returned branch {first}; the branches are {listed(self._config.branches)}"
                f"{did_you_mean(first, self._config.branches)}"
            )
        return tuple(batch.filter(pc.equal(labels, name)) for name in self._config.branches)

    def _labels(self, batch: pa.RecordBatch) -> pa.Array:
        config = self._config
        if config.form is Form.ROWS:
            labels = pa.array(_named(functions.row_results(config.function, batch)))
        else:
            given = batch.to_pandas() if config.form is Form.PANDAS else batch
            labels = _one_per_row(config.function(given))
        if len(labels) != batch.num_rows:
            raise WrongResult(f"it returned {len(labels)} branches for {batch.num_rows} rows")
        if pa.types.is_boolean(labels.type) and len(config.branches) != 2:
            raise WrongResult(f"it returned booleans, but the split has {len(config.branches)} branches")
        return labels


def _one_per_row(result: Any) -> pa.Array:
    if isinstance(result, pa.ChunkedArray):
        return result.combine_chunks()
    if isinstance(result, pa.Array):
        return result
    if isinstance(result, str | bytes | Mapping) or not isinstance(result, Iterable):
        raise WrongResult(f"it returned a {type(result).__name__}; a split must return one branch per row")
    return pa.array(result)


def _named(answers: Iterable[Any]) -> list[Any]:
    """Refuse a row without a branch: whether it means false or is a mistake must not depend on the rows around it."""
    listed = list(answers)
    if any(answer is None for answer in listed):
        raise WrongResult("it returned None for a row; a split must return a boolean or the name of a branch")
    return listed
