"""Temporary directories, and the removal of those that killed processes have left.

What an error has pointed to stays when all else is deleted (`keep`), for some days in which somebody may look at it.

A process that is killed deletes nothing, so the next one does. The name of a directory has the process that made it,
which holds a lock on it for as long as it lives: a number alone means little where containers share `/tmp`, or after it
was given to another process. What may be in use stays, and so does all that is not called exactly as we call it.
"""

import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

from headwater.model.errors import EngineError
from headwater.storage.lmdb_store import OWNER_LOCK
from headwater.storage.locks import sweep_names

# A name ends as `mkdtemp` ends it, and has a possible pid.
_OURS: Final = re.compile(r"headwater-(?:run|store|cluster|peers|spark|structured)-(?P<pid>\d{1,7})-[a-z0-9_]{8}")
KEPT: Final = ".kept"  # ends the name of a mark beside a file that is to stay
KEPT_S: Final = (
    7 * 86_400.0
)  # so that what was said on a Friday can be looked into on Monday, and /tmp does not fill up
SHORT: Final = Path("/tmp")  # where sockets go if the user's temporary directory has too long a path for them
SOCKET_PATH_MAX: Final = 103  # bytes that every system takes
_IN_SHORT_NAMES: Final = len(
    "/headwater-spark-1234567-abcdefgh/.01234567-89ab-cdef-0123-456789abcdef.sock"
)  # the longest


class Temporary:
    """A temporary directory, there until it is deleted, or swept after this process was killed."""

    def __init__(self, kind: str, *, has_sockets: bool = False) -> None:
        """Make and lock it; `kind` says what is in it."""
        place = _places()[-1 if has_sockets else 0]
        try:
            self.path = Path(tempfile.mkdtemp(prefix=f"headwater-{kind}-{os.getpid()}-", dir=place))
        except OSError as failure:
            what = f"no directory can be made in {place}: {failure.strerror}"
            raise EngineError(f"{what}; set TMPDIR to one that is writable and has a short path") from failure
        assert _OURS.fullmatch(self.path.name), self.path
        self._held = os.open(self.path, os.O_RDONLY)
        with suppress(OSError):  # a file system without locks: there the pid has to do
            fcntl.flock(self._held, fcntl.LOCK_SH)

    def delete(self) -> None:
        """Delete it with all that is in it, but for what is to be kept."""
        _clear(self.path)
        os.close(self._held)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.delete()


def keep(file: Path) -> Path:
    """Have a file outlive the temporary directory it is in, for somebody has been told to look at it."""
    with suppress(OSError):  # on a full disk it is as it was before
        file.with_name(f"{file.name}{KEPT}").touch(mode=0o600)
    return file


def _clear(directory: Path) -> None:
    """Delete a directory with all that is in it, but for files that are to be kept, which keep it."""
    marks = [mark for mark in directory.glob(f"*{KEPT}") if mark.is_file() and _age_s(mark) < KEPT_S]
    files = {file for mark in marks if (file := mark.with_name(mark.name.removesuffix(KEPT))).is_file()}
    if not files:
        shutil.rmtree(directory, ignore_errors=True)
        return
    for entry in set(directory.iterdir()) - files - set(marks):
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


def _age_s(file: Path) -> float:
    try:
        return time.time() - file.lstat().st_mtime
    except FileNotFoundError:  # somebody else sweeps too
        return KEPT_S


def sweep(named: Path | None = None) -> None:
    """Delete what killed processes of this user have left, but not `named` or its parents."""
    kept = () if named is None else (named.resolve(), *named.resolve().parents)
    for directory, pid in _ours():
        if directory.resolve() not in kept and not _lives(pid) and not _is_held(directory):
            _clear(directory)
    sweep_names(time.time_ns() // 1_000)


def delete_left_by(pid: int) -> None:
    """Delete what a process has left that is known to have ended."""
    for directory, owner in _ours():
        if owner == pid:
            _clear(directory)


def _ours() -> Iterator[tuple[Path, int]]:
    """Yield the directories of this user that Headwater has made, with the pids of their makers."""
    for place in _places():
        yield from _ours_in(place)


def _places() -> list[Path]:
    """Return the places of temporary directories; those with sockets are in the last."""
    chosen = Path(tempfile.gettempdir())
    return [chosen] if len(os.fsencode(chosen)) + _IN_SHORT_NAMES <= SOCKET_PATH_MAX else [chosen, SHORT]


def _ours_in(place: Path) -> Iterator[tuple[Path, int]]:
    with os.scandir(place) as entries:
        for entry in entries:
            called = _OURS.fullmatch(entry.name)
            with suppress(FileNotFoundError):  # another process sweeps too
                if (
                    called
                    and entry.is_dir(follow_symlinks=False)
                    and entry.stat(follow_symlinks=False).st_uid == os.getuid()
                ):
                    yield Path(entry.path), int(called["pid"])


def _lives(pid: int) -> bool:
    """Whether there is such a process. It may be another with a reused pid: then a later sweep deletes."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _is_held(directory: Path) -> bool:
    """Whether its maker has it locked, or a node a store in it, which may outlive the maker."""
    stores = (Path(at) / OWNER_LOCK for at, _, files in os.walk(directory) if OWNER_LOCK in files)
    return any(_is_locked(one) for one in (directory, *stores))


def _is_locked(path: Path) -> bool:
    try:
        opened = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # without access its use is unknown, so it stays
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(opened)
    return False
