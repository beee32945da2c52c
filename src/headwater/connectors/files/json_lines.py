"""Parses many JSON lines with Arrow's reader, protected from input that it cannot handle."""

import re
from typing import Final

import pyarrow as pa
import pyarrow.json

from headwater.connectors.times import as_texts, has_times, with_times

# Arrow's reader (seen with 26.0) ends the whole process on `null` where the first object should be, and takes it for a
# row of nulls further on. Two patterns: one that begins with a plain byte is searched for 20 times as fast.
_FIRST_IS_NULL: Final = re.compile(rb"\s*null")
_NULL_LINE: Final = re.compile(rb"\n[ \t\r]*null")


def read_json_lines(data: bytes | pa.Buffer, schema: pa.Schema | None, *, infers: bool) -> pa.Table:
    """Return the rows; fields outside the schema are ignored or, with `infers`, inferred."""
    text = memoryview(data)
    if _FIRST_IS_NULL.match(text) or _NULL_LINE.search(text):
        raise pa.ArrowInvalid("a line is a JSON null, not an object")
    buffer = pa.py_buffer(data) if isinstance(data, bytes) else data
    wanted = pa.schema([]) if schema is None else schema
    texts = pa.schema([field.with_type(as_texts(field.type)) for field in wanted])
    found = _read(buffer, texts, infers=infers)
    if infers and any(has_times(kind) for kind in found.schema.types):  # inferred, and their zones are dropped
        found = _read(buffer, pa.schema([field.with_type(as_texts(field.type)) for field in found.schema]), infers=True)
    return with_times(found, wanted)


def _read(buffer: pa.Buffer, schema: pa.Schema, *, infers: bool) -> pa.Table:
    return pa.json.read_json(
        buffer,
        read_options=pa.json.ReadOptions(use_threads=False, block_size=buffer.size + 1),
        parse_options=pa.json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="infer" if infers else "ignore"
        ),
    )
