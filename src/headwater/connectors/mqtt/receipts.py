"""Which messages the broker may forget, and which of those it sends again are stored already.

A broker keeps a message of QoS 1 or 2 until it is acknowledged, and sends it again, with the same packet id and marked
as a duplicate, whenever a new connection finds it unacknowledged. We acknowledge what is committed. Killed between the
two, or cut off before the acknowledgement arrives, we are sent what is stored; so the packet ids of stored messages
are part of the position, each with a check of the contents. What comes again, under one of these ids, with these
contents, is refused.

At QoS 2 a packet id stands for one message until PUBCOMP, and PUBCOMP is not sent before a committed position says that
the broker has released it. Until then a message under the id is the same one, marked as a duplicate or not (MQTT 5,
4.3.3): a broker that was killed comes back with the state that it saved last, and sends without a mark what it does not
know that it has sent. What was completed since then it sends as well, under the same ids; that is a new message to the
protocol, and to us. Of a last reply, PUBACK or PUBCOMP, the broker does not say that it arrived; but it answers
our packets in order, so its answer to a ping behind the reply does. Until then the message is remembered: it may come
again at QoS 1, and even at QoS 2 from a mosquitto that was restarted, which has forgotten the PUBREC that it heard.

In that short while the broker may already have given the id to another message, which our connection lost before we
saw it. That cannot be with brokers that number consecutively, as most do. One that is seen to reuse an id so early is
trusted by the protocol alone, and nothing is remembered behind a last reply: rather a message of QoS 1 again than one
lost that only looks the same.

Pure bookkeeping: knows no sockets and no threads.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from headwater.dataflow.connectors import Position

REMEMBERED_MAX: Final = 4_096  # a broker that leaves so much unconfirmed has long stopped answering
_PACKED: Final = "HI"  # packet id, check


class Verdict(Enum):
    """What to do with a message that has come."""

    NEW = "take it"
    AGAIN = "it is here already and not stored yet; its acknowledgement follows"
    STORED = "it is stored: refuse it, and acknowledge it at once"


class Reply(Enum):
    """What a broker is told."""

    ACKNOWLEDGED = "PUBACK"  # QoS 1: forget the message
    RECEIVED = "PUBREC"  # QoS 2: forget the message, keep its packet id
    COMPLETED = "PUBCOMP"  # QoS 2: forget its packet id


@dataclass(slots=True, eq=False)
class Receipt:
    """For one message that has come and is not stored."""

    packet_id: int
    qos: int
    check: int
    is_current: bool = True  # came, or came again, over the connection there is now, which knows its id


class Receipts:
    """All receipts of a session."""

    def __init__(self, position: Position | None) -> None:
        """Go on with what the position remembers."""
        self._open: dict[int, Receipt] = {}
        self._polled: list[Receipt] = []  # will be stored by the next commit
        # The checks of stored messages, by packet id: behind their last reply, and of QoS 2 those not released yet.
        self._done = {} if position is None else _unpacked(position["done"])
        self._received = {} if position is None else _unpacked(position["received"])
        self._reuses_ids = False if position is None else position["reuses_ids"]
        self._released: dict[int, None] = {}  # QoS 2: to be forgotten by a commit, and then completed
        self._forgotten: tuple[int, ...] = ()  # of those, the ones that the position in hand leaves out
        self._told: dict[int, None] = {}  # last replies that were sent, with no ping behind them yet
        self._fenced: dict[int, None] = {}  # last replies in front of a ping that is not answered

    @property
    def needs_commit(self) -> bool:
        """Whether a commit without rows would let the broker forget something."""
        return bool(self._released)

    @property
    def told_count(self) -> int:
        """How many last replies the broker has not confirmed and no ping asks about."""
        return len(self._told)

    def arrived(self, packet_id: int, qos: int, check: int, *, again: bool) -> tuple[Verdict, Receipt | None]:
        """Judge a message of QoS 1 or 2; `again` is its mark as a duplicate. A new one gets a receipt."""
        known = self._open.get(packet_id)
        if (again or qos == 2) and known is not None and (known.qos, known.check) == (qos, check):
            known.is_current = True
            return Verdict.AGAIN, None
        if self._received.get(packet_id) == check and (again or qos == 2):
            return Verdict.STORED, None
        if again and self._done.get(packet_id) == check:
            return Verdict.STORED, None
        if packet_id in self._done and not again:
            self._reuses_ids = True
            self._done.clear()
        if known is not None:
            known.is_current = False  # the id is another message's now; acknowledging it would lose that
        for book in (self._done, self._received, self._released, self._told, self._fenced):
            book.pop(packet_id, None)
        receipt = self._open[packet_id] = Receipt(packet_id, qos, check)
        return Verdict.NEW, receipt

    def polled(self, receipts: Iterable[Receipt]) -> Position:
        """Return the part of the position that holds once the rows of these messages are committed."""
        self._polled += receipts
        self._forgotten = tuple(self._released)
        done, received = dict(self._done), dict(self._received)
        self._count_in(done, received)
        return {"done": _packed(done), "received": _packed(received), "reuses_ids": self._reuses_ids}

    def committed(self) -> list[tuple[Reply, int]]:
        """Return what to tell the broker now that the position of the last poll is committed."""
        replies = [(first_reply(one.qos), one.packet_id) for one in self._polled if one.is_current]
        replies += [(Reply.COMPLETED, one) for one in self._forgotten if one in self._released]
        self._count_in(self._done, self._received)
        for one in self._polled:
            if self._open.get(one.packet_id) is one:
                del self._open[one.packet_id]
        for packet_id in self._forgotten:
            self._released.pop(packet_id, None)
        self._polled.clear()
        self._forgotten = ()
        return replies

    def released(self, packet_id: int) -> bool:
        """Note a PUBREL; True if PUBCOMP may be sent at once, since no position remembers the id."""
        if packet_id not in self._received:
            return True
        self._released[packet_id] = None
        return False

    def told(self, replies: Iterable[tuple[Reply, int]]) -> None:
        """Note replies that were sent."""
        self._told.update((one, None) for reply, one in replies if reply is not Reply.RECEIVED)

    def pinged(self) -> None:
        """Note that a ping was sent behind all that was told; there is one at a time."""
        self._fenced, self._told = self._told, {}

    def answered(self) -> None:
        """Note the answer: the broker has heard all that was told before the ping."""
        for packet_id in self._fenced:
            self._done.pop(packet_id, None)
        self._fenced = {}

    def connected(self, *, kept: bool) -> None:
        """Note a new connection: what is unacknowledged comes again, unless the broker has lost the session.

        Then the packet ids start over and mean nothing any more; the messages that are here stay and are stored.
        """
        self._released.clear()
        self._told.clear()
        self._fenced.clear()
        for receipt in (*self._open.values(), *self._polled):
            receipt.is_current = False
        if not kept:
            self._open.clear()
            self._done.clear()
            self._received.clear()
            self._reuses_ids = False

    def check(self) -> None:
        """Raise if the books do not agree."""
        assert len(self._done) <= REMEMBERED_MAX, len(self._done)
        assert all(packet_id == receipt.packet_id for packet_id, receipt in self._open.items())
        assert not self._done.keys() & self._received.keys()
        assert not self._open.keys() & (self._done.keys() | self._received.keys())
        assert self._released.keys() <= self._received.keys()

    def _count_in(self, done: dict[int, int], received: dict[int, int]) -> None:
        """Enter what the position in hand changes, as if it were committed."""
        for receipt in self._polled:
            if self._open.get(receipt.packet_id) is receipt:  # else its session is lost, or its id another message's
                (received if receipt.qos == 2 else done)[receipt.packet_id] = receipt.check
        for packet_id in self._forgotten:
            if packet_id in self._released:  # else the connection is gone, and the next one will ask again
                done[packet_id] = received.pop(packet_id)
        if self._reuses_ids:
            done.clear()
        for oldest in list(done)[: max(0, len(done) - REMEMBERED_MAX)]:
            del done[oldest]


def first_reply(qos: int) -> Reply:
    """Return what lets a broker forget a message."""
    return Reply.RECEIVED if qos == 2 else Reply.ACKNOWLEDGED


def _packed(checks: Mapping[int, int]) -> bytes:
    return struct.pack("!" + _PACKED * len(checks), *(part for one in checks.items() for part in one))


def _unpacked(packed: bytes) -> dict[int, int]:
    return dict(struct.iter_unpack(f"!{_PACKED}", packed))
