"""A worker of Spark serves one node after another in the same process, and keeps nothing of those it has served."""

import os
import socket
import sys
import threading
from pathlib import Path

import pytest

from headwater.loading import module_isolation as beside
from headwater.spark.address import NodeAddress, this_machine
from headwater.storage.lmdb_store import LmdbStore
from headwater.workers.local.wire import Goodbye, frame
from headwater.workers.local.worker import serve


@pytest.fixture
def departing(tmp_path: Path) -> NodeAddress:
    """A node that has a store, and says goodbye to whoever comes."""
    LmdbStore(tmp_path / "store", disk_bytes=1 << 30).close()
    place = str(tmp_path / "s")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(place)
    listening.listen()

    def say_goodbye() -> None:
        with listening, listening.accept()[0] as line:
            line.sendall(frame(Goodbye()))
            while line.recv(4096):
                pass

    threading.Thread(target=say_goodbye, daemon=True).start()
    return NodeAddress(this_machine(), place, str(tmp_path / "store"), 1 << 30, False)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system does not tell which files are open")
def test_the_store_of_a_node_that_is_gone_is_closed(departing: NodeAddress) -> None:
    serve(departing, 1, False)
    opened = [os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if os.path.lexists(entry.path)]
    assert not [path for path in opened if path.startswith(departing.store)]
    assert departing.store not in Path("/proc/self/maps").read_text()


def test_texts_that_their_node_has_deleted_are_forgotten_with_the_next(tmp_path: Path) -> None:
    """Nobody tells a worker that an app has ended."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        for module in ("flow.py", "tools.py"):
            (tmp_path / name / module).write_text("")
    beside.know_text(tmp_path / "one", ["tools"])
    package = beside._texts[str(tmp_path / "one")].package
    sys.modules[package] = sys.modules[f"{package}.tools"] = sys
    for file in (tmp_path / "one").iterdir():
        file.unlink()
    (tmp_path / "one").rmdir()
    beside.know_text(tmp_path / "two", ["tools"])
    assert [Path(known).name for known in beside._texts if Path(known).parent == tmp_path] == ["two"]
    assert not [name for name in sys.modules if name.startswith(package)]
    beside.forget_text(tmp_path / "two")
