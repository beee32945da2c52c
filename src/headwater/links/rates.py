"""How often a node may say each kind of thing: a token bucket for each node and kind of message.

The bounds are far above what honest nodes do and far below what a flood needs, so they are no part of any protocol:
what is over one is refused and counted, and an honest node would say it again. Rows and state have none, as they
come as fast as the link carries them; their share of the time is what `rounds.py` gives them. Pure: time comes as an
argument.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, get_args

from headwater.control.messages import app_messages as m
from headwater.control.messages.peer_questions import Answer, PeerQuestion
from headwater.control.messages.row_messages import RowsKept, RowsSent
from headwater.control.messages.state_messages import StateAsked, StateTold
from headwater.links.shares import Holder
from headwater.model.errors import ConfigError
from headwater.overlay import messages as ring


@dataclass(frozen=True, slots=True)
class Rate:
    """So many a second in the long run, and so many at once."""

    per_s: float
    burst: float

    def __post_init__(self) -> None:
        """Refuse what lets nothing through."""
        if self.per_s <= 0 or self.burst < 1:
            raise ConfigError(f"a rate of {self.per_s} a second and {self.burst} at once lets nothing through")


# Measured in simulated rings, from one node to another: 600 nodes with 300 apps submitted at one instant, of which then
# a thirtieth crashed, and 6 nodes with 100 apps, of which two did.
#
# Of what is said of the ring, and beats: at most 11 came at once, and one a second followed. A node that did not listen
# for a minute finds 60 of them.
OF_THE_RING: Final = Rate(per_s=20, burst=200)
# Of what is said of apps: 108 at once (`StartAsked`, of 100 apps on 6 nodes), or 3.4 a second (`TreeJoin`, likewise).
# On machines with the largest capacity there are ten times as many apps; twice that is allowed.
OF_APPS: Final = Rate(per_s=200, burst=2_000)
# A source of an app joins its tree when it is asked for the way, and says so again and again: 13 of 100 apps at once.
OF_WAYS: Final = Rate(per_s=20, burst=300)
# Registers travel eight entries at a time: 12 at once, where each entry may bring a flow of a megabyte.
OF_REGISTERS: Final = Rate(per_s=50, burst=500)
# A node asks others on behalf of its users: `requests_of_one` at a time, each of which looks at every node.
OF_QUESTIONS: Final = Rate(per_s=500, burst=2_000)

_PERIODIC: Final = (*get_args(ring.AnyMessage), m.StewardHere, m.LoadTold, m.HostBeat, m.HostTold)
_REGISTERS: Final = (m.ReplicaSent, m.ReplicaKept, m.ReplicaWanted, m.ReplicaDropped, m.HandedOver, m.HandedOverTaken)
_WITHOUT: Final = {RowsSent, RowsKept, StateAsked, StateTold}  # megabytes, and what asks for the next of them

RATES: Final[Mapping[type[Any], Rate]] = {
    **{kind: OF_APPS for kind in get_args(m.AnyNodeMessage) if kind not in _WITHOUT},
    **dict.fromkeys(_PERIODIC, OF_THE_RING),
    **dict.fromkeys((ring.Routed, ring.RoutedTaken), OF_APPS),  # they carry what is said of apps
    m.PathAsked: OF_WAYS,
    **dict.fromkeys(_REGISTERS, OF_REGISTERS),
    **dict.fromkeys((PeerQuestion, Answer), OF_QUESTIONS),
}
# What only says that its sender is there: one that comes right behind another says nothing new.
SAME_AGAIN: Final[frozenset[type[Any]]] = frozenset({ring.Heartbeat})


class Buckets:
    """How much of each rate is left to each node."""

    def __init__(self, rates: Mapping[type[Any], Rate]) -> None:
        """Begin with all buckets full."""
        self._rates = rates
        self._used: dict[tuple[Holder, type[Any]], tuple[float, float]] = {}  # how much, and when

    def admit(self, holder: Holder, kind: type[Any], now: float) -> bool:
        """Whether a node may say one more of a kind; if so, it is accounted."""
        rate = self._rates.get(kind)
        if rate is None:
            return True
        used, at = self._used.get((holder, kind), (0.0, now))
        used = max(0.0, used - rate.per_s * max(0.0, now - at))
        if used + 1 > rate.burst:
            return False
        self._used[holder, kind] = used + 1, max(now, at)
        return True

    def forget_full(self, now: float) -> None:
        """Forget buckets that are full again: only nodes that have spoken of late take memory."""
        rates = self._rates
        self._used = {
            (holder, kind): (used, at)
            for (holder, kind), (used, at) in self._used.items()
            if used > rates[kind].per_s * (now - at)
        }
