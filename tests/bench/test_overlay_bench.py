"""The overlay benchmark in a short form: shapes and counts on a few dozen nodes, never times."""

import json
from pathlib import Path
from random import Random

import pytest

from bench.overlay import GOALS, Plan, plan_for, run_plan
from bench.overlay_apps import Deployed, Master, step_costs, submit, with_costs
from bench.overlay_world import grow, in_a_copy, owner_of, percentile, rings_of, walk
from headwater.model.peers import id_of
from headwater.sim.network import Network
from headwater.sim.nodes import NodeWorld
from headwater.sim.rings import RingWorld

TINY = Plan(nodes=40, zones=3, walks=100, apps=(1, 3), arrival_s=2.0, standing_s=2, failures=(1, 2), timed_apps=2)


def test_a_run_returns_a_ratio_for_every_goal_and_writes_them(tmp_path: Path) -> None:
    """What is returned and what is on disk are the same."""
    told: list[str] = []
    result = run_plan(TINY, tmp_path / "out" / "overlay.json", told.append)
    assert json.loads((tmp_path / "out" / "overlay.json").read_text()) == json.loads(json.dumps(result))
    assert set(GOALS) | {"nodes_simulated_per_second"} == set(result["ratios"])
    assert result["details"]["goals"].keys() == result["details"]["reached"].keys() == set(GOALS)
    assert result["details"]["limits"].keys() == {name for name, met in result["details"]["reached"].items() if not met}
    assert list(result["details"]["operators"]["by_apps"]) == ["1", "3"]
    assert [one["failures"] for one in result["details"]["recovery"]] == [1, 2]
    assert all(Path(figure).stat().st_size for figure in result["figures"])
    assert told


def test_the_forms_keep_the_papers_proportion_of_apps_to_nodes() -> None:
    """Section VII-C: 1,000 apps on 10,000 nodes over 20 zones."""
    quick, full = plan_for(True), plan_for(False)
    assert (full.nodes, full.zones, full.apps) == (10_000, 20, (250, 500, 750, 1_000))
    assert [apps / quick.nodes for apps in quick.apps] == [apps / full.nodes for apps in full.apps]
    assert quick.failures == full.failures


@pytest.mark.parametrize("quick", [True, False])
def test_all_apps_whose_costs_are_measured_find_room(quick: bool) -> None:
    assert min(step_costs(plan_for(quick).timed_apps).values()) > 0


def test_a_walk_is_the_way_that_a_message_takes() -> None:
    """As many hops as the message counts, and to the same owner."""
    world = RingWorld(3, zones=3)
    grow(world, 60)
    rng, rings = Random(3), rings_of(world)
    for _ in range(20):
        origin, key = rng.choice(sorted(rings)), id_of(rng.getrandbits(128))
        walked = walk(rings, world.network, origin, key)
        world.send(origin, key, b"")
        world.run(2.0)
        owner, delivered = world.delivered[-1]
        assert (owner, delivered.hops) == (
            owner_of(sorted(ring.own for ring in rings.values()), key).address,
            walked.hops,
        )


def test_what_is_tried_in_a_copy_leaves_the_world_as_it_was() -> None:
    world = NodeWorld(4, zones=2)
    grow(world, 12)
    before = world.timeline.now
    assert in_a_copy(lambda: len(submit(world, 2))) == 2
    assert (world.timeline.now, world.specs) == (before, {})


def test_a_copy_that_fails_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="ended before"):
        in_a_copy(lambda: 1 // 0)


def test_a_master_takes_up_an_app_when_the_one_before_runs() -> None:
    """Two apps of one owner, a host each: the second waits for its turn, and then takes as long."""
    network = Network(Random(5))
    for address in ("master", "owner", "host"):
        network.place(address, "zone")
    apps = [Deployed(name, "owner", ("host",), "", 0.0) for name in ("a", "b")]
    (waited, first), (longer, second) = Master(network, "master", 0.5).deploy_all(apps)
    assert waited == 0.0
    assert longer == pytest.approx(0.5 + 2 * network.way_us("master", "host") / 1e6)
    assert second - first == pytest.approx(longer)
    unhurried = Master(network, "master", 0.5, waits=False).deploy_all(apps)
    assert unhurried[1][0] == pytest.approx(0.5)


def test_our_stewards_pay_for_every_app_too() -> None:
    """One after the other at the same steward, side by side at different ones."""
    apps = [Deployed(str(number), "", (), steward, 1.0) for number, steward in enumerate("xxy")]
    assert with_costs(apps, 0.25) == [1.25, 1.5, 1.25]


def test_percentiles() -> None:
    hundred = [float(number) for number in range(1, 101)]
    assert (percentile(hundred, 0.5), percentile(hundred, 0.99), percentile([7.0], 0.99)) == (50.0, 99.0, 7.0)
