"""Operators that compute, drop and rename columns by expressions. They keep the number of rows, and no state."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from headwater.operators.base import Logic, Operator
from headwater.operators.expressions.evaluating import Evaluation, type_of
from headwater.operators.expressions.trees import Column
from headwater.operators.functions import WrongResult
from headwater.operators.state import KeyedState


@dataclass(frozen=True, kw_only=True)
class Project(Operator):
    """Makes rows of expressions, each under its name. What only picks and renames columns is a `Select`."""

    kind: ClassVar[str] = "select"
    columns: tuple[tuple[str, Column], ...]

    def open(self) -> Logic:
        """Return the logic."""
        return ProjectLogic(self.columns)

    def output_schema(self, inputs: Sequence[pa.Schema | None]) -> pa.Schema | None:
        """Return the columns that the expressions make."""
        known = inputs[0]
        return None if known is None else pa.schema([(name, type_of(column, known)) for name, column in self.columns])


class ProjectLogic:
    """Runs a select of expressions."""

    def __init__(self, columns: Sequence[tuple[str, Column]]) -> None:
        """Get ready to evaluate."""
        self._names = [name for name, _ in columns]
        self._evaluations = [Evaluation(column) for _, column in columns]

    def run(self, batch: pa.RecordBatch, state: KeyedState | None) -> Sequence[pa.RecordBatch]:
        """Compute every column."""
        arrays = [evaluation.column(batch) for evaluation in self._evaluations]
        return (pa.RecordBatch.from_arrays(arrays, names=self._names),)


@dataclass(frozen=True, kw_only=True)
class WithColumns(Operator):
    """Adds columns, or replaces those of the same name; all are computed from the columns that came in."""

    kind: ClassVar[str] = "with_columns"
    columns: tuple[tuple[str, Column], ...]

    def open(self) -> Logic:
        """Return the logic."""
        return WithColumnsLogic(self.columns)

    def output_schema(self, inputs: Sequence[pa.Schema | None]) -> pa.Schema | None:
        """Return the columns of the input and the new ones."""
        known = inputs[0]
        if known is None:
            return None
        made = {name: pa.field(name, type_of(column, known)) for name, column in self.columns}
        return pa.schema([*(made.pop(field.name, field) for field in known), *made.values()])


class WithColumnsLogic:
    """Runs a with_columns."""

    def __init__(self, columns: Sequence[tuple[str, Column]]) -> None:
        """Get ready to evaluate."""
        self._evaluations = {name: Evaluation(column) for name, column in columns}

    def run(self, batch: pa.RecordBatch, state: KeyedState | None) -> Sequence[pa.RecordBatch]:
        """Compute the new columns and leave the others as they are."""
        arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
        arrays |= {name: evaluation.column(batch) for name, evaluation in self._evaluations.items()}
        return (pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays)),)


@dataclass(frozen=True, kw_only=True)
class Drop(Operator):
    """Leaves columns out."""

    kind: ClassVar[str] = "drop"
    columns: tuple[str, ...]

    def open(self) -> Logic:
        """Return the logic."""
        return DropLogic(self)

    @property
    def columns_needed(self) -> tuple[str, ...]:
        """What is not there cannot be left out: it would be a mistake in writing."""
        return self.columns

    def output_schema(self, inputs: Sequence[pa.Schema | None]) -> pa.Schema | None:
        """Return the columns that stay."""
        known = inputs[0]
        return None if known is None else pa.schema([field for field in known if field.name not in self.columns])


class DropLogic:
    """Runs a drop."""

    def __init__(self, config: Drop) -> None:
        """Keep the names."""
        self._dropped = list(config.columns)

    def run(self, batch: pa.RecordBatch, state: KeyedState | None) -> Sequence[pa.RecordBatch]:
        """Leave the columns out, and copy nothing."""
        return (batch.drop_columns(self._dropped),)


@dataclass(frozen=True, kw_only=True)
class Rename(Operator):
    """Gives columns other names."""

    kind: ClassVar[str] = "rename"
    names: tuple[tuple[str, str], ...]  # (before, after)

    def open(self) -> Logic:
        """Return the logic."""
        return RenameLogic(self)

    @property
    def columns_needed(self) -> tuple[str, ...]:
        """The columns under their names before."""
        return tuple(before for before, _ in self.names)

    def renamed(self, names: Sequence[str]) -> list[str]:
        """Return the names of columns afterwards; refuse two of one name."""
        after = dict(self.names)
        made = [after.get(name, name) for name in names]
        for name in made:
            if made.count(name) > 1:
                raise WrongResult(f"makes two columns named {name!r}; drop one of them first")
        return made

    def output_schema(self, inputs: Sequence[pa.Schema | None]) -> pa.Schema | None:
        """Return the columns under their new names."""
        known = inputs[0]
        if known is None:
            return None
        return pa.schema([field.with_name(name) for field, name in zip(known, self.renamed(known.names), strict=True)])


class RenameLogic:
    """Runs a rename."""

    def __init__(self, config: Rename) -> None:
        """Keep the names."""
        self._config = config

    def run(self, batch: pa.RecordBatch, state: KeyedState | None) -> Sequence[pa.RecordBatch]:
        """Give the columns their new names, and copy nothing."""
        return (batch.rename_columns(self._config.renamed(batch.schema.names)),)
