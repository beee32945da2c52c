"""The sources in a flow: frozen data that can be shown, compared and opened.

Nothing here touches the disk or calls user code before `open`.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

import pyarrow as pa

from headwater.connectors.columns import KnownColumns
from headwater.connectors.files.decoding import Decoder
from headwater.connectors.files.files import FileList, is_among
from headwater.connectors.files.formats import CsvFormat, Format, JsonFormat, TextFormat
from headwater.connectors.files.linefeed import CHUNK_BYTES, LINE_BYTES_MAX, LineFeed
from headwater.connectors.files.tablefeed import TableFeed
from headwater.connectors.files.tablesink import FIRST_PART
from headwater.connectors.frames import Frame, RowsGiven, is_frame
from headwater.connectors.generated import DrainedItems, GeneratorFeed, Items, IterableFeed
from headwater.connectors.pacing import Pace
from headwater.connectors.reading import PacedReader
from headwater.dataflow.connectors import Position, Resource, ResourceKind, SourceReader
from headwater.model.errors import ConnectorError, FlowError
from headwater.model.quoting import quoted

BadLines = Literal["stop", "skip"]
GENERATED_ROWS: Final = 4_096  # generated at once: enough to be vectorised, few enough to take only milliseconds


@dataclass(frozen=True, kw_only=True)
class FileSource:
    """What all sources of files have in common."""

    kind: ClassVar[str]
    blocking: ClassVar[bool] = False
    guarantee: ClassVar[str] = "exactly-once"

    path: str
    schema: pa.Schema | None = None
    pace: Pace = field(default_factory=Pace)
    follow: bool = False
    loop: bool = False
    can_wait: bool = True

    def __post_init__(self) -> None:
        if self.follow and self.loop:
            raise FlowError(f"{self.path}: follow waits for more and loop starts over; give one of them")

    @property
    def position_settings(self) -> Mapping[str, object]:
        """The path: a position is in one of its files."""
        return {"path": self.path}

    def reads(self, written: Resource) -> bool:
        """Whether a sink writes to one of the files."""
        match written.kind:
            case ResourceKind.FILE:
                return is_among(written.name, self.path)
            case ResourceKind.DIRECTORY:
                return is_among(os.path.join(written.name, FIRST_PART), self.path)
        return False


@dataclass(frozen=True, kw_only=True)
class LineSource(FileSource, ABC):
    """Files of lines."""

    bad_lines: BadLines = "stop"
    chunk_bytes: int = field(default=CHUNK_BYTES, repr=False)
    line_bytes_max: int = field(default=LINE_BYTES_MAX, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bad_lines not in ("stop", "skip"):
            raise FlowError(f"bad_lines={quoted(self.bad_lines)} is not known; give 'stop' or 'skip'")

    @abstractmethod
    def form(self) -> Format:
        """Return the format of the lines."""

    def open(self, position: Position | None) -> SourceReader:
        """Continue after the position, or begin at the first line."""
        known = KnownColumns(self.schema, None if position is None else position.get("schema"))
        feed = LineFeed(
            FileList(self.path, follow=self.follow),
            Decoder(self.form(), known, skip_bad=self.bad_lines == "skip"),
            follow=self.follow,
            loop=self.loop,
            position=position,
            chunk_bytes=self.chunk_bytes,
            line_bytes_max=self.line_bytes_max,
        )
        return PacedReader(feed, self.pace.start(self.path))


@dataclass(frozen=True, kw_only=True)
class CsvSource(LineSource):
    """CSV files."""

    kind: ClassVar[str] = "csv"
    header: bool = True
    delimiter: str = ","
    nulls: tuple[str, ...] = ("",)

    def __post_init__(self) -> None:
        """Refuse a delimiter that is ambiguous."""
        super().__post_init__()
        if len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter in '"\r\n':
            raise FlowError(
                f"delimiter={quoted(self.delimiter)} cannot be one; give a single ASCII character such as ';'"
            )

    def form(self) -> Format:
        """Return the format of the lines."""
        return CsvFormat(header=self.header, delimiter=self.delimiter, nulls=self.nulls)


@dataclass(frozen=True, kw_only=True)
class JsonSource(LineSource):
    """Files of JSON lines."""

    kind: ClassVar[str] = "json"

    def form(self) -> Format:
        """Return the format of the lines."""
        return JsonFormat()


@dataclass(frozen=True, kw_only=True)
class TextSource(LineSource):
    """Files of plain lines."""

    kind: ClassVar[str] = "text"
    schema: pa.Schema | None = TextFormat.schema

    def form(self) -> Format:
        """Return the format of the lines."""
        return TextFormat()


@dataclass(frozen=True, kw_only=True)
class ParquetSource(FileSource):
    """Parquet files."""

    kind: ClassVar[str] = "parquet"

    def open(self, position: Position | None) -> SourceReader:
        """Continue after the position, or begin at the first row."""
        files = FileList(self.path, follow=self.follow)
        if self.follow and files.is_single:
            raise ConnectorError(f"{self.path} is one Parquet file, which cannot grow; follow its directory instead")
        known = KnownColumns(self.schema, None if position is None else position.get("schema"))
        feed = TableFeed(files, known, follow=self.follow, loop=self.loop, position=position)
        return PacedReader(feed, self.pace.start(self.path))


@dataclass(frozen=True, kw_only=True)
class GeneratorSource:
    """Rows that are a function of their number."""

    blocking: ClassVar[bool] = False
    can_wait: ClassVar[bool] = True
    guarantee: ClassVar[str] = "exactly-once"

    function: Callable[[int, int], Any]
    schema: pa.Schema | None = None
    pace: Pace = field(default_factory=Pace)
    rows: int | None = None
    batch_rows: int = GENERATED_ROWS
    kind: str = "generator"

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise FlowError(f"a generator needs a function of (first row, count), not a {type(self.function).__name__}")
        if self.batch_rows < 1:
            raise FlowError(f"batch_rows={self.batch_rows} must be at least 1")
        if self.rows is not None and self.rows < 0:
            raise FlowError(f"rows={self.rows} must be at least 0")

    def open(self, position: Position | None) -> SourceReader:
        """Start at the row of the position, or at row 0."""
        known = KnownColumns(self.schema, None if position is None else position.get("schema"))
        feed = GeneratorFeed(self.function, known, rows=self.rows, batch_rows=self.batch_rows, position=position)
        return PacedReader(feed, self.pace.start(self.kind))


@dataclass(frozen=True, kw_only=True)
class IterableSource:
    """The rows of a Python iterable."""

    kind: ClassVar[str] = "iterable"
    can_wait: ClassVar[bool] = True

    items: RowsGiven | Callable[[], RowsGiven] = field(repr=False)
    schema: pa.Schema | None = None
    pace: Pace = field(default_factory=Pace)
    _opened: list[bool] = field(default_factory=list, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse what cannot be gone through; a table is gone through by its rows."""
        if is_frame(self.items) and not isinstance(self.items, pa.RecordBatchReader):
            frame = Frame(self.items)
            object.__setattr__(self, "items", frame)
            object.__setattr__(self, "schema", frame.schema if self.schema is None else self.schema)
        if not callable(self.items) and not hasattr(self.items, "__iter__"):
            raise FlowError(
                f"a {type(self.items).__name__} is not iterable; give a list, or a function that returns one"
            )

    @property
    def blocking(self) -> bool:
        """Whether the next item may keep us waiting; those of a list, and rows in memory, never do."""
        return not (isinstance(self.items, Frame) and self.items.is_ready) and not isinstance(
            self.items, list | tuple | range
        )

    @property
    def guarantee(self) -> str:
        """At most once for an iterator, whose items cannot be had again after a crash; else exactly once."""
        return "at-most-once" if self._is_one_shot() else "exactly-once"

    def resources(self, position: Position | None) -> tuple[Resource, ...]:
        """An iterator as a resource: each item goes to the first reader that asks."""
        if not self._is_one_shot():
            return ()
        return (
            Resource(
                kind=ResourceKind.NAME,
                name=f"the {type(self.items).__name__} at {id(self.items):#x} in process {os.getpid()}",
                harm="each item of an iterator would go to one of them only",
                advice="give each a function that returns a fresh one, or read it once and use the stream twice",
            ),
        )

    def open(self, position: Position | None) -> SourceReader:
        """Iterate from the start, skipping the rows that are stored."""
        if self._is_one_shot() and self._opened:
            raise ConnectorError(
                "an iterator can be gone through only once and was opened before; "
                "pass a function that returns a fresh one"
            )
        self._opened.append(True)
        items = self.items() if callable(self.items) else self.items
        if is_frame(items) and not isinstance(items, pa.RecordBatchReader):
            items = Frame(items)
        assert isinstance(items, Iterable), "what is no frame can be gone through"
        known = KnownColumns(self.schema, None if position is None else position.get("schema"))
        feed = IterableFeed(DrainedItems(items) if self.blocking else Items(items), known, position=position)
        return PacedReader(feed, self.pace.start("iterable"))

    def _is_one_shot(self) -> bool:
        return hasattr(self.items, "__next__")
