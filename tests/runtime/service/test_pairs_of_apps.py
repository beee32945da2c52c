"""Apps and nodes of one machine that share a target or an identity: one at a time, with a sentence, and exact."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from headwater.model.errors import ConfigError, ConnectorError, EngineError
from headwater.runtime.service.awaited import refuse_awaited
from headwater.runtime.service.service import NodeService
from headwater.runtime.settings import NodeSettings
from tests.runtime.service.few_nodes import PATIENCE_S, FewNodes

NAMES: Final = ("first", "second")
APPENDING: Final = """
import headwater as hw

def made(first, count):
    return {{"app": [{name!r}] * count, "n": list(range(first, first + count))}}

rows = hw.read.generator(made, rate={rate}, rows={rows}, name="rows").map(lambda batch: batch, name="same")
flow = hw.flow({name!r}, rows.sink(hw.to.json({out!r}, mode="append"), name="out"))
"""


@pytest.fixture
def few(tmp_path: Path) -> Iterator[FewNodes]:
    """Two nodes in one process."""
    with FewNodes(tmp_path / "nodes") as few:
        few.add()
        few.add()
        yield few


def appending(directory: Path, name: str, out: Path, *, rows: int | None = None, rate: int = 500) -> Path:
    """Write a flow that appends rows to a file, for ever unless it is said how many."""
    path = directory / f"{name}.py"
    path.write_text(APPENDING.format(name=name, out=str(out), rows=rows, rate=rate))
    return path


def rows_of(out: Path, app: str) -> list[int]:
    """Return the numbers of an app's rows in a file, in their order there."""
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    return [row["n"] for row in rows if row["app"] == app]


def test_of_two_apps_with_one_target_the_second_waits_visibly_until_the_first_has_gone(
    few: FewNodes, tmp_path: Path
) -> None:
    """Submitted to different nodes; the rows of the second wait for its sink, and none of either is lost."""
    out = tmp_path / "out.json"
    with few.client(0) as here, few.client(1) as there:
        here.submit(appending(tmp_path, "first", out))
        while not (out.exists() and out.stat().st_size):
            pass
        there.submit(appending(tmp_path, "second", out, rows=100))
        told = f"sink 'out' cannot be opened: {out} is used by sink 'out' of app 'first@"
        while not any(told in error for error in there.status("second").errors):
            pass
        status = there.status("second")
        assert (status.state, status.rows_out) == ("troubled", 0)
        assert rows_of(out, "second") == []
        here.stop("first")
        result = there.wait("second", PATIENCE_S)
        assert (result.rows_in, result.rows_out, result.is_balanced, result.errors) == (100, 100, True, [])
    assert rows_of(out, "second") == list(range(100))
    first = rows_of(out, "first")
    assert first == list(range(len(first)))


def test_the_next_version_of_an_app_and_a_restarted_node_have_the_target_again(few: FewNodes, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    with few.client(0) as cluster:
        cluster.submit(appending(tmp_path, "first", out, rows=300, rate=50))
        while not (out.exists() and out.stat().st_size):
            pass
        cluster.upgrade("first", appending(tmp_path, "first", out, rows=300, rate=100))
        few.stop(0)
        few.restart(0)
    with few.client(0) as cluster:
        status = cluster.wait("first", PATIENCE_S)
    assert (status.is_balanced, status.errors) == (True, [])
    assert rows_of(out, "first") == list(range(300))


def test_the_app_that_had_a_target_has_it_again_after_a_restart(few: FewNodes, tmp_path: Path) -> None:
    """The locks have ended with the node, and whichever app is wanted there first comes first."""
    out = tmp_path / "out.json"
    with few.client(0) as cluster:
        cluster.submit(appending(tmp_path, "first", out, rows=300, rate=100))
        while not (out.exists() and out.stat().st_size):
            pass
        cluster.submit(appending(tmp_path, "second", out, rows=100))
        while not cluster.status("second").errors:
            pass
    few.stop(0)
    few.restart(0)
    plant = few.nodes[0].plant
    first, second = (next(part.app for name, part in plant.parts.items() if name.startswith(of)) for of in NAMES)
    told = f"^{out} is used by 'out' of app 'first@.*', which is to go on with it; two that write there would .*: stop"
    with pytest.raises(ConnectorError, match=told):
        refuse_awaited(plant.store, second, "out", [first])
    refuse_awaited(plant.store, first, "out", [second])
    refuse_awaited(plant.store, second, "rows", [first])
    with few.client(0) as cluster:
        status = cluster.wait("first", PATIENCE_S)
        assert (status.rows_out, status.is_balanced) == (300, True)
        cluster.stop("first")
        status = cluster.wait("second", PATIENCE_S)
        assert (status.rows_in, status.rows_out, status.is_balanced, status.errors) == (100, 100, True, [])
    assert rows_of(out, "second") == list(range(100))
    assert rows_of(out, "first") == list(range(300))


def settings_of(data: Path, *, port: int = 0) -> NodeSettings:
    """Return what a node without certificates is told."""
    return NodeSettings(listen=f"127.0.0.1:{port}", data=data, insecure=True, workers=1, no_spark=True)


def test_a_copy_of_a_nodes_data_is_no_second_node(few: FewNodes, tmp_path: Path) -> None:
    """Both would have one place on the ring, and each lose what the other is sent."""
    few.stop(1)
    shutil.copytree(few.nodes[1].settings.data, tmp_path / "copy")
    few.restart(1)
    second = NodeService(settings_of(tmp_path / "copy"))
    told = (
        r"the identity of this node, \w* in --data .*/copy, is used by the node with --data .*/n1 \(pid .*--data of its"
    )
    with pytest.raises(ConfigError, match=told):
        few.do(second.start())
    few.stop(1)
    few.do(second.start())
    few.do(second.stop())
    few.restart(1)


def test_a_port_that_is_taken_names_the_process_that_listens_there(few: FewNodes, tmp_path: Path) -> None:
    port = int(few.nodes[0].own.address.rpartition(":")[2])
    with pytest.raises(
        EngineError, match=rf"port {port} of 127\.0\.0\.1 .* Address already in use, by pid \d+ \(.*\); stop"
    ):
        few.do(NodeService(settings_of(tmp_path / "other", port=port)).start())
