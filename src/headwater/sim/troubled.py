"""A world of nodes in which things go wrong, and which knows what may be lost by that and what may not.

A submission is confirmed to its user once the owner (the node it was submitted to) has it on its disk. The disk
outlives crashes; it is gone with a node that never comes back. **A confirmed app is owed while its owner's disk
exists**, whoever else is lost: it has one steward, and runs. What is not owed has an `Excuse`, which names why, is
counted in every report, and has a limit: a share of all confirmed apps above which a run fails.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from math import sqrt
from random import Random
from typing import Any, Final

from headwater.control.messages.app_messages import AppSpec, Placed, RegisterEntry
from headwater.control.messages.events import (
    AgreedPlacement,
    AppEndWanted,
    AppSubmitted,
    DurableRecord,
    EndedApp,
    MachineConfig,
    NodeEffect,
    NodeStarted,
    NoteActive,
    NoteDelivered,
    NoteHandedDown,
    NoteStewardFound,
    StartInstance,
)
from headwater.control.node import NodeMachine
from headwater.control.steward.deployment import ENDS, AppPhase
from headwater.model.peers import Peer, peer_capacities
from headwater.model.time import SECOND, Instant
from headwater.sim.network import Links
from headwater.sim.nodes import NodeWorld
from headwater.sim.simulated_engine import Fate
from headwater.sim.witness import Witness

SECONDS_TO_COPY: Final = 20
CONTACTS: Final = 3  # addresses that a node gets to join through
OPERATORS_PER_NODE: Final = 3  # of all apps together, well below the capacity of nodes
NODES_MAX: Final = 64
HOSTS_MIN: Final = 3  # of a ring at first: no host carries more than a third of its nodes
CAPACITIES: Final = (6, 8, 8, 8, 12, 20, 34)  # of hosts, in operators: one in seven carries two nodes, one four
MESSAGES_MAX: Final = 1_000  # of a node in one second, on average: the most ever seen is 180, when large rings merge


class Broken(Exception):
    """A requirement is violated; `concerned` are the nodes whose last events may explain it."""

    def __init__(self, what: str, *concerned: str) -> None:
        super().__init__(what)
        self.concerned = concerned


class Excuse(StrEnum):
    """Why an app is not as its user wants it, and nobody is to blame."""

    NEVER_PASSED_ON = "lost: its owner's disk was, before any steward had it"
    ALL_WHO_KNEW = "lost: its owner's disk was, and all who knew of it before it could be copied"
    END_NOT_KNOWN = "runs on: its owner's disk was lost while it was to end"
    END_FORGOTTEN = "runs on: all who knew of its end were lost while links failed"
    NO_SOURCE = "waits: the machines of all its sources are gone"
    MACHINE_GONE = "waits: a machine with its state or its output is gone"


# How many of all confirmed apps may have an excuse: about twice what stormy stories bring about. What is lost, and
# what came of an end that was wanted, depends on us as well as on fate; who waits for a machine that is gone waits
# until state is kept elsewhere, too.
EXCUSED_MAX: Final[Mapping[Excuse, float]] = {
    Excuse.NEVER_PASSED_ON: 0.02,
    Excuse.ALL_WHO_KNEW: 0.02,
    Excuse.END_NOT_KNOWN: 0.03,
    Excuse.END_FORGOTTEN: 0.015,
    Excuse.NO_SOURCE: 0.3,
    Excuse.MACHINE_GONE: 0.3,
}
CHANCE: Final = 4.0  # standard deviations by which few stories may have more than their share


def beyond_limits(excused: Mapping[str, int], confirmed: int) -> list[str]:
    """Return which excuses were needed more often than may be, of so many confirmed apps."""
    found = []
    for excuse, share in EXCUSED_MAX.items():
        count, expected = excused.get(excuse, 0), share * confirmed
        if count > expected + CHANCE * sqrt(expected + 1):
            found.append(f"{count:,} of {confirmed:,} apps are excused, and {share:.1%} may be ({excuse})")
    return found


@dataclass(slots=True)
class OwnersRecord:
    """An app as its owner has it on its disk."""

    placed: tuple[Placed, ...] = ()
    has_run: bool = False
    is_ending: bool = False


class TroubledWorld(NodeWorld):
    """Nodes that are lost and come back, and the account of which apps must run."""

    def __init__(
        self, seed: int, *, nodes: int, zones: int, links_fail: bool, witness: Witness, links: Links | None = None
    ) -> None:
        """Begin without nodes; `links_fail` if any of the faults touches the network."""
        super().__init__(seed, zones=zones, links=links, config=MachineConfig(), check_each=True)
        self.witness: Witness = witness
        self.is_healed = False
        self.happened: Counter[str] = Counter()
        self.delivered: dict[bytes, list[str]] = {}
        self.handed_down: dict[bytes, list[str]] = {}
        self._takers: dict[bytes, list[NodeMachine]] = {}
        self._links_fail = links_fail
        self._capacity_rng = Random(f"{seed}/capacities")
        self._on_a_host_max = max(1, nodes // HOSTS_MIN)
        self._nodes_min, self._nodes_max = max(2, nodes // 2), min(NODES_MAX, nodes + nodes // 2 + 1)
        self._to_return: dict[str, Peer] = {}
        self._submissions = 0
        self._kept: dict[str, OwnersRecord] = {}
        self._taken: dict[str, Instant] = {}  # when the owner of an app was told that a steward has it
        self._orphans: set[str] = set()  # apps whose owner's disk was lost
        self._undecided: set[str] = set()  # apps whose end was wanted of an owner whose disk was lost
        self._end_forgotten: set[str] = set()
        self._knower_losses: dict[str, list[Instant]] = {}
        self._knew: dict[str, dict[NodeMachine, Instant]] = {}  # the nodes that knew an app, and when last
        self._knew_end: dict[str, dict[NodeMachine, Instant]] = {}
        self._hindered: dict[tuple[str, str], Instant] = {}  # when two nodes last did not hear each other freely
        self._excused: dict[str, Excuse] = {}
        self._second, self._sent = 0, 0  # messages in the present second

    # --- nodes --------------------------------------------------------------------------------------------------------

    def note(self, what: str, counted: str | None = None) -> None:
        """Tell the witness of an event of the world itself, and count it under a name."""
        self.witness.noted(self.timeline.now, what)
        if counted is not None:
            self.happened[counted] += 1

    def later(self, after_s: float, action: Any, *details: Any, **more: Any) -> None:
        """Plan the end of a fault; it is skipped if the world heals first."""
        self.timeline.after(int(after_s * SECOND), lambda: None if self.is_healed else action(*details, **more))

    def may_lose_one(self) -> bool:
        """Whether enough nodes would stay in the ring for others to join through."""
        return sum(node.is_active for node in self.nodes.values()) > self._nodes_min

    def may_lose(self, address: str) -> bool:
        """Whether enough nodes would stay in the ring without the host of a node."""
        mates = self.mates(address)
        return sum(node.is_active for one, node in self.nodes.items() if one not in mates) >= self._nodes_min

    def room(self) -> int:
        """Return how many nodes may still join."""
        return max(0, self._nodes_max - len(self.nodes) - len(self._to_return))

    def hosts(self) -> list[str]:
        """Return one node of each host that is up."""
        return sorted({self.network.host(address): address for address in sorted(self.nodes, reverse=True)}.values())

    def mates(self, address: str) -> list[str]:
        """Return the nodes that are up on the host of a node, itself among them."""
        host = self.network.host(address)
        return [one for one in sorted(self.nodes) if self.network.host(one) == host]

    def contacts(self) -> list[str]:
        """Return some nodes to join through, as a user would name them."""
        addresses = sorted(address for address, node in self.nodes.items() if node.is_active)
        return self.rng.sample(addresses, min(CONTACTS, len(addresses)))

    def join(self, peers_max: int = 1) -> None:
        """Let a new host join, with as many nodes as its capacity gives, at most `peers_max`."""
        most = min(peers_max, self._on_a_host_max)
        capacities = peer_capacities(self._capacity_rng.choice(CAPACITIES))[:most] if most > 1 else (None,)
        on: Peer | None = None
        for capacity in capacities:
            address = self.add(self.contacts(), on=on, capacity=capacity)
            self.note(f"{address} joins{'' if on is None else f' on the host of {on.address}'}", "joins")
            on = on or self.nodes[address].own

    def lose(self, address: str, *, back_s: float | None) -> None:
        """Let a host crash with all its nodes, and come back after some seconds or never."""
        for one in self.mates(address):
            self._lose_one(one, back_s)

    def _lose_one(self, address: str, back_s: float | None) -> None:
        peer = self.nodes[address].own
        self.note(f"{address} crashes, {'for good' if back_s is None else f'and is back in {back_s:.1f} s'}", "crashes")
        self._account_for(address, is_gone=back_s is None)
        self.crash(address)
        if back_s is not None:
            self._to_return[address] = peer
            self.timeline.after(int(back_s * SECOND), self._come_back, address)

    def may_drain(self, address: str) -> bool:
        """Whether a node can leave for good."""
        return True

    def depart(self, address: str) -> None:
        """Let a node leave the ring and tell the others so."""
        self.note(f"{address} leaves", "leaves")
        self._account_for(address)
        self.leave(address)

    def _come_back(self, address: str) -> None:
        peer = self._to_return.pop(address, None)
        if peer is not None:
            self.note(f"{address} is back", "returns")
            self.start(peer, NodeStarted(self.contacts()))
            for app, kept in [(app, kept) for app, kept in self._kept.items() if self.submitted[app][0] == address]:
                self.tell(address, AppSubmitted(self.specs[app], kept.placed, kept.has_run, is_known=True))

    def heal(self) -> None:
        """End all faults: links are whole, crashed nodes are back, and nodes outside the ring get contacts."""
        self.note("healed")
        self.is_healed = True
        self.network.heal()
        self.disks.heal()
        for address in sorted(self._to_return):
            self._come_back(address)
        for address, node in sorted(self.nodes.items()):
            if not node.is_active:
                self.tell(address, NodeStarted([one for one in self.contacts() if one != address]))

    def send_devices_away(self, address: str, seconds: float) -> None:
        """Do nothing: nodes without an engine have no devices."""

    def doom_worker(self, address: str, fate: Fate) -> None:
        """Let the worker of a node's next turn die in it; nodes without an engine have none."""

    def fill_disk(self, address: str, seconds: float) -> None:
        """Let no turn of a node commit for a while; nodes without an engine have none."""

    def transmit(self, sender: str, to: str, message: Any) -> None:
        """Send a message; raises Broken if there are so many that they must cause one another."""
        if self._second != self.timeline.now // SECOND:
            self._second, self._sent = self.timeline.now // SECOND, 0
        self._sent += 1
        if self._sent > MESSAGES_MAX * len(self.nodes):
            raise Broken(f"a storm of messages: {self._sent} within a second", sender, to)
        super().transmit(sender, to, message)

    # --- apps ---------------------------------------------------------------------------------------------------------

    def submit(self, spec: AppSpec, address: str) -> None:
        """Let a user submit an app to a node, which takes it when it has it on its disk."""
        written = self.disks.written_at(address, self.timeline.now)
        if written <= self.timeline.now:
            self._take(self.nodes[address], spec)
        else:
            self.timeline.at(written, self._take, self.nodes[address], spec)

    def _take(self, owner: NodeMachine, spec: AppSpec) -> None:
        address = owner.own.address
        if self.nodes.get(address) is owner:
            self._kept[spec.name] = OwnersRecord()
            super().submit(spec, address)
        else:
            self.note(f"{spec.name} was never confirmed", "submissions never confirmed")

    def end(self, app: str) -> None:
        """Let the user end an app; its owner remembers it over a restart."""
        if app in self._kept:
            self._kept[app].is_ending = True
        super().end(app)

    def placed(self, app: str) -> tuple[Placed, ...]:
        """Return where the instances of an app are, as its owner has it on its disk."""
        return self._kept[app].placed if app in self._kept else ()

    def submit_some_app(self, rng: Random) -> None:
        """Let a user submit an app somewhere, as long as all apps together need no more than nodes have room for."""
        running = sum(_operators(self.specs[app]) for app in self.specs if app not in self.ended)
        operators = rng.randint(1, 5)
        active = [address for address, node in sorted(self.nodes.items()) if node.is_active]
        if active and running + operators <= OPERATORS_PER_NODE * self._nodes_min:
            app = f"app{self._submissions}"
            self._submissions += 1
            spec = self.random_app(app, operators=operators, sources=rng.randint(1, min(2, operators)))
            address = rng.choice(active)
            self.note(f"{app} is submitted to {address}", "apps submitted")
            self.submit(spec, address)

    def end_some_app(self, rng: Random) -> None:
        """Let a user end one of the apps, through the node it was submitted to."""
        never = self.end_wanted | self._orphans | self._undecided | self._end_forgotten
        apps = [app for app in self.specs if app not in never and self.submitted[app][0] in self.nodes]
        if apps:
            app = rng.choice(apps)
            self.note(f"the end of {app} is wanted", "apps ended")
            self.end(app)

    def _do(self, address: str, effect: NodeEffect) -> None:
        super()._do(address, effect)
        match effect:
            case NoteStewardFound(app):
                self._taken.setdefault(app, self.timeline.now)
            case NoteActive():
                for app, (owner, _) in self.submitted.items():
                    if owner == address and app in self._kept and self._kept[app].is_ending:
                        self.timeline.after(0, self.tell, address, AppEndWanted(app))
            case NoteDelivered(_, _, payload):
                self._delivered(address, payload)
            case NoteHandedDown(_, payload):
                self.handed_down.setdefault(payload, []).append(address)
            case StartInstance(app, instance) if app in self.ended and not self._links_fail:
                raise Broken(f"{app} has ended, and its instance {instance} is started on {address}", address)

    def _keep(self, address: str, record: DurableRecord) -> bool:
        match record:
            case AgreedPlacement(app, placed, has_run):
                kept = self._kept.get(app)
                if kept is not None:
                    kept.placed, kept.has_run = placed, has_run
            case EndedApp(app):
                self._kept.pop(app, None)
        return True

    def _delivered(self, address: str, payload: bytes) -> None:
        """Take note of a delivery; a restarted node may get the same message once more, as it has lost its memory."""
        node = self.nodes[address]
        if not node.is_active:
            raise Broken(f"{address} is not in the ring, and takes {payload.decode()}", address)
        if node in self._takers.setdefault(payload, []):
            raise Broken(f"{payload.decode()} arrives at {address} twice", address)
        self._takers[payload].append(node)
        self.delivered.setdefault(payload, []).append(address)

    # --- the account --------------------------------------------------------------------------------------------------

    def _account_for(self, address: str, *, is_gone: bool = True) -> None:
        """Take note of what is lost with a node, and if it is gone for good with its disk."""
        lost = self.nodes[address]
        self._see_who_knows()
        for app in [app for app in self._kept if is_gone and self.submitted[app][0] == address]:
            del self._kept[app]
            self._orphans.add(app)
            if app in self.end_wanted and app not in self.ended:
                self.end_wanted.discard(app)
                self._undecided.add(app)
            if app not in self._taken:
                self._excused[app] = Excuse.NEVER_PASSED_ON
        for app in sorted(_known_to(lost)):
            self._knower_lost(app, besides=lost)
        for app in sorted(_ends_known_to(lost) & self.end_wanted - self._kept.keys()) if self._links_fail else ():
            others = [node for node in self.nodes.values() if node is not lost]
            if not any(app in _ends_known_to(node) for node in others) and not self._of_late(self._knew_end, app, lost):
                self.end_wanted.discard(app)
                self._end_forgotten.add(app)

    def _knower_lost(self, app: str, besides: NodeMachine) -> None:
        now = self.timeline.now
        losses = self._knower_losses.setdefault(app, [])
        losses.append(now)
        if not any(app in _known_to(node) for node in self.nodes.values() if node is not besides):
            of_late = sum(now - loss <= SECONDS_TO_COPY * SECOND for loss in losses)
            if of_late >= self._losses_excusing(app, besides):
                self._excused.setdefault(app, Excuse.ALL_WHO_KNEW)

    def _see_who_knows(self) -> None:
        for pair in combinations(self.nodes, 2) if self._links_fail else ():
            if not self.network.touch_is_free(*pair):
                self._hindered[pair] = self.timeline.now
        for node in self.nodes.values():
            for app in _known_to(node):
                self._knew.setdefault(app, {})[node] = self.timeline.now
            for app in _ends_known_to(node):
                self._knew_end.setdefault(app, {})[node] = self.timeline.now

    def _of_late(
        self, knew: dict[str, dict[NodeMachine, Instant]], app: str, besides: NodeMachine
    ) -> list[NodeMachine]:
        """Return the living nodes that knew something of an app within `SECONDS_TO_COPY`."""
        since = self.timeline.now - SECONDS_TO_COPY * SECOND
        living = set(self.nodes.values()) - {besides}
        return [node for node, at in knew.get(app, {}).items() if node in living and at >= since]

    def _losses_excusing(self, app: str, lost: NodeMachine) -> int:
        """Return how many losses of nodes that knew an app, within `SECONDS_TO_COPY`, excuse that none knows it."""
        keepers = 2 * self.config.replicas_side
        if self._of_late(self._knew, app, besides=lost):
            return keepers + 1
        since = self.timeline.now - SECONDS_TO_COPY * SECOND
        if self._taken.get(app, Instant(0)) >= since or not self._in_touch(lost.own.address):
            return 1
        return 2 if self._links_fail else keepers

    def _in_touch(self, address: str) -> list[str]:
        """Return the nodes in the ring that a node has heard freely for all of `SECONDS_TO_COPY`."""
        since = self.timeline.now - SECONDS_TO_COPY * SECOND
        never = Instant(0)
        return [
            other
            for other, node in self.nodes.items()
            if node.is_active
            and other != address
            and self.active_at[other] <= since
            and max(self._hindered.get((address, other), never), self._hindered.get((other, address), never)) < since
        ]

    def entries(self, app: str) -> list[tuple[str, RegisterEntry]]:
        """Return all entries of an app in the registers of stewards, with their addresses."""
        return [
            (address, node.register.entries[app])
            for address, node in self.nodes.items()
            if app in node.register.entries
        ]

    def check_safety(self) -> None:
        """Raise if two stewards have an app under the same term."""
        self._see_who_knows()
        for app in self.specs:
            terms: dict[int, str] = {}
            for address, entry in self.entries(app):
                other = terms.setdefault(entry.term, address)
                if other != address:
                    raise Broken(
                        f"{app} has two stewards under term {entry.term}: {other} and {address}", other, address
                    )

    def _app_faults(self, app: str) -> list[str]:
        entries = self.entries(app)
        if app in self._orphans and app in self._excused and not entries:
            return self._remains(app)  # its hosts find out that nobody knows of it
        if app in self._undecided | self._end_forgotten and all(one.phase == AppPhase.ENDED for _, one in entries):
            return self._remains(app)
        if app not in self.end_wanted and self._lacks_sources(app):
            return [] if len(entries) == 1 else [f"{app}, without a source, has {len(entries)} stewards"]
        return super()._app_faults(app) or ([] if app in self.end_wanted else self.unreached(app))

    def _lacks_sources(self, app: str) -> bool:
        return not any(peer.address in self.nodes for peer in self.specs[app].sources)

    def excuses(self) -> Counter[str]:
        """Return how many apps are not as their users want them, by why that is nobody's fault."""
        return Counter(excuse for app in self.specs if (excuse := self._excuse_of(app)) is not None)

    def _excuse_of(self, app: str) -> Excuse | None:
        entries = self.entries(app)
        if app in self._undecided | self._end_forgotten:
            runs = any(entry.phase not in ENDS for _, entry in entries)
            why = Excuse.END_NOT_KNOWN if app in self._undecided else Excuse.END_FORGOTTEN
            return why if runs else None
        if app in self.end_wanted:
            return None
        if not entries:
            return self._excused.get(app)
        if self._lacks_sources(app):
            return Excuse.NO_SOURCE
        return Excuse.MACHINE_GONE if any(self.waiting(entry) for _, entry in entries) else None

    def concerned(self) -> list[str]:
        """Return the nodes whose events may explain faults: stewards, owners, and nodes outside the ring."""
        return list(dict.fromkeys(self._concerned()))

    def _concerned(self) -> Iterator[str]:
        for app in self.specs:
            if self._app_faults(app):
                yield from (address for address, _ in self.entries(app))
                yield self.submitted[app][0]
        yield from (address for address, node in self.nodes.items() if not node.is_active)


def _operators(spec: AppSpec) -> int:
    return sum(chain.operators for chain in spec.chains)


def _known_to(node: NodeMachine) -> set[str]:
    """Return the apps that a node knows, as their steward or as a keeper of a register."""
    return {*node.register.entries, *(app for copy in node.register.copies.values() for app in copy.entries)}


def _ends_known_to(node: NodeMachine) -> set[str]:
    """Return the apps that a node knows to have ended, or to be ending."""
    copies = (entry for copy in node.register.copies.values() for entry in copy.entries.values())
    return {entry.spec.name for entry in (*node.register.entries.values(), *copies) if entry.phase in ENDS}
