"""The messages at both ends of PRED: what it makes of a line, and what it publishes.

A parsed message has the attributes that the models see, each a column, and all that is only passed on as the two texts
that the benchmark passes on: `observed`, the attributes, and `meta`, all other fields, both joined by commas.
"""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from .analytics import Analytics
from .datasets import MESSAGE_ID, TIMESTAMP
from .models import CLASSES
from .parsing import Parse
from .relative_errors import MODEL, SENSOR, VALUE

META: Final = "meta"
OBSERVED: Final = "observed"

PUBLISHED_SCHEMA: Final = pa.schema(
    [
        (MESSAGE_ID, pa.int64()),
        (SENSOR, pa.string()),
        (TIMESTAMP, pa.int64()),
        ("kind", pa.string()),  # DTC or MLR: who says it
        (MODEL, pa.string()),
        (VALUE, pa.float64()),  # the number of the class, or the error in proportion to the average
        ("message", pa.string()),
    ]
)


@dataclass(frozen=True)
class ParseMessage:
    """Makes one row of each line."""

    analytics: Analytics

    @property
    def schema(self) -> pa.Schema:
        """The columns of a row."""
        begin = [(MESSAGE_ID, pa.int64()), (SENSOR, pa.string()), (TIMESTAMP, pa.int64())]
        texts = [(META, pa.string()), (OBSERVED, pa.string())]
        return pa.schema([*begin, *texts, *((name, pa.float64()) for name in self.analytics.attributes)])

    def __call__(self, lines: pa.RecordBatch) -> pa.RecordBatch:
        """Parse a batch of lines."""
        what = self.analytics
        fields = Parse(what.dataset)(lines)
        columns = [
            fields[MESSAGE_ID],
            fields[what.dataset.id_field],
            fields[TIMESTAMP],
            _joined(fields, what.meta),
            _joined(fields, what.attributes),
            *(fields[name] for name in what.attributes),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def published(answers: pa.RecordBatch) -> pa.RecordBatch:
    """Write each answer as the benchmark does: `id,meta,DTC,obsVal:..,RES:class` or `id,meta,MLR,obsVal:..,ERROR:x`."""
    of_tree = pc.match_substring(answers[MODEL], "-DTC-")
    value = pc.if_else(pc.is_nan(answers[VALUE]), pa.scalar(None, pa.float64()), answers[VALUE])
    kind = pc.if_else(of_tree, "DTC", "MLR")
    result = pc.if_else(
        of_tree,
        pc.binary_join_element_wise("RES:", _class_names(value, of_tree), "", **_OR_NULL),
        pc.binary_join_element_wise("ERROR:", value.cast(pa.string()), "", **_OR_NULL),
    )
    observed = pc.binary_join_element_wise("obsVal:", answers[OBSERVED], "")
    identity = answers[MESSAGE_ID].cast(pa.string())
    message = pc.binary_join_element_wise(identity, answers[META], kind, observed, result, ",")
    columns = [answers[MESSAGE_ID], answers[SENSOR], answers[TIMESTAMP], kind, answers[MODEL], value, message]
    return pa.RecordBatch.from_arrays(columns, schema=PUBLISHED_SCHEMA)


_OR_NULL: Final = {"null_handling": "replace", "null_replacement": "null"}
_CLASS_NAMES: Final = pa.array(CLASSES)


def _class_names(values: pa.Array, of_tree: pa.Array) -> pa.Array:
    numbers = pc.if_else(of_tree, values, pa.scalar(None, pa.float64()))
    return _CLASS_NAMES.take(numbers.cast(pa.int8()))


def _joined(fields: pa.RecordBatch, names: tuple[str, ...]) -> pa.Array:
    texts = [fields[name].cast(pa.string()) for name in names]
    return pc.binary_join_element_wise(*texts, ",", **_OR_NULL)
