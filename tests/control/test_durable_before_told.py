"""What an owner says of its app is on its disk before it says so (write-ahead)."""

from random import Random

import pytest

from headwater.control.messages import app_messages as m
from headwater.control.messages.events import (
    AgreedPlacement,
    AppEndWanted,
    AppSubmitted,
    EndedApp,
    MachineConfig,
    MessageReceived,
    NodeEffect,
    NodeStarted,
    NoteAppEnded,
    Persist,
    Persisted,
    Refused,
    SendMessage,
)
from headwater.control.node import NodeMachine
from headwater.model.peers import Peer, id_of, key_of
from headwater.model.time import Instant

OWN, STEWARD = Peer(id_of(1), "own", "z"), Peer(id_of(2), "steward", "z")
SPEC = m.AppSpec("app", key_of("app"), (OWN,), (m.ChainSpec("map", 1, 0, (0,)),))
NOW = Instant(0)


def placed_at(version: int) -> tuple[m.Placed, ...]:
    """Return a placement of the one instance, by its lot."""
    return (m.Placed(0, STEWARD, STEWARD, (1, version)),)


@pytest.fixture
def owner() -> NodeMachine:
    """A node alone in its ring, with an app that its steward has taken."""
    node = NodeMachine(OWN, MachineConfig(), Random(1))
    node.handle(NodeStarted(()), NOW)
    node.handle(AppSubmitted(SPEC), NOW)
    return node


def told(node: NodeMachine, message: m.AnyNodeMessage) -> list[NodeEffect]:
    """Return what an owner wants when it hears a message."""
    effects = node.handle(MessageReceived(message), NOW)
    return [one for one in effects if isinstance(one, Persist | SendMessage)]


def answers(effects: list[NodeEffect]) -> list[m.AnyNodeMessage]:
    """Return the messages that are sent at once."""
    return [one.message for one in effects if isinstance(one, SendMessage)]


def test_an_owner_whose_disk_refuses_a_placement_never_acknowledges_it(owner: NodeMachine) -> None:
    """It said yes to the second question, since its memory already knew the placement that its disk did not."""
    proposal = m.PlacementTold(STEWARD, "app", (), placed_at(1))
    for _ in range(3):
        (persist,) = told(owner, proposal)
        assert isinstance(persist, Persist)
        assert persist.record == AgreedPlacement("app", placed_at(1), False)
        owner.handle(Refused(persist.record, "no room"), NOW)
    (persist,) = told(owner, proposal)
    assert isinstance(persist, Persist)
    heard = m.PlacementHeard(OWN, "app", placed_at(1), False)
    assert persist.then == (SendMessage(STEWARD.address, heard),)
    owner.handle(Persisted(persist.record), NOW)
    assert answers(told(owner, proposal)) == [heard]


def test_while_a_placement_is_written_others_hear_of_the_one_before(owner: NodeMachine) -> None:
    """Another steward that asks meanwhile is told what is durable, and one that proposes has to wait."""
    (persist,) = told(owner, m.PlacementTold(STEWARD, "app", (), placed_at(1)))
    assert isinstance(persist, Persist)
    assert told(owner, m.PlacementTold(STEWARD, "app", (), placed_at(2))) == []
    assert answers(told(owner, m.PlacementTold(STEWARD, "app", placed_at(2), placed_at(3)))) == [
        m.PlacementHeard(OWN, "app", (), False)
    ]
    owner.handle(Persisted(persist.record), NOW)
    assert owner.seeking.owned["app"].placed == placed_at(1)


def test_that_an_app_has_run_is_durable_before_its_steward_hears_that_we_know(owner: NodeMachine) -> None:
    """A steward that is told twice asks twice; what has run is never begun anew with nothing."""
    running = m.AppRunning(STEWARD, "app", 1)
    (persist,) = [one for one in told(owner, running) if isinstance(one, Persist)]
    assert persist.record == AgreedPlacement("app", (), True)
    assert persist.then == (SendMessage(STEWARD.address, m.AppRunningHeard(OWN, "app")),)
    assert answers(told(owner, running)) == []
    owner.handle(Persisted(persist.record), NOW)
    assert m.AppRunningHeard(OWN, "app") in answers(told(owner, running))


def test_an_end_that_could_not_be_kept_is_asked_for_again(owner: NodeMachine) -> None:
    """The app is known until its end is durable, and its user hears of the end only then."""
    (persist,) = [one for one in owner.handle(AppEndWanted("app"), NOW) if isinstance(one, Persist)]
    assert persist == Persist(EndedApp("app"), (NoteAppEnded("app"),))
    owner.handle(Refused(persist.record, "no room"), NOW)
    assert "app" in owner.seeking.owned
    number = owner.seeking.owned["app"].number
    offered = answers(told(owner, m.StewardTold(STEWARD, number, STEWARD, 0, 1)))
    assert not any(isinstance(one, m.RegisterAsked) for one in offered), "it would run without an owner"
    (again,) = [one for one in told(owner, m.EndTold(STEWARD, "app")) if isinstance(one, Persist)]
    owner.handle(Persisted(again.record), NOW)
    assert "app" not in owner.seeking.owned
