"""Evaluating a filter's expression on this thread, with as little ado as possible.

Arrow evaluates an expression by running a plan, which for a few rows takes many times as long as the comparisons in it.
So one of columns, literals, comparisons and logic is taken apart once, and its kernels are called directly. Arrow lets
nobody look into an expression, but the form it is pickled in tells what it consists of. Since nobody promises that
form, what is read there counts only if the expression made anew from it equals the given one. Any other is evaluated by
a plan, also one with arithmetic: there a literal's type is fitted to the column's, which calls do not do.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc

Truth = Callable[[pa.RecordBatch], pa.BooleanArray]
Value = Callable[[pa.RecordBatch], Any]  # a column, or a scalar

_KERNELS: Final = {  # and how many values each takes
    **dict.fromkeys(("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"), 2),
    **dict.fromkeys(("and_kleene", "or_kleene"), 2),
    **dict.fromkeys(("invert", "is_valid"), 1),
}


def truth_of(expression: pc.Expression) -> Truth:
    """Return what tells for which rows of a batch an expression is true."""
    planned, direct = _Planned(expression), _taken_apart(expression)
    return planned if direct is None or not direct.is_column else _Direct(direct.value, planned)


@dataclass(frozen=True, slots=True)
class _Planned:
    """Evaluates any expression, by a plan."""

    expression: pc.Expression

    def __call__(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Run the plan. `RecordBatch.filter` would hand it to Arrow's threads: the other cores are other workers'."""
        rows = acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([batch])))
        truth = acero.Declaration("project", acero.ProjectNodeOptions([self.expression], ["truth"]), [rows])
        return truth.to_table(use_threads=False).column(0).combine_chunks()


@dataclass(frozen=True, slots=True)
class _Direct:
    """Calls an expression's kernels."""

    value: Value
    planned: _Planned

    def __call__(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Evaluate it; what cannot be done like this, the plan does, or says why not."""
        try:
            return self.value(batch)
        except (LookupError, pa.ArrowException):
            return self.planned(batch)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of an expression: how Arrow writes it, and what it is for a batch."""

    written: pc.Expression
    value: Value
    is_column: bool  # and not one value for all rows


def _taken_apart(expression: pc.Expression) -> _Part | None:
    """Return an expression's parts; None if it has others than are known here, or is pickled in another way."""
    try:
        literals, pieces = _pickled(expression)
        part = _read(iter(pieces), literals)
    except (LookupError, StopIteration, TypeError, ValueError, pa.ArrowException):
        return None
    return part if part.written.equals(expression) else None


def _pickled(expression: pc.Expression) -> tuple[pa.RecordBatch, list[tuple[str, str]]]:
    """Return an expression's literals and its pieces: `call` greater, `field_ref` speed, `literal` 0, `end` greater."""
    _, (buffer,) = expression.__reduce__()
    literals = pa.ipc.open_file(buffer).get_batch(0)
    shown = literals.schema.to_string(truncate_metadata=False, show_field_metadata=False)
    lines = shown.partition("-- schema metadata --\n")[2].splitlines()
    return literals, [(kind, quoted[1:-1]) for kind, _, quoted in (line.partition(": ") for line in lines)]


def _read(pieces: Iterator[tuple[str, str]], literals: pa.RecordBatch) -> _Part:
    kind, what = next(pieces)
    match kind:
        case "field_ref":
            return _Part(pc.field(what), lambda batch: batch.column(what), True)
        case "literal":
            scalar = literals.column(int(what))[0]
            return _Part(pc.scalar(scalar), lambda _: scalar, False)
        case "call" if what in _KERNELS:
            given = [_read(pieces, literals) for _ in range(_KERNELS[what])]
            if next(pieces) == ("end", what):
                return _called(what, given)
    raise ValueError(f"{kind} {what!r} is evaluated by a plan")


def _called(name: str, given: Sequence[_Part]) -> _Part:
    kernel, values = pc.get_function(name), [part.value for part in given]
    written = getattr(pc, name)(*(part.written for part in given))
    return _Part(
        written, lambda batch: kernel.call([value(batch) for value in values]), any(part.is_column for part in given)
    )
