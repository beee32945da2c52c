"""What killed processes leave in the temporary directory is deleted by the next one, and nothing else is."""

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import headwater as hw
from headwater.model.errors import EngineError
from headwater.storage.lmdb_store import LmdbStore
from headwater.storage.temporary import SHORT, Temporary, delete_left_by, sweep

KILLED = """
import os, signal
from headwater.storage.temporary import Temporary

(Temporary("cluster").path / "rows").write_text("some")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary directory of our own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def left(place: Path) -> Path:
    """What a process has left there that was killed."""
    subprocess.run([sys.executable, "-c", KILLED], env={**os.environ, "TMPDIR": str(place)}, check=False)
    [directory] = place.iterdir()
    return directory


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary directory with too long a path for sockets."""
    place = tmp_path / ("far" * 40)
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def test_what_a_killed_process_has_left_is_deleted(left: Path) -> None:
    sweep()
    assert not left.exists()


def test_what_belongs_to_a_process_that_lives_stays(place: Path) -> None:
    """Also without a lock, as if the number of a dead process had been given to another."""
    ours = Temporary("run")
    reused = place / f"headwater-run-{os.getpid()}-abcdefgh"
    reused.mkdir()
    sweep()
    assert (ours.path.exists(), reused.exists()) == (True, True)
    ours.delete()
    assert not ours.path.exists()


def test_what_is_held_stays_though_its_process_seems_dead(place: Path, left: Path) -> None:
    """As where containers share a temporary directory: the numbers of one mean nothing to the other."""
    held = Temporary("store")
    foreign = held.path.rename(left.with_name(left.name[:-8] + "elsewher"))
    sweep()
    assert (foreign.exists(), left.exists()) == (True, False)


def test_what_a_node_still_works_in_stays(left: Path) -> None:
    """A node that is a process of its own outlives the cluster's that was killed, for as long as it takes to end."""
    store = LmdbStore(left / "node-01" / "store", disk_bytes=1 << 20)
    store.own()
    sweep()
    assert left.exists()
    store.close()
    sweep()
    assert not left.exists()


@pytest.mark.parametrize("below", [".", "node-01", "node-01/store"])
def test_what_the_user_names_stays(left: Path, below: str) -> None:
    """Somebody who goes on with what a killed cluster has left."""
    sweep(left / below)
    assert (left / "rows").exists()


def test_what_is_called_otherwise_or_is_no_directory_stays(place: Path, left: Path) -> None:
    names = ["headwater-demo-abcdefgh", f"{left.name}-mine", "headwater-cluster-mine", f"{left.name[:-8]}data"]
    for name in names:
        (place / name).mkdir()
    target = place / "elsewhere"
    target.mkdir()
    (place / f"{left.name[:-8]}linkedto").symlink_to(target)
    (place / f"{left.name[:-8]}textfile").write_text("")
    before = set(place.iterdir())
    sweep()
    assert before - set(place.iterdir()) == {left}


def test_of_a_process_that_is_known_to_be_dead_all_is_deleted(place: Path, left: Path) -> None:
    ours = Temporary("run")
    delete_left_by(int(left.name.split("-")[2]))
    assert list(place.iterdir()) == [ours.path]
    ours.delete()


def test_where_paths_are_too_long_for_sockets_they_are_elsewhere_and_swept_there_too(far: Path) -> None:
    run, store = Temporary("run", has_sockets=True), Temporary("store")
    assert (run.path.parent, store.path.parent) == (SHORT, far)
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(run.path / "workers.sock"))
    left = run.path.with_name(run.path.name.replace(str(os.getpid()), str(_dead())))
    left.mkdir()
    sweep()
    assert (run.path.exists(), left.exists()) == (True, False)
    for one_of_ours in (run, store):
        one_of_ours.delete()


def test_a_node_runs_a_flow_where_paths_are_too_long_for_sockets(far: Path) -> None:
    result = hw.to.memory()
    hw.run(hw.flow("far", hw.read.iterable([{"n": 1}]).map(lambda batch: batch).sink(result)), spark=False)
    assert result.rows() == [{"n": 1}]
    assert not list(far.iterdir())


def test_a_place_that_does_not_take_a_directory_is_named(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(place / "nowhere"))
    with pytest.raises(EngineError, match=r"nowhere: No such file or directory; set TMPDIR"):
        Temporary("run")


def _dead() -> int:
    """Return the number of a process that has ended."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    return ended.pid
