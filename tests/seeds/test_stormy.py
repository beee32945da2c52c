"""Seeds of every fault, and of all of them together: a short form of the campaign in bench/campaign.py."""

from pathlib import Path

import pytest

from bench.campaign import CHUNK, code_state, lacking, summed, tell_chunk
from headwater.sim.faults import NAMED
from headwater.sim.story import told


@pytest.mark.parametrize("nodes", [3, 4, 7, 12, 20])
def test_stormy_rings_of_many_sizes(nodes: int) -> None:
    for seed in range(70_000, 70_000 + 40 // nodes):
        outcome = told(seed, "stormy", nodes)
        assert outcome.failure is None, f"{outcome.failure.what}; replay: {outcome.replay}"


@pytest.mark.parametrize(("seed", "nodes"), [(5437, 3), (7510, 31), (15147, 48)])
def test_seeds_that_have_failed(seed: int, nodes: int) -> None:
    """What befell each.

    All of a small zone refused an app once; a steward left whom only the routing table of a host still had; a host was
    sent back, again and again, to a steward that had left.
    """
    outcome = told(seed, "stormy", nodes)
    assert outcome.failure is None, f"{outcome.failure.what}; replay: {outcome.replay}"


def test_all_faults_at_once() -> None:
    for seed in range(5):
        outcome = told(seed, "+".join(NAMED), 5)
        assert outcome.failure is None, f"{outcome.failure.what}; replay: {outcome.replay}"
        assert outcome.happened["apps submitted"] == outcome.apps


def test_a_campaign_goes_on_where_it_stood(tmp_path: Path) -> None:
    """A chunk that is there is not told again, unless it is of another state of the code."""
    path, state = tmp_path / "000000.json", code_state()
    tell_chunk(0, 2, "calm", path, state)
    assert [first for first, _, _ in lacking(2 * CHUNK, tmp_path, state)] == [CHUNK]
    assert [first for first, _, _ in lacking(2 * CHUNK, tmp_path, "another")] == [0, CHUNK]
    total = summed(tmp_path, state)
    assert (total["seeds"], total["failed"], sum(total["rings"].values())) == (2, 0, 2)
    assert total["happened"]["apps submitted"] == total["apps"]
    assert summed(tmp_path, "another")["seeds"] == 0
