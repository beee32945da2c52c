"""Pastry's routing table: for each digit position and each other digit there, the nearest known peer that has it.

Row r holds peers that share r digits with us and differ in the next. Each hop of a message matches at least one more
digit, so it arrives after about log16(peers) hops. Of the many peers that fit a place the table keeps the one nearest
in the network, so that the first hops, which have most to choose from, are short.
"""

from collections.abc import Iterator, KeysView, Set
from dataclasses import dataclass
from typing import Final

from headwater.model.peers import NodeId, Peer, digit, nearer, shared_digits
from headwater.model.time import SECOND, Duration

HOP_US: Final = 1_000  # what a hop between zones costs beside its time: it takes a share of a link that others need
UNKNOWN_US: Final = 1 << 40  # the round trip of a peer that was never measured: any measured one is nearer
CONGESTED: Final = SECOND  # the queueing delay at which a link is fully congested: heartbeats then come too late
LEVELS: Final = 10  # steps of congestion: smaller changes would be told without being acted on


def congestion_of(wait: Duration) -> float:
    """Return how congested a link with this queueing delay is, 0 to 1 in tenths."""
    return round(min(1.0, wait / CONGESTED) * LEVELS) / LEVELS


@dataclass(frozen=True, slots=True)
class Nearness:
    """How near a peer is: its round trip, the hops to it, and how congested it says its links are (0 to 1)."""

    rtt_us: int = UNKNOWN_US
    hops: int = 0
    congestion: float = 0.0

    @property
    def cost(self) -> float:
        """What it costs to send there; full congestion doubles the round trip."""
        return self.rtt_us * (1.0 + self.congestion) + self.hops * HOP_US


class RoutingTable:
    """One peer for each row and digit, where one is known."""

    def __init__(self, own: NodeId) -> None:
        self.own = own
        self._places: dict[tuple[int, int], Peer] = {}
        self._place_of: dict[NodeId, tuple[int, int]] = {}
        self.is_checked = False  # nothing has changed since the last check

    def __len__(self) -> int:
        """Return how many peers there are."""
        return len(self._places)

    def __iter__(self) -> Iterator[Peer]:
        """Go through the peers, in no order that means anything."""
        return iter(self._places.values())

    def ids(self) -> KeysView[NodeId]:
        """Return the ids of all peers."""
        return self._place_of.keys()

    def __contains__(self, identity: object) -> bool:
        """Whether a peer is in here, by its id."""
        return identity in self._place_of

    def holder(self, identity: NodeId) -> Peer | None:
        """Return the peer that holds the place to which this id belongs."""
        return self._places.get(self._place(identity))

    def put(self, peer: Peer) -> None:
        """Give a peer its place, and drop the peer that held it."""
        if peer.id == self.own:
            return
        self.is_checked = False
        place = self._place(peer.id)
        before = self._places.get(place)
        if before is not None:
            del self._place_of[before.id]
        self._places[place] = peer
        self._place_of[peer.id] = place

    def remove(self, identity: NodeId) -> bool:
        """Take a peer out; False if it was not in."""
        place = self._place_of.pop(identity, None)
        if place is None:
            return False
        del self._places[place]
        self.is_checked = False
        return True

    def next_hop(self, key: NodeId) -> Peer | None:
        """Return the peer that shares at least one more digit with the key than we do."""
        row = shared_digits(self.own, key)
        return None if row >= 2 * len(key) else self._places.get((row, digit(key, row)))

    def row(self, number: int) -> list[Peer]:
        """Return the peers of a row."""
        return [peer for (row, _), peer in self._places.items() if row == number]

    def rows(self) -> list[int]:
        """Return the rows that have peers, the first digits first."""
        return sorted({row for row, _ in self._places})

    def _place(self, identity: NodeId) -> tuple[int, int]:
        row = shared_digits(self.own, identity)
        return row, digit(identity, row)

    def check(self) -> None:
        """Raise if a peer is out of place; a table unchanged since the last check is skipped."""
        if self.is_checked:
            return
        assert self._place_of == {peer.id: place for place, peer in self._places.items()}
        for place, peer in self._places.items():
            assert place == self._place(peer.id), f"{peer} is out of place"
        self.is_checked = True


def closer_of(own: NodeId, key: NodeId, known: Iterator[Peer], besides: Set[NodeId]) -> Peer | None:
    """Return a peer that is nearer to a key than we are and shares no fewer digits with it: Pastry's rare case."""
    shared = shared_digits(own, key)
    best: Peer | None = None
    for peer in known:
        if peer.id in besides or shared_digits(peer.id, key) < shared or not nearer(key, peer.id, own):
            continue
        if best is None or nearer(key, peer.id, best.id):
            best = peer
    return best
