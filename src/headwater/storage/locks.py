"""Locks on what only one process may use: a file, a client id, a store. They last as long as the process.

A lock is an advisory lock of the operating system (`flock`) on a lock file, in which its holder leaves a note. So a
killed process releases it, two nodes of one process exclude one another as two processes do (`flock` belongs to an open
file description, `fcntl` locks to a process), and a refusal can name the holder.

The lock file of a file is beside it, that of a directory in it, under names that readers skip: all who can write the
target find it there, even from another container or over NFS. What has only a name, like a client id at a broker, is
locked in a directory of the user in `/tmp`, which other users, containers and machines do not see. Where no lock file
can be made there is no lock; a file is then guarded only by the lock that its writer has on the file itself
(`connectors/files/linesink.py`).
"""

import datetime as dt
import errno
import fcntl
import logging
import os
import socket
import stat
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Final, assert_never

import msgspec

from headwater.dataflow.connectors import Resource, ResourceKind
from headwater.model.decoding import UNDECODABLE
from headwater.model.errors import ConnectorError

log = logging.getLogger(__name__)

NAMES: Final = Path("/tmp")  # not $TMPDIR: processes with different ones must meet here
IN_DIRECTORY: Final = "_headwater.lock"  # Spark and we read no file that begins with an underscore, or with a dot
NOTE_BYTES_MAX: Final = 4_096
WORDS_MAX: Final = 200  # of a note, which another process has written
_TRIES: Final = 100  # each ends with a lock file that was deleted between our opening and our locking it
_MICROSECONDS: Final = 1_000_000
_LATEST_US: Final = 250_000_000_000 * _MICROSECONDS  # in the year 9892, which a date can still show
_NOT_THERE: Final = (FileNotFoundError, PermissionError, NotADirectoryError, FileExistsError)
LEFT_S: Final = 86_400  # that an unlocked lock file is kept, so that hardly anyone wants it while it is deleted


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a lock."""

    what: str  # "sink 'out' of app 'rain'"
    pid: int
    host: str
    since_us: Annotated[int, msgspec.Meta(ge=0, le=_LATEST_US)]

    def __str__(self) -> str:
        """Return a description by which a person can find it."""
        since = dt.datetime.fromtimestamp(self.since_us / _MICROSECONDS, dt.UTC)
        return (
            f"{self.what[:WORDS_MAX]} (pid {self.pid} on {self.host[:WORDS_MAX]}, since {since:%Y-%m-%d %H:%M:%S} UTC)"
        )


def this_process(what: str, now_us: int) -> Holder:
    """Return a holder in this process."""
    return Holder(what=what, pid=os.getpid(), host=socket.gethostname(), since_us=now_us)


class LockHeld(Exception):
    """The lock is held by `holder`, which is None if its note cannot be read."""

    def __init__(self, holder: Holder | None) -> None:
        self.holder = holder
        super().__init__(told(holder))


def told(holder: Holder | None) -> str:
    """Return the holder in words."""
    return "another process, whose name cannot be read here" if holder is None else str(holder)


class FileLock:
    """An exclusive lock on a lock file."""

    def __init__(self, path: Path, holder: Holder, *, stays: bool = False, mode: int = 0o666) -> None:
        """Take it at once, or raise LockHeld, or OSError where there can be none; `stays` keeps the file afterwards."""
        self.path, self._stays = path, stays
        self._file: int | None = _locked(path, mode)
        with suppress(OSError):  # a full disk, or a file of another user: the lock holds without a note
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, msgspec.json.encode(holder), 0)

    def release(self) -> None:
        """Release the lock; idempotent."""
        if self._file is None:
            return
        with suppress(OSError):  # another user's file in /tmp stays, unlocked
            if not self._stays and _is_at(self._file, self.path):
                os.unlink(self.path)
        os.close(self._file)
        self._file = None


def _locked(path: Path, mode: int) -> int:
    """Return a descriptor of the file at this path, locked."""
    for _ in range(_TRIES):
        file = _opened(path, mode)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise FileExistsError(errno.EEXIST, "is not a file that can be locked", str(path))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_there = _is_at(file, path)
        except BlockingIOError:
            holder = _note_in(file)
            os.close(file)
            raise LockHeld(holder) from None
        except OSError:
            os.close(file)
            raise
        if is_there:
            return file
        os.close(file)  # its last holder has deleted it, so a new one is needed
    raise BlockingIOError(errno.EAGAIN, "is deleted again and again", str(path))


def _opened(path: Path, mode: int) -> int:
    flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        return os.open(path, flags | os.O_RDWR | os.O_CREAT, mode)
    except PermissionError:
        return os.open(path, flags | os.O_RDONLY)  # another user's, which can be locked all the same


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def holder_in(path: Path) -> Holder | None:
    """Return the holder of a lock file that is known to be locked."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return _note_in(file)
    finally:
        os.close(file)


def _note_in(file: int) -> Holder | None:
    try:
        return msgspec.json.decode(os.pread(file, NOTE_BYTES_MAX, 0), type=Holder)
    except (OSError, *UNDECODABLE):
        return None


class Locks:
    """The locks that one source or sink needs."""

    def __init__(self, resources: Sequence[Resource], holder: Holder) -> None:
        """Take all of them; raises a ConnectorError that names the holder if one is taken."""
        self._held: list[FileLock] = []
        for resource in resources:
            try:
                self._held.append(FileLock(lock_file(resource), holder))
            except LockHeld as refusal:
                self.release()
                raise ConnectorError(
                    f"{resource.name} is used by {told(refusal.holder)}; {resource.harm}: stop that one, "
                    f"or {resource.advice}"
                ) from None
            except OSError as failure:
                # A directory that is missing or read-only: the sink itself reports it, or locks the file itself.
                is_told = isinstance(failure, _NOT_THERE) and resource.kind is not ResourceKind.NAME
                what = "%s cannot be locked (%s): nothing keeps others from using it, too"
                log.log(logging.DEBUG if is_told else logging.WARNING, what, resource.name, failure)

    def __len__(self) -> int:
        """Return the number of locks."""
        return len(self._held)

    def release(self) -> None:
        """Release all; idempotent."""
        while self._held:
            self._held.pop().release()


def lock_file(resource: Resource) -> Path:
    """Return the lock file of a resource, and make the directories for it."""
    match resource.kind:
        case ResourceKind.FILE:
            return file_beside(Path(resource.name))
        case ResourceKind.DIRECTORY:
            os.makedirs(resource.name, exist_ok=True)
            return Path(resource.name, IN_DIRECTORY)
        case ResourceKind.NAME:
            return file_of_name(resource.name)
    assert_never(resource.kind)


def file_beside(path: Path) -> Path:
    """Return the lock file that guards a file."""
    return path.with_name(f".{path.name}.lock")


def file_of_name(name: str) -> Path:
    """Return the lock file of what has only a name."""
    return _own_directory() / f"{blake2b(name.encode(), digest_size=16).hexdigest()}.lock"


def _own_directory() -> Path:
    """Return the directory for this user's locks, to which no other user can write."""
    path = NAMES / f"headwater-locks-{os.getuid()}"
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.stat(path, follow_symlinks=False)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(errno.EACCES, "belongs to another user", str(path))
    return path


def sweep_names(now_us: int) -> None:
    """Delete old lock files of names, which killed processes have left."""
    with suppress(OSError):
        for path in _own_directory().glob("*.lock"):
            with suppress(OSError, LockHeld):
                if path.stat(follow_symlinks=False).st_mtime < now_us / _MICROSECONDS - LEFT_S:
                    FileLock(path, this_process("the sweep of old lock files", now_us)).release()
