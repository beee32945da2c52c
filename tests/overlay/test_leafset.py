"""The leaf set against a plain sort of all ids."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.model.peers import RING, NodeId, Peer, clockwise, distance, id_of, nearer, shared_digits
from headwater.overlay.leafset import LeafSet

numbers = st.one_of(st.integers(0, RING - 1), st.integers(0, 40), st.integers(RING - 40, RING - 1))
ids = numbers.map(id_of)
sides = st.integers(1, 4)


def peer(identity: NodeId) -> Peer:
    return Peer(identity, f"a{identity.hex()}", "z")


def filled(own: NodeId, others: list[NodeId], side: int) -> LeafSet:
    leaves = LeafSet(own, side)
    for identity in others:
        leaves.add(peer(identity))
        leaves.check()
    return leaves


def true_leaves(own: NodeId, others: list[NodeId], side: int) -> set[NodeId]:
    around = sorted(set(others) - {own}, key=lambda identity: clockwise(own, identity))
    return set(around[:side]) | set(around[-side:] if side else [])


@given(ids, st.lists(ids, max_size=20), sides)
def test_it_holds_the_nearest_of_either_side_in_whatever_order_they_came(
    own: NodeId, others: list[NodeId], side: int
) -> None:
    assert {one.id for one in filled(own, others, side)} == true_leaves(own, others, side)


@given(ids, st.lists(ids, max_size=20), sides, ids)
def test_it_wants_whoever_would_get_a_place(own: NodeId, others: list[NodeId], side: int, candidate: NodeId) -> None:
    leaves = filled(own, others, side)
    gets_one = candidate in true_leaves(own, [*others, candidate], side)
    assert leaves.wants(candidate) == (gets_one and candidate not in leaves)


@given(ids, st.lists(ids, min_size=1, max_size=20), sides)
def test_whoever_loses_their_place_is_told(own: NodeId, others: list[NodeId], side: int) -> None:
    leaves = LeafSet(own, side)
    for identity in others:
        before = {one.id for one in leaves} | ({identity} - {own})
        lost = {one.id for one in leaves.add(peer(identity))}
        assert lost == before - {one.id for one in leaves}


@given(ids, st.lists(ids, max_size=20, unique=True), sides, ids)
def test_of_a_covered_key_the_owner_is_known(own: NodeId, others: list[NodeId], side: int, key: NodeId) -> None:
    """What it covers, it answers as somebody would who knows everybody."""
    leaves = filled(own, others, side)
    owner = own
    for identity in others:
        if nearer(key, identity, owner):
            owner = identity
    if leaves.covers(key):
        found = leaves.nearest(key)
        assert (own if found is None else found.id) == owner


@given(ids, st.lists(ids, max_size=12, unique=True), sides)
def test_who_is_removed_is_gone_and_the_others_are_not(own: NodeId, others: list[NodeId], side: int) -> None:
    leaves = filled(own, others, side)
    for identity in list(others):
        held = {one.id for one in leaves}
        assert leaves.remove(identity) == (identity in held)
        assert {one.id for one in leaves} == held - {identity}
        leaves.check()


def test_a_peer_with_a_new_address_takes_its_own_place() -> None:
    leaves = filled(id_of(0), [id_of(5), id_of(9)], 2)
    moved = Peer(id_of(5), "elsewhere", "z")
    assert leaves.add(moved) == []
    assert leaves.find(id_of(5)) == moved
    assert len(leaves) == 2


@given(ids, ids, ids)
def test_distances_are_those_of_a_ring(one: NodeId, other: NodeId, third: NodeId) -> None:
    assert distance(one, other) == distance(other, one) <= RING // 2
    assert distance(one, third) <= distance(one, other) + distance(other, third)
    assert (clockwise(one, other) + clockwise(other, one)) % RING == 0


@given(ids, ids)
def test_shared_digits_are_those_of_the_hexadecimal_form(one: NodeId, other: NodeId) -> None:
    pairs = list(zip(one.hex(), other.hex(), strict=True))
    expected = next((place for place, (left, right) in enumerate(pairs) if left != right), len(pairs))
    assert shared_digits(one, other) == expected
