"""The peers of an experiment, in one or several processes that each have a Spark of their own, and how they are asked.

All of it is on one machine and one clock.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from bench.edge.apart import Apart
from bench.edge.links import PEERS, round_trip_ms, write_links
from bench.edge.master import MasteredNode, Mastery
from bench.edge.peers import Peers
from bench.edge.watched import Note, WatchedNode
from headwater.control.messages.events import MachineConfig
from headwater.engine.policies import PolicyName
from headwater.model.errors import EngineError
from headwater.model.histogram import Histogram
from headwater.model.peers import NodeId, Peer
from headwater.model.time import SECOND, Duration
from headwater.runtime.service.local_cluster import LocalNodes, few_spares
from headwater.runtime.service.service import NodeService
from headwater.workers.config import NodeConfig

HOUR: Final = Duration(3_600 * SECOND)
LOOK_S: Final = 0.02  # until all know one another
ONE_EPOCH_S: Final = 24 * 3600.0  # a pool that is replaced in the middle of a run would show


@dataclass(frozen=True, slots=True, kw_only=True)
class SitePlan:
    """What one process runs."""

    place: Path
    zones: tuple[str, ...]
    links: Path | None
    spark: bool = True
    capacity: int = 8
    join: tuple[str, ...] = ()
    kind: type[NodeService] = WatchedNode
    sample_share: float = 1.0  # of rows whose latency is measured
    epoch_s: float = ONE_EPOCH_S
    policy: PolicyName = PolicyName.LONGEST_QUEUE

    def engine(self, config: NodeConfig) -> NodeConfig:
        """Return how the engine of every node is set up."""
        config = replace(few_spares(config), epoch_s=self.epoch_s, policy=self.policy, sample_share=self.sample_share)
        if self.policy is PolicyName.ONE_WORKER_PER_OPERATOR:
            config = replace(config, spares_max=0, packing=False)
        return config

    def machine(self) -> MachineConfig:
        """Return how the machines of every node are set up; a master is not told again what runs."""
        return MachineConfig(beat=HOUR) if self.is_mastered else MachineConfig()

    @property
    def is_mastered(self) -> bool:
        """Whether one central master starts all apps."""
        return issubclass(self.kind, MasteredNode)


class Site:
    """The peers of this process."""

    def __init__(self, plan: SitePlan) -> None:
        """Start them."""
        self._local = LocalNodes(
            plan.place,
            spark=plan.spark,
            capacity=plan.capacity,
            links=plan.links,
            join=plan.join,
            tuned=plan.engine,
            machine=plan.machine(),
            kind=plan.kind,
        )
        self._peers = Peers(self._local, plan.zones)
        self._peers.__enter__()

    @property
    def nodes(self) -> list[NodeService]:
        """The nodes."""
        return self._peers.nodes

    def addresses(self) -> list[Peer]:
        """Return who is here."""
        return [node.own for node in self.nodes]

    def obey(self, mastery: Mastery) -> None:
        """Tell all nodes who the master is."""
        for node in self.nodes:
            assert isinstance(node, MasteredNode)
            node.mastery = mastery

    def known(self) -> int:
        """Return how many others the node with the fewest knows."""
        return min(len(node.machine.ring.known.leaves) for node in self.nodes)

    def notes(self) -> list[Note]:
        """Return what was noted since the last time."""

        async def take() -> list[Note]:
            return [note for node in self.nodes if isinstance(node, WatchedNode) for note in node.take_notes()]

        return self._peers.do(take())

    def latencies(self) -> Histogram:
        """Return the latencies of all sampled rows that have reached a sink here so far."""
        together = Histogram()
        for node in self.nodes:
            for part in list(node.plant.parts.values()):
                for task in list(part.app.sinks):
                    together.merge(task.latency)
        return together

    def hosted(self) -> dict[NodeId, int]:
        """Return how many instances each node runs."""
        return {node.own.id: len(node.machine.hosting.hosted) for node in self.nodes}

    def add(self, zone: str) -> Peer:
        """Start one more node, and wait until it is in the ring."""
        return self._peers.do(self._local.add(zone)).own

    def drain(self, peer: Peer) -> int:
        """Let a node leave for good, and return how many instances it had when it was told to."""
        node = next(node for node in self.nodes if node.own.id == peer.id)
        moved = len(node.machine.hosting.hosted)
        try:
            self._peers.do(self._local.drain(node))
        except TimeoutError:
            raise EngineError(f"{peer} is still there: {node.draining.told()}") from None
        return moved

    def pid(self) -> int:
        """Return this process."""
        return os.getpid()

    def close(self) -> None:
        """Stop all."""
        self._peers.__exit__(None, None, None)


class EdgeCluster:
    """All peers; `with` starts and ends them."""

    def __init__(self, plan: SitePlan, processes: int) -> None:
        """Start nothing yet; the peers are shared out among so many processes."""
        self._plan, self._count = plan, processes
        self._sites: list[Apart] = []
        self._homes: dict[NodeId, Apart] = {}
        self.peers: list[Peer] = []

    def __enter__(self) -> "EdgeCluster":
        """Start all, and wait until everybody knows everybody."""
        shares = [PEERS[number :: self._count] for number in range(self._count)]
        self._plan.place.mkdir(parents=True, exist_ok=True)
        plan = replace(self._plan, links=write_links(self._plan.place / "links.toml"))
        try:
            self._begin(plan, shares[:1], ())
            self._begin(plan, shares[1:], (self.peers[0].address,))
            while min(self.ask("known")) < len(PEERS) - 1:
                time.sleep(LOOK_S)
            if plan.is_mastered:
                self._appoint()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _begin(self, plan: SitePlan, shares: Sequence[tuple[str, ...]], join: tuple[str, ...]) -> None:
        begun = len(self._sites)
        for number, zones in enumerate(shares, begun):
            self._sites.append(
                Apart(
                    f"site {number}", Site, replace(plan, place=plan.place / f"site-{number}", zones=zones, join=join)
                )
            )
        for site in self._sites[begun:]:
            site.wait()
            self._take(site, site.ask("addresses"))

    def _take(self, site: Apart, peers: Sequence[Peer]) -> None:
        self.peers += peers
        self._homes |= dict.fromkeys((peer.id for peer in peers), site)

    def add(self, beside: Peer) -> Peer:
        """Let a fresh node join, in the zone and the process of another one."""
        site = self._homes[beside.id]
        joined: Peer = site.ask("add", beside.zone)
        self._take(site, [joined])
        return joined

    def drain(self, peer: Peer) -> int:
        """Let a node leave for good, and return how many instances it had."""
        moved: int = self._homes[peer.id].ask("drain", peer)
        self.peers.remove(peer)
        del self._homes[peer.id]
        return moved

    def hosted(self) -> dict[NodeId, int]:
        """Return how many instances each node runs."""
        return {peer: count for hosted in self.ask("hosted") for peer, count in hosted.items()}

    def pids(self) -> list[int]:
        """Return the processes of the nodes."""
        return self.ask("pid")

    def _appoint(self) -> None:
        """Make the peer that is nearest to all others the master."""

        def ways_ms(peer: Peer) -> float:
            return sum(round_trip_ms(peer.zone, other.zone) for other in self.peers)

        place = min(self.peers, key=lambda peer: (ways_ms(peer), peer.id))
        self.ask("obey", Mastery(place, tuple(self.peers), self._plan.capacity))

    def __exit__(self, *failure: object) -> None:
        """End all."""
        for site in self._sites:
            site.close()
        self._sites.clear()

    def ask(self, method: str, *arguments: Any) -> list[Any]:
        """Have every site do something, one after the other."""
        return [site.ask(method, *arguments) for site in self._sites]

    def notes(self) -> list[Note]:
        """Return what all nodes have noted since the last time, in order."""
        return sorted(note for notes in self.ask("notes") for note in notes)

    def latencies(self) -> Histogram:
        """Return the latencies of all sampled rows so far."""
        together = Histogram()
        for histogram in self.ask("latencies"):
            together.merge(histogram)
        return together
