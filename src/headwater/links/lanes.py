"""What waits to be sent to one node: two lanes, bounded, that are written in turns.

Messages of a lane stay in order. What is on the bulky lane is cut into short pieces, and everything on the urgent lane
passes between them: no heartbeat waits for megabytes of rows. Pure: time comes as an argument.

Whoever says something again for want of an answer cannot know that it still waits here. Sent twice, it would hold up
the next answer for as long, which would be said again too, and a slow link would soon carry nothing new. So a message
is superfluous while another waits that brings the same.
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
    """Both lanes."""

    def __init__(self, bytes_max: int, messages_max: int) -> None:
        """Begin empty."""
        self.bytes_held = 0
        self.sent = 0  # messages, to their last piece
        self._bytes_max = bytes_max
        self._messages_max = messages_max
        self._lanes: tuple[deque[_Waiting], deque[_Waiting]] = (deque(), deque())
        self._brought: set[Hashable] = set()  # by what waits

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._lanes[0] or self._lanes[1])

    def will_bring(self, what: Hashable) -> bool:
        """Whether a message that brings this waits already."""
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
        """Take what is written next: urgent messages, then pieces of bulky ones; nothing if nothing waits."""
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
        """Drop messages of which a part was written to a connection that is gone, and return how many."""
        return sum(self._drop_first(lane) for lane in self._lanes if lane and lane[0].begun)

    def drop_older(self, than: float) -> int:
        """Drop messages that have waited since before this time, and return how many."""
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
        """Raise if the sums are not what they must be."""
        assert self.bytes_held == sum(len(piece) for lane in self._lanes for one in lane for piece in one.pieces)
        assert all(len(lane) <= self._messages_max for lane in self._lanes)
        assert not any(one.begun for lane in self._lanes for one in list(lane)[1:])
        brought = [one.brings for lane in self._lanes for one in lane if one.brings is not None]
        assert len(brought) == len(self._brought)
        assert set(brought) == self._brought
