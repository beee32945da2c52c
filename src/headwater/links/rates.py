"""How often a node may send each kind of message: a token bucket per node and kind.

The limits are far above what honest nodes send and far below what a flood needs, so they are no part of any protocol: a
message over its limit is refused and counted, and an honest node would retransmit it. Rows and state have no limit,
since they come as fast as the link carries them; `rounds.py` gives them their share of time. Pure: time comes as an
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
    """The sustained rate and the burst of a token bucket."""

    per_s: float
    burst: float

    def __post_init__(self) -> None:
        """Refuse a rate that lets nothing through."""
        if self.per_s <= 0 or self.burst < 1:
            raise ConfigError(f"a rate of {self.per_s} a second and {self.burst} at once lets nothing through")


# Measured in simulated rings, from one node to another: 600 nodes with 300 apps submitted at one instant, of which then
# a thirtieth crashed, and 6 nodes with 100 apps, of which two did.
#
# Messages about the ring, and heartbeats: at most 11 came at once, and one a second followed. A node that was stalled
# for a minute finds 60 of them.
OF_THE_RING: Final = Rate(per_s=20, burst=200)
# Messages about apps: 108 at once (`StartAsked`, of 100 apps on 6 nodes), or 3.4 a second (`TreeJoin`, likewise).
# On machines with the largest capacity there are ten times as many apps; twice that is allowed.
OF_APPS: Final = Rate(per_s=200, burst=2_000)
# A source of an app joins its tree when it asks for the path, and repeats that: 13 of 100 apps at once.
OF_WAYS: Final = Rate(per_s=20, burst=300)
# Registers travel eight entries at a time: 12 at once, where each entry may bring a flow of a megabyte.
OF_REGISTERS: Final = Rate(per_s=50, burst=500)
# A node asks others on behalf of its users: `requests_of_one` at a time, each of which looks at every node.
OF_QUESTIONS: Final = Rate(per_s=500, burst=2_000)

_PERIODIC: Final = (*get_args(ring.AnyMessage), m.StewardHere, m.LoadTold, m.HostBeat, m.HostTold)
_REGISTERS: Final = (m.ReplicaSent, m.ReplicaKept, m.ReplicaWanted, m.ReplicaDropped, m.HandedOver, m.HandedOverTaken)
_WITHOUT: Final = {RowsSent, RowsKept, StateAsked, StateTold}  # megabytes, and the requests for the next of them

RATES: Final[Mapping[type[Any], Rate]] = {
    **{kind: OF_APPS for kind in get_args(m.AnyNodeMessage) if kind not in _WITHOUT},
    **dict.fromkeys(_PERIODIC, OF_THE_RING),
    **dict.fromkeys((ring.Routed, ring.RoutedTaken), OF_APPS),  # they carry messages about apps
    m.PathAsked: OF_WAYS,
    **dict.fromkeys(_REGISTERS, OF_REGISTERS),
    **dict.fromkeys((PeerQuestion, Answer), OF_QUESTIONS),
}
# Messages that only say that their sender is alive: one right behind another says nothing new.
SAME_AGAIN: Final[frozenset[type[Any]]] = frozenset({ring.Heartbeat})


class Buckets:
    """The token buckets of all nodes."""

    def __init__(self, rates: Mapping[type[Any], Rate]) -> None:
        self._rates = rates
        self._used: dict[tuple[Holder, type[Any]], tuple[float, float]] = {}  # the tokens used, and when

    def admit(self, holder: Holder, kind: type[Any], now: float) -> bool:
        """Return whether a node may send one more of a kind; if so, count it."""
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
