"""An app whose owner or host is away: what others have of it stays and is told, and goes on when that node is back."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from headwater.links.requests import RequestRefused
from tests.runtime.flows import by_sensor, expected_sums
from tests.runtime.service.few_nodes import PATIENCE_S, FewNodes
from tests.runtime.service.sums import rows_of, write_sums


@pytest.fixture
def few(tmp_path: Path) -> Iterator[FewNodes]:
    """Nodes without certificates."""
    with FewNodes(tmp_path / "nodes") as few:
        yield few


def _run_at_both(few: FewNodes, file: Path) -> None:
    """Have a flow run that the second node owns and the first one reads."""
    few.add()
    few.add()
    with few.client(1) as cluster:
        cluster.submit(file, at={"made": few.nodes[0].own.address})
        while cluster.status("sums").rows_out < 1_000:
            pass


def test_after_a_power_cut_nothing_is_deleted_before_the_owner_is_back(few: FewNodes, tmp_path: Path) -> None:
    """Whoever is back first runs nothing of the app, and nobody is there to ask; that does not mean that it ended."""
    out = tmp_path / "out.json"
    _run_at_both(few, write_sums(tmp_path, "sums", out, 8_000, rate=2_000))
    few.stop(0)
    few.stop(1)
    few.restart_alone(0)
    few.do(few.nodes[0].leftovers.look())
    assert len(few.nodes[0].plant.parts) == 1
    few.restart(1)
    with few.client(0) as cluster:
        status = cluster.wait("sums", PATIENCE_S)
    assert by_sensor(rows_of(out)) == expected_sums(8_000)
    assert (status.is_balanced, status.rows_in) == (True, 8_000)


def test_an_app_whose_owner_is_away_is_listed_and_a_question_for_it_says_who_is_missing(
    few: FewNodes, tmp_path: Path
) -> None:
    _run_at_both(few, write_sums(tmp_path, "sums", tmp_path / "out.json", 10**9, rate=200))
    owner = few.nodes[1].own
    few.stop(1)
    with few.client(0) as cluster:
        [app] = cluster.apps().apps
        assert (app.name, app.state, app.owner) == ("sums", "owner away", f"{owner.id.hex()[:8]} (away)")
        with pytest.raises(RequestRefused, match=r"does not answer; what is on 127\.0\.0\.1:"):
            cluster.status("sums")
    few.restart(1)


def test_the_list_tells_what_has_finished_failed_or_lacks_something(few: FewNodes, tmp_path: Path) -> None:
    few.add()
    few.add()
    raises = tmp_path / "raises.py"
    raises.write_text(
        "import headwater as hw\n"
        "def fail(row: hw.Row) -> hw.Row:\n"
        "    raise ValueError('as it must')\n"
        "rows = hw.read.iterable([{'n': 1}])\n"
        "flow = hw.flow('raises', rows.map(fail).sink(hw.to.nothing()))\n"
    )
    lacks = tmp_path / "lacks.py"
    lacks.write_text(
        "import headwater as hw\n"
        f"rows = hw.read.csv({str(tmp_path / 'nowhere.csv')!r}, schema='n int')\n"
        "flow = hw.flow('lacks', rows.sink(hw.to.nothing()))\n"
    )
    with few.client(0) as cluster:
        cluster.submit(write_sums(tmp_path, "sums", tmp_path / "out.json", 100))
        cluster.submit(raises)
        cluster.submit(lacks)
        cluster.wait("sums", PATIENCE_S)
        while cluster.status("raises").state != "failed" or cluster.status("lacks").state != "troubled":
            pass
        listed = {app.name: app.state for app in cluster.apps().apps}
    assert listed == {"sums": "finished", "raises": "failed", "lacks": "troubled"}


def test_an_app_is_not_listed_as_finished_while_a_node_is_away_on_which_rows_may_wait(
    few: FewNodes, tmp_path: Path
) -> None:
    for _ in range(4):
        few.add()
    with few.client(0) as cluster:
        cluster.submit(write_sums(tmp_path, "sums", tmp_path / "out.json", 100))
        cluster.wait("sums", PATIENCE_S)
        which = next(number for number in (1, 2, 3) if few.nodes[number].machine.hosting.hosted)
        address = few.nodes[which].own.address
        few.stop(which)
        told = cluster.apps()
        assert ([app.state for app in told.apps], told.silent) == (["nodes away"], [address])
        few.restart(which)
        while (told := cluster.apps()).silent:
            pass
        assert [app.state for app in told.apps] == ["finished"]


def test_the_status_of_an_app_says_which_nodes_are_away_and_counts_only_what_the_others_tell(
    few: FewNodes, tmp_path: Path
) -> None:
    """Without the node with the source nobody knows how many rows came in, but some are out."""
    for _ in range(2):
        few.add()
    address = few.nodes[1].own.address
    with few.client(0) as cluster:
        cluster.submit(write_sums(tmp_path, "sums", tmp_path / "out.json", 2_000), at={"made": address})
        rows_out = cluster.wait("sums", PATIENCE_S).rows_out
        hosted = [number for _, number in few.nodes[1].machine.hosting.hosted]
        few.stop(1)
        status = cluster.status("sums")
        assert (status.state, status.silent) == ("nodes away", [address])
        assert (status.rows_in, status.rows_out, status.waiting, status.ledger.waiting) == (0, rows_out, 0, 0)
        assert status.missing[0] == f"source made on {address}"
        assert [place.split()[1] for place in status.missing[1:]] == [str(number) for number in sorted(hosted)]
        few.restart(1)
        assert cluster.wait("sums", PATIENCE_S).missing == []


def test_a_node_that_has_left_for_good_is_asked_no_more(few: FewNodes, tmp_path: Path) -> None:
    for _ in range(4):
        few.add()
    with few.client(0) as cluster:
        cluster.submit(write_sums(tmp_path, "sums", tmp_path / "out.json", 10**9, rate=500))
        while cluster.status("sums").rows_out < 100:
            pass
        leaving = next(node for node in few.nodes[1:] if node.machine.hosting.hosted)
        cluster.drain(leaving.own.address)
        few.wait_until(leaving.draining.done.is_set)
        [owned] = few.nodes[0].keeping.owned.values()
        assert leaving.own.id not in {peer.id for peer in owned.nodes}


COUNTED: Final = """
import headwater as hw

def counted(row: hw.Row, seen: int | None) -> tuple[hw.Row, int]:
    return {{"n": row["n"], "k": row["k"], "seen": row["seen"] + (seen or 0) + 1}}, (seen or 0) + 1

rows = hw.read.json({come!r}, follow=True)
for number in range(6):
    rows = rows.key_by("k").stateful(counted, name=f"counted-{{number}}", fuse=False)
flow = hw.flow("counted", rows.sink(hw.to.json({out!r})))
"""


def _add_rows(file: Path, numbers: range) -> None:
    """Let rows come that all have the same key."""
    with file.open("a") as rows:
        rows.writelines(f'{{"n": {n}, "k": 1, "seen": 0}}\n' for n in numbers)


def test_a_node_that_leaves_keeps_what_it_has_until_the_owner_is_back(few: FewNodes, tmp_path: Path) -> None:
    """It was restarted and runs nothing, and nobody there knows the owner any more: what it has is the only copy."""
    come, out, flow = tmp_path / "come.json", tmp_path / "out.json", tmp_path / "counted.py"
    flow.write_text(COUNTED.format(come=str(come), out=str(out)))
    _add_rows(come, range(1, 11))
    for _ in range(4):
        few.add()
    with few.client(3) as cluster:
        cluster.submit(flow)
        while (status := cluster.status("counted")).rows_out < 10 or status.waiting:
            pass
        which = next(number for number in (0, 1, 2) if few.nodes[number].machine.hosting.hosted)
        cluster.drain(few.nodes[which].own.address)
        few.stop(which)
    few.stop(3)
    few.restart(which)
    leaving = few.nodes[which]
    few.wait_until(lambda: leaving.draining.done.is_set() or "counted is away" in leaving.draining.waits_for)
    assert len(leaving.plant.parts) == 1
    few.restart(3)
    few.wait_until(leaving.draining.done.is_set)
    _add_rows(come, range(11, 21))
    few.wait_until(lambda: len(rows_of(out)) == 20)
    assert [(row["n"], row["seen"]) for row in rows_of(out)] == [(n, 6 * n) for n in range(1, 21)]


def test_a_node_that_was_restarted_is_not_let_go_with_a_source_of_which_only_the_absent_owner_knows(
    few: FewNodes, tmp_path: Path
) -> None:
    """Before its owner speaks it reads nothing; but how far the source was read is written nowhere else."""
    out = tmp_path / "out.json"
    _run_at_both(few, write_sums(tmp_path, "sums", out, 8_000, rate=2_000))
    few.add()
    few.stop(1)
    few.stop(0)
    few.restart(0)
    reading = few.nodes[0]
    with few.client(2) as cluster:
        with pytest.raises(RequestRefused, match=r"something of sums is at .* do not answer: start them first"):
            cluster.drain(reading.own.address)
        few.restart(1)
        with pytest.raises(RequestRefused, match="sources of sums are read at"):
            cluster.drain(reading.own.address)
        cluster.wait("sums", PATIENCE_S)
    assert by_sensor(rows_of(out)) == expected_sums(8_000)
