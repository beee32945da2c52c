"""Parses a few JSON lines without Arrow's reader.

Arrow's JSON reader hands every block to threads of its own, even if told not to: 0.3 ms for a single line, by which a
row that comes alone is delayed. Here lines are decoded on the calling thread. Lines that Arrow might read differently
are left to it: then `None` is returned.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import orjson
import pyarrow as pa

from headwater.connectors.times import as_texts, times_of

FEW_ROWS: Final = 32  # more are parsed faster by Arrow
EXACT_INT: Final = 1 << 53  # up to here a float holds every whole number
INT64: Final = 1 << 63


class FewRows:
    """A reader of lines in these columns."""

    def __init__(self, schema: pa.Schema) -> None:
        """Inspect the columns once: with few rows, that would take longer than parsing."""
        self.schema = schema
        self._is_plain = len(set(schema.names)) == len(schema.names)
        self._is_plain &= all(field.nullable and field.type.id in _PLAIN for field in schema)
        self._columns = [(field.name, b'"%b"' % field.name.encode(), _PLAIN.get(field.type.id)) for field in schema]
        self._struct = pa.struct([(field.name, as_texts(field.type)) for field in schema])
        self._instants = [nth for nth, field in enumerate(schema) if pa.types.is_timestamp(field.type)]

    def read(self, data: bytes) -> pa.Table | None:
        """Return the rows of these lines, exactly as Arrow's reader would; None if that has to read them."""
        if not self._is_plain or data.count(b"\n", 0, -1) >= FEW_ROWS or b"\\" in data:  # an escape may hide a name
            return None
        try:
            rows = [orjson.loads(line) for line in data.removesuffix(b"\n").split(b"\n")]
            if not self._are_sure(rows, data):
                return None
            columns = pa.array(rows, self._struct).flatten()
            for nth in self._instants:
                columns[nth] = times_of(columns[nth], self.schema.field(nth).type)
        except (orjson.JSONDecodeError, pa.ArrowException):
            return None
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _are_sure(self, rows: Sequence[Any], data: bytes) -> bool:
        """Whether Arrow's reader would take these values for the same."""
        if any(type(row) is not dict for row in rows):
            return False
        for name, quoted, is_plain in self._columns:
            named = data.count(quoted)
            if named:
                values = [row[name] for row in rows if name in row]
                if named > len(values) or not (is_plain and all(is_plain(value, data) for value in values)):
                    return False  # a name may be in one row twice, or a value not be what it seems
        return True


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
