"""Dictionary columns with indices wide enough to be joined with those of other batches.

pandas numbers the categories of a DataFrame with as few bytes as possible, and Arrow keeps that. So two batches may
have more values together than a byte can number, and Arrow refuses to join them.
"""

from typing import Final

import pyarrow as pa

_ROOMY: Final = pa.int32()  # what Parquet and Arrow's own encoder use


def roomy_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with which rows of this one can be joined to any others; itself if they can be already."""
    if not any(_is_narrow(field.type) for field in schema):
        return schema
    return pa.schema([_roomy_field(field) for field in schema], schema.metadata)


def roomy(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows so that they can be joined to any others."""
    return batch.cast(roomy_schema(batch.schema))


def _is_narrow(kind: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(kind) and kind.index_type.bit_width < _ROOMY.bit_width)


def _roomy_field(field: pa.Field) -> pa.Field:
    kind = field.type
    return field.with_type(pa.dictionary(_ROOMY, kind.value_type, kind.ordered)) if _is_narrow(kind) else field
