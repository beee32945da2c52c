"""Trees over a ring: ways meet on their way to a key, what goes down reaches all, and what goes up is added up."""

from collections import Counter
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from headwater.model.peers import NodeId, Peer, id_of
from headwater.model.time import Instant
from headwater.overlay import events as ring_events
from headwater.overlay import trees as tree_events
from headwater.overlay.events import OverlayConfig, PeerPhase
from headwater.overlay.ring import Ring
from headwater.overlay.tree_messages import AnyTreeMessage, Summary
from headwater.overlay.trees import (
    HandDown,
    MembershipEnded,
    MembershipWanted,
    MulticastWanted,
    NumberChanged,
    SendToTree,
    Tree,
    TreeConfig,
    TreeReceived,
    Trees,
    TreeTicked,
)
from headwater.sim.rings import owner_among, ring_faults
from headwater.sim.world import World

KEY = id_of(0x5EED << 112)
SETTLING_S = 40  # a parent is missed after seven seconds, and a number climbs one node with every beat of two


class Perch:
    """A peer of the ring with its trees; each tells the other what concerns it, as in a node."""

    def __init__(self, own: Peer, rng: Random) -> None:
        """Begin outside the ring, in no tree."""
        self.own = own
        self.ring = Ring(own, OverlayConfig(), rng)
        self.trees = Trees(self.ring, TreeConfig(), rng)

    def handle(self, event: Any, now: Instant) -> list[Any]:
        """Take what has happened, and return what to do."""
        match event:
            case TreeReceived() if self.ring.phase is not PeerPhase.ACTIVE:
                return []
            case ring_events.Ticked():
                return [*self._to_ring(event, now), *self._to_trees(TreeTicked(), now)]
            case MembershipWanted() | MembershipEnded() | MulticastWanted() | NumberChanged() | TreeReceived():
                return self._to_trees(event, now)
        return self._to_ring(event, now)

    def _to_ring(self, event: ring_events.Event, now: Instant) -> list[Any]:
        out: list[Any] = []
        for effect in self.ring.handle(event, now):
            out.append(effect)
            if isinstance(effect, ring_events.NoteLeafLost) and effect.dead:
                out += self._to_trees(tree_events.LeafGone(effect.peer), now)
        return out

    def _to_trees(self, event: tree_events.TreeEvent, now: Instant) -> list[Any]:
        out: list[Any] = []
        for effect in self.trees.handle(event, now):
            match effect:
                case tree_events.DoubtPeer(peer):
                    out += self._to_ring(ring_events.PeerDoubted(peer), now)
                case _:
                    out.append(effect)
        return out

    def deadline(self) -> Instant | None:
        """Return when either wants to be told the time."""
        return min((at for at in (self.ring.deadline(), self.trees.deadline()) if at is not None), default=None)

    def check(self) -> None:
        """Raise if something is not as it must be."""
        self.ring.check()
        self.trees.check()


class Grove(World[Perch]):
    """A ring of peers, and one tree in it."""

    def __init__(self, seed: int, peers: int) -> None:
        """Let a ring grow."""
        super().__init__(seed, zones=3, links=None, check_each=True)
        self.heard: Counter[tuple[str, bytes]] = Counter()
        self.add(())
        for _ in range(peers - 1):
            self.add((self.rng.choice(sorted(self.machines)),))
            self.run(0.3)
        assert self.run_until(self.is_ring, at_most=60)

    def add(self, contacts: tuple[str, ...], peer: Peer | None = None) -> str:
        """Start a peer."""
        peer = peer or self.born()
        self.start(peer, ring_events.Started(contacts))
        return peer.address

    def is_ring(self) -> bool:
        """Whether everybody has the leaves that are truly nearest."""
        return not ring_faults({address: perch.ring for address, perch in self.machines.items()}, 12)

    def _made(self, peer: Peer, rng: Random) -> Perch:
        return Perch(peer, rng)

    def _received(self, message: Any) -> Any:
        return TreeReceived(message) if isinstance(message, AnyTreeMessage) else ring_events.Received(message)

    def _ticked(self) -> Any:
        return ring_events.Ticked()

    def _do(self, address: str, effect: Any) -> None:
        match effect:
            case ring_events.Send(to, message) | SendToTree(to, message):
                self.transmit(address, to, message)
            case HandDown(_, payload):
                self.heard[address, payload] += 1

    # --- the tree -----------------------------------------------------------------------------------------------------

    @property
    def root(self) -> str:
        """Who should be the root."""
        return owner_among((perch.own for perch in self.machines.values()), KEY).address

    def tree(self, address: str) -> Tree | None:
        """Return somebody's place in the tree."""
        return self.machines[address].trees.status().get(KEY)

    def members(self) -> list[str]:
        """Return who wants to hear what goes down."""
        return sorted(one for one in self.machines if (tree := self.tree(one)) is not None and tree.is_member)

    def way(self, address: str) -> tuple[str, ...]:
        """Return somebody's way to the root, as it knows it."""
        tree = self.tree(address)
        assert tree is not None
        return (address, *(peer.address for peer in tree.path))

    def is_grown(self) -> bool:
        """Whether everybody in the tree knows its way up, and everybody on it has the one before it for a child."""
        for address in self.machines:
            tree = self.tree(address)
            if tree is None:
                continue
            way = self.way(address)
            if not tree.is_rooted or way[-1] != self.root:
                return False
            if not all(self._has_child(upper, lower) for lower, upper in pairwise(way)):
                return False
        return True

    def _has_child(self, parent: str, child: str) -> bool:
        tree = self.tree(parent) if parent in self.machines else None
        return tree is not None and any(one.peer.address == child for one in tree.children.values())

    def sums(self, name: str) -> Summary | None:
        """Return what the root knows of the numbers under a name."""
        tree = self.tree(self.root)
        return None if tree is None else tree.summaries().get(name)


def grown(seed: int, *, peers: int = 30, members: int = 12) -> Grove:
    """Return a ring with a tree, of which some peers are members; each gives its number as one to add up."""
    grove = Grove(seed, peers)
    for number, address in enumerate(grove.rng.sample(sorted(grove.machines), members)):
        grove.tell(address, MembershipWanted(KEY))
        grove.tell(address, NumberChanged(KEY, "rows", float(2**number)))
    assert grove.run_until(lambda: bool(grove.members()) and grove.is_grown(), at_most=SETTLING_S)
    return grove


def truth(grove: Grove, name: str = "rows") -> Summary | None:
    """Return what the numbers of all who live come to."""
    found = [tree.numbers[name] for one in grove.machines if (tree := grove.tree(one)) and name in tree.numbers]
    return Summary(len(found), sum(found), min(found), max(found)) if found else None


@pytest.mark.parametrize("seed", range(4))
def test_a_join_leaves_a_way_behind_that_is_known_at_both_ends(seed: int) -> None:
    """The way up is told to the member; reversed, it is the children from the root down."""
    grove = grown(seed)
    assert max(len(grove.way(address)) for address in grove.members()) > 1
    for address in grove.members():
        way = grove.way(address)
        down = [way[-1]]
        while down[-1] != address:
            tree = grove.tree(down[-1])
            assert tree is not None
            below = {child.peer.address for child in tree.children.values()}
            down.append(next(one for one in way if one in below))
        assert tuple(reversed(down)) == way


@pytest.mark.parametrize("seed", range(4))
def test_who_loses_its_parent_finds_another(seed: int) -> None:
    grove = grown(seed, members=20)
    inner = [one for one in grove.machines if (tree := grove.tree(one)) and tree.children and one != grove.root]
    victim = max(inner or [grove.root], key=lambda one: (len(_children(grove, one)), one))
    orphans = _children(grove, victim)
    grove.crash(victim)
    assert grove.run_until(grove.is_grown, at_most=SETTLING_S)
    for orphan in orphans:
        assert victim not in grove.way(orphan)
        assert grove.way(orphan)[-1] == grove.root


def _children(grove: Grove, address: str) -> list[str]:
    tree = grove.tree(address)
    return [] if tree is None else [child.peer.address for child in tree.children.values()]


@pytest.mark.parametrize("seed", range(4))
def test_a_multicast_reaches_every_member_once_whoever_sends_it(seed: int) -> None:
    """Also where links double and reorder what they carry; whoever only passes it on does not hear it."""
    grove = grown(seed)
    grove.network.worsen(duplication=0.5, reordering=0.5)
    outsider = next(one for one in sorted(grove.machines) if grove.tree(one) is None)
    senders = [outsider, grove.root, grove.members()[0]]
    for number, sender in enumerate(senders):
        grove.tell(sender, MulticastWanted(KEY, b"%d" % number))
    grove.run(5)
    expected = {(member, b"%d" % number): 1 for member in grove.members() for number in range(len(senders))}
    assert dict(grove.heard) == expected


def test_a_multicast_reaches_all_again_when_the_tree_is_mended() -> None:
    grove = grown(5, members=20)
    for address in grove.rng.sample(sorted(set(grove.machines) - {grove.root}), 8):
        grove.crash(address)
    assert grove.run_until(grove.is_grown, at_most=SETTLING_S)
    grove.tell(grove.members()[0], MulticastWanted(KEY, b"still there?"))
    grove.run(5)
    assert dict(grove.heard) == {(member, b"still there?"): 1 for member in grove.members()}


@pytest.mark.parametrize("seed", range(4))
def test_numbers_are_added_up_on_their_way_to_the_root(seed: int) -> None:
    grove = grown(seed)
    assert grove.run_until(lambda: grove.sums("rows") == truth(grove), at_most=SETTLING_S)
    one = grove.members()[3]
    grove.tell(one, NumberChanged(KEY, "rows", 0.5))
    grove.tell(grove.members()[4], NumberChanged(KEY, "rows", None))
    assert grove.run_until(lambda: grove.sums("rows") == truth(grove), at_most=SETTLING_S)
    found = grove.sums("rows")
    assert found is not None
    assert (found.count, found.least) == (11, 0.5)


@pytest.mark.parametrize("seed", range(6))
def test_sums_are_right_again_whoever_is_lost(seed: int) -> None:
    """Members, those who only pass numbers on, and the root itself; and for good: nothing is counted twice later."""
    grove = grown(seed, members=20)
    lost = {grove.root, *grove.rng.sample(sorted(grove.machines), 9)}
    for address in lost:
        grove.crash(address)
        grove.run(grove.rng.uniform(0, 3))
    assert grove.run_until(lambda: grove.is_grown() and grove.sums("rows") == truth(grove), at_most=SETTLING_S)
    for _ in range(10):
        grove.run(1)
        assert grove.sums("rows") == truth(grove)


@pytest.mark.parametrize("seed", range(4))
def test_sums_move_with_the_root(seed: int) -> None:
    """A peer joins that is nearer to the key than the root: everything below turns to it, and is counted once."""
    grove = grown(seed)
    before = grove.root
    peer = grove.born("z0")
    newcomer = grove.add((before,), Peer(NodeId(KEY[:-1] + b"\x01"), peer.address, "z0"))
    assert grove.run_until(lambda: grove.is_grown() and grove.sums("rows") == truth(grove), at_most=SETTLING_S)
    assert grove.root == newcomer != before
    for _ in range(10):
        grove.run(1)
        assert grove.sums("rows") == truth(grove)


def test_a_child_that_goes_to_another_parent_is_not_counted_at_both() -> None:
    """It takes its leave of the first, who would otherwise count it until it misses its beats."""
    own, first, second = (Peer(id_of(number << 120), f"n{number}", "z") for number in (0x10, 0x58, 0x5E))
    ring = Ring(own, OverlayConfig(), Random(1))
    ring.handle(ring_events.Started(()), Instant(0))
    ring.known.leaves.add(first)
    trees = Trees(ring, TreeConfig(), Random(1))
    trees.handle(MembershipWanted(KEY), Instant(0))
    assert trees.status()[KEY].parent == first
    ring.known.leaves.add(second)
    ring.known.leaves.remove(first.id)
    effects = trees.handle(tree_events.LeafGone(first), Instant(1))
    said = [(effect.to, type(effect.message).__name__) for effect in effects if isinstance(effect, SendToTree)]
    assert sorted(said) == [(first.address, "TreeLeave"), (second.address, "TreeJoin")]


def test_a_number_of_one_that_is_no_member_counts_until_it_is_taken_out() -> None:
    """It has a place in the tree for its number alone, hears nothing of what goes down, and leaves with the number."""
    grove = grown(3)
    outsider = next(one for one in sorted(grove.machines) if grove.tree(one) is None)
    grove.tell(outsider, NumberChanged(KEY, "guests", 7.0))
    assert grove.run_until(lambda: grove.sums("guests") == Summary(1, 7.0, 7.0, 7.0), at_most=SETTLING_S)
    grove.run(30)
    assert grove.sums("guests") == Summary(1, 7.0, 7.0, 7.0), "no beat forgets it"
    grove.tell(grove.root, MulticastWanted(KEY, b"members only"))
    grove.run(5)
    assert (outsider, b"members only") not in grove.heard
    grove.tell(outsider, NumberChanged(KEY, "guests", None))
    assert grove.run_until(lambda: grove.sums("guests") is None, at_most=SETTLING_S)
    assert grove.tree(outsider) is None


def test_who_ends_its_membership_goes_on_counting_what_it_has_not_taken_out() -> None:
    grove = grown(4)
    one = grove.members()[0]
    grove.tell(one, MembershipEnded(KEY))
    assert grove.run_until(lambda: grove.sums("rows") == truth(grove), at_most=SETTLING_S)
    total = grove.sums("rows")
    assert total is not None
    assert total.count == 12


def test_a_tree_of_which_everybody_has_taken_leave_is_gone() -> None:
    grove = grown(5)
    for address in grove.members():
        grove.tell(address, NumberChanged(KEY, "rows", None))
        grove.tell(address, MembershipEnded(KEY))
    assert grove.run_until(lambda: not any(map(grove.tree, grove.machines)), at_most=SETTLING_S)


def test_numbers_of_nobody_are_no_reason_to_be_in_a_tree() -> None:
    grove = Grove(6, 4)
    grove.tell(sorted(grove.machines)[0], NumberChanged(KEY, "rows", None))
    assert not any(map(grove.tree, grove.machines))
