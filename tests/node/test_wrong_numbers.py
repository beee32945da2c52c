"""A node in wrong hands names numbers that nobody comes to by counting, or asks for more than a node can have."""

import msgspec
import pytest

from headwater.model.peers import Peer, key_of
from headwater.model.time import Instant
from headwater.node import messages as m
from headwater.node.events import MessageReceived, NodeTicked, SendMessage
from headwater.node.hosting import PLACES_MAX
from headwater.node.messages import AnyNodeMessage
from headwater.node.node import Node
from headwater.node.terms import TERM_MAX, VERSION_MAX, term_after, version_after
from headwater.sim.nodes import NodeWorld

EVIL = Peer(key_of("evil"), "evil:1", "here")
READ = msgspec.msgpack.Decoder(AnyNodeMessage)


@pytest.fixture
def world() -> NodeWorld:
    """A ring of three nodes."""
    world = NodeWorld(3, zones=1, check_each=True)
    first = world.add()
    for _ in range(2):
        world.add([first])
        world.run(0.5)
    return world


def said(node: Node, event: MessageReceived | NodeTicked, now: Instant) -> list[m.AnyNodeMessage]:
    """What a node says, as others read it: raises if they cannot."""
    effects = node.handle(event, now)
    node.check()
    return [
        READ.decode(msgspec.msgpack.encode(effect.message)) for effect in effects if isinstance(effect, SendMessage)
    ]


def test_whoever_hears_of_the_highest_term_says_nothing_that_others_cannot_read(world: NodeWorld) -> None:
    """A message that cannot be encoded would take all others with it that the node wants to send at that moment."""
    node, owner, _ = world.nodes.values()
    spec = world.random_app("app", operators=2, sources=1)
    entry = m.Entry(spec, TERM_MAX, VERSION_MAX, "placing", (), owner.own)
    heard: list[m.AnyNodeMessage] = said(node, MessageReceived(m.HandedOver(EVIL, (entry,))), world.timeline.now)
    for _ in range(20):
        at = node.deadline()
        assert at is not None
        heard += said(node, NodeTicked(), at)
    terms = {message.term for message in heard if isinstance(message, m.PathAsked | m.StartAsked | m.AppClaimed)}
    assert terms
    assert max(terms) <= TERM_MAX


def test_terms_and_versions_end_where_messages_do(world: NodeWorld) -> None:
    assert max(term_after(TERM_MAX, world.rng) for _ in range(100)) <= TERM_MAX
    assert version_after(VERSION_MAX) == VERSION_MAX
    with pytest.raises(msgspec.ValidationError):
        READ.decode(msgspec.msgpack.encode(m.StewardMoved(EVIL, "app", TERM_MAX + 1, EVIL)))


@pytest.mark.parametrize("instance", [0, -1], ids=["sinks", "sources"])
def test_a_node_takes_a_bounded_number_of_what_takes_no_room(world: NodeWorld, instance: int) -> None:
    """Sinks and sources can be nowhere else, so no capacity speaks against them."""
    node, *_ = world.nodes.values()
    sink = m.ChainSpec("out", 0, 0, (0,), keeps=True)
    for number in range(PLACES_MAX + 10):
        asked = m.StartAsked(EVIL, f"app-{number}", 1, instance, sink, EVIL, key=key_of("app"))
        node.handle(MessageReceived(asked), world.timeline.now)
        node.handle(MessageReceived(m.PathAsked(EVIL, f"app-{number}", key_of("app"), 1, 0)), world.timeline.now)
    assert len(node.hosting.hosted) + len(node.hosting.sourced) == PLACES_MAX
