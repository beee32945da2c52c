"""Machines, their network and their time: what every imagined world has.

Drives the very machines that real nodes run, one event at a time. All chance comes from the seed: the world's own for
what happens, the network's for what becomes of messages, and one for each machine.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random
from typing import Any, Generic, Protocol, TypeVar

from headwater.model.peers import Peer, id_of
from headwater.model.time import SECOND, Instant
from headwater.sim.network import Links, Network
from headwater.sim.timeline import Timeline
from headwater.sim.witness import Witness

MESSAGE_BYTES = 200  # of one message, about; nothing depends on it but the time on a slow link


class Machine(Protocol):
    """What a world can drive."""

    own: Peer

    def handle(self, event: Any, now: Instant) -> list[Any]:
        """Take what has happened, and return what to do."""
        ...

    def deadline(self) -> Instant | None:
        """Return when to be told the time."""
        ...

    def check(self) -> None:
        """Raise if something is not as it must be."""
        ...


M = TypeVar("M", bound=Machine)


class World(ABC, Generic[M]):
    """Machines by address."""

    def __init__(self, seed: int, *, zones: int, links: Links | None, check_each: bool) -> None:
        """Begin empty; `check_each` looks at a machine's invariants after every event."""
        self.seed = seed
        self.rng = Random(f"{seed}/world")
        self.timeline = Timeline()
        self.network = Network(Random(f"{seed}/network"), links)
        self.machines: dict[str, M] = {}
        self.witness: Witness | None = None
        self.at_work = ""  # the machine that something happened to last
        self._zones, self._check_each = zones, check_each
        self._born = self._starts = 0
        self._wake: dict[str, Instant] = {}

    @abstractmethod
    def _made(self, peer: Peer, rng: Random) -> M:
        """Return a machine for a peer."""

    @abstractmethod
    def _do(self, address: str, effect: Any) -> None:
        """Do what a machine wants done."""

    @abstractmethod
    def _received(self, message: Any) -> Any:
        """Return the event that a message has come."""

    @abstractmethod
    def _ticked(self) -> Any:
        """Return the event that the deadline has come."""

    # --- machines -----------------------------------------------------------------------------------------------------

    def born(self, zone: str | None = None) -> Peer:
        """Return a new peer, somewhere in a zone."""
        self._born += 1
        address = f"n{self._born}"
        where = zone if zone is not None else f"z{self.rng.randrange(self._zones)}"
        self.network.place(address, where)
        return Peer(id_of(self.rng.getrandbits(128)), address, where)

    def start(self, peer: Peer, event: Any) -> None:
        """Start a machine for a peer that is new, or that was there before."""
        self._starts += 1
        self.machines[peer.address] = self._made(peer, Random(f"{self.seed}/{peer.address}/{self._starts}"))
        self._wake.pop(peer.address, None)
        self.tell(peer.address, event)

    def crash(self, address: str) -> None:
        """Let a machine be gone without a word."""
        del self.machines[address]

    def tell(self, address: str, event: Any) -> None:
        """Let something happen to a machine."""
        machine = self.machines.get(address)
        if machine is None:
            return
        self.at_work = address
        if self.witness is not None:
            self.witness.saw(self.timeline.now, address, event)
        for effect in machine.handle(event, self.timeline.now):
            self._do(address, effect)
        if self._check_each:
            machine.check()
        wanted = machine.deadline()
        deadline = None if wanted is None else max(wanted, self.timeline.now)  # a fault may have moved it into the past
        if deadline is not None and self._wake.get(address, deadline + 1) > deadline:
            self._wake[address] = deadline
            self.timeline.at(deadline, self._tick, address, machine)

    def transmit(self, sender: str, to: str, message: Any) -> None:
        """Bring a message on its way."""
        if to == sender:
            self.timeline.after(0, self._arrive, to, message)
            return
        for arrival in self.network.arrivals(sender, to, MESSAGE_BYTES, self.timeline.now):
            self.timeline.at(arrival, self._arrive, to, message)

    def _arrive(self, address: str, message: Any) -> None:
        self.tell(address, self._received(message))

    def _tick(self, address: str, machine: M) -> None:
        if self.machines.get(address) is machine and self._wake.get(address) == self.timeline.now:
            del self._wake[address]
            self.tell(address, self._ticked())

    # --- time ---------------------------------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.timeline.run_for(int(seconds * SECOND))

    def run_until(self, fulfilled: Callable[[], bool], *, at_most: float, step: float = 1.0) -> bool:
        """Let time pass until something is so, but no longer than so many seconds; return whether it is."""
        ends = self.timeline.now + int(at_most * SECOND)
        while not fulfilled() and self.timeline.now < ends:
            self.run(step)
        return fulfilled()
