"""What the tests of the wire share: a cluster's certificates, wires on loopback, a clock that is moved by hand."""

import asyncio
import datetime as dt
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar

import uvloop

from headwater.control.messages.app_messages import AnyNodeMessage
from headwater.control.messages.peer_questions import PeerQuestion
from headwater.links.credentials import Certified, Credentials, insecure_node, load_credentials
from headwater.links.limits import WireLimits
from headwater.links.wire import Wire, WireConfig
from headwater.model.peers import NodeId, Peer
from headwater.overlay.messages import Heartbeat, Ping
from headwater.security.authority import Authority, make_authority
from headwater.security.identity import Role

PATIENCE_S: Final = 30.0
LOOK_S: Final = 0.002
LOOPS: Final[dict[str, Callable[[], asyncio.AbstractEventLoop]]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
T = TypeVar("T")


def told(story: Coroutine[Any, Any, T], loop: str = "asyncio") -> T:
    """Let a story happen on a loop of its own; one that hangs fails."""

    async def in_time() -> T:
        return await asyncio.wait_for(story, PATIENCE_S)

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(in_time())


async def until(holds: Callable[[], object]) -> None:
    """Give the loop time until something holds; a story that waits for ever is ended by `told`."""
    while not holds():  # noqa: ASYNC110 - what is waited for are many different things
        await asyncio.sleep(LOOK_S)


async def until_at_least(measure: Callable[[], float], least: float) -> None:
    """Give the loop time until a number has grown to this."""
    await until(lambda: measure() >= least)


def connections_to(port: int) -> int:
    """Return how many sockets of this process are connected to a port."""
    count = 0
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError), socket.socket(fileno=os.dup(int(fd))) as one:  # most are no sockets, or not connected
            count += one.family == socket.AF_INET and one.getpeername()[1] == port
    return count


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        """Begin somewhere."""
        self.now = 1_000.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


class Cluster:
    """A cluster's authority, and the credentials it has given out."""

    def __init__(self, directory: Path) -> None:
        """Make the authority."""
        self.directory = directory
        self.authority: Authority = make_authority(directory / "authority")
        self._made = 0

    def node(self, name: str = "", *, addresses: tuple[str, ...] = ("127.0.0.1", "localhost"), **how: Any) -> Path:
        """Return where a node's certificate is."""
        return self.authority.issue_node(name or self._name(), addresses, **how)

    def user(self, role: Role, name: str = "", **how: Any) -> Path:
        """Return where a user's certificate is."""
        return self.authority.issue_user(name or self._name(), role, **how)

    def node_credentials(self, **how: Any) -> Certified:
        """Return a node's credentials."""
        return load_credentials(self.node(**how))

    def user_credentials(self, role: Role, name: str = "") -> Certified:
        """Return a user's credentials."""
        return load_credentials(self.user(role, name))

    def expired_node(self) -> Certified:
        """Return credentials that have expired long ago, as those of a gateway that was in a drawer."""
        then = dt.datetime.now(dt.UTC) - dt.timedelta(days=30)
        return load_credentials(self.node(days=1, now=then), now=then)

    def insecure(self) -> Credentials:
        """Return the credentials of a node without certificates."""
        return insecure_node(self.directory / self._name())

    def _name(self) -> str:
        self._made += 1
        return f"n{self._made}"


@dataclass
class Station:
    """A node's wire, and what it has heard."""

    wire: Wire = field(init=False)
    heard: list[AnyNodeMessage] = field(default_factory=list)
    senders: list[NodeId] = field(default_factory=list)

    @property
    def address(self) -> str:
        """Where it is."""
        return self.wire.address

    @property
    def peer(self) -> Peer:
        """As which it speaks."""
        return Peer(self.wire.node_id, self.wire.address, "zone")

    def ping(self, to: "Station | str", number: int) -> None:
        """Say something short."""
        self.wire.send(to if isinstance(to, str) else to.address, Ping(self.peer, number))

    def beat(self, to: "Station | str") -> None:
        """Say the shortest."""
        self.wire.send(to if isinstance(to, str) else to.address, Heartbeat(self.peer))

    def carry(self, to: "Station | str", payload: bytes, number: int = 0) -> None:
        """Say something as long as this."""
        self.wire.send(to if isinstance(to, str) else to.address, PeerQuestion(self.peer, number, payload))

    def hear(self, sender: NodeId, message: AnyNodeMessage) -> None:
        """Take note."""
        self.senders.append(sender)
        self.heard.append(message)

    def pings(self) -> list[int]:
        """The numbers of the pings heard, in order."""
        return [message.sent_us for message in self.heard if isinstance(message, Ping)]


@asynccontextmanager
async def station(credentials: Credentials, listen: str = "127.0.0.1:0", **how: Any) -> AsyncIterator[Station]:
    """A wire that listens, until the end of the block; nodes may say what they like as often as they like."""
    limits, bulky = how.pop("limits", None) or WireLimits(), how.pop("bulky", frozenset())
    patience_s = how.pop("patience_s", PATIENCE_S)  # for last words
    advertise, rates = how.pop("advertise", None), how.pop("rates", {})
    config = WireConfig(listen=listen, advertise=advertise, limits=limits, bulky=bulky, rates=rates)
    heard = Station()
    heard.wire = Wire(config, credentials, on_message=heard.hear, rng=Random(1), **how)
    heard.wire.start()
    try:
        yield heard
    finally:
        await heard.wire.close(patience_s)
