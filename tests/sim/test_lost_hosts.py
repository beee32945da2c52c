"""A host is lost with rows on its disk: chains without state go on elsewhere at once, and no row is lost or doubled."""

import pytest

import headwater as hw
from headwater.control.messages.events import MachineConfig
from headwater.dataflow.compile import compile_flow
from headwater.dataflow.graph import Graph
from headwater.dataflow.stream import Flow
from headwater.sim.flows import FlowWorld, undisturbed
from tests.sim.test_flows import ROWS, told, whole_world

PATIENCE_S = 20.0  # a host is declared dead after eight seconds, and its chains are placed and found in some more


def half(row: hw.Row) -> hw.Row:
    """Keep nothing."""
    return {**row, "x": row["x"] / 2}


def counting(row: hw.Row, seen: int | None) -> tuple[hw.Row, int]:
    """Count the rows of a key: what comes out does not depend on their order."""
    return {"k": row["k"], "seen": (seen or 0) + 1}, (seen or 0) + 1


def halves(rate: float = 20, parallelism: int = 2) -> Flow:
    """A map, and nothing that keeps anything but the sink."""
    halved = hw.read.iterable(ROWS, rate=rate).map(half, parallelism=parallelism)
    return hw.flow("halves", halved.sink(hw.to.memory()))


def counted(rate: float = 20) -> Flow:
    """A map whose rows go to state that is elsewhere."""
    halved = hw.read.iterable(ROWS, rate=rate).map(half, parallelism=4)
    return hw.flow("counted", halved.key_by("k").stateful(counting, parallelism=2).sink(hw.to.memory()))


def bystander(world: FlowWorld, app: str) -> str | None:
    """Return a node that has an instance of an app without state, and nothing else that could not be elsewhere."""
    spec = world.specs[app]
    entries = world.entries(app)
    for _, entry in entries:
        for placed in entry.placed:
            address = placed.host.address
            if spec.chains[placed.instance].is_stateless and world.may_drain(address):
                return address
    return None


def with_bystander(graph: Graph, seed: int, nodes: int = 5, capacity: int = 1) -> tuple[FlowWorld, str]:
    """Return a world in which a flow runs, and a node that only has some of its chains without state.

    A node has room for few chains, so they run on several, and not where the source or the sink is.
    """
    for drawn in range(seed, seed + 40):
        world = whole_world(drawn, nodes, MachineConfig(capacity=capacity))
        world.submit_flow(graph)
        world.run(6)
        found = bystander(world, graph.name)
        if found is not None:
            return world, found
    raise AssertionError("no world in which a chain runs beside all that keeps something")


def rows_read(world: FlowWorld, app: str) -> int:
    """Return how many rows the sources have read."""
    return world.ledger(app).rows_in


def written(world: FlowWorld, app: str) -> int:
    """Return how many rows the sinks have."""
    return sum(rows.total() for rows in world.written(app).values())


@pytest.mark.parametrize("seed", [1, 7, 13])
def test_new_rows_go_on_once_a_host_without_state_is_declared_dead(seed: int) -> None:
    """What lay on its disk waits for it; that is at most what it had taken or been sent when it was lost."""
    graph = compile_flow(halves(rate=10))
    world, lost = with_bystander(graph, seed)
    world.crash(lost)
    at_loss = rows_read(world, "halves")
    world.run(PATIENCE_S)
    by_now = rows_read(world, "halves")
    assert world.run_until(lambda: rows_read(world, "halves") == len(ROWS), at_most=60)
    world.run(PATIENCE_S)
    waiting = len(ROWS) - written(world, "halves")
    assert waiting < (by_now - at_loss) / 4, (waiting, at_loss, by_now)
    assert not world.is_done()


@pytest.mark.parametrize("flow", [halves(), counted()], ids=["alone", "before state"])
@pytest.mark.parametrize("back_s", [12.0, 40.0])
@pytest.mark.parametrize("seed", range(4))
def test_every_row_counts_once_when_a_lost_host_is_back(flow: Flow, back_s: float, seed: int) -> None:
    """It takes what was in doubt and not taken, and sends what lies there to where its chains run now."""
    graph = compile_flow(flow)
    world, lost = with_bystander(graph, 100 * seed, nodes=7, capacity=1 if flow.name == "halves" else 3)
    world.lose(lost, back_s=back_s)
    assert world.run_until(world.is_done, at_most=300), world.ledger(graph.name)
    world.check_outputs({graph.name: undisturbed(graph)})


STATELESS = {flow.name: compile_flow(flow) for flow in (halves(), counted())}


@pytest.mark.parametrize(
    "faults", ["churn", "split-brain", "rolling-restart", "stormy", "flaky-links+churn", "drains+churn"]
)
def test_chains_without_state_lose_and_double_nothing_whatever_strikes(faults: str) -> None:
    """Hosts that are lost and come back, and such as were only thought to be lost."""
    for seed in range(3):
        outcome = told(list(STATELESS.values()), seed, faults, nodes=6)
        assert outcome.failure is None, f"{outcome.replay}: {outcome.failure}"
