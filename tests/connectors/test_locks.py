"""A lock file has one holder, who says so in it, and is free as soon as the holder lets go or dies."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from headwater.dataflow.connectors import Resource, ResourceKind
from headwater.model.errors import ConnectorError
from headwater.storage.locks import (
    LEFT_S,
    FileLock,
    Holder,
    LockHeld,
    Locks,
    file_beside,
    file_of_name,
    holder_in,
    lock_file,
    sweep_names,
    this_process,
)

FIRST: Final = this_process("sink 'out' of app 'first'", 1_800_000_000_000_000)
SECOND: Final = this_process("sink 'out' of app 'second'", 1_800_000_000_000_000)


def resource(path: Path, kind: ResourceKind = ResourceKind.FILE) -> Resource:
    """Return a file or a directory as a sink names it."""
    return Resource(kind=kind, name=str(path), harm="rows would be lost", advice="give each its own")


def test_a_lock_has_one_holder_who_is_told_with_process_host_and_time(tmp_path: Path) -> None:
    """Two of one process are as separate as two processes."""
    path = tmp_path / "lock"
    lock = FileLock(path, FIRST)
    with pytest.raises(LockHeld) as refusal:
        FileLock(path, SECOND)
    assert refusal.value.holder == FIRST
    assert str(FIRST) == (
        f"sink 'out' of app 'first' (pid {os.getpid()} on {socket.gethostname()}, since 2027-01-15 08:00:00 UTC)"
    )
    lock.release()
    lock.release()
    assert not path.exists()
    FileLock(path, SECOND).release()


KILLED: Final = """
import os, signal, sys
from pathlib import Path
from headwater.storage.locks import LEFT_S, FileLock, this_process

lock = FileLock(Path(sys.argv[1]), this_process("a process", 0))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_holder_has_let_go_and_its_note_is_of_no_account(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert (done.returncode, path.exists()) == (-9, True)
    lock = FileLock(path, FIRST)
    assert holder_in(path) == FIRST
    lock.release()


def test_a_lock_file_that_is_deleted_while_it_is_held_is_not_the_next_ones(tmp_path: Path) -> None:
    """Letting go deletes the lock file, but never the one of somebody else who came meanwhile."""
    path = tmp_path / "lock"
    first = FileLock(path, FIRST)
    path.unlink()
    second = FileLock(path, SECOND)
    first.release()
    with pytest.raises(LockHeld):
        FileLock(path, FIRST)
    second.release()
    assert not path.exists()


@pytest.mark.parametrize(
    "note",
    [
        b"",
        b"{",
        b'{"what":1}',
        b"\xff" * 10_000,
        b'{"what":"x","pid":1,"host":"h"}',
        b'{"what":"x","pid":1,"host":"h","since_us":9e30}',
    ],
)
def test_a_note_that_cannot_be_read_leaves_the_holder_without_a_name(tmp_path: Path, note: bytes) -> None:
    path = tmp_path / "lock"
    lock = FileLock(path, FIRST)
    path.write_bytes(note)
    with pytest.raises(LockHeld, match="another process, whose name cannot be read here"):
        FileLock(path, SECOND)
    lock.release()


def test_what_a_note_says_is_cut(tmp_path: Path) -> None:
    """Others may write it where others may write the target."""
    told = str(Holder(what="x" * 10_000, pid=1, host="h" * 10_000, since_us=0))
    assert len(told) < 500


def test_of_several_resources_all_are_locked_or_none(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    held = Locks([resource(two)], FIRST)
    with pytest.raises(ConnectorError, match=r"/two is used by sink 'out' of app 'first' .*; rows would be lost: stop"):
        Locks([resource(one), resource(two)], SECOND)
    assert not file_beside(one).exists()
    held.release()
    both = Locks([resource(one), resource(two)], SECOND)
    assert len(both) == 2
    both.release()
    assert list(tmp_path.iterdir()) == []


def test_the_lock_file_of_a_directory_is_in_it_and_passed_over_by_readers(tmp_path: Path) -> None:
    directory = resource(tmp_path / "rows", ResourceKind.DIRECTORY)
    locks = Locks([directory], FIRST)
    assert lock_file(directory) == tmp_path / "rows" / "_headwater.lock"
    assert lock_file(directory).exists()
    locks.release()


@pytest.mark.parametrize("name", ["nowhere/rows.csv", "x" * 255, "directory/inside"])
def test_where_no_lock_file_can_be_made_there_is_none(tmp_path: Path, name: str) -> None:
    """What cannot be written either, its sink says so; what can has a lock of its own."""
    (tmp_path / "directory").touch()
    assert len(Locks([resource(tmp_path / name)], FIRST)) == 0


@pytest.mark.parametrize("kind", ["directory", "pipe", "link"])
def test_only_a_file_is_a_lock_file(tmp_path: Path, kind: str) -> None:
    """Nobody is led astray by what others put in its place, or kept waiting by it."""
    path = tmp_path / "lock"
    match kind:
        case "directory":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "link":
            path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="lock"):
        FileLock(path, FIRST)
    assert not (tmp_path / "elsewhere").exists()


def test_old_lock_files_of_names_are_swept_unless_somebody_holds_them() -> None:
    """It is the second day of the year 1970, and two of them are of the first."""
    held, left, fresh = [file_of_name(f"a {what} name of {os.getpid()}") for what in ("held", "left", "fresh")]
    lock = FileLock(held, FIRST)
    for path, days in ((held, 0), (left, 0), (fresh, 1.5)):
        path.touch()
        os.utime(path, (days * LEFT_S, days * LEFT_S))
    sweep_names(2 * LEFT_S * 1_000_000)
    assert [path.exists() for path in (held, left, fresh)] == [True, False, True]
    fresh.unlink()
    lock.release()
