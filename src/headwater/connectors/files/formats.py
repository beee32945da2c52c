"""Parses lines into rows: CSV, JSON lines and plain text.

A format parses many complete lines at once, with pyarrow, and says why a single line is invalid. It keeps no position
and reads no file.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import orjson
import pyarrow as pa
import pyarrow.csv

from headwater.connectors.columns import refuse_other_names
from headwater.connectors.files.json_lines import read_json_lines
from headwater.connectors.files.lines import Cut, cut_lines, cut_records
from headwater.connectors.files.small_json import FewRows
from headwater.connectors.times import as_texts, has_zone, with_times
from headwater.model.errors import SchemaMismatch
from headwater.model.quoting import brief, cause, quoted

# What pyarrow raises for invalid lines; anything else is a mistake of ours.
NOT_ROWS: Final = (pa.ArrowInvalid, UnicodeDecodeError)


class Format(Protocol):
    """One way in which rows are written as lines."""

    text_takes_all: bool
    has_header: bool  # a file begins with the names of its columns

    def cut(self, data: bytes, at_end: bool) -> Cut:
        """Find the complete lines."""
        ...

    def begin(self, data: bytes, known: Sequence[str], where: str, at_end: bool) -> int | None:
        """Read the header and return its length; None if it is not complete yet."""
        ...

    def parse(self, data: bytes, schema: pa.Schema | None, declared: bool) -> pa.Table:
        """Return the rows of complete lines; raise one of `NOT_ROWS` if a line is none."""
        ...

    def reason(self, line: bytes, schema: pa.Schema | None) -> str:
        """Say why this line is invalid."""
        ...


class CsvFormat:
    """Fields between delimiters, quoted where needed; an unquoted empty field is null."""

    text_takes_all = True

    def __init__(self, *, header: bool, delimiter: str, nulls: Sequence[str]) -> None:
        self.has_header, self._delimiter, self._nulls = header, delimiter, list(nulls)
        self._names: list[str] | None = None

    def cut(self, data: bytes, at_end: bool) -> Cut:
        """Find the complete records."""
        return cut_records(data, self._delimiter, at_end=at_end)

    def begin(self, data: bytes, known: Sequence[str], where: str, at_end: bool) -> int | None:
        """Read the header row or, if there is none, count the fields of the first record."""
        cut = self.cut(data, at_end)
        if not len(cut.ends):
            return None
        fields = self._fields(cut.line(data, 0))
        if not self.has_header:
            self._names = list(known) or [f"column_{index + 1}" for index in range(len(fields))]
            return 0
        self._names = [field.strip() for field in fields]
        refuse_other_names(self._names, known or self._names, where)
        return int(cut.ends[0])

    def parse(self, data: bytes, schema: pa.Schema | None, declared: bool) -> pa.Table:
        """Parse whole records, columns in the order of the schema."""
        assert self._names is not None
        str(data, "utf-8")
        return self._read(data, self._names, {} if schema is None else {field.name: field.type for field in schema})

    def reason(self, line: bytes, schema: pa.Schema | None) -> str:
        """Name the field that is missing, too much or of the wrong type."""
        assert self._names is not None
        problem = _not_utf8(line)
        if problem is not None:
            return problem
        fields = self._fields(line)
        if len(fields) != len(self._names):
            return f"has {len(fields)} fields where {len(self._names)} are expected"
        for name, value in zip(self._names, fields, strict=True):
            if schema is not None and not _fits(lambda kind: self._read(line, self._names, kind), schema.field(name)):
                return _misfit(value, schema.field(name))
        return "is not one row"

    def _fields(self, record: bytes) -> list[str]:
        try:
            table = self._read(record, None, {})
        except NOT_ROWS:
            return []
        strings = self._read(record, None, dict.fromkeys(table.column_names, pa.binary()))
        return [(column[0].as_py() or b"").decode(errors="replace") for column in strings.columns if len(column)]

    def _read(self, data: bytes, names: list[str] | None, types: dict[str, pa.DataType]) -> pa.Table:
        if not data.endswith(b"\n"):  # pyarrow misreads quotes in a last record without one
            data += b"\n"
        texts = {name: as_texts(kind) for name, kind in types.items()}
        try:
            found = pa.csv.read_csv(
                pa.py_buffer(data),
                read_options=pa.csv.ReadOptions(
                    use_threads=False,
                    block_size=len(data) + 1,
                    column_names=names,
                    autogenerate_column_names=names is None,
                ),
                parse_options=pa.csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=b'"' in data),
                convert_options=pa.csv.ConvertOptions(
                    column_types=texts,
                    include_columns=list(types) or None,
                    null_values=self._nulls,
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowNotImplementedError as failure:
            raise SchemaMismatch(f"a CSV file cannot hold a column of a declared type: {cause(failure)}") from failure
        return with_times(found, pa.schema(list(types.items())))


class JsonFormat:
    """One JSON object per line; a missing field is null."""

    text_takes_all = False
    has_header = False

    def __init__(self) -> None:
        self._few: FewRows | None = None

    def cut(self, data: bytes, at_end: bool) -> Cut:
        """Find the complete lines."""
        return cut_lines(data, at_end=at_end)

    def begin(self, data: bytes, known: Sequence[str], where: str, at_end: bool) -> int | None:
        """Return 0: there is no header."""
        return 0

    def parse(self, data: bytes, schema: pa.Schema | None, declared: bool) -> pa.Table:
        """Parse complete lines; fields outside a declared schema are ignored."""
        if declared and schema is not None:
            if self._few is None or self._few.schema is not schema:
                self._few = FewRows(schema)
            few = self._few.read(data)
            if few is not None:
                return few
        str(data, "utf-8")
        try:
            return read_json_lines(data, schema, infers=not declared)
        except pa.ArrowNotImplementedError as failure:
            raise SchemaMismatch(f"a JSON file cannot hold a column of a declared type: {cause(failure)}") from failure

    def reason(self, line: bytes, schema: pa.Schema | None) -> str:
        """Distinguish what is not JSON from what has the wrong type."""
        problem = _not_utf8(line)
        if problem is not None:
            return problem
        try:
            row: Any = orjson.loads(line)
        except orjson.JSONDecodeError as failure:
            return f"is not JSON: {failure}"
        if not isinstance(row, dict):
            return f"is a JSON {'null' if row is None else type(row).__name__}, not an object"
        for field in schema or ():
            if not _fits(lambda kind: self.parse(line, pa.schema(list(kind.items())), True), field):
                return _misfit(row.get(field.name), field)
        return "is not one row"


class TextFormat:
    """Every line, even a blank one, is a row of the one column `line`, without its newline."""

    text_takes_all = True
    has_header = False
    schema: Final = pa.schema([("line", pa.string())])

    def cut(self, data: bytes, at_end: bool) -> Cut:
        """Find the complete lines."""
        return cut_lines(data, at_end=at_end, keep_blank=True)

    def begin(self, data: bytes, known: Sequence[str], where: str, at_end: bool) -> int | None:
        """Return 0: there is no header."""
        return 0

    def parse(self, data: bytes, schema: pa.Schema | None, declared: bool) -> pa.Table:
        lines = str(data, "utf-8").split("\n")
        if data.endswith(b"\n"):
            lines.pop()
        if b"\r" in data:
            lines = [line.removesuffix("\r") for line in lines]
        return pa.table([pa.array(lines, pa.string())], schema=self.schema)

    def reason(self, line: bytes, schema: pa.Schema | None) -> str:
        """Only bytes that are not UTF-8 are invalid."""
        return _not_utf8(line) or "is not one row"


def _misfit(value: object, field: pa.Field) -> str:
    found = f"has {quoted(value)} in column {quoted(field.name)}"
    if pa.types.is_timestamp(field.type) and field.type.tz is None and isinstance(value, str) and has_zone(value):
        instant = f'pa.timestamp("{field.type.unit}", "UTC")'
        return f"{found}, an instant, and {field.type} would lose its zone; declare {instant}"
    return f"{found}, which is not {brief(field.type)}"


def _fits(parse: Callable[[dict[str, pa.DataType]], pa.Table], field: pa.Field) -> bool:
    try:
        parse({field.name: field.type})
    except NOT_ROWS:
        return False
    return True


def _not_utf8(line: bytes) -> str | None:
    try:
        str(line, "utf-8")
    except UnicodeDecodeError as failure:
        return f"is not UTF-8 text: byte 0x{line[failure.start]:02x} at {failure.start}"
    return None
