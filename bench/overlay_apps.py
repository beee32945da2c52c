"""Apps that are submitted at the same instant: where their operators end up, who cares for them, how soon they run.

Against it one central master that serves whoever came first, "one by one" (AgileDART, section VII-B, of Nimbus). It
stands where the nodes are nearest on average, and knows the load of every node without asking. For each app it does
what a steward does, and pays what that costs our steward on this machine: divide the graph, place, encode and decode
the messages. Then it sends every host its instance, all at once, and takes up the next app when the last of them has
answered. Our stewards pay the same for each app in virtual time, one after the other at the same steward.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from random import Random
from statistics import median
from typing import Any, Final

import headwater as hw
from bench.overlay_world import percentile
from headwater.control.messages.app_messages import AnyNodeMessage, AppSpec, RegisterEntry
from headwater.control.messages.events import MachineConfig, MessageReceived, NodeEffect, NodeEvent
from headwater.control.node import NodeMachine
from headwater.dataflow.compile import compile_flow
from headwater.model.peers import Peer, key_of
from headwater.model.time import SECOND, Instant
from headwater.sim.network import Network
from headwater.sim.nodes import NodeWorld, chains_of_stages

OPERATORS: Final = (7, 13)  # of an app, at least and at most: 10 on average
SOURCES: Final = (1, 3)
FEW: Final = 4  # operators; nodes are to host fewer
PATIENCE_S: Final = 120.0
CENTRE_TRIED: Final = 200  # nodes that are looked at for the best place of the master


# --- ours -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Deployed:
    """How an app came to run."""

    app: str
    owner: str
    hosts: tuple[str, ...]
    steward: str
    deploy_s: float  # from the submission until its owner hears that it runs


def submit(world: NodeWorld, apps: int, within_s: float = 0.0) -> list[Deployed]:
    """Submit more apps at random nodes, at one instant or in even steps, and wait until all run."""
    begun = len(world.specs)
    rng = Random(f"{world.seed}/{begun}")
    peers = sorted(node.own for node in world.nodes.values())
    names = [f"app{number}" for number in range(begun, begun + apps)]
    for name in names:
        world.submit(some_app(name, peers, rng), rng.choice(peers).address)
        if within_s:
            world.run(within_s / apps)
    assert world.run_until(lambda: len(world.runs_since) == begun + apps, at_most=PATIENCE_S, step=0.5), (
        "an app does not run"
    )
    entries = {app: entry for node in world.nodes.values() for app, entry in node.register.entries.items()}
    stewards = {app: address for address, node in world.nodes.items() for app in node.register.entries}
    return [_deployed(world, entries[name], stewards[name]) for name in names]


def some_app(name: str, peers: Sequence[Peer], rng: Random) -> AppSpec:
    """Make an app of about ten operators with one to three sources, anywhere."""
    sources = tuple(rng.sample(peers, rng.randint(*SOURCES)))
    return AppSpec(name, key_of(name), sources, chains_of_stages(rng.randint(*OPERATORS), len(sources)))


def _deployed(world: NodeWorld, entry: RegisterEntry, steward: str) -> Deployed:
    app = entry.spec.name
    owner, since = world.submitted[app]
    hosts = tuple(sorted({placed.host.address for placed in entry.placed}))
    return Deployed(app, owner, hosts, steward, (world.runs_since[app] - since) / SECOND)


def with_costs(deployed: Sequence[Deployed], cost_s: float) -> list[float]:
    """Return when each app runs if its steward works on one app after the other, in the order in which they ran."""
    behind: Counter[str] = Counter()
    times = []
    for one in sorted(deployed, key=lambda one: (one.deploy_s, one.app)):
        behind[one.steward] += 1
        times.append(one.deploy_s + behind[one.steward] * cost_s)
    return times


def spread_of(world: NodeWorld) -> dict[str, Any]:
    """Return how many nodes host how many operators, and how many stewards the zones have."""
    loads = Counter(node.hosting.load for node in world.nodes.values())
    few = sum(count for load, count in loads.items() if load < FEW)
    return {
        "nodes_by_operators": {str(load): loads[load] for load in sorted(loads)},
        f"share_under_{FEW}": round(few / len(world.nodes), 5),
        "stewards_by_zone": stewards_of(world),
        "steward_hops": dict(sorted(Counter(world.steward_hops).items())),
    }


def stewards_of(world: NodeWorld) -> dict[str, int]:
    """Return how many stewards each zone has."""
    zones = {node.own.zone: 0 for node in world.nodes.values()}
    for node in world.nodes.values():
        zones[node.own.zone] += node.desk.is_open
    return dict(sorted(zones.items()))


# --- the central master -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Master:
    """One master for all apps, which serves whoever came first."""

    network: Network
    place: str
    cost_s: float
    waits: bool = True  # for all hosts of an app, before it takes up the next
    free_at_s: float = field(default=0.0)

    def deploy_all(self, apps: Sequence[Deployed]) -> list[tuple[float, float]]:
        """Return for each app how long it waited for its turn, and how long it took from its submission to running."""
        arrivals = sorted((self._way_s(one.owner), one.app, one) for one in apps)
        return [self._deploy(one, arrival_s) for arrival_s, _, one in arrivals]

    def _deploy(self, one: Deployed, arrival_s: float) -> tuple[float, float]:
        begin_s = max(arrival_s, self.free_at_s)
        placed_s = begin_s + self.cost_s
        started_s = placed_s + 2 * max(self._way_s(host) for host in one.hosts)
        self.free_at_s = started_s if self.waits else placed_s
        return begin_s - arrival_s, started_s + self._way_s(one.owner)

    def _way_s(self, other: str) -> float:
        return 0.0 if other == self.place else self.network.way_us(self.place, other) / SECOND


def best_place(world: NodeWorld) -> str:
    """Return the node from which the others are nearest on average, of those looked at."""
    some = Random(world.seed).sample(sorted(world.nodes), min(CENTRE_TRIED, len(world.nodes)))
    return min(some, key=lambda one: (sum(world.network.way_us(one, other) for other in some), one))


def against_master(world: NodeWorld, deployed: Sequence[Deployed], cost_s: float) -> dict[str, Any]:
    """Return the deployment times of both sides."""
    place = best_place(world)
    central = Master(world.network, place, cost_s).deploy_all(deployed)
    unhurried = Master(world.network, place, cost_s, waits=False).deploy_all(deployed)
    ours, theirs = with_costs(deployed, cost_s), [took for _, took in central]
    return {
        "ours_s": _figures(ours),
        "central_s": _figures(theirs),
        "central_queue_s": _figures([waited for waited, _ in central]),
        "central_not_waiting_for_hosts_s": _figures([took for _, took in unhurried]),
        "p99_vs_central": round(percentile(theirs, 0.99) / percentile(ours, 0.99), 3),
        "nth_app_s": {"ours": _sampled(sorted(ours)), "central": _sampled(sorted(theirs))},
    }


def _figures(times: list[float]) -> dict[str, float]:
    return {
        "mean": round(sum(times) / len(times), 4),
        "p50": round(percentile(times, 0.5), 4),
        "p99": round(percentile(times, 0.99), 4),
    }


def _sampled(times: list[float], points: int = 50) -> dict[str, float]:
    """Return some of many times, by their number from 1."""
    step = max(1, len(times) // points)
    chosen = sorted({*range(0, len(times), step), len(times) - 1})
    return {str(number + 1): round(times[number], 4) for number in chosen}


# --- what a step costs on this machine --------------------------------------------------------------------------------


class _TimedNode(NodeMachine):
    """A node that takes the time of whatever it does about apps."""

    spent_s = 0.0

    def handle(self, event: NodeEvent, now: Instant) -> list[NodeEffect]:
        """Do as any node does, and add up the time."""
        begin = time.thread_time()
        effects = super().handle(event, now)
        if (
            isinstance(event, MessageReceived)
            and type(event.message).__module__ == "headwater.control.messages.app_messages"
        ):
            self.spent_s += time.thread_time() - begin
        return effects


class _TimedWorld(NodeWorld):
    """A world whose nodes take the time; every message is encoded by its sender and decoded."""

    def _made(self, peer: Peer, rng: Random) -> NodeMachine:
        return _TimedNode(peer, self.config, rng)

    def _as_sent(self, message: AnyNodeMessage) -> AnyNodeMessage:
        begin = time.thread_time()
        sent = super()._as_sent(message)
        sender = self.nodes.get(message.sender.address)
        if isinstance(sender, _TimedNode) and type(message).__module__ == "headwater.control.messages.app_messages":
            sender.spent_s += time.thread_time() - begin
        return sent


NODES_PER_APP: Final = 1.6  # that carry eight operators each; apps have ten on average, and up to thirteen


def step_costs(apps: int) -> dict[str, float]:
    """Return the milliseconds of CPU that an app costs its steward on this machine, beside what is waited for."""
    world = _TimedWorld(1, zones=1, config=MachineConfig(steward_apps_max=apps), on_wire=True)
    first = world.add()
    for _ in range(ceil(NODES_PER_APP * apps) - 1):
        world.add([first])
        world.run(0.5)
    assert world.run_until(world.is_whole, at_most=60.0)
    submit(world, 1)  # a steward is there from now on, and all code has run once
    steward = next(node for node in world.nodes.values() if node.desk.is_open)
    assert isinstance(steward, _TimedNode)
    before = steward.spent_s
    for _ in range(1, apps):
        submit(world, 1)
    return {
        "divide_ms": round(1_000 * _dividing_s(), 4),
        "place_and_talk_ms": round(1_000 * (steward.spent_s - before) / (apps - 1), 4),
    }


def _dividing_s(rounds: int = 21) -> float:
    """Return how long it takes to compile a flow of ten operators into chains."""
    stream = hw.read.iterable([])
    for number in range(9):
        stream = stream.map(lambda batch: batch, name=f"step{number}")
    flow = hw.flow("ten", stream.sink(hw.to.nothing()))
    times = []
    for _ in range(rounds):
        begin = time.thread_time()
        compile_flow(flow, chaining=False)
        times.append(time.thread_time() - begin)
    return median(times)
