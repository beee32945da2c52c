"""Computing expressions over batches of rows."""

import pyarrow as pa

from headwater.model.quoting import cause
from headwater.operators.expressions.column_functions import CATALOGUE
from headwater.operators.expressions.fitting import Fitted, decoded, unknown_column
from headwater.operators.expressions.scalar_types import constant_scalar
from headwater.operators.expressions.trees import Call, Column, Constant, Node, Reference, written
from headwater.operators.functions import WrongResult


class Evaluation:
    """Computes an expression over batches; fits it anew whenever their columns change."""

    def __init__(self, column: Column) -> None:
        """Keep the expression."""
        self._node = column.node
        self._schema: pa.Schema | None = None
        self._fitted: Fitted | None = None

    def column(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the value of every row."""
        schema = batch.schema
        if self._fitted is None or not schema.equals(self._schema):
            self._schema, self._fitted = schema, fitted(self._node, schema)
        try:
            made = self._fitted.value(batch)
        except pa.ArrowException as failure:
            raise WrongResult(f"{written(self._node)}: {cause(failure)}") from failure
        if isinstance(made, pa.Scalar):
            return pa.repeat(made, batch.num_rows)
        return made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made


def fitted(node: Node, schema: pa.Schema) -> Fitted:
    """Return an expression fitted to rows of these columns, or say why it does not fit."""
    match node:
        case Reference(name):
            return _reference(node, name, schema)
        case Constant(value):
            scalar = constant_scalar(value)
            return Fitted(node, scalar.type, lambda _: scalar, scalar)
        case Call(function, given):
            return CATALOGUE[function](node, [fitted(one, schema) for one in given])


def type_of(column: Column, schema: pa.Schema) -> pa.DataType:
    """Return the type of an expression over rows of these columns."""
    return fitted(column.node, schema).type


def _reference(node: Node, name: str, schema: pa.Schema) -> Fitted:
    if schema.names.count(name) == 1:
        index = schema.get_field_index(name)
        return decoded(Fitted(node, schema.field(index).type, lambda batch: batch.column(index)))
    first, *path = name.split(".")
    if not path or first not in schema.names:
        raise unknown_column(name, schema.names)
    found = _reference(Reference(first), first, schema)
    for part in path:
        found = CATALOGUE["field"](Call("field", (found.node,), (part,)), [found])
    return Fitted(node, found.type, found.value)
