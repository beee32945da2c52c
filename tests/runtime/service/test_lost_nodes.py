"""Real nodes of which one is lost: chains without state go on elsewhere, and its rows count when it is back."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from headwater.client.cluster import Cluster
from tests.runtime.service.few_nodes import PATIENCE_S, FewNodes
from tests.runtime.service.sums import rows_of

ROWS: Final = 3_000

HALVES: Final = """
import headwater as hw

def make(first, count):
    return {{"n": list(range(first, first + count))}}

def half(row: hw.Row) -> hw.Row:
    return {{"n": row["n"], "half": row["n"] / 2}}

made = hw.read.generator(make, rows={rows}, rate=150, name="made")
flow = hw.flow("halves", made.map(half, parallelism=4).sink(hw.to.json({out!r})))
"""


@pytest.fixture
def few(tmp_path: Path) -> Iterator[FewNodes]:
    """Nodes without certificates."""
    with FewNodes(tmp_path / "nodes") as few:
        for _ in range(4):
            few.add()
        yield few


def takers(cluster: Cluster, instance: int) -> set[str]:
    """Return the nodes at which an instance runs and has taken rows."""
    parts = cluster.status("halves").parts
    return {part.node for part in parts for line in part.instances if line.number == instance and line.rows_in}


def test_a_map_goes_on_elsewhere_when_its_node_is_lost_and_no_row_is_lost_or_doubled(
    few: FewNodes, tmp_path: Path
) -> None:
    """The app is not said to have ended before the node is back, whose rows nobody else has."""
    out, file = tmp_path / "out.json", tmp_path / "halves.py"
    file.write_text(HALVES.format(rows=ROWS, out=str(out)))
    owner, reader = few.nodes[0], few.nodes[1]
    with few.client(0) as cluster:
        [app] = cluster.submit(file, at={"made": reader.own.address})
        owned = owner.keeping.owned[app.id]
        few.wait_until(lambda: any(one.host.id not in (owner.own.id, reader.own.id) for one in owned.placed))
        gone = next(one for one in owned.placed if one.host.id not in (owner.own.id, reader.own.id))
        number = [node.own.id for node in few.nodes].index(gone.host.id)
        while gone.host.address not in takers(cluster, gone.instance):
            pass
        few.stop(number)
        while not takers(cluster, gone.instance) - {gone.host.address}:
            pass
        assert cluster.status("halves").state != "finished"
        few.restart(number)
        status = cluster.wait("halves", PATIENCE_S)
    assert Counter(row["n"] for row in rows_of(out)) == Counter(range(ROWS))
    assert (status.is_balanced, status.rows_in, status.waiting) == (True, ROWS, 0)
