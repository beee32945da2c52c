"""The sender's side of a channel: what of a durable send log is in flight, its window, retransmission and backoff."""

from dataclasses import dataclass, field
from typing import NamedTuple

from headwater.engine.cuts import UNCUT
from headwater.model.ids import InstanceId
from headwater.model.peers import NodeId, Peer
from headwater.model.terms import Lot
from headwater.model.time import Duration, Instant


class UnderWay(NamedTuple):
    """A message of rows that has not been acknowledged."""

    until: int  # the number behind its last entry
    size_bytes: int
    schemas: tuple[int, ...]  # that it carries


@dataclass(slots=True)
class Outbox:
    """Rows for an instance that runs elsewhere."""

    app: str
    instance: InstanceId
    base: int = 0
    sent: int = 0  # the number behind the last entry that is under way
    tried: int = 0  # the number behind the last entry that may ever have been sent
    origin: bytes = b""  # the name of the channel
    cut: Lot = UNCUT  # under which its rows are sent
    bound_to: Peer | None = None  # its rows are in doubt, and only this host can say which of them it has taken
    under_way: list[UnderWay] = field(default_factory=list)
    answer_by: Instant | None = None  # when what is under way is retransmitted
    host: Peer | None = None  # which acknowledged last: rows go to no other
    hint: Peer | None = None  # which is said to have the instance
    room_bytes: int | None = None  # the credit of its last acknowledgement
    tries: int = 0  # timeouts in a row
    lacks: int = 0  # answers in a row that the host lacks a schema, though all that can be sent came along
    pace: Duration = Duration(0)  # twice the time that the last acknowledgement of new rows took
    unanswered_since: Instant | None = None  # the first transmission, or the acknowledgement before
    schemas: set[int] = field(default_factory=set)  # that its host has
    disbelieved: NodeId | None = None  # the peer whose impossible acknowledgement was reported: once for each
    unsendable: set[int] = field(default_factory=set)  # schemas that cannot be sent, which was reported

    @property
    def place(self) -> tuple[str, int]:
        """The key of this outbox: app and instance."""
        return self.app, self.instance.number

    @property
    def bytes_under_way(self) -> int:
        """The bytes sent and not acknowledged."""
        return sum(one.size_bytes for one in self.under_way)

    def go_back(self) -> None:
        """Go back to the first unacknowledged entry (go-back-N)."""
        self.sent, self.answer_by = self.base, None
        self.under_way.clear()

    def keep_pace(self, now: Instant) -> None:
        """Adapt the timeout to the last acknowledgement, so that a slow link gets no needless retransmissions."""
        if self.unanswered_since is not None:
            self.pace = Duration(2 * (now - self.unanswered_since))
        self.unanswered_since = now if self.under_way else None

    def forget_host(self) -> None:
        """Let rows climb again."""
        self.host, self.hint, self.room_bytes = None, None, None
        self.schemas.clear()
