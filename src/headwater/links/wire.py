"""The wire of a node: one port for all peers and users, and a way to every other node.

    wire = Wire(WireConfig(listen="10.0.0.1:7100"), load_credentials(certs), on_message=hear)
    wire.start()
    wire.send("10.0.0.2:7100", message)      # never waits, never fails; the protocols retransmit what is lost
    await wire.close()

All of it lives on the running event loop, and is called there. A message counts as its sender's only if the sender is
the node in the connection's certificate.
"""

import asyncio
import datetime as dt
import logging
import ssl
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from headwater.control.messages.app_messages import AnyNodeMessage
from headwater.links.credentials import Credentials, is_loopback, refuse_insecure_beyond_loopback
from headwater.links.emulation import LinkTable
from headwater.links.lanes import BULKY, URGENT
from headwater.links.limits import WireLimits
from headwater.links.listener import Listener
from headwater.links.outgoing import DropReason, LinkContext, Outgoing, Traffic
from headwater.links.rates import RATES, Rate
from headwater.links.refusals import Reason, Refusals
from headwater.links.requests import Answering, RequestTable
from headwater.links.shared_budgets import House, OnMessage
from headwater.model.errors import ConfigError
from headwater.model.peers import NodeId
from headwater.model.time import SECOND, Duration
from headwater.overlay.table import congestion_of
from headwater.security.identity import Identity, Role
from headwater.spark.address import ADDRESS_FORM, address_of, host_and_port
from headwater.spark.log_context import tell_death
from headwater.workers.sockets import bound_socket

log = logging.getLogger(__name__)

SWEEP_S: Final = 0.5  # between two checks of deadlines
RELOAD_S: Final = 10.0  # between two checks for new certificates
LAST_WORDS_S: Final = 2.0  # to send what waits when the wire is closed


@dataclass(frozen=True, slots=True, kw_only=True)
class WireConfig:
    """Where a node listens, and the address that others use for it."""

    listen: str  # host:port; port 0: any that is free
    advertise: str | None = None  # the address at which others reach it; None: where it listens
    limits: WireLimits = field(default_factory=WireLimits)
    bulky: frozenset[type[Any]] = frozenset()  # messages that all others may overtake: those with rows
    rates: Mapping[type[Any], Rate] = field(default_factory=lambda: RATES)  # per kind of message

    def __post_init__(self) -> None:
        """Refuse what is not an address."""
        for what, written in (("listen", self.listen), ("advertise", self.advertise)):
            if written is not None and host_and_port(written) is None:
                raise ConfigError(f"{written!r} is not an address to {what}; {ADDRESS_FORM}")


@dataclass(frozen=True, slots=True)
class WireStatus:
    """What a wire has done, and what it has refused."""

    address: str
    is_secure: bool
    nodes: int  # that have a connection to us
    users: int
    strangers: int  # not authenticated yet
    connected: int  # destinations
    destinations: int
    queued_bytes: int
    arriving_bytes: int
    messages_sent: int
    bytes_sent: int
    messages_received: int
    bytes_received: int
    dropped: dict[str, int]  # messages, by reason
    refused: dict[str, int]  # connections and requests, by reason


class Wire:
    """The wire of one node."""

    def __init__(
        self,
        config: WireConfig,
        credentials: Credentials,
        *,
        on_message: OnMessage,
        requests: RequestTable | None = None,
        on_request: Answering | None = None,
        links: LinkTable | None = None,
        clock: Callable[[], float] = time.monotonic,
        calendar: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
        rng: Random | None = None,
    ) -> None:
        """Bind the port; no connection is accepted yet."""
        assert (requests is None) == (on_request is None), "requests are answered by somebody"
        if credentials.identity.role is not Role.NODE:
            raise ConfigError(
                f"{credentials.identity} cannot be a node; make a certificate with `headwater certs node`"
            )
        self._config = config
        self._credentials = credentials
        self._accepting, self._dialling = credentials.accepting(), credentials.dialling()
        self._links = links
        self._clock = clock
        self._calendar = calendar
        self._traffic = Traffic()
        self._refusals = Refusals(config.limits.refusals_logged, clock)
        host, port = _place(config.listen)
        if not credentials.is_secure:
            refuse_insecure_beyond_loopback("--listen", host)
        bound = bound_socket(host, port, "nodes and users")
        self.address = config.advertise or address_of(host, bound.getsockname()[1])
        self._house = House(
            address=self.address,
            limits=config.limits,
            clock=clock,
            traffic=self._traffic,
            refusals=self._refusals,
            credentials=lambda: self._credentials,
            on_message=on_message if links is None else self._learning(on_message, links),
            requests=requests,
            on_request=on_request,
            rates=config.rates,
        )
        self._listener = Listener(self._house, bound, lambda: self._accepting)
        self._ground = LinkContext(
            config.limits, clock, rng or Random(), self._traffic, lambda: self._credentials, self._dialling_context
        )
        self._ways: dict[str, Outgoing] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._reload_at = clock() + RELOAD_S
        self._paced = (clock(), 0)  # when the congestion was last asked for, and the bytes sent until then

    @property
    def node_id(self) -> NodeId:
        """This node's place on the ring: a hash of its key."""
        return self._credentials.identity.id

    @property
    def credentials(self) -> Credentials:
        """Our identity and whom we trust, as last read from the files."""
        return self._credentials

    def refused(self, reason: Reason, who: str, detail: str = "") -> None:
        """Count and log a message that its receiver has refused."""
        self._refusals.note(reason, who, detail)

    def start(self, on_death: Callable[[BaseException], object] = lambda failure: None) -> None:
        """Let others in, on the loop that runs; `on_death` is told if a mistake of ours ends that."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._listener.accept()), loop.create_task(self._sweep_for_ever())]
        for task in self._tasks:
            tell_death(task, on_death)

    # --- sending ------------------------------------------------------------------------------------------------------

    def send(self, to_address: str, message: AnyNodeMessage) -> None:
        """Send a message, at most once; a dropped one is counted."""
        way = self._ways.get(to_address) or self._new_way(to_address)
        if way is not None:
            way.send(message, BULKY if type(message) in self._config.bulky else URGENT)

    def left(self, address: str) -> None:
        """Take note that the node at an address has said that it leaves; messages may still be under way to it."""
        way = self._ways.get(address) or self._new_way(address)
        if way is not None:
            way.left()

    def congestion(self) -> float:
        """Return the congestion of our links, 0 to 1: the time to send what waits, at the pace since the last call.

        Bytes on their way over a long link do not wait, and messages for an unreachable node are not congestion.
        """
        now, sent = self._clock(), self._traffic.bytes_sent
        (since, sent_before), self._paced = self._paced, (now, sent)
        waiting = sum(way.waiting_bytes for way in self._ways.values())
        pace = (sent - sent_before) / max(1e-3, now - since)
        return congestion_of(Duration(round(SECOND * waiting / max(1.0, pace))))

    def _new_way(self, address: str) -> Outgoing | None:
        match host_and_port(address):
            case None:
                self._traffic.dropped[DropReason.BAD_ADDRESS] += 1
            case (host, _) if (why := self._no_way(host)) is not None:
                self._traffic.dropped[why] += 1
            case place:
                link = None if self._links is None else self._links.link(self.address, address)
                self._ways[address] = Outgoing(self._ground, address, place, link)
        return self._ways.get(address)

    def _no_way(self, host: str) -> DropReason | None:
        """Return why there can be no way to a host."""
        if not self._credentials.is_secure and not is_loopback(host):
            return DropReason.NOT_LOOPBACK
        is_full = len(self._ways) >= self._config.limits.destinations
        return DropReason.TOO_MANY if is_full and not self._made_room() else None

    def _made_room(self) -> bool:
        """Give up a way without a connection: made-up addresses must not displace real ones."""
        idle = [(when, address) for address, way in self._ways.items() if (when := way.expendable) is not None]
        if not idle:
            return False
        _, address = min(idle)
        self._ways.pop(address).give_up()
        return True

    def _dialling_context(self) -> ssl.SSLContext | None:
        return self._dialling

    # --- time ---------------------------------------------------------------------------------------------------------

    async def _sweep_for_ever(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            try:
                self.sweep()
            except Exception:  # our mistake: it is logged, and the limits of the port must go on
                log.exception("the connections were not looked after")

    def sweep(self) -> None:
        """Enforce deadlines, forget unused ways, and reload certificates."""
        self._listener.sweep()
        for address, way in list(self._ways.items()):
            if not way.sweep():
                del self._ways[address]
        if self._clock() >= self._reload_at:
            self._reload_at = self._clock() + RELOAD_S
            self.reload()
            self._part_with_former()

    def reload(self) -> bool:
        """Reload certificates and deny list from their files; False if they are unchanged or cannot be used."""
        try:
            fresh = self._credentials.reloaded()
            if fresh is None:
                return False
            if fresh.identity != self._credentials.identity:
                raise ConfigError("the certificate is of another node; restart to become that one")
            self._accepting, self._dialling = fresh.accepting(), fresh.dialling()
        except ConfigError as failure:
            log.error("the certificates are not reloaded, those before stay in use: %s", failure)
            return False
        self._credentials = fresh
        log.info("certificates and deny list are reloaded")
        self._part_with_former()
        return True

    def _part_with_former(self) -> None:
        """End connections whose certificate has expired or been revoked since they were made."""
        for guest in list(self._house.guests):
            if (why := self._why_not(guest.identity)) is not None:
                guest.refuse(why)
        for way in self._ways.values():
            if self._why_not(way.other) is not None:
                way.hang_up()

    def _why_not(self, other: Identity | None) -> Reason | None:
        if other is None:
            return None
        if self._credentials.denies(other):
            return Reason.DENIED
        is_over = other.expires is not None and other.expires <= self._calendar()
        return Reason.EXPIRED_CERTIFICATE if is_over else None

    def _learning(self, on_message: OnMessage, links: LinkTable) -> OnMessage:
        """Learn the senders' zones from their messages, to know which links to emulate."""

        def hear(sender: NodeId, message: AnyNodeMessage) -> None:
            peer = message.sender
            if links.learn(peer.address, peer.zone):
                self._look_at_links()
            on_message(sender, message)

        return hear

    def emulate(self, **qualities: Any) -> None:
        """Change how the emulated links are: `default`, `within`, `between`, as in `LinkTable`."""
        assert self._links is not None, "links that are not emulated are as they are"
        for name, quality in qualities.items():
            setattr(self._links, name, quality)
        self._look_at_links()

    def _look_at_links(self) -> None:
        assert self._links is not None
        for address, way in self._ways.items():
            assert way.link is not None
            way.link.quality = self._links.quality(address)

    # --- the end ------------------------------------------------------------------------------------------------------

    def status(self) -> WireStatus:
        """Return the state and the counters of the wire."""
        house, traffic = self._house, self._traffic
        return WireStatus(
            address=self.address,
            is_secure=self._credentials.is_secure,
            nodes=house.places.total - house.places.total_of_others,
            users=house.places.total_of_others,
            strangers=house.strangers.total,
            connected=sum(way.is_connected for way in self._ways.values()),
            destinations=len(self._ways),
            queued_bytes=traffic.queued_bytes,
            arriving_bytes=house.arriving.total,
            messages_sent=traffic.messages_sent,
            bytes_sent=traffic.bytes_sent,
            messages_received=traffic.messages_received,
            bytes_received=traffic.bytes_received,
            dropped=_by_reason(traffic.dropped),
            refused=_by_reason(self._refusals.counts),
        )

    async def close(self, patience_s: float = LAST_WORDS_S) -> None:
        """Send what waits, for at most `patience_s`, and close all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*(way.close(patience_s) for way in self._ways.values()))
        self._listener.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._ways.clear()


def _place(address: str) -> tuple[str, int]:
    place = host_and_port(address)
    assert place is not None, address
    return place


def _by_reason(counts: Counter[Any]) -> dict[str, int]:
    return {str(reason): count for reason, count in sorted(counts.items()) if count}
