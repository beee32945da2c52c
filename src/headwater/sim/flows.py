"""Nodes with engines: whole flows run in the simulator, their rows carried between nodes.

A node that crashes comes back with its disk; this world does not cover the loss of disks, which is for recovery. An
owner loses in a crash what it has agreed to and not yet written to a slow disk; no other node has heard of that, since
messages wait for the write. An owner submits its apps again when it is back, as a real node does from its disk. A node
that leaves first gives its instances away, and then is gone with its disk; a node with an app's source, sink or owner
is only restarted.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Final

from headwater.control.app_spec import app_spec
from headwater.control.messages.events import (
    AwaitInstance,
    DrainWanted,
    DurableRecord,
    EmptyInstance,
    MachineConfig,
    NodeEffect,
    NodeEvent,
    NodeStarted,
    NodeTicked,
    NoteDrained,
    NoteRefused,
    NoteRowsGone,
    NoteRowsPut,
    StartInstance,
    StopInstance,
)
from headwater.control.messages.row_messages import RowsCut
from headwater.control.node import NodeMachine
from headwater.dataflow.graph import Graph
from headwater.engine.ledger import Ledger, whole_ledger
from headwater.model.peers import Peer, key_of
from headwater.model.time import SECOND, Instant
from headwater.sim.network import Links
from headwater.sim.simulated_engine import Disk, Fate, SimulatedEngine, ledger_in, unsettled_in
from headwater.sim.targets import Outputs, Targets
from headwater.sim.troubled import Broken, TroubledWorld
from headwater.sim.witness import Witness
from headwater.storage.memory_store import MemoryStore

BACK_S: Final = 25.0  # until a node is back that in stories without rows would be gone for good
ROWS_MAX: Final = 100_000  # of a flow that is to end: more would take minutes for every seed
SECONDS_MAX: Final = 7 * 86_400
TOLD_ROWS: Final = 3  # missing rows that a message quotes, and as many extra ones


class PlantedNode(NodeMachine):
    """A node with an engine: each handles the other's events until neither has more."""

    def __init__(self, own: Peer, config: MachineConfig, rng: Random, plant: SimulatedEngine) -> None:
        super().__init__(own, config, rng, dock=plant)
        self.plant = plant

    def handle(self, event: NodeEvent, now: Instant) -> list[NodeEffect]:
        """Handle an event in the node and the engine, and return the effects on the world."""
        out: list[NodeEffect] = []
        news: list[NodeEvent] = [event]
        match event:
            case NodeStarted():
                news = [*self.plant.reopen(now), event]
            case NodeTicked():
                news = [event, *self.plant.advance(now)]
        while news:
            for effect in super().handle(news.pop(0), now):
                match effect:
                    case (
                        StartInstance()
                        | AwaitInstance()
                        | EmptyInstance()
                        | StopInstance()
                        | NoteRowsPut()
                        | NoteRowsGone()
                    ):
                        news += self.plant.carry_out(effect, now)
                    case _:
                        out.append(effect)
        return out

    def deadline(self) -> Instant | None:
        """Return when the next timer of either is due."""
        known = [at for at in (super().deadline(), self.plant.deadline()) if at is not None]
        return min(known, default=None)

    def check(self) -> None:
        """Raise if an invariant is broken."""
        super().check()
        self.plant.check()


class FlowWorld(TroubledWorld):
    """Nodes with engines, and all that sinks have written."""

    def __init__(
        self, seed: int, *, nodes: int, zones: int, links_fail: bool, witness: Witness, links: Links | None = None
    ) -> None:
        super().__init__(seed, nodes=nodes, zones=zones, links_fail=links_fail, witness=witness, links=links)
        self.graphs: dict[str, Graph] = {}
        self.targets = Targets()
        self._stores: dict[str, MemoryStore] = {}
        self._accounts: dict[str, list[Ledger]] = {}  # of nodes that have left for good
        self.draining: set[str] = set()

    def _made(self, peer: Peer, rng: Random) -> PlantedNode:
        address = peer.address
        store = self._stores.setdefault(address, MemoryStore())
        disk = Disk(Random(f"{self.seed}/{address}/disk/{self._starts}"), lambda: self.disks.sync_us(address))
        return PlantedNode(
            peer,
            self._config_of(peer),
            rng,
            SimulatedEngine(store, disk, lambda flow: self.graphs[flow.decode()], self.targets.open),
        )

    # --- flows --------------------------------------------------------------------------------------------------------

    def submit_flow(self, graph: Graph) -> None:
        """Submit a flow to a random node, with each of its sources on a random node."""
        self.graphs[graph.name] = graph
        peers = [node.own for _, node in sorted(self.nodes.items()) if node.is_active]
        spec = app_spec(graph, [self.rng.choice(peers) for _ in graph.sources], graph.name.encode())
        owner = self.rng.choice(peers).address
        places = " ".join(peer.address for peer in spec.sources)
        self.note(f"{graph.name} is submitted to {owner}; its sources are on {places}")
        self.submit(spec, owner)

    def _come_back(self, address: str) -> None:
        super()._come_back(address)
        if address in self.draining:
            self.tell(address, DrainWanted())

    def _do(self, address: str, effect: NodeEffect) -> None:
        super()._do(address, effect)
        match effect:
            case NoteDrained():
                self.timeline.after(0, self._gone, address)
            case NoteRefused(sender, why):
                raise Broken(f"{address} refused what {sender} sent: {why}", address)

    def _keep(self, address: str, record: DurableRecord) -> bool:
        node = self.nodes[address]
        assert isinstance(node, PlantedNode)
        return not node.plant.disk.is_full and super()._keep(address, record)

    # --- misfortune ---------------------------------------------------------------------------------------------------

    def lose(self, address: str, *, back_s: float | None) -> None:
        """Let a host crash, and come back with its disk."""
        super().lose(address, back_s=BACK_S if back_s is None else back_s)

    def depart(self, address: str) -> None:
        """Let a node leave for good once its instances have moved; a node that cannot leave is restarted."""
        if not self.may_drain(address):
            self.lose(address, back_s=BACK_S)
        elif address not in self.draining:
            self.note(f"{address} is to leave for good", "drains")
            self.draining.add(address)
            self.tell(address, DrainWanted())

    def may_drain(self, address: str) -> bool:
        """Whether a node has no source, sink or app of its own, which cannot move, and enough other nodes stay."""
        node = self.nodes[address]
        assert isinstance(node, PlantedNode)
        owns = any(owner == address for owner, _ in self.submitted.values())
        reads = any(peer.address == address for spec in self.specs.values() for peer in spec.sources)
        writes = any(app.is_sink(one) for name, app in node.plant.apps.items() for one in node.plant.lots(name))
        return not owns and not reads and not writes and len(self.draining) + 1 < len(self.nodes) // 2

    def _is_placed(self, app: str, instance: int, lot: tuple[int, int]) -> bool:
        """Whether the placement that an app's owner has written needs an instance's state under this lot."""
        return any(lot in one.lots() for one in self.placed(app) if one.instance == instance)

    def _gone(self, address: str) -> None:
        """Remove a drained node once no other node fetches from it; its part of the ledgers stays."""
        node = self.nodes.get(address)
        if node is None or address not in self.draining:
            return
        assert isinstance(node, PlantedNode)
        if any(self._is_placed(app, one, lot) for app in node.plant.apps for one, lot in node.plant.lots(app).items()):
            return  # it was restarted, and knows nothing of what others still look for there
        if any(self._is_asked_about(app, address) for app in node.plant.apps):
            return
        for app in node.plant.apps:
            self._accounts.setdefault(app, []).append(node.plant.ledger(app))
        self.note(f"{address} leaves", "leaves")
        self._account_for(address)
        self.leave(address)
        self.draining.discard(address)
        del self._stores[address]

    def _is_asked_about(self, app: str, address: str) -> bool:
        """Whether a disk has rows of an app that this node, as it was lost before, may have taken: it has to say so.

        Who still takes it for the host of what others run by now is told; as the service of a real node does it.
        """
        own = self.nodes[address].own
        cuts = {one.instance: one.cuts for one in self.placed(app)}
        is_asked = False
        for other, store in sorted(self._stores.items()):
            left = unsettled_in(store, app, self.graphs[app])
            is_asked |= own.id in left.hosts
            for number in left.behind(own.id, cuts):
                is_asked = True
                self.transmit(address, other, RowsCut(own, app, number, cuts[number]))
        return is_asked

    def send_devices_away(self, address: str, seconds: float) -> None:
        """Cut off the devices behind a node's sources for a while; they send their rows afterwards."""
        node = self.nodes.get(address)
        if isinstance(node, PlantedNode):
            node.plant.offline_until = Instant(self.timeline.now + int(seconds * SECOND))

    def doom_worker(self, address: str, fate: Fate) -> None:
        """Let the worker of a node's next turn die in it."""
        node = self.nodes.get(address)
        if isinstance(node, PlantedNode):
            self.note(f"{address} is to lose a worker: {fate.value}", "lost workers")
            node.plant.dooms.append(fate)

    def fill_disk(self, address: str, seconds: float) -> None:
        """Let no turn of a node commit for a while."""
        node = self.nodes.get(address)
        if isinstance(node, PlantedNode):
            node.plant.disk.is_full = True
            self.note(f"the disk of {address} is full for {seconds:.1f} s", "full disks")
            self.later(seconds, self._empty_disk, node.plant)

    def _empty_disk(self, plant: SimulatedEngine) -> None:
        plant.disk.is_full = False

    def heal(self) -> None:
        """End all faults."""
        super().heal()
        for _, plant in self.plants():
            plant.offline_until = self.timeline.now
            plant.disk.is_full = False
            plant.dooms.clear()

    # --- the truth ----------------------------------------------------------------------------------------------------

    def plants(self) -> Iterator[tuple[str, SimulatedEngine]]:
        """Yield the engines of all nodes that are up."""
        for address, node in sorted(self.nodes.items()):
            assert isinstance(node, PlantedNode)
            yield address, node.plant

    def is_done(self) -> bool:
        """Whether all sources have ended, no row waits in a queue, and all draining nodes have left."""
        return not self.draining and all(self._is_done(app) for app in self.graphs)

    def _is_done(self, app: str) -> bool:
        parts = [plant for _, plant in self.plants() if app in plant.apps]
        reading = sum(len(plant.apps[app].sources) for plant in parts)
        return reading == len(self.graphs[app].sources) and all(plant.is_done(app) for plant in parts)

    def troubles(self) -> list[str]:
        """Return what users' functions raised."""
        found = ((address, app, known.trouble) for address, one in self.plants() for app, known in one.apps.items())
        return [f"{app} on {address}: {trouble}" for address, app, trouble in found if trouble is not None]

    def ledger(self, app: str) -> Ledger:
        """Add up an app's ledger over all disks, whether their nodes are up or not."""
        known = [(address, plant.apps[app]) for address, plant in self.plants() if app in plant.apps]
        living = (ledger_in(self._stores[address], one.graph, one.id) for address, one in known)
        return whole_ledger([*living, *self._accounts.get(app, ())])

    def written(self, app: str) -> Outputs:
        """Return what an app's sinks have written."""
        return self.targets.written(app, (sink.name for sink in self.graphs[app].sinks))

    def check_outputs(self, expected: Mapping[str, Outputs]) -> None:
        """Raise unless every sink has what an undisturbed node writes, row for row, and the ledger balances."""
        for app in self.graphs:
            ledger = self.ledger(app)
            if not ledger.balanced or ledger.waiting:
                raise Broken(f"the ledger of {app} does not balance: {ledger}")
            written = self.written(app)
            for sink, rows in expected[app].items():
                if written[sink] != rows:
                    raise Broken(f"{app}: {_difference(sink, rows, written[sink])}")


def _difference(sink: str, expected: Counter[str], got: Counter[str]) -> str:
    missing, extra = expected - got, got - expected
    some = "; ".join(
        [*(f"-{row}" for row in list(missing)[:TOLD_ROWS]), *(f"+{row}" for row in list(extra)[:TOLD_ROWS])]
    )
    return (
        f"sink {sink} lacks {missing.total()} of {expected.total()} rows and has {extra.total()} that an undisturbed "
        f"node does not write: {some}"
    )


def undisturbed(graph: Graph, tell: Callable[[int, float], None] = lambda rows, seconds: None) -> Outputs:
    """Run a flow on one engine that nothing disturbs, and return what its sinks get.

    Raises Broken if a function of the flow raises or the flow does not end; `tell` gets its rows and seconds so far.
    """
    targets = Targets()
    plant = SimulatedEngine(MemoryStore(), Disk(Random(0), lambda: 0), lambda flow: graph, targets.open)
    everything = [*range(graph.instance_count), *(-1 - number for number in range(len(graph.sources)))]
    spec = app_spec(graph, [NOWHERE for _ in graph.sources], b"")
    for instance in everything:
        plant.carry_out(StartInstance(graph.name, instance, spec.chains[0], NOWHERE, b"", spec.key), Instant(0))
    app = plant.apps[graph.name]
    while not plant.is_done(graph.name):
        if app.trouble is not None:  # the engine has halted the app
            raise Broken(f"a function of {graph.name} raised: {app.trouble}")
        at = plant.deadline()
        rows = sum(source.record.stored for source in app.sources.values())
        if at is None or at > SECONDS_MAX * SECOND or rows > ROWS_MAX:
            raise Broken(
                f"{graph.name} has not ended after {rows:,} rows and {plant.now / SECOND:,.0f} virtual seconds"
            )
        tell(rows, plant.now / SECOND)
        plant.advance(at)
    return targets.written(graph.name, (sink.name for sink in graph.sinks))


NOWHERE: Final = Peer(key_of("nowhere"), "nowhere", "nowhere")
