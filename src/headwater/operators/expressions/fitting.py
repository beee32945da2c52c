"""An expression fitted to rows of known columns: its type, and what computes it.

What does not go together is refused here with a sentence. What fits calls Arrow's kernels one after the other, on this
thread: a plan of Arrow's costs twenty times as much for a few rows. Arithmetic is checked: what overflows, or divides
by zero, is an error of its row.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.quoting import listed
from headwater.model.suggestions import did_you_mean
from headwater.operators.expressions.trees import Call, Node, Reference, written
from headwater.operators.functions import WrongResult
from headwater.operators.processors.spark_types import article, type_name

Values = Any  # an array with a value for each row, or one scalar for all of them
Value = Callable[[pa.RecordBatch], Values]
Compute = Callable[..., Values]


@dataclass(frozen=True, slots=True)
class Fitted:
    """An expression over rows of known columns."""

    node: Node
    type: pa.DataType
    value: Value
    constant: pa.Scalar | None = None  # if it is the same for every row

    @property
    def shown(self) -> str:
        """How the expression is written."""
        return written(self.node)


Maker = Callable[[Call, Sequence[Fitted]], Fitted]


def unknown_column(name: str, known: Sequence[str]) -> WrongResult:
    """Return the refusal of a column that the rows do not have."""
    if list(known).count(name) > 1:
        return WrongResult(f"needs column {name!r}, of which the rows have several; rename the others")
    return WrongResult(
        f"needs column {name!r}, but the rows have only: {listed(known) or 'nothing'}{did_you_mean(name, known)}"
    )


def decoded(column: Fitted) -> Fitted:
    """Return a column without a dictionary: not every kernel takes one."""
    if not pa.types.is_dictionary(column.type):
        return column
    return computed(column.node, lambda values: values.cast(values.type.value_type), [column])


def computed(node: Node, compute: Compute, given: Sequence[Fitted]) -> Fitted:
    """Return a function of fitted expressions; what it makes of no rows tells its type, or that they do not fit."""
    values = [one.value for one in given]
    sample = [pa.array([], one.type) if one.constant is None else one.constant for one in given]
    try:
        made = compute(*sample)
    except (pa.ArrowException, TypeError) as failure:
        if any(pa.types.is_null(one.type) for one in given):  # rows that had nothing but nulls so far
            return nothing(node)
        raise misfit(node, given) from failure
    if isinstance(made, pa.Scalar):
        return Fitted(node, made.type, lambda _: made, made)
    if isinstance(compute, Kernel):
        call, options = compute.call, compute.options
        return Fitted(node, made.type, lambda batch: call([value(batch) for value in values], options))
    return Fitted(node, made.type, lambda batch: compute(*[value(batch) for value in values]))


@dataclass(frozen=True, slots=True)
class Kernel:
    """One of Arrow's kernels as a function of its values."""

    call: Callable[..., Values]
    options: pc.FunctionOptions | None = None

    def __call__(self, *values: Values) -> Values:
        """Compute the values."""
        return self.call(list(values), self.options)


def kernel(name: str, options: pc.FunctionOptions | None = None) -> Kernel:
    """Return one of Arrow's kernels."""
    return Kernel(pc.get_function(name).call, options)


def called(name: str) -> Maker:
    """Return the function that is one of Arrow's kernels, as it is."""
    call = kernel(name)
    return lambda node, given: computed(node, call, given)


def nothing(node: Node, kind: pa.DataType | None = None) -> Fitted:
    """Return an expression that is null for every row."""
    null = pa.scalar(None, kind or pa.null())
    return Fitted(node, null.type, lambda _: null, null)


def misfit(node: Node, given: Sequence[Fitted], advice: str | None = None) -> WrongResult:
    """Return the refusal of values whose types do not go together."""
    kinds = dict.fromkeys(f"{one.shown} is {article(one.type)}" for one in given)
    if advice is None and len({one.type for one in given}) > 1:
        column = next((one for one in given if isinstance(one.node, Reference)), given[0])
        other = next(one for one in given if one.type != column.type)
        advice = f'cast one of them, as in {castable(column)}.cast("{type_name(other.type)}")'
    return WrongResult(f"cannot compute {written(node)}: {' and '.join(kinds)}" + (f"; {advice}" if advice else ""))


def castable(one: Fitted) -> str:
    """Return an expression as a flow has it, if it is short."""
    return f'hw.col("{one.node.name}")' if isinstance(one.node, Reference) else "column"
