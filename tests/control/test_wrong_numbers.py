"""A node in wrong hands names numbers that nobody comes to by counting, or asks for more than a node can have."""

import msgspec
import pytest

from headwater.control.host.instances import ARRIVING_BYTES_MAX, STEWARD_PLACES_MAX
from headwater.control.messages import app_messages as m
from headwater.control.messages.app_messages import AnyNodeMessage
from headwater.control.messages.events import MessageReceived, NodeTicked, NoteRefused, SendMessage
from headwater.control.messages.row_messages import InstancesHere, RowsSent, Sending
from headwater.control.node import NodeMachine
from headwater.control.steward.deployment import ENDS, AppPhase
from headwater.control.steward.register_entries import HELD_MAX, Entries, bytes_of
from headwater.model.ids import FIGURE_MAX, NUMBER_MAX
from headwater.model.peers import Peer, key_of
from headwater.model.terms import TERM_MAX, VERSION_MAX, is_counted, term_after
from headwater.model.time import SECOND, Instant
from headwater.overlay.messages import (
    HOPS_MAX,
    PAYLOAD_BYTES_MAX,
    PEERS_MAX,
    RTT_US_MAX,
    Carried,
    LeafTold,
    Ping,
    Pong,
    Routed,
)
from headwater.overlay.mistakes import NoteMistake
from headwater.overlay.ring import HEARSAY_MAX
from headwater.overlay.tree_messages import (
    SUMMARIES_MAX,
    SUMMARY_NAME_MAX,
    Summary,
    TreeJoin,
    TreeLeave,
    TreeUp,
    of_one,
)
from headwater.overlay.trees import TREES_MAX
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


def said(node: NodeMachine, event: MessageReceived | NodeTicked, now: Instant) -> list[m.AnyNodeMessage]:
    """What a node says, as others read it: raises if they cannot."""
    effects = node.handle(event, now)
    node.check()
    return [
        READ.decode(msgspec.msgpack.encode(effect.message)) for effect in effects if isinstance(effect, SendMessage)
    ]


def heard_for_a_while(node: NodeMachine, message: m.AnyNodeMessage, now: Instant) -> list[m.AnyNodeMessage]:
    """What a node says to a message and afterwards."""
    heard = said(node, MessageReceived(message), now)
    for _ in range(50):
        at = node.deadline()
        assert at is not None
        heard += said(node, NodeTicked(), at)
    return heard


def entry_of(world: NodeWorld, term: int, version: int, phase: str) -> m.RegisterEntry:
    """An entry of an app, which the second node owns; one that is to end has nothing that needs to be stopped."""
    _, owner, _ = world.nodes.values()
    spec = world.random_app("app", operators=2, sources=1)
    if phase == "ending":
        spec = msgspec.structs.replace(spec, sources=(), chains=())
    return m.RegisterEntry(spec, term, version, phase, (), owner.own)


COUNTED_MAX = (TERM_MAX // 2, VERSION_MAX // 2)


@pytest.mark.parametrize("phase", ["placing", "ending"])
@pytest.mark.parametrize(("term", "version"), [COUNTED_MAX, (1, VERSION_MAX // 2), (TERM_MAX // 2, 1)])
def test_what_may_have_been_counted_can_be_gone_on_from(world: NodeWorld, term: int, version: int, phase: str) -> None:
    """A message that cannot be encoded would take all others with it that the node wants to send at that moment."""
    node, *_ = world.nodes.values()
    heard = heard_for_a_while(node, m.HandedOver(EVIL, (entry_of(world, term, version, phase),)), world.timeline.now)
    terms = {message.term for message in heard if isinstance(message, m.PathAsked | m.StartAsked | m.AppClaimed)}
    assert terms
    assert term < min(terms) <= max(terms) <= TERM_MAX


@pytest.mark.parametrize("phase", ["placing", "ending"])
@pytest.mark.parametrize(("term", "version"), [(TERM_MAX, 1), (1, VERSION_MAX), (TERM_MAX, VERSION_MAX)])
def test_what_nobody_can_have_counted_is_not_gone_on_from(
    world: NodeWorld, term: int, version: int, phase: str
) -> None:
    """Nothing would come after it: a steward could not change such an entry any more."""
    node, *_ = world.nodes.values()
    entry = entry_of(world, term, version, phase)
    asked: tuple[m.AnyNodeMessage, ...] = (
        m.HandedOver(EVIL, (entry,)),
        m.ReplicaSent(EVIL, node.own, (entry,)),
        *([m.EndAsked(EVIL, entry.spec, term)] if not is_counted(term) else []),
        *([m.RegisterAsked(EVIL, 1, entry.spec, term)] if not is_counted(term) else []),
    )
    for message in asked:
        heard_for_a_while(node, message, world.timeline.now)
        assert not node.register.entries, message


def test_nobody_rises_above_the_highest_term(world: NodeWorld) -> None:
    node, *_ = world.nodes.values()
    entry = entry_of(world, 1, 1, "placing")
    heard_for_a_while(node, m.HandedOver(EVIL, (entry,)), world.timeline.now)
    for message in (
        m.HostBeat(EVIL, (("app", 0, TERM_MAX),), is_leaving=False),
        m.StewardMoved(EVIL, "app", TERM_MAX, node.own),
    ):
        heard_for_a_while(node, message, world.timeline.now)
        assert is_counted(node.register.entries["app"].term)


def test_terms_and_versions_end_where_messages_do(world: NodeWorld) -> None:
    assert max(term_after(TERM_MAX // 2, world.rng) for _ in range(100)) <= TERM_MAX
    with pytest.raises(msgspec.ValidationError):
        READ.decode(msgspec.msgpack.encode(m.StewardMoved(EVIL, "app", TERM_MAX + 1, EVIL)))


def large_entry(world: NodeWorld, number: int) -> m.RegisterEntry:
    """One of many entries that are too large together."""
    entry = entry_of(world, 1, 1, "ending")
    spec = msgspec.structs.replace(entry.spec, name=f"app-{number}", flow=bytes(m.FLOW_BYTES_MAX))
    return msgspec.structs.replace(entry, spec=spec)


@pytest.mark.parametrize("told", ["kept", "given back", "ended"])
def test_a_node_keeps_a_bounded_amount_of_what_stewards_know(world: NodeWorld, told: str) -> None:
    """For others, whoever they say that they are, and in its own care."""
    node, *_ = world.nodes.values()
    for number in range((HELD_MAX // m.FLOW_BYTES_MAX) + 10):
        entry = large_entry(world, number)
        steward = Peer(key_of(f"steward-{number % 50}"), "steward:1", "here")
        messages: dict[str, m.AnyNodeMessage] = {
            "kept": m.ReplicaSent(EVIL, steward, (entry,)),
            "given back": m.ReplicaSent(EVIL, node.own, (entry,)),
            "ended": m.EndAsked(EVIL, entry.spec, 1),
        }
        effects = node.handle(MessageReceived(messages[told]), world.timeline.now)
    register = node.register
    assert [effect for effect in effects if isinstance(effect, NoteRefused)]
    assert register.entries.bytes + sum(copy.entries.bytes for copy in register.copies.values()) <= HELD_MAX
    assert all(copy.entries for copy in register.copies.values())


@pytest.mark.parametrize("told", ["kept", "given back"])
def test_a_node_without_room_still_hears_what_becomes_of_what_it_has(world: NodeWorld, told: str) -> None:
    """Else an heir would go on from what was true once, and nobody could end an app any more."""
    node, *_ = world.nodes.values()
    steward = Peer(key_of("steward"), "steward:1", "here")
    whose = {"kept": steward, "given back": node.own}[told]
    for number in range((HELD_MAX // m.FLOW_BYTES_MAX) + 10):
        running = msgspec.structs.replace(large_entry(world, number), phase=AppPhase.PLACING)
        node.handle(MessageReceived(m.ReplicaSent(steward, whose, (running,))), world.timeline.now)
    entries = node.register.copies[steward.id].entries if told == "kept" else node.register.entries
    app, known = next(iter(entries.items()))
    ending = msgspec.structs.replace(known, phase=AppPhase.ENDING, version=known.version + 1)
    effects = node.handle(MessageReceived(m.ReplicaSent(steward, whose, (ending,))), world.timeline.now)
    assert not [effect for effect in effects if isinstance(effect, NoteRefused)]
    assert entries[app].phase in ENDS


def test_a_node_keeps_a_bounded_amount_of_flows_for_what_has_yet_to_come(world: NodeWorld) -> None:
    """A sink takes no room, and whoever asks for it may name a place from where nothing ever comes."""
    node, *_ = world.nodes.values()
    sink, flow = m.ChainSpec("out", 0, 0, (0,), keeps=True), bytes(m.FLOW_BYTES_MAX)
    count = ARRIVING_BYTES_MAX // m.FLOW_BYTES_MAX
    small = [m.StartAsked(EVIL, f"app-{number}", 1, 0, sink, EVIL, key=key_of("app")) for number in range(count + 10)]
    large = [msgspec.structs.replace(one, flow=flow, lot=(1, 1), whence=m.Whence(EVIL, (0, 0))) for one in small]
    for asked in (*small[count:], *large):  # also if something of their name is here already
        node.handle(MessageReceived(asked), world.timeline.now)
    assert len(node.moving.fetching) == count


def test_what_is_kept_for_a_steward_is_given_back_once_however_often_it_is_asked_for(world: NodeWorld) -> None:
    """A message of a hundred thousand times the same name would be answered with as many copies of its flow."""
    node, *_ = world.nodes.values()
    node.handle(MessageReceived(m.ReplicaSent(EVIL, EVIL, (large_entry(world, 1),))), world.timeline.now)
    heard = said(node, MessageReceived(m.ReplicaWanted(EVIL, ("app-1",) * 1_000)), world.timeline.now)
    assert [len(one.entries) for one in heard if isinstance(one, m.ReplicaSent)] == [1]


def test_a_steward_remembers_nothing_of_what_keepers_make_up(world: NodeWorld) -> None:
    """Only of its own apps it has to know who keeps them."""
    node, *_ = world.nodes.values()
    node.handle(MessageReceived(m.HandedOver(EVIL, (entry_of(world, 1, 1, "placing"),))), world.timeline.now)
    for start in range(3):
        kept = tuple((f"made up {start} {number}", 1, 1) for number in range(1_000))
        node.handle(MessageReceived(m.ReplicaKept(EVIL, node.own, (*kept, ("app", 1, 1)), 7)), world.timeline.now)
    assert set(node.register._kept_by[EVIL.id]) == {"app"}


@pytest.mark.parametrize("instances", [(7,), (0, 0)])
def test_no_owner_agrees_to_what_cannot_be_placed_so(world: NodeWorld, instances: tuple[int, ...]) -> None:
    """It would keep it on its disk, and `headwater status` would look for chains that are none."""
    node, *_ = world.nodes.values()
    world.submit(world.random_app("app", operators=2, sources=1), node.own.address)
    placed = tuple(m.Placed(one, EVIL, EVIL) for one in instances)
    effects = node.handle(MessageReceived(m.PlacementTold(EVIL, "app", (), placed)), world.timeline.now)
    assert [type(effect) for effect in effects] == [NoteRefused]
    assert node.seeking.owned["app"].placed == ()


def test_a_node_keeps_a_bounded_amount_of_what_it_passes_on(world: NodeWorld) -> None:
    """Where the next hop does not say that it has it; nor does it wait for that longer because a peer seems far."""
    node, *_ = world.nodes.values()
    node.handle(MessageReceived(LeafTold(EVIL, ())), world.timeline.now)
    node.handle(MessageReceived(Pong(EVIL, -(1 << 63), float("nan"))), world.timeline.now)
    for number in range(2 * node.ring.config.held_max):
        routed = Routed(EVIL, number, EVIL.id, Carried(EVIL, bytes(100)))
        node.handle(MessageReceived(routed), world.timeline.now)
    large = Routed(EVIL, 1 << 61, EVIL.id, Carried(EVIL, bytes(PAYLOAD_BYTES_MAX + 1)))
    assert not any(isinstance(one, Routed) for one in said(node, MessageReceived(large), world.timeline.now))
    assert len(node.ring._forwarding._forwards) == node.ring.config.held_max
    assert node.ring.known.rtt_us(EVIL.id) == RTT_US_MAX


def test_a_node_asks_a_bounded_number_of_peers_on_hearsay(world: NodeWorld) -> None:
    """Whoever makes up peers would else have it ask for ever."""
    node, *_ = world.nodes.values()
    for start in range(0, 3 * HEARSAY_MAX, PEERS_MAX):
        leaves = tuple(Peer(key_of(f"made up {n}"), f"h{n}:1", "here") for n in range(start, start + PEERS_MAX))
        node.handle(MessageReceived(LeafTold(EVIL, leaves)), world.timeline.now)
    assert len(node.ring.questions) == HEARSAY_MAX


def test_entries_know_how_large_they_are(world: NodeWorld) -> None:
    entries = Entries()
    one, other = large_entry(world, 1), entry_of(world, 1, 1, "placing")
    entries["one"], entries["other"] = one, other
    assert entries.bytes == bytes_of(one) + bytes_of(other)
    entries["one"] = other
    entries.pop("other")
    assert entries.bytes == bytes_of(other)
    del entries["one"]
    assert (entries.bytes, len(entries)) == (0, 0)


def test_a_node_is_in_a_bounded_number_of_trees_for_others(world: NodeWorld) -> None:
    node, *_ = world.nodes.values()
    for number in range(TREES_MAX + 10):
        effects = node.handle(MessageReceived(TreeJoin(EVIL, key_of(f"tree-{number}"))), world.timeline.now)
    assert len(node.trees.status()) <= TREES_MAX
    assert [effect for effect in effects if isinstance(effect, SendMessage) and isinstance(effect.message, TreeLeave)]


@pytest.mark.parametrize(
    "names", [[str(number) for number in range(SUMMARIES_MAX + 1)], ["x" * SUMMARY_NAME_MAX + "x"]]
)
def test_a_child_sums_up_a_bounded_number_of_short_names(names: list[str]) -> None:
    summaries: dict[str, Summary] = {name: of_one(1.0) for name in names}
    with pytest.raises(msgspec.ValidationError):
        READ.decode(msgspec.msgpack.encode(TreeJoin(EVIL, key_of("tree"), summaries)))


@pytest.mark.parametrize("instance", [0, -1], ids=["sinks", "sources"])
def test_a_node_takes_a_bounded_number_of_what_takes_no_room(world: NodeWorld, instance: int) -> None:
    """Sinks and sources can be nowhere else, so no capacity speaks against them; nor can one steward have all."""
    node, *_ = world.nodes.values()
    sink = m.ChainSpec("out", 0, 0, (0,), keeps=True)
    for number in range(m.PLACES_MAX + 10):
        asked = m.StartAsked(EVIL, f"app-{number}", 1, instance, sink, EVIL, key=key_of("app"))
        node.handle(MessageReceived(asked), world.timeline.now)
        node.handle(MessageReceived(m.PathAsked(EVIL, f"app-{number}", key_of("app"), 1, 0)), world.timeline.now)
    assert len(node.hosting.hosted) + len(node.hosting.sourced) == STEWARD_PLACES_MAX
    for number in range(STEWARD_PLACES_MAX + 10):
        another = m.StartAsked(node.own, f"b-{number}", 1, instance, sink, EVIL, key=key_of("app"))
        node.handle(MessageReceived(another), world.timeline.now)
    assert len(node.hosting.hosted) + len(node.hosting.sourced) == m.PLACES_MAX


def test_a_mistake_in_one_app_loses_nothing_of_another(world: NodeWorld) -> None:
    """A stage that no decoder lets in any more ended a steward's tick, forty times a second, and all that was due."""
    node, *_ = world.nodes.values()
    good = entry_of(world, 1, 1, "placing")
    chains = tuple(m.ChainSpec("chain", 1, stage, (0,)) for stage in (1, -(1 << 62)))
    bad = msgspec.structs.replace(good, spec=m.AppSpec("bad", key_of("bad"), (EVIL,), chains))
    now = world.timeline.now
    said = node.handle(MessageReceived(m.HandedOver(EVIL, (bad, good))), now)
    said += node.handle(MessageReceived(m.PathTold(EVIL, "bad", 0, (EVIL, node.own))), now)
    for _ in range(200):
        at = node.deadline()
        assert at is not None
        now = max(now, at)
        for effect in node.handle(NodeTicked(), now):
            if isinstance(effect, SendMessage) and isinstance(effect.message, m.RoomAsked):
                for peer in (EVIL, node.own):
                    said += node.handle(MessageReceived(m.RoomTold(peer, effect.message.number, 0, 8, ())), now)
            said.append(effect)
    noted = [effect for effect in said if isinstance(effect, NoteMistake)]
    asked = [one.message for one in said if isinstance(one, SendMessage) and isinstance(one.message, m.PathAsked)]
    assert {type(one.mistake) for one in noted} == {IndexError}
    assert now - world.timeline.now > 10 * SECOND, "time stands still"
    assert len(noted) < (now - world.timeline.now) / SECOND * 3, "as often as others have to be asked, and no more"
    assert len([one for one in asked if one.app == "app"]) > 5
    with pytest.raises(AssertionError):
        node.check()  # whoever tests a machine hears of it


def relayed(node: NodeMachine) -> list[m.AnyNodeMessage]:
    """Messages that a node passes on, or answers by what they say, with the most that each can say."""
    far, key = Peer(key_of("far"), "far:1", "here"), key_of("elsewhere")
    summary = Summary(NUMBER_MAX, FIGURE_MAX, -FIGURE_MAX, FIGURE_MAX)
    sending = Sending("app", key, 0, bytes(16), 0, 0, 1, (), ())
    return [
        *(m.AppClaimed(EVIL, "app", key, TERM_MAX, far, has_ended=False, hops=hops) for hops in (0, HOPS_MAX)),
        *(m.StewardAsked(EVIL, hops, far, hops, HOPS_MAX) for hops in (0, HOPS_MAX)),
        *(TreeUp(EVIL, key, hops, b"", hops) for hops in (0, HOPS_MAX)),
        *(Routed(EVIL, hops, key, Carried(EVIL, b""), hops) for hops in (0, HOPS_MAX)),
        *(InstancesHere(EVIL, "app", key, ((0, far),), hops) for hops in (0, HOPS_MAX)),
        *(RowsSent(EVIL, far, far, hops, sending) for hops in (0, HOPS_MAX)),
        m.Appointed(EVIL, NUMBER_MAX, far, key, HOPS_MAX),
        Ping(EVIL, NUMBER_MAX, NUMBER_MAX),
        TreeJoin(EVIL, key, {"n": summary}),
        TreeJoin(far, key, {"n": summary}),
        m.StewardTold(EVIL, 1, far, m.APPS_MAX, HOPS_MAX, NUMBER_MAX),
        m.LoadTold(EVIL, m.OPERATORS_MAX, m.OPERATORS_MAX),
        m.RoomAsked(EVIL, NUMBER_MAX),
    ]


def test_what_a_node_passes_on_stays_within_bounds(world: NodeWorld) -> None:
    """Else those who hear it part with the node that passes it on, and not with whoever made it up."""
    node, *_ = world.nodes.values()
    for message in relayed(node):
        READ.decode(msgspec.msgpack.encode(message))
        heard_for_a_while(node, message, world.timeline.now)
