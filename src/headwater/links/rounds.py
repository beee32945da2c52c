"""Which connection's messages are taken next: fair queueing by the time that each holder's messages have taken.

What has arrived on a connection waits for its turn. Turns go to the holder (an identity, with all of its connections)
that has had the least time, so a flood on one connection costs the others one turn, not the whole flood (fair queueing
with equal weights). A holder that returns after a pause has saved up no credit, since it begins at the level of those
that wait; nor is its debt forgiven, since time beyond its share is remembered. Of one holder's connections the one
that waits longest is first. Pure: the caller says how long a turn took.
"""

from collections import OrderedDict, deque
from typing import Generic, TypeVar

from headwater.links.shares import Holder

Item = TypeVar("Item")


class Rounds(Generic[Item]):
    """The items that wait, by holder."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[Holder, deque[Item]] = OrderedDict()
        self._holders: dict[Item, Holder] = {}
        self._taken_s: dict[Holder, float] = {}  # the time of each holder that waits, or has had more than `_least_s`
        self._least_s = 0.0  # the time of the holder whose turn came last

    def __bool__(self) -> bool:
        """Whether an item waits."""
        return bool(self._holders)

    def __contains__(self, item: object) -> bool:
        """Whether this item waits."""
        return item in self._holders

    def put(self, item: Item, holder: Holder) -> None:
        """Let an item wait for its holder's turn, unless it does already."""
        if item in self._holders:
            return
        self._holders[item] = holder
        if holder not in self._waiting:
            self._waiting[holder] = deque()
            self._taken_s[holder] = max(self._taken_s.get(holder, 0.0), self._least_s)
        self._waiting[holder].append(item)

    def drop(self, item: Item) -> None:
        holder = self._holders.pop(item, None)
        if holder is not None:
            self._waiting[holder].remove(item)
            if not self._waiting[holder]:
                del self._waiting[holder]
                self._forget_level()

    def next(self) -> Item:
        """Return the item whose turn it is; it goes behind its holder's other items, and waits until dropped."""
        holder = min(self._waiting, key=self._taken_s.__getitem__)
        self._least_s = max(self._least_s, self._taken_s[holder])
        items = self._waiting[holder]
        items.rotate(-1)
        return items[-1]

    def charge(self, item: Item, seconds: float) -> None:
        """Charge a waiting item's holder for the time of a turn."""
        holder = self._holders.get(item)
        if holder is not None:
            self._taken_s[holder] += seconds

    def _forget_level(self) -> None:
        """Forget holders without items that have had no more time than others; few remain."""
        level = [holder for holder, taken_s in self._taken_s.items() if taken_s <= self._least_s]
        for holder in level:
            if holder not in self._waiting:
                del self._taken_s[holder]

    def check(self) -> None:
        """Raise if an item is queued twice, or not at all."""
        assert sorted(map(id, self._holders)) == sorted(id(item) for items in self._waiting.values() for item in items)
        assert self._waiting.keys() <= self._taken_s.keys()
        assert all(self._waiting.values())
