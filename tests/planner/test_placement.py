"""Placement along the ways from sources to the root."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headwater.model.peers import Peer, id_of
from headwater.planner.placement import AlongTheWay, PathStep, Room, Wish


def peer(number: int) -> Peer:
    return Peer(id_of(number), f"n{number}", "z")


def step(number: int, *, load: int = 0, capacity: int = 8, around: tuple[Room, ...] = ()) -> PathStep:
    return PathStep(Room(peer(number), load, capacity), around)


def helpers(*numbers: int, load: int = 0) -> tuple[Room, ...]:
    return tuple(Room(peer(number), load, 8, rtt_us=1_000 * number) for number in numbers)


def test_the_first_chain_runs_at_its_data_while_there_is_room() -> None:
    way = [step(1, load=7), step(2), step(3)]
    assert AlongTheWay().place([Wish(0, 1, 0, (0,))], [way])[0].peer == peer(1)
    full = [step(1, load=8, around=helpers(11)), step(2), step(3)]
    spot = AlongTheWay().place([Wish(0, 1, 0, (0,))], [full])[0]
    assert (spot.peer, spot.anchor) == (peer(11), peer(1))


def test_a_first_chain_leaves_a_crowded_node_for_a_neighbour_that_runs_less() -> None:
    """Up to two operators a node keeps what comes from its own data; beyond, a neighbour with fewer takes it."""
    wish = Wish(0, 1, 0, (0,))
    few = [step(1, load=1, around=helpers(11)), step(2)]
    many = [step(1, load=2, around=helpers(11)), step(2)]
    assert AlongTheWay().place([wish], [few])[0].peer == peer(1)
    assert AlongTheWay().place([wish], [many])[0].peer == peer(11)


def test_stages_climb_the_way() -> None:
    way = [step(number) for number in (1, 2, 3)]
    wishes = [Wish(number, 1, number, (0,)) for number in range(3)]
    assert [spot.peer for spot in AlongTheWay().place(wishes, [way]).values()] == [peer(1), peer(2), peer(3)]


def test_a_sink_is_at_the_root_however_much_runs_there_and_whatever_its_stage() -> None:
    """A file is wanted on the machine that the user named, not on one near it that has more room."""
    way = [step(1), step(2), step(3, load=8, around=helpers(11))]
    wishes = [Wish(0, 1, 0, (0,)), Wish(1, 2, 2, (0,)), Wish(2, 0, 1, (0,)), Wish(3, 0, 3, (0,))]
    spots = AlongTheWay().place(wishes, [way])
    assert [spots[sink].peer for sink in (2, 3)] == [peer(3), peer(3)]


def test_a_chain_that_two_sources_feed_runs_where_their_ways_have_met() -> None:
    ways = [[step(1), step(5), step(9)], [step(2), step(3), step(5), step(9)]]
    spot = AlongTheWay().place([Wish(0, 1, 1, (0, 1)), Wish(1, 1, 2, (0, 1))], ways)
    assert {spot[0].anchor, spot[1].anchor} <= {peer(5), peer(9)}


def test_the_leaf_set_takes_what_is_too_much() -> None:
    way = [step(1, around=helpers(11, 12, 13))]
    wishes = [Wish(number, 1, 1, (0,)) for number in range(8)]
    spots = AlongTheWay(easy=2).place(wishes, [way])
    loads = Counter(spots[wish.instance].peer for wish in wishes)
    assert set(loads.values()) == {2}
    assert len(loads) == 4


def test_when_nobody_is_idle_the_least_loaded_takes_it() -> None:
    way = [step(1, load=6, around=(*helpers(11, load=5), *helpers(12, load=3)))]
    assert AlongTheWay().place([Wish(0, 1, 1, (0,))], [way])[0].peer == peer(12)


ways_of_one_root = st.lists(st.lists(st.integers(1, 30), max_size=4, unique=True), min_size=1, max_size=4).map(
    lambda ways: [[step(number) for number in [*way, 99]] for way in ways]
)


@given(ways_of_one_root, st.data())
def test_rows_only_ever_climb(ways: list[list[PathStep]], data: st.DataObject) -> None:
    """Whatever the ways: a later stage of the same sources is never nearer to them than an earlier one."""
    sources = tuple(range(len(ways)))
    wishes = [Wish(number, 1, number, sources) for number in range(data.draw(st.integers(1, 6)))]
    spots = AlongTheWay().place(wishes, ways)
    assert set(spots) == {wish.instance for wish in wishes}
    for way in ways:
        numbers = [one.node.peer for one in way]
        heights = [numbers.index(spots[wish.instance].anchor) for wish in wishes]
        assert heights == sorted(heights)


@given(ways_of_one_root)
def test_the_same_question_has_the_same_answer(ways: list[list[PathStep]]) -> None:
    wishes = [Wish(number, 1, number % 3, (0,)) for number in range(5)]
    assert AlongTheWay().place(wishes, ways) == AlongTheWay().place(list(reversed(wishes)), ways)


def test_a_node_without_capacity_gets_nothing_while_anybody_on_the_way_takes_something() -> None:
    """Whoever is to leave for good has none; the nearest place on the way that has somebody is used."""
    leaving = step(2, capacity=0)
    wish = Wish(0, 1, 1, (0,))
    assert AlongTheWay().place([wish], [[step(1, capacity=0), leaving]])[0].peer in (peer(1), peer(2))
    assert AlongTheWay().place([wish], [[step(1), leaving]])[0].peer == peer(1)
    helped = step(2, capacity=0, around=helpers(12))
    assert AlongTheWay().place([wish], [[step(1), helped]])[0].peer == peer(12)
