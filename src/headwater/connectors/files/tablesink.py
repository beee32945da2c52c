"""Writes Parquet files, exactly once.

Rows go to `part-00000001.parquet`, `part-00000002.parquet` and so on, each full but the last. A write that finds the
last part not yet full writes a longer one: it is made under a hidden name, the old one is renamed
(`_part-00000001.500rows`), and the new one takes its place. Since the old one is kept, this can be undone: until the
engine has committed the new position, opening at the old one restores the old part. Readers skip names that begin with
an underscore, so they never see a row twice.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.connectors.columns import refuse_other_names
from headwater.connectors.files.files import no_access
from headwater.connectors.files.linesink import MODES, OVERWRITING, CutFile, Mode, written_by_another
from headwater.connectors.marks import is_anothers, mark, new_writer
from headwater.dataflow.connectors import Position, Resource, ResourceKind, SinkWriter
from headwater.model.dictionaries import roomy, roomy_schema
from headwater.model.errors import ConnectorError, FlowError, SchemaMismatch
from headwater.model.quoting import brief, listed, quoted

ROWS_PER_FILE: Final = 50_000  # the last part is written anew with every write until it is full
FIRST_PART: Final = "part-00000001.parquet"
_PART: Final = re.compile(r"part-(\d{8})\.parquet")
_ASIDE: Final = re.compile(r"_part-(\d{8})\.(\d+)rows")
_UNFINISHED: Final = re.compile(r"_part-\d{8}\.unfinished")


@dataclass(frozen=True, kw_only=True)
class ParquetSink:
    """A directory of Parquet files."""

    kind: ClassVar[str] = "parquet"
    guarantee: ClassVar[str] = "exactly-once"
    blocking: ClassVar[bool] = False
    is_tabular: ClassVar[bool] = True

    directory: str
    mode: Mode = "error"
    rows_per_file: int = ROWS_PER_FILE
    sync: bool = False

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise FlowError(f"mode={quoted(self.mode)} is not known; give one of {listed(MODES)}")
        if self.rows_per_file < 1:
            raise FlowError(f"rows_per_file={self.rows_per_file} must be at least 1")

    @property
    def position_settings(self) -> Mapping[str, object]:
        """The directory: a position is a state of its files."""
        return {"directory": self.directory}

    def resources(self, position: Position | None) -> tuple[Resource, ...]:
        """The directory by its real path."""
        advice = "give each a directory of its own"
        path = os.path.realpath(self.directory)
        return (Resource(kind=ResourceKind.DIRECTORY, name=path, harm=OVERWRITING, advice=advice),)

    def open(self, position: Position | None) -> SinkWriter:
        """Restore the directory to the position, or begin it as `mode` says."""
        parts = _Parts(self.directory, sync=self.sync)
        if position is None:
            number, writer = _begin(parts, self.mode), new_writer()
            mark(self.directory, writer)
            return ParquetWriter(parts, self.rows_per_file, number, writer)
        parts.go_on(position["parts"], position["rows"], position.get("writer"))
        schema = None
        if position["schema"] is not None:
            schema = roomy_schema(pa.ipc.read_schema(pa.py_buffer(position["schema"])))
        tail = parts.read(position["parts"], position["rows"]).cast(schema) if position["rows"] else None
        return ParquetWriter(parts, self.rows_per_file, position["parts"], position.get("writer"), schema, tail)


def _begin(parts: "_Parts", mode: Mode) -> int:
    """Return the part number after which a new app writes."""
    numbers = parts.numbers()
    if numbers and mode == "error":
        raise ConnectorError(
            f"{parts.directory} already holds {parts.name(numbers[0])}; "
            'delete it, or pass mode="append" or mode="overwrite"'
        )
    kept = max(numbers, default=0) if mode == "append" else 0
    parts.restore(kept, 0)
    return kept


class ParquetWriter:
    """An opened directory. The last part is kept in memory until it is full."""

    def __init__(
        self,
        parts: "_Parts",
        rows_per_file: int,
        number: int,
        writer: str | None,
        schema: pa.Schema | None = None,
        tail: pa.Table | None = None,
    ) -> None:
        """Go on behind part `number`, or inside it if it has a tail."""
        self._parts, self._rows_per_file, self._number, self._writer = parts, rows_per_file, number, writer
        self._tail, self._schema = tail, schema
        self._aside: str | None = None  # where the last part was put before the latest write

    def write(self, batches: list[pa.RecordBatch]) -> Position:
        """Write the rows and return the position after them."""
        filled = [roomy(batch) for batch in batches if batch.num_rows]
        if filled:
            self._refuse_other_columns(filled)
            self._drop_aside()  # the previous write is committed, so its undo is not needed
            try:
                self._add(pa.Table.from_batches(filled).replace_schema_metadata(None))
            except ConnectorError:
                self._parts.restore(self._number, self._rows_in_tail())
                self._aside = None
                raise
        # The schema as it came: read back from a file, some types differ (seconds become milliseconds).
        schema = None if self._schema is None else self._schema.serialize().to_pybytes()
        return {"parts": self._number, "rows": self._rows_in_tail(), "schema": schema, "writer": self._writer}

    def close(self) -> None:
        """Do nothing: no file is open between writes."""

    def _rows_in_tail(self) -> int:
        return 0 if self._tail is None else self._tail.num_rows

    def _drop_aside(self) -> None:
        if self._aside is not None:
            os.unlink(self._aside)
            self._aside = None

    def _add(self, rows: pa.Table) -> None:
        """Write the last part anew with as many of the rows as fit, then further parts for the rest."""
        before = self._rows_in_tail()
        number = self._number if before else self._number + 1
        waiting = rows if self._tail is None else pa.concat_tables([self._tail, rows])
        while True:
            part, waiting = waiting.slice(0, self._rows_per_file), waiting.slice(self._rows_per_file)
            self._aside = self._parts.put(number, part, before) or self._aside
            if waiting.num_rows == 0:
                break
            number, before = number + 1, 0
        self._number = number
        self._tail = part.combine_chunks() if part.num_rows < self._rows_per_file else None

    def _refuse_other_columns(self, batches: list[pa.RecordBatch]) -> None:
        where = f"rows for {self._parts.directory}"
        for batch in batches:
            schema = batch.schema.remove_metadata()
            if self._schema is None:
                refuse_other_names(schema.names, self._parts.columns(self._number) or schema.names, where)
                self._schema = schema
            elif not schema.equals(self._schema):
                raise SchemaMismatch(
                    f"{self._parts.directory}: the files have columns {_shown(self._schema)}, but rows came with "
                    f"{_shown(schema)}; select(...) the same columns for every row"
                )


def _shown(schema: pa.Schema) -> str:
    return listed(f"{brief(field.name)}: {brief(field.type)}" for field in schema)


class _Parts:
    """The files of a directory by number."""

    def __init__(self, directory: str, *, sync: bool) -> None:
        self.directory, self._sync = directory, sync
        try:
            os.makedirs(directory, exist_ok=True)
            os.listdir(directory)
        except FileExistsError as failure:
            raise ConnectorError(f"{directory} is a file; give a directory for the Parquet files") from failure
        except OSError as failure:
            raise no_access(directory, failure, "written") from failure

    def name(self, number: int) -> str:
        return f"part-{number:08d}.parquet"

    def numbers(self) -> list[int]:
        """Return the numbers of the existing parts."""
        found = (_PART.fullmatch(name) for name in os.listdir(self.directory))
        return sorted(int(match[1]) for match in found if match is not None)

    def put(self, number: int, rows: pa.Table, rows_before: int) -> str | None:
        """Write the rows as this part; return the new path of the old part that had the first of them, if any."""
        stream = pa.BufferOutputStream()
        pq.write_table(rows, stream)
        unfinished, place = self._path(f"_part-{number:08d}.unfinished"), self._path(self.name(number))
        file = CutFile(unfinished, sync=self._sync)
        try:
            file.cut(0)
            file.write(stream.getvalue(), 0)
        finally:
            file.close()
        aside = self._path(f"_part-{number:08d}.{rows_before}rows") if rows_before else None
        if aside is not None:
            os.rename(place, aside)
        os.rename(unfinished, place)
        if self._sync:
            self._sync_directory()
        return aside

    def columns(self, number: int) -> list[str] | None:
        """Return the columns of a part, if it is there."""
        path = self._path(self.name(number))
        return list(pq.read_schema(path).names) if os.path.exists(path) else None

    def read(self, number: int, rows: int) -> pa.Table:
        """Return the rows of a part, which has to have as many as were committed."""
        path = self._path(self.name(number))
        try:
            table = pq.read_table(path, partitioning=None)
        except (OSError, pa.ArrowInvalid) as failure:
            raise ConnectorError(
                f"{path} holds {rows} committed rows but cannot be read: {failure}; restore it, or start the app afresh"
            ) from failure
        if table.num_rows != rows:
            raise ConnectorError(
                f"{path} has {table.num_rows} rows, but {rows} are committed; restore it, or start the app afresh"
            )
        return table

    def go_on(self, parts: int, rows: int, writer: str | None) -> None:
        """Undo what a writer has not committed, or raise if what lies behind the position is of another."""
        if max(self.numbers(), default=0) > parts and is_anothers(self.directory, writer):
            raise ConnectorError(written_by_another(self.directory))
        self.restore(parts, rows)
        if writer is not None:
            mark(self.directory, writer)

    def restore(self, parts: int, rows: int) -> None:
        """Undo what was written after the position: restore its last part, remove all later ones."""
        for name in sorted(os.listdir(self.directory)):
            aside, part = _ASIDE.fullmatch(name), _PART.fullmatch(name)
            if aside is not None and (int(aside[1]), int(aside[2])) == (parts, rows):
                os.replace(self._path(name), self._path(self.name(parts)))
            elif aside is not None or _UNFINISHED.fullmatch(name) or (part is not None and int(part[1]) > parts):
                os.unlink(self._path(name))

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def _sync_directory(self) -> None:
        directory = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
