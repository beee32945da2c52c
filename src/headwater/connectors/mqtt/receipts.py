"""Which messages a broker may forget, and which that it sends again are stored already (deduplication).

A broker keeps a message of QoS 1 or 2 until it is acknowledged, and retransmits it, with the same packet id and marked
as a duplicate, whenever a new connection finds it unacknowledged. We acknowledge what is committed. After a crash
between the two, or if the acknowledgement is lost, stored messages come again; so the packet ids of stored messages are
part of the position, each with a checksum. A message under such an id with the same checksum is refused.

At QoS 2 a packet id stands for one message until PUBCOMP, and PUBCOMP is not sent before a committed position says that
the broker has released it. Until then a message under the id is the same one, marked as a duplicate or not (MQTT 5,
4.3.3): a broker that was killed returns with its last saved state, and sends without a mark what it does not know that
it has sent. It also sends what was completed since then, under the same ids; to the protocol, and to us, that is a new
message. The broker does not confirm a last reply, PUBACK or PUBCOMP; but it answers our packets in order, so its answer
to a ping after the reply does. Until then the message is remembered: it may come again at QoS 1, and even at QoS 2 from
a mosquitto that was restarted, which has forgotten the PUBREC that it received.

In that short time the broker may already have given the id to another message, which was lost with a connection before
we saw it. That cannot happen with brokers that number consecutively, as most do. For one that is seen to reuse an id so
early, nothing is remembered after a last reply: a message of QoS 1 may then come twice, but none is lost that only
looks the same.

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
    """What to do with a message that has arrived."""

    NEW = "take it"
    AGAIN = "it is here already and not stored yet; its acknowledgement follows"
    STORED = "it is stored: refuse it, and acknowledge it at once"


class Reply(Enum):
    """What the broker is told."""

    ACKNOWLEDGED = "PUBACK"  # QoS 1: forget the message
    RECEIVED = "PUBREC"  # QoS 2: forget the message, keep its packet id
    COMPLETED = "PUBCOMP"  # QoS 2: forget its packet id


@dataclass(slots=True, eq=False)
class Receipt:
    """For one message that has come and is not stored."""

    packet_id: int
    qos: int
    check: int
    is_current: bool = True  # it has come over the present connection, in which its id is valid


class Receipts:
    """All receipts of a session."""

    def __init__(self, position: Position | None) -> None:
        """Begin with what the position remembers."""
        self._open: dict[int, Receipt] = {}
        self._polled: list[Receipt] = []  # stored by the next commit
        # The checksums of stored messages, by packet id: after their last reply, and those of QoS 2 that are not
        # released.
        self._done = {} if position is None else _unpacked(position["done"])
        self._received = {} if position is None else _unpacked(position["received"])
        self._reuses_ids = False if position is None else position["reuses_ids"]
        self._released: dict[int, None] = {}  # QoS 2: to be forgotten by a commit, and then completed
        self._forgotten: tuple[int, ...] = ()  # those of them that the pending position leaves out
        self._told: dict[int, None] = {}  # last replies sent after the last ping
        self._fenced: dict[int, None] = {}  # last replies in front of a ping that is not answered

    @property
    def needs_commit(self) -> bool:
        """Whether a commit without rows would let the broker forget something."""
        return bool(self._released)

    @property
    def told_count(self) -> int:
        """The number of last replies that are unconfirmed and have no ping after them."""
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
            known.is_current = False  # the id is another message's by now; to acknowledge this one would lose that
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
        """Return what to tell the broker once the position of the last poll is committed."""
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
        """Record that a ping was sent after all these replies; there is one ping at a time."""
        self._fenced, self._told = self._told, {}

    def answered(self) -> None:
        """Record the ping's answer: the broker has received all replies before it."""
        for packet_id in self._fenced:
            self._done.pop(packet_id, None)
        self._fenced = {}

    def connected(self, *, kept: bool) -> None:
        """Record a new connection: unacknowledged messages come again, unless the broker has lost the session.

        In that case packet ids start over and the old ones mean nothing; messages that are here will still be stored.
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
        """Raise if the books contradict one another."""
        assert len(self._done) <= REMEMBERED_MAX, len(self._done)
        assert all(packet_id == receipt.packet_id for packet_id, receipt in self._open.items())
        assert not self._done.keys() & self._received.keys()
        assert not self._open.keys() & (self._done.keys() | self._received.keys())
        assert self._released.keys() <= self._received.keys()

    def _count_in(self, done: dict[int, int], received: dict[int, int]) -> None:
        """Add what the pending position changes, as if it were committed."""
        for receipt in self._polled:
            if self._open.get(receipt.packet_id) is receipt:  # else its session is lost, or its id another message's
                (received if receipt.qos == 2 else done)[receipt.packet_id] = receipt.check
        for packet_id in self._forgotten:
            if packet_id in self._released:  # else the connection is lost, and the next one will ask again
                done[packet_id] = received.pop(packet_id)
        if self._reuses_ids:
            done.clear()
        for oldest in list(done)[: max(0, len(done) - REMEMBERED_MAX)]:
            del done[oldest]


def first_reply(qos: int) -> Reply:
    """Return the reply that lets a broker forget a message."""
    return Reply.RECEIVED if qos == 2 else Reply.ACKNOWLEDGED


def _packed(checks: Mapping[int, int]) -> bytes:
    return struct.pack("!" + _PACKED * len(checks), *(part for one in checks.items() for part in one))


def _unpacked(packed: bytes) -> dict[int, int]:
    return dict(struct.iter_unpack(f"!{_PACKED}", packed))
