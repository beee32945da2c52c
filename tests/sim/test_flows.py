"""Whole flows over a ring in trouble: every row arrives, each once, and the same seed is the same run."""

import datetime as dt
from collections import Counter

import pytest

import headwater as hw
from headwater import functions as F
from headwater.control.messages.app_messages import PathAsked
from headwater.control.messages.events import MachineConfig, MessageReceived
from headwater.dataflow.compile import compile_flow
from headwater.dataflow.graph import Graph
from headwater.dataflow.stream import Flow
from headwater.model.keys import encode_key, group_of, owner_of
from headwater.model.time import seconds
from headwater.sim.faults import NAMED
from headwater.sim.flow_story import FlowStory
from headwater.sim.flows import FlowWorld, PlantedNode, undisturbed
from headwater.sim.story import StoryOutcome
from headwater.sim.troubled import Broken
from headwater.sim.witness import Witness

BEGAN = dt.datetime(2026, 6, 1, tzinfo=dt.UTC)
ROWS = [{"n": n, "k": f"k{n % 7}", "x": float(n % 11), "at": BEGAN + dt.timedelta(seconds=n)} for n in range(300)]


def running_total(row: hw.Row, seen: int | None) -> tuple[hw.Row, int]:
    """Add up the numbers of a key."""
    total = (seen or 0) + row["n"]
    return {"k": row["k"], "total": total}, total


def totals(rate: float = 20) -> Flow:
    """Keyed state on three instances, of which rows start those that they need."""
    kept = hw.read.iterable(ROWS, rate=rate).filter(hw.col("x") > 1.5)
    return hw.flow("totals", kept.key_by("k").stateful(running_total, parallelism=3).sink(hw.to.memory()))


def minutes() -> Flow:
    """Windows by event time."""
    timed = hw.read.iterable(ROWS, rate=15).with_watermark("at", "10 seconds").key_by("k")
    counted = timed.window(F.window("at", "1 minute")).agg(F.count(), F.avg("x").alias("mean"))
    return hw.flow("minutes", counted.sink(hw.to.memory()))


def joined() -> Flow:
    """Two sources on two nodes, paired."""
    left = hw.read.iterable(ROWS, rate=20).with_watermark("at", "5 seconds")
    right = hw.read.iterable(ROWS[::3], rate=10).with_watermark("at", "5 seconds").select("k", "at", y="x")
    pairs = left.join(right, "k", window=F.window("at", "30 seconds"))
    return hw.flow("joined", pairs.sink(hw.to.memory()))


GRAPHS = {flow.name: compile_flow(flow) for flow in (totals(), minutes())}


def told(graphs: list[Graph], seed: int, faults: str, nodes: int) -> StoryOutcome:
    """Let one story happen."""
    return FlowStory(graphs, {graph.name: undisturbed(graph) for graph in graphs}, seed, faults, nodes).run()


@pytest.mark.parametrize("faults", sorted(NAMED))
def test_every_row_arrives_once_whatever_strikes(faults: str) -> None:
    """Sinks have what an undisturbed node writes, and the ledger of all nodes balances."""
    outcome = told(list(GRAPHS.values()), 1, faults, nodes=6)
    assert outcome.failure is None, f"{outcome.failure}"


def test_two_sources_meet_wherever_they_are() -> None:
    """A join runs where the ways of its sources have met."""
    outcome = told([compile_flow(joined())], 3, "split-brain+slow-disk", nodes=5)
    assert outcome.failure is None, f"{outcome.failure}"


def test_the_same_seed_is_the_same_run() -> None:
    """Byte for byte: rows, marks and messages are part of the digest."""
    one, other = (told([GRAPHS["totals"]], 11, "stormy", nodes=5) for _ in range(2))
    assert (one.digest, one.events, one.failure) == (other.digest, other.events, None)


def test_a_function_that_raises_is_told_by_its_name_and_not_as_a_flow_without_an_end() -> None:
    flow = hw.flow("torn", hw.read.iterable(ROWS[:3]).map(lambda row: 1 / 0, name="halves").sink(hw.to.memory()))
    with pytest.raises(Broken, match="a function of torn raised: halves: ZeroDivisionError"):
        undisturbed(compile_flow(flow))


def whole_world(seed: int, nodes: int, config: MachineConfig | None = None) -> FlowWorld:
    """Return a ring that nothing has disturbed."""
    world = FlowWorld(seed, nodes=nodes, zones=2, links_fail=False, witness=Witness())
    world.config = config or world.config
    world.add()
    for _ in range(nodes - 1):
        world.join()
        world.run(0.3)
    assert world.run_until(world.is_whole, at_most=120)
    return world


def test_rows_of_a_source_without_a_rate_are_under_way_while_faults_strike() -> None:
    """They would all be through within a second, and no fault would ever meet one."""
    world, graph = whole_world(4, 5), compile_flow(hw.flow("at-once", hw.read.iterable(ROWS).sink(hw.to.memory())))
    world.submit_flow(graph)
    world.run(20)
    assert 0 < world.ledger("at-once").rows_out < len(ROWS)
    assert world.run_until(world.is_done, at_most=120)
    world.check_outputs({"at-once": undisturbed(graph)})


def test_an_instance_on_demand_runs_only_if_a_row_needs_it() -> None:
    """Rows of one key need one of three instances; the others have a place, and are not started."""
    rows = [{"n": n, "k": "only"} for n in range(50)]
    flow = hw.flow(
        "only", hw.read.iterable(rows).key_by("k").stateful(running_total, parallelism=3).sink(hw.to.memory())
    )
    graph, world = compile_flow(flow), whole_world(1, 6)
    world.submit_flow(graph)
    assert world.run_until(world.is_done, at_most=120)
    world.check_outputs({"only": undisturbed(graph)})
    (chain,) = graph.chains
    running = Counter(
        number for _, plant in world.plants() if "only" in plant.apps for number in plant.apps["only"].here
    )
    started = [number for number in chain.instances if running[number]]
    needed = owner_of(group_of(encode_key("only")), len(chain.instances))
    assert started == sorted({chain.first_instance, chain.first_instance + needed})
    assert set(running.values()) == {1}


def test_a_source_is_not_read_before_its_owner_knows_where_rows_will_lie() -> None:
    """Were it, a steward that begins anew could place a second time what has rows and state."""
    world = whole_world(2, 5)
    graph = GRAPHS["totals"]
    world.submit_flow(graph)
    owner = world.submitted["totals"][0]

    def is_read() -> bool:
        return any(plant.apps["totals"].sources for _, plant in world.plants() if "totals" in plant.apps)

    assert world.run_until(is_read, at_most=60, step=0.001)
    node = world.nodes[owner]
    assert isinstance(node, PlantedNode)
    owned = node.seeking.owned["totals"]
    assert owned.has_run
    on_demand = sum(chain.on_demand for chain in owned.spec.chains)
    assert len(owned.placed) == graph.instance_count - on_demand


def test_what_an_owner_agreed_to_is_lost_with_a_crash_until_it_is_on_its_disk() -> None:
    """It has told nobody before; after a crash the steward proposes again, and rows and state lie in one place."""
    world, graph = whole_world(5, 5), GRAPHS["totals"]
    for address in world.nodes:
        world.disks.slow(address, seconds(2))
    world.submit_flow(graph)
    assert world.run_until(lambda: "totals" in world.submitted, at_most=10, step=0.1)
    owner = world.submitted["totals"][0]

    def has_agreed() -> bool:
        node = world.nodes[owner]
        return "totals" in node.seeking.owned and node.seeking.owned["totals"].pending is not None

    assert world.run_until(has_agreed, at_most=60, step=0.01)
    assert not world.placed("totals")
    world.lose(owner, back_s=1.0)
    world.run(2.5)
    assert not world.placed("totals"), "what was being written is not there"
    world.disks.heal()
    assert world.run_until(world.is_done, at_most=300)
    assert world.placed("totals")
    world.check_outputs({"totals": undisturbed(graph)})


def test_a_source_whose_node_was_restarted_is_read_again_though_it_was_never_missed() -> None:
    """Asked for its way by whoever else, the node tells of the source again; that does not mean that it is read."""
    world, graph = whole_world(4, 5), GRAPHS["totals"]
    world.submit_flow(graph)
    spec = world.specs["totals"]
    (source,) = spec.sources

    def is_read() -> bool:
        node = world.nodes.get(source.address)
        return isinstance(node, PlantedNode) and "totals" in node.plant.apps and bool(node.plant.apps["totals"].sources)

    assert world.run_until(is_read, at_most=60, step=0.1)
    steward = next(node.own for node in world.nodes.values() if "totals" in node.register.entries)
    term = world.nodes[steward.address].register.entries["totals"].term
    world.lose(source.address, back_s=0.2)
    world.run(0.3)
    assert world.run_until(lambda: world.nodes[source.address].is_active, at_most=5, step=0.1)
    world.tell(source.address, MessageReceived(PathAsked(steward, "totals", spec.key, term, 0)))
    assert not is_read()
    assert world.run_until(world.is_done, at_most=300)
    world.check_outputs({"totals": undisturbed(graph)})
