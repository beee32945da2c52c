"""The way from this node to one other: a bounded queue, and a connection that is made when something waits in it.

Best effort (at most once): a message that does not fit, or cannot be sent while it is fresh, is dropped and counted;
the protocols retransmit. What is sent in one iteration of the event loop travels together.
"""

import asyncio
import logging
import math
import ssl
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Any, Final, cast

from headwater.links.credentials import Credentials, Unwelcome, is_loopback
from headwater.links.distrust import why_not_secure
from headwater.links.emulation import EmulatedLink
from headwater.links.lanes import Lanes
from headwater.links.limits import GREETING_BYTES_MAX, WireLimits
from headwater.links.refusals import Reason, printable
from headwater.links.speech import Refusal, TooLong, Welcome, packed, to_dialler, unpacked
from headwater.model.decoding import UNDECODABLE
from headwater.model.frames import BrokenFrame, Inbox, pieces_of
from headwater.model.time import SECOND, Instant
from headwater.security.identity import Identity, Role
from headwater.workers.sockets import notice_lost_machine, send_late

log = logging.getLogger(__name__)

UNSENT_BYTES: Final = 64 << 10  # in the socket's buffers: more would delay urgent messages
ANSWER_BYTES_MAX: Final = 8 << 10  # a welcome or a refusal


class DropReason(StrEnum):
    """Why a message was not sent."""

    QUEUE_FULL = "its queue is full"
    ALL_FULL = "all queues together are full"
    TOO_LONG = "it is longer than allowed"
    UNREACHABLE = "nobody could be reached in time"
    WAITS = "what it brings waits to be sent already"
    CUT = "the connection broke while it was sent"
    TOO_MANY = "too many destinations"
    BAD_ADDRESS = "its address is none"
    NOT_LOOPBACK = "it would leave this machine, and this node is insecure"
    LINK_CUT = "the emulated link is cut"


@dataclass(slots=True)
class Traffic:
    """The traffic of all links of a node."""

    messages_sent: int = 0
    bytes_sent: int = 0
    messages_received: int = 0
    bytes_received: int = 0
    queued_bytes: int = 0  # now, for all destinations
    dropped: Counter[DropReason] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class LinkContext:
    """What all outgoing links of a node share."""

    limits: WireLimits
    clock: Callable[[], float]
    rng: Random
    traffic: Traffic
    credentials: Callable[[], Credentials]
    dialling: Callable[[], ssl.SSLContext | None]


class Outgoing:
    """The way to one address."""

    def __init__(self, ground: LinkContext, address: str, place: tuple[str, int], link: EmulatedLink | None) -> None:
        self.address = address
        self.link = link
        self.other: Identity | None = None  # the last one connected to
        self._host, self._port = place
        self._ground = ground
        self._lanes = Lanes(ground.limits.queue_bytes, ground.limits.queue_messages)
        self._in_flight: deque[tuple[Instant, bytes]] = deque()  # on the emulated link
        self._in_flight_bytes = self._accounted = 0
        self._line: _Line | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._flush_comes = False
        self._failures = 0
        self._last_failure = ""
        self._has_left = False
        self._welcomed_at: float | None = None
        self._redial_at = 0.0
        self._used_at = ground.clock()
        self._emptied: asyncio.Future[None] | None = None  # done once everything is written
        self._is_given_up = False

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection."""
        return self._line is not None

    @property
    def expendable(self) -> tuple[bool, float] | None:
        """The order of giving up ways when there are too many: unreachable ones, longest unused; None: in use."""
        return None if self._line is not None else (not self._failures, self._used_at)

    @property
    def waiting_bytes(self) -> int:
        """The bytes that wait for an open connection; without one, whether there is a link is unknown."""
        return 0 if self._line is None else self._lanes.bytes_held

    @property
    def queued_bytes(self) -> int:
        """The bytes that wait, or are on the emulated link."""
        return self._lanes.bytes_held + self._in_flight_bytes

    def send(self, message: Any, lane: int) -> None:
        """Queue a message, or drop it and count that."""
        self._used_at = self._ground.clock()
        if (why := self._queue(message, lane)) is not None:
            self._ground.traffic.dropped[why] += 1
            return
        self._account()
        self._flush_soon()

    def _queue(self, message: Any, lane: int) -> DropReason | None:
        limits = self._ground.limits
        if self.link is not None and self.link.quality.is_cut:
            return DropReason.LINK_CUT
        if self._lanes.will_bring(message.brings):
            return DropReason.WAITS
        try:
            encoded = packed(message, limits.compress_bytes if self._compresses else None, limits.message_bytes)
        except TooLong as reason:
            log.warning("what is for %s is not sent: %s", self.address, reason)
            return DropReason.TOO_LONG
        if self._ground.traffic.queued_bytes + len(encoded) > limits.queue_bytes_all:
            return DropReason.ALL_FULL
        if self.queued_bytes + len(encoded) > limits.queue_bytes:
            return DropReason.QUEUE_FULL
        return None if self._lanes.offer(encoded, lane, self._used_at, message.brings) else DropReason.QUEUE_FULL

    @property
    def _compresses(self) -> bool:
        """Whether bytes on this link are worth saving."""
        return not is_loopback(self._host) or (self.link is not None and self.link.quality.bytes_per_s > 0)

    def _account(self) -> None:
        held = self.queued_bytes
        self._ground.traffic.queued_bytes += held - self._accounted
        self._accounted = held

    # --- sending ------------------------------------------------------------------------------------------------------

    def _flush_soon(self) -> None:
        if not self._flush_comes:
            self._flush_comes = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_comes = False
        line = self._line
        if line is None:
            self._dial_if_due()
        elif self.link is None:
            while not line.is_paused and (together := self._lanes.gather()):
                self._write(line, together)
        else:
            self._flush_over(self.link, line)
        self._account()
        if self._emptied is not None and not self.queued_bytes and not self._emptied.done():
            self._emptied.set_result(None)

    def _flush_over(self, link: EmulatedLink, line: "_Line") -> None:
        """Put on the emulated link what it takes now, and write what has come to its end."""
        now = self._now()
        while link.free_at <= now and (together := self._lanes.gather()):
            self._in_flight.append((link.arrival(len(together), now), together))
            self._in_flight_bytes += len(together)
        while self._in_flight and self._in_flight[0][0] <= now and not line.is_paused:
            together = self._in_flight.popleft()[1]
            self._in_flight_bytes -= len(together)
            self._write(line, together)
        next_times = [self._in_flight[0][0]] if self._in_flight and not line.is_paused else []
        if self._lanes:
            next_times.append(link.free_at)
        if next_times:
            self._wake_in((min(next_times) - now) / SECOND)

    def _write(self, line: "_Line", together: bytes) -> None:
        traffic = self._ground.traffic
        traffic.bytes_sent += len(together)
        traffic.messages_sent += self._lanes.sent
        self._lanes.sent = 0
        line.transport.write(together)

    def _now(self) -> Instant:
        return Instant(round(self._ground.clock() * SECOND))

    def _wake_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(max(0.0, seconds), self._flush)

    # --- the connection -----------------------------------------------------------------------------------------------

    def _dial_if_due(self) -> None:
        if self._dialling is not None or not self._lanes:
            return
        wait = self._redial_at - self._ground.clock()
        if wait > 0:
            self._wake_in(wait)
        else:
            self._dialling = asyncio.get_running_loop().create_task(self._dial())

    async def _dial(self) -> None:
        context, line = self._ground.dialling(), _Line(self)
        named = self._host if context is not None else None
        try:
            async with asyncio.timeout(self._ground.limits.dial_s):
                await asyncio.get_running_loop().create_connection(
                    lambda: line, self._host, self._port, ssl=context, server_hostname=named
                )
        except (OSError, ValueError) as failure:  # of TLS, timeouts, and names that cannot be resolved
            if line is self._line:  # made just when the time was up: uvloop closes it without telling us
                self._detach()
            self.failed(_told(failure, self._host))
        finally:
            self._dialling = None

    def opened(self, line: "_Line") -> None:
        """Check and greet over a new connection, and begin to send."""
        transport, credentials = line.transport, self._ground.credentials()
        if self._is_given_up:
            transport.abort()
            return
        try:
            self._look_at(transport, credentials)
        except Unwelcome as unwelcome:
            self.refused(line, unwelcome.reason.value)
            return
        sock = transport.get_extra_info("socket")
        notice_lost_machine(sock)
        send_late(sock, UNSENT_BYTES)
        transport.set_write_buffer_limits(high=UNSENT_BYTES)
        self._line = line
        transport.write(b"".join(pieces_of(packed(credentials.greeting("node"), None), GREETING_BYTES_MAX)))
        if self.link is not None:
            self.link.open(self._now())
        self._flush_soon()

    def _look_at(self, transport: asyncio.Transport, credentials: Credentials) -> None:
        if not credentials.is_secure and not is_loopback(str(transport.get_extra_info("peername")[0])):
            raise Unwelcome(Reason.NOT_LOOPBACK)
        self.other = credentials.recognise(transport.get_extra_info("ssl_object"), None)
        if self.other.role is not Role.NODE:
            raise Unwelcome(Reason.NOT_A_NODE)

    def welcomed(self) -> None:
        """Take note that the other node has accepted us."""
        if self._last_failure:
            log.info("connected to %s again", self.address)
        self._last_failure = ""
        self._has_left = False
        self._welcomed_at = self._ground.clock()

    def left(self) -> None:
        """Take note that the node there leaves: failures to reach it are expected from here on."""
        self._has_left = True
        self._used_at = self._ground.clock()  # keeps this way until messages under way have arrived

    def refused(self, line: "_Line", why: str) -> None:
        """Close a connection that was refused, by us or by them."""
        if line is self._line:
            self._detach()
        line.transport.abort()
        self.failed(why)

    def failed(self, why: str) -> None:
        """Schedule the next attempt, with exponential backoff and jitter."""
        limits, now = self._ground.limits, self._ground.clock()
        if self._welcomed_at is not None and now - self._welcomed_at > limits.redial_max_s:
            self._failures = 0  # a connection that was accepted and cut at once is no success
        self._welcomed_at = None
        if why != self._last_failure:
            level = logging.DEBUG if self._has_left else logging.WARNING
            log.log(level, "no connection to %s: %s", self.address, why)
        self._last_failure = why
        wait = min(limits.redial_max_s, limits.redial_min_s * 2 ** min(self._failures, 30))
        self._failures += 1
        self._redial_at = now + wait * (0.5 + self._ground.rng.random() / 2)
        self._drop_stale()
        if self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)  # `close` need not wait: nothing can be sent
        self._flush_soon()

    def resume(self) -> None:
        """Go on writing."""
        self._flush_soon()

    def lost(self, line: "_Line") -> None:
        """Forget the message that was on its way; the others wait for the next connection."""
        if line is not self._line:
            return
        self._detach()
        if not line.has_heard:  # how TLS 1.3 looks to a client whose certificate is rejected
            self.failed("it hung up before it let us in")
        self._flush_soon()

    def _detach(self) -> None:
        self._line = None
        self._ground.traffic.dropped[DropReason.CUT] += self._lanes.drop_begun() + len(self._in_flight)
        self._in_flight.clear()
        self._in_flight_bytes = 0
        self._account()

    def hang_up(self) -> None:
        """Close the connection once what was written has left; the next message opens another."""
        if self._line is not None:
            self._line.transport.close()
            self._detach()

    # --- time, and the end --------------------------------------------------------------------------------------------

    def sweep(self) -> bool:
        """Drop stale messages and close an unused connection; False if this way can be forgotten."""
        if self._line is None:
            self._drop_stale()
        is_unused = self._ground.clock() - self._used_at > self._ground.limits.unused_s
        if self.queued_bytes or self._dialling is not None or not is_unused:
            return True
        self.hang_up()
        return False

    def give_up(self) -> None:
        """Drop everything, to make room for another way."""
        self._is_given_up = True
        for comes in (self._dialling, self._timer):
            if comes is not None:
                comes.cancel()
        self._ground.traffic.dropped[DropReason.TOO_MANY] += self._lanes.drop_older(math.inf)
        self._account()

    def _drop_stale(self) -> None:
        oldest = self._ground.clock() - self._ground.limits.stale_s
        self._ground.traffic.dropped[DropReason.UNREACHABLE] += self._lanes.drop_older(oldest)
        self._account()

    async def close(self, patience_s: float) -> None:
        """Send what waits, for at most `patience_s`, and close the connection."""
        try:
            async with asyncio.timeout(patience_s):
                await self._send_the_rest()
        except TimeoutError:
            log.warning("%s takes too long to hear our last words: %d bytes wait", self.address, self.queued_bytes)
        for comes in (self._dialling, self._timer):
            if comes is not None:
                comes.cancel()
        if self._line is not None:
            self._line.transport.abort()
            self._detach()

    async def _send_the_rest(self) -> None:
        if self.queued_bytes and (self._line is not None or self._dialling is not None):
            self._emptied = asyncio.get_running_loop().create_future()
            self._flush_soon()
            await self._emptied
        if self._line is not None:
            self._line.transport.close()
            await self._line.closed


class _Line(asyncio.Protocol):
    """One connection of a way; an older one may still be closing."""

    transport: asyncio.Transport

    def __init__(self, way: Outgoing) -> None:
        self.is_paused = self.has_heard = False
        self._way = way
        self._inbox = Inbox(ANSWER_BYTES_MAX)
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's over TLS is one in all but name
        self._way.opened(self)

    def data_received(self, data: bytes) -> None:
        try:
            for arrived in self._inbox.put(data):
                self.has_heard = True
                self._heard(to_dialler.decode(unpacked(arrived, ANSWER_BYTES_MAX)))
        except (BrokenFrame, *UNDECODABLE):
            self._way.refused(self, "it does not answer as a node does")

    def _heard(self, message: Any) -> None:
        match message:
            case Welcome():
                self._way.welcomed()
            case Refusal():
                self._way.refused(self, f"it refuses us: {printable(str(message))}")
            case _:
                self._way.refused(self, "it answers what was not asked")

    def pause_writing(self) -> None:
        self.is_paused = True

    def resume_writing(self) -> None:
        self.is_paused = False
        self._way.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)
        self._way.lost(self)


def _told(failure: Exception, host: str) -> str:
    match failure:
        case TimeoutError():
            return "it does not answer in time"
        case ssl.SSLError():
            return why_not_secure(failure, host)
        case OSError():
            return failure.strerror or str(failure)
    return str(failure)
