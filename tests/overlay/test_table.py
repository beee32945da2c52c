"""The routing table: every place goes one digit further, and the nearest of those that fit it has it."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from headwater.model.peers import NodeId, Peer, id_of, shared_digits
from headwater.model.time import MILLISECOND, Duration, Instant
from headwater.overlay.events import OverlayConfig
from headwater.overlay.known_peers import KnownPeers
from headwater.overlay.table import Nearness, RoutingTable, closer_of, congestion_of

ids = st.integers(0, (1 << 128) - 1).map(id_of)


def peer(identity: NodeId, zone: str = "z") -> Peer:
    return Peer(identity, identity.hex(), zone)


@given(ids, st.lists(ids, max_size=30), ids)
def test_a_hop_shares_more_digits_with_the_key(own: NodeId, others: list[NodeId], key: NodeId) -> None:
    table = RoutingTable(own)
    for identity in others:
        table.put(peer(identity))
        table.check()
    hop = table.next_hop(key)
    if hop is not None:
        assert shared_digits(hop.id, key) > shared_digits(own, key)
    elif own != key:
        assert all(shared_digits(identity, key) <= shared_digits(own, key) for identity in others if identity != own)


@given(ids, st.lists(ids, max_size=30, unique=True), ids)
def test_the_rare_case_gets_nearer_and_loses_no_digit(own: NodeId, others: list[NodeId], key: NodeId) -> None:
    hop = closer_of(own, key, iter(map(peer, others)), set())
    if hop is not None:
        assert shared_digits(hop.id, key) >= shared_digits(own, key)


def test_the_nearer_of_two_peers_gets_the_place() -> None:
    own = peer(id_of(0))
    known = KnownPeers(own, OverlayConfig())
    far, near = peer(id_of(0x80 << 120)), peer(id_of(0x81 << 120))
    known.measured(far, 50_000, 0.0)
    assert known.table.holder(near.id) == far
    known.measured(near, 5_000, 0.0)
    assert known.table.holder(far.id) == near
    known.measured(far, 60_000, 0.0)
    assert known.table.holder(far.id) == near


def test_congestion_and_other_zones_count_as_a_longer_way() -> None:
    assert Nearness(10_000, congestion=0.5).cost > Nearness(14_000).cost
    assert Nearness(10_000, hops=1).cost > Nearness(10_500).cost


def test_whoever_has_a_place_gives_way_when_its_links_are_congested() -> None:
    """Another that was a little farther is worth measuring again, and gets the place."""
    known = KnownPeers(peer(id_of(0)), OverlayConfig())
    holder, other = peer(id_of(0x80 << 120)), peer(id_of(0x81 << 120))
    known.measured(other, 12_000, 0.0)
    known.measured(holder, 10_000, 0.0)
    assert known.table.holder(other.id) == holder
    assert not known.worth_measuring(other)
    known.measured(holder, 10_000, 0.5)
    assert known.worth_measuring(other)
    known.measured(other, 12_000, 0.0)
    assert known.table.holder(holder.id) == other


def test_congestion_is_how_long_messages_wait_up_to_a_second() -> None:
    levels = [congestion_of(Duration(wait_ms * MILLISECOND)) for wait_ms in (0, 40, 240, 1_000, 60_000)]
    assert levels == [0.0, 0.0, 0.2, 1.0, 1.0]


def test_without_proximity_the_first_keeps_the_place() -> None:
    known = KnownPeers(peer(id_of(0)), OverlayConfig(proximity=False))
    first, nearer_one = peer(id_of(0x80 << 120)), peer(id_of(0x81 << 120))
    known.measured(first, 50_000, 0.0)
    known.measured(nearer_one, 5_000, 0.0)
    assert known.table.holder(first.id) == first


def test_some_of_our_zone_are_known_however_far_they_are() -> None:
    """Zones may lie among one another: the nearest of all need not be of ours."""
    known = KnownPeers(peer(id_of(0), "ours"), OverlayConfig(near_max=3, mates_max=2))
    mates = [peer(id_of(number), "ours") for number in (1, 2, 3)]
    for one in mates:
        known.measured(one, 90_000, 0.0)
    for number in range(10, 30):
        known.measured(peer(id_of(number), "other"), 1_000, 0.0)
    known.check()
    assert list(known.mates.values()) == mates[1:]
    known.bury(mates[1], Instant(0))
    assert list(known.mates.values()) == mates[2:]
    assert known.worth_measuring(mates[0])


def test_the_neighbourhood_keeps_the_nearest() -> None:
    known = KnownPeers(peer(id_of(0)), OverlayConfig(near_max=3))
    rng = Random(1)
    trips = {peer(id_of(number + 1)): trip for number, trip in enumerate(rng.sample(range(1_000, 90_000), 20))}
    for one, trip in trips.items():
        known.measured(one, trip, 0.0)
    assert set(known.near.values()) == set(sorted(trips, key=trips.__getitem__)[:3])
