"""Writes lines to a file, exactly once.

The position is the length of what is committed. Opening at a position truncates what a killed run has written beyond
it, and every write is at a known offset, so rows written twice are the same bytes at the same place (idempotent).
`write([])` writes nothing and returns the position: committed right after opening, it distinguishes an own unfinished
first write from a file that existed before.
"""

import errno
import fcntl
import logging
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

import pyarrow as pa

from headwater.connectors.files.encoding import (
    CsvLines,
    Encoder,
    JsonLines,
    NotFinite,
    Nulled,
    TextLines,
    checked_not_finite,
    joined,
)
from headwater.connectors.files.files import no_access
from headwater.connectors.marks import is_anothers, mark, new_writer
from headwater.dataflow.connectors import Position, Resource, ResourceKind, SinkWriter
from headwater.model.errors import ConnectorError, FlowError
from headwater.model.quoting import listed, quoted

log = logging.getLogger(__name__)

Mode = Literal["error", "overwrite", "append"]
MODES: Final = ("error", "overwrite", "append")
OVERWRITING: Final = "two that write there would overwrite each other's rows"
_FIRST_LINE_BYTES: Final = 1 << 20


@dataclass(frozen=True, kw_only=True)
class LineSink(ABC):
    """A file of lines."""

    guarantee: ClassVar[str] = "exactly-once"
    blocking: ClassVar[bool] = False

    path: str
    mode: Mode = "error"
    sync: bool = False  # force every write to the disk: survives a power cut, not only a crash

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise FlowError(f"mode={quoted(self.mode)} is not known; give one of {listed(MODES)}")

    @property
    def position_settings(self) -> Mapping[str, object]:
        """The path: a position is a length of this file."""
        return {"path": self.path}

    def resources(self, position: Position | None) -> tuple[Resource, ...]:
        """The file, whatever it is called; a device or a pipe is not written at offsets and may be shared."""
        if os.path.exists(self.path) and not os.path.isfile(self.path):
            return ()
        advice = "give each a file of its own"
        path = os.path.realpath(self.path)
        return (Resource(kind=ResourceKind.FILE, name=path, harm=OVERWRITING, advice=advice),)

    @property
    @abstractmethod
    def kind(self) -> str:
        """A word for the kind of sink, in tables and pictures."""

    @abstractmethod
    def encoder(self) -> Encoder:
        """Return the encoder of rows."""

    def open(self, position: Position | None) -> SinkWriter:
        """Continue after the position, or begin the file as `mode` says."""
        file = CutFile(self.path, sync=self.sync)
        encoder = self.encoder()
        try:
            file.lock()
            if position is not None:
                file.go_on(position["bytes"], position.get("writer"))
                return LineWriter(file, encoder, position)
            length, writer = _begin(file, self.mode), new_writer()
            columns = encoder.columns_in(file.first_line()) if length else None
            file.mark(writer)
            return LineWriter(file, encoder, {"bytes": length, "columns": columns, "writer": writer})
        except BaseException:  # it would stay locked
            file.close()
            raise


@dataclass(frozen=True, kw_only=True)
class CsvSink(LineSink):
    """A CSV file."""

    kind: ClassVar[str] = "csv"
    is_tabular: ClassVar[bool] = True

    def encoder(self) -> Encoder:
        """Return the encoder of rows."""
        return CsvLines()


@dataclass(frozen=True, kw_only=True)
class JsonSink(LineSink):
    """A file of JSON lines."""

    kind: ClassVar[str] = "json"
    not_finite: NotFinite = "null"

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        super().__post_init__()
        checked_not_finite(self.not_finite)

    def encoder(self) -> Encoder:
        """Return how rows are written."""
        return JsonLines(self.not_finite)


@dataclass(frozen=True, kw_only=True)
class TextSink(LineSink):
    """A text file of one column."""

    kind: ClassVar[str] = "text"
    column: str = "line"

    def encoder(self) -> Encoder:
        """Return the encoder of rows."""
        return TextLines(self.column)


def _begin(file: "CutFile", mode: Mode) -> int:
    """Return the length after which a new app writes."""
    length = file.length()
    if length == 0:
        return 0
    match mode:
        case "overwrite":
            file.cut(0)
            return 0
        case "append":
            if not file.ends_in_newline():
                raise ConnectorError(
                    f"{file.path} does not end in a newline, so rows cannot be appended to it; "
                    "complete or cut its last line"
                )
            return length
        case "error":
            raise ConnectorError(
                f'{file.path} exists and is not empty; delete it, or pass mode="append" or mode="overwrite"'
            )


class LineWriter:
    """An opened file of lines."""

    def __init__(self, file: "CutFile", encoder: Encoder, position: Position) -> None:
        """Write behind a position."""
        self._file, self._encoder, self._length = file, encoder, int(position["bytes"])
        self._nulled = Nulled(file.path, position.get("nulled", 0))
        columns: Sequence[str] | None = position["columns"]
        self._columns = None if columns is None else list(columns)
        self._writer: str | None = position.get("writer")

    def write(self, batches: list[pa.RecordBatch]) -> Position:
        """Write the rows, all or none, and return the position behind them."""
        columns, parts, nulled = self._columns, [], 0
        for batch in joined(batches):
            names = self._encoder.columns(batch, columns, self._file.path)
            if columns is None and names is not None:
                parts.append(self._encoder.header(names))
            columns = names
            parts.append(self._encoder.lines(batch))
            nulled += self._encoder.nulled(batch)
        data = b"".join(parts)
        if data:
            self._file.write(data, self._length)
            self._length += len(data)
            self._columns = columns
            self._nulled.add(nulled)
        return {
            "bytes": self._length,
            "columns": self._columns,
            "writer": self._writer,
            **self._nulled.remembered(),
        }

    def told(self) -> str:
        """Say what could not be written as it was."""
        return self._nulled.told()

    def close(self) -> None:
        """Close the file; nothing is buffered."""
        self._file.close()


class CutFile:
    """A file that is written at known offsets and can be cut back."""

    def __init__(self, path: str, *, sync: bool = False) -> None:
        """Open the file for writing, or create it."""
        self.path, self._sync = path, sync
        self.existed = os.path.exists(path)
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except FileNotFoundError as failure:
            raise ConnectorError(
                f"{path} cannot be written: directory {os.path.dirname(path)} does not exist; create it"
            ) from failure
        except OSError as failure:
            raise no_access(path, failure, "written") from failure

    def lock(self) -> None:
        """Lock the file until it is closed; raises if another process has it locked.

        The lock files of `locks.py` cannot see that two names are one file, as with hard links and mounts, and there is
        none in a read-only directory.
        """
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            return  # a device or a pipe, which may have any number of writers
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConnectorError(
                f"{self.path} is locked: it is being written under another name, or by another user or program "
                f"(`fuser {self.path}` tells which process); stop that one, or give this sink another file"
            ) from None
        except OSError as failure:  # a file system without locks
            log.warning("%s cannot be locked (%s): nothing keeps others from writing it", self.path, failure.strerror)

    def mark(self, writer: str) -> None:
        """Have a writer begin here."""
        mark(self._file, writer)

    def go_on(self, length: int, writer: str | None) -> None:
        """Drop what a writer has not committed behind `length`, or raise if what lies there is of another."""
        if self.length() > length and is_anothers(self._file, writer):
            raise ConnectorError(written_by_another(self.path))
        self.cut(length)
        if writer is not None:
            self.mark(writer)

    def length(self) -> int:
        """Return the length in bytes."""
        return os.fstat(self._file).st_size

    def cut(self, length: int) -> None:
        """Truncate to `length`; a shorter file has lost committed rows."""
        if self.length() < length:
            what = f"has only {self.length()} bytes" if self.existed else "is gone"
            raise ConnectorError(
                f"{self.path} {what}, but {length} bytes of it are committed; restore it, or start the app afresh"
            )
        os.ftruncate(self._file, length)

    def write(self, data: bytes, offset: int) -> None:
        """Write all bytes at the offset, or none."""
        rest, at = memoryview(data), offset
        try:
            while rest:
                written = os.pwrite(self._file, rest, at)
                rest, at = rest[written:], at + written
            if self._sync:
                os.fdatasync(self._file)
        except OSError as failure:
            self._restore(offset)
            raise no_room(self.path, len(data), failure) from failure

    def first_line(self) -> bytes:
        """Return the beginning of the file up to its first newline."""
        return os.pread(self._file, _FIRST_LINE_BYTES, 0).partition(b"\n")[0] + b"\n"

    def ends_in_newline(self) -> bool:
        """Whether the last line is complete."""
        return os.pread(self._file, 1, self.length() - 1) == b"\n"

    def close(self) -> None:
        os.close(self._file)

    def _restore(self, length: int) -> None:
        try:
            os.ftruncate(self._file, length)
        except OSError:  # opening at the committed position truncates it later
            return


def written_by_another(path: str) -> str:
    """Return the sentence for a place where somebody else's rows would be cut off."""
    return (
        f"another app has written to {path} since this one was stopped, and going on where it stood would cut those "
        "rows off; give this sink another place, or start the app afresh"
    )


def no_room(path: str, size: int, failure: OSError) -> ConnectorError:
    """Return the sentence for a write that failed."""
    match failure.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return ConnectorError(
                f"no space left for {size} bytes of {path}; free some space and start the app again, nothing is lost"
            )
        case errno.EFBIG:
            return ConnectorError(
                f"no space left for {size} bytes of {path}: it would pass the largest file size allowed; "
                "raise the limit and start the app again, nothing is lost"
            )
    return no_access(path, failure, "written")
