"""What all incoming connections of a node share: the budgets, and who is cut when one of them is full.

`shares.py` decides who gives way; here it is carried out, counted and logged with what the holder had. Nobody is
refused a place for what others hold.
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

    holder: Holder  # as whom it is accounted: an identity, or a network address
    is_node: bool
    host: str

    @property
    def identity(self) -> Identity | None:
        """Who it is, once that is known."""

    @property
    def quiet_since(self) -> float:
        """When something was last said on it; infinite while it waits for an answer of ours."""

    @property
    def unread_bytes(self) -> int:
        """What was said to it and has not left yet."""

    def refuse(self, reason: Reason, detail: str = "") -> None:
        """Count, tell once, and end the connection."""

    def cut(self, reason: Reason, detail: str) -> None:
        """Count, and end the connection at once."""

    def sweep(self) -> None:
        """Part with whom we have waited for long enough."""

    def abort(self) -> None:
        """End the connection at once."""

    def hang_up(self) -> None:
        """End the connection when what was said has left."""

    def take(self) -> bool:
        """Act on the next message that has arrived; False if none is whole."""


class Request(Protocol):
    """A request that is under way."""

    number: int  # they are numbered in their order, over all connections

    def cut(self, detail: str) -> None:
        """Answer that there is no room for it any more."""


@dataclass(slots=True)
class House:
    """One node's."""

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
    guests: "set[Guest]" = field(default_factory=set)  # all connections, also those whose handshake goes on
    strangers: "Shares[Guest]" = field(init=False)  # that have not said who they are yet
    places: "Shares[Guest]" = field(init=False)  # of all others
    arriving: "Shares[Guest]" = field(init=False)  # bytes of messages that have arrived in part
    under_way: "Shares[Request]" = field(init=False)
    heard_out: "dict[Holder, Guest]" = field(default_factory=dict)  # over, and not all that they said has been taken
    taking: Taking = field(init=False)
    buckets: Buckets = field(init=False)

    def __post_init__(self) -> None:
        """Begin with nobody here."""
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
        """Give a stranger a place; the address that has most of them gives way, with the one that was there first."""
        self.guests.add(guest)
        self.strangers.hold(guest, guest.holder, 1)
        for one, told in _over(self.strangers, guest.holder, "strangers"):
            one.cut(Reason.TOO_MANY_STRANGERS, told)

    def let_in(self, guest: Guest) -> None:
        """Give a place to somebody who is known now; who has most gives way, with what has been quiet for longest."""
        self.strangers.let_go(guest)
        self.places.hold(guest, guest.holder, 1, is_node=guest.is_node)
        for one, told in _over(self.places, guest.holder, "connections"):
            one.refuse(Reason.TOO_MANY, told)

    def arrived(self, guest: Guest, held_bytes: int) -> None:
        """Account what has arrived of a message in part; who has most of such gives way, with the longest."""
        self.arriving.hold(guest, guest.holder, held_bytes, is_node=guest.is_node)
        for one, told in _over(self.arriving, guest.holder, "bytes of unfinished messages"):
            one.refuse(Reason.NO_MEMORY, told)

    def begun(self, request: Request, holder: Holder) -> None:
        """Account a request; who has most of them under way gives way, with the latest."""
        self.under_way.hold(request, holder, 1)
        for one, told in _over(self.under_way, holder, "requests under way"):
            one.cut(told)

    def said(self) -> None:
        """Look at what waits for users to read it; who leaves most unread gives way."""
        if sum(guest.unread_bytes for guest in self.guests) <= self.limits.unread_bytes:
            return
        unread: Shares[Guest] = Shares(self.limits.unread_bytes, _quiet_since)
        for guest in self.guests:
            unread.hold(guest, guest.holder, guest.unread_bytes)
        for one, told in _over(unread, "", "bytes of unread answers"):
            one.cut(Reason.UNREAD_ANSWERS, told)

    def gone(self, guest: Guest, *, is_heard_out: bool) -> None:
        """Take note that a connection is over; what it has said may have its turn yet, for one of each node."""
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
        """End a node's older connection: one that dials again has lost the one before, even if we have not."""
        for other in [guest for guest in self.guests if guest.holder == newest.holder and guest.is_node]:
            if other is not newest:
                if other.host != newest.host:
                    who = f"{newest.identity} at {other.host}"
                    self.refusals.note(Reason.REPLACED, who, f"now at {newest.host}")
                other.hang_up()

    def sweep(self) -> None:
        """Forget what is over."""
        self.buckets.forget_full(self.clock())
        self.heard_out = {holder: guest for holder, guest in self.heard_out.items() if guest in self.taking}


def _over(shares: "Shares[Any]", newest: Holder, what: str) -> Iterator[tuple[Any, str]]:
    """Go through what has to be cut until a budget is kept; each is let go of before it is cut."""
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
