"""Every wish of a user ends: with success, or with a sentence about what it waits for and how to go on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.client.cluster import Stillness
from headwater.links.requests import RequestRefused
from headwater.model.errors import EngineError
from tests.runtime.service.few_nodes import FewNodes
from tests.runtime.service.sums import write_sums


def test_nothing_is_waited_for_longer_than_it_stands_still() -> None:
    now = [0.0]
    stillness = Stillness(10, lambda: now[0])
    over = []
    for at, seen in ((1, "a"), (9, "a"), (12, "b"), (21, "b"), (22, "b")):
        now[0] = at
        over.append(stillness.is_over(seen))
    assert over == [False, False, False, False, True]


def test_without_a_limit_it_is_waited_for_as_long_as_it_takes() -> None:
    now = [0.0]
    stillness = Stillness(None, lambda: now[0])
    assert not stillness.is_over("a")
    now[0] = 1e9
    assert not stillness.is_over("a")


@pytest.fixture
def few(tmp_path: Path) -> Iterator[FewNodes]:
    """Two nodes without certificates; the second owns an app that the first reads a source of."""
    with FewNodes(tmp_path / "nodes") as few:
        few.add()
        few.add()
        with few.client(1) as cluster:
            flow = write_sums(tmp_path, "sums", tmp_path / "out.json", 10**9, rate=200)
            cluster.submit(flow, at={"made": few.nodes[0].own.address})
            while cluster.status("sums").rows_out < 100:
                pass
        yield few


def test_who_stops_an_app_of_which_a_node_is_silent_hears_that_and_it_ends_when_that_is_back(few: FewNodes) -> None:
    few.nodes[1].ownership.end_s = 0.1
    silent = few.nodes[0].own.address
    few.stop(0)
    with few.client(1) as cluster:
        with pytest.raises(RequestRefused, match=f"has not ended after 0.1 s: {silent} is silent.*; nothing more"):
            cluster.stop("sums")
        assert cluster.status("sums").notes == ["it is being stopped, and deleted on all nodes"]
        few.restart(0)
        while cluster.apps().apps:
            pass


def test_who_waits_for_an_app_whose_node_is_away_is_told_so_after_a_while(few: FewNodes) -> None:
    few.stop(0)
    with (
        few.client(1) as cluster,
        pytest.raises(EngineError, match="sums is nodes away, and nothing has come of it for"),
    ):
        cluster.wait("sums", still_s=1)
