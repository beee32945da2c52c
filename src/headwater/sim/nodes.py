"""Whole nodes in one process: apps are submitted, nodes come and go, and the world knows what should run where."""

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Final, get_args

import msgspec

from headwater.control.messages.app_messages import (
    BULKY,
    AnyNodeMessage,
    AppSpec,
    ChainSpec,
    ControlMessage,
    RegisterEntry,
)
from headwater.control.messages.events import (
    AppEndWanted,
    AppSubmitted,
    LeaveWanted,
    MachineConfig,
    MessageReceived,
    NodeEffect,
    NodeEvent,
    NodeStarted,
    NodeTicked,
    NoteActive,
    NoteAppEnded,
    NoteAppRuns,
    NoteStewardFound,
    SendMessage,
)
from headwater.control.node import NodeMachine
from headwater.control.steward.deployment import AppPhase
from headwater.model.peers import NodeId, Peer, key_of
from headwater.model.time import Instant
from headwater.sim.disks import Disks
from headwater.sim.network import Links
from headwater.sim.rings import owner_among, ring_faults
from headwater.sim.world import World

_ABOUT_APPS: Final = frozenset(get_args(ControlMessage))


class NodeWorld(World[NodeMachine]):
    """Nodes with all their machines."""

    bulky = BULKY

    def __init__(
        self,
        seed: int,
        *,
        zones: int = 3,
        links: Links | None = None,
        config: MachineConfig | None = None,
        check_each: bool = False,
        on_wire: bool = False,
    ) -> None:
        """Begin without nodes; `on_wire` encodes and decodes every message."""
        super().__init__(seed, zones=zones, links=links, check_each=check_each)
        self.config = config or MachineConfig()
        self.submitted: dict[str, tuple[str, Instant]] = {}  # the node an app was submitted to, and when
        self.specs: dict[str, AppSpec] = {}
        self.runs_since: dict[str, Instant] = {}
        self.ended: set[str] = set()
        self.end_wanted: set[str] = set()
        self.steward_hops: list[int] = []
        self.active_at: dict[str, Instant] = {}
        self.disks = Disks()
        self.capacities: dict[str, int] = {}  # of nodes for which it is not as configured
        self._on_wire = on_wire

    @property
    def nodes(self) -> dict[str, NodeMachine]:
        """The nodes, by address."""
        return self.machines

    def add(
        self,
        contacts: Iterable[str] = (),
        *,
        zone: str | None = None,
        on: Peer | None = None,
        capacity: int | None = None,
    ) -> str:
        """Start a node, on a host of its own or on that of another, and return its address."""
        peer = self.born(zone, on=on)
        if capacity is not None:
            self.capacities[peer.address] = capacity
        self.start(peer, NodeStarted(tuple(contacts)))
        return peer.address

    def leave(self, address: str) -> None:
        """Let a node leave the ring and tell the others so."""
        self.tell(address, LeaveWanted())
        self.crash(address)

    # --- apps ---------------------------------------------------------------------------------------------------------

    def submit(self, spec: AppSpec, address: str) -> None:
        """Let a user submit an app to a node."""
        self.specs[spec.name] = spec
        self.submitted[spec.name] = (address, self.timeline.now)
        self.tell(address, AppSubmitted(spec))

    def end(self, app: str) -> None:
        """Let the user end an app."""
        self.end_wanted.add(app)
        self.tell(self.submitted[app][0], AppEndWanted(app))

    def random_app(self, name: str, *, operators: int, sources: int) -> AppSpec:
        """Make an app of so many operators, one chain each, with sources on random nodes."""
        peers = [node.own for node in self.nodes.values() if node.is_active]
        chosen = tuple(self.rng.sample(peers, min(sources, len(peers))))
        return AppSpec(name, key_of(name), chosen, chains_of_stages(operators, len(chosen)))

    # --- driving ------------------------------------------------------------------------------------------------------

    def _made(self, peer: Peer, rng: Random) -> NodeMachine:
        return NodeMachine(peer, self._config_of(peer), rng)

    def _config_of(self, peer: Peer) -> MachineConfig:
        capacity = self.capacities.get(peer.address)
        return self.config if capacity is None else replace(self.config, capacity=capacity)

    def _received(self, message: AnyNodeMessage) -> NodeEvent:
        return MessageReceived(message)

    def _ticked(self) -> NodeEvent:
        return NodeTicked()

    def _do(self, address: str, effect: NodeEffect) -> None:
        match effect:
            case SendMessage(to, message):
                self._send(address, to, self._as_sent(message))
            case NoteActive():
                self.active_at[address] = self.timeline.now
            case NoteAppRuns(app):
                self.runs_since.setdefault(app, self.timeline.now)
            case NoteAppEnded(app):
                self.ended.add(app)
            case NoteStewardFound(_, _, hops):
                self.steward_hops.append(hops)

    def _send(self, address: str, to: str, message: AnyNodeMessage) -> None:
        """Send messages of the ring at once, and messages about apps when the state behind them is durable."""
        written = self.disks.written_at(address, self.timeline.now) if type(message) in _ABOUT_APPS else None
        if written is None or written <= self.timeline.now:
            self.transmit(address, to, message)
        else:
            self.timeline.at(written, self._send_written, self.machines[address], to, message)

    def _send_written(self, machine: NodeMachine, to: str, message: AnyNodeMessage) -> None:
        if self.machines.get(machine.own.address) is machine:
            self.transmit(machine.own.address, to, message)

    def _as_sent(self, message: AnyNodeMessage) -> AnyNodeMessage:
        if not self._on_wire:
            return message
        decoded: AnyNodeMessage = msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=AnyNodeMessage)
        return decoded

    # --- the truth ----------------------------------------------------------------------------------------------------

    def faults(self) -> list[str]:
        """Return what is wrong with the ring, the trees and the apps, as lines to read."""
        rings = {address: node.ring for address, node in self.nodes.items()}
        found = ring_faults(rings, self.config.overlay.leaf_side)
        for app in self.specs:
            found += self._app_faults(app)
        return found

    def is_whole(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults()

    def runs(self, app: str) -> bool:
        """Whether an app is to run, and nothing is wrong with it."""
        return app not in self.end_wanted and not self._app_faults(app)

    def members(self, app: str) -> list[str]:
        """Return the members of an app's tree."""
        key = self.specs[app].key
        trees = {address: node.trees.status().get(key) for address, node in self.nodes.items()}
        return sorted(address for address, tree in trees.items() if tree is not None and tree.is_member)

    def app_faults(self, app: str) -> list[str]:
        """Return what is wrong with one app and its tree."""
        return self._app_faults(app)

    def _app_faults(self, app: str) -> list[str]:
        spec = self.specs[app]
        entries = [
            (address, node.register.entries[app])
            for address, node in self.nodes.items()
            if app in node.register.entries
        ]
        hosts = self._hosts(app)
        if app in self.end_wanted:
            return self._remains(app)
        if len(entries) != 1:
            return [f"{app} has {len(entries)} stewards"]
        steward, entry = entries[0]
        if entry.phase != AppPhase.RUNNING:
            return [f"{app} is {entry.phase} at {steward}"]
        return [*self._misplaced(app, entry, hosts), *self._tree_faults(spec)]

    def _hosts(self, app: str) -> dict[int, list[str]]:
        hosts: dict[int, list[str]] = {}
        for address, node in self.nodes.items():
            for name, number in node.hosting.hosted:
                if name == app:
                    hosts.setdefault(number, []).append(address)
        return hosts

    def _remains(self, app: str) -> list[str]:
        """Return what is left of an app that should be gone."""
        runs = [f"{app} should have ended, and {number} runs on {where}" for number, where in self._hosts(app).items()]
        return runs + [f"{app} should have ended, and {address} is in its tree" for address in self.members(app)]

    def _misplaced(self, app: str, entry: RegisterEntry, hosts: dict[int, list[str]]) -> list[str]:
        placed = {one.instance: [one.host.address] for one in entry.placed}
        return [
            f"{app}: instance {number} should run on {placed.get(number)} and runs on {hosts.get(number)}"
            for number, chain in enumerate(entry.spec.chains)
            if placed.get(number) != hosts.get(number) and not (chain.on_demand and number not in hosts)
        ]

    def _tree_faults(self, spec: AppSpec) -> list[str]:
        sources = (source.address for source in spec.sources if source.address in self.nodes)
        faults = (self._way_fault(address, spec.key) for address in sources)
        return [f"{spec.name}: {fault}" for fault in faults if fault is not None]

    def unreached(self, app: str) -> list[str]:
        """Return why a multicast down an app's tree would not reach all its members."""
        key = self.specs[app].key
        faults = (self._way_fault(address, key, also_down=True) for address in self.members(app))
        return [f"{app}: {fault}" for fault in faults if fault is not None]

    def _way_fault(self, address: str, key: NodeId, *, also_down: bool = False) -> str | None:
        """Follow the parents from a node to the root, and for the way down also whether each knows its child."""
        root = owner_among((node.own for node in self.nodes.values()), key).address
        child: NodeId | None = None
        for _ in range(len(self.nodes) + 1):
            node = self.nodes.get(address)
            tree = None if node is None else node.trees.status().get(key)
            if node is None or tree is None:
                return f"{address} is not in the tree"
            if also_down and child is not None and child not in tree.children:
                return f"{address} does not know all its children in the tree"
            if tree.parent is None:
                return (
                    None if address == root and tree.is_rooted else f"{address} thinks it is the root, which is {root}"
                )
            child, address = node.own.id, tree.parent.address
        return "a loop of parents"


def chains_of_stages(operators: int, sources: int) -> tuple[ChainSpec, ...]:
    """Make the chains of a flow: first one for each source, then chains that all sources feed."""
    chains: list[ChainSpec] = []
    for number in range(operators):
        if number < sources:
            chains.append(ChainSpec(f"first{number}", 1, 0, (number,)))
        else:
            stage = 1 + (number - sources) * 3 // max(1, operators - sources)
            chains.append(ChainSpec(f"chain{number}", 1, stage, tuple(range(sources))))
    return tuple(chains)
