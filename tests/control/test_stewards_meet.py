"""What stewards, keepers, hosts and owners do who know different things of one app, after a partition or a restart.

An app is never forgotten on hearsay, an end is never taken back, and of two stewards one gives way.
"""

import msgspec
import pytest

from headwater.control.messages import app_messages as m
from headwater.control.messages.events import MachineConfig, MessageReceived, SendMessage
from headwater.control.node import NodeMachine
from headwater.control.steward.deployment import ENDS, AppPhase
from headwater.model.peers import Peer
from headwater.model.time import Instant
from headwater.sim.nodes import NodeWorld
from headwater.sim.rings import owner_among

ABOVE = 9 << 32  # a term that is higher than any of these short stories


class Scene:
    """A ring of nodes with one app that runs, and who is who."""

    def __init__(self, nodes: int = 6, config: MachineConfig | None = None) -> None:
        """Let the ring grow, and the app run."""
        self.world = NodeWorld(5, zones=1, check_each=True, config=config)
        first = self.world.add()
        for _ in range(nodes - 1):
            self.world.add([first])
            self.world.run(0.5)
        self.world.submit(self.world.random_app("app", operators=2, sources=1), first)
        assert self.world.run_until(self.world.is_whole, at_most=60), self.world.faults()
        self.steward = next(node for node in self.world.nodes.values() if "app" in node.register.entries)
        self.entry = self.steward.register.entries["app"]
        self.others = [node for node in self.world.nodes.values() if node is not self.steward]

    def hears(self, node: NodeMachine, message: m.AnyNodeMessage) -> list[tuple[str, m.AnyNodeMessage]]:
        """Let a node hear something, and return what it says, to whom."""
        effects = node.handle(MessageReceived(message), self.world.timeline.now)
        node.check()
        return [(effect.to, effect.message) for effect in effects if isinstance(effect, SendMessage)]

    def overtake(self) -> tuple[Peer, list[tuple[str, m.AnyNodeMessage]]]:
        """Let the steward hear that another has the app under a higher term."""
        other = self.others[0].own
        return other, self.hears(self.steward, m.StewardMoved(other, "app", ABOVE, other))


@pytest.fixture
def scene() -> Scene:
    """Return a ring with an app."""
    return Scene()


def test_two_stewards_of_an_app_meet_at_its_key(scene: Scene) -> None:
    """Whoever has the lower term is told whose the app is."""
    key, (one, other) = scene.entry.spec.key, [node.own for node in scene.others[:2]]
    root = scene.world.nodes[owner_among((node.own for node in scene.world.nodes.values()), key).address]
    assert scene.hears(root, m.AppClaimed(one, "app", key, ABOVE, one, has_ended=False)) == []
    told = scene.hears(root, m.AppClaimed(other, "app", key, ABOVE - 1, other, has_ended=False))
    assert told == [(other.address, m.StewardMoved(root.own, "app", ABOVE, one))]


def test_who_does_not_know_of_the_end_is_told_of_it_at_the_key(scene: Scene) -> None:
    """Even if its term is higher: an end is never taken back."""
    key, (one, other) = scene.entry.spec.key, [node.own for node in scene.others[:2]]
    root = scene.world.nodes[owner_among((node.own for node in scene.world.nodes.values()), key).address]
    scene.hears(root, m.AppClaimed(one, "app", key, 1, one, has_ended=True))
    told = scene.hears(root, m.AppClaimed(other, "app", key, ABOVE, other, has_ended=False))
    assert told == [(other.address, m.EndKnown(root.own, "app"))]


def test_stewards_of_two_sides_become_one(scene: Scene) -> None:
    """A second steward takes the app over without a word to the first; they need no common host or neighbour."""
    second = scene.others[0]
    second.handle(
        MessageReceived(m.HandedOver(scene.others[1].own, (scene.entry,))), scene.world.timeline.now
    )  # what it says of it is lost
    assert len(scene.world.faults()) == 1
    assert scene.world.run_until(scene.world.is_whole, at_most=30), scene.world.faults()


def test_a_keeper_that_knows_of_an_end_does_not_forget_it_at_the_word_of_another_steward(scene: Scene) -> None:
    keeper, (one, other) = scene.others[0], [node.own for node in scene.others[1:3]]
    ended = msgspec.structs.replace(scene.entry, phase=AppPhase.ENDED, placed=())
    runs = msgspec.structs.replace(scene.entry, term=ABOVE)
    scene.hears(keeper, m.ReplicaSent(one, one, (ended,)))
    told = scene.hears(keeper, m.ReplicaSent(other, other, (runs,)))
    assert (other.address, m.EndKnown(keeper.own, "app")) in told
    assert keeper.register.copies[other.id].entries["app"].phase in ENDS


def test_a_steward_that_gives_way_keeps_the_app_for_the_other(scene: Scene) -> None:
    """The other may be lost before it has a keeper; whoever goes on then does so above the term that hosts know."""
    other, told = scene.overtake()
    assert "app" not in scene.steward.register.entries
    assert scene.steward.register.copies[other.id].entries["app"].term == ABOVE
    assert not [message for _, message in told if isinstance(message, m.ReplicaDropped)]
    keepers = {to for to, message in told if isinstance(message, m.StewardMoved)}
    assert keepers >= {node.own.address for node in scene.others}


def test_keepers_of_a_steward_that_gave_way_keep_the_app_for_the_other(scene: Scene) -> None:
    other, keeper = scene.others[0].own, scene.others[1]
    assert "app" in keeper.register.copies[scene.steward.own.id].entries
    scene.hears(keeper, m.StewardMoved(scene.steward.own, "app", ABOVE, other))
    assert keeper.register.copies[other.id].entries["app"].term == ABOVE
    assert scene.steward.own.id not in keeper.register.copies


def test_a_keeper_forgets_nothing_because_another_keeps_it_too(scene: Scene) -> None:
    keeper, other = scene.others[0], scene.others[1].own
    kept = (("app", scene.entry.term, scene.entry.version),)
    scene.hears(keeper, m.ReplicaKept(other, scene.steward.own, kept, len(kept)))
    assert "app" in keeper.register.copies[scene.steward.own.id].entries


def test_an_owner_is_not_sent_in_a_circle(scene: Scene) -> None:
    """One that knows the app to be another's says so, until the owner has been there and found nothing."""
    other, _ = scene.overtake()
    owner = scene.entry.owner
    told = scene.hears(scene.steward, m.RegisterAsked(owner, 1, scene.entry.spec))
    assert told == [(owner.address, m.StewardMoved(scene.steward.own, "app", ABOVE, other))]
    scene.hears(scene.steward, m.RegisterAsked(owner, 1, scene.entry.spec, term=ABOVE))
    assert scene.steward.register.entries["app"].term > ABOVE


def test_a_steward_to_whom_hosts_turn_rises_above_the_term_they_know(scene: Scene) -> None:
    """Whoever had the app under that term does not answer them."""
    host = scene.entry.placed[0].host
    scene.hears(scene.steward, m.HostBeat(host, (("app", 0, ABOVE),)))
    assert scene.steward.register.entries["app"].term > ABOVE


def test_a_host_obeys_the_steward_that_an_earlier_one_has_just_named(scene: Scene) -> None:
    """The earlier one also says that it does not know the instance; that is no reason to count on it again."""
    host = next(node for node in scene.world.nodes.values() if node.hosting.hosted and node is not scene.steward)
    (instance,) = (instance for app, instance in host.hosting.hosted if app == "app")
    other = next(node.own for node in scene.others if node is not host)
    scene.hears(host, m.StewardMoved(scene.steward.own, "app", ABOVE, other))
    scene.hears(host, m.HostTold(scene.steward.own, (), (), (("app", instance),)))
    scene.hears(host, m.HostTold(other, (), (("app", instance),), ()))
    assert ("app", instance) not in host.hosting.hosted


def test_a_host_that_is_sent_back_to_a_lost_steward_asks_it_and_still_hears_that_nobody_knows(scene: Scene) -> None:
    """Its name under a term that the host knows is no sign of life; a beat is, if it answers."""
    host = next(node for node in scene.world.nodes.values() if node.hosting.hosted and node is not scene.steward)
    ((place, kept),) = host.hosting.hosted.items()
    lost, heir = kept.steward, next(node.own for node in scene.others if node is not host)
    kept.heard = Instant(-scene.world.config.steward_silence_max - 1)
    told = scene.hears(host, m.StewardMoved(heir, "app", kept.term, lost))
    assert (lost.address, m.HostBeat(host.own, (("app", place[1], kept.term),))) in told
    scene.hears(host, m.HostTold(heir, (), (), (place,)))
    assert (kept.steward, kept.strange_since) == (heir, scene.world.timeline.now)
    scene.hears(host, m.StewardMoved(heir, "app", kept.term, lost))
    assert (kept.steward, kept.strange_since) == (heir, scene.world.timeline.now)
    scene.hears(host, m.HostTold(lost, (("app", place[1], kept.term),), (), ()))
    assert (kept.steward, kept.strange_since) == (lost, None)


def test_who_gave_an_app_away_points_to_whoever_has_it_now(scene: Scene) -> None:
    """Not to the one it gave it to, which may be lost since."""
    scene.overtake()
    later, host = scene.others[1].own, scene.entry.placed[0].host
    scene.hears(scene.steward, m.StewardMoved(later, "app", ABOVE + 1, later))
    told = scene.hears(scene.steward, m.HostBeat(host, (("app", 0, ABOVE),)))
    assert (host.address, m.StewardMoved(scene.steward.own, "app", ABOVE + 1, later)) in told


def test_an_app_ends_that_a_steward_took_without_its_owner_hearing_of_it() -> None:
    world = NodeWorld(6, zones=1, check_each=True)
    owner = world.add()
    for _ in range(3):
        world.add([owner])
        world.run(0.5)
    assert world.run_until(world.is_whole, at_most=60), world.faults()
    for other in world.nodes:
        if other != owner:
            world.network.cut(other, owner)
    world.submit(world.random_app("app", operators=2, sources=1), owner)
    for node in list(world.nodes.values())[1:]:
        node.desk.open()
    world.run(2.5)
    world.end("app")
    world.network.heal()
    assert world.run_until(world.is_whole, at_most=90), world.faults()
    assert "app" in world.ended


def test_an_app_for_which_nobody_has_room_waits_between_two_tries() -> None:
    """The only node refuses, and is the only one to ask again."""
    world = NodeWorld(7, zones=1)
    alone = world.add()
    world.submit(world.random_app("app", operators=world.config.capacity + 1, sources=1), alone)
    world.run(30)
    assert world.timeline.happened < 3_000


def test_a_busy_host_says_no_to_a_steward_that_thinks_it_is_idle(scene: Scene) -> None:
    """Several placed at once by what they were told before; whoever knows how much runs there is not refused."""
    host, steward = scene.others[0], scene.others[1].own
    chain = m.ChainSpec("chain", 3, 1, (0,))

    def started(app: str, load: int | None) -> bool:
        asked = m.StartAsked(steward, app, 1, 0, chain, host.own, load=load)
        return next(one.started for _, one in scene.hears(host, asked) if isinstance(one, m.StartTold))

    before = host.hosting.load
    assert started("first", before)
    assert not started("second", before)
    assert started("third", before + chain.operators)


def test_a_steward_that_knows_a_host_to_be_busy_may_be_off_by_a_little() -> None:
    """With hundreds of apps on a few nodes nobody is idle, and who is refused for one operator tries all in turn."""
    scene = Scene(config=MachineConfig(capacity=50))
    host, steward = scene.others[0], scene.others[1].own

    def started(app: str, operators: int, load: int | None) -> bool:
        asked = m.StartAsked(steward, app, 1, 0, m.ChainSpec("chain", operators, 1, (0,)), host.own, load=load)
        return next(one.started for _, one in scene.hears(host, asked) if isinstance(one, m.StartTold))

    assert started("first", 20, None)
    load = host.hosting.load
    assert started("second", load // 2, load)
    assert started("third", 1, load), "it did not know of the second"
    assert not started("fourth", 1, load), "nor of the third, and is told so"
    assert not started("fifth", scene.world.config.capacity, None), "nobody is let in beyond the capacity"


def test_a_chain_with_more_operators_than_a_node_may_have_runs_where_there_is_half_a_node_left() -> None:
    """It was fused by us, and would run nowhere; and two of them do not share a node."""
    scene = Scene(config=MachineConfig(capacity=8))
    host, steward = scene.others[0], scene.others[1].own

    def started(app: str, operators: int) -> bool:
        asked = m.StartAsked(steward, app, 1, 0, m.ChainSpec("chain", operators, 1, (0,)), host.own)
        return next(one.started for _, one in scene.hears(host, asked) if isinstance(one, m.StartTold))

    assert host.hosting.load <= 4
    assert started("long", 20)
    assert started("sink", 0), "which takes no room, and can be nowhere else"
    assert not started("longer", 21)
    assert not started("short", 1)


def test_every_node_knows_the_load_of_all_its_leaves() -> None:
    """Also of one that told its load before it was a leaf; else a root would have nobody to help it out."""
    world = NodeWorld(8, zones=2)
    first = world.add()
    for _ in range(39):
        world.add([first])
    assert world.run_until(world.is_whole, at_most=120), world.faults()
    world.run(2)
    for node in world.nodes.values():
        told = node.handle(MessageReceived(m.RoomAsked(node.own, 1)), world.timeline.now)
        [room] = [one.message for one in told if isinstance(one, SendMessage) and isinstance(one.message, m.RoomTold)]
        assert len(room.around) == m.AROUND_MAX


def test_nobody_but_its_owner_says_where_an_app_is_placed(scene: Scene) -> None:
    """Nor does the owner of instances that the app does not have."""
    owner = scene.entry.owner
    stranger = next(node.own for node in scene.others if node.own.id != owner.id)
    elsewhere = tuple(msgspec.structs.replace(one, host=stranger) for one in scene.entry.placed)
    beyond = (m.Placed(len(scene.entry.spec.chains), owner, owner),)
    for heard in (m.PlacementHeard(stranger, "app", elsewhere, True), m.PlacementHeard(owner, "app", beyond, True)):
        assert scene.hears(scene.steward, heard) == []
        assert scene.steward.register.entries["app"] == scene.entry
