"""Stories of a ring: joining, leaving, dying, parting and meeting again, over a network that forgets."""

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from headwater.model.peers import NodeId, Peer, digit, id_of
from headwater.model.time import SECOND, Instant
from headwater.overlay import messages as m
from headwater.overlay.events import (
    Event,
    LeavingWanted,
    OverlayConfig,
    PeerDoubted,
    PeerHeard,
    PeerPhase,
    Received,
    Send,
    SendingWanted,
    Started,
    Ticked,
)
from headwater.overlay.known_peers import KnownPeers
from headwater.overlay.ring import Ring
from headwater.sim.network import Links
from headwater.sim.rings import RingWorld


def key(world: RingWorld) -> NodeId:
    return id_of(world.rng.getrandbits(128))


def grown(seed: int, peers: int, *, pause: float = 0.5) -> RingWorld:
    """Return a ring into which peers have come one by one."""
    world = RingWorld(seed, check_each=True)
    world.add()
    for _ in range(peers - 1):
        world.add([world.rng.choice(list(world.rings))])
        world.run(pause)
    assert world.run_until(world.is_whole, at_most=60), world.faults()
    return world


def deliver_some(world: RingWorld, count: int) -> None:
    """Send messages to random keys, and see each delivered once, by the owner of its key."""
    world.delivered.clear()
    for number in range(count):
        world.send(world.rng.choice(sorted(world.rings)), key(world), str(number).encode())
    world.run(30)
    assert Counter(what.payload for _, what in world.delivered) == Counter(str(n).encode() for n in range(count))
    assert all(world.owner(what.key) == address for address, what in world.delivered)


def test_the_first_peer_owns_everything() -> None:
    world = RingWorld(1, check_each=True)
    world.add()
    deliver_some(world, 5)


@pytest.mark.parametrize("seed", range(3))
def test_peers_that_come_one_by_one_make_a_ring(seed: int) -> None:
    deliver_some(grown(seed, 12), 50)


@pytest.mark.parametrize("seed", range(3))
def test_half_of_all_peers_may_join_at_once(seed: int) -> None:
    world = grown(seed, 15)
    contacts = list(world.rings)
    for _ in range(15):
        world.add([world.rng.choice(contacts)])
    assert world.run_until(world.is_whole, at_most=60), world.faults()
    deliver_some(world, 50)


def test_all_but_one_may_join_at_once() -> None:
    world = RingWorld(4, check_each=True)
    first = world.add()
    for _ in range(30):
        world.add([first])
    assert world.run_until(world.is_whole, at_most=90), world.faults()
    deliver_some(world, 50)


def test_nothing_is_delivered_before_the_leaves_have_answered() -> None:
    """While it joins, a peer holds what is for it; once it is active, everything is delivered."""
    world = grown(5, 10)
    newcomer = world.add([next(iter(world.rings))])
    early: list[PeerPhase] = []
    world.on_deliver = lambda address, what: early.append(world.rings[address].phase)
    own = world.rings[newcomer].own.id
    while world.rings[newcomer].phase is not PeerPhase.ACTIVE:
        world.send(world.rng.choice(sorted(world.rings)), own, b"for the newcomer")
        world.run(0.05)
    world.run(10)
    assert set(early) == {PeerPhase.ACTIVE}


@pytest.mark.parametrize("seed", range(3))
def test_a_quarter_may_die_at_once(seed: int) -> None:
    world = grown(seed, 24)
    for address in world.rng.sample(sorted(world.rings), 6):
        world.crash(address)
    assert world.run_until(world.is_whole, at_most=120), world.faults()
    deliver_some(world, 40)


def test_neighbours_may_die_together() -> None:
    world = grown(7, 40, pause=0.3)
    in_order = sorted(world.rings.values(), key=lambda ring: ring.own.id)
    for ring in in_order[10:20]:
        world.crash(ring.own.address)
    assert world.run_until(world.is_whole, at_most=120), world.faults()
    deliver_some(world, 40)


def test_who_leaves_in_good_order_is_missed_at_once() -> None:
    world = grown(8, 12)
    world.leave(world.rng.choice(sorted(world.rings)))
    assert world.run_until(world.is_whole, at_most=3), world.faults()


def test_lost_messages_bury_nobody() -> None:
    """At 10 % loss each way for five minutes every peer stays the leaf of those it belongs to."""
    world = grown(9, 16)
    world.network.worsen(loss=0.1, duplication=0.05, reordering=0.2)
    for _ in range(60):
        world.run(5)
        assert len(world.faults()) <= 1, world.faults()
    world.network.heal()
    assert world.run_until(world.is_whole, at_most=60), world.faults()


def test_a_leaf_is_not_dropped_on_hearsay() -> None:
    """Whoever is said to be dead is asked, and stays when it answers."""
    world = grown(10, 6)
    one, other = (world.rings[address] for address in sorted(world.rings)[:2])
    watched = {peer.id for peer in one.known.leaves.neighbours(world.config.watched_side)}
    slandered = next(ring for ring in world.rings.values() if ring.own.id not in {*watched, one.own.id, other.own.id})
    world.run(2)
    told = m.LeafProbe(other.own, (), (slandered.own.id,))
    effects = one.handle(Received(told), world.timeline.now)
    assert any(isinstance(effect, Send) and effect.to == slandered.own.address for effect in effects), "it is asked"
    assert slandered.own.id in one.known.leaves
    world.run(10)
    assert slandered.own.id in one.known.leaves


def test_a_peer_that_only_others_hear_is_not_dead() -> None:
    """One link is broken in both directions; the neighbours vouch for each other's neighbour for a while."""
    world = grown(11, 8)
    one, other = sorted(world.rings.values(), key=lambda ring: ring.own.id)[:2]
    world.network.cut(one.own.address, other.own.address)
    world.network.cut(other.own.address, one.own.address)
    world.run(6)
    assert other.own.id in one.known.leaves


def test_two_who_do_not_hear_each_other_start_no_storm() -> None:
    """Each tells everybody that the other is dead; everybody hears both, and does not run from one to the other."""
    world = grown(13, 8)
    one, other = sorted(world.rings)[:2]
    world.network.cut(one, other)
    world.network.cut(other, one)
    for _ in range(60):
        before = world.network.sent
        world.run(1)
        assert (world.network.sent - before) / len(world.rings) < 20, "messages of a node in a second"


@pytest.mark.parametrize("seed", range(3))
def test_a_ring_that_was_parted_is_one_again(seed: int) -> None:
    world = grown(seed, 20)
    world.network.part({address: number % 2 for number, address in enumerate(sorted(world.rings))})
    world.run(60)
    world.network.heal()
    assert world.run_until(world.is_whole, at_most=300), world.faults()
    deliver_some(world, 40)


def test_two_rings_that_formed_apart_become_one_when_they_meet() -> None:
    """Their peers know nothing of each other, until one is told of a contact in the other ring."""
    world = grown(12, 12)
    first = sorted(world.rings)
    apart = world.add()
    for _ in range(11):
        world.add([apart])
        world.run(0.5)
    world.run(20)
    assert world.faults(), "there are two rings"
    for address in sorted(set(world.rings) - set(first)):
        world.tell(address, Started([first[0]]))
        break
    assert world.run_until(world.is_whole, at_most=600, step=5), world.faults()
    deliver_some(world, 40)


def test_a_peer_comes_back_under_its_own_id() -> None:
    world = grown(13, 10)
    address = sorted(world.rings)[3]
    own = world.rings[address].own
    world.crash(address)
    world.run(1)
    world.start(own, Started([sorted(world.rings)[0]]))
    assert world.run_until(world.is_whole, at_most=60), world.faults()
    deliver_some(world, 30)


@pytest.mark.parametrize(
    "event",
    [
        lambda peer: Received(m.Ping(peer, 0)),
        lambda peer: Started([peer.address]),
        lambda peer: SendingWanted(peer.id, b"too late"),
        PeerDoubted,
        PeerHeard,
        lambda peer: LeavingWanted(),
        lambda peer: Ticked(),
    ],
)
def test_a_peer_that_left_does_nothing_any_more(event: Callable[[Peer], Event]) -> None:
    """Whatever happens: it sends nothing, sets no timer, and does not join again."""
    world = grown(14, 4)
    ring = next(iter(world.rings.values()))
    alive, dead = ring.known.leaves.told()[:2]
    ring.known.bury(dead, world.timeline.now)
    ring.handle(LeavingWanted(), world.timeline.now)
    for peer in (alive, dead):
        assert ring.handle(event(peer), world.timeline.now) == []
    assert ring.deadline() is None
    assert ring.phase is PeerPhase.LEFT


def test_a_peer_that_leaves_while_it_joins_tells_those_that_have_it_as_a_leaf() -> None:
    """Else they miss it only after its silence."""
    world = RingWorld(5, check_each=True)
    first = world.add()
    newcomer = world.rings[world.add([first])]
    assert world.run_until(lambda: newcomer.own.id in world.rings[first].known.leaves, at_most=10, step=0.001)
    assert newcomer.phase is PeerPhase.JOINING
    farewells = newcomer.handle(LeavingWanted(), world.timeline.now)
    assert [effect.to for effect in farewells if isinstance(effect, Send)] == [first]


def test_the_same_seed_makes_the_same_world() -> None:
    def story(seed: int) -> tuple[int, int, list[str]]:
        world = grown(seed, 10)
        world.network.worsen(loss=0.05)
        world.crash(sorted(world.rings)[4])
        world.run(60)
        return (
            world.timeline.happened,
            world.network.lost,
            [str(ring.known.leaves.told()) for ring in world.rings.values()],
        )

    assert story(21) == story(21)
    assert story(21) != story(22)


def test_every_message_survives_the_wire() -> None:
    world = RingWorld(15, on_wire=True, check_each=True)
    world.add()
    for _ in range(9):
        world.add([world.rng.choice(list(world.rings))])
        world.run(0.5)
    world.crash(sorted(world.rings)[2])
    world.leave(sorted(world.rings)[4])
    assert world.run_until(world.is_whole, at_most=60), world.faults()
    deliver_some(world, 20)


def test_neighbours_that_are_restarted_together_do_not_wait_for_one_another() -> None:
    """Others still have both for leaves; each would be asked for the other's place, and is not in the ring itself."""
    world = RingWorld(21, zones=1)
    world.add()
    for _ in range(5):
        world.add(["n1"])
        world.run(1)
    assert world.run_until(world.is_whole, at_most=60)
    peers = sorted(ring.own for ring in world.rings.values())
    chosen = peers[1:4]
    for peer in chosen:
        world.crash(peer.address)
    contact = sorted(world.rings)[0]
    for peer in chosen:
        world.start(peer, Started((contact,)))
    assert world.run_until(world.is_whole, at_most=60), world.faults()


def test_a_table_learns_that_a_peer_is_congested_and_takes_another_of_its_prefix() -> None:
    """The link of one is full for a minute; who would route through it hears so, and routes through another."""
    world = RingWorld(22, zones=1, links=Links(bytes_per_s=100_000), check_each=True)
    own, first, second = (Peer(id_of(number << 120), f"p{number:x}", "z0") for number in (0x10, 0x80, 0x81))
    for one in (own, first, second):
        world.network.place(one.address, one.zone)
        world.start(one, Started([own.address] if one is not own else []))
        assert world.run_until(world.is_whole, at_most=60)
    world.run(60)
    table = world.rings[own.address].known.table
    holder = table.holder(first.id)
    assert holder is not None
    for _ in range(60):
        world.network.arrivals(holder.address, own.address, 200_000, world.timeline.now, bulky=True)
        world.run(1)
    assert table.holder(first.id) == (second if holder == first else first)


def test_peers_get_to_know_others_of_their_zone() -> None:
    """Though they have few leaves and neighbours, and a place for each digit in their tables."""
    world = RingWorld(23, zones=8, config=OverlayConfig(leaf_side=2, near_max=2, mates_max=4))
    world.add()
    for _ in range(79):
        world.add([world.rng.choice(list(world.rings))])
        world.run(0.2)
    world.run(120)
    of_zone = Counter(ring.own.zone for ring in world.rings.values())
    assert min(len(ring.known.mates) for ring in world.rings.values() if of_zone[ring.own.zone] > 8) == 4


def test_nobody_joins_through_one_that_was_near_once_and_is_silent_now() -> None:
    """It was measured when we joined before, and others still tell of it; only who answers now is asked."""
    own, there, silent = (Peer(id_of(number), f"n{number}", "z") for number in range(3))
    ring = Ring(own, OverlayConfig(near_rounds=1), Random(1))
    ring.handle(Started([there.address]), Instant(0))
    ring.known.measured(silent, 10, 0.0)
    ring.handle(Received(m.NearbyTold(there, (silent,))), Instant(1_000))
    ring.handle(Received(m.Pong(there, 1_000)), Instant(9_000))
    deadline = ring.deadline()
    assert deadline is not None
    assert [effect.to for effect in ring.handle(Ticked(), deadline) if isinstance(effect, Send)] == [there.address]


def test_peers_that_joined_at_once_find_one_another_s_places_in_their_tables() -> None:
    """Rows that a joiner is given lack those who join with it; a hole costs messages a hop more."""
    world = RingWorld(11)
    first = world.add()
    for _ in range(150):
        world.add([first])
    assert world.run_until(world.is_whole, at_most=90), world.faults()
    world.run(OverlayConfig().newcomers / SECOND + 5)
    rings = list(world.rings.values())
    first_digits = {digit(ring.own.id, 0) for ring in rings}
    holes = [
        ring.own.address
        for ring in rings
        if {digit(peer.id, 0) for peer in ring.known.table.row(0)} | {digit(ring.own.id, 0)} != first_digits
    ]
    assert holes == []


def test_a_message_that_comes_twice_is_taken_once() -> None:
    """Links double messages, and who hears no confirmation sends again."""
    world = grown(12, 2)
    own, other = sorted(world.rings.values(), key=lambda ring: ring.own.id)
    routed = m.Routed(other.own, 4711, own.own.id, m.Carried(other.own, b"once"), 1)
    for _ in range(2):
        world.tell(own.own.address, Received(routed))
    assert [what.payload for _, what in world.delivered] == [b"once"]


def test_where_a_hop_does_not_answer_a_leaf_is_next_and_not_another_of_the_table() -> None:
    """After many losses most of a table may be dead; eight of them in a row, and a message was given up."""
    own, leaf, hop, farther = (Peer(id_of(place << 120), f"n{place}", "z") for place in (0x10, 0x18, 0xF0, 0xE8))
    known = KnownPeers(own, OverlayConfig(leaf_side=1))
    known.leaves.add(leaf)
    known.leaves.add(Peer(id_of(0x0C << 120), "n12", "z"))
    for peer in (hop, farther):
        known.consider(peer)
    key = id_of(0xF8 << 120)
    assert known.next_hop(key, frozenset()) == hop
    assert known.next_hop(key, frozenset({hop.id})) in known.leaves.told()
    assert known.next_hop(key, frozenset({hop.id, *known.leaves.ids()})) == farther


def test_a_message_that_a_living_owner_never_acknowledges_is_given_up() -> None:
    """The owner answers every probe in between, which must not begin the count of tries anew."""
    world = grown(12, 2)
    own, other = sorted(world.rings.values(), key=lambda ring: ring.own.id)
    sent, through = [], world.transmit

    def transmit(sender: str, to: str, message: m.AnyMessage) -> None:
        if isinstance(message, m.Routed) and isinstance(message.cargo, m.Carried):
            sent.append(message.number)
        else:
            through(sender, to, message)

    world.transmit = transmit  # type: ignore[method-assign]
    world.send(own.own.address, other.own.id, b"too large for this link")
    world.run(600)
    assert len(sent) == world.config.forwards_max
    assert own.status().undelivered == 1
    assert other.own.id in own.known.leaves
