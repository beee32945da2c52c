"""Pastry's leaf set: the nearest peers on either side of an id, which take over its keys and repair one another.

Only peers that have answered us themselves are members; hearsay about a peer only makes us ask it.
"""

from bisect import insort
from collections.abc import Iterator, KeysView, Set
from typing import Final

from headwater.model.peers import RING, NodeId, Peer, clockwise, nearer

LEAF_SIDE: Final = 12  # on each side: Pastry's leaf set of 24


class LeafSet:
    """Up to `side` peers clockwise and as many the other way; in a small ring some are on both sides."""

    def __init__(self, own: NodeId, side: int = LEAF_SIDE) -> None:
        self.own, self.side = own, side
        self._right: list[tuple[int, Peer]] = []  # by the clockwise distance from us to them
        self._left: list[tuple[int, Peer]] = []  # by the clockwise distance from them to us
        self._by_id: dict[NodeId, Peer] = {}
        self._told: tuple[Peer, ...] = ()
        self._wants_all = True  # a side has room, or the sides overlap
        self._first = self._last = own  # the ends of the arc between the sides: bytes compare as the numbers do
        self.is_checked = False  # nothing has changed since the last check

    def __len__(self) -> int:
        """Return how many peers there are."""
        return len(self._by_id)

    def ids(self) -> KeysView[NodeId]:
        """Return the ids of all leaves."""
        return self._by_id.keys()

    def __contains__(self, identity: object) -> bool:
        """Whether a peer is one of them, by its id."""
        return identity in self._by_id

    def __iter__(self) -> Iterator[Peer]:
        """Go through the peers, in no order that means anything."""
        return iter(self._by_id.values())

    def find(self, identity: NodeId) -> Peer | None:
        """Return a peer by its id."""
        return self._by_id.get(identity)

    def told(self) -> tuple[Peer, ...]:
        """Return the peers as messages carry them: the same tuple until something changes."""
        return self._told

    def wants(self, identity: NodeId) -> bool:
        """Whether a peer would get a place on one of the sides."""
        if identity in self._by_id or identity == self.own:
            return False
        if self._wants_all:
            return True
        if self._first < self._last:
            return self._first < identity < self._last
        return identity > self._first or identity < self._last

    def add(self, peer: Peer) -> list[Peer]:
        """Give a peer its place, and return those that lost theirs; the peer itself if there is none for it."""
        if peer.id == self.own:
            return []
        self.remove(peer.id)  # it may have a new address
        way = clockwise(self.own, peer.id)
        insort(self._right, (way, peer))
        insort(self._left, (RING - way, peer))
        before = self._by_id
        before[peer.id] = peer
        del self._right[self.side :], self._left[self.side :]
        self._index()
        return [one for identity, one in before.items() if identity not in self._by_id]

    def remove(self, identity: NodeId) -> bool:
        """Take a peer out; False if it was not in."""
        if identity not in self._by_id:
            return False
        self._right = [entry for entry in self._right if entry[1].id != identity]
        self._left = [entry for entry in self._left if entry[1].id != identity]
        self._index()
        return True

    def _index(self) -> None:
        self.is_checked = False
        self._by_id = {entry[1].id: entry[1] for entry in (*self._left, *self._right)}
        self._told = tuple(self._by_id.values())
        is_full = len(self._right) >= self.side and len(self._left) >= self.side
        self._wants_all = not is_full or self._right[-1][0] + self._left[-1][0] > RING
        if not self._wants_all:
            self._first, self._last = self._left[-1][1].id, self._right[-1][1].id

    @property
    def knows_all(self) -> bool:
        """Whether the sides meet, so that these are all peers there are."""
        if len(self._right) < self.side or len(self._left) < self.side:
            return True
        return self._right[-1][0] + self._left[-1][0] >= RING

    def covers(self, key: NodeId) -> bool:
        """Whether the peer nearest to a key is a leaf or ourselves."""
        if self.knows_all:
            return True
        way = clockwise(self.own, key)
        return way <= self._right[-1][0] or RING - way <= self._left[-1][0]

    def nearest(self, key: NodeId, besides: Set[NodeId] = frozenset()) -> Peer | None:
        """Return the peer nearest to a key; None if that is ourselves."""
        best, found = self.own, None
        for peer in self._told:
            if peer.id not in besides and nearer(key, peer.id, best):
                best, found = peer.id, peer
        return found

    def neighbours(self, count: int) -> list[Peer]:
        """Return the next peers on either side, each once."""
        near = [entry[1] for entry in (*self._left[:count], *self._right[:count])]
        return list({peer.id: peer for peer in near}.values())

    def ends(self) -> list[Peer]:
        """Return the farthest peer of either side: it knows the peers beyond."""
        return list({entries[-1][1].id: entries[-1][1] for entries in (self._left, self._right) if entries}.values())

    def check(self) -> None:
        """Raise if this is no leaf set; a set unchanged since the last check is skipped."""
        if self.is_checked:
            return
        for entries in (self._right, self._left):
            assert entries == sorted(entries), "out of order"
            assert len(entries) <= self.side, "too many"
            assert len({peer.id for _, peer in entries}) == len(entries), "a peer twice on one side"
        assert self.own not in self._by_id, "we are no leaf of ours"
        assert set(self._by_id) == {peer.id for _, peer in (*self._left, *self._right)}
        self.is_checked = True
