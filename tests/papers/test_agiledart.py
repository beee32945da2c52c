"""AgileDART: one test for each claim about its control plane that we rely on, its section cited, on small worlds.

Where we depart from the paper, a test says so: the leaf set is near on the ring, not in the network, as in Pastry.
"""

import math
from functools import cache
from itertools import pairwise

from bench.overlay_apps import spread_of, submit
from bench.overlay_failures import Standing, recovery
from bench.overlay_world import grow, in_a_copy, stretch, walks
from headwater.control.messages.events import MachineConfig
from headwater.model.peers import BASE
from headwater.overlay.events import OverlayConfig
from headwater.sim.nodes import NodeWorld
from headwater.sim.rings import RingWorld

NODES, APPS = 100, 10


@cache
def busy() -> NodeWorld:
    """Return a ring on which as many apps run for each node as in the paper; no test may change it."""
    world = NodeWorld(11, zones=4)
    grow(world, NODES)
    submit(world, APPS, within_s=5.0)
    return world


def test_data_is_routed_within_log_n_hops() -> None:
    """Section IV-B: routing "jumps closer and closer to the destination" within ⌈log16 N⌉ hops."""
    hops = sorted(one.hops for one in walks(busy(), 500, 1))
    assert hops[int(0.99 * len(hops))] <= math.ceil(math.log(NODES, BASE))


def test_proximity_in_the_table_shortens_the_way() -> None:
    """Section IV-B: "extra entries in the routing table to incorporate proximity metrics"."""
    without = RingWorld(11, zones=4, config=OverlayConfig(proximity=False))
    grow(without, NODES)
    assert stretch(walks(busy(), 500, 1)) < stretch(walks(without, 500, 1))


def test_leaf_sets_are_the_neighbours_on_the_ring() -> None:
    """Section VII-A: a leaf set of 24. A departure: the paper calls its nodes physically closest; ids are random."""
    world = busy()
    assert all(len(node.ring.known.leaves) == 24 for node in world.nodes.values())
    assert any(peer.zone != node.own.zone for node in world.nodes.values() for peer in node.ring.known.leaves)


def test_the_first_chain_runs_at_the_data_and_all_ways_of_an_app_meet_at_one_node() -> None:
    """Section IV-B: "the first hop is always the node closer to the data source"; JOINs meet at a rendezvous point."""
    world = busy()
    for app, spec in world.specs.items():
        assert not world.app_faults(app)
        for number, chain in enumerate(spec.chains):
            if chain.stage == 0:
                assert (app, number) in world.nodes[spec.sources[chain.sources[0]].address].hosting.hosted


def test_operators_are_spread_evenly() -> None:
    """Section VII-C: with 1,000 apps of 10 operators on 10,000 nodes, 99.89 % of the nodes host fewer than 4."""
    world = busy()
    loads = [node.hosting.load for node in world.nodes.values()]
    assert sum(loads) == sum(chain.operators for spec in world.specs.values() for chain in spec.chains)
    assert spread_of(world)["share_under_4"] >= 0.97


def test_roots_of_apps_are_different_nodes() -> None:
    """Section IV-B: "because keys are different, the paths and the rendezvous nodes ... will also be different"."""
    world = busy()
    roots = {address for address, node in world.nodes.items() for key in node.trees.status() if node.trees.is_root(key)}
    assert len(roots) >= APPS - 2


def test_a_steward_is_found_within_four_hops() -> None:
    """Section VII-C: found by gossip within the zone; "most of them can be found within 4 hops"."""
    assert len(busy().steward_hops) == APPS
    assert max(busy().steward_hops) <= 4


def test_more_apps_have_more_stewards() -> None:
    """Section VII-C: a scheduler is added for every so many new apps (50; here 2)."""
    world = NodeWorld(12, zones=1, config=MachineConfig(steward_apps_max=2, steward_apps_few=0))
    grow(world, 20)
    stewards = []
    for _ in range(3):
        submit(world, 2, within_s=4.0)
        stewards.append(sum(node.desk.is_open for node in world.nodes.values()))
    assert stewards[0] < stewards[-1]
    assert all(earlier <= later for earlier, later in pairwise(stewards))


def test_many_simultaneous_failures_are_repaired_in_parallel() -> None:
    """Section VII-D, figure 11(a): recovery takes about as long for many failures as for one."""
    world = busy()
    standing = Standing(world, 2)
    one = in_a_copy(lambda: recovery(world, 1, 0, standing))
    many = in_a_copy(lambda: recovery(world, 8, 0, standing))
    assert many.ring_s <= 2 * one.ring_s
    assert many.dataflow_s <= 2.5 * one.dataflow_s
