"""Machines, their network and their time: the base of every simulated world.

Drives the very machines that real nodes run, one event at a time. All chance comes from the seed, through one generator
for the world's events, one for the fate of messages, and one for each machine.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

import msgspec

from headwater.model.peers import Peer, id_of
from headwater.model.time import SECOND, Instant
from headwater.overlay.events import CongestionChanged
from headwater.overlay.mistakes import NoteMistake
from headwater.overlay.table import congestion_of
from headwater.sim.network import Links, Network
from headwater.sim.timeline import Timeline
from headwater.sim.witness import Witness

LOOK: Final = SECOND  # between two measurements of congestion, as on real nodes


class Machine(Protocol):
    """A machine that a world can drive."""

    own: Peer

    def handle(self, event: Any, now: Instant) -> list[Any]:
        """Handle an event, and return the effects."""
        ...

    def deadline(self) -> Instant | None:
        """Return when the next timer is due; None if there is none."""
        ...

    def check(self) -> None:
        """Raise if an invariant is broken."""
        ...


M = TypeVar("M", bound=Machine)


class World(ABC, Generic[M]):
    """Machines by address."""

    bulky: ClassVar[frozenset[type[Any]]] = frozenset()  # messages that let all others pass

    def __init__(self, seed: int, *, zones: int, links: Links | None, check_each: bool) -> None:
        """Begin empty; `check_each` checks a machine's invariants after every event."""
        self.seed = seed
        self.rng = Random(f"{seed}/world")
        self.timeline = Timeline()
        self.network = Network(Random(f"{seed}/network"), links)
        self.machines: dict[str, M] = {}
        self.witness: Witness | None = None
        self.at_work = ""  # the machine that handled the last event
        self._zones, self._check_each = zones, check_each
        self._born = self._starts = 0
        self._wake: dict[str, Instant] = {}
        self._encoder = msgspec.msgpack.Encoder()
        self._congestion: dict[str, float] = {}  # the last that machines were told
        if self.network.counts_bytes:
            self.timeline.after(LOOK, self._look_at_links)

    @abstractmethod
    def _made(self, peer: Peer, rng: Random) -> M:
        """Return a machine for a peer."""

    @abstractmethod
    def _do(self, address: str, effect: Any) -> None:
        """Carry out an effect of a machine."""

    @abstractmethod
    def _received(self, message: Any) -> Any:
        """Return the event that a message has arrived."""

    @abstractmethod
    def _ticked(self) -> Any:
        """Return the event that the deadline has passed."""

    # --- machines -----------------------------------------------------------------------------------------------------

    def born(self, zone: str | None = None, *, on: Peer | None = None) -> Peer:
        """Return a new peer on a host somewhere in a zone, or on the host of another peer."""
        self._born += 1
        address = f"n{self._born}"
        where = on.zone if on is not None else zone if zone is not None else f"z{self.rng.randrange(self._zones)}"
        self.network.place(address, where, None if on is None else on.address)
        return Peer(id_of(self.rng.getrandbits(128)), address, where)

    def start(self, peer: Peer, event: Any) -> None:
        """Start a machine for a new peer, or restart a peer with an empty memory."""
        self._starts += 1
        self.machines[peer.address] = self._made(peer, Random(f"{self.seed}/{peer.address}/{self._starts}"))
        self._wake.pop(peer.address, None)
        self._congestion.pop(peer.address, None)
        self.tell(peer.address, event)

    def crash(self, address: str) -> None:
        """Remove a machine without telling the others."""
        del self.machines[address]

    def tell(self, address: str, event: Any) -> None:
        """Have a machine handle an event, carry out its effects, and plan its next deadline."""
        machine = self.machines.get(address)
        if machine is None:
            return
        self.at_work = address
        if self.witness is not None:
            self.witness.saw(self.timeline.now, address, event)
        for effect in machine.handle(event, self.timeline.now):
            if isinstance(effect, NoteMistake):
                raise effect.mistake
            self._do(address, effect)
        if self._check_each:
            machine.check()
        wanted = machine.deadline()
        deadline = None if wanted is None else max(wanted, self.timeline.now)  # a fault may have moved it into the past
        if deadline is not None and self._wake.get(address, deadline + 1) > deadline:
            self._wake[address] = deadline
            self.timeline.at(deadline, self._tick, address, machine)

    def transmit(self, sender: str, to: str, message: Any) -> None:
        """Send a message over the network."""
        if to == sender:
            self.timeline.after(0, self._arrive, to, message)
            return
        network = self.network
        size = len(self._encoder.encode(message)) if network.counts_bytes else 0
        for arrival in network.arrivals(sender, to, size, self.timeline.now, bulky=type(message) in self.bulky):
            self.timeline.at(arrival, self._arrive, to, message)

    def _look_at_links(self) -> None:
        """Tell machines how congested their links are, if that has changed."""
        self.timeline.after(LOOK, self._look_at_links)
        for address in list(self.machines):
            level = congestion_of(self.network.waits(address, self.timeline.now))
            if level != self._congestion.get(address, 0.0):
                self._congestion[address] = level
                self.tell(address, CongestionChanged(level))

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
        """Let time pass until a condition holds, at most so many seconds; return whether it holds."""
        ends = self.timeline.now + int(at_most * SECOND)
        while not fulfilled() and self.timeline.now < ends:
            self.run(step)
        return fulfilled()
