"""Whose message is taken next: fair queueing by the time that each holder's messages have taken.

What has arrived on a connection waits until its turn comes. Turns go to the holder (an identity, with all of its
connections) that has had the least time, so a flood on one connection costs the others one turn, not the whole flood
(fair queueing with equal weights). A holder that comes back after a pause has saved nothing up, since it begins no
lower than those who wait; nor has it shaken off what it has had beyond its share, as that is remembered. Of one
holder's connections the one that waits longest is first. Pure: the time that a turn took is told.
"""

from collections import OrderedDict, deque
from typing import Generic, TypeVar

from headwater.links.shares import Holder

Item = TypeVar("Item")


class Rounds(Generic[Item]):
    """What waits, by holder."""

    def __init__(self) -> None:
        """Begin with nothing that waits."""
        self._waiting: OrderedDict[Holder, deque[Item]] = OrderedDict()
        self._holders: dict[Item, Holder] = {}
        self._taken_s: dict[Holder, float] = {}  # how much time each has had; who waits for nothing and has had no more
        self._least_s = 0.0  # than the holder whose turn came last is forgotten

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._holders)

    def __contains__(self, item: object) -> bool:
        """Whether something of this item waits."""
        return item in self._holders

    def put(self, item: Item, holder: Holder) -> None:
        """Let an item wait for its holder's turn, if it does not yet."""
        if item in self._holders:
            return
        self._holders[item] = holder
        if holder not in self._waiting:
            self._waiting[holder] = deque()
            self._taken_s[holder] = max(self._taken_s.get(holder, 0.0), self._least_s)
        self._waiting[holder].append(item)

    def drop(self, item: Item) -> None:
        """Let an item wait no more."""
        holder = self._holders.pop(item, None)
        if holder is not None:
            self._waiting[holder].remove(item)
            if not self._waiting[holder]:
                del self._waiting[holder]
                self._forget_level()

    def next(self) -> Item:
        """Return whose turn it is; it goes on waiting, behind its holder's other items, until it is dropped."""
        holder = min(self._waiting, key=self._taken_s.__getitem__)
        self._least_s = max(self._least_s, self._taken_s[holder])
        items = self._waiting[holder]
        items.rotate(-1)
        return items[-1]

    def charge(self, item: Item, seconds: float) -> None:
        """Account the time that a turn of an item that waits has taken."""
        holder = self._holders.get(item)
        if holder is not None:
            self._taken_s[holder] += seconds

    def _forget_level(self) -> None:
        """Forget holders that wait for nothing and have had no more than others; at most those few of a round stay."""
        level = [holder for holder, taken_s in self._taken_s.items() if taken_s <= self._least_s]
        for holder in level:
            if holder not in self._waiting:
                del self._taken_s[holder]

    def check(self) -> None:
        """Raise if something waits in two places, or in none."""
        assert sorted(map(id, self._holders)) == sorted(id(item) for items in self._waiting.values() for item in items)
        assert self._waiting.keys() <= self._taken_s.keys()
        assert all(self._waiting.values())
