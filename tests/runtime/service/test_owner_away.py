"""An app whose owner is away: what others have of it stays and is told, and goes on when the owner is back."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.runtime.links.requests import RequestRefused
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
