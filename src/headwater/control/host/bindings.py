"""What a node on the path of rows knows: the hosts of instances, and the nodes that wait for one (seekers).

Both are soft state that others repeat, so both have a time to live and a bound, beyond which the oldest is dropped. A
seeker that was dropped asks again with its next rows. So neither years of apps that come and go, nor a node that forges
some, fill the memory of a root.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from headwater.model.peers import NodeId, Peer
from headwater.model.time import Duration, Instant

Place = tuple[str, int]  # an app and the number of one of its instances

BINDINGS_MAX: Final = 50_000  # instances: fifty of the largest apps, in less than 50 MB at worst
SEEKERS_MAX: Final = 10_000  # seekers and the instances that they seek, together: less than 10 MB
SEEKERS_OF_ONE_MAX: Final = 1_000  # of one instance: more nodes would not send to one before the first is answered
APP_CHARS_MAX: Final = 500  # no store has an app with a longer name


class Bindings:
    """The hosts of instances, as those announce them; a binding that is not renewed within `kept` is dropped."""

    def __init__(self, kept: Duration) -> None:
        self._kept = kept
        self._bound: OrderedDict[Place, tuple[Peer, Instant]] = OrderedDict()  # the one heard of longest ago first

    def __len__(self) -> int:
        """Return the number of instances whose host is known."""
        return len(self._bound)

    def keep(self, place: Place, host: Peer, now: Instant) -> None:
        """Bind an instance to a host."""
        if len(place[0]) > APP_CHARS_MAX:
            return
        self._bound[place] = (host, now)
        self._bound.move_to_end(place)
        if len(self._bound) > BINDINGS_MAX:
            self._bound.popitem(last=False)

    def find(self, place: Place, now: Instant) -> Peer | None:
        """Return the host of an instance, if its binding was renewed of late."""
        host, heard = self._bound.get(place, (None, now))
        return host if now - heard <= self._kept else None

    def forget_old(self, now: Instant) -> None:
        """Drop bindings that were not renewed."""
        while self._bound and now - next(iter(self._bound.values()))[1] > self._kept:
            self._bound.popitem(last=False)


@dataclass(slots=True)
class _Sought:
    """An instance that has seekers."""

    heard: Instant  # when a seeker was last heard
    asked: Instant | None = None  # when its steward was asked
    seekers: OrderedDict[NodeId, Peer] = field(default_factory=OrderedDict)


class Seekers:
    """The nodes whose rows have climbed to this root, which does not know the host; dropped after `kept`."""

    def __init__(self, kept: Duration) -> None:
        self._kept = kept
        self._sought: OrderedDict[Place, _Sought] = OrderedDict()  # the one heard of longest ago first
        self._count = 0

    def __len__(self) -> int:
        """Return the number of seekers and of instances that they seek, together."""
        return self._count

    def add(self, place: Place, seeker: Peer, now: Instant) -> None:
        """Remember a seeker of an instance."""
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
        """Whether to ask the steward for a sought instance now; counts as asked if so."""
        sought = self._sought.get(place)
        if sought is None or (sought.asked is not None and now - sought.asked < every):
            return False
        sought.asked = now
        return True

    def answered(self, place: Place) -> list[Peer]:
        """Return and drop the seekers of an instance."""
        sought = self._sought.get(place)
        if sought is None:
            return []
        told = list(sought.seekers.values())
        sought.seekers.clear()
        self._count -= len(told)
        return told

    def forget_old(self, now: Instant) -> None:
        """Drop instances that no seeker has asked for within `kept`."""
        while self._sought and now - next(iter(self._sought.values())).heard > self._kept:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        _, gone = self._sought.popitem(last=False)
        self._count -= 1 + len(gone.seekers)

    def check(self) -> None:
        """Raise if there are too many, or they are miscounted."""
        assert self._count == sum(1 + len(one.seekers) for one in self._sought.values())
        assert self._count <= SEEKERS_MAX
