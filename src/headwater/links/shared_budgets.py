"""The budgets that all incoming connections of a node share, and the cuts when one of them is full.

`shares.py` decides which connection is cut; this module cuts it, and counts and logs why. A newcomer is never refused
for what others hold.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from headwater.control.messages.app_messages import AnyNodeMessage
from headwater.links.credentials import Credentials
from headwater.links.intake import Taking
from headwater.links.limits import WireLimits
from headwater.links.outgoing import Traffic
from headwater.links.rates import Buckets, Rate
from headwater.links.refusals import Reason, Refusals
from headwater.links.requests import Answering, RequestTable
from headwater.links.shares import Holder, Over, Shares
from headwater.model.peers import NodeId
from headwater.security.identity import Identity

OnMessage = Callable[[NodeId, AnyNodeMessage], None]


class Guest(Protocol):
    """An incoming connection, as far as the budgets go."""

    holder: Holder  # to whom it is accounted: an identity, or a network address
    is_node: bool
    host: str

    @property
    def identity(self) -> Identity | None:
        """The identity of the other end, once it is authenticated."""

    @property
    def quiet_since(self) -> float:
        """When data last arrived; infinite while a user waits for an answer."""

    @property
    def unread_bytes(self) -> int:
        """The bytes that wait to be sent."""

    def refuse(self, reason: Reason, detail: str = "") -> None:
        """Count a refusal, send it, and close the connection."""

    def cut(self, reason: Reason, detail: str) -> None:
        """Count a refusal, and close the connection now."""

    def sweep(self) -> None:
        """End the connection if its deadline has passed."""

    def abort(self) -> None:
        """Close the connection now."""

    def hang_up(self) -> None:
        """Close the connection once what was written has left."""

    def take(self) -> bool:
        """Act on the next complete message; False if there is none."""


class Request(Protocol):
    """A request in progress."""

    number: int  # in the order of arrival, over all connections

    def cut(self, detail: str) -> None:
        """Cancel the request, and answer that there is no room for it any more."""


@dataclass(slots=True)
class House:
    """The budgets of one node, and what its connections share besides."""

    address: str
    limits: WireLimits
    clock: Callable[[], float]
    traffic: Traffic
    refusals: Refusals
    credentials: Callable[[], Credentials]
    on_message: OnMessage
    requests: RequestTable | None
    on_request: Answering | None
    rates: Mapping[type[Any], Rate]
    requests_begun: int = 0
    guests: "set[Guest]" = field(default_factory=set)  # all connections, including those in their handshake
    strangers: "Shares[Guest]" = field(init=False)  # connections that are not authenticated yet
    places: "Shares[Guest]" = field(init=False)  # authenticated connections
    arriving: "Shares[Guest]" = field(init=False)  # bytes of unfinished messages
    under_way: "Shares[Request]" = field(init=False)
    heard_out: "dict[Holder, Guest]" = field(default_factory=dict)  # closed, with messages still waiting
    taking: Taking = field(init=False)
    buckets: Buckets = field(init=False)

    def __post_init__(self) -> None:
        limits = self.limits
        self.strangers = Shares(limits.strangers, _quiet_since, each=limits.strangers_per_address)
        self.places = Shares(
            limits.connections, _quiet_since, others=limits.connections_of_others, each=limits.connections_of_one
        )
        self.arriving = Shares(limits.arriving_bytes, _quiet_since, others=limits.arriving_bytes_of_others)
        self.under_way = Shares(limits.requests, _oldness, each=limits.requests_of_one)
        self.taking = Taking(self.clock)
        self.buckets = Buckets(self.rates)

    def met(self, guest: Guest) -> None:
        """Add an unauthenticated connection; over the limit, the oldest one of the address with most is cut."""
        self.guests.add(guest)
        self.strangers.hold(guest, guest.holder, 1)
        for one, told in _over(self.strangers, guest.holder, "strangers"):
            one.cut(Reason.TOO_MANY_STRANGERS, told)

    def let_in(self, guest: Guest) -> None:
        """Move a connection to the authenticated ones; over the limit, the quietest of the holder with most is cut."""
        self.strangers.let_go(guest)
        self.places.hold(guest, guest.holder, 1, is_node=guest.is_node)
        for one, told in _over(self.places, guest.holder, "connections"):
            one.refuse(Reason.TOO_MANY, told)

    def arrived(self, guest: Guest, held_bytes: int) -> None:
        """Account the bytes of an unfinished message; over the limit, the longest of the holder with most is cut."""
        self.arriving.hold(guest, guest.holder, held_bytes, is_node=guest.is_node)
        for one, told in _over(self.arriving, guest.holder, "bytes of unfinished messages"):
            one.refuse(Reason.NO_MEMORY, told)

    def begun(self, request: Request, holder: Holder) -> None:
        """Account a request; over the limit, the newest of the holder with most is cut."""
        self.under_way.hold(request, holder, 1)
        for one, told in _over(self.under_way, holder, "requests under way"):
            one.cut(told)

    def said(self) -> None:
        """Check the bytes that users have not read; over the limit, the connection of the holder with most is cut."""
        if sum(guest.unread_bytes for guest in self.guests) <= self.limits.unread_bytes:
            return
        unread: Shares[Guest] = Shares(self.limits.unread_bytes, _quiet_since)
        for guest in self.guests:
            unread.hold(guest, guest.holder, guest.unread_bytes)
        for one, told in _over(unread, "", "bytes of unread answers"):
            one.cut(Reason.UNREAD_ANSWERS, told)

    def gone(self, guest: Guest, *, is_heard_out: bool) -> None:
        """Remove a closed connection; what it has sent may still be acted on, for one connection of each node."""
        self.guests.discard(guest)
        for shares in (self.strangers, self.places, self.arriving):
            shares.let_go(guest)
        if not is_heard_out:
            self.taking.drop(guest)
        elif (before := self.heard_out.pop(guest.holder, None)) is not None:
            self.taking.drop(before)
        if is_heard_out:
            self.heard_out[guest.holder] = guest

    def replace(self, newest: Guest) -> None:
        """Close a node's older connections: when it connects anew it has lost them, even if we have not noticed."""
        for other in [guest for guest in self.guests if guest.holder == newest.holder and guest.is_node]:
            if other is not newest:
                if other.host != newest.host:
                    who = f"{newest.identity} at {other.host}"
                    self.refusals.note(Reason.REPLACED, who, f"now at {newest.host}")
                other.hang_up()

    def sweep(self) -> None:
        """Forget idle buckets, and closed connections without messages."""
        self.buckets.forget_full(self.clock())
        self.heard_out = {holder: guest for holder, guest in self.heard_out.items() if guest in self.taking}


def _over(shares: "Shares[Any]", newest: Holder, what: str) -> Iterator[tuple[Any, str]]:
    """Yield each item that has to be cut, with the reason; it is removed from the budget before."""
    while (over := shares.gives_way(newest)) is not None:
        item, which = over
        told = _told(shares, shares.holder_of(item), which, what)
        shares.let_go(item)
        yield item, told


def _told(shares: "Shares[Any]", holder: Holder, which: Over, what: str) -> str:
    room = {Over.EACH: shares.each, Over.OTHERS: shares.others, Over.ROOM: shares.room}[which]
    return f"its holder has {shares.of(holder)} {what}, most of all; {which.value} is {room}"


def _quiet_since(guest: Guest) -> float:
    return guest.quiet_since


def _oldness(request: Request) -> float:
    return -request.number
