"""What a node on the way of rows knows: where instances are, and who waits to hear it.

Both are hearsay that is told again and again, so both forget: what has not been heard of for a while, and the oldest
when there is too much of it. Whoever is forgotten asks again with its next rows. So neither apps that come and go for
years, nor a node that makes some up, fill the memory of a root.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from headwater.model.peers import NodeId, Peer
from headwater.model.time import Duration, Instant

Place = tuple[str, int]  # an app and the number of one of its instances

BINDINGS_MAX: Final = 50_000  # instances: fifty of the largest apps, in less than 50 MB at worst
SEEKERS_MAX: Final = 10_000  # those who wait and what they wait for, over all instances: less than 10 MB
SEEKERS_OF_ONE_MAX: Final = 1_000  # of one instance: more nodes would not send to one before the first is answered
APP_CHARS_MAX: Final = 500  # no store has an app with a longer name


class Bindings:
    """Which node has which instance, as hosts have said."""

    def __init__(self, kept: Duration) -> None:
        """Know nothing; what is not said again is forgotten after this while."""
        self._kept = kept
        self._bound: OrderedDict[Place, tuple[Peer, Instant]] = OrderedDict()  # the one heard of longest ago first

    def __len__(self) -> int:
        """Return of how many instances something is known."""
        return len(self._bound)

    def keep(self, place: Place, host: Peer, now: Instant) -> None:
        """Remember who has an instance."""
        if len(place[0]) > APP_CHARS_MAX:
            return
        self._bound[place] = (host, now)
        self._bound.move_to_end(place)
        if len(self._bound) > BINDINGS_MAX:
            self._bound.popitem(last=False)

    def find(self, place: Place, now: Instant) -> Peer | None:
        """Return who has an instance, as was said of late."""
        host, heard = self._bound.get(place, (None, now))
        return host if now - heard <= self._kept else None

    def forget_old(self, now: Instant) -> None:
        """Forget what has not been said again."""
        while self._bound and now - next(iter(self._bound.values()))[1] > self._kept:
            self._bound.popitem(last=False)


@dataclass(slots=True)
class _Sought:
    """An instance that somebody looks for."""

    heard: Instant  # of anybody who does
    asked: Instant | None = None  # when its steward was
    seekers: OrderedDict[NodeId, Peer] = field(default_factory=OrderedDict)


class Seekers:
    """Whose rows have climbed to a root and wait for a word where to go."""

    def __init__(self, kept: Duration) -> None:
        """Know nobody; whoever does not come again is forgotten after this while."""
        self._kept = kept
        self._sought: OrderedDict[Place, _Sought] = OrderedDict()  # the one heard of longest ago first
        self._count = 0

    def __len__(self) -> int:
        """Return how many wait, and for how many instances, together."""
        return self._count

    def add(self, place: Place, seeker: Peer, now: Instant) -> None:
        """Remember who waits."""
        if len(place[0]) > APP_CHARS_MAX:
            return
        sought = self._sought.get(place)
        if sought is None:
            sought = self._sought[place] = _Sought(now)
            self._count += 1
        sought.heard = now
        self._sought.move_to_end(place)
        self._count += seeker.id not in sought.seekers
        sought.seekers[seeker.id] = seeker
        if len(sought.seekers) > SEEKERS_OF_ONE_MAX:
            sought.seekers.popitem(last=False)
            self._count -= 1
        while self._count > SEEKERS_MAX:
            self._drop_oldest()

    def may_ask(self, place: Place, now: Instant, every: Duration) -> bool:
        """Whether it is time to ask for an instance that somebody waits for; who may, does."""
        sought = self._sought.get(place)
        if sought is None or (sought.asked is not None and now - sought.asked < every):
            return False
        sought.asked = now
        return True

    def answered(self, place: Place) -> list[Peer]:
        """Return who waited for an instance, and let them wait no longer."""
        sought = self._sought.get(place)
        if sought is None:
            return []
        told = list(sought.seekers.values())
        sought.seekers.clear()
        self._count -= len(told)
        return told

    def forget_old(self, now: Instant) -> None:
        """Forget what nobody has looked for in a while."""
        while self._sought and now - next(iter(self._sought.values())).heard > self._kept:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        _, gone = self._sought.popitem(last=False)
        self._count -= 1 + len(gone.seekers)

    def check(self) -> None:
        """Raise if there are more than there may be, or they are miscounted."""
        assert self._count == sum(1 + len(one.seekers) for one in self._sought.values())
        assert self._count <= SEEKERS_MAX
