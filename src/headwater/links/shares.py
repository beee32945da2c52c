"""Divide a budget of the port among its users, and choose what is cut when it is full (max-min fairness).

A plain limit lets those who come first keep out all others. So each budget (connections, bytes of unfinished messages,
handshakes, requests) is accounted by holder: the identity in a certificate or, before authentication, the network
address. A newcomer is never refused because others have filled a budget: the holder that has most is cut, which is
always above its fair share (the room divided by the number of holders), as long as any is.

Nodes have places that users and unauthenticated connections cannot take: the cluster's own work goes first. Pure: it
knows neither sockets nor a clock, and only names what is to be cut.
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

NETWORK_BITS: Final = 64  # of an IPv6 address: one site or machine may have all addresses below such a prefix


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
    """The amount that every item of every holder takes of one budget.

    `others` is what all who are not nodes may take together, `each` what one holder may. Of one holder's items the one
    with the largest amount is cut first, and of equal ones that with the lowest `rank`.
    """

    def __init__(
        self, room: int, rank: Callable[[Item], float], *, others: int | None = None, each: int | None = None
    ) -> None:
        assert max(others or 0, each or 0) <= room, (room, others, each)
        self.room, self.others, self.each = room, room if others is None else others, room if each is None else each
        self.total = self.total_of_others = 0
        self._rank = rank
        self._held: dict[Item, _Held] = {}
        self._by_holder: Counter[Holder] = Counter()

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._held)

    def of(self, holder: Holder) -> int:
        """Return the amount of a holder."""
        return self._by_holder.get(holder, 0)

    def holder_of(self, item: Item) -> Holder:
        """Return the holder of an item."""
        return self._held[item].holder

    def hold(self, item: Item, holder: Holder, amount: int, *, is_node: bool = False) -> None:
        """Set the amount of an item."""
        known = self._held.get(item)
        if known is not None and known.amount == amount and known.holder == holder:
            return
        self.let_go(item)
        if amount:
            self._held[item] = _Held(holder, amount, is_node)
            self._add(holder, amount, is_node)

    def let_go(self, item: Item) -> None:
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
        """Return the item to cut next, and the bound that is exceeded; None if everything fits.

        Only the holder that has just taken more (`newest`) can exceed `each`.
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
        """Raise if the sums are wrong."""
        sums: Counter[Holder] = Counter()
        for held in self._held.values():
            assert held.amount > 0, held
            sums[held.holder] += held.amount
        assert sums == self._by_holder
        assert self.total == sum(sums.values())
        assert self.total_of_others == sum(held.amount for held in self._held.values() if not held.is_node)


@lru_cache(maxsize=1_024)
def network_of(host: str) -> str:
    """Return the holder of unauthenticated connections from an address: the IPv4 address, or the IPv6 /64 prefix."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, NETWORK_BITS), strict=False))
