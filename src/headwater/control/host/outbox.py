"""What a node knows of rows that lie here for an instance elsewhere: how many are under way, and to whom."""

from dataclasses import dataclass, field
from typing import NamedTuple

from headwater.model.ids import InstanceId
from headwater.model.peers import NodeId, Peer
from headwater.model.time import Duration, Instant


class UnderWay(NamedTuple):
    """A message that has not been answered."""

    until: int  # the number behind its last entry
    size_bytes: int
    schemas: tuple[int, ...]  # that went along


@dataclass(slots=True)
class Outbox:
    """Rows for an instance that runs elsewhere."""

    app: str
    instance: InstanceId
    base: int = 0
    sent: int = 0  # the number behind the last entry that is under way
    under_way: list[UnderWay] = field(default_factory=list)
    answer_by: Instant | None = None  # then what is under way is sent again
    host: Peer | None = None  # who kept the last ones
    room_bytes: int | None = None  # what it would take, as of its last answer
    tries: int = 0  # unanswered
    pace: Duration = Duration(0)  # twice as long as the last answer took that brought us on
    unanswered_since: Instant | None = None  # when something was first sent, or when the answer before came
    schemas: set[int] = field(default_factory=set)  # that its host knows
    disbelieved: NodeId | None = None  # who said that it had more than there ever was: told of once

    @property
    def place(self) -> tuple[str, int]:
        """The name under which it is kept."""
        return self.app, self.instance.number

    @property
    def bytes_under_way(self) -> int:
        """What was sent and has not been answered."""
        return sum(one.size_bytes for one in self.under_way)

    def go_back(self) -> None:
        """Count nothing as sent that has not been answered."""
        self.sent, self.answer_by = self.base, None
        self.under_way.clear()

    def keep_pace(self, now: Instant) -> None:
        """Expect the next answer to take as long as this one: on a slow link, what is on its way must not go again."""
        if self.unanswered_since is not None:
            self.pace = Duration(2 * (now - self.unanswered_since))
        self.unanswered_since = now if self.under_way else None

    def forget_host(self) -> None:
        """Let rows climb again."""
        self.host, self.room_bytes = None, None
        self.schemas.clear()
