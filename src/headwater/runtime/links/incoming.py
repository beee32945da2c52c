"""A connection that somebody else made to this node.

A stranger may greet, once and soon. A node then sends messages and a user asks; whatever is no message, too long, too
slow or in another's name ends the connection with one refusal.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, cast

import msgspec

from headwater.model.decoding import UNDECODABLE
from headwater.model.errors import HeadwaterError
from headwater.model.peers import NodeId
from headwater.node.messages import AnyNodeMessage
from headwater.runtime.frames import FrameTooLong, Inbox, pieces_of
from headwater.runtime.identity import Identity, Role
from headwater.runtime.links.credentials import Credentials, Unwelcome, is_loopback
from headwater.runtime.links.limits import GREETING_BYTES_MAX, WireLimits
from headwater.runtime.links.outgoing import Traffic
from headwater.runtime.links.refusals import Reason, Refusals
from headwater.runtime.links.requests import Answering, Caller, RequestTable, refusal_of
from headwater.runtime.links.speech import (
    VERSION,
    Answered,
    Asked,
    NotDone,
    Refusal,
    ToDialler,
    Welcome,
    asked_decoder,
    encoder,
    greeting_decoder,
    packed,
    shortened,
    unpacked,
)
from headwater.runtime.sockets import notice_lost_machine
from headwater.runtime.wire import BrokenFrame

log = logging.getLogger(__name__)

LANES: Final = 2
ANSWER_PIECE_BYTES: Final = 1 << 20
LEAVE_S: Final = 2.0  # to read a refusal
message_decoder: Final = msgspec.msgpack.Decoder(AnyNodeMessage)

OnMessage = Callable[[NodeId, AnyNodeMessage], None]


@dataclass(slots=True)
class House:
    """What all incoming connections of a node share."""

    address: str
    limits: WireLimits
    clock: Callable[[], float]
    traffic: Traffic
    refusals: Refusals
    credentials: Callable[[], Credentials]
    on_message: OnMessage
    requests: RequestTable | None
    on_request: Answering | None
    arriving_bytes: int = 0
    guests: "set[Incoming]" = field(default_factory=set)  # all connections, also those whose handshake goes on


class Incoming(asyncio.Protocol):
    """One connection."""

    def __init__(self, house: House, host: str, port: int) -> None:
        """Belong to a stranger."""
        self.host = host
        self.identity: Identity | None = None
        self.is_node = False
        self.deadline = house.clock() + house.limits.handshake_s
        self._who = f"{host}:{port}"
        self._house = house
        self._inbox = Inbox(GREETING_BYTES_MAX, LANES)
        self._transport: asyncio.Transport | None = None
        self._begun_at: float | None = None  # the message that has arrived in part
        self._held = 0
        self.handshake: asyncio.Task[None] | None = None
        self._asked: set[asyncio.Task[None]] = set()
        self._is_leaving = self._is_unread = False

    @property
    def is_stranger(self) -> bool:
        """Whether it has not been let in yet."""
        return self.identity is None

    @property
    def _called(self) -> str:
        """How logs call whoever it is."""
        return self._who if self.identity is None else f"{self.identity} at {self._who}"

    # --- the connection -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the greeting."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's over TLS is one in all but name
        notice_lost_machine(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        """Put what came together to messages and act on them."""
        if self._is_leaving:
            return
        self._house.traffic.bytes_received += len(data)
        try:
            self._inbox.add(data)
            while (arrived := self._inbox.next()) is not None:
                self._begun_at = None
                self._take(arrived)
        except FrameTooLong as damage:
            self.refuse(Reason.TOO_LONG, str(damage))
        except (BrokenFrame, *UNDECODABLE) as damage:
            self.refuse(Reason.BAD_GREETING if self.is_stranger else Reason.NO_MESSAGE, str(damage))
        except Unwelcome as unwelcome:
            self.refuse(unwelcome.reason, unwelcome.detail)
        else:
            self._account()

    def _account(self) -> None:
        """Keep count of what has arrived in part, and until when the rest has to follow."""
        house, limits, held = self._house, self._house.limits, self._inbox.bytes_held
        house.arriving_bytes += held - self._held
        self._held = held
        if house.arriving_bytes > limits.arriving_bytes:
            self.refuse(Reason.NO_MEMORY)
        elif not self.is_stranger:
            now = house.clock()
            if not held:
                self.deadline = now + limits.idle_s
                return
            if self._begun_at is None:
                self._begun_at = now
            self.deadline = self._begun_at + limits.frame_s + held / limits.frame_bytes_per_s

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._transport = None
        self.forget()

    def forget(self) -> None:
        """Be no guest any more."""
        self._house.arriving_bytes -= self._held
        self._held = 0
        self._house.guests.discard(self)
        for task in self._asked:
            task.cancel()

    def sweep(self) -> None:
        """Part with whom we have waited for long enough."""
        if self._house.clock() < self.deadline:
            return
        if self._is_leaving:
            self.abort()
        elif self.is_stranger:
            self.refuse(Reason.SLOW_HANDSHAKE)
        elif self._is_unread:
            self.refuse(Reason.UNREAD_ANSWERS)
        elif self._held:
            self.refuse(Reason.SLOW_FRAME)
        elif not self._asked:
            self.hang_up()

    def hang_up(self) -> None:
        """End the connection when what was said has left, or soon in any case."""
        self._is_leaving = True
        self.deadline = self._house.clock() + LEAVE_S
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End the connection now."""
        if self._transport is not None:
            self._transport.abort()
        if self.handshake is not None:
            self.handshake.cancel()

    def refuse(self, reason: Reason, detail: str = "") -> None:
        """Count, tell once, and end the connection."""
        self._house.refusals.note(reason, self._called, detail)
        self._is_leaving = True
        if self._transport is None:  # TLS is not there yet, and nothing is said without it
            self.abort()
            return
        self._say(Refusal(reason.value, self._house.address))
        self.hang_up()

    def fail(self, reason: Reason, detail: str) -> None:
        """Count that TLS did not come about, and forget it."""
        self.handshake = None
        self.refuse(reason, detail)
        self.forget()

    def _say(self, message: ToDialler) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        limits = self._house.limits
        said = packed(message, None if is_loopback(self.host) else limits.compress_bytes)
        self._transport.write(b"".join(pieces_of(said, ANSWER_PIECE_BYTES)))
        if not self._is_leaving and sum(guest.unread_bytes for guest in self._house.guests) > limits.unread_bytes:
            self.refuse(Reason.UNREAD_ANSWERS)
            self.abort()  # what waits is what there is too much of

    @property
    def unread_bytes(self) -> int:
        """What was said and has not left yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    # --- what arrives -------------------------------------------------------------------------------------------------

    def _take(self, arrived: bytes) -> None:
        if self._is_leaving:
            return
        if self.identity is None:
            self._greeted(arrived)
        elif self.is_node:
            self._message(message_decoder.decode(unpacked(arrived, self._house.limits.message_bytes)))
        else:
            self._request(asked_decoder.decode(unpacked(arrived, self._house.limits.request_bytes)))

    def _greeted(self, arrived: bytes) -> None:
        assert self._transport is not None
        greeting = greeting_decoder.decode(unpacked(arrived, GREETING_BYTES_MAX))
        if greeting.version != VERSION:
            raise Unwelcome(Reason.BAD_GREETING, f"version {greeting.version}; ours is {VERSION}")
        identity = self._house.credentials().recognise(self._transport.get_extra_info("ssl_object"), greeting)
        self.is_node = greeting.kind == "node"
        if self.is_node and identity.role is not Role.NODE:
            raise Unwelcome(Reason.NOT_A_NODE, str(identity))
        if not self.is_node and self._house.requests is None:
            raise Unwelcome(Reason.UNKNOWN_REQUEST, "requests are not answered here")
        limits = self._house.limits
        self.identity = identity
        self._inbox.bytes_max = limits.message_bytes if self.is_node else limits.request_bytes
        self.deadline = self._house.clock() + limits.idle_s
        if self.is_node:
            self._replace_older(identity)
        self._say(Welcome(VERSION))

    def _replace_older(self, identity: Identity) -> None:
        """A node has one connection to us: one that dials again has lost the one before, even if we have not."""
        for other in list(self._house.guests):
            if other is not self and other.is_node and other.identity is not None and other.identity.id == identity.id:
                if other.host != self.host:
                    self._house.refusals.note(Reason.REPLACED, f"{identity} at {other.host}", f"now at {self.host}")
                other.hang_up()

    def _message(self, message: Any) -> None:
        assert self.identity is not None
        sender = message.sender
        if sender.id != self.identity.id:
            raise Unwelcome(Reason.FORGED_SENDER, f"{type(message).__name__} of {sender.id[:4].hex()}")
        self._house.traffic.messages_received += 1
        try:
            self._house.on_message(self.identity.id, message)
        except Exception:  # our mistake: it must not end a connection, nor be lost
            log.exception("a %s from %s was not taken", type(message).__name__, self.identity)

    # --- requests -----------------------------------------------------------------------------------------------------

    def _request(self, asked: Asked) -> None:
        house, requests = self._house, self._house.requests
        assert self.identity is not None
        assert requests is not None
        if len(self._asked) >= house.limits.requests_at_once:
            most = house.limits.requests_at_once
            self._not_done(asked, Reason.TOO_MANY_REQUESTS, f"wait for an answer first: at most {most} at once")
            return
        try:
            request = requests.read_request(asked.request)
        except UNDECODABLE as damage:
            self._not_done(asked, Reason.UNKNOWN_REQUEST, shortened(f"is the node's version ours? ({damage})"))
            return
        needed = requests.roles[type(request)]
        if not self.identity.role.includes(needed):
            what = f"{self.identity.name!r} has the role {self.identity.role.value!r}, which is not enough for this"
            self._not_done(asked, Reason.ROLE, f"ask for a certificate with the role {needed.value!r}", what)
            return
        task = asyncio.get_running_loop().create_task(self._answer(asked.number, request))
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)

    def _not_done(self, asked: Asked, reason: Reason, remedy: str, what: str = "") -> None:
        self._house.refusals.note(reason, self._called)
        self._say(NotDone(asked.number, Refusal(what or reason.value, self._house.address, remedy)))

    async def _answer(self, number: int, request: msgspec.Struct) -> None:
        house = self._house
        assert self.identity is not None
        assert house.on_request is not None
        caller = Caller(self.identity.name, self.identity.role, self._called)
        try:
            async with asyncio.timeout(house.limits.request_s):
                answer = await house.on_request(caller, request)
            encoded = encoder.encode(answer)
            if len(encoded) > house.limits.answer_bytes:
                raise BrokenFrame(f"an answer of {len(encoded)} bytes")
        except TimeoutError:
            told = f"{type(request).__name__} was not answered within {house.limits.request_s:g} s"
            self._say(NotDone(number, Refusal(told, house.address, "ask again, or ask another node")))
        except Exception as failure:
            if not _is_ours(failure):
                log.exception("%s of %s failed", type(request).__name__, self.identity)
            self._say(NotDone(number, refusal_of(failure, house.address)))
        else:
            self._say(Answered(number, msgspec.Raw(encoded)))
        if not self._is_unread and not self._is_leaving and not self._held:
            self.deadline = house.clock() + house.limits.idle_s

    def pause_writing(self) -> None:
        """Take no further request while answers are not read."""
        if self._transport is not None and not self.is_node and not self.is_stranger:
            self._is_unread = True
            self._transport.pause_reading()
            self.deadline = self._house.clock() + self._house.limits.frame_s

    def resume_writing(self) -> None:
        """Go on."""
        if self._is_unread and self._transport is not None and not self._is_leaving:
            self._is_unread = False
            self._transport.resume_reading()
            self.deadline = self._house.clock() + self._house.limits.idle_s


def _is_ours(failure: Exception) -> bool:
    """Whether an error was raised on purpose, with a sentence for the user."""
    return isinstance(failure, HeadwaterError)
