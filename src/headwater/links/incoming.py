"""A connection that a node or a user has made to this node.

Before it is authenticated it may send one greeting, within a deadline. A node then sends messages and a user sends
requests; what cannot be decoded, is too long, too slow or in another's name ends the connection with one refusal. What
arrives waits for its turn (`intake.py`), and what a connection takes of the node's budgets is accounted to its identity
(`shared_budgets.py`).
"""

import asyncio
import logging
import math
from typing import Any, Final, cast

import msgspec

from headwater.control.messages.app_messages import AnyNodeMessage
from headwater.links.answers import Answers
from headwater.links.credentials import Unwelcome, is_loopback
from headwater.links.intake import READ_AHEAD_BYTES
from headwater.links.limits import GREETING_BYTES_MAX
from headwater.links.rates import SAME_AGAIN
from headwater.links.refusals import Reason
from headwater.links.shared_budgets import House
from headwater.links.shares import Holder, network_of
from headwater.links.speech import (
    VERSION,
    Refusal,
    ToDialler,
    Welcome,
    asked_decoder,
    greeting_decoder,
    packed,
    unpacked,
)
from headwater.model.decoding import UNDECODABLE
from headwater.model.frames import BrokenFrame, FrameTooLong, Inbox, pieces_of
from headwater.security.identity import Identity, Role
from headwater.workers.sockets import notice_lost_machine

log = logging.getLogger(__name__)

LANES: Final = 2
ANSWER_PIECE_BYTES: Final = 1 << 20
LEAVE_S: Final = 2.0  # for the other end to read a refusal
REFUSED_AT_ONCE: Final = 100  # messages over a rate, until the connection is paused
SAME_AGAIN_S: Final = 0.05  # within which a second heartbeat is dropped as a duplicate: they are sent once a second
message_decoder: Final = msgspec.msgpack.Decoder(AnyNodeMessage)


class IncomingConnection(asyncio.Protocol):
    """One connection."""

    def __init__(self, house: House, host: str, port: int) -> None:
        """Begin unauthenticated, accounted to the network address."""
        self.host = host
        self.holder: Holder = network_of(host)
        self.identity: Identity | None = None
        self.is_node = False
        self.deadline = house.clock() + house.limits.handshake_s
        self.handshake: asyncio.Task[None] | None = None
        self._who = f"{host}:{port}"
        self._house = house
        self._inbox = Inbox(GREETING_BYTES_MAX, LANES)
        self._transport: asyncio.Transport | None = None
        self._answers: Answers | None = None  # of a user
        self._heard_at = house.clock()
        self._same_at: dict[type[Any], float] = {}
        self._over_rate = 0  # messages over a rate
        self._is_partial = False  # part of a message has arrived
        self._is_full = False  # too much waits for its turn
        self._is_unread = False  # too many answers wait for the user to read them
        self._is_refused = self._is_leaving = False

    @property
    def quiet_since(self) -> float:
        """When data last arrived; infinite while a user waits for an answer."""
        return math.inf if self._answers else self._heard_at

    @property
    def unread_bytes(self) -> int:
        """The bytes that wait to be sent."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def _called(self) -> str:
        """The name of the other end in logs."""
        return self._who if self.identity is None else f"{self.identity} at {self._who}"

    # --- the connection -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the greeting."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's over TLS is one in all but name
        notice_lost_machine(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        """Queue what arrived for its turn; the greeting is read at once."""
        if self._is_leaving:
            return
        house = self._house
        house.traffic.bytes_received += len(data)
        self._heard_at = house.clock()
        if self._is_partial:  # each byte of a message extends the deadline, at the rate of the slowest link
            more_s = len(data) / house.limits.frame_bytes_per_s
            self.deadline = min(self.deadline + more_s, self._heard_at + house.limits.frame_s)
        self._inbox.add(data)
        if (self.identity is not None or self.take()) and not self._is_refused:
            house.taking.put(self, self.holder)
            self._is_full = self._inbox.bytes_unread >= READ_AHEAD_BYTES
            self._read_or_wait()

    def take(self) -> bool:
        """Act on the next complete message; False if there is none."""
        if self._is_refused:
            return False
        try:
            arrived = self._inbox.next()
            if arrived is not None:
                self._take(arrived)
                return True
        except FrameTooLong as damage:
            self.refuse(Reason.TOO_LONG, str(damage))
        except (BrokenFrame, *UNDECODABLE) as damage:
            self.refuse(Reason.BAD_GREETING if self.identity is None else Reason.NO_MESSAGE, str(damage))
        except Unwelcome as unwelcome:
            self.refuse(unwelcome.reason, unwelcome.detail)
        else:
            self._account()
        return False

    def _account(self) -> None:
        """Account the bytes of an unfinished message, and set the deadline for the rest of it."""
        if self._transport is None:  # it is closed, and the rest will never arrive
            self._inbox.clear()
            return
        house, held = self._house, self._inbox.bytes_held
        self._is_full = False
        house.arrived(self, held)
        if self.identity is None or self._is_leaving:
            return
        was_partial, self._is_partial = self._is_partial, held > 0
        if not held:
            self.deadline = house.clock() + house.limits.idle_s
        elif not was_partial:
            self.deadline = house.clock() + house.limits.frame_s
        self._read_or_wait()

    def _read_or_wait(self) -> None:
        """Read on, or stop reading while too much waits on either side: TCP then holds the sender back."""
        if self._transport is None or self._is_leaving:
            return
        if self._is_unread or self._is_full:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the budgets; what a node has sent before is still acted on."""
        self._transport = None
        is_heard_out = self.is_node and not self._is_refused and self in self._house.taking
        self._house.gone(self, is_heard_out=is_heard_out)
        if self._answers is not None:
            self._answers.cancel()

    def forget(self) -> None:
        """Release the budgets."""
        self._house.gone(self, is_heard_out=False)

    def sweep(self) -> None:
        """End the connection if its deadline has passed; one that waits for its turn here is not to blame."""
        if self._house.clock() < self.deadline:
            return
        if self._is_leaving:
            self.abort()
        elif self.identity is None:
            self.refuse(Reason.SLOW_HANDSHAKE)
        elif self._is_unread:
            self.refuse(Reason.UNREAD_ANSWERS)
        elif self in self._house.taking:
            return
        elif self._is_partial:
            self.refuse(Reason.SLOW_FRAME)
        elif not self._answers:
            self.hang_up()

    def hang_up(self) -> None:
        """Close the connection once what was written has left, or after `LEAVE_S`."""
        self._is_leaving = True
        self.deadline = self._house.clock() + LEAVE_S
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection now."""
        if self._transport is not None:
            self._transport.abort()
        if self.handshake is not None:
            self.handshake.cancel()

    def refuse(self, reason: Reason, detail: str = "") -> None:
        """Count a refusal, send it, and close the connection; what has arrived is discarded."""
        self._house.refusals.note(reason, self._called, detail)
        self._is_refused = self._is_leaving = True
        self._inbox.clear()
        self._house.arrived(self, 0)
        self._house.taking.drop(self)
        if self._transport is None:  # TLS is not established, and nothing is sent without it
            self.abort()
            return
        self._say(Refusal(reason.value, self._house.address))
        self.hang_up()

    def cut(self, reason: Reason, detail: str) -> None:
        """Count a refusal, send it if that needs no waiting, and close the connection now, to free what it takes."""
        self.refuse(reason, detail)
        self.abort()

    def fail(self, reason: Reason, detail: str) -> None:
        """Count a failed TLS handshake, and release the budgets."""
        self.handshake = None
        self.refuse(reason, detail)
        self.forget()

    def _say(self, message: ToDialler) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        limits = self._house.limits
        said = packed(message, None if is_loopback(self.host) else limits.compress_bytes)
        self._transport.write(b"".join(pieces_of(said, ANSWER_PIECE_BYTES)))
        if not self._is_leaving:
            self._house.said()
            if not self._is_unread and not self._is_partial:
                self.deadline = self._house.clock() + limits.idle_s

    # --- what arrives -------------------------------------------------------------------------------------------------

    def _take(self, arrived: bytes) -> None:
        limits = self._house.limits
        if self.identity is None:
            self._greeted(arrived)
        elif self._answers is not None:
            self._answers.hear(asked_decoder.decode(unpacked(arrived, limits.request_bytes)))
        else:
            self._message(message_decoder.decode(unpacked(arrived, limits.message_bytes)))

    def _greeted(self, arrived: bytes) -> None:
        assert self._transport is not None
        house = self._house
        greeting = greeting_decoder.decode(unpacked(arrived, GREETING_BYTES_MAX))
        if greeting.version != VERSION:
            raise Unwelcome(Reason.BAD_GREETING, f"version {greeting.version}; ours is {VERSION}")
        identity = house.credentials().recognise(self._transport.get_extra_info("ssl_object"), greeting)
        self.is_node = greeting.kind == "node"
        if self.is_node and identity.role is not Role.NODE:
            raise Unwelcome(Reason.NOT_A_NODE, str(identity))
        if not self.is_node and house.requests is None:
            raise Unwelcome(Reason.UNKNOWN_REQUEST, "requests are not answered here")
        self.identity = identity
        self.holder = identity.id or identity.name  # without certificates users have a name only
        self._inbox.bytes_max = house.limits.message_bytes if self.is_node else house.limits.request_bytes
        self.deadline = house.clock() + house.limits.idle_s
        if self.is_node:
            house.replace(self)
        else:
            self._answers = Answers(house, identity, self.holder, self._called, self._say)
        house.let_in(self)
        if not self._is_refused:
            self._say(Welcome(VERSION))

    def _message(self, message: Any) -> None:
        assert self.identity is not None
        house, sender, kind = self._house, message.sender, type(message)
        if sender.id != self.identity.id:
            raise Unwelcome(Reason.FORGED_SENDER, f"{kind.__name__} of {sender.id[:4].hex()}")
        house.traffic.messages_received += 1
        now = house.clock()
        if not house.buckets.admit(self.holder, kind, now):
            self._refuse_message(kind)
            return
        if kind in SAME_AGAIN:
            if now - self._same_at.get(kind, -math.inf) < SAME_AGAIN_S:
                return
            self._same_at[kind] = now
        try:
            house.on_message(self.identity.id, message)
        except Exception:  # our mistake: it must neither end the connection nor go unnoticed
            log.exception("a %s from %s was not taken", kind.__name__, self.identity)

    def _refuse_message(self, kind: type[Any]) -> None:
        """Count a message over its rate; pause a connection that sends many."""
        house = self._house
        house.refusals.note(Reason.TOO_OFTEN, self._called, kind.__name__)
        self._over_rate += 1
        if self._over_rate % REFUSED_AT_ONCE == 0:
            house.taking.rest(self, self.holder, REFUSED_AT_ONCE / house.limits.refused_per_s)

    # --- answers that are not read ------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """Take no requests while answers are not read (backpressure)."""
        if self._answers is not None:
            self._is_unread = True
            self._read_or_wait()
            self.deadline = self._house.clock() + self._house.limits.frame_s

    def resume_writing(self) -> None:
        """Take requests again."""
        if self._is_unread and not self._is_leaving:
            self._is_unread = False
            self._read_or_wait()
            self.deadline = self._house.clock() + self._house.limits.idle_s
