"""Nodes that are restarted so quickly that nobody misses them have forgotten everything, and no app is lost by it."""

from itertools import pairwise

import pytest

from headwater.control.messages.app_messages import LoadTold, ReplicaSent
from headwater.control.messages.events import LeaveWanted, MessageReceived, NodeStarted, NodeTicked, SendMessage
from headwater.control.node import NodeMachine
from headwater.control.steward.deployment import AppPhase
from headwater.model.peers import Peer
from headwater.model.terms import term_after
from headwater.model.time import SECOND, Instant
from headwater.overlay.messages import LeafProbe
from headwater.sim.nodes import NodeWorld
from tests.control.test_apps_on_a_ring import hosts, stewards, with_apps


def restart(world: NodeWorld, address: str, down_s: float = 0.3) -> None:
    """Let a node crash and come back under its id, before its silence is noticed."""
    own: Peer = world.nodes[address].own
    world.crash(address)
    world.run(down_s)
    world.start(own, NodeStarted(sorted(set(world.nodes) - {address})[:3]))


def steward_of(world: NodeWorld, app: str) -> str:
    [address] = [address for address, node in world.nodes.items() if app in node.register.entries]
    return address


@pytest.mark.parametrize("seed", range(3))
def test_a_steward_that_was_restarted_is_given_its_register_back(seed: int) -> None:
    world = with_apps(seed, 8, 3, zones=1)
    restart(world, steward_of(world, "app0"))
    assert world.run_until(world.is_whole, at_most=120), world.faults()


def test_keepers_that_were_restarted_one_by_one_keep_a_copy_again() -> None:
    """Nobody missed any of them; when the steward dies, they still know its apps."""
    world = with_apps(4, 5, 2, zones=1)
    steward = steward_of(world, "app0")
    for address in sorted(set(world.nodes) - {steward}):
        restart(world, address)
        world.run(8)
    world.crash(steward)
    assert world.run_until(world.is_whole, at_most=120), world.faults()


def test_an_instance_whose_host_was_restarted_is_started_there_again() -> None:
    world = with_apps(5, 8, 3)
    several = [address for address in hosts(world).values() if list(hosts(world).values()).count(address) > 1]
    address = next(address for address in several if address not in stewards(world))
    restart(world, address)
    assert world.run_until(world.is_whole, at_most=120), world.faults()


def test_no_two_stewards_raise_a_term_to_the_same_one() -> None:
    world = with_apps(6, 4, 1)
    terms = {term_after(7 << 32, world.rng) for _ in range(100)}
    assert len(terms) == 100
    assert min(terms) > 7 << 32
    assert term_after(min(terms), world.rng) > max(terms)


def test_an_app_that_ended_while_another_took_it_over_ends_there_too() -> None:
    """Cut off with its owner, the steward ends the app; the others, who took it over meanwhile, hear of that."""
    world = with_apps(7, 10, 1, zones=1)
    steward, owner = steward_of(world, "app0"), world.submitted["app0"][0]
    world.network.part({steward: 1, owner: 1})
    assert world.run_until(
        lambda: any("app0" in node.register.entries for address, node in world.nodes.items() if address != steward),
        at_most=60,
    )
    world.end("app0")
    world.run(20)
    assert world.ended == {"app0"}
    world.network.heal()
    assert world.run_until(lambda: not hosts(world), at_most=300), hosts(world)
    entries = [node.register.entries.get("app0") for node in world.nodes.values()]
    assert all(entry is None or entry.phase in (AppPhase.ENDING, AppPhase.ENDED) for entry in entries)


def test_an_app_is_taken_anew_for_its_owner_when_all_who_knew_of_it_are_lost() -> None:
    world = with_apps(8, 5, 1, zones=1)
    owner = world.submitted["app0"][0]
    sources = {peer.address for peer in world.specs["app0"].sources}
    for address in sorted(set(world.nodes) - {owner}):
        own = world.nodes[address].own
        world.crash(address)
        if address in sources:
            world.timeline.after(1_000_000, world.start, own, NodeStarted((owner,)))
    assert world.run_until(world.is_whole, at_most=200), world.faults()
    assert steward_of(world, "app0")


@pytest.mark.parametrize("is_silent", [True, False])
def test_a_keeper_that_leaves_passes_on_what_it_keeps_for_a_steward_that_is_silent(is_silent: bool) -> None:
    """Restarted in a storm, a steward was kept out of the ring for so long that its last keeper left (seed 1173)."""
    world = with_apps(9, 8, 1, zones=1)
    steward = world.nodes[steward_of(world, "app0")]
    keeper = next(node for node in world.nodes.values() if steward.own.id in node.register.copies)
    if is_silent:
        keeper.register.copies[steward.own.id].heard = Instant(world.timeline.now - 60 * SECOND)
    effects = keeper.handle(LeaveWanted(), world.timeline.now)
    told = {
        effect.to
        for effect in effects
        if isinstance(effect, SendMessage)
        and isinstance(effect.message, ReplicaSent)
        and [entry.spec.name for entry in effect.message.entries] == ["app0"]
    }
    assert len(told) == (len(world.nodes) - 1 if is_silent else 0)


def test_whoever_speaks_of_apps_is_alive_for_the_ring_too() -> None:
    """Two that found each other dead worked on one app for half a minute, each in a ring of its own (seed 3539)."""
    world = with_apps(10, 4, 1)
    one, other, *_ = world.nodes.values()
    one.ring.known.bury(other.own, world.timeline.now)
    other.ring.known.bury(one.own, world.timeline.now)
    said = LoadTold(other.own, 0, 8)
    effects = one.handle(MessageReceived(said), world.timeline.now)
    asked = [effect for effect in effects if isinstance(effect, SendMessage) and isinstance(effect.message, LeafProbe)]
    assert [effect.to for effect in asked] == [other.own.address]
    assert other.own.id not in one.ring.known.dead


def test_a_node_that_has_left_does_nothing_any_more() -> None:
    """Its driver may still have something to tell it; nobody counts on it, and it must not speak of apps."""
    world = with_apps(11, 6, 2, zones=1)
    node = world.nodes[steward_of(world, "app0")]
    node.handle(LeaveWanted(), world.timeline.now)
    assert node.deadline() is None
    late = Instant(world.timeline.now + 60 * SECOND)
    other = next(one.own for one in world.nodes.values() if one is not node)
    for event in (NodeTicked(), NodeStarted([other.address]), MessageReceived(LoadTold(other, 0, 8))):
        assert node.handle(event, late) == []


def kept_apart(world: NodeWorld, *, dead: bool) -> tuple[NodeMachine, NodeMachine, list[Instant]]:
    """Return a steward and a keeper that hears nothing of it, and when the keeper sends it its replica."""
    steward = world.nodes[steward_of(world, "app0")]
    keeper = next(node for node in world.nodes.values() if steward.own.id in node.register.copies)
    given_back: list[Instant] = []
    through = world.transmit

    def transmit(sender: str, to: str, message: object) -> None:
        between = {sender, to} == {steward.own.address, keeper.own.address}
        if between and isinstance(message, ReplicaSent) and message.sender.id == keeper.own.id and message.entries:
            given_back.append(world.timeline.now)
        if not between or not (dead or isinstance(message, ReplicaSent)):
            through(sender, to, message)

    world.transmit = transmit  # type: ignore[method-assign]
    return steward, keeper, given_back


def test_a_silent_steward_is_sent_its_register_less_and_less_often() -> None:
    """A replica has the flows of all apps: every two seconds it would fill a narrow link for ever."""
    world = with_apps(12, 5, 2, zones=1)
    steward, keeper, given_back = kept_apart(world, dead=False)
    world.run(600)
    assert steward.own.id in keeper.register.copies
    pauses = [later - earlier for earlier, later in pairwise(given_back)]
    assert pauses == sorted(pauses)
    assert 5 < len(given_back) < 30


def test_a_steward_that_was_found_dead_is_sent_nothing() -> None:
    """Its heir is, as long as it stays dead."""
    world = with_apps(13, 5, 2, zones=1)
    steward, keeper, given_back = kept_apart(world, dead=True)
    assert world.run_until(lambda: steward.own.id in keeper.ring.known.dead, at_most=60)
    before = len(given_back)
    keeper.register.copies[steward.own.id].heard = Instant(0)
    world.run(10)
    assert len(given_back) == before
