"""What expressions do with numbers: Spark's arithmetic, checked.

A quotient is a fraction, a remainder has the sign of what is divided, halves are rounded away from zero, and the
logarithm of what has none is null. What overflows, and a division by zero, is an error of its row.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.operators.expressions.fitting import Compute, Fitted, Maker, Values, computed, kernel, misfit
from headwater.operators.expressions.logic_functions import beside
from headwater.operators.expressions.trees import Call

_DOUBLE: Final = pa.float64()


def added(node: Call, given: Sequence[Fitted]) -> Fitted:
    """Add, or join texts."""
    if all(pa.types.is_string(one.type) or pa.types.is_large_string(one.type) for one in given):
        return computed(node, lambda one, other: pc.binary_join_element_wise(one, other, ""), given)
    return computed(node, kernel("add_checked"), given)


def subtracted(node: Call, given: Sequence[Fitted]) -> Fitted:
    """Subtract; of two instants this is a span of time."""
    return computed(node, kernel("subtract_checked"), beside(node, given))


def divided(node: Call, given: Sequence[Fitted]) -> Fitted:
    """Divide; whole numbers are made fractions first."""
    return computed(node, _on_fractions(kernel("divide_checked")), given)


def remainder(node: Call, given: Sequence[Fitted]) -> Fitted:
    """What a division leaves, with the sign of what is divided."""
    return computed(node, _remainder, given)


def _remainder(one: Values, other: Values) -> Values:
    if pa.types.is_floating(one.type) or pa.types.is_floating(other.type):
        return _float_remainder(*_as_arrays(one.cast(_DOUBLE), other.cast(_DOUBLE)))
    times = kernel("divide_checked")(one, other)  # cut off towards zero
    return kernel("subtract_checked")(one, kernel("multiply_checked")(times, other))


def _as_arrays(one: Values, other: Values) -> tuple[Values, Values]:
    rows = next((len(each) for each in (one, other) if isinstance(each, pa.Array)), 1)
    whole = [pa.repeat(each, rows) if isinstance(each, pa.Scalar) else each for each in (one, other)]
    return whole[0], whole[1]


def _float_remainder(one: pa.Array, other: pa.Array) -> pa.Array:
    kernel("divide_checked")(one, other)  # raises for zero, as other divisions do
    made = np.fmod(one.to_numpy(zero_copy_only=False), other.to_numpy(zero_copy_only=False))
    return pc.if_else(pc.and_(one.is_valid(), other.is_valid()), pa.array(made), None)


def doubles(name: str) -> Maker:
    """Return a function of numbers that are made doubles first, and which gives doubles."""
    call = kernel(name)

    def compute(*values: Values) -> Values:
        return call(*[value.cast(_DOUBLE) for value in values])

    return lambda node, given: computed(node, compute, _numbers_of(node, given))


def logarithm(name: str) -> Maker:
    """Return a logarithm, which is null for what has none."""
    call = kernel(name)

    def compute(value: Values) -> Values:
        number = value.cast(_DOUBLE)
        has_one = pc.greater(number, -1.0 if name == "log1p" else 0.0)
        return call(pc.if_else(has_one, number, pa.scalar(None, _DOUBLE)))

    return lambda node, given: computed(node, compute, _numbers_of(node, given))


def rounded(mode: str) -> Maker:
    """Return a rounding to so many digits."""

    def make(node: Call, given: Sequence[Fitted]) -> Fitted:
        (digits,) = node.options
        options = pc.RoundOptions(ndigits=digits, round_mode=mode)
        return computed(node, kernel("round", options), given)

    return make


def whole(name: str) -> Maker:
    """Return a rounding to whole numbers, which are bigints as in Spark."""
    call = kernel(name)

    def compute(value: Values) -> Values:
        return value if pa.types.is_integer(value.type) else call(value).cast(pa.int64())

    return lambda node, given: computed(node, compute, given)


def scaled(factor: float) -> Maker:
    """Return a multiplication with a fixed factor."""

    def compute(value: Values) -> Values:
        return pc.multiply(value.cast(_DOUBLE), factor)

    return lambda node, given: computed(node, compute, given)


def is_nan(node: Call, given: Sequence[Fitted]) -> Fitted:
    """Whether a number is NaN; null is not."""
    return computed(node, lambda value: pc.fill_null(pc.is_nan(value), False), given)


def extreme(name: str) -> Maker:
    """Return the largest or smallest of several values, nulls left out."""
    return lambda node, given: computed(node, kernel(name, pc.ElementWiseAggregateOptions(skip_nulls=True)), given)


def _on_fractions(call: Compute) -> Callable[..., Values]:
    def compute(*values: Values) -> Values:
        return call(*[value.cast(_DOUBLE) if pa.types.is_integer(value.type) else value for value in values])

    return compute


def _numbers_of(node: Call, given: Sequence[Fitted]) -> Sequence[Fitted]:
    """Return what is given if it is numbers: a text becomes one by a cast only, which is for the user to write."""
    for one in given:
        is_number = pa.types.is_integer(one.type) or pa.types.is_floating(one.type) or pa.types.is_decimal(one.type)
        if not is_number and not pa.types.is_null(one.type):
            raise misfit(node, given)
    return given
