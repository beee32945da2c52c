"""Which files a source reads, in which order, and how one of them is read.

A path is one file, a directory or a pattern; files come in the order of their names, and names that begin with a dot or
an underscore are skipped, as by Spark. The list is fixed when the source is opened. A source that follows looks again:
for a later name in a directory, or for a new file under the same name.
"""

import errno
import fnmatch
import glob
import logging
import os
from typing import Final
from urllib.parse import unquote
from zlib import crc32

from headwater.model.errors import ConnectorError, FlowError

log = logging.getLogger(__name__)

Path = str | os.PathLike[str]

HEAD_BYTES: Final = 1024  # enough to distinguish a file from another one under its name
GZIP: Final = b"\x1f\x8b"  # its first bytes, with which no UTF-8 text begins
_LEFT_ALONE: Final = (".", "_")  # first characters of names that readers skip
GONE_LOOKS: Final = 50  # half a second or more: where logs are rotated, the next file is there sooner
AFRESH: Final = "or start the app afresh to read from the beginning"


def local_path(given: Path) -> str:
    """Return a path in the operating system's form; `file:///data/out.csv` is `/data/out.csv`."""
    path = os.fspath(given)
    if "\0" in path:
        raise FlowError(f"{path!r} is no path: it has a zero byte")
    scheme, is_url, rest = path.partition("://")
    if not is_url or not scheme.isalnum():
        return path
    host, slash, rest = rest.partition("/")
    if scheme.lower() != "file" or host not in ("", "localhost") or not slash:
        raise FlowError(f"{scheme}://{host} is no place for files here; give a path of this machine, or file:///PATH")
    return f"/{unquote(rest)}"


def is_among(file: str, path: str) -> bool:
    """Whether a file is, or would be, one of those of a path, which may be a directory or a pattern."""
    if os.path.realpath(path) == file:
        return True
    if os.path.exists(path) or not glob.has_magic(path):
        return os.path.realpath(path) == os.path.dirname(file) and not _is_skipped(file)
    inside, wanted = os.path.split(path)
    pattern = os.path.join(os.path.realpath(inside), wanted)
    return file.count(os.sep) == pattern.count(os.sep) and fnmatch.fnmatch(file, pattern)


def no_access(path: str, failure: OSError, doing: str) -> ConnectorError:
    """Return the sentence for a file that cannot be used."""
    match failure.errno:
        case errno.ENOENT:
            return ConnectorError(f"{path} does not exist, so it cannot be {doing}; check the path")
        case errno.EACCES | errno.EPERM:
            return ConnectorError(f"{path} may not be {doing} by this user; change its permissions or run as its owner")
        case errno.EISDIR:
            return ConnectorError(f"{path} is a directory and cannot be {doing} as a file; name a file")
    return ConnectorError(f"{path} cannot be {doing}: {failure.strerror or failure}")


class FileNews:
    """What there is to say of the files that a source reads: in the log once, and for as long as it is so."""

    def __init__(self) -> None:
        """Begin with nothing to say."""
        self._without_rows = 0
        self._first_without = ""
        self._looks_gone = 0
        self._gone = ""
        self._waits_in = ""

    def ended(self, path: str, *, is_empty: bool, rows: int) -> None:
        """A file was read to its end."""
        self._gone = self._waits_in = ""
        if rows:
            return
        if not self._without_rows:
            self._first_without = f"{path} {'is empty' if is_empty else 'has no rows'}"
            log.warning("%s", self._first_without)
        self._without_rows += 1

    def waits(self, path: str, *, is_gone: bool, rows: int) -> None:
        """A followed file has nothing new, and may be no longer there."""
        self._looks_gone = self._looks_gone + 1 if is_gone else 0
        if self._looks_gone == GONE_LOOKS:
            self._gone = path
            log.warning("%s was moved or deleted while it was followed; a new file is waited for", path)
        elif not is_gone:
            self._gone = ""
        self._waits_in = "" if rows or is_gone else path

    def told(self) -> str:
        """Say it."""
        if self._gone:
            return f"{self._gone} was moved or deleted; waiting for a new file"
        if self._waits_in:
            return f"{self._waits_in} has no rows yet"
        more = f", and {self._without_rows - 1} more" if self._without_rows > 1 else ""
        return self._first_without + more


class FileList:
    """The files of a path."""

    def __init__(self, path: str, *, follow: bool) -> None:
        """Find the files; the list is fixed unless following."""
        self.path = path
        self.is_single = not os.path.isdir(path) and (os.path.exists(path) or not glob.has_magic(path))
        self._follow = follow
        self._names = self._find()
        if not self._names and not follow:
            what = f"directory {path} holds no files" if os.path.isdir(path) else f"no file matches {path}"
            raise ConnectorError(f"{what}, so there is nothing to read; put files there or check the path")

    def first(self) -> str | None:
        """Return the first file."""
        return self.after("")

    def after(self, name: str) -> str | None:
        """Return the next file after this one; looks again if following."""
        if self._follow and not self.is_single:
            self._names = self._find()
        return next((other for other in self._names if other > name), None)

    def covers(self, name: str) -> bool:
        """Whether this file is one of them; a single file always is, so that its absence gets its own sentence."""
        return name == self.path if self.is_single else name in self._find()

    def _find(self) -> list[str]:
        if self.is_single:
            return [self.path]
        try:
            found = _entries(self.path) if os.path.isdir(self.path) else glob.glob(self.path)
        except OSError as failure:
            raise no_access(self.path, failure, "read") from failure
        return sorted(name for name in found if not _is_skipped(name) and os.path.isfile(name))


def _is_skipped(file: str) -> bool:
    return os.path.basename(file).startswith(_LEFT_ALONE)  # empty for a directory that a pattern like `*/` matches


def _entries(directory: str) -> list[str]:
    return [os.path.join(directory, name) for name in os.listdir(directory)]


class OpenFile:
    """A file read by offset, with the path under which it was opened."""

    def __init__(self, path: str) -> None:
        """Open it, or say why that is not possible."""
        self.path = path
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as failure:
            raise no_access(path, failure, "read") from failure
        self._head: tuple[int, int] = (0, 0)

    def size(self) -> int:
        """Return the present length in bytes."""
        return os.fstat(self._file).st_size

    def read(self, offset: int, size: int) -> bytes:
        """Return up to so many bytes; fewer only at the end of the file."""
        if self.size() < offset:
            raise ConnectorError(
                f"{self.path} was cut to {self.size()} bytes after {offset} of them had been read; restore it, {AFRESH}"
            )
        try:
            data = os.pread(self._file, size, offset)
        except OSError as failure:
            raise no_access(self.path, failure, "read") from failure
        return data

    def head(self, offset: int) -> int:
        """Return a checksum of the file's beginning, as far as it is before the offset."""
        length = min(offset, HEAD_BYTES)
        if self._head[0] != length:
            self._head = (length, crc32(os.pread(self._file, length, 0)))
        return self._head[1]

    def refuse_if_rewritten(self) -> None:
        """Raise if the beginning of the file has changed since the last position."""
        length, head = self._head
        if crc32(os.pread(self._file, length, 0)) != head:
            raise ConnectorError(f"{self.path} was emptied and written anew while being read; restore it, {AFRESH}")

    def refuse_if_compressed(self) -> None:
        """Raise if the file is compressed by gzip, in which every line would be bad."""
        if self.read(0, len(GZIP)) == GZIP:
            raise ConnectorError(f"{self.path} is compressed with gzip; unpack it first")

    def is_gone(self) -> bool:
        """Whether nothing stands under this name any more."""
        return not os.path.exists(self.path)

    def is_replaced(self) -> bool:
        """Whether the path is another file by now."""
        try:
            now = os.stat(self.path)
        except FileNotFoundError:  # moved away, and not replaced yet
            return False
        mine = os.fstat(self._file)
        return (now.st_dev, now.st_ino) != (mine.st_dev, mine.st_ino)

    def close(self) -> None:
        os.close(self._file)


def reopen(path: str, offset: int, head: int, *, follow: bool) -> OpenFile:
    """Open the file of a position; one that is followed may have been renamed since."""
    candidates = [path, *(sorted(glob.glob(glob.escape(path) + "*")) if follow else ())]
    for candidate in candidates:
        if (candidate != path or follow) and not os.path.isfile(candidate):
            continue
        file = _opened(candidate, path)
        if file.size() >= offset and file.head(offset) == head:
            file.path = path
            return file
        size = file.size()
        file.close()
        if not follow:
            raise _changed(path, offset, size)
    raise ConnectorError(
        f"the file that was followed as {path} is neither there nor beside it under a longer name; restore it, {AFRESH}"
    )


def _opened(candidate: str, path: str) -> OpenFile:
    if not os.path.exists(candidate):
        raise ConnectorError(f"{path} has vanished since the app stopped in the middle of it; restore it, {AFRESH}")
    return OpenFile(candidate)


def _changed(path: str, offset: int, size: int) -> ConnectorError:
    if size < offset:
        return ConnectorError(f"{path} has {size} bytes, but {offset} had been read before; restore it, {AFRESH}")
    return ConnectorError(f"{path} is not the file that was being read when the app stopped; restore it, {AFRESH}")
