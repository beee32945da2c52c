"""Nodes that leave for good while rows flow: what they run moves, state and all, whatever happens on the way."""

from collections import Counter
from collections.abc import Callable

import pytest

from headwater.control.messages.app_messages import StartAsked
from headwater.control.messages.events import DrainRevoked, DrainWanted, MessageReceived
from headwater.control.messages.row_messages import RowsKept
from headwater.control.messages.state_messages import StateAsked, StateForgotten, StateTaken, StateTold
from headwater.control.node import NodeMachine
from headwater.dataflow.compile import compile_flow
from headwater.dataflow.graph import Graph
from headwater.engine.moving import BEGINNING, is_settled
from headwater.model.ids import InstanceId
from headwater.model.time import SECOND, Instant
from headwater.overlay.messages import LeafProbe
from headwater.sim.flows import FlowWorld, PlantedNode, undisturbed
from headwater.storage.memory_store import MemoryStore
from tests.sim.test_flows import GRAPHS, joined, told, totals, whole_world

TOTALS = GRAPHS["totals"]


def with_totals(seed: int, graph: Graph = TOTALS) -> tuple[FlowWorld, str]:
    """Return a world in which a flow with keyed state runs, and a node that has some of it and can leave."""
    for drawn in range(seed, seed + 20):
        world = whole_world(drawn, 7)
        world.submit_flow(graph)
        world.run(6)
        hosts = [address for address, node in sorted(world.nodes.items()) if node.hosting.hosted]
        able = [address for address in hosts if world.may_drain(address)]
        if able:
            return world, able[0]
    raise AssertionError("no world in which anybody could leave")


def finish(world: FlowWorld) -> None:
    """Let all rows arrive, and compare with what an undisturbed node writes."""
    assert world.run_until(world.is_done, at_most=700), world.ledger("totals")
    world.check_outputs({"totals": undisturbed(TOTALS)})


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_a_node_ran_goes_on_elsewhere_when_it_has_left(seed: int) -> None:
    """With all it had counted; its own counts stay in the books, so that the ledger balances."""
    world, leaving = with_totals(seed)
    world.depart(leaving)
    assert world.run_until(lambda: leaving not in world.nodes, at_most=60)
    finish(world)


def when_it_comes(world: FlowWorld, kind: type, act: Callable[[str], None], times: int = 1) -> None:
    """Do something to a node at the moment when the first messages of a kind reach it, before it has read them."""
    heard = world.tell
    done: list[str] = []

    def tell(address: str, event: object) -> None:
        if isinstance(event, MessageReceived) and isinstance(event.message, kind) and len(done) < times:
            done.append(address)
            act(address)
        heard(address, event)

    world.tell = tell  # type: ignore[method-assign]


@pytest.mark.parametrize("moment", [StateAsked, StateTold, StateTaken, StateForgotten])
@pytest.mark.parametrize("back_s", [0.5, 30.0])
def test_either_host_may_die_at_any_moment_of_a_move(moment: type, back_s: float) -> None:
    """Who is to read the next message crashes instead, and is back after a while with its disk, and nothing in mind."""
    world, leaving = with_totals(11)
    when_it_comes(world, moment, lambda address: world.lose(address, back_s=back_s))
    world.depart(leaving)
    world.run(40)
    finish(world)
    assert world.happened["crashes"] == 1
    assert leaving not in world.nodes


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("is_from_a_third", [False, True])
def test_word_of_an_earlier_move_does_not_let_a_copy_run(is_from_a_third: bool, is_restarted: bool) -> None:
    """It comes late, while the old host of this move still has the state: only that one can say that it is gone."""
    world, leaving = with_totals(11)
    heard = world.tell
    late: list[str] = []

    def tell(address: str, event: object) -> None:
        if isinstance(event, MessageReceived) and isinstance(event.message, StateTaken) and not late:
            taken = event.message
            node = world.nodes[taken.sender.address]
            assert isinstance(node, PlantedNode)
            late.append(address)
            if is_restarted:  # it has not been told again what it is to run, and fetches nothing
                node.moving.fetching.clear()
                node.hosting.hosted.clear()
            third = next(one for one in world.nodes.values() if one.own.address not in (address, taken.sender.address))
            own, lot = world.nodes[address].own, taken.lot
            sender, of = (third.own, lot) if is_from_a_third else (own, (lot[0] - 1, lot[1]))
            heard(node.own.address, MessageReceived(StateForgotten(sender, taken.app, taken.instance, of)))
            identity = InstanceId(node.carrying.apps[taken.app].id, taken.instance)
            with node.plant.store.read() as snapshot:
                assert not is_settled(snapshot, identity), "the old host has not deleted it"
        heard(address, event)

    world.tell = tell  # type: ignore[method-assign]
    world.depart(leaving)
    assert world.run_until(lambda: leaving not in world.nodes, at_most=60)
    assert late
    finish(world)


@pytest.mark.parametrize("moment", [StateTold, StateTaken, StateForgotten, RowsKept])
def test_a_disk_that_is_full_at_any_moment_of_a_move_only_delays_it(moment: type) -> None:
    """Whoever is to keep the next step cannot, and has not taken it: it is asked for, or told, again."""
    world, leaving = with_totals(11)
    heard = world.tell
    refused: list[str] = []

    def tell(address: str, event: object) -> None:
        node = world.nodes.get(address)
        is_moment = isinstance(event, MessageReceived) and isinstance(event.message, moment)
        if not is_moment or not isinstance(node, PlantedNode) or len(refused) == 3:
            heard(address, event)
            return
        store = node.plant.store
        assert isinstance(store, MemoryStore)
        refused.append(address)
        store.bytes_max = 1
        NodeMachine.handle(node, event, world.timeline.now)  # type: ignore[arg-type]  # without its workers, who wait
        store.bytes_max = None

    world.tell = tell  # type: ignore[method-assign]
    world.depart(leaving)
    assert world.run_until(lambda: leaving not in world.nodes, at_most=120)
    assert len(refused) == 3
    finish(world)


@pytest.mark.parametrize("losses", [1, 2, 3])
def test_an_instance_that_never_reached_its_new_host_is_fetched_by_another(losses: int) -> None:
    """The old host has it until the new one has said that it has all of it: nobody can have run it meanwhile."""
    world, leaving = with_totals(5)
    lost: list[str] = []

    def lose_for_good(address: str) -> None:
        lost.append(address)
        world.crash(address)

    when_it_comes(world, StateTold, lose_for_good, losses)
    world.depart(leaving)
    assert world.run_until(lambda: leaving not in world.nodes, at_most=60 * (losses + 1))
    assert len(lost) == losses
    assert not any(one.host.address in lost for _, entry in world.entries("totals") for one in entry.placed)


def test_a_host_that_was_silent_and_has_fetched_it_after_all_is_asked_for_it() -> None:
    """It was asked once more when its old host was asked, too, who still had it then: so it may have it by now."""
    world, leaving = with_totals(5, compile_flow(totals(rate=5)))
    patience = world.config.host_silence_max
    sent = world.transmit
    parted: list[tuple[str, str, Instant]] = []

    def transmit(sender: str, to: str, message: object) -> None:
        if isinstance(message, StartAsked) and message.whence is not None and sender != to:
            if not parted:
                parted.append((sender, to, world.timeline.now))
                world.network.cut(sender, to)
                world.network.cut(to, sender)
            elif parted[0][:2] == (sender, to) and world.timeline.now - parted[0][2] > patience:
                world.network.mend(sender, to)
                world.network.mend(to, sender)
        sent(sender, to, message)

    world.transmit = transmit  # type: ignore[method-assign]
    world.depart(leaving)
    assert world.run_until(lambda: leaving not in world.nodes, at_most=120)
    finish(world)
    assert parted


def test_state_that_takes_long_on_its_way_is_not_sent_again_every_second() -> None:
    """Over a slow link every asking brought another copy of a piece, and the next one waited behind them all."""
    world, leaving = with_totals(5)
    sent = world.transmit
    told: Counter[tuple[int, object]] = Counter()

    def transmit(sender: str, to: str, message: object) -> None:
        if isinstance(message, StateTold):
            told[message.instance, message.after] += 1
            world.timeline.after(30 * SECOND, sent, sender, to, message)
        else:
            sent(sender, to, message)

    world.transmit = transmit  # type: ignore[method-assign]
    world.depart(leaving)
    assert world.run_until(lambda: leaving not in world.nodes, at_most=120)
    finish(world)
    assert 1 <= max(told.values()) <= 6


def test_no_heartbeat_waits_behind_state_on_its_way() -> None:
    """Eight megabytes take a minute and more on a narrow link: whoever is silent for so long is taken for dead."""
    world, leaving = with_totals(5)
    own, other = (world.nodes[address].own for address in (leaving, min(set(world.nodes) - {leaving})))
    world.network.worsen(bytes_per_s=100_000, queue_bytes=32 << 20)
    heard: list[type] = []
    tell = world.tell

    def note(address: str, event: object) -> None:
        if isinstance(event, MessageReceived) and event.message in (state, probe):
            heard.append(type(event.message))
        tell(address, event)

    world.tell = note  # type: ignore[method-assign]
    state = StateTold(own, "totals", 0, (0, 0), BEGINNING, 0, ((0, b"name", 0, bytes(8 << 20)),))
    probe = LeafProbe(own, ())
    world.transmit(own.address, other.address, state)
    world.transmit(own.address, other.address, probe)
    assert world.run_until(lambda: len(heard) == 2, at_most=200)
    assert heard == [LeafProbe, StateTold]


def test_a_node_that_is_to_leave_takes_nothing_more() -> None:
    """Nothing is placed there any more, and it says so to those who would."""
    world, leaving = with_totals(7)
    world.depart(leaving)
    assert world.run_until(lambda: leaving not in world.nodes, at_most=60)
    spare = next(address for address in sorted(world.nodes) if world.may_drain(address))
    node = world.nodes[spare]
    assert isinstance(node, PlantedNode)
    world.tell(spare, DrainWanted())  # the world is not told, and does not let it go
    world.submit_flow(compile_flow(joined()))
    world.run(20)
    assert not node.hosting.hosted


def test_a_node_that_is_to_stay_after_all_keeps_what_it_has_and_takes_more() -> None:
    """Some of it may have moved meanwhile, and goes on there; no row is lost either way."""
    world, leaving = with_totals(7, compile_flow(totals(rate=5)))
    node = world.nodes[leaving]
    world.tell(leaving, DrainWanted())  # the world is not told, and does not let it go
    assert node.hosting.capacity == 0
    world.run(0.02)
    world.tell(leaving, DrainRevoked())
    assert node.hosting.capacity > 0
    finish(world)
    assert world.run_until(world.is_whole, at_most=30)


@pytest.mark.parametrize(("seed", "faults"), [(3, "drains"), (4, "drains+flaky-links"), (5, "drains+churn+slow-disk")])
def test_nodes_leave_one_after_the_other_and_no_row_is_lost(seed: int, faults: str) -> None:
    """Also while others crash and links are bad."""
    outcome = told([TOTALS, compile_flow(joined())], seed, faults, nodes=8)
    assert outcome.failure is None, f"{outcome.failure}"
    assert outcome.happened["leaves"] > 0
