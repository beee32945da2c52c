"""What a node cannot start is tried again, and said meanwhile; nothing is lost by having had to wait."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from headwater.model.time import SECOND
from headwater.runtime.service.start_retries import LONGEST_US, TROUBLES_BYTES_MAX, TROUBLES_MAX, Troubles
from tests.runtime.service.few_nodes import PATIENCE_S, FewNodes

COPYING: Final = """
import headwater as hw
{imports}
lines = hw.read.json({lines!r}, name="lines")
flow = hw.flow("copying", lines.map(lambda batch: batch, name="same").sink(hw.to.json({out!r}), name="out"))
"""


@pytest.fixture
def few(tmp_path: Path) -> Iterator[FewNodes]:
    """Two nodes without certificates."""
    with FewNodes(tmp_path / "nodes") as few:
        few.add()
        few.add()
        yield few


def test_what_fails_is_due_again_ever_less_often_and_told_until_it_is_mended() -> None:
    troubles: Troubles[str] = Troubles(len)
    place, now_us, pauses = ("app", -1), 0, []
    for _ in range(10):
        assert troubles.failed(place, "read it", "no file", now_us) is (now_us == 0)
        before_us = now_us
        while not (due := troubles.due(now_us)):
            now_us += SECOND // 4
        assert (due, troubles.due(now_us)) == (["read it"], [])
        pauses.append(now_us - before_us)
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[1], pauses[-1]) == (SECOND, 2 * SECOND, LONGEST_US)
    assert troubles.of("app", now_us) == ["no file (tried 10 times, again now)"]
    assert (set(troubles.apps()), troubles.of("other", now_us)) == ({"app"}, [])
    assert troubles.mended(place)
    assert troubles.due(now_us + LONGEST_US) == []


def test_what_is_not_wanted_any_more_is_not_tried_again() -> None:
    troubles: Troubles[str] = Troubles(len)
    for app, instance in (("one", 1), ("one", None), ("two", 1)):
        troubles.failed((app, instance), f"{app} {instance}", "why", 0)
    troubles.forget("one")
    assert troubles.due(LONGEST_US) == ["two 1"]


def test_of_what_takes_too_much_room_the_oldest_is_tried_no_more() -> None:
    """A node in wrong hands may want what it likes of others, and each time with another megabyte."""
    troubles: Troubles[range] = Troubles(len)
    most = range(TROUBLES_BYTES_MAX // 2)
    for number in range(3):
        troubles.failed(("first", number), most, "why", 0)
        troubles.failed(("first", number), most, "again", 0)
    assert [len(troubles.of("first", 0)), len(troubles.due(LONGEST_US))] == [2, 2]
    troubles.failed(("second", 0), range(1), "why", 0)
    assert (len(troubles.of("first", 0)), len(troubles.of("second", 0))) == (1, 1)
    troubles.forget("first")
    for number in range(1, TROUBLES_MAX + 1):
        troubles.failed(("second", number), range(1), "why", 0)
    assert len(troubles.of("second", 0)) == TROUBLES_MAX


def test_a_file_that_comes_later_is_read_then_and_its_lack_is_told_with_the_node(few: FewNodes, tmp_path: Path) -> None:
    """The app waits; nobody has to submit it again."""
    lines, out = tmp_path / "lines.json", tmp_path / "out.json"
    flow = tmp_path / "copying.py"
    flow.write_text(COPYING.format(imports="", lines=str(lines), out=str(out)))
    reading = few.nodes[1].own.address
    with few.client(0) as cluster:
        cluster.submit(flow, at={"lines": reading})
        while (status := cluster.status("copying")).state != "troubled":
            pass
        [error] = status.errors
        assert error.startswith(f"{reading}: source 'lines' cannot be opened: ")
        assert str(lines) in error
        lines.write_text('{"n": 1}\n{"n": 2}\n')
        status = cluster.wait("copying", PATIENCE_S)
    assert (status.rows_in, status.errors, status.is_balanced) == (2, [], True)
    assert [json.loads(line)["n"] for line in out.read_text().splitlines()] == [1, 2]


def test_a_sink_that_cannot_be_opened_keeps_its_rows_until_it_can(few: FewNodes, tmp_path: Path) -> None:
    lines, directory = tmp_path / "lines.json", tmp_path / "later"
    lines.write_text('{"n": 1}\n{"n": 2}\n')
    flow = tmp_path / "copying.py"
    flow.write_text(COPYING.format(imports="", lines=str(lines), out=str(directory / "out.json")))
    with few.client(0) as cluster:
        cluster.submit(flow)
        while not any("sink 'out' cannot be opened" in error for error in cluster.status("copying").errors):
            pass
        directory.mkdir()
        assert cluster.wait("copying", PATIENCE_S).rows_out == 2


def test_a_node_that_lacks_what_a_flow_needs_is_named_and_goes_on_once_it_has_it(few: FewNodes, tmp_path: Path) -> None:
    """As a package that is not installed: the flow cannot even be built, on the node that was restarted."""
    lines, out, needed = tmp_path / "lines.json", tmp_path / "out.json", tmp_path / "needed"
    lines.write_text('{"n": 1}\n')
    needed.touch()
    flow = tmp_path / "copying.py"
    flow.write_text(COPYING.format(imports=f"open({str(needed)!r}).close()", lines=str(lines), out=str(out)))
    reading = few.nodes[1].own.address
    with few.client(0) as cluster:
        cluster.submit(flow, at={"lines": reading})
        cluster.wait("copying", PATIENCE_S)
        few.stop(1)
        needed.unlink()
        few.restart(1)
        while (status := cluster.status("copying")).state != "troubled":
            pass
        assert any(error.startswith(f"{reading}: the flow cannot run here") for error in status.errors)
        assert any(str(needed) in error for error in status.errors)
        needed.touch()
        status = cluster.wait("copying", PATIENCE_S)
    assert (status.rows_in, status.rows_out, status.is_balanced) == (1, 1, True)


def test_what_nobody_foresaw_keeps_an_app_waiting_but_not_for_ever(few: FewNodes, tmp_path: Path) -> None:
    """As when a node cannot lay out a flow's text: no error of ours says so."""
    lines, out = tmp_path / "lines.json", tmp_path / "out.json"
    lines.write_text('{"n": 1}\n{"n": 2}\n')
    flow = tmp_path / "copying.py"
    flow.write_text(COPYING.format(imports="", lines=str(lines), out=str(out)))
    reading, in_the_way = few.nodes[1].own.address, few.nodes[1].plant.flows
    in_the_way.parent.mkdir(parents=True, exist_ok=True)
    in_the_way.write_text("no directory")
    with few.client(0) as cluster:
        cluster.submit(flow, at={"lines": reading})
        while (status := cluster.status("copying")).state != "troubled":
            pass
        assert any(error.startswith(f"{reading}: unforeseen (") for error in status.errors)
        in_the_way.unlink()
        status = cluster.wait("copying", PATIENCE_S)
    assert (status.rows_in, status.rows_out, status.errors, status.is_balanced) == (2, 2, [], True)
