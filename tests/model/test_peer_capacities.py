"""How many peers a machine carries, and what each of them may run."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.model.peers import OPERATORS_PER_PEER, PEERS_OF_A_MACHINE_MAX, peer_capacities


def test_a_machine_carries_one_peer_for_every_eight_operators() -> None:
    assert peer_capacities(1) == (1,)
    assert peer_capacities(15) == (15,)
    assert peer_capacities(16) == (8, 8)
    assert peer_capacities(27) == (9, 9, 9)
    assert peer_capacities(28) == (10, 9, 9)


def test_a_very_large_machine_does_not_become_a_large_part_of_the_ring() -> None:
    assert peer_capacities(1_000) == (125,) * PEERS_OF_A_MACHINE_MAX


@given(st.integers(1, 10_000))
def test_nothing_of_a_capacity_is_lost_and_no_peer_is_smaller_than_a_small_machine(capacity: int) -> None:
    parts = peer_capacities(capacity)
    assert sum(parts) == capacity
    assert max(parts) - min(parts) <= 1
    assert min(parts) >= min(capacity, OPERATORS_PER_PEER)
