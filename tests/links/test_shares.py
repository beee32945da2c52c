"""Budgets are divided: who has more than a fair share gives way, and who has less is never cut. Pure machines."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.links.arrivals import ADDRESSES_MAX, BURST_S, Arrivals
from headwater.links.rates import Buckets, Rate
from headwater.links.rounds import Rounds
from headwater.links.shares import Holder, Over, Shares, network_of
from headwater.model.errors import ConfigError
from headwater.overlay.messages import Heartbeat, Ping

# --- budgets ----------------------------------------------------------------------------------------------------------

NODES = frozenset({"n1", "n2", "n3"})
HOLDERS = st.sampled_from(["n1", "n2", "n3", "u1", "u2", "u3", "u4"])


@dataclass
class Room:
    """A budget, what everybody has of it, and when each item came."""

    shares: Shares[int] = field(init=False)
    items: dict[int, tuple[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin empty: later items have a higher rank."""
        self.shares = Shares(100, float, others=60, each=80)

    def take(self, item: int, holder: str, amount: int) -> list[int]:
        """Let an item take so much, and return what was cut for it; whoever is cut had more than a fair share."""
        if item in self.items and self.items[item][0] != holder:
            return []
        self.items[item] = (holder, amount)
        self.shares.hold(item, holder, amount, is_node=holder in NODES)
        cut = []
        while (over := self.shares.gives_way(holder)) is not None:
            cut.append(self._cut(*over))
        self.shares.check()
        return cut

    def _cut(self, item: int, why: Over) -> int:
        has: Counter[str] = Counter()
        for holder, amount in self.items.values():
            has[holder] += amount
        victim = self.items.pop(item)[0]
        match why:
            case Over.EACH:
                assert has[victim] > self.shares.each
            case Over.OTHERS:
                others = {holder: amount for holder, amount in has.items() if holder not in NODES and amount}
                assert victim in others, "users cut no node out of what is kept for users"
                assert has[victim] == max(others.values()) > self.shares.others / len(others)
            case Over.ROOM:
                assert has[victim] == max(has.values()) > self.shares.room / len([1 for held in has.values() if held])
        self.shares.let_go(item)
        return item


@given(st.lists(st.tuples(st.integers(0, 15), HOLDERS, st.integers(0, 70)), max_size=60))
def test_no_holder_below_its_fair_share_is_cut_while_another_is_above_its_own(
    steps: list[tuple[int, str, int]],
) -> None:
    room = Room()
    for step in steps:
        room.take(*step)
        assert room.shares.total <= 100
        assert room.shares.total_of_others <= 60


@given(st.lists(st.tuples(st.integers(0, 15), HOLDERS, st.integers(0, 70)), max_size=40), st.integers(1, 14))
def test_a_newcomer_with_no_more_than_its_fair_share_always_finds_room(
    steps: list[tuple[int, str, int]], amount: int
) -> None:
    """Seven holders and a newcomer share 60 at least, so 7 is fair, whatever the others have; so is what is left."""
    room = Room()
    for step in steps:
        room.take(*step)
    fair = min(amount, 60 // 8)
    room.take(99, "newcomer", fair)
    assert room.items[99] == ("newcomer", fair)


def test_of_a_holders_connections_the_one_that_was_quiet_for_longest_gives_way() -> None:
    quiet_since = {1: 30.0, 2: 10.0, 3: 20.0, 4: 40.0}
    shares: Shares[int] = Shares(3, quiet_since.__getitem__)
    for item in (1, 2, 3):
        shares.hold(item, "eve", 1)
    shares.hold(4, "ann", 1)
    assert shares.gives_way("ann") == (2, Over.ROOM)


def test_users_cannot_take_what_is_kept_for_nodes_and_nodes_can_take_all() -> None:
    shares: Shares[int] = Shares(10, float, others=4)
    for item in range(4):
        shares.hold(item, f"user {item}", 1)
    assert shares.gives_way("user 3") is None
    shares.hold(4, "user 4", 1)
    assert shares.gives_way("user 4") == (0, Over.OTHERS)
    shares.let_go(0)
    for item in range(10, 20):
        shares.hold(item, f"node {item}", 1, is_node=True)
    for item in range(1, 5):
        assert shares.gives_way("node 19") == (item, Over.ROOM), "of equals, users give way to nodes"
        shares.let_go(item)
    assert shares.gives_way("node 19") is None


def test_strangers_are_accounted_by_address_and_of_ipv6_by_its_first_half() -> None:
    """A site, or a single machine, is given a /64: as many addresses as it likes."""
    same = {network_of(host) for host in ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9%eth0", "2001:0db8:1:2::3")}
    assert same == {"2001:db8:1:2::/64"}
    assert network_of("2001:db8:1:3::1") not in same
    assert network_of("::ffff:10.0.0.1") == network_of("10.0.0.1") == "10.0.0.1"
    assert network_of("gateway") == "gateway"


# --- handshakes -------------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.floats(0, 0.5), st.sampled_from(["a", "a", "a", "a", "b", "c", "d"])), min_size=1, max_size=300
    )
)
def test_an_address_is_refused_a_handshake_only_if_it_has_had_its_fair_share(steps: list[tuple[float, str]]) -> None:
    """And only if the bucket is empty: a lone flood has all of the rate."""
    arrivals, now, admitted = Arrivals(10.0, 0.0), 0.0, 0
    had: Counter[Holder] = Counter()
    for passes, holder in steps:
        now += passes
        if arrivals.admit(holder, now):
            had[holder] += 1
            admitted += 1
        else:
            assert had[holder] + 1 > 10 / 4, "four addresses may each have a quarter of a second's, at any time"
            assert admitted >= min(BURST_S * 10, len(had)), "nobody is refused while the bucket has tokens"
    assert admitted <= BURST_S * 10 + 10 * now + 4 * 10, "the rate, and a share in advance for each address"


def test_a_flood_from_one_address_lets_others_begin_their_handshakes() -> None:
    arrivals = Arrivals(100.0, 0.0)
    flood = sum(arrivals.admit("10.0.0.1", 0.0) for _ in range(10_000))
    assert flood == BURST_S * 100
    assert all(arrivals.admit("10.0.0.2", 0.0) for _ in range(50))
    assert not arrivals.admit("10.0.0.2", 0.0)


class CountedAddress(str):
    """An address that counts how often one of its kind is looked up or put anywhere."""

    looked_up: ClassVar[int] = 0

    def __hash__(self) -> int:
        CountedAddress.looked_up += 1
        return super().__hash__()


def test_an_attempt_costs_the_same_however_many_addresses_are_remembered() -> None:
    """A flood comes from many, and what is to protect from it must not be what takes the time."""
    arrivals, now = Arrivals(100.0, 0.0), 0.0
    addresses = [CountedAddress(f"10.0.{number >> 8}.{number & 255}") for number in range(ADDRESSES_MAX)]
    assert all(arrivals.admit(address, now) for address in addresses)
    CountedAddress.looked_up = 0
    for number in range(2_000):
        now += 0.001
        arrivals.admit(addresses[number % 7], now)
    assert CountedAddress.looked_up < 15 * 2_000


@pytest.mark.parametrize(("at", "remembered"), [(0.375, 2), (0.5, 1), (1.75, 1), (2.0, 0)])
def test_what_addresses_have_had_decays_at_the_rate_in_equal_parts(at: float, remembered: int) -> None:
    """Of 7 and 1 at 4 a second, the 1 is forgotten after 2 / 4 seconds; the other 6 then take all of the rate."""
    arrivals = Arrivals(4.0, 0.0)
    assert all(arrivals.admit(one, 0.0) for one in "aaaaaaab")
    assert not arrivals.admit("a", 0.0)
    arrivals.admit("new", at)
    assert arrivals.share("yet another") == max(1.0, 4.0 / (remembered + 2))


def test_beyond_the_limit_the_address_that_had_least_is_forgotten() -> None:
    """Who floods cannot get rid of what it had by coming from a thousand other addresses."""
    arrivals = Arrivals(1.0, 0.0)
    assert arrivals.admit("flood", 0.0)
    assert arrivals.admit("flood", 0.0)
    assert all(arrivals.admit(f"other {number}", 0.0) for number in range(ADDRESSES_MAX + 10))
    assert not arrivals.admit("flood", 0.0)


# --- turns ------------------------------------------------------------------------------------------------------------


@given(
    st.dictionaries(st.sampled_from("abcde"), st.lists(st.floats(0.1, 5.0), min_size=1, max_size=4), min_size=1),
    st.integers(1, 200),
)
def test_whoever_waits_has_as_much_time_as_all_others_but_for_one_turn(
    costs: dict[str, list[float]], turns: int
) -> None:
    """Whatever a single message costs, and however many connections a holder has."""
    rounds: Rounds[tuple[str, int]] = Rounds()
    taken = dict.fromkeys(costs, 0.0)
    for holder, each in costs.items():
        for number in range(len(each)):
            rounds.put((holder, number), holder)
    for _ in range(turns):
        item = rounds.next()
        holder, number = item
        rounds.charge(item, costs[holder][number])
        taken[holder] += costs[holder][number]
        rounds.check()
        assert max(taken.values()) - min(taken.values()) <= 5.0


def test_who_comes_back_has_saved_nothing_up_and_shaken_nothing_off() -> None:
    rounds: Rounds[str] = Rounds()
    rounds.put("busy", "busy")
    for _ in range(10):
        rounds.charge(rounds.next(), 1.0)
    rounds.put("late", "late")
    turns = []
    for _ in range(4):
        turns.append(rounds.next())
        rounds.charge(turns[-1], 1.0)
    assert turns == ["late", "busy", "late", "busy"]
    rounds.charge("late", 9.0)
    rounds.drop("late")
    rounds.put("late", "late")
    for _ in range(5):
        assert rounds.next() == "busy"
        rounds.charge("busy", 1.0)


# --- rates ------------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(0, 1), st.sampled_from(["n1", "n2"])), max_size=200))
def test_a_rate_holds_over_any_stretch_of_time_for_each_node_by_itself(steps: list[tuple[float, str]]) -> None:
    rate = Rate(per_s=5, burst=10)
    buckets = Buckets({Ping: rate})
    admitted: dict[str, list[float]] = {"n1": [], "n2": []}
    now = 0.0
    for passes, node in steps:
        now += passes
        assert buckets.admit(node, Heartbeat, now), "what has no rate is never refused"
        if buckets.admit(node, Ping, now):
            admitted[node].append(now)
        else:
            recent = [at for at in admitted[node] if at > now - 2]
            assert len(recent) >= 1, "nobody is refused who has said nothing of late"
        buckets.forget_full(now)
    for times in admitted.values():
        for first, begin in enumerate(times):
            for last, end in enumerate(times[first:], first):
                assert last - first + 1 <= rate.burst + rate.per_s * (end - begin) + 1e-6


@pytest.mark.parametrize("wrong", [{"per_s": 0.0, "burst": 1.0}, {"per_s": 1.0, "burst": 0.5}])
def test_a_rate_that_lets_nothing_through_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="lets nothing through"):
        Rate(**wrong)
