"""What expressions do with truth: comparing, combining, choosing. Null is neither true nor false, as in SQL."""

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.quoting import quoted
from headwater.operators.expressions.fitting import Fitted, Values, computed, kernel
from headwater.operators.expressions.scalar_types import common_type, constant_scalar
from headwater.operators.expressions.trees import Call, Constant, Node, written
from headwater.operators.functions import WrongResult
from headwater.operators.processors.spark_types import article

# What may raise on a row. Where something stands before it that may rule the row out, it is not computed for that row.
_RAISING: Final = frozenset(
    {"add", "subtract", "multiply", "divide", "remainder", "negate", "abs", "pow", "cast", "to_timestamp", "to_date"}
)
_ZONE: Final = re.compile(r"(Z|[+-]\d\d(:?\d\d)?)$")


def compared(node: Call, given: Sequence[Fitted]) -> Fitted:
    """Compare two values; a constant is brought to the type of a time beside it."""
    return computed(node, kernel(node.function), beside(node, given))


def beside(node: Call, given: Sequence[Fitted]) -> list[Fitted]:
    """Return two values with constants fitted to the times that they stand beside."""
    one, other = given
    fitting = [_as_wide(_like(node, one, other.type), other), _as_wide(_like(node, other, one.type), one)]
    kinds = [each.type for each in fitting]
    if all(map(pa.types.is_timestamp, kinds)) and len({kind.tz is None for kind in kinds}) == 2:
        raise WrongResult(
            f"cannot compute {written(node)}: {one.shown} is {article(one.type)} and {other.shown} "
            f"{article(other.type)}, of which one is an instant and the other has no zone; cast one of them to the "
            'other, as in hw.col("at").cast("timestamp"), which takes it as UTC'
        )
    return fitting


def _as_wide(one: Fitted, other: Fitted) -> Fitted:
    """Return a constant number in the type of the column beside it, if that holds it: else each call would cast it."""
    if one.constant is None or other.constant is not None or common_type([one.type, other.type]) != other.type:
        return one
    scalar = one.constant.cast(other.type)
    return Fitted(one.node, scalar.type, lambda _: scalar, scalar)


def _like(node: Call, one: Fitted, kind: pa.DataType) -> Fitted:
    """Return a constant as a value of the type of time beside it: a text is read, what has no zone is in UTC."""
    constant = one.constant
    if constant is None or not pa.types.is_temporal(kind):
        return one
    value = constant.as_py()
    if pa.types.is_timestamp(kind):
        value = _as_instant(value, kind)
    if isinstance(value, str) or pa.types.is_timestamp(kind):
        try:
            scalar = pa.scalar(value, pa.string()).cast(kind) if isinstance(value, str) else pa.scalar(value, kind)
        except (pa.ArrowException, TypeError, ValueError):
            raise WrongResult(
                f"cannot compute {written(node)}: {quoted(one.shown)} is not {article(kind)}; write it as in "
                "'2024-05-01 12:00:00'"
            ) from None
        return Fitted(one.node, scalar.type, lambda _: scalar, scalar)
    return one


def _as_instant(value: Any, kind: pa.TimestampType) -> Any:
    """Return a text or a time so that it can become a timestamp with or without a zone."""
    if isinstance(value, str) and kind.tz is not None and not _ZONE.search(value[10:]):
        return f"{value} 00:00:00Z" if len(value) == 10 else f"{value}Z"
    return value


def connected(node: Call, given: Sequence[Fitted]) -> Fitted:
    """Combine two truths; the second is not computed for rows of which the first alone decides, if it may raise."""
    for one in given:
        _must_be_true_or_false(node, one)
    call = kernel(f"{node.function}_kleene")
    one, other = given
    if not may_raise(other.node) or one.constant is not None:
        return computed(node, call, given)
    decides = pa.scalar(node.function == "or")

    def guarded(batch: pa.RecordBatch) -> Values:
        first = one.value(batch)
        open_still = pc.fill_null(pc.not_equal(first, decides), True)
        rows = np.flatnonzero(open_still.to_numpy(zero_copy_only=False))
        if len(rows) == len(first):
            return call(first, other.value(batch))
        if not len(rows):
            return first
        second = _whole(other.value(batch.take(pa.array(rows))), len(rows), pa.bool_())
        return call(first, pc.replace_with_mask(pa.repeat(decides, len(first)), open_still, second))

    return Fitted(node, pa.bool_(), guarded)


def negated(node: Call, given: Sequence[Fitted]) -> Fitted:
    """Turn true to false and false to true."""
    _must_be_true_or_false(node, given[0])
    return computed(node, kernel("invert"), given)


def _must_be_true_or_false(node: Call, one: Fitted) -> None:
    if not (pa.types.is_boolean(one.type) or pa.types.is_null(one.type)):
        raise WrongResult(
            f"cannot compute {written(node)}: {one.shown} is {article(one.type)}, not a truth value; compare it with "
            "something, as in column > 0, and put brackets around each comparison"
        )


def is_in(node: Call, given: Sequence[Fitted]) -> Fitted:
    """Whether a value is one of several; null for null, and for what is not found if null is among them."""
    one, values = given[0], node.options[0]
    probes = [_probe(one, value) for value in values if value is not None]
    kind = common_type([one.type, *(probe.type for probe in probes)])
    assert kind is not None, "what can be compared has a common type"
    wanted = pc.SetLookupOptions(value_set=pa.array([probe.as_py() for probe in probes], kind))
    answers_no = len(probes) == len(values)

    def found(rows: Values) -> Values:
        truth = pc.call_function("is_in", [rows.cast(kind)], wanted)
        return pc.if_else(pc.is_valid(rows) if answers_no else truth, truth, pa.scalar(None, pa.bool_()))

    return computed(node, found, given)


def _probe(one: Fitted, value: Any) -> pa.Scalar:
    """Return a value as it is compared with an expression, or say why it cannot be."""
    scalar = constant_scalar(value)
    equal = Call("equal", (one.node, Constant(value)))
    given = beside(equal, [one, Fitted(equal.given[1], scalar.type, lambda _: scalar, scalar)])
    computed(equal, kernel("equal"), given)
    constant = given[1].constant
    assert constant is not None
    return constant


def chosen(node: Call, given: Sequence[Fitted]) -> Fitted:
    """The value of the first case whose condition is true; a value is computed for the rows of its case only."""
    conditions, values = list(given[: len(given) // 2 * 2 : 2]), list(given[1::2])
    for condition in conditions:
        _must_be_true_or_false(node, condition)
    if len(given) % 2:
        values.append(given[-1])
    kind = common_type(value.type for value in values)
    if kind is None:
        shown = ", ".join(f"{value.shown} is {article(value.type)}" for value in values)
        raise WrongResult(f"cannot compute {written(node)}: its cases have no common type ({shown}); cast them")
    cases = _Cases(conditions, values, kind)
    is_simple = not any(isinstance(one.node, Call) for one in values) and not any(map(_raises, conditions))
    return Fitted(node, kind, cases.at_once if is_simple else cases.one_by_one)


def _raises(one: Fitted) -> bool:
    return may_raise(one.node)


class _Cases:
    """Conditions and their values; one value more than conditions if there is one for all other rows."""

    def __init__(self, conditions: Sequence[Fitted], values: Sequence[Fitted], kind: pa.DataType) -> None:
        self._conditions, self._values, self._kind = conditions, values, kind

    def at_once(self, batch: pa.RecordBatch) -> Values:
        """Compute all values of all rows."""
        truths = [_whole(one.value(batch), batch.num_rows, pa.bool_()) for one in self._conditions]
        values = [_whole(one.value(batch), batch.num_rows, self._kind) for one in self._values]
        return pc.case_when(pc.make_struct(*truths), *values)

    def one_by_one(self, batch: pa.RecordBatch) -> Values:
        """Compute a case for the rows alone for which none before it was true."""
        rest = np.arange(batch.num_rows)
        rows, made = [], []
        for condition, value in zip(self._conditions, self._values, strict=False):
            left = batch.take(pa.array(rest))
            truth = pc.fill_null(_whole(condition.value(left), len(rest), pa.bool_()), False)
            is_true = truth.to_numpy(zero_copy_only=False)
            rows.append(rest[is_true])
            made.append(_whole(value.value(left.filter(truth)), len(rows[-1]), self._kind))
            rest = rest[~is_true]
        has_else = len(self._values) > len(self._conditions)
        rows.append(rest)
        other = self._values[-1].value(batch.take(pa.array(rest))) if has_else else pa.scalar(None)
        made.append(_whole(other, len(rest), self._kind))
        return pa.concat_arrays(made).take(pa.array(np.argsort(np.concatenate(rows))))


def first_valid(node: Call, given: Sequence[Fitted]) -> Fitted:
    """The first value that is not null."""
    return computed(node, kernel("coalesce"), given)


def may_raise(node: Node) -> bool:
    """Whether there may be rows for which an expression cannot be computed."""
    return isinstance(node, Call) and (node.function in _RAISING or any(map(may_raise, node.given)))


def _whole(values: Values, rows: int, kind: pa.DataType) -> pa.Array:
    """Return values of this type, one for each row."""
    if isinstance(values, pa.Scalar):
        return pa.repeat(values.cast(kind), rows)
    return values if values.type == kind else values.cast(kind)
