"""Nodes that fail at the same instant: how long until the ring is whole again, and until every app runs as it should.

The ring is whole when every living node has its true leaves. An app is whole when one steward has it as running, every
instance runs on the node that the steward placed it on, and every living source has its way to the root of the tree.
Apps are such as real graphs make: what has no state is placed elsewhere; what has, and sinks, waits for its node, and
is counted.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import asdict, dataclass
from random import Random
from typing import Any, Final

from bench.overlay_world import in_a_copy
from headwater.model.time import SECOND
from headwater.sim.nodes import NodeWorld

STEP_S: Final = 0.1  # between two looks
PATIENCE_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Recovery:
    """What became of so many failures at once."""

    failures: int
    ring_s: float
    dataflow_s: float
    messages_per_failure: float  # beyond what nodes send when they stand still
    waiting: int  # instances whose state or output is on a lost node: they wait for it, and the rest goes on


class Standing:
    """How many messages are sent while nothing fails, second by second: what recovery costs is what comes on top."""

    def __init__(self, world: NodeWorld, seconds: int) -> None:
        """Let a copy of the world stand still for a while."""
        self._nodes, self._sent = len(world.nodes), in_a_copy(lambda: _sent_by_second(world, seconds))

    @property
    def per_node_s(self) -> float:
        """How many each node sends in a second."""
        return self._sent[-1] / self._nodes / (len(self._sent) - 1)

    def sent_in(self, seconds: float) -> float:
        """Return how many are sent in so many seconds; beyond what was seen, as many as on average."""
        whole = int(seconds)
        if whole + 1 >= len(self._sent):
            return self.per_node_s * self._nodes * seconds
        return self._sent[whole] + (seconds - whole) * (self._sent[whole + 1] - self._sent[whole])


def _sent_by_second(world: NodeWorld, seconds: int) -> list[int]:
    before, sent = world.network.sent, [0]
    for _ in range(seconds):
        world.run(1.0)
        sent.append(world.network.sent - before)
    return sent


def recoveries(
    world: NodeWorld, rounds: dict[int, int], standing: Standing, tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Return, for each number of failures, the means over its rounds; each round is a copy with its own victims."""
    found = []
    for failures, repeats in rounds.items():
        tell(f"{failures} nodes fail at once")
        tried = [
            in_a_copy(lambda count=failures, number=number: recovery(world, count, number, standing))  # type: ignore[misc]
            for number in range(repeats)
        ]
        mean = {name: round(sum(asdict(one)[name] for one in tried) / repeats, 3) for name in asdict(tried[0])}
        found.append({**mean, "failures": failures, "rounds": [asdict(one) for one in tried]})
    return found


def recovery(world: NodeWorld, failures: int, number: int, standing: Standing) -> Recovery:
    """Let nodes that run instances fail, and wait until all is whole.

    Nodes at which rows come in are spared: an app whose only source is lost has nothing to run on until it is back.
    """
    rng = Random(f"{world.seed}/{failures}/{number}")
    hosts = sorted(address for address, node in world.nodes.items() if node.hosting.hosted and not node.hosting.sourced)
    lost = sorted(world.nodes[address].own for address in rng.sample(hosts, failures))
    touched = [address for address, node in world.nodes.items() if any(peer in lost for peer in node.ring.known.leaves)]
    begin, sent = world.timeline.now, world.network.sent
    for peer in lost:
        world.crash(peer.address)
    touched = [address for address in touched if address in world.nodes]
    ring_s = dataflow_s = None
    leaves, apps = _Leaves(world, touched), list(world.specs)
    while ring_s is None or dataflow_s is None:
        world.run(STEP_S)
        passed_s = (world.timeline.now - begin) / SECOND
        assert passed_s < PATIENCE_S, (leaves.wrong[:3], apps[-1:], world.app_faults(apps[-1])[:3] if apps else [])
        while apps and not world.app_faults(apps[-1]):
            apps.pop()
        if ring_s is None and leaves.are_true():
            ring_s = passed_s
        if ring_s is not None and not apps:
            dataflow_s = passed_s
    extra = world.network.sent - sent - standing.sent_in(dataflow_s)
    entries = (entry for node in world.nodes.values() for entry in node.register.entries.values())
    waiting = sum(len(world.waiting(entry)) for entry in entries)
    return Recovery(failures, ring_s, dataflow_s, extra / failures, waiting)


class _Leaves:
    """The leaf sets that had a lost node in them."""

    def __init__(self, world: NodeWorld, touched: list[str]) -> None:
        self._world = world
        self.wrong = touched
        self._peers = sorted(node.own for node in world.nodes.values())

    def are_true(self) -> bool:
        """Whether all of them are as they should be by now."""
        while self.wrong and self._is_true(self.wrong[-1]):
            self.wrong.pop()
        return not self.wrong

    def _is_true(self, address: str) -> bool:
        node, peers = self._world.nodes[address], self._peers
        side, place = self._world.config.overlay.leaf_side, bisect_left(peers, node.own)
        true = {peers[(place + step) % len(peers)] for step in range(-side, side + 1)} - {node.own}
        return true == set(node.ring.known.leaves)
