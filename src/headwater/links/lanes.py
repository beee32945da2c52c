"""The send queue to one node: two bounded lanes, urgent and bulky.

Messages of a lane stay in order. A message on the bulky lane is cut into short pieces, and everything on the urgent
lane passes between them: no heartbeat waits for megabytes of rows. Pure: time comes as an argument.

A sender that retransmits for want of an answer cannot know that its message still waits here. A second copy would delay
the next answer by as much, which would be retransmitted too, and a slow link would soon carry only duplicates. So a
message is dropped while another waits that brings the same.
"""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from headwater.model.frames import pieces_of

PIECE_BYTES: Final = (1 << 20, 16 << 10)  # of a bulky message one TLS record: 13 ms of a link of 10 Mbit/s
GATHER_BYTES: Final = 64 << 10  # written at once, about; joining more costs more than it saves
URGENT: Final = 0
BULKY: Final = 1


@dataclass(slots=True)
class _Waiting:
    pieces: deque[bytes]
    size: int
    since: float
    brings: Hashable
    begun: bool = False


class Lanes:
    """Both lanes of one send queue."""

    def __init__(self, bytes_max: int, messages_max: int) -> None:
        self.bytes_held = 0
        self.sent = 0  # messages sent completely
        self._bytes_max = bytes_max
        self._messages_max = messages_max
        self._lanes: tuple[deque[_Waiting], deque[_Waiting]] = (deque(), deque())
        self._brought: set[Hashable] = set()  # what the waiting messages bring

    def __bool__(self) -> bool:
        """Whether a message waits."""
        return bool(self._lanes[0] or self._lanes[1])

    def will_bring(self, what: Hashable) -> bool:
        """Whether a waiting message brings this."""
        return what in self._brought

    def offer(self, encoded: bytes, lane: int, now: float, brings: Hashable = None) -> bool:
        """Take a message, or refuse it for want of room."""
        if self.bytes_held + len(encoded) > self._bytes_max or len(self._lanes[lane]) >= self._messages_max:
            return False
        pieces = deque(pieces_of(encoded, PIECE_BYTES[lane], lane))
        waiting = _Waiting(pieces, sum(map(len, pieces)), now, brings)
        if brings is not None:
            assert brings not in self._brought, brings
            self._brought.add(brings)
        self._lanes[lane].append(waiting)
        self.bytes_held += waiting.size
        return True

    def gather(self) -> bytes:
        """Take what to write next: urgent messages, then pieces of bulky ones; empty if nothing waits."""
        taken: list[bytes] = []
        size = 0
        for lane in self._lanes:
            while lane and size < GATHER_BYTES:
                size += self._take_piece(lane, taken)
        self.bytes_held -= size
        return taken[0] if len(taken) == 1 else b"".join(taken)

    def _take_piece(self, lane: deque[_Waiting], taken: list[bytes]) -> int:
        waiting = lane[0]
        piece = waiting.pieces.popleft()
        waiting.begun = True
        waiting.size -= len(piece)
        taken.append(piece)
        if not waiting.pieces:
            lane.popleft()
            self._brought.discard(waiting.brings)
            self.sent += 1
        return len(piece)

    def drop_begun(self) -> int:
        """Drop messages that were partly written to a lost connection; return how many."""
        return sum(self._drop_first(lane) for lane in self._lanes if lane and lane[0].begun)

    def drop_older(self, than: float) -> int:
        """Drop messages queued before this time; return how many."""
        dropped = 0
        for lane in self._lanes:
            while lane and lane[0].since < than:
                dropped += self._drop_first(lane)
        return dropped

    def _drop_first(self, lane: deque[_Waiting]) -> int:
        dropped = lane.popleft()
        self.bytes_held -= dropped.size
        self._brought.discard(dropped.brings)
        return 1

    def check(self) -> None:
        """Raise if the sums are wrong, or a message that is not first has begun."""
        assert self.bytes_held == sum(len(piece) for lane in self._lanes for one in lane for piece in one.pieces)
        assert all(len(lane) <= self._messages_max for lane in self._lanes)
        assert not any(one.begun for lane in self._lanes for one in list(lane)[1:])
        brought = [one.brings for lane in self._lanes for one in lane if one.brings is not None]
        assert len(brought) == len(self._brought)
        assert set(brought) == self._brought
