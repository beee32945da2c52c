"""Divide a budget of the port among those who use it, and say who gives way when it is full.

A limit alone lets the first who come keep out all others. So each budget (connections, bytes of unfinished messages,
handshakes, requests) is accounted by holder: the identity in a certificate or, for strangers, the network address. A
budget that is full is never refused to a newcomer for what another holds: the holder that has most gives way, and so
the holder that is cut is always above its fair share (the room divided by the number of holders), as long as any is.

Nodes have places that users and strangers together cannot take: the work of the cluster goes before looking at it.
Pure: it knows neither sockets nor a clock, and only names what is to be cut.
"""

import ipaddress
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final, Generic, TypeVar

Item = TypeVar("Item")
Holder = bytes | str  # the id of a certificate, or a network address

NETWORK_BITS: Final = 64  # of an IPv6 address: a site or a single machine is given so many addresses at once


class Over(Enum):
    """Which bound of a budget is exceeded."""

    EACH = "what one holder may have"
    OTHERS = "what all but nodes may have"
    ROOM = "what there is"


@dataclass(frozen=True, slots=True)
class _Held:
    holder: Holder
    amount: int
    is_node: bool


class Shares(Generic[Item]):
    """What every item of every holder takes of one budget.

    `others` is the part of the room that all who are no nodes may take together, `each` what a single holder may.
    Of one holder's items the one that takes most is cut first, and of equal ones that with the lowest `rank`.
    """

    def __init__(
        self, room: int, rank: Callable[[Item], float], *, others: int | None = None, each: int | None = None
    ) -> None:
        """Begin with nothing taken."""
        assert max(others or 0, each or 0) <= room, (room, others, each)
        self.room, self.others, self.each = room, room if others is None else others, room if each is None else each
        self.total = self.total_of_others = 0
        self._rank = rank
        self._held: dict[Item, _Held] = {}
        self._by_holder: Counter[Holder] = Counter()

    def __len__(self) -> int:
        """Return how many items take something."""
        return len(self._held)

    def of(self, holder: Holder) -> int:
        """Return what a holder takes."""
        return self._by_holder.get(holder, 0)

    def holder_of(self, item: Item) -> Holder:
        """Return as whose an item is accounted."""
        return self._held[item].holder

    def hold(self, item: Item, holder: Holder, amount: int, *, is_node: bool = False) -> None:
        """Account that an item takes so much now, whatever it took before."""
        known = self._held.get(item)
        if known is not None and known.amount == amount and known.holder == holder:
            return
        self.let_go(item)
        if amount:
            self._held[item] = _Held(holder, amount, is_node)
            self._add(holder, amount, is_node)

    def let_go(self, item: Item) -> None:
        """Account that an item takes nothing any more."""
        held = self._held.pop(item, None)
        if held is not None:
            self._add(held.holder, -held.amount, held.is_node)

    def _add(self, holder: Holder, amount: int, is_node: bool) -> None:
        self.total += amount
        self.total_of_others += 0 if is_node else amount
        self._by_holder[holder] += amount
        if not self._by_holder[holder]:
            del self._by_holder[holder]

    def gives_way(self, newest: Holder) -> tuple[Item, Over] | None:
        """Return the item that has to be cut now, and why; None if everything fits.

        Only the holder that has just taken more (`newest`) can exceed what each may have.
        """
        if self.of(newest) > self.each:
            return self._first(lambda held: held.holder == newest), Over.EACH
        if self.others < self.room and self.total_of_others > self.others:
            return self._first(lambda held: not held.is_node), Over.OTHERS
        if self.total > self.room:
            return self._first(lambda held: True), Over.ROOM
        return None

    def _first(self, is_meant: Callable[[_Held], bool]) -> Item:
        def order(entry: tuple[Item, _Held]) -> tuple[int, bool, int, float]:
            item, held = entry
            return self._by_holder[held.holder], not held.is_node, held.amount, -self._rank(item)

        return max((entry for entry in self._held.items() if is_meant(entry[1])), key=order)[0]

    def check(self) -> None:
        """Raise if the sums are not what they must be."""
        sums: Counter[Holder] = Counter()
        for held in self._held.values():
            assert held.amount > 0, held
            sums[held.holder] += held.amount
        assert sums == self._by_holder
        assert self.total == sum(sums.values())
        assert self.total_of_others == sum(held.amount for held in self._held.values() if not held.is_node)


@lru_cache(maxsize=1_024)
def network_of(host: str) -> str:
    """Return as whom a stranger at an address is accounted: an IPv4 address, or the first 64 bits of an IPv6 one."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, NETWORK_BITS), strict=False))
