"""Apps on a ring of nodes: found a steward, placed along their trees, kept running whoever is lost, and ended."""

import msgspec
import pytest

import headwater as hw
from headwater.control.messages.events import CarryingConfig, MachineConfig, NodeStarted
from headwater.dataflow.compile import compile_flow
from headwater.model.time import SECOND, Duration
from headwater.sim.flows import FlowWorld
from headwater.sim.nodes import NodeWorld
from headwater.sim.witness import Witness


def grown(seed: int, nodes: int, *, config: MachineConfig | None = None, zones: int = 2) -> NodeWorld:
    """Return a ring of nodes."""
    world = NodeWorld(seed, zones=zones, config=config, check_each=True)
    world.add()
    for _ in range(nodes - 1):
        world.add([world.rng.choice(sorted(world.nodes))])
        world.run(0.3)
    assert world.run_until(world.is_whole, at_most=60), world.faults()
    return world


def with_apps(seed: int, nodes: int, apps: int, *, config: MachineConfig | None = None, zones: int = 2) -> NodeWorld:
    """Return a ring of nodes on which apps run, submitted all at once."""
    world = grown(seed, nodes, config=config, zones=zones)
    for number in range(apps):
        spec = world.random_app(f"app{number}", operators=6, sources=2)
        world.submit(spec, world.rng.choice(sorted(world.nodes)))
    assert world.run_until(world.is_whole, at_most=60, step=0.5), world.faults()
    return world


def stewards(world: NodeWorld) -> dict[str, int]:
    """Return how many apps each steward has."""
    return {address: node.desk.apps for address, node in world.nodes.items() if node.desk.apps is not None}


def owners(world: NodeWorld) -> set[str]:
    return {address for address, _ in world.submitted.values()}


def hosts(world: NodeWorld) -> dict[tuple[str, int], str]:
    return {place: address for address, node in world.nodes.items() for place in node.hosting.hosted}


@pytest.mark.parametrize("seed", range(4))
def test_apps_submitted_at_once_all_run(seed: int) -> None:
    world = with_apps(seed, 12, 6)
    assert set(world.runs_since) == set(world.specs)


def test_the_first_chain_runs_at_its_data() -> None:
    world = with_apps(5, 12, 2)
    placed = hosts(world)
    for app, spec in world.specs.items():
        for number, chain in enumerate(spec.chains):
            if chain.stage == 0:
                (source,) = chain.sources
                assert placed[(app, number)] == spec.sources[source].address


def test_a_steward_is_of_the_zone_of_the_owner() -> None:
    world = with_apps(6, 14, 6, zones=3)
    for address, node in world.nodes.items():
        for entry in node.register.entries.values():
            assert entry.owner.zone == world.nodes[address].own.zone


IN_AN_HOUR = Duration(3_600 * SECOND)


@pytest.mark.parametrize(("nodes", "zones"), [(1, 1), (8, 4), (40, 1)])
def test_a_search_that_finds_no_steward_ends_when_nobody_is_left_to_ask(nodes: int, zones: int) -> None:
    """Alone, with one other of the zone, or with others who ask others: nobody waits for an answer that cannot come."""
    world = grown(3, nodes, config=MachineConfig(search_patience=IN_AN_HOUR), zones=zones)
    world.submit(world.random_app("app", operators=3, sources=1), sorted(world.nodes)[0])
    assert world.run_until(lambda: "app" in world.runs_since, at_most=10), world.faults()
    assert world.steward_hops == [1], "it was appointed, and no other had been found"


def test_a_search_whose_words_are_lost_ends_after_a_while() -> None:
    """All others of the zone are cut off when they are asked; they are waited for as long as patience lasts."""
    world = grown(3, 8, zones=2)
    owner = world.nodes[sorted(world.nodes)[0]].own
    away = [one for one, node in world.nodes.items() if node.own.zone == owner.zone and one != owner.address]
    world.network.part(dict.fromkeys(away, 1))
    spec = world.random_app("app", operators=3, sources=1)
    world.submit(msgspec.structs.replace(spec, sources=(owner,)), owner.address)
    assert world.run_until(lambda: "app" in world.runs_since, at_most=30), world.faults()


def flow_world(config: MachineConfig) -> FlowWorld:
    """Return four nodes with engines, and good links."""
    world = FlowWorld(3, nodes=4, zones=1, links_fail=False, witness=Witness())
    world.config = config
    world.add()
    for _ in range(3):
        world.join()
        world.run(0.3)
    assert world.run_until(world.is_whole, at_most=60)
    return world


def test_rows_come_in_as_soon_as_the_owner_knows_that_its_app_runs() -> None:
    """No timer is waited for: whatever is asked again after an hour was answered before."""
    world = flow_world(MachineConfig(retry=IN_AN_HOUR))
    rows = hw.read.iterable([{"n": n} for n in range(4)]).filter(hw.col("n") > 1)
    world.submit_flow(compile_flow(hw.flow("few", rows.sink(hw.to.memory()))))
    assert world.run_until(world.is_done, at_most=60)


def test_instances_that_rows_ask_for_at_the_same_time_are_all_started() -> None:
    """Nobody has to ask a second time because another was being started just then."""
    world = flow_world(MachineConfig(carrying=CarryingConfig(home_asked=IN_AN_HOUR)))
    rows = hw.read.iterable([{"n": n} for n in range(64)])
    seen = rows.key_by("n").stateful(count_seen, parallelism=8, name="seen")
    world.submit_flow(compile_flow(hw.flow("many", seen.sink(hw.to.memory()))))
    assert world.run_until(world.is_done, at_most=30)
    assert {instance for _, instance in hosts(world)} == set(range(9))


def count_seen(row: hw.Row, seen: int | None) -> tuple[hw.Row, int]:
    """Count the rows of a key."""
    return row, (seen or 0) + 1


def test_one_more_steward_for_every_so_many_apps_and_fewer_again() -> None:
    """With room for three apps each, eight apps of one zone need three stewards; for one app one is enough."""
    config = MachineConfig(steward_apps_max=3, steward_apps_few=2)
    world = with_apps(7, 10, 8, config=config, zones=1)
    assert len(stewards(world)) >= 3
    assert max(stewards(world).values()) <= 3
    assert sum(stewards(world).values()) == 8
    for app in sorted(world.specs)[1:]:
        world.end(app)
    assert world.run_until(lambda: sum(stewards(world).values()) == 1, at_most=60), stewards(world)
    assert world.run_until(lambda: len(stewards(world)) == 1, at_most=400), stewards(world)
    assert world.is_whole(), world.faults()


@pytest.mark.parametrize("seed", range(3))
def test_losing_a_steward_loses_no_app_and_no_instance_notices(seed: int) -> None:
    world = with_apps(seed, 12, 4, zones=1)
    steward = next(address for address, apps in stewards(world).items() if apps)
    running = {place: host for place, host in hosts(world).items() if host != steward}
    world.crash(steward)
    assert world.run_until(world.is_whole, at_most=120), world.faults()
    now = hosts(world)
    assert all(now[place] == host for place, host in running.items()), "what ran elsewhere stayed where it was"


@pytest.mark.parametrize("seed", range(3))
def test_a_lost_host_moves_only_what_ran_there(seed: int) -> None:
    world = with_apps(seed, 14, 4)
    sources = {peer.address for spec in world.specs.values() for peer in spec.sources}
    before = hosts(world)
    spare = sorted(set(before.values()) - sources - set(stewards(world)) - owners(world))
    lost = spare[0] if spare else sorted(set(before.values()) - set(stewards(world)))[0]
    world.crash(lost)
    assert world.run_until(world.is_whole, at_most=120), world.faults()
    now = hosts(world)
    assert all(now[place] == host for place, host in before.items() if host != lost)


def test_a_node_that_joins_moves_nothing() -> None:
    world = with_apps(9, 12, 4)
    before = hosts(world)
    world.add([sorted(world.nodes)[0]])
    world.run(30)
    assert world.is_whole(), world.faults()
    assert hosts(world) == before


def test_an_ended_app_leaves_nothing_behind() -> None:
    world = with_apps(10, 10, 3)
    for app in world.specs:
        world.end(app)
    assert world.run_until(lambda: world.ended == set(world.specs), at_most=30)
    assert hosts(world) == {}
    world.run(30)
    assert all(not node.trees.status() for node in world.nodes.values()), "the trees are gone too"


def test_an_app_ended_while_it_was_cut_off_does_not_come_back() -> None:
    world = with_apps(11, 12, 3)
    away = sorted(set(hosts(world).values()) - set(stewards(world)) - owners(world))[0]
    world.network.part({away: 1})
    world.run(2)
    for app in world.specs:
        world.end(app)
    world.run(40)
    world.network.heal()
    assert world.run_until(lambda: not hosts(world), at_most=300), hosts(world)


def test_apps_submitted_on_both_sides_of_a_partition_are_whole_after_it() -> None:
    world = with_apps(12, 16, 4)
    world.network.part({address: number % 2 for number, address in enumerate(sorted(world.nodes))})
    for number in range(4, 8):
        address = world.rng.choice(sorted(world.nodes))
        world.submit(world.random_app(f"app{number}", operators=5, sources=1), address)
    world.run(60)
    world.network.heal()
    assert world.run_until(world.is_whole, at_most=600, step=5), world.faults()


def test_a_node_that_comes_back_under_its_id_finds_its_place() -> None:
    world = with_apps(13, 12, 3)
    address = sorted(set(world.nodes) - owners(world))[0]
    own = world.nodes[address].own
    world.crash(address)
    world.run(20)
    world.start(own, NodeStarted([sorted(world.nodes)[0]]))
    assert world.run_until(world.is_whole, at_most=300, step=2), world.faults()


def test_every_message_survives_the_wire() -> None:
    world = NodeWorld(14, check_each=True, on_wire=True)
    world.add()
    for _ in range(7):
        world.add([sorted(world.nodes)[0]])
        world.run(0.5)
    world.submit(world.random_app("app", operators=5, sources=2), sorted(world.nodes)[2])
    assert world.run_until(lambda: "app" in world.runs_since, at_most=60)
    world.end("app")
    assert world.run_until(lambda: "app" in world.ended, at_most=60)
