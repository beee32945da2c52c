"""Reads Parquet files, one row group after the other.

A position is a file's name, a row group and the number of its rows that are done. A file whose columns differ from the
first one's is refused; files must come into a followed directory complete, by renaming.
"""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.connectors.columns import KnownColumns, refuse_other_names
from headwater.connectors.files.files import AFRESH, FileList, FileNews, no_access
from headwater.connectors.reading import Piece, Waiting
from headwater.dataflow.connectors import Position
from headwater.model.errors import ConnectorError, SchemaMismatch
from headwater.model.quoting import brief, cause, quoted

BATCH_ROWS: Final = 16_384
# What pyarrow raises for bytes that are not a valid Parquet file; names and texts in it may not be UTF-8.
_DAMAGED: Final = (OSError, pa.ArrowException, UnicodeDecodeError)


class _Rest:
    """The rest of one file, from a position on."""

    def __init__(self, path: str, known: KnownColumns, turn: int, group: int, row: int) -> None:
        self.path, self.turn = path, turn
        self._group, self._row = group, row
        try:
            self._file = pq.ParquetFile(path, page_checksum_verification=True)
            schema = self._file.schema_arrow
        except OSError as failure:
            raise no_access(path, failure, "read") from failure
        except _DAMAGED as failure:
            raise ConnectorError(
                f"{path} is not a complete Parquet file: {cause(failure)}; replace it or take it away"
            ) from failure
        refuse_other_types(schema, known, path)
        self._refuse_if_shorter()
        self._batches = self._read()

    def next(self) -> tuple[pa.RecordBatch, int, int] | None:
        """Return rows with the group and row they begin at; None at the end of the file.

        They are validated completely, a millisecond per batch: a damaged page may be readable, and give texts that are
        not UTF-8, or numbers beyond their type, which would fail later.
        """
        try:
            found = next(self._batches, None)
            if found is not None:
                found[0].validate(full=True)
        except _DAMAGED as failure:
            raise ConnectorError(f"{self.path} is damaged: {cause(failure)}; replace it or take it away") from failure
        return found

    def close(self) -> None:
        self._file.close()

    def _read(self) -> Iterator[tuple[pa.RecordBatch, int, int]]:
        for group in range(self._group, self._file.metadata.num_row_groups):
            row = 0
            for batch in self._file.iter_batches(batch_size=BATCH_ROWS, row_groups=[group], use_threads=False):
                done = min(max(self._row - row, 0), batch.num_rows) if group == self._group else 0
                if done < batch.num_rows:
                    yield batch.slice(done), group, row + done
                row += batch.num_rows

    def _refuse_if_shorter(self) -> None:
        groups = self._file.metadata.num_row_groups
        rows = self._file.metadata.row_group(self._group).num_rows if self._group < groups else 0
        if self._row > rows:
            raise ConnectorError(
                f"{self.path} has fewer rows than had been read when the app stopped; restore it, {AFRESH}"
            )


def refuse_other_types(schema: pa.Schema, known: KnownColumns, where: str) -> None:
    """Raise unless a file has the known columns; the first file makes them known."""
    if known.schema is None:
        known.learn(schema.remove_metadata())
        return
    refuse_other_names(schema.names, known.schema.names, where)
    for field in known.schema:
        found = schema.field(field.name).type
        if not known.declared and not found.equals(field.type):
            raise SchemaMismatch(
                f"{where}: column {quoted(field.name)} is {brief(found)} here "
                f"and {brief(field.type)} in the files before; declare schema=... to bring them to one type"
            )


class TableFeed:
    """The rows of one or more Parquet files."""

    def __init__(
        self, files: FileList, known: KnownColumns, *, follow: bool, loop: bool, position: Position | None
    ) -> None:
        """Continue after the position, or begin at the first row of the first file."""
        self._files, self._known, self._follow, self._loop = files, known, follow, loop
        self._rest: _Rest | None = None
        self._last = ""
        self._rows_this_turn = self._rows_of_file = 0
        self._news = FileNews()
        if position is not None:
            self._resume(position)
        elif (first := files.first()) is not None:
            self._rest = _Rest(first, known, 0, 0, 0)

    def pull(self, rows_max: int) -> Piece | Waiting | None:
        while True:
            if self._rest is None and not self._next_file(0):
                return Waiting()
            assert self._rest is not None
            found = self._rest.next()
            if found is not None:
                return self._piece(self._rest, *found)
            self._last, turn = self._rest.path, self._rest.turn
            self._news.ended(self._last, is_empty=False, rows=self._rows_of_file)
            self.close()
            if not self._next_file(turn):
                return Waiting() if self._follow else None

    def told(self) -> str:
        """Say what there is to say of the files."""
        return self._news.told()

    def close(self) -> None:
        """Close the present file."""
        if self._rest is not None:
            self._rest.close()
            self._rest = None

    def _resume(self, position: Position) -> None:
        path = position["file"]
        if not self._files.covers(path):
            raise ConnectorError(
                f"{path}, which was being read when the app stopped, is no longer there; put it back, {AFRESH}"
            )
        self._rest = _Rest(path, self._known, position["turn"], position["group"], position["row"])
        self._rows_this_turn = self._rows_of_file = 1

    def _next_file(self, turn: int) -> bool:
        path = self._files.after(self._last)
        if path is None and self._loop and self._rows_this_turn:
            path, turn, self._rows_this_turn = self._files.first(), turn + 1, 0
        if path is not None:
            self._rest = _Rest(path, self._known, turn, 0, 0)
            self._rows_of_file = 0
        return path is not None

    def _piece(self, rest: _Rest, batch: pa.RecordBatch, group: int, row: int) -> Piece:
        batch = self._known.fit(batch.replace_schema_metadata(None), rest.path)
        self._rows_this_turn += batch.num_rows
        self._rows_of_file += batch.num_rows
        remembered = self._known.remembered()

        def position_after(rows: int) -> Position:
            return {"file": rest.path, "group": group, "row": row + rows, "turn": rest.turn, **remembered}

        return Piece(batch, position_after, turn=rest.turn)
