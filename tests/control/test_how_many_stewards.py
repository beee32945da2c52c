"""One steward more for every so many apps, and not many more than that: they find one another, and the surplus goes."""

from collections import Counter
from dataclasses import replace
from functools import partial
from math import ceil

import pytest

from headwater.control.messages import app_messages as m
from headwater.control.messages.events import AppSubmitted, MachineConfig, MessageReceived, SendMessage
from headwater.model.peers import Peer, distance, id_of, key_of
from headwater.overlay.events import OverlayConfig
from headwater.sim.nodes import NodeWorld

FORGETFUL = OverlayConfig(leaf_side=2, near_max=4)  # a node of these knows few of its zone, as in a large ring


def ring(seed: int, nodes: int, config: MachineConfig) -> NodeWorld:
    """Return a ring of one zone."""
    world = NodeWorld(seed, zones=1, config=config, check_each=True)
    first = world.add()
    for _ in range(nodes - 1):
        world.add([first])
        world.run(0.2)
    assert world.run_until(world.is_whole, at_most=120), world.faults()
    return world


def stewards(world: NodeWorld) -> list[str]:
    return [address for address, node in world.nodes.items() if node.desk.is_open]


def submit_at_once(world: NodeWorld, apps: int) -> None:
    """Let users submit apps at one instant, each at another node."""
    for number, address in enumerate(world.rng.sample(sorted(world.nodes), apps)):
        world.submit(world.random_app(f"app{number}", operators=1, sources=1), address)


@pytest.mark.parametrize("seed", range(4))
def test_apps_that_look_for_a_steward_at_once_end_up_with_one(seed: int) -> None:
    """Their owners know different nodes of the zone, and find none; a moment later there is one steward, or two."""
    world = ring(seed, 60, replace(MachineConfig(), overlay=FORGETFUL))
    submit_at_once(world, 20)
    assert world.run_until(world.is_whole, at_most=60), world.faults()
    world.run(60)
    assert len(stewards(world)) <= ceil(20 / 50) + 1
    assert world.is_whole(), world.faults()


@pytest.mark.parametrize("seed", range(4))
def test_stewards_of_many_sides_are_too_many_and_the_smallest_give_their_apps_away(seed: int) -> None:
    """Each side of a partition had one; together they are more than it takes for all apps, though none has but few."""
    config = MachineConfig(steward_apps_max=8, steward_apps_few=1)
    world = ring(seed, 24, config)
    side_of = {address: number % 6 for number, address in enumerate(sorted(world.nodes))}
    world.network.part(side_of)
    world.run(30)
    for number, (address, side) in enumerate(side_of.items()):
        peers = [world.nodes[one].own for one, other in side_of.items() if other == side]
        spec = world.random_app(f"app{number}", operators=1, sources=1)
        world.submit(m.AppSpec(spec.name, spec.key, tuple(world.rng.sample(peers, 1)), spec.chains), address)
    assert world.run_until(lambda: len(world.runs_since) == len(side_of), at_most=120)
    assert len(stewards(world)) >= 6
    world.network.heal()
    assert world.run_until(world.is_whole, at_most=300), world.faults()
    world.run(180)
    cared_for = Counter(address for address, node in world.nodes.items() for _ in node.register.entries)
    assert cared_for.total() == len(side_of)
    assert max(cared_for.values()) <= config.steward_apps_max
    assert len(stewards(world)) <= ceil(len(side_of) / config.steward_apps_max) + 1, cared_for
    assert world.is_whole(), world.faults()


@pytest.mark.parametrize("seed", range(8))
def test_an_app_for_which_the_only_steward_has_no_room_has_another_at_once(seed: int) -> None:
    """Others do not know yet that it is full, and it is the nearest to many places: neither keeps an app waiting."""
    world = ring(seed, 2, MachineConfig(steward_apps_max=3, steward_apps_few=0))
    for number in range(6):
        address = sorted(world.nodes)[number % 2]
        world.submit(world.random_app(f"app{number}", operators=1, sources=1), address)
        assert world.run_until(partial(world.runs_since.__contains__, f"app{number}"), at_most=1.5), number
    assert len(stewards(world)) == 2


@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_an_app_that_everybody_has_refused_is_offered_to_them_again(nodes: int) -> None:
    """In a storm one was silent, and another no steward any more when it was asked; that does not hold for ever."""
    world = ring(7, nodes, MachineConfig())
    address = sorted(world.nodes)[0]
    world.submit(world.random_app("app", operators=1, sources=1), address)
    world.nodes[address].seeking.owned["app"].full.update(node.own.id for node in world.nodes.values())
    assert world.run_until(world.is_whole, at_most=60), world.faults()
    assert "app" in world.runs_since


def test_an_appointment_goes_on_to_whom_of_the_zone_is_nearer_to_its_place() -> None:
    """The first who knows nobody nearer becomes the steward, and tells whoever looks for one."""
    world = ring(5, 20, MachineConfig())
    place = id_of(world.rng.getrandbits(128))
    nodes = sorted(world.nodes.values(), key=lambda node: distance(node.own.id, place))
    asker, far, nearest = nodes[-1].own, nodes[-2], nodes[0]

    def said(message: m.Appointed, node: str) -> list[tuple[str, m.AnyNodeMessage]]:
        effects = world.nodes[node].handle(MessageReceived(message), world.timeline.now)
        return [(one.to, one.message) for one in effects if isinstance(one, SendMessage)]

    ((to, passed_on),) = said(m.Appointed(asker, 7, asker, place, 3), far.own.address)
    assert to == nearest.own.address
    assert passed_on == m.Appointed(far.own, 7, asker, place, 2)
    answers = [one for to, one in said(passed_on, to) if to == asker.address and isinstance(one, m.StewardTold)]
    assert answers == [m.StewardTold(nearest.own, 7, nearest.own, 0, 1)]
    assert stewards(world) == [nearest.own.address]
    said(m.Appointed(asker, 8, asker, place, 0), far.own.address)
    assert far.desk.is_open, "one that has gone on for long enough is obeyed"


def test_a_steward_that_is_not_heard_of_is_not_told_of_either() -> None:
    """Nobody answers a search with one that has been silent for four of its words."""
    config = MachineConfig()
    world = ring(6, 5, config)
    one, steward, asker = (world.nodes[address] for address in sorted(world.nodes)[:3])
    world.tell(one.own.address, MessageReceived(m.StewardHere(steward.own, 3)))

    def answer(number: int) -> list[m.AnyNodeMessage]:
        asked = m.StewardAsked(asker.own, number, asker.own, 1, 0)
        effects = one.handle(MessageReceived(asked), world.timeline.now)
        return [effect.message for effect in effects if isinstance(effect, SendMessage)]

    world.run(10)
    assert answer(1) == [m.StewardTold(one.own, 1, steward.own, 3, 1, 10_000_000)]
    world.run(12)
    assert answer(2) == [m.StewardUnknown(one.own, 2, ())]


def test_an_owner_registers_with_stewards_of_its_own_zone_alone() -> None:
    """A peer that names another was mistaken or lies; the search goes on as if it knew of none."""
    world = ring(8, 4, MachineConfig())
    owner = world.nodes[sorted(world.nodes)[0]]
    stranger = Peer(key_of("far"), "far", "elsewhere")
    effects = owner.handle(AppSubmitted(world.random_app("app", operators=1, sources=1)), world.timeline.now)
    asked = [one for one in effects if isinstance(one, SendMessage) and isinstance(one.message, m.StewardAsked)]
    heard: list[m.AnyNodeMessage] = []
    for one in asked:
        assert isinstance(one.message, m.StewardAsked)
        told = m.StewardTold(world.nodes[one.to].own, one.message.number, stranger, 0, 1)
        heard += [
            effect.message
            for effect in owner.handle(MessageReceived(told), world.timeline.now)
            if isinstance(effect, SendMessage)
        ]
    assert asked
    assert not any(isinstance(message, m.RegisterAsked) for message in heard)
    assert [type(message) for message in heard] == [m.Appointed], "all that were asked have answered"


def test_a_node_becomes_no_steward_for_another_zone() -> None:
    """Nor does it name one of its zone to an owner of another."""
    world = ring(9, 3, MachineConfig())
    node, steward = (world.nodes[address] for address in sorted(world.nodes)[:2])
    world.tell(node.own.address, MessageReceived(m.StewardHere(steward.own, 0)))
    stranger = Peer(key_of("far"), "far", "elsewhere")
    appointed = MessageReceived(m.Appointed(stranger, 1, stranger, node.own.id, 0))
    assert node.handle(appointed, world.timeline.now) == []
    assert not node.desk.is_open
    asked = MessageReceived(m.StewardAsked(stranger, 2, stranger, 1, 3))
    effects = node.handle(asked, world.timeline.now)
    unknown = m.StewardUnknown(node.own, 2, ())
    assert [effect.message for effect in effects if isinstance(effect, SendMessage)] == [unknown]
