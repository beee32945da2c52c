"""What only shows in a ring with more nodes than a leaf set: whoever is lost may be nobody's leaf who needs it."""

from headwater.control.messages.app_messages import AppSpec, ChainSpec
from headwater.control.messages.events import MachineConfig
from headwater.model.peers import key_of
from headwater.sim.nodes import NodeWorld
from headwater.sim.rings import owner_among


def grown(seed: int, nodes: int) -> NodeWorld:
    """Return a ring of nodes with the default leaf sets of 24."""
    world = NodeWorld(seed, zones=2)
    first = world.add()
    for _ in range(nodes - 1):
        world.add([first])
        world.run(0.1)
    assert world.run_until(world.is_whole, at_most=60), world.faults()
    return world


def test_a_child_finds_another_parent_when_a_node_of_its_table_is_lost() -> None:
    """No heartbeats go to a parent that is no leaf: the tree itself has to notice, and to make the ring look."""
    world = grown(1, 90)
    spec, parent = _app_with_a_parent_far_away(world)
    owner = owner_among((node.own for node in world.nodes.values()), spec.key)
    world.submit(spec, owner.address)
    assert world.run_until(lambda: not world.app_faults("app"), at_most=30, step=0.5), world.app_faults("app")
    world.crash(parent)
    assert world.run_until(lambda: not world.app_faults("app"), at_most=30, step=0.5), world.app_faults("app")


def _app_with_a_parent_far_away(world: NodeWorld) -> tuple[AppSpec, str]:
    """Return an app with one source, whose first hop to the root is neither its leaf nor the root."""
    for number in range(1_000):
        key = key_of(f"key{number}")
        for address in sorted(world.nodes):
            node = world.nodes[address]
            hop = node.ring.next_hop(key)
            if hop is None or hop.id in node.ring.known.leaves or world.nodes[hop.address].ring.next_hop(key) is None:
                continue
            chains = (ChainSpec("first", 1, 0, (0,)), ChainSpec("last", 1, 1, (0,)))
            return AppSpec("app", key, (node.own,), chains), hop.address
    raise AssertionError("no such way in this ring")


def test_hosts_lost_together_with_their_steward_are_not_waited_for_as_long_again() -> None:
    """The heir tells all hosts of itself, again and again, so whoever is silent for three seconds is gone."""
    world = grown(2, 40)
    for number in range(3):
        world.submit(world.random_app(f"app{number}", operators=8, sources=1), world.rng.choice(sorted(world.nodes)))
    assert world.run_until(world.is_whole, at_most=30), world.faults()
    steward, app, host = _steward_and_a_host(world)
    for address in (steward, host):
        world.crash(address)
    lost_at = world.timeline.now
    assert world.run_until(lambda: not world.app_faults(app), at_most=60, step=0.5), world.app_faults(app)
    alone = MachineConfig().host_silence_max
    assert world.timeline.now - lost_at < 2 * alone + alone // 4


def _steward_and_a_host(world: NodeWorld) -> tuple[str, str, str]:
    """Return a steward, one of its apps, and a node that runs part of it and is neither steward nor a source."""
    for address in sorted(world.nodes):
        for app, entry in world.nodes[address].register.entries.items():
            for placed in entry.placed:
                node = world.nodes[placed.host.address]
                if not node.hosting.sourced and not node.desk.is_open and node.own != entry.owner:
                    return address, app, placed.host.address
    raise AssertionError("no such app")
