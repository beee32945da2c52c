"""The imagined network: what a link carries in a second, what passes what, and the peers of one host."""

from random import Random

from headwater.model.time import MILLISECOND, SECOND, Instant
from headwater.overlay.messages import Heartbeat, LeafTold
from headwater.sim.network import Links, Network
from headwater.sim.rings import RingWorld
from headwater.sim.story import NODES_MIN, links_drawn, nodes_drawn
from headwater.sim.troubled import NODES_MAX, TroubledWorld
from headwater.sim.witness import Witness

NOW = Instant(0)


def network(**links: int) -> Network:
    """Return two hosts a millisecond apart, and a second peer on the first."""
    made = Network(Random(1), Links(across=MILLISECOND, jitter=0.0, **links))  # type: ignore[arg-type]
    made.place("a", "z")
    made.place("b", "z")
    made.place("a2", "z", on="a")
    return made


def test_a_link_carries_so_many_bytes_a_second() -> None:
    narrow, wide = network(bytes_per_s=1_000), network()
    (wide_at,) = wide.arrivals("a", "b", 2_000, NOW)
    (narrow_at,) = narrow.arrivals("a", "b", 2_000, NOW)
    assert narrow_at == wide_at + 2 * SECOND
    assert narrow.waits("a", NOW) == 2 * SECOND
    assert narrow.waits("b", NOW) == 0


def test_what_is_bulky_lets_all_others_pass() -> None:
    narrow = network(bytes_per_s=1_000)
    (rows,) = narrow.arrivals("a", "b", 5_000, NOW, bulky=True)
    (word,) = narrow.arrivals("a", "b", 100, NOW)
    assert word < SECOND < 5 * SECOND <= rows


def test_what_finds_no_room_to_wait_is_dropped() -> None:
    narrow = network(bytes_per_s=1_000, queue_bytes=3_000)
    assert [len(narrow.arrivals("a", "b", 1_000, NOW)) for _ in range(5)] == [1, 1, 1, 0, 0]
    assert narrow.lost == 2


def test_peers_of_a_host_share_its_link_and_its_fate_but_always_hear_one_another() -> None:
    shared = network(bytes_per_s=1_000)
    shared.arrivals("a", "b", 2_000, NOW)
    assert shared.waits("a2", NOW) == 2 * SECOND
    shared.part({"a": 0, "b": 1})
    assert [shared.connected("a2", "b"), shared.connected("a2", "a")] == [False, True]
    shared.heal()
    shared.cut("a2", "b")
    assert [shared.connected("a", "b"), shared.connected("b", "a")] == [False, True]
    shared.slow("a", 5.0)
    assert not shared.touch_is_free("a2", "b")


def test_messages_are_as_long_as_on_the_wire() -> None:
    world = RingWorld(1, links=Links(bytes_per_s=1_000_000))
    peers = [world.born() for _ in range(20)]
    world.transmit(peers[0].address, peers[1].address, Heartbeat(peers[0]))
    short = world.network.waits(peers[0].address, NOW)
    world.transmit(peers[2].address, peers[3].address, LeafTold(peers[2], tuple(peers)))
    assert 20 < short < 50, "a microsecond for each byte"
    assert world.network.waits(peers[2].address, NOW) > 15 * short


def test_rings_of_all_sizes_are_drawn_and_some_have_narrow_links() -> None:
    sizes = [nodes_drawn(number / 10_000) for number in range(10_000)]
    assert {*sizes} == {*range(NODES_MIN, NODES_MAX + 1)}
    assert sum(size > 8 for size in sizes) > 10_000 / 3
    assert 400 < sum(size > 32 for size in sizes) < 600
    drawn = [links_drawn(Random(seed)).bytes_per_s for seed in range(300)]
    assert 70 < sum(carries > 0 for carries in drawn) < 130


def test_the_nodes_of_a_host_crash_and_return_together() -> None:
    world = TroubledWorld(3, nodes=12, zones=1, links_fail=False, witness=Witness())
    world.add()
    while len(world.nodes) < 12:
        world.join(12 - len(world.nodes))
        world.run(0.5)
    assert world.run_until(world.is_whole, at_most=60), world.faults()
    shared = max(world.hosts(), key=lambda one: len(world.mates(one)))
    mates = world.mates(shared)
    assert len(mates) > 1
    assert all(world.capacities[one] >= 8 for one in mates)
    world.lose(shared, back_s=3.0)
    assert not {*mates} & {*world.nodes}
    world.run(4)
    assert {*mates} <= {*world.nodes}
    assert world.run_until(world.is_whole, at_most=60), world.faults()
