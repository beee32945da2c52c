"""Taking a struct or a list apart."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.quoting import listed
from headwater.model.suggestions import did_you_mean
from headwater.operators.expressions.fitting import Fitted, Values, computed, kernel
from headwater.operators.expressions.trees import Call
from headwater.operators.functions import WrongResult
from headwater.operators.processors.spark_types import article


def field(node: Call, given: Sequence[Fitted]) -> Fitted:
    """A field of a struct."""
    (one,), (name,) = given, node.options
    if not pa.types.is_struct(one.type):
        raise WrongResult(
            f"needs column {one.shown + '.' + name!r}, but {one.shown} is {article(one.type)} without fields"
        )
    names = [each.name for each in one.type]
    if name not in names:
        raise WrongResult(
            f"needs field {name!r} of {one.shown}, which has only: {listed(names)}{did_you_mean(name, names)}"
        )
    return computed(node, lambda values: pc.struct_field(values, [names.index(name)]), given)


def item(node: Call, given: Sequence[Fitted]) -> Fitted:
    """An item of a list, from 0; null where a list is shorter."""
    (one,), (place,) = given, node.options
    if not (pa.types.is_list(one.type) or pa.types.is_large_list(one.type)):
        raise WrongResult(f"takes item {place} of {one.shown}, which is {article(one.type)} and no list")
    if place < 0:
        raise WrongResult(f"takes item {place} of {one.shown}; items are counted from 0")
    return computed(node, lambda values: _item(values, place), given)


def _item(values: Values, place: int) -> Values:
    if isinstance(values, pa.Scalar):
        return _item(pa.array([values.as_py()], values.type), place)[0]
    long_enough = pc.fill_null(pc.greater(pc.list_value_length(values), place), False)
    found = pc.list_element(values.filter(long_enough), place)
    return pc.replace_with_mask(pa.nulls(len(values), values.type.value_type), long_enough, found)


def size(node: Call, given: Sequence[Fitted]) -> Fitted:
    """How many items a list has."""
    return computed(node, kernel("list_value_length"), given)
