"""Sinks of this process: the console, memory, a function, and nothing at all."""

import secrets
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from threading import Lock
from typing import Any, ClassVar, Final, TextIO
from weakref import WeakValueDictionary

import pyarrow as pa

from headwater.connectors.times import in_one_zone
from headwater.dataflow.connectors import Position, SinkWriter
from headwater.model.errors import FlowError

CELL_CHARS_MAX: Final = 32


def _rows_at(position: Position | None) -> int:
    return 0 if position is None else int(position["rows"])


@dataclass(frozen=True, kw_only=True)
class NothingSink:
    """Rows are counted and forgotten."""

    kind: ClassVar[str] = "nothing"
    guarantee: ClassVar[str] = "exactly-once"
    blocking: ClassVar[bool] = False

    def open(self, position: Position | None) -> SinkWriter:
        return _CallWriter(_ignore, _rows_at(position))


@dataclass(frozen=True, kw_only=True)
class CallSink:
    """Rows are given to a function; after a crash it may see some of them again."""

    kind: ClassVar[str] = "call"
    guarantee: ClassVar[str] = "at-least-once"
    blocking: ClassVar[bool] = True

    function: Callable[[pa.RecordBatch], object]

    def __post_init__(self) -> None:
        """Refuse what is not callable."""
        if not callable(self.function):
            raise FlowError(f"to.call needs a function of a record batch, not a {type(self.function).__name__}")

    def open(self, position: Position | None) -> SinkWriter:
        return _CallWriter(self.function, _rows_at(position))


@dataclass(frozen=True, kw_only=True)
class ConsoleSink:
    """Rows are printed in aligned columns, up to a limit."""

    kind: ClassVar[str] = "console"
    guarantee: ClassVar[str] = "at-least-once"
    blocking: ClassVar[bool] = True

    limit: int | None = None
    file: TextIO | None = field(default=None, repr=False)

    def open(self, position: Position | None) -> SinkWriter:
        rows = _rows_at(position)
        return _CallWriter(_Printer(self, rows).show, rows)


def _ignore(batch: pa.RecordBatch) -> None:
    pass


class _CallWriter:
    def __init__(self, function: Callable[[pa.RecordBatch], object], rows: int) -> None:
        self._function, self._rows = function, rows

    def write(self, batches: list[pa.RecordBatch]) -> Position:
        for batch in batches:
            self._function(batch)
            self._rows += batch.num_rows
        return {"rows": self._rows}

    def close(self) -> None:
        pass


class _Printer:
    def __init__(self, sink: ConsoleSink, rows: int) -> None:
        self._limit, self._file, self._rows = sink.limit, sink.file, rows
        self._names: list[str] | None = None
        self._widths: list[int] = []

    def show(self, batch: pa.RecordBatch) -> None:
        """Print as many rows as the limit allows."""
        room = batch.num_rows if self._limit is None else max(self._limit - self._rows, 0)
        before, self._rows = self._rows, self._rows + batch.num_rows
        lines = list(self._lines(batch.slice(0, room))) if room and batch.num_rows else []
        if self._limit is not None and before <= self._limit < self._rows:
            lines.append(f"... further rows are not shown: limit={self._limit}")
        if lines:
            output = self._file or sys.stdout
            output.write("\n".join([*lines, ""]))
            output.flush()

    def _lines(self, batch: pa.RecordBatch) -> Iterator[str]:
        cells = [[_cell(value) for value in column.to_pylist()] for column in batch.columns]
        if self._names != batch.schema.names:
            self._names, self._widths = batch.schema.names, [0] * batch.num_columns
            yield from self._aligned([[name] for name in self._names], cells)
        yield from self._aligned(cells, cells)

    def _aligned(self, cells: list[list[str]], seen: list[list[str]]) -> Iterator[str]:
        for index, column in enumerate(seen):
            self._widths[index] = max(self._widths[index], *map(len, column), *map(len, cells[index]))
        for row in zip(*cells, strict=True):
            yield "  ".join(cell.ljust(width) for cell, width in zip(row, self._widths, strict=True)).rstrip()


def _cell(value: Any) -> str:
    text = "-" if value is None else str(value).replace("\n", "\\n")
    return text if len(text) <= CELL_CHARS_MAX else f"{text[: CELL_CHARS_MAX - 3]}..."


class MemorySink:
    """Rows are kept in this process, where the owner of the sink can read them while the flow runs.

    With a limit the latest rows are kept. Pickled and unpickled in the same process it is the same sink.
    """

    kind: ClassVar[str] = "memory"
    guarantee: ClassVar[str] = "exactly-once"
    blocking: ClassVar[bool] = False

    def __init__(self, limit: int | None = None, number: int | None = None) -> None:
        if limit is not None and limit < 1:
            raise FlowError(f"limit={limit} keeps nothing; give at least 1, or None to keep everything")
        self.limit = limit
        self._lock = Lock()
        self._batches: list[tuple[str, pa.RecordBatch]] = []  # with their writers, in the order of arrival
        self._seen: dict[str, int] = {}  # rows of each writer, kept or not
        self._open: set[str] = set()
        self._number = next(_NUMBERS) if number is None else number
        _SINKS[self._number] = self

    def __repr__(self) -> str:
        """Show the limit only; the rows may be many."""
        return f"MemorySink(limit={self.limit})"

    def __reduce__(self) -> tuple[Callable[[int, int | None], "MemorySink"], tuple[int, int | None]]:
        """Pickle it as its number."""
        return _memory_sink, (self._number, self.limit)

    @property
    def rows_seen(self) -> int:
        """How many rows have come, kept or not."""
        with self._lock:
            return sum(self._seen.values())

    def batches(self) -> list[pa.RecordBatch]:
        with self._lock:
            return [batch for _, batch in self._batches]

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows kept, as dicts."""
        return [row for batch in self.batches() for row in batch.to_pylist()]

    def table(self) -> pa.Table:
        """Return the rows kept as one table; columns that only some of them have are null in the others."""
        tables = [pa.Table.from_batches([batch]) for batch in in_one_zone(self.batches())]
        return pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})

    def open(self, position: Position | None) -> SinkWriter:
        """Continue after the position, dropping later rows of this writer; a new app starts empty.

        Several writers, of one flow or of several, add their rows, which are kept apart. The first of them to begin
        drops the rows of earlier runs.
        """
        committed = _rows_at(position)
        with self._lock:
            if position is None and not self._open:
                self._batches.clear()
                self._seen.clear()
            writer = secrets.token_hex(4) if position is None else str(position.get("writer", ""))
            self._forget_last(writer, max(self._seen.get(writer, 0) - committed, 0))
            self._seen[writer] = committed
            self._open.add(writer)
        return _MemoryWriter(self, writer)

    def add(self, writer: str, batches: list[pa.RecordBatch]) -> int:
        """Keep rows of a writer, and return how many of it have come so far."""
        filled = [(writer, batch) for batch in batches if batch.num_rows]
        with self._lock:
            self._batches.extend(filled)
            self._seen[writer] += sum(batch.num_rows for _, batch in filled)
            if self.limit is not None:
                self._forget_first(sum(batch.num_rows for _, batch in self._batches) - self.limit)
            return self._seen[writer]

    def closed(self, writer: str) -> None:
        """Remove a writer; its rows stay."""
        with self._lock:
            self._open.discard(writer)

    def _forget_first(self, rows: int) -> None:
        while rows > 0:
            writer, first = self._batches.pop(0)
            if first.num_rows > rows:
                self._batches.insert(0, (writer, first.slice(rows)))
            rows -= first.num_rows

    def _forget_last(self, writer: str, rows: int) -> None:
        for at in reversed([at for at, (whose, _) in enumerate(self._batches) if whose == writer]):
            if rows <= 0:
                return
            last = self._batches[at][1]
            self._batches[at : at + 1] = [(writer, last.slice(0, last.num_rows - rows))] if last.num_rows > rows else []
            rows -= last.num_rows


class _MemoryWriter:
    def __init__(self, sink: MemorySink, writer: str) -> None:
        self._sink, self._writer = sink, writer

    def write(self, batches: list[pa.RecordBatch]) -> Position:
        return {"rows": self._sink.add(self._writer, batches), "writer": self._writer}

    def close(self) -> None:
        self._sink.closed(self._writer)


_NUMBERS: Final = count()
_SINKS: Final[WeakValueDictionary[int, MemorySink]] = WeakValueDictionary()


def _memory_sink(number: int, limit: int | None) -> MemorySink:
    sink = _SINKS.get(number)
    return MemorySink(limit, number) if sink is None else sink
