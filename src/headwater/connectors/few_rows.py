"""A few JSON lines at a time, without Arrow's reader.

Arrow's JSON reader hands every block to threads of its own, also if it is told not to: 0.3 ms for a single line, which
a row that comes alone has to wait for. Here lines are decoded on the calling thread. What is not plainly the same to
both, this leaves to Arrow: `None` says nothing about the lines.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any, Final

import orjson
import pyarrow as pa

FEW_ROWS: Final = 32  # more are parsed faster by Arrow
EXACT_INT: Final = 1 << 53  # up to here a float holds every whole number
INT64: Final = 1 << 63


def few_rows(data: bytes, schema: pa.Schema) -> pa.Table | None:
    """Return the rows of these lines in the declared columns, just as Arrow's reader would; None to have it asked."""
    if data.count(b"\n", 0, -1) >= FEW_ROWS or b"\\" in data:  # an escape may hide a name
        return None
    lines = data.removesuffix(b"\n").split(b"\n")
    try:
        rows = [orjson.loads(line) for line in lines]
        columns = [_column(field, rows, data) for field in schema]
    except (orjson.JSONDecodeError, pa.ArrowException, _Unsure):
        return None
    return pa.Table.from_arrays(columns, schema=schema)


class _Unsure(Exception):
    """Arrow's reader has to say."""


def _column(field: pa.Field, rows: Sequence[Any], data: bytes) -> pa.Array:
    kinds = _PLAIN.get(field.type.id)
    if kinds is None or data.count(b'"%b"' % field.name.encode()) > len(rows):  # perhaps twice in one row
        raise _Unsure
    values = [row.get(field.name) for row in rows if type(row) is dict]
    if len(values) != len(rows) or not all(map(kinds, values, repeat(data))):
        raise _Unsure
    if pa.types.is_timestamp(field.type):
        return pa.array(values, pa.string()).cast(field.type)
    return pa.array(values, field.type)


def _is_text(value: Any, data: bytes) -> bool:
    return value is None or type(value) is str


def _is_flag(value: Any, data: bytes) -> bool:
    return value is None or type(value) is bool


def _is_whole(value: Any, data: bytes) -> bool:
    return value is None or (type(value) is int and -INT64 <= value < INT64)


def _is_number(value: Any, data: bytes) -> bool:
    """Whether it is one for sure; a zero may have been written with a sign, which a float keeps."""
    if type(value) is int:
        return abs(value) <= EXACT_INT and (value != 0 or b"-0" not in data)
    return value is None or type(value) is float


_PLAIN: Final[Mapping[int, Callable[[Any, bytes], bool]]] = {
    pa.string().id: _is_text,
    pa.timestamp("us").id: _is_text,
    pa.bool_().id: _is_flag,
    pa.int64().id: _is_whole,
    pa.float64().id: _is_number,
}
