"""What a node has said that it does not have it never runs, also after a restart."""

import pytest

from headwater.control.host import disowned
from headwater.control.host.disowned import Disowned
from headwater.control.messages.app_messages import StartAsked
from headwater.control.messages.events import (
    AwaitInstance,
    MessageReceived,
    NodeEffect,
    NodeStarted,
    SendMessage,
    StartInstance,
)
from headwater.control.messages.state_messages import StateAsked, StateTaken, StateUnknown
from headwater.engine.moving import BEGINNING
from headwater.model.store_layout import DISOWNED_PREFIX
from headwater.model.terms import Lot
from headwater.sim.flows import PlantedNode
from headwater.sim.nodes import NodeWorld
from headwater.storage.memory_store import MemoryStore
from tests.sim.test_flows import whole_world


def test_what_was_disowned_is_so_after_a_restart_and_the_oldest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each instance the highest lot counts; asked again, nothing is written."""
    monkeypatch.setattr(disowned, "DISOWNED_MAX", 3)
    store = MemoryStore()
    known = Disowned(store)
    for number in range(3):
        assert known.add("app", number, (7, number))
    assert known.add("app", 0, (8, 0))
    assert known.add("app", 0, (7, 9)), "covered by the one before"
    assert known.add("x" * 1_000, 0, (1, 1))
    for one in (known, Disowned(store)):
        assert len(one) == 3
        assert one.covers("app", 0, (7, 9))
        assert one.covers("app", 0, (8, 0))
        assert not one.covers("app", 0, (8, 1))
        assert not one.covers("app", 1, (7, 1)), "it was the oldest"
        assert one.covers("app", 2, (7, 2))
        assert one.covers("x" * 1_000, 0, (1, 0))


def test_while_the_disk_is_full_nothing_is_disowned() -> None:
    store = MemoryStore()
    known = Disowned(store)
    store.bytes_max = 1
    assert not known.add("app", 0, (1, 1))
    assert not known.covers("app", 0, (1, 1))
    store.bytes_max = None
    assert known.add("app", 0, (1, 1))


@pytest.mark.parametrize("kind", ["asked", "taken"])
def test_a_node_that_has_disowned_a_placement_does_not_run_it_after_a_restart(kind: str) -> None:
    """The word to start it was late; another host has begun with nothing meanwhile, since this one had nothing."""
    world = whole_world(3, 4)
    address, *others = sorted(world.nodes)
    node, other, steward = (world.nodes[one] for one in (address, *others[:2]))
    assert isinstance(node, PlantedNode)
    spec, lot = world.random_app("late", operators=1, sources=1), (5, 5)
    asked = StateAsked(other.own, "late", 0, lot, BEGINNING)
    message = asked if kind == "asked" else StateTaken(other.own, "late", 0, lot)
    store = node.plant.store
    assert isinstance(store, MemoryStore)
    store.bytes_max = 1
    assert node.handle(MessageReceived(message), world.timeline.now) == [], "what is not written is not said"
    store.bytes_max = None
    effects = node.handle(MessageReceived(message), world.timeline.now)
    assert [one.message for one in effects if isinstance(one, SendMessage)] == [StateUnknown(node.own, "late", 0, lot)]
    with store.read() as snapshot:
        assert len(list(snapshot.scan(DISOWNED_PREFIX))) == 1

    world.crash(address)
    world.start(node.own, NodeStarted(others))
    assert world.run_until(lambda: world.nodes[address].is_active, at_most=60)
    back = world.nodes[address]
    start = StartAsked(steward.own, "late", 1, 0, spec.chains[0], steward.own, key=spec.key, lot=lot)
    late = back.handle(MessageReceived(start), world.timeline.now)
    assert not any(isinstance(one, StartInstance | AwaitInstance) for one in late)
    assert ("late", 0) not in back.hosting.hosted


def test_a_host_does_not_go_back_to_a_placement_that_it_has_disowned() -> None:
    """It runs the instance under a later one when the word to start the earlier arrives."""
    world = NodeWorld(3, zones=1, check_each=True)
    first = world.add()
    for _ in range(2):
        world.add([first])
        world.run(0.5)
    node, other, steward = world.nodes.values()
    spec = world.random_app("late", operators=1, sources=1)

    def start(lot: Lot) -> list[NodeEffect]:
        asked = StartAsked(steward.own, "late", 1, 0, spec.chains[0], steward.own, key=spec.key, lot=lot)
        return node.handle(MessageReceived(asked), world.timeline.now)

    node.handle(MessageReceived(StateAsked(other.own, "late", 0, (5, 5), BEGINNING)), world.timeline.now)
    assert any(isinstance(one, StartInstance) for one in start((6, 6)))
    assert start((5, 5)) == [], "the steward would take an answer for one about what runs"
    assert node.hosting.hosted["late", 0].lot == (6, 6)
